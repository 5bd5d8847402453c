package demo

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"
)

const (
	defaultRate = 120.0
	// maxInFlight bounds the requests under way; others are shed and counted.
	maxInFlight = 512
	customers   = 1000
	// drainTime is how long a pause waits for requests under way; all have ended by then.
	drainTime = callTimeout + time.Second
)

// load sends requests at a rate of its own (an open loop): it does not wait for replies.
type load struct {
	door   *peer
	random *rand.Rand // used by run alone
	rate   chan float64

	mu       sync.Mutex // guards all below
	asked    float64
	paused   bool
	inFlight int64
	shed     uint64
	lastErr  string
	paths    map[string]*pathCount
	latency  latencies
	response latencies
}

type pathCount struct {
	sent, completed, errors uint64
	latency                 latencies
}

// order is one request that the load generator is about to send.
type order struct {
	kind, method, path string
	body               []byte
}

func newLoad(f serviceFlags, l *ledger) *role {
	g := &load{
		door: newPeer("door", f.target, l), random: rand.New(rand.NewPCG(f.seed, 3)),
		rate: make(chan float64, 1), asked: f.rate, paths: map[string]*pathCount{},
	}
	return &role{run: g.run, apply: g.apply, report: g.report, period: time.Second,
		closeIdle: []func(){g.door.closeIdle}}
}

// run sends until ctx ends, and then waits for what is under way.
func (g *load) run(ctx context.Context) {
	var work sync.WaitGroup
	defer work.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	due, rate := time.Now(), g.asked
	for {
		select {
		case <-ctx.Done():
			return
		case rate = <-g.rate:
			due = time.Now()
		case <-timer.C:
		}
		// A generator that cannot keep up must still see that it is to stop.
		for burst := 0; burst < 100 && rate > 0 && !due.After(time.Now()); burst++ {
			g.send(&work, g.next(), due)
			// Exponential gaps: customers do not know of one another.
			due = due.Add(time.Duration(g.random.ExpFloat64() / rate * float64(time.Second)))
		}
		timer.Reset(wakeIn(due, rate))
	}
}

func wakeIn(due time.Time, rate float64) time.Duration {
	if rate <= 0 {
		return time.Hour // until the rate changes
	}
	return time.Until(due)
}

// next is the next thing that some customer wants.
func (g *load) next() order {
	n, user := g.random.IntN(100), strconv.Itoa(g.random.IntN(customers))
	product := strconv.Itoa(g.random.IntN(products))
	switch {
	case n < 25:
		page := strconv.Itoa(g.random.IntN(products / productsPerPage))
		return order{"page", http.MethodGet, "/products?page=" + page, nil}
	case n < 40:
		return order{"product", http.MethodGet, "/products/" + product, nil}
	case n < 55:
		body := fmt.Appendf(nil, `{"product":%s,"count":%d}`, product, 1+g.random.IntN(9))
		return order{"add", http.MethodPost, "/cart/" + user, body}
	case n < 60:
		return order{"cart", http.MethodGet, "/cart/" + user, nil}
	}
	return order{"checkout", http.MethodPost, "/checkout/" + user, []byte(`{"pay":"card"}`)}
}

func (g *load) send(work *sync.WaitGroup, o order, due time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.paused:
		return
	case g.inFlight >= maxInFlight:
		g.shed++
		return
	}
	if g.paths[o.kind] == nil {
		g.paths[o.kind] = &pathCount{}
	}
	g.paths[o.kind].sent++
	g.inFlight++
	work.Go(func() {
		// Not the context of run: a request that has been sent is waited for.
		answer, err := g.door.do(context.Background(), o.method, o.path, o.body)
		if err == nil && answer.status != http.StatusOK {
			err = fmt.Errorf("%s %s: status %d: %.200s", o.method, o.path, answer.status, answer.body)
		}
		g.finish(o, due, answer.sent, err)
	})
}

func (g *load) finish(o order, due, sent time.Time, err error) {
	now := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inFlight--
	path := g.paths[o.kind]
	if err != nil {
		path.errors++
		g.lastErr = err.Error()
		return
	}
	path.completed++
	path.latency.add(now.Sub(sent))
	g.latency.add(now.Sub(sent))
	g.response.add(now.Sub(due))
}

// apply changes the rate; a pause returns when nothing is under way any more.
func (g *load) apply(c control) {
	g.mu.Lock()
	g.paused, g.asked = c.Paused, c.Rate
	g.mu.Unlock()
	select {
	case <-g.rate: // an older rate that nobody has taken
	default:
	}
	g.rate <- c.Rate
	for end := time.Now().Add(drainTime); c.Paused && time.Now().Before(end); time.Sleep(time.Millisecond) {
		g.mu.Lock()
		idle := g.inFlight == 0
		g.mu.Unlock()
		if idle {
			return
		}
	}
}

func (g *load) report(s *Status) {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := &LoadReport{
		Rate: g.asked, Shed: g.shed, InFlight: g.inFlight, LastError: g.lastErr,
		Latency: g.latency.summary(), Response: g.response.summary(),
		Paths: map[string]PathReport{}, Counts: g.door.tally.counts(),
	}
	for kind, p := range g.paths {
		r.Paths[kind] = PathReport{Sent: p.sent, Completed: p.completed, Errors: p.errors, Latency: p.latency.summary()}
		r.Sent += p.sent
		r.Completed += p.completed
		r.Errors += p.errors
	}
	s.Load = r
}
