package ingest_test

import (
	"bytes"
	"fmt"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"outsight/internal/frame"
	"outsight/internal/model"
	"outsight/internal/queue"
)

// busyHost is a host with 50 containers and 200 edges, of which all counters and some buckets of each histogram grow in
// each second.
type busyHost struct {
	builder  *frame.Builder
	snapshot *model.Snapshot
	key      *frame.Frame
	seconds  int
}

func newBusyHost(name string, began time.Time) *busyHost {
	h := &busyHost{builder: frame.NewBuilder(began), snapshot: &model.Snapshot{Time: began,
		Host: model.Host{Name: name, Cores: 8}}}
	spread := func() *model.Histogram {
		return &model.Histogram{Offset: -300, Buckets: make([]uint64, 40)}
	}
	var containers []*model.Container
	for i := range 50 {
		c := &model.Container{ID: fmt.Sprintf("%064x", i), Name: fmt.Sprint("service-", i), Runtime: model.Docker,
			Image: fmt.Sprintf("registry.example/shop/service-%d:1.2.3", i), Started: began}
		containers = append(containers, c)
		h.snapshot.Containers = append(h.snapshot.Containers, model.ContainerSample{Container: c,
			CPU: &model.CPUCounters{RunQueue: spread()}, Processes: &model.ProcessCounters{Threads: 4},
			Throttle: &model.ThrottleCounters{}, Memory: &model.MemorySample{UsageBytes: 11e6}, Disk: &model.DiskCounters{},
			Network: &model.NetworkCounters{}, TCP: &model.TCPCounters{}})
	}
	for i := range 200 {
		h.snapshot.Edges = append(h.snapshot.Edges, model.Edge{Instance: uint64(i + 1), Side: model.RoleClient, Start: began,
			Client:  model.Peer{Container: containers[i%50], Process: "java"},
			Server:  model.Peer{Container: containers[(i*7+1)%50], Process: "postgres"},
			Service: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, 0, byte(i)}), uint16(8000+i)),
			Counters: model.EdgeCounters{Latency: spread(), TimeToFirstByte: spread(), RTT: spread(),
				Duration: spread()}})
	}
	return h
}

func (h *busyHost) next() []byte {
	h.seconds++
	s := h.snapshot
	s.Time = s.Time.Add(time.Second)
	n := uint64(h.seconds)
	for i := range s.Containers {
		c := &s.Containers[i]
		c.CPU.UsageNS, c.CPU.Voluntary = 1e7*n, 70*n
		c.Memory.UsageBytes += n % 7 << 12
		c.Disk.ReadBytes, c.Network.ReceiveBytes = 4096*n, 31_000*n
		count(c.CPU.RunQueue, i+h.seconds)
	}
	for i := range s.Edges {
		c := &s.Edges[i].Counters
		c.SentBytes, c.ReceivedBytes, c.Requests, c.Replies = 1000*n, 20_000*n, 20*n, 20*n
		for j, one := range []*model.Histogram{c.Latency, c.TimeToFirstByte, c.RTT} {
			count(one, i+j+h.seconds)
		}
	}
	f := h.builder.Build(s)
	if f.IsKey() {
		h.key = f
	}
	return frame.Encode(nil, f, h.key)
}

func count(h *model.Histogram, at int) {
	for k := range 4 {
		h.Buckets[(at*7+k*k)%len(h.Buckets)] += 3
	}
	h.Count, h.SumNS = h.Count+12, h.SumNS+1e6
}

func BenchmarkFrameDecode(b *testing.B) {
	h := newBusyHost("h", time.Now().Truncate(time.Minute))
	var all [][]byte
	for range 120 {
		all = append(all, h.next())
	}
	b.Logf("key frame %d bytes, then %d, %d, %d", len(all[59]), len(all[60]), len(all[80]), len(all[115]))
	var key *frame.Frame
	b.Run("key", func(b *testing.B) {
		for b.Loop() {
			var err error
			if key, err = frame.Decode(all[59], nil); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("other", func(b *testing.B) {
		b.ReportAllocs()
		n := 0
		for b.Loop() {
			if _, err := frame.Decode(all[60+n%59], key); err != nil {
				b.Fatal(err)
			}
			n++
		}
	})
}

// BenchmarkFrames is the whole way of a frame: from the socket over the queue to the log.
func BenchmarkFrames(b *testing.B) {
	s := start(b, b.TempDir(), setup{frames: true, frameQueue: queue.Options{MaxBytes: 256 << 20}})
	began := time.Now().Truncate(time.Minute).Add(-time.Hour)
	h := newBusyHost("host-00000", began)
	var all [][]byte
	for range 600 {
		all = append(all, h.next())
	}
	const hosts = 20
	n := 0
	for b.Loop() {
		host, at := n%hosts, n/hosts
		data := bytes.Clone(all[at])
		copy(data[bytes.Index(data, []byte("host-00000")):], fmt.Sprintf("host-%05d", host))
		if status, _, said := s.postFrame(b, data, nil); status != http.StatusOK {
			b.Fatal(status, said)
		}
		n++
	}
	s.drained(b)
}
