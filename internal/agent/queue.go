package agent

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"outsight/internal/model"
)

const (
	// queueLength is how many snapshots wait for a sink that is busy.
	queueLength = 2
	// drainTime is how long a sink may go on when the agent ends.
	drainTime = 5 * time.Second
)

// queue hands snapshots to one sink.
type queue struct {
	name     string
	sink     Sink
	waiting  chan *model.Snapshot
	dropped  atomic.Uint64
	failed   atomic.Uint64
	failures *failures
	spent    *spending
}

func newQueues(sinks map[string]Sink, spent *spending, logger *slog.Logger) []*queue {
	var queues []*queue
	for name, sink := range sinks {
		queues = append(queues, &queue{
			name: name, sink: sink, waiting: make(chan *model.Snapshot, queueLength), failures: newFailures(logger),
			spent: spent,
		})
	}
	slices.SortFunc(queues, func(a, b *queue) int { return strings.Compare(a.name, b.name) })
	return queues
}

// put never waits: where the sink is behind, the oldest snapshot that waits is dropped.
func (q *queue) put(s *model.Snapshot) {
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

// run hands snapshots on until close, and for drainTime after ctx has ended.
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
		err := q.sink.Consume(working, s)
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
