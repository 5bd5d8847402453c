package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"outsight/internal/frame"
	"outsight/internal/model"
)

// watched is a host that an agent watches: its counters grow at random, and a share of its edges and containers ends in
// each minute and is followed by as many new ones.
type watched struct {
	random           *rand.Rand
	builder          *frame.Builder
	key              *frame.Frame
	snapshot         model.Snapshot
	containers       []*model.Container
	edges            []model.Edge
	counters         []model.ContainerSample
	instances        uint64
	churn            float64
	ended            float64
	containersEnded  float64
	containersNumber int
}

// templateHost is the name of the host of encoded frames, which is replaced when they are sent.
const templateHost = "host-00000.example"

func newWatched(containers, edges int, churn float64, at time.Time) *watched {
	w := &watched{random: rand.New(rand.NewPCG(1, 2)), builder: frame.NewBuilder(at), churn: churn}
	w.snapshot = model.Snapshot{Time: at, Host: model.Host{Name: templateHost, Cores: 8, BootTime: at.Add(-time.Hour)}}
	for range containers {
		w.counters = append(w.counters, w.newContainer())
	}
	for range edges {
		w.edges = append(w.edges, w.newEdge())
	}
	return w
}

func (w *watched) newContainer() model.ContainerSample {
	w.containersNumber++
	n := w.containersNumber
	c := &model.Container{ID: fmt.Sprintf("%016x%016x%016x%016x", w.random.Uint64(), w.random.Uint64(), w.random.Uint64(),
		w.random.Uint64()), Name: fmt.Sprintf("service-%d", n), Runtime: model.Docker, Started: w.snapshot.Time,
		Image:     fmt.Sprintf("registry.example/shop/service-%d:1.2.3", n%100),
		Addresses: []netip.Addr{netip.AddrFrom4([4]byte{172, 17, byte(n >> 8), byte(n)})}}
	w.containers = append(w.containers, c)
	return model.ContainerSample{Container: c, CPU: &model.CPUCounters{RunQueue: newSpread()},
		Processes: &model.ProcessCounters{Threads: 4}, Throttle: &model.ThrottleCounters{},
		Memory: &model.MemorySample{UsageBytes: 11e6}, Disk: &model.DiskCounters{}, Network: &model.NetworkCounters{},
		TCP: &model.TCPCounters{}}
}

func (w *watched) newEdge() model.Edge {
	w.instances++
	live := func() *model.Container { return w.counters[w.random.IntN(len(w.counters))].Container }
	return model.Edge{Instance: w.instances, Side: model.RoleClient, Start: w.snapshot.Time,
		Client: model.Peer{Container: live(), Process: "java"}, Server: model.Peer{Container: live(), Process: "postgres"},
		Service: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(w.instances >> 8), byte(w.instances)}), 8000),
		Paired:  true, Confidence: model.Exact, Counters: model.EdgeCounters{Latency: newSpread(),
			TimeToFirstByte: newSpread(), RTT: newSpread(), Duration: newSpread()}}
}

func newSpread() *model.Histogram {
	return &model.Histogram{Offset: -330, Buckets: make([]uint64, 120)}
}

// grow counts so many durations around a typical one.
func (w *watched) grow(h *model.Histogram, n uint64) {
	for range n {
		at := int(math.Round(60 + 12*w.random.NormFloat64()))
		h.Buckets[min(max(at, 0), len(h.Buckets)-1)]++
		h.SumNS += uint64(w.random.IntN(2e6))
	}
	h.Count += n
}

// next is the encoded frame of so much later.
func (w *watched) next(step time.Duration) []byte {
	s := &w.snapshot
	s.Time = s.Time.Add(step)
	w.replace(step)
	seconds := step.Seconds()
	some := func(most float64) uint64 { return uint64(w.random.Float64() * most * seconds) }
	for i := range w.counters {
		c := &w.counters[i]
		c.CPU.UsageNS += some(1e8)
		c.CPU.Voluntary += some(200)
		c.Memory.UsageBytes += some(1e5)
		c.Disk.ReadBytes += some(1e5)
		c.Network.ReceiveBytes += some(1e6)
		w.grow(c.CPU.RunQueue, some(20))
	}
	for i := range w.edges {
		c := &w.edges[i].Counters
		n := some(20)
		c.SentBytes, c.ReceivedBytes = c.SentBytes+n*180, c.ReceivedBytes+n*uint64(900+w.random.IntN(200))
		c.Requests, c.Replies = c.Requests+n, c.Replies+n
		for _, h := range []*model.Histogram{c.Latency, c.TimeToFirstByte, c.RTT} {
			w.grow(h, n)
		}
	}
	s.Containers, s.Edges = append(s.Containers[:0], w.counters...), append(s.Edges[:0], w.edges...)
	f := w.builder.Build(s)
	if f.IsKey() {
		w.key = f
	}
	return frame.Encode(nil, f, w.key)
}

// replace ends what churn has due.
func (w *watched) replace(step time.Duration) {
	minutes := step.Minutes()
	w.ended += w.churn * float64(len(w.edges)) * minutes
	for ; w.ended >= 1; w.ended-- {
		w.edges[w.random.IntN(len(w.edges))] = w.newEdge()
	}
	w.containersEnded += w.churn * float64(len(w.counters)) * minutes
	for ; w.containersEnded >= 1; w.containersEnded-- {
		at := w.random.IntN(len(w.counters))
		gone := w.counters[at].Container
		w.counters[at] = w.newContainer()
		for i := range w.edges {
			if e := &w.edges[i]; e.Client.Container == gone || e.Server.Container == gone {
				w.edges[i] = w.newEdge()
			}
		}
	}
}

// template is what an agent sends, encoded beforehand, so that it costs the sender next to nothing.
type template struct {
	frames [][]byte
	at     []time.Time
	// keys are those of frames that are key frames.
	keys             int
	keyBytes, others int64
}

// newTemplate makes so many frames of a host that has been watched for a while, so that it has as many rows that ended as
// it always has. The first is a key frame.
func newTemplate(containers, edges int, churn float64, step time.Duration, n int) *template {
	before := (frame.Linger + time.Minute) / step
	if churn == 0 {
		before = time.Minute / step
	}
	began := time.Now().Add(-12 * time.Hour).Truncate(time.Minute).Add(-step)
	w := newWatched(containers, edges, churn, began)
	for range before {
		w.next(step)
	}
	t := &template{}
	for range n {
		data := w.next(step)
		t.frames, t.at = append(t.frames, data), append(t.at, w.snapshot.Time)
		if w.key.Time.Equal(w.snapshot.Time) {
			t.keys++
			t.keyBytes += int64(len(data))
		} else {
			t.others += int64(len(data))
		}
	}
	return t
}

// frameAgent sends the frames of a template in its own name.
type frameAgent struct {
	*template
	name string
	next int
	data []byte
}

func newFrameAgents(t *template, n int) (all []*frameAgent) {
	for i := range n {
		all = append(all, &frameAgent{template: t, name: fmt.Sprintf("host-%05d.example", i)})
	}
	return all
}

// send sends the next frame until it is taken, and tells how often the server said to come again.
func (a *frameAgent) send(ctx context.Context, client *http.Client, address string) (turnedAway int, err error) {
	a.data = append(a.data[:0], a.frames[a.next]...)
	copy(a.data[bytes.Index(a.data, []byte(templateHost)):], a.name)
	a.next++
	for {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+frame.Path, bytes.NewReader(a.data))
		if err != nil {
			return turnedAway, err
		}
		r.Header.Set("Content-Type", frame.ContentType)
		answer, err := client.Do(r)
		if err != nil {
			return turnedAway, err
		}
		text, _ := io.ReadAll(answer.Body)
		answer.Body.Close()
		switch answer.StatusCode {
		case http.StatusOK:
			return turnedAway, nil
		case http.StatusTooManyRequests:
			turnedAway++
			time.Sleep(100 * time.Millisecond)
		default:
			return turnedAway, fmt.Errorf("the server answers %s %q", answer.Status, text)
		}
	}
}

// senders is how many requests are under way at a time.
const senders = 32

// sendRound lets each agent send one frame; pace is the time in which all have sent, 0 for as fast as they are taken. It
// answers by how much the last was late.
func sendRound(ctx context.Context, agents []*frameAgent, address string, pace time.Duration) (late time.Duration,
	turnedAway int, err error) {
	client := frameClient
	began := time.Now()
	var next, away atomic.Int64
	var group sync.WaitGroup
	var mu sync.Mutex
	for range min(senders, len(agents)) {
		group.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(agents) || ctx.Err() != nil {
					return
				}
				due := began.Add(pace * time.Duration(i) / time.Duration(len(agents)))
				time.Sleep(time.Until(due))
				n, failed := agents[i].send(ctx, client, address)
				away.Add(int64(n))
				mu.Lock()
				late = max(late, time.Since(due))
				if failed != nil && err == nil {
					err = failed
				}
				mu.Unlock()
			}
		})
	}
	group.Wait()
	if pace > 0 && err == nil {
		time.Sleep(time.Until(began.Add(pace)))
	}
	return late, int(away.Load()), err
}

var frameClient = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: senders, MaxIdleConns: senders}}
