package traffic

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// Asker is one connection of a paced client.
type Asker interface {
	// Ask makes a request and reads its whole reply.
	Ask() error
	Close() error
}

// Pace makes requests at a fixed mean rate, as a client does that does not wait for answers before it
// has the next thing to ask.
type Pace struct {
	// Rate in requests per second, of all connections together; 0 is as many as answers allow.
	Rate        float64
	Connections int
	Duration    time.Duration
	// Random is that the requests of each connection come at random (a Poisson process), as those of many users do, not
	// evenly in time.
	Random bool
}

// Seen is what a paced client saw. Both have one entry per request, in no order.
type Seen struct {
	// Plain times begin when the request is sent.
	Plain []time.Duration
	// Corrected times begin when the request was meant to be sent: a request that had to wait
	// for the answer to another has waited, too. With no rate nothing is meant, and it is nil.
	Corrected []time.Duration
}

// Run opens the connections, makes the requests and closes the connections.
func (p Pace) Run(ctx context.Context, open func(context.Context) (Asker, error)) (Seen, error) {
	askers := make([]Asker, 0, p.Connections)
	defer func() {
		for _, a := range askers {
			a.Close()
		}
	}()
	for range p.Connections {
		a, err := open(ctx)
		if err != nil {
			return Seen{}, err
		}
		askers = append(askers, a)
	}
	var mu sync.Mutex // guards all
	var all Seen
	group, ctx := errgroup.WithContext(ctx)
	begin := time.Now()
	for i, a := range askers {
		group.Go(func() error {
			seen, err := p.ask(ctx, a, begin, i)
			mu.Lock()
			defer mu.Unlock()
			all.Plain = append(all.Plain, seen.Plain...)
			all.Corrected = append(all.Corrected, seen.Corrected...)
			return err
		})
	}
	err := group.Wait()
	return all, err
}

// ask makes the requests of connection i. The connections take turns, evenly in time if nothing is random.
func (p Pace) ask(ctx context.Context, a Asker, begin time.Time, i int) (Seen, error) {
	var seen Seen
	var interval time.Duration
	if p.Rate > 0 {
		interval = time.Duration(float64(p.Connections) / p.Rate * float64(time.Second))
	}
	end := begin.Add(p.Duration)
	meant := begin.Add(interval * time.Duration(i) / time.Duration(p.Connections))
	if p.Random {
		meant = begin.Add(p.gap(interval))
	}
	for ctx.Err() == nil {
		sent := time.Now()
		if interval > 0 && meant.After(sent) {
			select {
			case <-ctx.Done():
				return seen, ctx.Err()
			case <-time.After(meant.Sub(sent)):
			}
			sent = time.Now()
		}
		if interval == 0 && sent.After(end) || interval > 0 && !meant.Before(end) {
			break
		}
		if err := a.Ask(); err != nil {
			return seen, fmt.Errorf("request %d of connection %d: %w", len(seen.Plain)+1, i, err)
		}
		answered := time.Now()
		seen.Plain = append(seen.Plain, answered.Sub(sent))
		if interval > 0 {
			seen.Corrected = append(seen.Corrected, answered.Sub(meant))
			meant = meant.Add(p.gap(interval))
		}
	}
	return seen, ctx.Err()
}

// gap is the time from one request of a connection to its next one, which is interval on average.
func (p Pace) gap(interval time.Duration) time.Duration {
	if p.Random {
		return time.Duration(float64(interval) * rand.ExpFloat64())
	}
	return interval
}
