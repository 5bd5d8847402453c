package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"outsight/bench/truth"
	"outsight/internal/kernel"
	"outsight/internal/kernel/region"
	"outsight/internal/region/readwire"
)

const (
	// redisReadInterval is the shortest of paper 004, redisReadBytes what is read: four packets.
	redisReadInterval = 10 * time.Millisecond
	redisReadBytes    = 4 << 10
	redisReadBudget   = 0.5 // percent
	// Short turns next to each other: what a machine does besides changes from second to second.
	redisTurn  = 400 * time.Millisecond
	redisPairs = 240
)

// measureRegionRedis takes what redis-benchmark loses while the host's edges, its own among them, are read each 10 ms by
// packets that the kernel answers. The agent's programs are attached all the time. The reader is on the same machine, so that
// its own work counts as well.
func measureRegionRedis(ctx context.Context, o options) (rows []row, err error) {
	w, err := newRegionWire()
	if err != nil {
		return nil, err
	}
	defer w.remove()
	o.run = (2*redisPairs + 10) * 2 * redisTurn // it is cut short when the turns are over
	run, stop, err := redisLoad.start(ctx, o)
	if err != nil {
		return nil, err
	}
	defer stop()
	p, err := truth.Open(kernel.Options{})
	if err != nil {
		return nil, err
	}
	defer p.Close()
	edges, err := edgesOf(p)
	if err != nil {
		return nil, err
	}
	r, c, err := w.serve(region.HookGeneric, readwire.NewKey(1), edges.Map)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	defer c.Close()
	reader := &pacedReader{client: c}
	defer reader.end()
	losses, speed, err := lossInTurns(ctx, toggles{reader.end, reader.begin}, run, redisPairs, redisTurn)
	if err = errors.Join(err, reader.end()); err != nil {
		return nil, err
	}
	low, high := interval(losses)
	rows = []row{{what: "redis-benchmark GET, its edges read each 10 ms: throughput lost", value: median(losses), unit: "%",
		budget: redisReadBudget, low: low, high: high, detail: fmt.Sprintf("%d pairs of turns of %v, 95 %% sure between %.2f and %.2f; "+
			"%.3g MB/s without; %d reads of %d KB, the reader on the same CPUs", len(losses), redisTurn, low, high, speed/1e6,
			reader.reads, redisReadBytes>>10)}}
	return rows, o.document("region.md", "redis", rowsTable(rows))
}

// pacedReader reads between begin and end.
type pacedReader struct {
	client *readwire.Client
	stop   context.CancelFunc
	done   sync.WaitGroup
	reads  int
	err    error
}

func (p *pacedReader) begin() error {
	if p.stop != nil {
		return p.err
	}
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	p.done.Go(func() {
		tick := time.NewTicker(redisReadInterval)
		defer tick.Stop()
		data := make([]byte, redisReadBytes)
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if err := p.client.Read(ctx, 0, 0, data); err != nil && ctx.Err() == nil {
				p.err = err
				return
			}
			p.reads++
		}
	})
	return nil
}

func (p *pacedReader) end() error {
	if p.stop != nil {
		p.stop()
		p.done.Wait()
		p.stop = nil
	}
	return p.err
}
