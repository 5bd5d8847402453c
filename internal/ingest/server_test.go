package ingest_test

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/nats-io/nats.go"
	colpb "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	_ "google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"outsight/internal/framelog"
	"outsight/internal/ingest"
	"outsight/internal/model"
	"outsight/internal/otlp"
	"outsight/internal/queue"
	"outsight/internal/store"
)

// server is all of an ingest but the process.
type server struct {
	store  *store.Store
	conn   *nats.Conn
	queue  *queue.Queue
	log    framelog.Log
	ingest *ingest.Ingest
	http   *httptest.Server
	grpc   string
	stop   func()
}

type setup struct {
	ingest.Options
	queue queue.Options
	store store.Options
	// frames is that frames are taken, too.
	frames     bool
	frameQueue queue.Options
	log        framelog.Options
	// idle leaves what was taken in the queue.
	idle bool
}

func start(t testing.TB, dir string, o setup) *server {
	t.Helper()
	s := &server{}
	var err error
	check := func() {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	o.store.OutOfOrder = 24 * time.Hour
	s.store, err = store.Open(dir, o.store)
	check()
	embedded, err := ingest.Embed(dir+"/queue", 512<<20, slog.New(slog.DiscardHandler))
	check()
	s.conn, err = embedded.Connect()
	check()
	o.queue.MaxBytes = max(o.queue.MaxBytes, 1<<20)
	s.queue, err = queue.Open(t.Context(), s.conn, o.queue)
	check()
	if o.frames {
		o.frameQueue.Stream = "OUTSIGHT-FRAMES"
		o.frameQueue.MaxBytes = max(o.frameQueue.MaxBytes, 1<<20)
		of := *cmp.Or(o.Options.Frames, &ingest.Frames{})
		of.Queue, err = queue.Open(t.Context(), s.conn, o.frameQueue)
		check()
		of.Log, err = framelog.Open(dir+"/frames", o.log)
		check()
		s.log, o.Options.Frames = of.Log, &of
	}
	o.Dir = dir + "/queue"
	s.ingest, err = ingest.New(s.queue, s.store, o.Options)
	check()
	s.http = httptest.NewServer(s.ingest.Handler())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check()
	s.grpc = l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan struct{})
	go func() {
		defer close(served)
		if err := s.ingest.ServeGRPC(ctx, l); err != nil {
			t.Error(err)
		}
	}()
	ended := make(chan struct{})
	if o.idle {
		close(ended)
	} else {
		go func() { defer close(ended); s.ingest.Run(ctx) }()
	}
	stopped := false
	s.stop = func() {
		if stopped {
			return
		}
		stopped = true
		s.http.Close()
		cancel()
		<-served
		<-ended
		s.conn.Close()
		if err := embedded.Close(); err != nil {
			t.Error(err)
		}
		if err := s.store.Close(); err != nil {
			t.Error(err)
		}
		if s.log != nil {
			if err := s.log.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(s.stop)
	return s
}

// drained waits until all that was taken is in the store.
func (s *server) drained(t testing.TB) ingest.Stats {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		stats, err := s.ingest.Stats(context.Background())
		if err == nil && stats.Queue.Messages+stats.FrameQueue.Messages == 0 {
			return stats
		}
		if time.Now().After(deadline) {
			t.Fatalf("the queue is not empty: %+v, %v", stats, err)
		}
	}
}

type header map[string]string

func (s *server) post(t testing.TB, body []byte, h header) (*http.Response, []byte) {
	t.Helper()
	r, err := http.NewRequest(http.MethodPost, s.http.URL+ingest.Path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-protobuf")
	for name, value := range h {
		r.Header.Set(name, value)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer, text
}

func (s *server) value(t testing.TB, query string, at time.Time) string {
	t.Helper()
	results, err := s.store.Instant(context.Background(), query, at)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	var all []string
	for _, r := range results {
		all = append(all, fmt.Sprint(r.Points[len(r.Points)-1].Value))
	}
	return strings.Join(all, " ")
}

func gaugeRequest(t testing.TB, name string, at time.Time, v float64) []byte {
	t.Helper()
	b, err := proto.Marshal(gaugeMessage(name, at, v))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func gaugeMessage(name string, at time.Time, v float64) *colpb.ExportMetricsServiceRequest {
	return &colpb.ExportMetricsServiceRequest{ResourceMetrics: []*metricspb.ResourceMetrics{{ScopeMetrics: []*metricspb.ScopeMetrics{{
		Metrics: []*metricspb.Metric{{Name: name,
			Data: &metricspb.Metric_Gauge{Gauge: &metricspb.Gauge{DataPoints: []*metricspb.NumberDataPoint{
				{TimeUnixNano: uint64(at.UnixNano()), Value: &metricspb.NumberDataPoint_AsDouble{AsDouble: v}}}}}}}}}}}}
}

func zipped(t testing.TB, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	w.Close()
	return out.Bytes()
}

func zstandard(t testing.TB, b []byte, stream bool) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := zstd.NewWriter(&out, zstd.WithWindowSize(1<<20))
	if err != nil {
		t.Fatal(err)
	}
	if !stream {
		return w.EncodeAll(b, nil)
	}
	// In two writes, so that the frame does not tell its size.
	w.Write(b[:len(b)/2])
	w.Flush()
	w.Write(b[len(b)/2:])
	w.Close()
	return out.Bytes()
}

func TestEncodings(t *testing.T) {
	s := start(t, t.TempDir(), setup{})
	now := time.Now()
	f := func(name string, h header, encode func([]byte) []byte) {
		t.Helper()
		answer, text := s.post(t, encode(gaugeRequest(t, name, now, 7)), h)
		if answer.StatusCode != http.StatusOK || len(text) != 0 ||
			answer.Header.Get("Content-Type") != "application/x-protobuf" {
			t.Fatalf("%s: %s %q", name, answer.Status, text)
		}
		s.drained(t)
		if got := s.value(t, name, now); got != "7" {
			t.Errorf("%s: stored %q", name, got)
		}
	}
	f("plain", nil, func(b []byte) []byte { return b })
	f("identity", header{"Content-Encoding": "identity"}, func(b []byte) []byte { return b })
	f("gzipped", header{"Content-Encoding": "gzip"}, func(b []byte) []byte { return zipped(t, b) })
	f("zstd_sized", header{"Content-Encoding": "zstd"}, func(b []byte) []byte { return zstandard(t, b, false) })
	f("zstd_stream", header{"Content-Encoding": "zstd"}, func(b []byte) []byte { return zstandard(t, b, true) })

	body := fmt.Sprintf(`{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"name":"by.json","unit":"s","futureField":1,"sum":{
		"aggregationTemporality":2,"isMonotonic":true,"dataPoints":[{"asInt":"12","timeUnixNano":"%d"},{"asInt":"1","timeUnixNano":"1"}]}}]}]}]}`, now.UnixNano())
	answer, text := s.post(t, []byte(body), header{"Content-Type": "application/json"})
	var partial struct {
		PartialSuccess struct{ RejectedDataPoints, ErrorMessage string }
	}
	if err := json.Unmarshal(text, &partial); err != nil || answer.StatusCode != 200 ||
		partial.PartialSuccess.RejectedDataPoints != "1" ||
		!strings.Contains(partial.PartialSuccess.ErrorMessage, "1 too old") {
		t.Errorf("%s %q, %v", answer.Status, text, err)
	}
	stats := s.drained(t)
	if got := s.value(t, "by_json_seconds_total", now); got != "12" {
		t.Errorf("stored %q", got)
	}
	if stats.HTTP != 6 || stats.Points != 7 || stats.Samples != 6 || stats.Appended != 6 ||
		stats.Rejected[ingest.TooOld] != 1 {
		t.Errorf("got %+v", stats)
	}
}

// Each body that cannot be taken is answered as OTLP asks, and the next one is taken.
func TestBadBodies(t *testing.T) {
	s := start(t, t.TempDir(), setup{Options: ingest.Options{MaxBody: 1 << 20, MaxDecompressed: 4 << 20,
		Limits: ingest.Limits{Points: 1000}}})
	good := gaugeRequest(t, "good", time.Now(), 1)
	f := func(want int, code codes.Code, text string, body []byte, h header) {
		t.Helper()
		answer, got := s.post(t, body, h)
		var st statuspb.Status
		if err := proto.Unmarshal(got, &st); err != nil || answer.StatusCode != want || codes.Code(st.Code) != code ||
			!strings.Contains(st.Message, text) {
			t.Errorf("got %s %v, want %d %v %q", answer.Status, &st, want, code, text)
		}
	}
	f(400, codes.InvalidArgument, "not an OTLP metrics request", []byte("hello, world"), nil)
	f(400, codes.InvalidArgument, "not an OTLP metrics request", good[:len(good)-3], nil)
	f(400, codes.InvalidArgument, "gzip", []byte("no gzip"), header{"Content-Encoding": "gzip"})
	f(400, codes.InvalidArgument, "zstd", []byte("no zstd"), header{"Content-Encoding": "zstd"})
	f(400, codes.InvalidArgument, "zstd", zstandard(t, good, false)[:20], header{"Content-Encoding": "zstd"})
	f(415, codes.InvalidArgument, "Content-Encoding", good, header{"Content-Encoding": "br"})
	f(415, codes.InvalidArgument, "Content-Type", good, header{"Content-Type": "text/plain"})
	f(413, codes.InvalidArgument, "at most 1048576", make([]byte, 1<<20+1), nil)
	f(413, codes.InvalidArgument, "more than 4194304", zipped(t, make([]byte, 5<<20)), header{"Content-Encoding": "gzip"})
	f(413, codes.InvalidArgument, "more than 4194304", zipped(t, make([]byte, 900<<20)),
		header{"Content-Encoding": "gzip"})
	f(413, codes.InvalidArgument, "more than 4194304", zstandard(t, make([]byte, 500<<20), true),
		header{"Content-Encoding": "zstd"})
	f(413, codes.InvalidArgument, "more than 4194304", zstandard(t, make([]byte, 5<<20), false),
		header{"Content-Encoding": "zstd"})
	many := gaugeMessage("many", time.Now(), 1)
	g := many.ResourceMetrics[0].ScopeMetrics[0].Metrics[0].GetGauge()
	for range 1000 {
		g.DataPoints = append(g.DataPoints, g.DataPoints[0])
	}
	b, err := proto.Marshal(many)
	if err != nil {
		t.Fatal(err)
	}
	f(413, codes.InvalidArgument, "more than 1000", b, nil)
	answer, text := s.post(t, []byte(`{"resourceMetrics": 7}`), header{"Content-Type": "application/json"})
	if answer.StatusCode != 400 || !strings.Contains(string(text), `"code":3`) {
		t.Errorf("JSON: %s %s", answer.Status, text)
	}
	get, err := http.Get(s.http.URL + ingest.Path)
	if err != nil || get.StatusCode != 405 || get.Header.Get("Allow") != "POST" {
		t.Errorf("GET: %v, %v", get, err)
	}
	f(400, codes.InvalidArgument, "X-Outsight-Batch", good, header{otlp.BatchHeader: "no slash"})
	if answer, text := s.post(t, good, nil); answer.StatusCode != 200 {
		t.Errorf("a good request after all that: %s %q", answer.Status, text)
	}
	stats := s.drained(t)
	want := map[ingest.Refusal]uint64{ingest.Malformed: 7, ingest.Unsupported: 3, ingest.TooLarge: 6}
	for r, n := range stats.Refused {
		if n != want[ingest.Refusal(r)] {
			t.Errorf("%v: %d refused, want %d", ingest.Refusal(r), n, want[ingest.Refusal(r)])
		}
	}
	if stats.InFlight != 0 {
		t.Errorf("%d bytes are still reserved", stats.InFlight)
	}
}

// All frames of a body count: in what one request may be, and in what all requests may hold.
func TestSeveralFrames(t *testing.T) {
	s := start(t, t.TempDir(), setup{Options: ingest.Options{MaxDecompressed: 8 << 20, InFlight: 4 << 20}})
	now := time.Now()
	first, second := gaugeRequest(t, "in_the_first", now, 1), gaugeRequest(t, "in_the_second", now, 2)
	// Frames of less than 256 bytes do not tell their size.
	first = append(first, gaugeRequest(t, strings.Repeat("x", 300), now, 1)...)
	frames := map[string]func([]byte) []byte{
		"gzip":        func(b []byte) []byte { return zipped(t, b) },
		"zstd":        func(b []byte) []byte { return zstandard(t, b, false) },
		"zstd stream": func(b []byte) []byte { return zstandard(t, b, true) },
	}
	skippable := []byte{0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 'a', 'b', 'c'}
	f := func(one, other string, want int, parts ...[]byte) {
		t.Helper()
		var body []byte
		for n, part := range parts {
			kind := one
			if n > 0 {
				kind = other
			}
			if part != nil {
				body = append(body, frames[kind](part)...)
			} else if kind != "gzip" {
				body = append(body, skippable...)
			}
		}
		encoding, _, _ := strings.Cut(one, " ")
		if answer, text := s.post(t, body, header{"Content-Encoding": encoding}); answer.StatusCode != want {
			t.Errorf("%s, then %s: %s %q, want %d", one, other, answer.Status, text, want)
		}
	}
	for _, kinds := range [][2]string{{"gzip", "gzip"}, {"zstd", "zstd"}, {"zstd", "zstd stream"},
		{"zstd stream", "zstd"}} {
		f(kinds[0], kinds[1], http.StatusOK, first, second)
		f(kinds[0], kinds[1], http.StatusOK, []byte{}, first, nil, second, nil)
		f(kinds[0], kinds[1], http.StatusTooManyRequests, first, make([]byte, 5<<20))
		f(kinds[0], kinds[1], http.StatusTooManyRequests, first, make([]byte, 3<<20), make([]byte, 2<<20))
	}
	stats := s.drained(t)
	if got := s.value(t, `in_the_first + on() in_the_second`, now); got != "3" {
		t.Errorf("stored %q", got)
	}
	if stats.Refused[ingest.Busy] != 8 || stats.InFlight != 0 {
		t.Errorf("%d were refused, want 8; %d bytes are still reserved", stats.Refused[ingest.Busy], stats.InFlight)
	}
	room := start(t, t.TempDir(), setup{Options: ingest.Options{MaxDecompressed: 4 << 20}})
	for _, encode := range []string{"gzip", "zstd", "zstd stream"} {
		body := append(frames[encode](first), frames[encode](make([]byte, 5<<20))...)
		encoding, _, _ := strings.Cut(encode, " ")
		if answer, text := room.post(t, body,
			header{"Content-Encoding": encoding}); answer.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("%s: %s %q", encode, answer.Status, text)
		}
	}
}

// A full queue tells senders to come again, takes what fits, and loses nothing of it.
func TestFullQueue(t *testing.T) {
	dir := t.TempDir()
	s := start(t, dir, setup{idle: true, queue: queue.Options{MaxBytes: 1 << 20}})
	at, taken := time.Now().Add(-time.Minute), 0
	for i := 0; ; i++ {
		series := []model.Series{{Name: "g", Kind: model.Gauge, Time: at.Add(time.Duration(i) * time.Millisecond),
			Value:  float64(i),
			Labels: []model.Label{{Name: "host", Value: "h"}, {Name: "x", Value: "y"}}}}
		for n := range 2000 {
			more := series[0]
			more.Labels = []model.Label{{Name: "host", Value: "h"}, {Name: "x", Value: fmt.Sprintf("%x", n*i*7919*104729)}}
			more.Name = "other"
			series = append(series, more)
		}
		answer, text := s.post(t, otlp.Encode(nil, series), nil)
		if answer.StatusCode == http.StatusTooManyRequests {
			if answer.Header.Get("Retry-After") != "1" || !strings.Contains(string(text), "queue is full") {
				t.Errorf("got %v %q", answer.Header, text)
			}
			break
		}
		if answer.StatusCode != 200 {
			t.Fatalf("%s %q", answer.Status, text)
		}
		if taken++; taken > 1000 {
			t.Fatal("the queue is never full")
		}
	}
	stats, err := s.ingest.Stats(t.Context())
	if err != nil || stats.Refused[ingest.Full] != 1 || stats.Queue.Messages != uint64(taken) || stats.Lag <= 0 {
		t.Errorf("got %+v, %v", stats, err)
	}
	s.stop()
	// The next server stores what was taken.
	s = start(t, dir, setup{})
	s.drained(t)
	if got := s.value(t, `count_over_time(g[10m])`, time.Now()); got != fmt.Sprint(taken) {
		t.Errorf("%s samples are stored, want %d", got, taken)
	}
}

type tokens map[string]string

func (a tokens) Check(authorization string) (string, bool) {
	tenant, ok := a[strings.TrimPrefix(authorization, "Bearer ")]
	return tenant, ok
}

func TestTenants(t *testing.T) {
	s := start(t, t.TempDir(), setup{Options: ingest.Options{Tenants: true, TenantNames: []string{"shop", "bank"},
		Auth: tokens{"a": "shop", "b": ""}}})
	now := time.Now()
	f := func(want int, name string, h header) {
		t.Helper()
		m := gaugeMessage(name, now, 1)
		if answer, text := s.post(t, gaugeRequest(t, name, now, 1), h); answer.StatusCode != want {
			t.Errorf("%s: %s %q (%v)", name, answer.Status, text, m)
		}
	}
	f(200, "one", header{"Authorization": "Bearer a"})
	f(200, "one", header{"Authorization": "Bearer b", "X-Scope-OrgID": "bank"})
	f(200, "one", header{"Authorization": "Bearer b"})
	f(403, "one", header{"Authorization": "Bearer a", "X-Outsight-Tenant": "bank"})
	f(401, "one", header{"Authorization": "Bearer c"})
	f(401, "one", nil)
	f(400, "one", header{"Authorization": "Bearer b", "X-Outsight-Tenant": "../etc"})
	stats := s.drained(t)
	for tenant, want := range map[string]string{"shop": "1", "bank": "1", "default": "1", "": ""} {
		if got := s.value(t, fmt.Sprintf("one{tenant=%q}", tenant), now); got != want {
			t.Errorf("tenant %q has %q", tenant, got)
		}
	}
	if stats.Refused[ingest.Unauthorized] != 3 {
		t.Errorf("got %+v", stats)
	}
	// Each tenant's refusals are counted by itself, whoever asks for which over what.
	if answer, _ := s.post(t, gaugeRequest(t, "old", now.Add(-1000*time.Hour), 1), header{"Authorization": "Bearer b",
		"X-Scope-OrgID": "bank"}); answer.StatusCode != 200 {
		t.Errorf("%s", answer.Status)
	}
	conn, err := grpc.NewClient(s.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	call := func(token string) error {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+token, "x-outsight-tenant", "bank")
		return conn.Invoke(ctx, "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
			gaugeMessage("g", now, 1), &colpb.ExportMetricsServiceResponse{})
	}
	if err := call("a"); status.Code(err) != codes.PermissionDenied {
		t.Error(err)
	}
	if err := call("c"); status.Code(err) != codes.Unauthenticated {
		t.Error(err)
	}
	refused := func(tenant string) string {
		var all []string
		for _, r := range s.ingest.Refusals(tenant) {
			all = append(all, fmt.Sprint(r.What, " ", r.Reason, " ", r.Count, " ", r.From))
			if r.Said == "" || r.Last.Before(now) {
				t.Errorf("%s: got %+v", tenant, r)
			}
		}
		return strings.Join(all, ", ")
	}
	for tenant, want := range map[string]string{
		"shop": "requests unauthorized 2 127.0.0.1",
		"bank": "requests unauthorized 1 127.0.0.1, points too_old 1 127.0.0.1", "default": "", "../etc": "",
		"": "requests unauthorized 5 127.0.0.1, requests malformed 1 127.0.0.1, points too_old 1 127.0.0.1",
	} {
		if got := refused(tenant); got != want {
			t.Errorf("tenant %q: got %q, want %q", tenant, got, want)
		}
	}
}

// The label of a tenant is what the server says, whatever the data has.
func TestTenantIsNotTheSenders(t *testing.T) {
	s := start(t, t.TempDir(), setup{Options: ingest.Options{Tenants: true}})
	now := time.Now()
	series := []model.Series{{Name: "g", Kind: model.Gauge, Time: now, Value: 1,
		Labels: []model.Label{{Name: "host", Value: "h"}, {Name: "tenant", Value: "victim"}}}}
	if answer, text := s.post(t, otlp.Encode(nil, series), header{otlp.TenantHeader: "mine"}); answer.StatusCode != 200 {
		t.Fatalf("%s %q", answer.Status, text)
	}
	s.drained(t)
	if got := s.value(t, `count(g{tenant="mine"}) unless g{tenant="victim"}`, now); got != "1" {
		t.Errorf("got %q", got)
	}
}

func TestGRPC(t *testing.T) {
	s := start(t, t.TempDir(), setup{Options: ingest.Options{MaxDecompressed: 1 << 20, Tenants: true,
		Auth: tokens{"a": ""}}})
	conn, err := grpc.NewClient(s.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := colpb.NewMetricsServiceClient(conn)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer a", "x-scope-orgid", "bank")
	now := time.Now()
	for _, o := range [][]grpc.CallOption{nil, {grpc.UseCompressor("gzip")}, {grpc.UseCompressor("zstd")}} {
		m := gaugeMessage("over_grpc", now, 5)
		m.ResourceMetrics = append(m.ResourceMetrics, gaugeMessage("late", time.Unix(1, 0), 1).ResourceMetrics...)
		answer, err := client.Export(ctx, m, o...)
		if err != nil || answer.GetPartialSuccess().GetRejectedDataPoints() != 1 {
			t.Errorf("%v: %v, %v", o, answer, err)
		}
	}
	stats := s.drained(t)
	if got := s.value(t, `over_grpc{tenant="bank"}`, now); got != "5" || stats.GRPC != 3 || stats.Duplicates != 2 {
		t.Errorf("stored %q, %+v", got, stats)
	}
	fails := func(want codes.Code, ctx context.Context, m *colpb.ExportMetricsServiceRequest) {
		t.Helper()
		if _, err := client.Export(ctx, m, grpc.UseCompressor("gzip")); status.Code(err) != want {
			t.Errorf("got %v, want %v", err, want)
		}
	}
	fails(codes.Unauthenticated, t.Context(), gaugeMessage("g", now, 1))
	// A bomb: it is 2 MiB and travels as 2 KiB.
	fails(codes.ResourceExhausted, ctx, gaugeMessage(strings.Repeat("g", 2<<20), now, 1))
	if _, err := client.Export(ctx, gaugeMessage("still_there", now, 1)); err != nil {
		t.Error(err)
	}
}

// While all memory for requests is in use, gRPC senders are asked to retry later.
func TestGRPCBusy(t *testing.T) {
	s := start(t, t.TempDir(), setup{Options: ingest.Options{InFlight: 10}})
	conn, err := grpc.NewClient(s.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, err = colpb.NewMetricsServiceClient(conn).Export(t.Context(), gaugeMessage("g", time.Now(), 1))
	st := status.Convert(err)
	if st.Code() != codes.ResourceExhausted || len(st.Details()) != 1 ||
		st.Details()[0].(*errdetails.RetryInfo).RetryDelay.AsDuration() != time.Second {
		t.Errorf("got %v, %v", err, st.Details())
	}
	if answer, _ := s.post(t, gaugeRequest(t, "g", time.Now(), 1), nil); answer.StatusCode != 429 ||
		answer.Header.Get("Retry-After") != "1" {
		t.Errorf("HTTP: %s", answer.Status)
	}
}

// A message that cannot be read becomes a dead letter, once, and the messages after it are stored.
func TestPoison(t *testing.T) {
	s := start(t, t.TempDir(), setup{})
	for i, m := range []queue.Message{
		{ID: "1", Data: []byte("garbage"), Header: map[string]string{"Outsight-Received": "1"}},
		{ID: "2", Data: zstandard(t, []byte("garbage"), false), Header: map[string]string{"Outsight-Received": "1"}},
		{ID: "3", Data: zstandard(t, nil, false)},
	} {
		if _, err := s.queue.Publish(t.Context(), m); err != nil {
			t.Fatal(i, err)
		}
	}
	now := time.Now()
	if answer, _ := s.post(t, gaugeRequest(t, "after", now, 3), nil); answer.StatusCode != 200 {
		t.Fatal(answer.Status)
	}
	stats := s.drained(t)
	if got := s.value(t, "after", now); got != "3" || stats.Poison != 3 || stats.Queue.DeadLetters != 3 ||
		stats.Queue.DeadLettered != 3 {
		t.Errorf("stored %q, %+v", got, stats)
	}
}

// A million values of a label fill the bound of series, which is counted, and harm nobody else's series.
func TestMillionLabelValues(t *testing.T) {
	s := start(t, t.TempDir(), setup{store: store.Options{MaxSeries: 1000}, queue: queue.Options{MaxBytes: 128 << 20}})
	now := time.Now()
	if answer, _ := s.post(t, gaugeRequest(t, "before", now, 3), nil); answer.StatusCode != 200 {
		t.Fatal(answer.Status)
	}
	s.drained(t)
	const requests, each = 50, 20_000
	for r := range requests {
		series := make([]model.Series, each)
		for i := range series {
			series[i] = model.Series{Name: "many", Kind: model.Gauge, Time: now, Value: 1,
				Labels: []model.Label{{Name: "host", Value: "h"}, {Name: "id", Value: fmt.Sprint(r*each + i)}}}
		}
		if answer, text := s.post(t, zstandard(t, otlp.Encode(nil, series), false),
			header{"Content-Encoding": "zstd"}); answer.StatusCode != 200 {
			t.Fatalf("%s %q", answer.Status, text)
		}
	}
	if answer, _ := s.post(t, gaugeRequest(t, "before", now.Add(time.Second), 4), nil); answer.StatusCode != 200 {
		t.Fatal(answer.Status)
	}
	s.drained(t)
	stats := s.store.Stats()
	// Each of them was reported to its sender.
	if counts, err := s.ingest.Stats(t.Context()); stats.Series != 1000 || stats.NoRoom > each ||
		counts.Rejected[ingest.Refused] != 0 || counts.Rejected[ingest.NoRoom] != requests*each-999 {
		t.Errorf("got %+v, %+v, %v", stats, counts, err)
	}
	if got := s.value(t, "before", now.Add(time.Second)); got != "4" {
		t.Errorf("another series has %q", got)
	}
}

// A sender whose clock is an hour ahead is refused and told so: its samples would make everybody else's too old.
func TestClockAnHourOff(t *testing.T) {
	s := start(t, t.TempDir(), setup{})
	now := time.Now()
	answer, text := s.post(t, gaugeRequest(t, "ahead", now.Add(time.Hour), 1), nil)
	var m colpb.ExportMetricsServiceResponse
	if err := proto.Unmarshal(text, &m); err != nil || answer.StatusCode != 200 ||
		m.PartialSuccess.GetRejectedDataPoints() != 1 ||
		!strings.Contains(m.PartialSuccess.GetErrorMessage(), "ahead of this server's clock") {
		t.Errorf("%s %v, %v", answer.Status, &m, err)
	}
	for _, at := range []time.Time{now, now.Add(-time.Hour)} {
		if answer, text := s.post(t, gaugeRequest(t, "fine", at, 1), nil); answer.StatusCode != 200 || len(text) > 0 {
			t.Errorf("%v: %s %q", at, answer.Status, text)
		}
	}
	s.drained(t)
	if got := s.value(t, "count_over_time(fine[2h])", now); got != "2" {
		t.Errorf("stored %q samples, want 2", got)
	}
	if got := s.value(t, "ahead", now.Add(time.Hour)); got != "" {
		t.Errorf("stored %q", got)
	}
}

// What of an agent's series the next batch lacks has ended, of anybody else's not.
func TestEnds(t *testing.T) {
	s := start(t, t.TempDir(), setup{})
	now := time.Now().Truncate(time.Second)
	at := func(i int, names ...string) []byte {
		var series []model.Series
		for _, name := range names {
			series = append(series, model.Series{Name: name, Kind: model.Gauge,
				Time: now.Add(time.Duration(i) * time.Second), Value: 1,
				Labels: []model.Label{{Name: "host", Value: "h"}}})
		}
		return otlp.Encode(nil, series)
	}
	send := func(body []byte, h header) {
		t.Helper()
		if answer, text := s.post(t, body, h); answer.StatusCode != 200 {
			t.Fatalf("%s %q", answer.Status, text)
		}
		s.drained(t)
	}
	send(at(0, "kept", "gone"), header{otlp.BatchHeader: "life/000000000001"})
	send(at(0, "foreign"), nil)
	send(at(1, "kept"), header{otlp.BatchHeader: "life/000000000002"})
	send(at(1, "foreign2"), nil)
	later := now.Add(2 * time.Second)
	for name, want := range map[string]string{"kept": "1", "gone": "", "foreign": "1", "foreign2": "1"} {
		if got := s.value(t, name, later); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

// What was taken keeps the names that it got then, though it is stored by a process that knows others.
func TestNamesGoWithTheMessage(t *testing.T) {
	naming := func(pod string) ingest.Options {
		return ingest.Options{Name: func(series []model.Series) []model.Series {
			named := slices.Clone(series)
			for i := range named {
				if named[i].Name != "unnamed" && pod != "" {
					named[i].Labels = append(slices.Clone(named[i].Labels), model.Label{Name: "pod", Value: pod})
				}
				if named[i].Name == "confidence" {
					named[i].Value = 0.5
				}
			}
			return named
		}}
	}
	now := time.Now().Truncate(time.Second)
	batch := func(i int) []byte {
		var series []model.Series
		for _, name := range []string{"first", "unnamed", "confidence", "last"} {
			series = append(series, model.Series{Name: name, Kind: model.Gauge,
				Time: now.Add(time.Duration(i) * time.Second), Value: 1,
				Labels: []model.Label{{Name: "host", Value: "h"}}})
		}
		return otlp.Encode(nil, series)
	}
	send := func(s *server, i int) {
		t.Helper()
		if answer, text := s.post(t, batch(i),
			header{otlp.BatchHeader: fmt.Sprintf("life/%012d", i)}); answer.StatusCode != 200 {
			t.Fatalf("%s %q", answer.Status, text)
		}
	}
	dir := t.TempDir()
	// One that nobody takes out of the queue, one that came before there were names, and again when there were.
	s := start(t, dir, setup{idle: true, Options: naming("old")})
	send(s, 1)
	s.stop()
	s = start(t, dir, setup{idle: true, Options: naming("")})
	send(s, 2)
	s.stop()
	s = start(t, dir, setup{idle: true, Options: naming("new")})
	send(s, 2)
	send(s, 3)
	if stats, err := s.ingest.Stats(t.Context()); err != nil || stats.Duplicates != 1 {
		t.Errorf("got %+v, %v", stats, err)
	}
	s.stop()
	s = start(t, dir, setup{Options: naming("newer")})
	stats := s.drained(t)
	for query, want := range map[string]string{
		`count_over_time(first{pod="old"}[1m])`: "1", `count_over_time(first{pod=""}[1m])`: "1",
		`count_over_time(first{pod="new"}[1m])`: "1",
		`sum(count_over_time(last[1m]))`:        "3", `count_over_time(unnamed[1m])`: "3",
		`sum(count_over_time(confidence[1m]))`: "3",
		`sum(sum_over_time(confidence[1m]))`:   "1.5",
	} {
		if got := s.value(t, query, now.Add(4*time.Second)); got != want {
			t.Errorf("%s is %q, want %q", query, got, want)
		}
	}
	if stats.Poison != 0 {
		t.Errorf("got %+v", stats)
	}
}

// An agent's batch waits for names; what has none to get does not.
func TestBatchesWaitForNames(t *testing.T) {
	named := make(chan struct{})
	s := start(t, t.TempDir(), setup{Options: ingest.Options{Named: named,
		Name: func(series []model.Series) []model.Series { return series }}})
	now := time.Now()
	body := otlp.Encode(nil, []model.Series{{Name: "agents", Kind: model.Gauge, Time: now, Value: 1,
		Labels: []model.Label{{Name: "host", Value: "h"}}}})
	answered := make(chan int)
	go func() {
		answer, _ := s.post(t, body, header{otlp.BatchHeader: "life/000000000001"})
		answered <- answer.StatusCode
	}()
	if answer, text := s.post(t, gaugeRequest(t, "foreign", now, 1), nil); answer.StatusCode != 200 {
		t.Fatalf("%s %q", answer.Status, text)
	}
	s.drained(t)
	if got := s.value(t, "foreign", now) + s.value(t, "agents", now); got != "1" {
		t.Errorf("stored %q", got)
	}
	select {
	case code := <-answered:
		t.Fatalf("answered with %d before there were names", code)
	default:
	}
	close(named)
	if code := <-answered; code != http.StatusOK {
		t.Errorf("answered with %d", code)
	}
	s.drained(t)
	if got := s.value(t, "agents", now); got != "1" {
		t.Errorf("stored %q", got)
	}
}

// Names that come after a series' first sample make a series of their own, though the sender's batch is the same.
func TestNamesThatComeLater(t *testing.T) {
	var known atomic.Bool
	name := func(series []model.Series) []model.Series {
		named := slices.Clone(series)
		for i := range named {
			if known.Load() {
				named[i].Labels = append(slices.Clone(named[i].Labels), model.Label{Name: "pod", Value: "p"})
			}
		}
		return named
	}
	s := start(t, t.TempDir(), setup{Options: ingest.Options{Name: name}})
	now := time.Now().Truncate(time.Second)
	for i := range 4 {
		known.Store(i >= 2)
		body := otlp.Encode(nil, []model.Series{{Name: "c", Kind: model.Gauge,
			Time: now.Add(time.Duration(i) * time.Second), Value: float64(i),
			Labels: []model.Label{{Name: "host", Value: "h"}}}})
		if answer, text := s.post(t, body,
			header{otlp.BatchHeader: fmt.Sprintf("life/%012d", i+1)}); answer.StatusCode != 200 {
			t.Fatalf("%s %q", answer.Status, text)
		}
		s.drained(t)
	}
	for query, want := range map[string]string{`count_over_time(c{pod=""}[1m])`: "2",
		`count_over_time(c{pod="p"}[1m])`: "2", `c{pod=""}`: "", `c{pod="p"}`: "3"} {
		if got := s.value(t, query, now.Add(3*time.Second)); got != want {
			t.Errorf("%s is %q, want %q", query, got, want)
		}
	}
}
