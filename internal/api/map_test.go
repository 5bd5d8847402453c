package api

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"outsight/internal/frame"
	"outsight/internal/framelog"
	"outsight/internal/model"
)

// whole is a log of which all columns are read, whatever is asked for.
type whole struct{ framelog.Log }

func (w whole) Windows(ctx context.Context, q framelog.Query) iter.Seq2[*frame.Window, error] {
	q.Only = nil
	return w.Log.Windows(ctx, q)
}

// TestReadsWhatItNeeds: an answer is the same where all columns of frames are read.
func TestReadsWhatItNeeds(t *testing.T) {
	k, _, now := fill(t, 130, func(second int, s *model.Snapshot) *model.Snapshot {
		s.Self.Drops = append(s.Self.Drops, model.Drop{Name: "edge", Count: uint64(second), Used: 9, Capacity: 9})
		return s
	})
	handler := func(log framelog.Log) http.Handler {
		return New(Options{Log: log, Now: func() time.Time { return now }})
	}
	some, all := handler(k.log), handler(whole{k.log})
	for _, path := range []string{"graph", "graph?by=process", "picture", "services", "hosts", "matrix", "containers",
		"status", "path", "path?percentile=p99", "changes?from=now-30s&to=now&ago=60s", "baseline"} {
		got, want := httptest.NewRecorder(), httptest.NewRecorder()
		some.ServeHTTP(got, httptest.NewRequest("GET", "/api/outsight/"+path, nil))
		all.ServeHTTP(want, httptest.NewRequest("GET", "/api/outsight/"+path, nil))
		if got.Code != want.Code || got.Body.String() != want.Body.String() {
			t.Errorf("%s: of the columns that it needs %d\n%s\nof all %d\n%s", path, got.Code, got.Body, want.Code, want.Body)
		}
		if path == "graph" && !strings.Contains(want.Body.String(), `"dropped"`) {
			t.Errorf("no drops are in the completeness: %s", want.Body)
		}
	}
}

const benchContainers, benchEdges, benchDrops = 10, 200, 20

// benchHost makes the snapshots of a host: one half of its edges are both sides of edges between its containers, the
// other half are clients of containers of the next host.
func benchHost(host, hosts int, at time.Time, n uint64) *model.Snapshot {
	random := rand.New(rand.NewPCG(uint64(host), 1))
	address := func(host, i int) netip.Addr {
		return netip.AddrFrom4([4]byte{10, byte(host >> 8), byte(host), byte(i)})
	}
	times := func() *model.Histogram {
		d := &model.Histogram{}
		for range 12 {
			d.Merge(&model.Histogram{Count: n, SumNS: n * 1e6, Offset: -320 + int32(random.IntN(30)), Buckets: []uint64{n}})
		}
		return d
	}
	s := &model.Snapshot{Time: at, Host: model.Host{Name: fmt.Sprintf("host-%03d", host), Cores: 8}}
	for i := range benchContainers {
		c := &model.Container{ID: fmt.Sprintf("%064x", host*1000+i), Name: fmt.Sprintf("service-%d-%d", host%50, i),
			Runtime: model.Docker, Addresses: []netip.Addr{address(host, i)}}
		s.Containers = append(s.Containers, model.ContainerSample{Container: c,
			CPU:    &model.CPUCounters{UsageNS: n * 1e8, RunQueue: times()},
			Memory: &model.MemorySample{UsageBytes: 1 << 28}, Processes: &model.ProcessCounters{Threads: 9}})
	}
	for i := range benchDrops {
		s.Self.Drops = append(s.Self.Drops, model.Drop{Name: fmt.Sprintf("table-%d", i), Used: n, Capacity: 1 << 16})
	}
	for i := 0; len(s.Edges) < benchEdges; i++ {
		to := random.IntN(benchContainers)
		counters := model.EdgeCounters{SentBytes: n * uint64(random.IntN(1e6)), ReceivedBytes: n * uint64(random.IntN(1e6)),
			Opens: n, Closes: n, Requests: 12 * n, Replies: 12 * n, Latency: times(), TimeToFirstByte: times(), RTT: times()}
		e := model.Edge{Instance: uint64(i*2 + 1), Side: model.RoleClient,
			Client:  model.Peer{Container: s.Containers[random.IntN(benchContainers)].Container, Process: "app"},
			Service: netip.AddrPortFrom(address(host, to), uint16(8000+i)), Confidence: model.Exact, Paired: true, Counters: counters,
			Endpoints: []model.Endpoint{{EndpointKey: model.EndpointKey{Protocol: model.HTTP, Name: "GET /", Status: "2xx"},
				Latency: counters.Latency}}}
		if i%3 > 0 {
			next := (host + 1) % hosts
			e.Service = netip.AddrPortFrom(address(next, to), uint16(8000+i))
			e.Server, e.Confidence, e.Paired = model.Peer{Address: address(next, to)}, model.NotFound, false
			s.Edges = append(s.Edges, e)
			continue
		}
		e.Server = model.Peer{Container: s.Containers[to].Container, Process: "app"}
		s.Edges = append(s.Edges, e)
		e.Instance, e.Side = e.Instance+1, model.RoleServer
		s.Edges = append(s.Edges, e)
	}
	s.Edges = s.Edges[:benchEdges]
	return s
}

// benchMap makes a log of hosts, with frames that are key frames and such that are not: 23 hours ago, 5 minutes ago, now.
func benchMap(b *testing.B, hosts int) (dir string, now time.Time) {
	b.Helper()
	dir = b.TempDir()
	now = begin.Truncate(time.Minute).Add(24*time.Hour + 30*time.Second)
	log, err := framelog.Open(dir, framelog.Options{Now: func() time.Time { return now }, TidyEvery: -1, SegmentAge: time.Hour})
	if err != nil {
		b.Fatal(err)
	}
	for host := range hosts {
		builder := frame.NewBuilder(now.Add(-24 * time.Hour))
		var batch []framelog.Encoded
		var key *frame.Frame
		n := uint64(0)
		for _, ago := range []time.Duration{23 * time.Hour, 5 * time.Minute, 0} {
			for _, at := range []time.Time{now.Add(-ago - 29*time.Second), now.Add(-ago)} {
				n += 3
				f := builder.Build(benchHost(host, hosts, at, n))
				if f.IsKey() {
					key = f
				}
				batch = append(batch, framelog.Encoded{Header: f.Header, Data: frame.Encode(nil, f, key)})
			}
		}
		if err := log.Append(b.Context(), batch); err != nil {
			b.Fatal(err)
		}
	}
	if err := log.Close(); err != nil {
		b.Fatal(err)
	}
	return dir, now
}

// dropCache takes files out of the page cache.
func dropCache(b *testing.B, dir string) {
	paths, _ := filepath.Glob(filepath.Join(dir, "*"))
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

func processorTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// discarded is who asked: an answer is gone when it is written, as it is on a connection.
type discarded struct {
	header      http.Header
	code, bytes int
}

func (w *discarded) Header() http.Header  { return w.header }
func (w *discarded) WriteHeader(code int) { w.code = code }

func (w *discarded) Write(p []byte) (int, error) {
	w.bytes += len(p)
	return len(p), nil
}

// benchmarkMap measures requests, from the log on the disk to the JSON.
func benchmarkMap(b *testing.B, hosts int) {
	dir, now := benchMap(b, hosts)
	for _, of := range []string{"graph", "path"} {
		for _, window := range []string{"5m", "23h"} {
			for _, cold := range []bool{false, true} {
				b.Run(fmt.Sprintf("%s/window=%s/cold=%t", of, window, cold), func(b *testing.B) {
					o := framelog.Options{Now: func() time.Time { return now }, TidyEvery: -1}
					log, err := framelog.Open(dir, o)
					if err != nil {
						b.Fatal(err)
					}
					defer func() { log.Close() }()
					took := time.Duration(0)
					for range b.N {
						b.StopTimer()
						if cold { // indexes in memory are forgotten, too
							log.Close()
							dropCache(b, dir)
							if log, err = framelog.Open(dir, o); err != nil {
								b.Fatal(err)
							}
						}
						h := New(Options{Log: log, Now: func() time.Time { return now }})
						began := processorTime(b)
						b.StartTimer()
						w := &discarded{header: http.Header{}, code: http.StatusOK}
						h.ServeHTTP(w, httptest.NewRequest("GET", "/api/outsight/"+of+"?from=now-"+window, nil))
						took += processorTime(b) - began
						if w.code != http.StatusOK || w.bytes == 0 {
							b.Fatal(w.code, w.bytes)
						}
					}
					b.ReportMetric(float64(took)/1e6/float64(b.N), "cpu-ms/op")
				})
			}
		}
	}
}

func BenchmarkMap10k(b *testing.B)  { benchmarkMap(b, 50) }
func BenchmarkMap100k(b *testing.B) { benchmarkMap(b, 500) }
