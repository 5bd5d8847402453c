package access

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"
)

const (
	// headerTimeout bounds the time in which a client sends a request's headers, bodyTimeout that for its body.
	headerTimeout = 10 * time.Second
	bodyTimeout   = 30 * time.Second
	// idleTimeout is how long a connection may be without a request: others may need its slot.
	idleTimeout = 20 * time.Second
	// maxHeaders bounds the headers of a request, in bytes, maxStreams the concurrent requests of an HTTP/2 connection.
	maxHeaders = 16 << 10
	maxStreams = 64
	// stopTimeout is how long open requests may go on when a server ends.
	stopTimeout = 3 * time.Second
)

// Server is an http.Server in which a slow client delays nobody but itself: the size of its headers is bounded, and so
// is the time in which it sends a request and reads the answer, however long that is. It serves a Listener.
func Server(handler http.Handler, logger *slog.Logger) *http.Server {
	return &http.Server{
		Handler: paced(handler), ConnContext: withConn, ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
		ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaders,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams, MaxReceiveBufferPerStream: 256 << 10, MaxReceiveBufferPerConnection: 1 << 20,
			SendPingTimeout: DefaultStall, PingTimeout: headerTimeout, WriteByteTimeout: DefaultStall,
		},
	}
}

// Serve answers the requests of l with a Server until ctx ends, and closes l. Open requests may then go on for
// stopTimeout.
func Serve(ctx context.Context, server *http.Server, l net.Listener) error {
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		deadline, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		if server.Shutdown(deadline) != nil {
			server.Close()
		}
	})
	err := server.Serve(l)
	if !stop() {
		<-stopped
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serving %s: %w", l.Addr(), err)
}

// withConn stores the connection in the context of its requests.
func withConn(ctx context.Context, c net.Conn) context.Context {
	if r, ok := c.RemoteAddr().(remote); ok {
		return context.WithValue(ctx, connKey{}, r.conn)
	}
	return ctx
}

// paced bounds the time in which a client sends a body, and in HTTP/2 reads an answer: a client that reads nothing
// blocks a stream and not the connection, so that the connection's deadlines do not notice.
func paced(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Writers without deadlines return errors, which are ignored.
		control := http.NewResponseController(w)
		if r.Body != nil && r.ContentLength != 0 {
			_ = control.SetReadDeadline(time.Now().Add(bodyTimeout))
			r.Body = &timedBody{r.Body, control}
		}
		if r.ProtoMajor != 2 {
			handler.ServeHTTP(w, r)
			return
		}
		p := &pacedWriter{ResponseWriter: w, control: control, stall: DefaultStall, slow: func() {}}
		if c, ok := r.Context().Value(connKey{}).(*conn); ok {
			p.stall, p.slow = c.listener.limits.Stall, func() { c.listener.slow.Add(1) }
		}
		handler.ServeHTTP(p, r)
		p.begin() // what is still to be sent
	})
}

// timedBody removes the deadline at the end of the body: the handler may take longer than the sender.
type timedBody struct {
	io.ReadCloser
	control *http.ResponseController
}

func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		_ = b.control.SetReadDeadline(time.Time{})
	}
	return n, err
}

// pacedWriter has a deadline during writes, and none while the handler computes.
type pacedWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	stall   time.Duration
	// until is the handler's own deadline.
	until time.Time
	slow  func()
}

// begin sets the deadline of a write, not later than the handler's own.
func (p *pacedWriter) begin() (deadline time.Time) {
	deadline = time.Now().Add(p.stall)
	if !p.until.IsZero() && p.until.Before(deadline) {
		deadline = p.until
	}
	_ = p.control.SetWriteDeadline(deadline)
	return deadline
}

// end counts a write that was too slow: the error of the stream does not say why it ended.
func (p *pacedWriter) end(deadline time.Time, err error) {
	if err != nil && deadline != p.until && !time.Now().Before(deadline) {
		p.slow()
	}
	_ = p.control.SetWriteDeadline(p.until)
}

// Write implements http.ResponseWriter.
func (p *pacedWriter) Write(b []byte) (n int, err error) {
	for {
		deadline := p.begin()
		m, err := p.ResponseWriter.Write(b[n:min(len(b), n+writePiece)])
		p.end(deadline, err)
		if n += m; err != nil || n == len(b) {
			return n, err
		}
	}
}

// FlushError is what http.ResponseController calls.
func (p *pacedWriter) FlushError() error {
	deadline := p.begin()
	err := p.control.Flush()
	p.end(deadline, err)
	return err
}

// Flush implements http.Flusher.
func (p *pacedWriter) Flush() { _ = p.FlushError() }

// SetWriteDeadline is what http.ResponseController calls.
func (p *pacedWriter) SetWriteDeadline(t time.Time) error {
	p.until = t
	return p.control.SetWriteDeadline(t)
}

// Unwrap is what http.ResponseController calls for the rest.
func (p *pacedWriter) Unwrap() http.ResponseWriter { return p.ResponseWriter }
