package queue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Stats is the state of a queue and what it did. Counts are since Open.
type Stats struct {
	// Messages and Bytes are pending, of at most MaxBytes; Oldest is when the first pending message was published.
	Messages, Bytes uint64
	MaxBytes        int64
	Oldest          time.Time
	// DeadLetters are in the stream of dead letters now.
	DeadLetters uint64
	// Published counts messages, Duplicates included. Publishing was Retried because the server was busy; it was refused
	// because a limit was reached (Full) or Failed otherwise.
	Published, Duplicates, Retried, Full, Failed uint64
	// Lost counts messages of the stream that the server could not read.
	Lost uint64
	// Acknowledged, Redelivered and DeadLettered messages.
	Acknowledged, Redelivered, DeadLettered uint64
}

// Stats asks the server.
func (q *Queue) Stats(ctx context.Context) (Stats, error) {
	s := Stats{
		MaxBytes: q.options.MaxBytes, Published: q.counts.published.Load(), Duplicates: q.counts.duplicates.Load(),
		Retried: q.counts.retried.Load(), Full: q.counts.full.Load(), Failed: q.counts.failed.Load(),
		Acknowledged: q.counts.acknowledged.Load(), Redelivered: q.counts.redelivered.Load(),
		DeadLettered: q.counts.deadLettered.Load(), Lost: q.counts.lost.Load(),
	}
	info, err := q.stream.Info(ctx)
	if err != nil {
		return s, fmt.Errorf("asking for the state of the queue: %w", err)
	}
	s.Messages, s.Bytes = info.State.Msgs, info.State.Bytes
	if s.Messages > 0 {
		s.Oldest = info.State.FirstTime
	}
	dead, err := q.js.Stream(ctx, deadLetterStream(q.options.Stream))
	if err != nil {
		return s, fmt.Errorf("asking for the dead letters: %w", err)
	}
	s.DeadLetters = dead.CachedInfo().State.Msgs
	return s, nil
}

// recoveredPause is between two questions of AwaitRecovered.
const recoveredPause = 50 * time.Millisecond

// AwaitRecovered waits until all messages that were in the stream at Open have been handled. It needs Consume to run.
func (q *Queue) AwaitRecovered(ctx context.Context) error {
	for {
		info, err := q.stream.Info(ctx)
		if err == nil && (info.State.Msgs == 0 || info.State.FirstSeq > q.lastRecovered) {
			return nil
		}
		if sleep(ctx, recoveredPause); ctx.Err() != nil {
			return fmt.Errorf("waiting for what was in the queue %q: %w", q.options.Stream, errors.Join(ctx.Err(), err))
		}
	}
}

// subject is where messages of a stream are published.
func subject(stream string) string { return strings.ToLower(stream) }
