package clickhouse

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"time"

	"outsight/internal/frame"
	"outsight/internal/framelog"
	"outsight/internal/model"
)

// history is a host whose containers and edges come, count and go, and whose agent restarts.
type history struct {
	random *rand.Rand
	host   string
	boot   time.Time
	agent  *frame.Builder
	key    *frame.Frame
	alive  []*life
	made   int
}

// life is a container with an edge to the next.
type life struct {
	c      *model.Container
	sample model.ContainerSample
	edge   model.Edge
	busy   bool
}

func newHistory(host string, seed uint64, boot time.Time) *history {
	return &history{random: rand.New(rand.NewPCG(seed, 1)), host: host, boot: boot}
}

func (h *history) restart(now time.Time) {
	h.agent, h.key = frame.NewBuilder(now), nil
	for _, l := range h.alive { // kernel programs count from 0 again
		l.edge.Counters, l.edge.Endpoints = model.EdgeCounters{}, nil
		l.sample.CPU = &model.CPUCounters{}
	}
}

func (h *history) begin(now time.Time) {
	h.made++
	address := netip.AddrFrom4([4]byte{172, 17, byte(h.made >> 8), byte(h.made)})
	c := &model.Container{ID: fmt.Sprintf("%s-%064d", h.host, h.made), Name: fmt.Sprintf("job-%d", h.made%7),
		Image: "shop/job:1", Runtime: model.Docker, Started: now, Addresses: []netip.Addr{address},
		Listeners: []netip.AddrPort{netip.AddrPortFrom(address, 80)}}
	l := &life{c: c, busy: h.random.IntN(3) > 0}
	l.sample = model.ContainerSample{Container: c, CPU: &model.CPUCounters{}, Memory: &model.MemorySample{UsageBytes: 1e6},
		Disk: &model.DiskCounters{}, Network: &model.NetworkCounters{}, Devices: []model.DeviceSample{{
			Device: model.BlockDevice{Major: 8, Name: "sda"}}}}
	l.edge = model.Edge{Instance: uint64(h.made), Side: model.RoleClient,
		Client:  model.Peer{Container: c, Address: address, Process: "it's \\ \"worker\""},
		Service: netip.AddrPortFrom(netip.AddrFrom4([4]byte{172, 17, 0, 1}), 80)}
	if n := len(h.alive); n > 0 {
		l.edge.Server = model.Peer{Container: h.alive[h.random.IntN(n)].c, Process: "server"}
	} else {
		l.edge.Server = model.Peer{Address: netip.AddrFrom4([4]byte{10, 0, 0, 9})}
	}
	h.alive = append(h.alive, l)
}

// step makes the next frame.
func (h *history) step(now time.Time) *frame.Frame {
	for len(h.alive) < 8 || h.random.IntN(3) == 0 && len(h.alive) < 40 {
		h.begin(now)
	}
	s := h.snapshot(now)
	s.Containers, s.Edges = nil, nil
	kept := h.alive[:0]
	for _, l := range h.alive {
		c := *l.c
		if h.random.IntN(60) == 0 {
			c.Ended = now
		} else {
			kept = append(kept, l)
		}
		if l.busy {
			h.work(l)
		}
		sample, edge := l.sample, l.edge
		sample.Container = &c
		edge.Client.Container = &c
		s.Containers, s.Edges = append(s.Containers, sample), append(s.Edges, edge)
	}
	h.alive = kept
	s.Translations = []model.Translation{{Client: netip.AddrFrom4([4]byte{10, 0, 0, 1}),
		Dialled: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, 2}), 80),
		Reached: netip.AddrPortFrom(netip.AddrFrom4([4]byte{172, 17, 0, byte(now.Second())}), 80)}}
	return h.agent.Build(s)
}

// snapshot has all that is alive.
func (h *history) snapshot(now time.Time) *model.Snapshot {
	s := &model.Snapshot{Time: now, Host: model.Host{Name: h.host, Cores: 4, MemoryBytes: 8 << 30, Kernel: "6.1",
		BootTime: h.boot}, ClockError: 5 * time.Millisecond}
	s.Self.Features = []model.Feature{{Name: "edges", State: "on"}}
	listed := map[string]bool{}
	for _, l := range h.alive {
		if !listed[l.c.ID] {
			listed[l.c.ID] = true
			s.Containers = append(s.Containers, l.sample)
		}
		s.Edges = append(s.Edges, l.edge)
	}
	return s
}

func (h *history) work(l *life) {
	n := 1 + h.random.IntN(5)
	cpu, network, memory := *l.sample.CPU, *l.sample.Network, *l.sample.Memory
	cpu.UsageNS += uint64(h.random.IntN(1e8))
	cpu.RunQueue = h.durations(cpu.RunQueue, n)
	network.ReceiveBytes += uint64(h.random.IntN(1e6))
	memory.UsageBytes = 1e6 + uint64(h.random.IntN(1e6))
	device := l.sample.Devices[0]
	device.Counters.Write.Operations += uint64(n)
	device.Counters.Write.Latency = h.durations(device.Counters.Write.Latency, n)
	l.sample.CPU, l.sample.Network, l.sample.Memory = &cpu, &network, &memory
	l.sample.Devices = []model.DeviceSample{device}
	e := &l.edge.Counters
	e.SentBytes, e.ReceivedBytes = e.SentBytes+uint64(h.random.IntN(1e4)), e.ReceivedBytes+uint64(h.random.IntN(1e5))
	e.Requests, e.Replies = e.Requests+uint64(n), e.Replies+uint64(n)
	e.Latency = h.durations(e.Latency, n)
	l.edge.Endpoints = []model.Endpoint{{EndpointKey: model.EndpointKey{Protocol: model.HTTP, Name: "GET /", Status: "2xx"},
		Latency: e.Latency}}
}

func (h *history) durations(of *model.Histogram, n int) *model.Histogram {
	sum := &model.Histogram{}
	if of != nil {
		sum.Merge(of)
	}
	for range n {
		d := time.Duration(1e6 * math.Exp(h.random.NormFloat64()))
		sum.Merge(&model.Histogram{Count: 1, SumNS: uint64(d), Offset: model.BucketOf(d), Buckets: []uint64{1}})
	}
	return sum
}

// encode is a frame as the agent sends it.
func (h *history) encode(tenant string, f *frame.Frame) framelog.Encoded {
	if f.IsKey() {
		h.key = f
	}
	return framelog.Encoded{Tenant: tenant, Header: f.Header, Data: frame.Encode(nil, f, h.key)}
}
