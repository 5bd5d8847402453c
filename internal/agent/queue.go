package agent

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"outsight/internal/frame"
	"outsight/internal/model"
)

const (
	// queueLength is how many frames wait for a sink that is busy.
	queueLength = 2
	// drainTime is how long a sink may go on when the agent ends.
	drainTime = 5 * time.Second
)

// queue hands frames to one sink.
type queue struct {
	name     string
	consume  func(context.Context, *frame.Frame) error
	waiting  chan *frame.Frame
	dropped  atomic.Uint64
	failed   atomic.Uint64
	failures *failures
	spent    *spending
}

func newQueue(name string, consume func(context.Context, *frame.Frame) error, spent *spending,
	logger *slog.Logger) *queue {
	return &queue{name: name, consume: consume, waiting: make(chan *frame.Frame, queueLength), failures: newFailures(logger),
		spent: spent}
}

// put never waits: where the sink is behind, the oldest that waits is dropped.
func (q *queue) put(s *frame.Frame) {
	for {
		select {
		case q.waiting <- s:
			return
		default:
		}
		select {
		case <-q.waiting:
			q.dropped.Add(1)
		default:
		}
	}
}

// close ends run when it has handed on what waits. No put may follow.
func (q *queue) close() { close(q.waiting) }

// run hands on what comes until close, and for drainTime after ctx has ended.
func (q *queue) run(ctx context.Context) {
	working, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(drainTime, cancel) })
	defer stop()
	for s := range q.waiting {
		if working.Err() != nil {
			q.dropped.Add(1)
			continue
		}
		end := q.spent.on(partExport)
		err := q.consume(working, s)
		end()
		if err != nil {
			q.failed.Add(1)
		}
		q.failures.note("sink "+q.name, err)
	}
}

func (q *queue) drop() model.Drop {
	return model.Drop{
		Name: "agent/sink-" + q.name, Count: q.dropped.Load() + q.failed.Load(),
		Capacity: queueLength, Used: uint64(len(q.waiting)),
	}
}
