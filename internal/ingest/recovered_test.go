package ingest_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"outsight/internal/queue"
)

// TestAwaitRecovered: what was in a queue when it was opened is waited for until it has been handled, and nothing else.
func TestAwaitRecovered(t *testing.T) {
	const messages = 20
	log := slog.New(slog.DiscardHandler)
	dir := t.TempDir()
	_, q, end := openQueue(t, dir, log)
	if err := q.AwaitRecovered(t.Context()); err != nil {
		t.Errorf("of an empty queue: %v", err)
	}
	fill(t, q, 0, messages)
	end()
	_, q, end = openQueue(t, dir, log)
	defer end()
	short, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := q.AwaitRecovered(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("nothing was handled, and it says %v", err)
	}
	fill(t, q, messages, messages+1)
	consuming, stop := context.WithCancel(t.Context())
	handled, ended := 0, make(chan error, 1)
	go func() {
		ended <- q.Consume(consuming, func(_ context.Context, group []*queue.Delivery) error {
			handled += len(group)
			return nil
		})
	}()
	if err := q.AwaitRecovered(t.Context()); err != nil {
		t.Error(err)
	}
	stop()
	if err := <-ended; err != nil || handled < messages {
		t.Errorf("%d messages were handled (%v), want %d at least", handled, err, messages)
	}
}
