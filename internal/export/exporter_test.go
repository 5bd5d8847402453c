package export

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	colpb "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"

	"outsight/internal/model"
	"outsight/internal/otlp"
)

// receiver is a server that answers with the given statuses and records the requests.
type receiver struct {
	mu      sync.Mutex
	answers []int
	retry   string
	body    []byte
	names   []string
	heads   []http.Header
	values  []float64
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, in *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	raw, _ := io.ReadAll(in.Body)
	status := http.StatusOK
	if len(r.answers) > 0 {
		status, r.answers = r.answers[0], r.answers[1:]
	}
	if r.retry != "" {
		w.Header().Set("Retry-After", r.retry)
	}
	r.names = append(r.names, in.Header.Get(otlp.BatchHeader))
	r.heads = append(r.heads, in.Header)
	d, _ := zstd.NewReader(nil)
	plain, _ := d.DecodeAll(raw, nil)
	var m colpb.ExportMetricsServiceRequest
	if proto.Unmarshal(plain, &m) == nil && status == http.StatusOK {
		r.values = append(r.values, m.ResourceMetrics[0].ScopeMetrics[0].Metrics[0].GetGauge().DataPoints[0].GetAsDouble())
	}
	w.WriteHeader(status)
	w.Write(r.body)
}

func (r *receiver) seen() (names []string, values []float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.names...), append([]float64(nil), r.values...)
}

func one(v float64) []model.Series {
	return []model.Series{{Name: "g", Kind: model.Gauge, Time: time.UnixMilli(1_790_000_000_000), Value: v,
		Labels: []model.Label{{Name: "host", Value: "h"}}}}
}

func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

func run(t *testing.T, o Options) *Exporter {
	t.Helper()
	if o.Spool == "" {
		o.Spool = t.TempDir()
	}
	o.MaxBackoff = 20 * time.Millisecond
	e, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); e.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended; e.Close() })
	return e
}

func TestSends(t *testing.T) {
	r := &receiver{}
	server := httptest.NewServer(r)
	defer server.Close()
	e := run(t, Options{Server: server.URL, Tenant: "shop", Token: "secret"})
	for v := range 3 {
		if err := e.Put(one(float64(v))); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "three batches", func() bool { return e.Stats().Spool.Batches == 0 })
	names, values := r.seen()
	if len(values) != 3 || values[0] != 0 || values[2] != 2 {
		t.Errorf("got %v", values)
	}
	life, number, _ := strings.Cut(names[2], "/")
	if len(life) != 16 || number != "000000000003" || names[0] == names[1] {
		t.Errorf("names %q", names)
	}
	h := r.heads[0]
	if h.Get("Authorization") != "Bearer secret" || h.Get(otlp.TenantHeader) != "shop" ||
		h.Get("Content-Encoding") != "zstd" || h.Get("Content-Type") != "application/x-protobuf" {
		t.Errorf("headers %v", h)
	}
	if s := e.Stats(); s.Batches != 3 || s.Samples != 3 || s.Sent != 3 || s.Retries != 0 {
		t.Errorf("got %+v", s)
	}
}

// A server that is busy, broken or not to be talked to gets the same batch again, under the same name, and
// those after it in order.
func TestRetries(t *testing.T) {
	r := &receiver{answers: []int{429, 503, 500, 404, 401, 302}, retry: "1"}
	server := httptest.NewServer(r)
	defer server.Close()
	e := run(t, Options{Server: server.URL})
	e.Put(one(1))
	e.Put(one(2))
	eventually(t, "both batches", func() bool { return e.Stats().Spool.Batches == 0 })
	names, values := r.seen()
	if len(values) != 2 || values[0] != 1 || values[1] != 2 || len(names) != 8 || names[0] != names[6] ||
		names[6] == names[7] {
		t.Errorf("got %v under %q", values, names)
	}
	if s := e.Stats(); s.Retries != 6 || s.Sent != 2 || s.Refused != 0 {
		t.Errorf("got %+v", s)
	}
}

// A batch that the server refuses for good does not stop later ones; it is counted and logged.
func TestRefused(t *testing.T) {
	body, err := proto.Marshal(&statuspb.Status{Message: "so many points"})
	if err != nil {
		t.Fatal(err)
	}
	r := &receiver{answers: []int{413}, body: body}
	server := httptest.NewServer(r)
	defer server.Close()
	e := run(t, Options{Server: server.URL})
	e.Put(one(1))
	eventually(t, "the refusal", func() bool { return e.Error() != nil })
	if got := e.Error().Error(); !strings.Contains(got, "413") || !strings.Contains(got, "so many points") {
		t.Errorf("got %q", got)
	}
	if f := e.Features(); f[0].State != model.FeatureAbsent || !strings.Contains(f[0].Reason, "so many points") {
		t.Errorf("got %+v", f)
	}
	r.mu.Lock()
	r.body = nil
	r.mu.Unlock()
	e.Put(one(2))
	eventually(t, "the next batch", func() bool { return e.Stats().Sent == 1 })
	if s := e.Stats(); s.Refused != 1 || e.Error() != nil || e.Features()[0].State != model.FeatureWorks {
		t.Errorf("got %+v, %v", s, e.Error())
	}
}

func TestPartial(t *testing.T) {
	body, err := proto.Marshal(&colpb.ExportMetricsServiceResponse{PartialSuccess: &colpb.ExportMetricsPartialSuccess{RejectedDataPoints: 7, ErrorMessage: "why"}})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(&receiver{body: body})
	defer server.Close()
	e := run(t, Options{Server: server.URL})
	e.Put(one(1))
	eventually(t, "the batch", func() bool { return e.Stats().Sent == 1 })
	for _, d := range e.Drops() {
		if d.Name == "export/rejected-samples" && d.Count != 7 {
			t.Errorf("got %+v", d)
		}
	}
}

// While nobody is there, batches wait; they are there for the next life of the agent.
func TestServerAway(t *testing.T) {
	r := &receiver{}
	server := httptest.NewServer(r)
	address := server.URL
	server.Close()
	dir := t.TempDir()
	e := run(t, Options{Server: address, Spool: dir})
	for v := range 10 {
		e.Put(one(float64(v)))
	}
	eventually(t, "an error", func() bool { return e.Error() != nil && e.Stats().Retries > 1 })
	if s := e.Stats(); s.Spool.Batches != 10 || s.Sent != 0 {
		t.Errorf("got %+v", s)
	}
	if _, err := Open(Options{Server: address, Spool: dir}); !errors.Is(err, ErrInUse) {
		t.Errorf("a second agent: %v", err)
	}
}

func TestServerURL(t *testing.T) {
	f := func(in, want string, otlp bool) {
		t.Helper()
		e, err := Open(Options{Server: in, Spool: t.TempDir(), OTLP: otlp})
		if (want == "") != errors.Is(err, ErrServer) || want != "" && (err != nil || e.url != want) {
			t.Errorf("%q: got %+v, %v", in, e, err)
		}
		if err == nil {
			e.Close()
		}
	}
	f("http://h:4318", "http://h:4318/v1/frames", false)
	f("https://h/", "https://h/v1/frames", false)
	f("https://h/", "https://h/v1/metrics", true)
	f("https://h/outsight/frames", "https://h/outsight/frames", false)
	f("https://h/otlp/v1/metrics", "https://h/otlp/v1/metrics", false) // as before there were frames
	f("h:4318", "", false)
	f("grpc://h:4317", "", false)
	f("http://", "", false)
	f("://", "", false)
}
