package framelog

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"outsight/internal/frame"
	"outsight/internal/model"
)

const benchHosts, benchContainers, benchEdges = 500, 50, 200

// busyHost has containers and edges whose counters all move.
type busyHost struct {
	random   *rand.Rand
	builder  *frame.Builder
	snapshot model.Snapshot
}

func newBusyHost(epoch time.Time) *busyHost {
	h := &busyHost{random: rand.New(rand.NewPCG(1, 2)), builder: frame.NewBuilder(epoch)}
	h.snapshot.Host = model.Host{Name: "host", Cores: 8}
	for i := range benchContainers {
		c := &model.Container{ID: fmt.Sprintf("%064x", i), Name: fmt.Sprint("container-", i), Image: "image:1",
			Runtime: model.Docker}
		h.snapshot.Containers = append(h.snapshot.Containers, model.ContainerSample{Container: c, CPU: &model.CPUCounters{},
			Memory: &model.MemorySample{}})
	}
	for i := range benchEdges {
		service := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 8080)
		h.snapshot.Edges = append(h.snapshot.Edges, model.Edge{Instance: uint64(i + 1), Side: model.RoleClient,
			Service: service,
			Client:  model.Peer{Container: h.snapshot.Containers[i%benchContainers].Container, Process: "app"},
			Server:  model.Peer{Address: service.Addr()}, Counters: model.EdgeCounters{Latency: &model.Histogram{}}})
	}
	return h
}

func (h *busyHost) next(now time.Time) *frame.Frame {
	s := h.snapshot
	s.Time = now
	s.Containers, s.Edges = append([]model.ContainerSample(nil), s.Containers...), append([]model.Edge(nil), s.Edges...)
	for i := range s.Containers {
		h.snapshot.Containers[i].CPU.UsageNS += h.random.Uint64N(1e8)
		h.snapshot.Containers[i].Memory.UsageBytes = 1e8 + h.random.Uint64N(1e6)
		cpu, memory := *h.snapshot.Containers[i].CPU, *h.snapshot.Containers[i].Memory
		s.Containers[i].CPU, s.Containers[i].Memory = &cpu, &memory
	}
	for i := range s.Edges {
		c := &h.snapshot.Edges[i].Counters
		c.SentBytes += h.random.Uint64N(1e5)
		c.ReceivedBytes += h.random.Uint64N(1e6)
		c.Requests += 3
		one := &model.Histogram{Count: 3, SumNS: 3e6, Offset: int32(h.random.IntN(40) - 300), Buckets: []uint64{1, 1, 1}}
		c.Latency.Merge(one)
		s.Edges[i].Counters = *c
		s.Edges[i].Counters.Latency = c.Latency.Clone()
	}
	return h.builder.Build(&s)
}

// appendAll appends the same frames of all hosts.
func appendAll(b *testing.B, log *Files, f, key *frame.Frame) {
	batch := make([]Encoded, benchHosts)
	err := parallel(context.Background(), benchHosts, func(i int) error {
		one, of := *f, *key
		one.Host = fmt.Sprintf("host-%03d", i)
		of.Host = one.Host
		if one.IsKey() {
			of = one
		}
		batch[i] = Encoded{Tenant: "t", Header: one.Header, Data: frame.Encode(nil, &one, &of)}
		return nil
	})
	if err == nil {
		err = log.Append(context.Background(), batch)
	}
	if err != nil {
		b.Fatal(err)
	}
}

var benchLog struct {
	once sync.Once
	dir  string
	end  time.Time
}

// mapLog makes a log of 500 hosts with 200 edges each, with frames of those minutes that the benchmark asks for.
func mapLog(b *testing.B) (dir string, end time.Time) {
	benchLog.once.Do(func() {
		benchLog.end = start.Add(24 * time.Hour)
		benchLog.dir, _ = os.MkdirTemp("", "framelog-bench")
		c := &clock{benchLog.end}
		o := c.options()
		o.SegmentAge = time.Hour
		log := open(b, benchLog.dir, o)
		h := newBusyHost(start)
		var key *frame.Frame
		frames, bytes := 0, int64(0)
		put := func(from, to, every time.Duration) {
			for at := from; at < to; at += every {
				f := h.next(start.Add(at))
				if f.IsKey() {
					key = f
				}
				appendAll(b, log, f, key)
				frames++
			}
		}
		put(58*time.Minute, 62*time.Minute, 10*time.Second)                        // 23 hours ago
		put(24*time.Hour-6*time.Minute, 24*time.Hour-5*time.Minute, 5*time.Second) // 5 minutes ago
		put(24*time.Hour-time.Minute, 24*time.Hour-25*time.Second, 5*time.Second)  // now
		bytes = log.Stats().Bytes
		b.Logf("%d frames of each host, %d bytes a frame", frames, bytes/int64(frames*benchHosts))
		if err := log.Close(); err != nil {
			b.Fatal(err)
		}
	})
	return benchLog.dir, benchLog.end
}

// dropCache takes files out of the page cache.
func dropCache(b *testing.B, dir string) {
	paths, _ := filepath.Glob(filepath.Join(dir, "*"+suffix))
	for _, path := range paths {
		file, err := os.Open(path)
		if err != nil {
			b.Fatal(err)
		}
		if err := unix.Fadvise(int(file.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
			b.Fatal(err)
		}
		file.Close()
	}
}

// BenchmarkMap reads what a map of 500 hosts with 200 edges each needs: the columns of edges and containers.
func BenchmarkMap(b *testing.B) {
	dir, end := mapLog(b)
	now := end.Add(-31 * time.Second).Add(500 * time.Millisecond)
	edges := frame.NewProjection(map[frame.TableID][]string{frame.Containers: nil, frame.Edges: nil})
	for _, window := range []time.Duration{5 * time.Minute, 23 * time.Hour} {
		for _, only := range []*frame.Projection{nil, edges} {
			for _, cold := range []bool{false, true} {
				b.Run(fmt.Sprintf("window=%v/projected=%t/cold=%t", window, only != nil, cold), func(b *testing.B) {
					log := open(b, dir, (&clock{end}).options())
					spent := cpuTime(b)
					defer func() { b.ReportMetric(float64((cpuTime(b)-spent).Milliseconds())/float64(b.N), "cpu-ms/op") }()
					b.ResetTimer()
					for range b.N {
						if cold {
							b.StopTimer()
							dropCache(b, dir)
							log.blocks = newBlockCache(indexCacheBytes)
							b.StartTimer()
						}
						for w, err := range log.Windows(context.Background(), Query{Tenant: "t", Only: only,
							Times: []time.Time{now.Add(-window), now}}) {
							if err != nil || len(w.Hosts) != benchHosts || w.Hosts[0].Spans[0].Before == nil {
								b.Fatalf("%v, %d hosts", err, len(w.Hosts))
							}
						}
					}
				})
			}
		}
	}
	b.Cleanup(func() { os.RemoveAll(dir) })
}

// BenchmarkDay measures the memory of a log of 500 hosts with a day of frames: 23 hours with one each 10 s and the last
// hour with one each second. What is in a frame takes no memory, so they are small.
func BenchmarkDay(b *testing.B) {
	for range b.N {
		before := heap()
		dir, err := os.MkdirTemp("", "framelog-day")
		if err != nil {
			b.Fatal(err)
		}
		c := &clock{start}
		log := open(b, dir, c.options())
		var batch []Encoded
		keys, number, minute := uint64(0), uint64(0), int64(0)
		for at := time.Duration(0); at < 24*time.Hour; {
			number++
			c.now = start.Add(at)
			if m := minuteOf(c.now.UnixNano()); m != minute {
				keys, minute = number, m
			}
			for host := range benchHosts {
				batch = append(batch, Encoded{Tenant: "t", Header: frame.Header{Host: fmt.Sprintf("host-%03d", host), Epoch: 1,
					Number: number, Key: keys, Time: c.now}, Data: []byte("a frame")})
			}
			if at += time.Second; at < 23*time.Hour {
				at += 9 * time.Second
			}
			if len(batch) >= 5000 {
				if err := log.Append(context.Background(), batch); err != nil {
					b.Fatal(err)
				}
				batch = batch[:0]
			}
		}
		batch = nil
		used := heap() - before
		s := log.Stats()
		b.ReportMetric(float64(used)/1e6, "MB")
		b.ReportMetric(float64(s.Frames), "frames")
		b.ReportMetric(float64(s.Segments), "segments")
		began := time.Now()
		if err := log.Close(); err != nil {
			b.Fatal(err)
		}
		if log, err = Open(dir, c.options()); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(time.Since(began).Seconds(), "s/reopen")
		b.ReportMetric(float64(heap()-before)/1e6, "MB-reopened")
		log.Close()
		os.RemoveAll(dir)
	}
}

// cpuTime is what this process has computed: on a machine that others use it says more than the clock.
func cpuTime(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
