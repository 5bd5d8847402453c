package graph

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"outsight/internal/frame"
	"outsight/internal/model"
)

// fleetWindow is a window of hosts with so many containers and rows of edges each: two thirds of them are both sides of
// edges between containers of the host, the others lead outside.
func fleetWindow(hosts, containers, edges int) *frame.Window {
	w := &frame.Window{From: start, To: start.Add(time.Minute)}
	for h := range hosts {
		random := rand.New(rand.NewPCG(uint64(h), 1))
		name := fmt.Sprintf("host-%03d", h)
		var all []*model.Container
		for i := range containers {
			all = append(all, container(fmt.Sprintf("%064x", h*1000+i), fmt.Sprintf("service-%d-%d", h%50, i)))
		}
		times := func(n uint64) *model.Histogram {
			d := &model.Histogram{}
			for range 12 {
				d.Merge(&model.Histogram{Count: n, SumNS: n * 1e6, Offset: -320 + int32(random.IntN(30)), Buckets: []uint64{n}})
			}
			return d
		}
		at := func(second int, n uint64) *model.Snapshot {
			random = rand.New(rand.NewPCG(uint64(h), 1))
			s := &model.Snapshot{Time: start.Add(time.Duration(second) * time.Second), Host: model.Host{Name: name, Cores: 8}}
			for _, c := range all {
				s.Containers = append(s.Containers, model.ContainerSample{Container: c,
					CPU:    &model.CPUCounters{UsageNS: n * 1e8, RunQueue: times(n)},
					Memory: &model.MemorySample{UsageBytes: 1 << 28}, Processes: &model.ProcessCounters{Threads: 9}})
			}
			for i := 0; len(s.Edges) < edges; i++ {
				client, server := inside(all[random.IntN(containers)]), inside(all[random.IntN(containers)])
				service := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(h >> 8), byte(h), byte(i % 50)}), uint16(80+i%3))
				counters := model.EdgeCounters{SentBytes: n * uint64(random.IntN(1e6)), ReceivedBytes: n * uint64(random.IntN(1e6)),
					Opens: n, Closes: n, Requests: 12 * n, Replies: 12 * n,
					Latency: times(n), TimeToFirstByte: times(n), RTT: times(n)}
				e := model.Edge{Instance: uint64(i*2 + 1), Side: model.RoleClient, Client: client, Server: server, Service: service,
					Confidence: model.Exact, Paired: true, Counters: counters,
					Endpoints: []model.Endpoint{{EndpointKey: model.EndpointKey{Protocol: model.HTTP, Name: "GET /", Status: "2xx"},
						Latency: counters.Latency}}}
				if i%2 == 0 {
					s.Edges = append(s.Edges, e)
					e.Instance, e.Side = e.Instance+1, model.RoleServer
				} else {
					e.Server = model.Peer{Address: netip.AddrFrom4([4]byte{203, 0, byte(random.IntN(8)), byte(random.IntN(256))})}
					e.Confidence, e.Paired = model.NotFound, false
				}
				s.Edges = append(s.Edges, e)
			}
			s.Edges = s.Edges[:edges]
			return s
		}
		b := frame.NewBuilder(start)
		before, after := b.Build(at(0, 1)), b.Build(at(60, 3))
		w.Hosts = append(w.Hosts, frame.HostSpans{Host: name, Spans: []frame.Span{{Before: before, After: after}}})
	}
	return w
}

func benchmarkFrames(b *testing.B, w *frame.Window, o Options, and func(g *Graph)) {
	b.ReportAllocs()
	before := processorTime(b)
	for b.Loop() {
		g := FromFrames(w, o)
		if and != nil {
			and(g)
		}
	}
	b.ReportMetric(float64(processorTime(b)-before)/1e6/float64(b.N), "cpu-ms/op")
}

// processorTime is that of the process: on a machine that does more than this, it says more than the clock.
func processorTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

func BenchmarkFrames10k(b *testing.B) {
	benchmarkFrames(b, fleetWindow(50, 10, 200), Options{MaxEdges: 1000}, nil)
}

func BenchmarkFrames100k(b *testing.B) {
	benchmarkFrames(b, fleetWindow(500, 10, 200), Options{MaxEdges: 1000}, nil)
}

func BenchmarkFrames100kOn100Hosts(b *testing.B) {
	benchmarkFrames(b, fleetWindow(100, 50, 1000), Options{MaxEdges: 1000}, nil)
}

// BenchmarkAnalysis100k is the first limit and the critical path of all 100,000 edges.
func BenchmarkAnalysis100k(b *testing.B) {
	benchmarkFrames(b, fleetWindow(500, 10, 200), Options{}, func(g *Graph) {
		a := g.Analyse(nil)
		g.CriticalPath(Mean, a.Entries, nil)
	})
}

// BenchmarkOnly100k is one number of one node, as a chart asks for it.
func BenchmarkOnly100k(b *testing.B) {
	w := fleetWindow(500, 10, 200)
	id := FromFrames(w, Options{MaxEdges: 1}).Edges[0].Client
	benchmarkFrames(b, w, Options{Only: id}, nil)
}
