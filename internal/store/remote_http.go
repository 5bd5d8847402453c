package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// ErrUnavailable means that the remote store could not be reached, or not be written to for
// longer than it was tried. Nothing of the batch can be relied on: append it again later.
var ErrUnavailable = errors.New("remote store is not available")

// ErrAccess means that the remote store refused this server's credentials, or has nothing at the URL.
var ErrAccess = errors.New("remote store refuses access")

// refusedError is an answer to a write that would not change if it were written again.
type refusedError struct {
	samples uint64
	err     error
}

func (e refusedError) Error() string { return e.err.Error() }
func (e refusedError) Unwrap() error { return e.err }

const (
	// maxErrorBytes bounds what is read of an answer that is an error.
	maxErrorBytes = 64 << 10
	// maxErrorText bounds what of it is shown.
	maxErrorText = 300
	firstBackoff = 100 * time.Millisecond
	maxBackoff   = 10 * time.Second
	// maxRetryAfter bounds how long a remote store may ask to be left alone.
	maxRetryAfter = time.Minute
)

// newClient is the HTTP client of a remote store. Redirects are not followed: credentials would be sent to another
// server, and a write would become a read. sent counts the bytes written to connections.
func newClient(o *RemoteOptions, sent *atomic.Uint64) *http.Client {
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return countedConn{c, sent}, nil
	}
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: dial,
		TLSClientConfig: o.TLS, TLSHandshakeTimeout: 10 * time.Second, ForceAttemptHTTP2: true,
		MaxIdleConnsPerHost: o.MaxQueries + 1, IdleConnTimeout: 90 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
	}
	return &http.Client{Transport: transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// countedConn counts what its socket takes.
type countedConn struct {
	net.Conn
	sent *atomic.Uint64
}

func (c countedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.sent.Add(uint64(n))
	return n, err
}

func (r *Remote) request(ctx context.Context, method, url string, body []byte) (*http.Request, error) {
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("User-Agent", "outsight")
	for name, values := range r.options.Header {
		request.Header[name] = values
	}
	switch {
	case r.options.Token != "":
		request.Header.Set("Authorization", "Bearer "+r.options.Token)
	case r.options.User != "":
		request.SetBasicAuth(r.options.User, r.options.Password)
	}
	return request, nil
}

// answerText is what an answer that is an error says, shortened, on one line.
func answerText(response *http.Response) string {
	text, _ := io.ReadAll(io.LimitReader(response.Body, maxErrorText)) // what cannot be read is not shown
	clean := strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(string(text), "?"))
	return strings.TrimSpace(response.Status + ": " + strings.TrimSpace(clean))
}

// retryAfter is how long an answer asks to wait, 0 where it does not say.
func retryAfter(header string, now time.Time) time.Duration {
	if header == "" {
		return 0
	}
	if seconds, err := strconv.ParseInt(header, 10, 32); err == nil {
		return min(max(time.Duration(seconds)*time.Second, 0), maxRetryAfter)
	}
	at, err := http.ParseTime(header)
	if err != nil {
		return 0
	}
	return min(max(at.Sub(now), 0), maxRetryAfter)
}

// backoff is the wait after a number of failed attempts: exponential, less up to a quarter of jitter.
func backoff(failed int) time.Duration {
	wait := maxBackoff
	if failed < 10 {
		wait = min(firstBackoff<<failed, maxBackoff)
	}
	return wait - time.Duration(rand.Int64N(int64(wait/4)+1))
}

// sleep waits, or until ctx ends.
func sleep(ctx context.Context, wait time.Duration) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// errRetry says that an attempt may be repeated, after a time at the earliest.
type errRetry struct {
	after time.Duration
	err   error
}

func (e errRetry) Error() string { return e.err.Error() }
func (e errRetry) Unwrap() error { return e.err }

// retrying repeats an attempt while it fails with errRetry, for at most RetryFor.
func (r *Remote) retrying(ctx context.Context, attempt func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, r.options.RetryFor)
	defer cancel()
	for failed := 0; ; failed++ {
		err := attempt(ctx)
		var again errRetry
		if !errors.As(err, &again) {
			return err
		}
		r.written.retries.Add(1)
		wait := max(again.after, backoff(failed))
		if deadline, ok := ctx.Deadline(); ok && time.Now().Add(wait).After(deadline) {
			return fmt.Errorf("%w, tried %d times: %w", ErrUnavailable, failed+1, again.err)
		}
		if sleep(ctx, wait) != nil {
			return fmt.Errorf("%w, tried %d times: %w", ErrUnavailable, failed+1, again.err)
		}
	}
}
