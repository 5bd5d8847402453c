package queue

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// Stats tells what a queue holds and did. Counts are since Open.
type Stats struct {
	// Messages and Bytes that wait, of at most MaxBytes, and since when the oldest does.
	Messages, Bytes uint64
	MaxBytes        int64
	Oldest          time.Time
	// Aside are the messages that were set aside and are still there.
	Aside uint64
	// Published messages, Duplicates among them; publishing was Retried because the server was busy, and
	// refused because there was no room (Full) or it Failed otherwise.
	Published, Duplicates, Retried, Full, Failed uint64
	// Lost messages: they were in the stream, and the server could not read them.
	Lost uint64
	// Acknowledged messages, those Redelivered (handed out again), and those SetAside.
	Acknowledged, Redelivered, SetAside uint64
}

// Stats asks the server.
func (q *Queue) Stats(ctx context.Context) (Stats, error) {
	s := Stats{
		MaxBytes: q.options.MaxBytes, Published: q.counts.published.Load(), Duplicates: q.counts.duplicates.Load(),
		Retried: q.counts.retried.Load(), Full: q.counts.full.Load(), Failed: q.counts.failed.Load(),
		Acknowledged: q.counts.acknowledged.Load(), Redelivered: q.counts.redelivered.Load(), SetAside: q.counts.aside.Load(),
		Lost: q.counts.lost.Load(),
	}
	info, err := q.stream.Info(ctx)
	if err != nil {
		return s, fmt.Errorf("asking for the state of the queue: %w", err)
	}
	s.Messages, s.Bytes = info.State.Msgs, info.State.Bytes
	if s.Messages > 0 {
		s.Oldest = info.State.FirstTime
	}
	apart, err := q.js.Stream(ctx, aside(q.options.Stream))
	if err != nil {
		return s, fmt.Errorf("asking for the messages that were set aside: %w", err)
	}
	s.Aside = apart.CachedInfo().State.Msgs
	return s, nil
}

// subject is where messages of a stream are published.
func subject(stream string) string { return strings.ToLower(stream) }
