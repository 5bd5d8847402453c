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

	"outsight/internal/otlp"
)

const (
	firstPause = 500 * time.Millisecond
	// maxAnswer bounds what is read of a server's answer.
	maxAnswer = 64 << 10
	// drainTime is how long what waits may still be sent when the agent ends.
	drainTime = 2 * time.Second
	// lastBatches is how many an agent that ends still sends.
	lastBatches = 4
)

// Run sends what is in the spool, oldest first, until ctx ends, and a little longer if the server is there.
func (e *Exporter) Run(ctx context.Context) error {
	pause := firstPause
	for {
		b, place, err := e.spool.Next()
		switch {
		case errors.Is(err, errNoBatch):
			select {
			case <-ctx.Done():
				return nil
			case <-e.written:
			}
			continue
		case err != nil:
			e.note(err)
			if !sleep(ctx, pause) {
				return nil
			}
			continue
		}
		working, cancel := drained(ctx)
		after, err := e.send(working, b)
		cancel()
		var refused refusedError
		switch {
		case err == nil:
			e.counts.sent.Add(1)
			pause = firstPause
		case errors.As(err, &refused):
			// It would be refused again. The rest must not wait for it.
			e.counts.refused.Add(1)
		default:
			e.note(err)
			e.counts.retries.Add(1)
			// Not all agents of a fleet at once.
			if !sleep(ctx, max(after, pause/2+rand.N(pause))) {
				return nil
			}
			pause = min(2*pause, e.options.MaxPause)
			continue
		}
		e.note(err)
		if err := e.spool.Sent(place); err != nil {
			e.note(err)
		}
		if ctx.Err() != nil && e.spool.Stats().Batches > lastBatches {
			return nil // they are sent after the next start
		}
	}
}

// drained is ctx, drainTime longer.
func drained(ctx context.Context) (context.Context, context.CancelFunc) {
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

// refusedError is the answer to a batch that the server will never take.
type refusedError struct{ error }

// send sends one batch. After an error that is no refusedError it should be sent again, not before after has passed.
func (e *Exporter) send(ctx context.Context, b Batch) (after time.Duration, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url, bytes.NewReader(b.Data))
	if err != nil {
		return 0, fmt.Errorf("sending a batch: %w", err)
	}
	r.Header.Set("Content-Type", "application/x-protobuf")
	r.Header.Set("Content-Encoding", "zstd")
	r.Header.Set("User-Agent", "outsight-agent")
	r.Header.Set(otlp.BatchHeader, b.Name)
	if e.options.Tenant != "" {
		r.Header.Set(otlp.TenantHeader, e.options.Tenant)
	}
	if e.options.Token != "" {
		r.Header.Set("Authorization", "Bearer "+e.options.Token)
	}
	answer, err := e.client.Do(r)
	if err != nil {
		return 0, fmt.Errorf("sending a batch: %w", err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err != nil {
		return 0, fmt.Errorf("reading the server's answer: %w", err)
	}
	return e.judge(answer, body)
}

func (e *Exporter) judge(answer *http.Response, body []byte) (after time.Duration, err error) {
	if answer.StatusCode == http.StatusOK {
		if n, why := partial(body); n > 0 {
			e.counts.rejected.Add(n)
			e.options.Logger.Debug("the server rejected some samples", "samples", n, "why", why)
		}
		return 0, nil
	}
	err = fmt.Errorf("the server at %s answers %s%s", e.url, answer.Status, reason(body))
	switch answer.StatusCode {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType,
		http.StatusUnprocessableEntity:
		return 0, refusedError{err}
	}
	// Everything else can be mended while the spool has room: a token, a path, a server.
	if seconds, parseErr := strconv.Atoi(answer.Header.Get("Retry-After")); parseErr == nil && seconds > 0 {
		after = min(time.Duration(seconds)*time.Second, e.options.MaxPause)
	}
	return after, err
}

// partial reads how many data points were rejected, and why, from an ExportMetricsServiceResponse.
func partial(body []byte) (rejected uint64, why string) {
	each(body, func(num protowire.Number, _ uint64, inner []byte) {
		if num == 1 {
			each(inner, func(num protowire.Number, n uint64, text []byte) {
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

// reason reads the message of a google.rpc.Status.
func reason(body []byte) (text string) {
	each(body, func(num protowire.Number, _ uint64, b []byte) {
		if num == 2 {
			text = ": " + strings.ToValidUTF8(string(b[:min(len(b), 300)]), "?")
		}
	})
	return text
}

func each(b []byte, f func(num protowire.Number, n uint64, bytes []byte)) {
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
