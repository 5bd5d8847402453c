package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/klauspost/compress/snappy"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/storage/remote"
)

// Bounds of a remote read that are not those of queries.
const (
	// maxReadBytes bounds a request before and after decompression, maxReadQueries the queries in it.
	maxReadBytes   = 256 << 10
	maxReadQueries = 64
	// readFrame is about how many bytes of chunks go out at a time.
	readFrame = 1 << 20
	// maxReadFault bounds what is kept of an error's text.
	maxReadFault = 1 << 10
)

// RemoteRead answers a request of Prometheus's remote read with the series of a tenant, or of all if it is empty: as
// samples, as many as a query may hold, or as a stream of chunks, of which one frame is in memory at a time. It counts
// as a query, in their number and their time.
//
// If it returns an error, nothing has been written. A later failure aborts the connection, so that a partial answer is
// not taken for a complete one.
func (s *Store) RemoteRead(w http.ResponseWriter, r *http.Request, tenant string) error {
	body, err := readRequest(w, r)
	if err != nil {
		return err
	}
	ctx, account, done, err := s.gate.enter(r.Context(), tenant, 0)
	if err != nil {
		return err
	}
	defer done()
	// A client that does not read must not keep its slot longer than a slow query. Writers without deadlines return
	// errors, which are ignored.
	c := http.NewResponseController(w)
	_ = c.SetWriteDeadline(time.Now().Add(s.options.QueryTimeout))
	defer func() { _ = c.SetWriteDeadline(time.Time{}) }()
	budget := &readBudget{ctx: ctx, left: s.options.MaxSamples, allowance: allowance{account: account}}
	out := &readWriter{ResponseWriter: w}
	request := r.WithContext(ctx)
	request.Body = io.NopCloser(bytes.NewReader(body))
	// One slot: the gate comes before it.
	remote.NewReadHandler(s.options.Logger, nil, bounded{s.queryable(tenant), budget}, noExternalLabels, 0, 1,
		readFrame).ServeHTTP(out, request)
	switch {
	case out.status < http.StatusBadRequest && budget.err == nil:
		return nil
	case out.begun:
		panic(http.ErrAbortHandler)
	}
	w.Header().Del("Content-Encoding")
	if !budget.inTime() { // which the handler may have seen first
		return s.gate.sort(ctx, budget.err)
	}
	return s.gate.sort(ctx, errors.New(strings.TrimSpace(string(out.fault))))
}

// noExternalLabels: there is no other server that has the same series.
func noExternalLabels() config.Config { return config.Config{} }

// readRequest is the body of a request that can be answered.
func readRequest(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxReadBytes))
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return nil, badQuery("remote read: a request of more than %d bytes", maxReadBytes)
	}
	if err != nil {
		return nil, badQuery("remote read: reading the request: %w", err)
	}
	switch n, err := snappy.DecodedLen(body); {
	case err != nil:
		return nil, badQuery("remote read: the request is not in snappy: %w", err)
	case n > maxReadBytes:
		return nil, badQuery("remote read: a request of %d bytes: at most %d", n, maxReadBytes)
	}
	request := r.WithContext(r.Context())
	request.Body = io.NopCloser(bytes.NewReader(body))
	asked, err := remote.DecodeReadRequest(request)
	if err != nil {
		return nil, badQuery("remote read: %w", err)
	}
	return body, checkRead(asked)
}

func checkRead(asked *prompb.ReadRequest) error {
	if n := len(asked.Queries); n > maxReadQueries {
		return badQuery("remote read: %d queries: at most %d", n, maxReadQueries)
	}
	if _, err := remote.NegotiateResponseType(asked.AcceptedResponseTypes); err != nil {
		return badQuery("remote read: %w", err)
	}
	size := 0
	for _, q := range asked.Queries {
		for _, m := range q.Matchers {
			if m.Type == prompb.LabelMatcher_RE || m.Type == prompb.LabelMatcher_NRE {
				size = min(size+regexSize(m.Value), math.MaxInt32)
			}
		}
		if size > maxRegexSize {
			return badQuery("remote read: regular expressions of more than %d instructions: use fewer or smaller repetitions", maxRegexSize)
		}
		if q.EndTimestampMs < q.StartTimestampMs {
			return badQuery("remote read: end %d is before start %d", q.EndTimestampMs, q.StartTimestampMs)
		}
		if _, err := remote.FromLabelMatchers(q.Matchers); err != nil {
			return badQuery("remote read: %w", err)
		}
	}
	return nil
}

// RemoteRead answers with an error: the other system has the series.
func (r *Remote) RemoteRead(http.ResponseWriter, *http.Request, string) error {
	return &queryError{errors.ErrUnsupported,
		errors.New("remote read is of the embedded store alone: the series are in another system (--store), which can be asked for it")}
}

// readWriter holds an error back from the client, for RemoteRead to return.
type readWriter struct {
	http.ResponseWriter
	// status is 0 until the handler sets one. begun means that a part of the answer was written.
	status int
	begun  bool
	fault  []byte
}

// WriteHeader implements http.ResponseWriter.
func (w *readWriter) WriteHeader(status int) {
	w.status = status
	if status < http.StatusBadRequest {
		w.begun = true
		w.ResponseWriter.WriteHeader(status)
	}
}

// Write implements http.ResponseWriter.
func (w *readWriter) Write(b []byte) (int, error) {
	if w.status >= http.StatusBadRequest {
		w.fault = append(w.fault, b[:min(len(b), maxReadFault-min(len(w.fault), maxReadFault))]...)
		return len(b), nil
	}
	w.begun = true
	return w.ResponseWriter.Write(b)
}

// Flush implements http.Flusher, which the handler asks for.
func (w *readWriter) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

// readBudget is what a remote read may take.
type readBudget struct {
	ctx context.Context
	// left are samples, or as many times 16 bytes of something else.
	left int
	// allowance pays for them.
	allowance allowance
	// err is why there is no more.
	err error
}

// take reports whether n more are allowed.
func (b *readBudget) take(n int) bool {
	if b.left -= n; b.left < 0 && b.err == nil {
		b.err = tooManySamples
	}
	if b.err == nil {
		b.err = b.allowance.reserve(int64(n) * sampleBytes)
	}
	// A context is asked not too often: it locks.
	if b.err == nil && (n > 1 || b.left%1024 == 0) {
		b.err = b.ctx.Err()
	}
	return b.err == nil
}

// inTime reports whether the deadline is ahead.
func (b *readBudget) inTime() bool {
	if b.err == nil {
		b.err = b.ctx.Err()
	}
	return b.err == nil
}

// or is why there is no more, else err.
func (b *readBudget) or(err error) error {
	if b.err != nil {
		return fmt.Errorf("remote read: %w", b.err)
	}
	return err
}
