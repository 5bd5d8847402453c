"""Answers statements over HTTP as ClickHouse does, with chDB: the engine without a server. Prints its port.

usage: chdb_server.py DIRECTORY
"""
import http.server
import os
import sys
import tempfile
import threading
import urllib.parse

from chdb import session

engine = session.Session(os.path.join(sys.argv[1], "data"))
one_at_a_time = threading.Lock()  # a session is for one thread
protocol_settings = ("query", "database", "wait_end_of_query")


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        asked = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        with one_at_a_time:
            try:
                for name, values in asked.items():
                    if name not in protocol_settings:
                        engine.query(f"SET {name} = {values[0]}")
                status, answer = 200, run(asked.get("query", [""])[0], body)
            except Exception as problem:
                status, answer = 500, str(problem).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *arguments):
        pass


def run(statement, body):
    """Runs a statement. Its rows are the body where the statement is an argument of the request."""
    if not statement:
        return engine.query(body.decode()).bytes()
    head, form = statement.rsplit(" FORMAT ", 1)
    with tempfile.NamedTemporaryFile(dir=sys.argv[1]) as rows:
        rows.write(body)
        rows.flush()
        return engine.query(f"{head} FROM INFILE '{rows.name}' FORMAT {form}").bytes()


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
