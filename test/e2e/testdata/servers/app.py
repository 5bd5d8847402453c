"""An HTTP server that asks Redis and PostgreSQL for each request, on plain sockets, and keeps
its own books of what it sent and received: the truth that Outsight's numbers are held against.
SIGUSR1 prints the books as one line of JSON."""

import collections
import json
import os
import signal
import socket
import struct
import threading

books = {peer: collections.Counter() for peer in ("http", "redis", "postgres")}
lock = threading.Lock()


def note(peer, **amounts):
    with lock:
        books[peer].update(amounts)


class Connection:
    """A connection to a server, of which every byte and every answered request is noted."""

    def __init__(self, peer, host, port):
        self.peer = peer
        self.socket = socket.create_connection((host, port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        note(peer, connections=1)

    def ask(self, request, complete):
        self.socket.sendall(request)
        reply = b""
        while not complete(reply):
            part = self.socket.recv(65536)
            if not part:
                raise ConnectionError(self.peer + " closed the connection")
            reply += part
        note(self.peer, transactions=1, sent=len(request), received=len(reply))
        return reply


def postgres(host):
    connection = Connection("postgres", host, 5432)
    body = struct.pack("!i", 196608) + b"user\0postgres\0database\0postgres\0\0"
    # Every answer of PostgreSQL ends with ReadyForQuery, six bytes: Z, a length, a status.
    connection.ask(struct.pack("!i", len(body) + 4) + body, ready)
    return connection


def ready(reply):
    return reply[-6:-1] == b"Z\0\0\0\5"


def serve(client):
    redis = database = None
    buffered = b""
    while True:
        while b"\r\n\r\n" not in buffered:
            part = client.recv(65536)
            if not part:
                return
            note("http", received=len(part))
            buffered += part
        _, buffered = buffered.split(b"\r\n\r\n", 1)
        redis = redis or Connection("redis", "redis", 6379)
        database = database or postgres("postgres")
        count = redis.ask(b"*2\r\n$4\r\nINCR\r\n$4\r\nhits\r\n", lambda reply: reply.endswith(b"\r\n"))
        query = b"select repeat('outsight ', 1 + %d %% 50)\0" % int(count[1:])
        row = database.ask(b"Q" + struct.pack("!i", len(query) + 4) + query, ready)
        body = row[:256]
        reply = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        note("http", transactions=1, sent=len(reply))
        client.sendall(reply)


def main():
    signal.signal(signal.SIGUSR1, lambda *_: os.write(1, json.dumps(books).encode() + b"\n"))
    listener = socket.create_server(("", 8000), backlog=128)
    while True:
        client, _ = listener.accept()
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        note("http", connections=1)
        threading.Thread(target=serve, args=(client,), daemon=True).start()


main()
