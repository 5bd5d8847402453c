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
	// headerTime is how long a client may take to send a request's headers, bodyTime for its body.
	headerTime = 10 * time.Second
	bodyTime   = 30 * time.Second
	// idleTime is how long a connection may be without a request: others may wait for its place.
	idleTime = 20 * time.Second
	// maxHeaders bounds the headers of a request, maxStreams the requests at a time on a connection (HTTP/2).
	maxHeaders = 16 << 10
	maxStreams = 64
	// stopTime is how long open requests may go on when a server ends.
	stopTime = 3 * time.Second
)

// Server is an http.Server in which a client can hold up nothing but itself: its headers are bounded, and the time that
// it takes to send a request and to read the answer, however long the answer is. It serves on a Listener.
func Server(handler http.Handler, logger *slog.Logger) *http.Server {
	return &http.Server{
		Handler: paced(handler), ConnContext: withConn, ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
		ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeaders,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams, MaxReceiveBufferPerStream: 256 << 10, MaxReceiveBufferPerConnection: 1 << 20,
			SendPingTimeout: DefaultStall, PingTimeout: headerTime, WriteByteTimeout: DefaultStall,
		},
	}
}

// Serve answers the requests of l with a Server until ctx ends, and closes l. Requests that are open then have
// stopTime.
func Serve(ctx context.Context, server *http.Server, l net.Listener) error {
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		deadline, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
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

// withConn lets requests find the connection that they came by.
func withConn(ctx context.Context, c net.Conn) context.Context {
	if r, ok := c.RemoteAddr().(remote); ok {
		return context.WithValue(ctx, connKey{}, r.conn)
	}
	return ctx
}

// paced bounds the time that a client takes for a body, and in HTTP/2 for an answer: there a reader that takes nothing
// stops a stream and not the connection, so that the connection's deadlines do not see it.
func paced(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// The errors of setting deadlines are of writers that have none.
		control := http.NewResponseController(w)
		if r.Body != nil && r.ContentLength != 0 {
			_ = control.SetReadDeadline(time.Now().Add(bodyTime))
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

// timedBody lifts the deadline once all was read: the handler may take longer than the sender.
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

// pacedWriter sets a deadline while something is written, and none while the handler thinks.
type pacedWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	stall   time.Duration
	// until is the handler's own deadline.
	until time.Time
	slow  func()
}

// begin sets the deadline of a write, which is not later than the handler's own.
func (p *pacedWriter) begin() (deadline time.Time) {
	deadline = time.Now().Add(p.stall)
	if !p.until.IsZero() && p.until.Before(deadline) {
		deadline = p.until
	}
	_ = p.control.SetWriteDeadline(deadline)
	return deadline
}

// end is after the write. One that is too slow ends with the stream, whose error does not say why.
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
