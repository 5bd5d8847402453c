// Package traffic makes TCP traffic whose true counts are known from the programs that make it,
// not from the kernel programs that are under test.
package traffic

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
)

// Total is what one end of a service's connections did.
type Total struct {
	Connections, Requests uint64
	// SentBytes went from the client to the server, ReceivedBytes back, at both ends.
	SentBytes, ReceivedBytes uint64
}

// Truth is what is true of all connections to one service.
type Truth struct {
	Service netip.AddrPort
	// Client and Server are the two ends. They differ only in bytes that one end sent and the
	// other did not care to read before its end.
	Client, Server Total
}

// books counts what goes through connections, as the program that uses them sees it.
type books struct {
	connections, requests, sent, received atomic.Uint64
	// writing is read-locked while somebody writes: an answer may be read before the call that
	// wrote the request has returned.
	writing sync.RWMutex
}

func (b *books) total() Total {
	b.writing.Lock()
	defer b.writing.Unlock()
	return Total{b.connections.Load(), b.requests.Load(), b.sent.Load(), b.received.Load()}
}

// dial opens a TCP connection whose bytes are counted.
func (b *books) dial(ctx context.Context, address string) (net.Conn, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	b.connections.Add(1)
	return &countedConn{conn, b}, nil
}

// countedListener counts what the server's end of connections sees.
type countedListener struct {
	net.Listener
	books *books
}

func (l *countedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.books.connections.Add(1)
	return &countedConn{conn, l.books}, nil
}

// countedConn hides what else a TCP connection can do, so that every byte passes here.
type countedConn struct {
	net.Conn
	books *books
}

func (c *countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.books.received.Add(uint64(n))
	return n, err
}

func (c *countedConn) Write(p []byte) (int, error) {
	c.books.writing.RLock()
	defer c.books.writing.RUnlock()
	n, err := c.Conn.Write(p)
	c.books.sent.Add(uint64(n))
	return n, err
}

// Load says how many connections make how many requests.
type Load struct {
	// Connections are all open at once, unless OneRequestEach.
	Connections int
	// Requests of each connection.
	Requests int
	// OneRequestEach opens a connection for each request: Connections in all, at most
	// atOnce at a time.
	OneRequestEach bool
}

// atOnce bounds how many connections are being opened at a time: queues of servers are short.
const atOnce = 100
