package ingest_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	colpb "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"outsight/internal/ingest"
	"outsight/internal/otlp"
	"outsight/internal/queue"
	"outsight/internal/quota"
	"outsight/internal/store"
)

// manyOf are so many series of a gauge.
func manyOf(t testing.TB, name string, from, n int, at time.Time) []byte {
	t.Helper()
	m := gaugeMessage(name, at, 1)
	g := m.ResourceMetrics[0].ScopeMetrics[0].Metrics[0].GetGauge()
	point := g.DataPoints[0]
	g.DataPoints = nil
	for i := range n {
		p := proto.Clone(point).(*metricspb.NumberDataPoint)
		p.Attributes = []*commonpb.KeyValue{{Key: "i",
			Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: fmt.Sprint(from + i)}}}}
		g.DataPoints = append(g.DataPoints, p)
	}
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

var twoTenants = ingest.Options{Tenants: true, TenantNames: []string{"flood", "shop"}}

func partial(t testing.TB, answer *http.Response, text []byte) *colpb.ExportMetricsPartialSuccess {
	t.Helper()
	var m colpb.ExportMetricsServiceResponse
	if err := proto.Unmarshal(text, &m); err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%s %q, %v", answer.Status, text, err)
	}
	return m.PartialSuccess
}

// New series beyond the limit are reported to their sender, by number and name; its known series go on, and so does
// another tenant.
func TestRejectedSeriesAreReported(t *testing.T) {
	s := start(t, t.TempDir(), setup{Options: twoTenants, queue: queue.Options{MaxBytes: 64 << 20},
		store: store.Options{MaxSeries: 2000, Tenants: &quota.Tenants{Names: twoTenants.TenantNames}}})
	now := time.Now()
	flood, shop := header{otlp.TenantHeader: "flood"}, header{otlp.TenantHeader: "shop"}
	rejected, sent := 0, 0
	for i := range 10 {
		body := manyOf(t, "many", i*500, 500, now)
		answer, text := s.post(t, body, flood)
		if answer.StatusCode == http.StatusTooManyRequests { // until what waits is stored
			s.drained(t)
			answer, text = s.post(t, body, flood)
		}
		p := partial(t, answer, text)
		sent += 500
		rejected += int(p.GetRejectedDataPoints())
		if n := p.GetRejectedDataPoints(); n > 0 && (!strings.Contains(p.ErrorMessage, `tenant "flood"`) ||
			!strings.Contains(p.ErrorMessage, `"many"`)) {
			t.Errorf("the message is %q", p.ErrorMessage)
		}
	}
	stats := s.drained(t)
	// A half of all, and half of the rest.
	if got := s.store.Stats(); got.Series != sent-rejected || got.NoRoom != 0 || got.Series > 1500 || got.Series < 1400 {
		t.Errorf("%d were sent, %d rejected; %+v", sent, rejected, got)
	}
	if stats.Rejected[ingest.NoRoom] != uint64(rejected) || stats.Appended != stats.Samples {
		t.Errorf("got %+v", stats)
	}
	// The known ones of a tenant at its limit, and new ones of another.
	answer, text := s.post(t, manyOf(t, "many", 0, 500, now.Add(time.Second)), flood)
	if p := partial(t, answer, text); p != nil {
		t.Errorf("known series: %v", p)
	}
	answer, text = s.post(t, manyOf(t, "own", 0, 400, now), shop)
	if p := partial(t, answer, text); p != nil {
		t.Errorf("another tenant's: %v", p)
	}
	s.drained(t)
	if got := s.value(t, `count(own{tenant="shop"})`, now); got != "400" {
		t.Errorf("stored %q", got)
	}
	w := httptest.NewRecorder()
	s.ingest.Metrics().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	for _, line := range []string{`outsight_tenant_used{tenant="shop",of="series"} 400`,
		`outsight_tenant_guaranteed{tenant="shop",of="series"} 500`,
		`outsight_tenant_limit{tenant="flood",of="label_bytes"} `,
		fmt.Sprintf(`outsight_tenant_samples_total{tenant="flood"} %d`, sent+500)} {
		if !strings.Contains(w.Body.String(), line) {
			t.Errorf("no %q in\n%s", line, w.Body)
		}
	}
	if list := s.ingest.Quotas("shop"); len(list) != 3 || list[2].What != "series" || list[2].Used != 400 {
		t.Errorf("got %+v", list)
	}
}

// A tenant beyond its rate is told when to retry, over HTTP and gRPC; others are not.
func TestRate(t *testing.T) {
	now := time.Now()
	o := twoTenants
	o.Now = func() time.Time { return now }
	o.Quotas = quota.Table{"flood": {SamplesPerSecond: 10}}
	s := start(t, t.TempDir(), setup{Options: o})
	flood := header{otlp.TenantHeader: "flood"}
	if answer, text := s.post(t, manyOf(t, "m", 0, 350, now), flood); answer.StatusCode != http.StatusOK {
		t.Fatalf("%s %q", answer.Status, text)
	}
	answer, text := s.post(t, manyOf(t, "m", 0, 1, now), flood)
	after, err := strconv.Atoi(answer.Header.Get("Retry-After"))
	if answer.StatusCode != http.StatusTooManyRequests || err != nil || after < 25 || after > 26 ||
		!strings.Contains(string(text), "10 a second") {
		t.Errorf("%s, after %d s, %q", answer.Status, after, text)
	}
	ctx := metadata.AppendToOutgoingContext(t.Context(), "x-outsight-tenant", "flood")
	_, err = client(t, s.grpc).Export(ctx, gaugeMessage("g", now, 1), grpc.UseCompressor("zstd"))
	if st := status.Convert(err); st.Code() != codes.ResourceExhausted || len(st.Details()) != 1 {
		t.Errorf("got %v, %v", err, st.Details())
	}
	if answer, _ := s.post(t, manyOf(t, "m", 0, 350, now),
		header{otlp.TenantHeader: "shop"}); answer.StatusCode != http.StatusOK {
		t.Error(answer.Status)
	}
	now = now.Add(26 * time.Second)
	if answer, _ := s.post(t, manyOf(t, "m", 0, 1, now), flood); answer.StatusCode != http.StatusOK {
		t.Error(answer.Status)
	}
	if stats := s.drained(t); stats.Refused[ingest.TooFast] != 2 {
		t.Errorf("got %+v", stats)
	}
}

// Requests of one tenant that fill all the bytes that they may leave another's taken at once.
func TestBytesInFlightAreShared(t *testing.T) {
	o := twoTenants
	o.InFlight = 8 << 20 // half is the reserve
	s := start(t, t.TempDir(), setup{Options: o})
	for range 400 { // of 16 KiB each, which would be 6 MiB
		conn := dialGRPC(t, s.grpc)
		conn.headers(t, "x-outsight-tenant", "flood")
		if err := conn.framer.WriteData(1, false, []byte{0, 0, 1, 0, 0, 'a'}); err != nil {
			t.Fatal(err)
		}
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		stats, err := s.ingest.Stats(t.Context())
		if err == nil && stats.GRPC == 400 && stats.Refused[ingest.Busy] >= 400-3<<20/(16<<10)-1 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("got %+v, %v", stats, err)
		}
	}
	for i := range 34 {
		if answer, text := s.post(t, manyOf(t, "own", 0, 100, time.Now()),
			header{otlp.TenantHeader: "shop"}); answer.StatusCode != http.StatusOK {
			t.Fatalf("probe %d: %s %q", i, answer.Status, text)
		}
	}
	if answer, _ := s.post(t, manyOf(t, "own", 0, 1, time.Now()),
		header{otlp.TenantHeader: "flood"}); answer.StatusCode != http.StatusTooManyRequests {
		t.Error(answer.Status)
	}
}
