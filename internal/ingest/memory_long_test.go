//go:build long

package ingest_test

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	"google.golang.org/protobuf/proto"

	"outsight/internal/ingest"
	"outsight/internal/queue"
	"outsight/internal/quota"
	"outsight/internal/store"
	"outsight/test/memorygroup"
)

// The server of these tests has a quarter of what one of 4 GiB has.
const (
	hostileMemory = 1 << 30
	hostileSeries = 125_000
)

// TestHostileTenantInMemory lets one tenant send everything that makes a server need memory to one that has 1 GiB, in a
// control group of its own, while another sends and reads. The server lives, takes all of the other's, and comes up
// again after it was killed.
func TestHostileTenantInMemory(t *testing.T) {
	if dir := os.Getenv("HOSTILE_DIR"); dir != "" {
		hostileServer(t, dir)
		return
	}
	group, err := memorygroup.New(t, hostileMemory)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, part := range []string{"flood", "restart"} {
		c := group.Command(os.Args[0], "-test.run=^TestHostileTenantInMemory$", "-test.v")
		c.Env = append(os.Environ(), "HOSTILE_DIR="+dir, "HOSTILE_PART="+part, fmt.Sprint("GOMEMLIMIT=", hostileMemory/4*3))
		out, err := c.CombinedOutput()
		peak, peakErr := group.PeakBytes()
		t.Logf("%s: at most %d bytes (%v)\n%s", part, peak, peakErr, out)
		if err != nil && !bytes.Contains(out, []byte("killed by itself")) {
			t.Fatalf("%s: %v", part, err)
		}
	}
}

func hostileServer(t *testing.T, dir string) {
	among := quota.Tenants{Names: []string{"flood", "shop"}}
	labelBytes := int64(hostileMemory / 5)
	s := start(t, dir, setup{
		Options: ingest.Options{Tenants: true, TenantNames: among.Names, InFlight: 64 << 20,
			Limits: ingest.Limits{Remembered: hostileSeries, RememberedBytes: labelBytes / 2}},
		queue: queue.Options{MaxBytes: 256 << 20}, store: store.Options{MaxSeries: hostileSeries,
			LabelBytes: labelBytes, Tenants: &among},
	})
	if os.Getenv("HOSTILE_PART") == "restart" {
		s.drained(t)
		t.Logf("after the restart: %+v", s.store.Stats())
		if got := s.value(t, `count(last_over_time(own{tenant="shop"}[1h]))`, time.Now()); got != "200" {
			t.Errorf("the other tenant has %q series", got)
		}
		return
	}
	flood := header{"X-Outsight-Tenant": "flood", "Content-Encoding": "zstd"}
	stop := make(chan struct{})
	var group sync.WaitGroup
	refused := map[int]int{}
	var mu sync.Mutex
	attack := func(bodies func(i int) ([]byte, string)) {
		group.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				body, media := bodies(i)
				h := header{"Content-Type": media}
				for name, value := range flood {
					h[name] = value
				}
				answer, _ := s.post(t, body, h)
				mu.Lock()
				refused[answer.StatusCode]++
				mu.Unlock()
			}
		})
	}
	bomb := zstandard(t, []byte(`{"resourceMetrics":[{"scopeMetrics":[`+strings.Repeat("{},", 10_500_000)+`{}]}]}`), false)
	for range 4 {
		attack(func(int) ([]byte, string) { return bomb, "application/json" })
	}
	for _, size := range []int{1000, 240} { // too much for a series, and just not
		attack(func(i int) ([]byte, string) {
			return zstandard(t, longLabels(t, i*100, 100, 60, size), false), "application/x-protobuf"
		})
	}
	for range 30 { // stalled messages
		conn := dialGRPC(t, s.grpc)
		conn.headers(t, "x-outsight-tenant", "flood")
		if err := conn.framer.WriteData(1, false, append([]byte{0, 1, 0, 0, 0}, make([]byte, 10_000)...)); err != nil {
			t.Fatal(err)
		}
	}
	// The other tenant sends once in 100 ms, as agents do, and all of it is taken.
	for i := range 300 {
		now := time.Now()
		if answer, text := s.post(t, manyOf(t, "own", 0, 200, now),
			header{"X-Outsight-Tenant": "shop"}); answer.StatusCode != http.StatusOK || len(text) > 0 {
			t.Fatalf("request %d of the other tenant: %s %q", i, answer.Status, text)
		}
		time.Sleep(100 * time.Millisecond)
	}
	close(stop)
	group.Wait()
	stats, err := s.ingest.Stats(t.Context())
	t.Logf("answers to the flood: %v; %+v, %v; %+v", refused, stats, err, s.store.Stats())
	s.drained(t)
	if got := s.value(t, `sum(count_over_time(own{tenant="shop"}[10m]))`, time.Now()); got != "60000" {
		t.Errorf("the other tenant has %s samples", got)
	}
	if t.Failed() {
		return
	}
	t.Log("killed by itself")
	fmt.Println("killed by itself")
	process, err := os.FindProcess(os.Getpid())
	if err == nil {
		err = process.Kill()
	}
	t.Fatal(err)
}

// longLabels are series with labels of so many bytes.
func longLabels(t testing.TB, from, n, labels, size int) []byte {
	t.Helper()
	m := gaugeMessage("long", time.Now(), 1)
	g := m.ResourceMetrics[0].ScopeMetrics[0].Metrics[0].GetGauge()
	point := g.DataPoints[0]
	g.DataPoints = nil
	for i := range n {
		p := &metricspb.NumberDataPoint{TimeUnixNano: point.TimeUnixNano, Value: point.Value}
		for l := range labels {
			v := fmt.Sprintf("%d-%d-", from+i, l)
			p.Attributes = append(p.Attributes, &commonpb.KeyValue{Key: fmt.Sprint("l", l),
				Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: v +
					strings.Repeat("x", size-len(v))}}})
		}
		g.DataPoints = append(g.DataPoints, p)
	}
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
