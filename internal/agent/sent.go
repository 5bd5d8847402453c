package agent

import (
	"context"
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

// What an agent answers requests for, as SentBytes names it.
const (
	sentMetrics = "metrics"
	sentAPI     = "api"
	sentSocket  = "socket"
)

// Answers counts what the servers of this process write to their connections, with all that goes with it:
// heads, and what TLS adds. The zero value works.
type Answers struct {
	metrics, api, socket atomic.Uint64
	spent                spending
	// measured is how many requests are answered with the time taken.
	measured atomic.Int32
}

// Sent implements Sender.
func (a *Answers) Sent() []model.SentBytes {
	return []model.SentBytes{
		{To: sentMetrics, Bytes: a.metrics.Load()}, {To: sentAPI, Bytes: a.api.Load()},
		{To: sentSocket, Bytes: a.socket.Load()},
	}
}

// Page counts on the connections of a listener that answers both /metrics and all of the API: each request's
// bytes by its path. A listener for TLS goes around it. ServeHTTP must answer on it.
func (a *Answers) Page(l net.Listener) net.Listener { return &countedListener{l, a, true, &a.api} }

// Metrics counts on the connections of a listener for /metrics alone, and Socket on those of the command
// line's.
func (a *Answers) Metrics(l net.Listener) net.Listener {
	return &countedListener{l, a, false, &a.metrics}
}

// Socket is as Metrics.
func (a *Answers) Socket(l net.Listener) net.Listener {
	return &countedListener{l, a, false, &a.socket}
}

// countedListener counts what is written to its connections for to; byPath, that is up to the first request.
type countedListener struct {
	net.Listener
	answers *Answers
	byPath  bool
	to      *atomic.Uint64
}

func (l *countedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	counted := &countedConn{Conn: c, answers: l.answers, byPath: l.byPath}
	counted.to.Store(l.to)
	return counted, nil
}

// countedConn is a connection to a server of this process.
type countedConn struct {
	net.Conn
	answers *Answers
	byPath  bool
	// to is where bytes are counted now. Requests on a connection come one after the other; of those that
	// HTTP/2 has under way together it is the latest that counts.
	to atomic.Pointer[atomic.Uint64]
}

func (c *countedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.to.Load().Add(uint64(n))
	return n, err
}

// ReadFrom lets the kernel send files by itself.
func (c *countedConn) ReadFrom(from io.Reader) (int64, error) {
	n, err := io.Copy(c.Conn, from)
	c.to.Load().Add(uint64(n))
	return n, err
}

// CloseWrite lets a server end its half of a connection first, as it does where a request's body is unread.
func (c *countedConn) CloseWrite() error {
	if below, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return below.CloseWrite()
	}
	return nil
}

type countedKey struct{}

// withCounted puts the counted connection below c, if there is one, into the requests' context.
func withCounted(ctx context.Context, c net.Conn) context.Context {
	for {
		switch below := c.(type) {
		case *countedConn:
			return context.WithValue(ctx, countedKey{}, below)
		case interface{ NetConn() net.Conn }: // TLS
			c = below.NetConn()
		default:
			return ctx
		}
	}
}

// counted lets what handler answers be counted by what was asked for, and the time that it takes.
func counted(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, _ := r.Context().Value(countedKey{}).(*countedConn)
		if c == nil {
			handler.ServeHTTP(w, r)
			return
		}
		if c.byPath {
			to := &c.answers.api
			if r.URL.Path == "/metrics" {
				to = &c.answers.metrics
			}
			c.to.Store(to)
		}
		defer c.answers.measured.Add(-1)
		if c.answers.measured.Add(1) <= maxMeasured {
			defer c.answers.spent.on(partServing)()
		}
		handler.ServeHTTP(w, r)
	})
}
