package export

import (
	"context"
	"net"
	"sync/atomic"

	"outsight/internal/model"
)

// dial opens a connection to the server on which everything that is written is counted: what a server's socket
// gets, with headers, repetitions, and what TLS adds.
func (e *Exporter) dial(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return countedConn{c, &e.counts.bytes}, nil
}

type countedConn struct {
	net.Conn
	sent *atomic.Uint64
}

func (c countedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.sent.Add(uint64(n))
	return n, err
}

// Sent implements agent.Sender.
func (e *Exporter) Sent() []model.SentBytes {
	return []model.SentBytes{{To: "otlp", Bytes: e.counts.bytes.Load()}}
}
