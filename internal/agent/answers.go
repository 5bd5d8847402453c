package agent

import (
	"io"
	"net"
	"net/http"
	"sync/atomic"

	"outsight/internal/model"
)

// Sender reports how many bytes it has written to its connections.
type Sender interface {
	Sent() []model.SentBytes
}

// maxMeasured bounds the requests whose time is taken at once. Each has a thread to itself, also while it waits for who
// asked.
const maxMeasured = 8

// Answers is what the servers of this process cost: the bytes that they send over the network, and the CPU time of
// requests. The zero value works.
type Answers struct {
	sent  atomic.Uint64
	spent spending
	// measured is how many requests are answered with the time taken.
	measured atomic.Int32
}

// Sent implements Sender.
func (a *Answers) Sent() []model.SentBytes {
	return []model.SentBytes{{To: "http", Bytes: a.sent.Load()}}
}

// Count counts all that is written to connections of a listener. One for TLS goes around it, so that the bytes are those
// of the wire.
func (a *Answers) Count(l net.Listener) net.Listener { return countedListener{l, &a.sent} }

type countedListener struct {
	net.Listener
	sent *atomic.Uint64
}

func (l countedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return countedConn{c, l.sent}, nil
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

// ReadFrom lets the kernel send files by itself.
func (c countedConn) ReadFrom(from io.Reader) (int64, error) {
	n, err := io.Copy(c.Conn, from)
	c.sent.Add(uint64(n))
	return n, err
}

// CloseWrite lets a server end its half of a connection first, as it does where a request's body is unread.
func (c countedConn) CloseWrite() error {
	if inner, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return inner.CloseWrite()
	}
	return nil
}

// Measure takes the CPU time that handler needs for its answers.
func (a *Answers) Measure(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer a.measured.Add(-1)
		if a.measured.Add(1) <= maxMeasured {
			defer a.spent.on(partServing)()
		}
		handler.ServeHTTP(w, r)
	})
}
