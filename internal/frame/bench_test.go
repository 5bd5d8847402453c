package frame

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"outsight/internal/model"
)

// grown makes a histogram of so many durations over 40 buckets.
func grown(n uint64) *model.Histogram {
	h := &model.Histogram{Count: 40 * n, SumNS: 1e6 * n, Offset: -300, Buckets: make([]uint64, 40)}
	for i := range h.Buckets {
		h.Buckets[i] = n
	}
	return h
}

// shop is a host with so many containers and edges; all counters grow with the seconds.
type shop struct {
	containers []*model.Container
	edges      int
}

func newShop(containers, edges int) *shop {
	s := &shop{edges: edges}
	for i := range containers {
		s.containers = append(s.containers, &model.Container{ID: fmt.Sprintf("%064x", i), Name: fmt.Sprintf("service-%d", i),
			Image: fmt.Sprintf("registry.example/shop/service-%d:1.2.3", i), Runtime: model.Docker,
			Addresses: []netip.Addr{netip.AddrFrom4([4]byte{172, 17, 0, byte(i)})}})
	}
	return s
}

func (w *shop) at(start time.Time, second int) *model.Snapshot {
	n := uint64(second + 1)
	s := &model.Snapshot{Time: start.Add(time.Duration(second) * time.Second), Host: model.Host{Name: "h", Cores: 8}}
	for i, c := range w.containers {
		s.Containers = append(s.Containers, model.ContainerSample{Container: c,
			CPU:       &model.CPUCounters{UsageNS: 1e9 * n, Voluntary: 7 * n, RunQueue: grown(n)},
			Processes: &model.ProcessCounters{TaskCounters: model.TaskCounters{Forks: n}, Threads: 4},
			Throttle:  &model.ThrottleCounters{Periods: 10 * n},
			Memory:    &model.MemorySample{UsageBytes: 11e6 + n}, Disk: &model.DiskCounters{ReadBytes: 21 * n},
			Network: &model.NetworkCounters{ReceiveBytes: 31 * n}, TCP: &model.TCPCounters{},
			Contention: &model.Contention{By: []model.Contender{{ID: w.containers[(i+1)%len(w.containers)].ID, Name: "next",
				WaitNS: n}}}})
	}
	for i := range w.edges {
		s.Edges = append(s.Edges, model.Edge{Side: model.RoleClient, Instance: uint64(i + 1),
			Client:  model.Peer{Container: w.containers[i%len(w.containers)], Process: "java"},
			Server:  model.Peer{Container: w.containers[(i*7+1)%len(w.containers)], Process: "postgres"},
			Service: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(i / 250), byte(i % 250)}), uint16(8000+i)),
			Paired:  true, Counters: model.EdgeCounters{SentBytes: 100 * n, ReceivedBytes: 2000 * n, Opens: 3, Requests: 20 * n,
				Replies: 20 * n, Latency: grown(n), TimeToFirstByte: grown(n), RTT: grown(n), Duration: grown(n)},
			Endpoints: []model.Endpoint{{EndpointKey: model.EndpointKey{Protocol: model.HTTP, Name: "GET /", Status: "2xx"},
				Latency: grown(n)}}})
	}
	return s
}

// BenchmarkBuild makes the frame of a second of a host with 50 containers and 200 edges.
func BenchmarkBuild(b *testing.B) {
	start := time.Unix(1_800_000_000, 0)
	s, builder := newShop(50, 200).at(start, 0), NewBuilder(start)
	builder.Build(s)
	b.ReportAllocs()
	defer reportCPU(b)()
	for b.Loop() {
		s.Time = s.Time.Add(time.Second)
		busy(s)
		builder.Build(s)
	}
}

// busy is what happens in a second: a tenth of the histograms grow.
func busy(s *model.Snapshot) {
	for i := range s.Edges {
		s.Edges[i].Counters.SentBytes += 100
		if i%10 == int(s.Time.Unix()%10) {
			h := s.Edges[i].Counters.Latency
			h.Buckets[i%40]++
			h.Count++
		}
	}
}
