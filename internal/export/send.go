package export

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"outsight/internal/frame"
	"outsight/internal/otlp"
)

const (
	firstBackoff = 500 * time.Millisecond
	// maxResponseBytes bounds what is read of a response.
	maxResponseBytes = 64 << 10
	// drainTime is how long an agent that ends goes on sending.
	drainTime = 2 * time.Second
	// drainBatches is how many batches an agent that ends still sends.
	drainBatches = 4
)

// Run sends the batches of the spool, oldest first, until ctx ends, and for drainTime after that.
func (e *Exporter) Run(ctx context.Context) error {
	backoff := firstBackoff
	for {
		b, position, err := e.spool.Next()
		switch {
		case errors.Is(err, errNoBatch):
			select {
			case <-ctx.Done():
				return nil
			case <-e.written:
			}
			continue
		case err != nil:
			e.setError(err)
			if !sleep(ctx, backoff) {
				return nil
			}
			continue
		}
		if e.useless(&b) {
			e.counts.keyless.Add(1)
			if err := e.spool.Sent(position); err != nil {
				e.setError(err)
			}
			continue
		}
		working, cancel := withDrainTime(ctx)
		after, err := e.send(working, b)
		cancel()
		var refused refusedError
		switch {
		case err == nil:
			e.counts.sent.Add(1)
			e.passed(&b, true)
			backoff = firstBackoff
		case errors.As(err, &refused):
			// Permanent: a retry would be refused again, and hold up later batches.
			e.counts.refused.Add(1)
			e.passed(&b, false)
		default:
			e.setError(err)
			e.counts.retries.Add(1)
			// Jitter, so that the agents of a fleet do not retry at once.
			if !sleep(ctx, max(after, backoff/2+rand.N(backoff))) {
				return nil
			}
			backoff = min(2*backoff, e.options.MaxBackoff)
			continue
		}
		e.setError(err)
		if err := e.spool.Sent(position); err != nil {
			e.setError(err)
		}
		if ctx.Err() != nil && e.spool.Stats().Batches > drainBatches {
			return nil // they are sent after the next start
		}
	}
}

// withDrainTime is a context that ends drainTime after ctx.
func withDrainTime(ctx context.Context) (context.Context, context.CancelFunc) {
	working, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(drainTime, cancel) })
	return working, func() { stop(); cancel() }
}

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// refusedError is a permanent refusal of a batch.
type refusedError struct{ error }

// send sends one batch. After any error but a refusedError it has to be sent again, and not earlier than after.
func (e *Exporter) send(ctx context.Context, b Batch) (after time.Duration, err error) {
	url, isFrame := e.otlpURL, isFrame(b.Data)
	if isFrame {
		url = e.url
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(b.Data))
	if err != nil {
		return 0, fmt.Errorf("sending a batch: %w", err)
	}
	if isFrame {
		r.Header.Set("Content-Type", frame.ContentType)
	} else {
		r.Header.Set("Content-Type", "application/x-protobuf")
		r.Header.Set("Content-Encoding", "zstd")
	}
	r.Header.Set(otlp.BatchHeader, b.Name)
	e.introduce(r)
	answer, err := e.client.Do(r)
	if err != nil {
		return 0, fmt.Errorf("sending a batch: %w", err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxResponseBytes))
	if err != nil {
		return 0, fmt.Errorf("reading the server's answer: %w", err)
	}
	return e.checkResponse(answer, body)
}

// introduce says in a request who sends it.
func (e *Exporter) introduce(r *http.Request) {
	r.Header.Set("User-Agent", "outsight-agent")
	if e.options.Tenant != "" {
		r.Header.Set(otlp.TenantHeader, e.options.Tenant)
	}
	if e.options.Token != "" {
		r.Header.Set("Authorization", "Bearer "+e.options.Token)
	}
}

func (e *Exporter) checkResponse(answer *http.Response, body []byte) (after time.Duration, err error) {
	if answer.StatusCode == http.StatusOK {
		if answer.Header.Get(frame.WantKeyHeader) == "1" {
			e.frames.wanted.Store(true)
		}
		if n, why := parsePartialSuccess(body); n > 0 {
			e.counts.rejected.Add(n)
			e.options.Logger.Debug("the server rejected some samples", "samples", n, "why", why)
		}
		return 0, nil
	}
	err = fmt.Errorf("the server at %s answers %s%s", answer.Request.URL, answer.Status, statusMessage(body))
	switch answer.StatusCode {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType,
		http.StatusUnprocessableEntity:
		return 0, refusedError{err}
	}
	// Everything else can be corrected while the batch is in the spool: a token, a path, a server.
	return e.retryAfter(answer), err
}

// retryAfter is how long a server wants to be left alone, MaxBackoff at most; 0 where it does not say.
func (e *Exporter) retryAfter(answer *http.Response) time.Duration {
	seconds, err := strconv.Atoi(answer.Header.Get("Retry-After"))
	if err != nil || seconds <= 0 {
		return 0
	}
	return min(time.Duration(seconds)*time.Second, e.options.MaxBackoff)
}

// parsePartialSuccess reads how many data points were rejected, and why, of an ExportMetricsServiceResponse.
func parsePartialSuccess(body []byte) (rejected uint64, why string) {
	eachField(body, func(num protowire.Number, _ uint64, inner []byte) {
		if num == 1 {
			eachField(inner, func(num protowire.Number, n uint64, text []byte) {
				switch num {
				case 1:
					rejected = n
				case 2:
					why = string(text)
				}
			})
		}
	})
	return rejected, why
}

// statusMessage reads the message of a google.rpc.Status.
func statusMessage(body []byte) (text string) {
	eachField(body, func(num protowire.Number, _ uint64, b []byte) {
		if num == 2 {
			text = ": " + strings.ToValidUTF8(string(b[:min(len(b), 300)]), "?")
		}
	})
	return text
}

func eachField(b []byte, f func(num protowire.Number, n uint64, bytes []byte)) {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return
		}
		b = b[n:]
		size := protowire.ConsumeFieldValue(num, typ, b)
		if size < 0 {
			return
		}
		switch typ {
		case protowire.VarintType:
			v, _ := protowire.ConsumeVarint(b)
			f(num, v, nil)
		case protowire.BytesType:
			v, _ := protowire.ConsumeBytes(b)
			f(num, 0, v)
		}
		b = b[size:]
	}
}
