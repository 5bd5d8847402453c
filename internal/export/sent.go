package export

import (
	"context"
	"net"
	"sync/atomic"

	"outsight/internal/model"
)

// dial opens a connection that counts the bytes written to it, with headers, retries and TLS.
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
	return []model.SentBytes{{To: e.to(), Bytes: e.counts.bytes.Load()}}
}
