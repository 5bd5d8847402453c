package export

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http/httptest"
	"sync/atomic"
	"testing"
)

// hearing counts what the connections of a listener receive.
type hearing struct {
	net.Listener
	heard atomic.Uint64
}

func (l *hearing) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return heardConn{c, l}, nil
}

type heardConn struct {
	net.Conn
	listener *hearing
}

func (c heardConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.listener.heard.Add(uint64(n))
	return n, err
}

// What an exporter says that it has sent is what the server's sockets have received, to the byte: with heads, a
// batch that is sent again, and over TLS.
func TestSentIsWhatTheServerReceives(t *testing.T) {
	for _, secure := range []bool{false, true} {
		r := &receiver{answers: []int{503}}
		server := httptest.NewUnstartedServer(r)
		in := &hearing{Listener: server.Listener}
		server.Listener = in
		o := Options{OTLP: true}
		if secure {
			server.EnableHTTP2 = true
			server.StartTLS()
			trusted := x509.NewCertPool()
			trusted.AddCert(server.Certificate())
			o.TLS = &tls.Config{RootCAs: trusted}
		} else {
			server.Start()
		}
		defer server.Close()
		o.Server = server.URL
		e := run(t, o)
		var batches uint64
		for v := range 5 {
			if err := e.Put(one(float64(v))); err != nil {
				t.Fatal(err)
			}
			batches += uint64(len(e.encoder.EncodeAll(e.buffer, nil)))
		}
		eventually(t, "all batches", func() bool { return e.Stats().Spool.Batches == 0 })
		said := func() uint64 { return e.Sent()[0].Bytes }
		eventually(t, "what was sent is received", func() bool { return in.heard.Load() == said() })
		if e.Sent()[0].To != "otlp" || said() <= batches {
			t.Errorf("TLS %v: %+v, want more than the %d bytes of five batches", secure, e.Sent(), batches)
		}
		if names, _ := r.seen(); len(names) != 6 {
			t.Errorf("TLS %v: %d requests, want 6", secure, len(names))
		}
	}
}
