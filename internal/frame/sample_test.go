package frame

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"time"

	"outsight/internal/model"
)

// sampleHost is a host of containers that talk: its counters grow at random.
type sampleHost struct {
	r *rand.Rand
	s *model.Snapshot
	b *Builder
}

func newSampleHost(containers, edges int) *sampleHost {
	at := time.Unix(1_800_000_000, 0).Truncate(time.Minute)
	h := &sampleHost{r: rand.New(rand.NewPCG(uint64(containers), uint64(edges))), b: NewBuilder(at),
		s: &model.Snapshot{Time: at, Host: model.Host{Name: "host-1", Kernel: "6.1.0", Cores: 16, MemoryBytes: 64 << 30,
			BootTime: at.Add(-time.Hour)}}}
	for i := range containers {
		c := &model.Container{ID: fmt.Sprintf("%016x%016x%032x", h.r.Uint64(), h.r.Uint64(), i),
			Name: fmt.Sprintf("service-%d", i), Image: fmt.Sprintf("registry.example/shop/service:%d", i%10),
			Runtime: model.Docker, Started: at.Add(-time.Duration(i) * time.Minute),
			Addresses: []netip.Addr{netip.AddrFrom4([4]byte{172, 17, byte(i >> 8), byte(i)})},
			Listeners: []netip.AddrPort{netip.AddrPortFrom(netip.IPv4Unspecified(), uint16(8000+i))}}
		h.s.Containers = append(h.s.Containers, model.ContainerSample{Container: c,
			CPU: &model.CPUCounters{RunQueue: &model.Histogram{}}, Processes: &model.ProcessCounters{Threads: 4},
			Throttle: &model.ThrottleCounters{}, Memory: &model.MemorySample{UsageBytes: 11e6},
			Reclaim: &model.ReclaimCounters{}, Pressure: &model.PressureCounters{}, Disk: &model.DiskCounters{},
			Files: &model.FileCounters{}, Network: &model.NetworkCounters{}, TCP: &model.TCPCounters{},
			Devices: []model.DeviceSample{{Device: model.BlockDevice{Major: 8, Name: "sda"},
				Counters: model.DeviceCounters{Read: model.DiskOperations{Latency: &model.Histogram{}},
					Write: model.DiskOperations{Latency: &model.Histogram{}}}}}})
	}
	for i := range edges {
		client, server := h.s.Containers[i%containers].Container, h.s.Containers[(i*7+3)%containers].Container
		e := model.Edge{Instance: uint64(i + 1), Side: model.RoleClient + model.Role(i%2),
			Client:    model.Peer{Container: client, Address: client.Addresses[0], Process: "worker"},
			Server:    model.Peer{Container: server, Address: server.Addresses[0], Process: "server"},
			Service:   netip.AddrPortFrom(server.Addresses[0], server.Listeners[0].Port()),
			Start:     at.Add(-time.Duration(i) * time.Second),
			Endpoints: []model.Endpoint{{EndpointKey: model.EndpointKey{Protocol: model.HTTP, Name: fmt.Sprint("GET /item/", i%20), Status: "2xx"}}}}
		h.s.Edges = append(h.s.Edges, e)
	}
	return h
}

// durations adds n durations to a copy of a histogram.
func (h *sampleHost) durations(of *model.Histogram, n int, median time.Duration) *model.Histogram {
	sum := &model.Histogram{}
	sum.Merge(of)
	for range n {
		d := time.Duration(float64(median) * math.Exp(0.5*h.r.NormFloat64()))
		sum.Merge(&model.Histogram{Count: 1, SumNS: uint64(d), Offset: model.BucketOf(d), Buckets: []uint64{1}})
	}
	return sum
}

// step lets seconds pass in which a share of the edges and containers does something.
func (h *sampleHost) step(seconds int, busy float64) *Frame {
	next := *h.s
	next.Time = next.Time.Add(time.Duration(seconds) * time.Second)
	next.Containers = append([]model.ContainerSample(nil), h.s.Containers...)
	next.Edges = append([]model.Edge(nil), h.s.Edges...)
	add := func(n *uint64, most int) { *n += h.r.Uint64N(uint64(most) * uint64(seconds)) }
	next.Self.CPUNS += uint64(h.r.IntN(1e6))
	for i := range next.Containers {
		c := &next.Containers[i]
		if h.r.Float64() >= busy {
			continue
		}
		cpu, files, network, memory, devices := *c.CPU, *c.Files, *c.Network, *c.Memory, c.Devices[0]
		add(&cpu.UsageNS, 1e8)
		add(&cpu.Voluntary, 1000)
		add(&cpu.Involuntary, 10)
		cpu.RunQueue = h.durations(cpu.RunQueue, min(100, 20*seconds), 20*time.Microsecond)
		add(&files.ReadBytes, 1e6)
		add(&files.Reads, 100)
		add(&network.ReceiveBytes, 1e6)
		add(&network.TransmitBytes, 1e6)
		add(&network.ReceivePackets, 1000)
		add(&network.TransmitPackets, 1000)
		memory.UsageBytes = 1e7 + h.r.Uint64N(1e6)
		memory.RSSBytes = memory.UsageBytes / 2
		add(&devices.Counters.Write.Operations, 10)
		add(&devices.Counters.Write.Bytes, 1e5)
		devices.Counters.Write.Latency = h.durations(devices.Counters.Write.Latency, min(50, 5*seconds), time.Millisecond)
		c.CPU, c.Files, c.Network, c.Memory, c.Devices = &cpu, &files, &network, &memory, []model.DeviceSample{devices}
	}
	for i := range next.Edges {
		e := &next.Edges[i]
		if h.r.Float64() >= busy {
			continue
		}
		n := min(1+h.r.IntN(10*seconds), 300)
		c := &e.Counters
		c.Requests, c.Replies = c.Requests+uint64(n), c.Replies+uint64(n)
		add(&c.SentBytes, 1e4)
		add(&c.ReceivedBytes, 1e5)
		median := time.Duration(1+i%20) * time.Millisecond
		c.Latency = h.durations(c.Latency, n, median)
		c.TimeToFirstByte = h.durations(c.TimeToFirstByte, n, median/2)
		c.RTT = h.durations(c.RTT, n, 200*time.Microsecond)
		c.JitterSumNS += uint64(n) * 5000
		c.RTTMinNS = 100_000
		e.MostInFlight, e.KnowsMost = uint64(h.r.IntN(4)), true
		e.Endpoints = append([]model.Endpoint(nil), e.Endpoints...)
		e.Endpoints[0].Latency = c.Latency
	}
	h.s = &next
	return h.b.Build(&next)
}

// sampleFrames are a key frame after an hour of traffic, and one half a minute later.
func sampleFrames(containers, edges int, busy float64) (key, f *Frame) {
	h := newSampleHost(containers, edges)
	h.step(60, 1)
	key = h.step(3540, 1)
	return key, h.step(30, busy)
}
