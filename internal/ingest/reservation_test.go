package ingest_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"outsight/internal/ingest"
	"outsight/internal/otlp"
	"outsight/internal/queue"
)

// However many tenants there are, and while one has all that is free: another's largest request is taken, also when the
// first has the reserve and stalls.
func TestManyTenantsLargeRequest(t *testing.T) {
	o := ingest.Options{Tenants: true, MaxBody: 256 << 10, MaxDecompressed: 512 << 10,
		Limits: ingest.Limits{Built: 4 << 20}, InFlight: 12 << 20}
	for i := range 40 {
		o.TenantNames = append(o.TenantNames, fmt.Sprint("t", i))
	}
	s := start(t, t.TempDir(), setup{Options: o})
	now := time.Now()
	large := manyOf(t, "large", 0, 5000, now)
	if len(large) < 128<<10 || len(large) > 256<<10 {
		t.Fatalf("the request has %d bytes", len(large))
	}
	stall := func(n int) {
		for range n {
			conn := dialGRPC(t, s.grpc)
			conn.headers(t, "x-outsight-tenant", "t0")
			if err := conn.framer.WriteData(1, false, []byte{0, 0, 1, 0, 0, 'a'}); err != nil {
				t.Fatal(err)
			}
		}
	}
	// More than there is: the last that comes has the reserve, and the others are refused.
	const streams = 300
	stall(streams)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		stats, err := s.ingest.Stats(t.Context())
		if err == nil && stats.GRPC == streams && stats.Refused[ingest.Busy] > 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("got %+v, %v", stats, err)
		}
	}
	for _, tenant := range []string{"t1", "t2"} {
		if answer, text := s.post(t, large, header{otlp.TenantHeader: tenant}); answer.StatusCode != http.StatusOK {
			t.Errorf("%s: %s %q", tenant, answer.Status, text)
		}
	}
}

// A request that is refused does not count to its tenant's rate.
func TestRefusedIsNotCharged(t *testing.T) {
	s := start(t, t.TempDir(), setup{Options: twoTenants, queue: queue.Options{MaxBytes: 1 << 20}, idle: true})
	now, taken := time.Now(), 0
	for i := 0; ; i++ {
		name := make([]byte, 200)
		for n := range name {
			name[n] = byte('a' + rand.IntN(26))
		}
		answer, text := s.post(t, manyOf(t, string(name), i, 2000, now.Add(time.Duration(i))),
			header{otlp.TenantHeader: "shop"})
		if answer.StatusCode == http.StatusTooManyRequests {
			break
		}
		if answer.StatusCode != http.StatusOK {
			t.Fatalf("%s %q", answer.Status, text)
		}
		taken += 2000
	}
	w := httptest.NewRecorder()
	s.ingest.Metrics().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if line := fmt.Sprintf(`outsight_tenant_samples_total{tenant="shop"} %d`, taken); !strings.Contains(w.Body.String(),
		line+"\n") {
		t.Errorf("no %q in\n%s", line, w.Body)
	}
}

// The window of a compressed body counts to the bytes in flight while it is decompressed.
func TestWindowsCount(t *testing.T) {
	s := start(t, t.TempDir(), setup{Options: ingest.Options{InFlight: 8 << 20}})
	body := manyOf(t, "w", 0, 3000, time.Now())
	f := func(want int, windows ...int) {
		t.Helper()
		var compressed strings.Builder
		for _, window := range windows {
			w, err := zstd.NewWriter(&compressed, zstd.WithWindowSize(window))
			if err != nil {
				t.Fatal(err)
			}
			for _, part := range [][]byte{body[:1000], body[1000:]} { // so that the frame does not tell its size
				if _, err := w.Write(part); err != nil {
					t.Fatal(err)
				}
				if err := w.Flush(); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
		}
		answer, text := s.post(t, []byte(compressed.String()), header{"Content-Encoding": "zstd"})
		if answer.StatusCode != want {
			t.Errorf("windows of %d: %s %q, want %d", windows, answer.Status, text, want)
		}
		if stats, err := s.ingest.Stats(t.Context()); err != nil || stats.InFlight != 0 {
			t.Errorf("%d bytes are in flight, %v", stats.InFlight, err)
		}
	}
	f(http.StatusOK, 1<<20)
	f(http.StatusTooManyRequests, 8<<20)
	f(http.StatusTooManyRequests, 1<<20, 8<<20)
	f(http.StatusOK, 512<<10, 1<<20)
}
