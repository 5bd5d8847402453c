// Package api serves Outsight over HTTP: the page, the JSON that the page reads, the Prometheus
// HTTP API and health. Answers come from a store by queries, so that each of them can be asked
// for any past window.
package api

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"outsight/internal/access"
	"outsight/internal/model"
	"outsight/internal/recorder"
	"outsight/internal/store"
	"outsight/web"
)

// DefaultAddress is where to listen unless told otherwise: on loopback alone, because the page
// and the API ask nobody who they are.
const DefaultAddress = "127.0.0.1:8470"

// Querier answers PromQL, and tells what series were at some times.
type Querier interface {
	// Instant is the value of a query at a time: one point per series, or the samples of a range.
	Instant(ctx context.Context, query string, at time.Time) ([]model.QueryResult, error)
	// Range is the values of a query at from, from+step and so on up to and with to.
	Range(ctx context.Context, query string, from, to time.Time, step time.Duration) ([]model.QueryResult, error)
	// Last is the newest sample of each of the series at each of the times.
	Last(context.Context, store.Moments) (*store.Values, error)
	// Kept is a moment no more than most before t at which Last takes the least time; false where there is none.
	Kept(t time.Time, most time.Duration) (time.Time, bool)
}

// Options of New. The zero value works.
type Options struct {
	// Prometheus answers the paths under /api/v1/; nil for none.
	Prometheus http.Handler
	// Auth lets requests in; nil for everybody's.
	Auth *access.Authenticator
	// Metrics answers /metrics; nil for none.
	Metrics http.Handler
	// Snapshot is the newest snapshot of an agent in the same process, or nil. Without it the
	// status is what the store knows.
	Snapshot func() *model.Snapshot
	// Flight is what the flight recorder of an agent in the same process has kept of the last while;
	// nil, or an answer of nil, where there is none.
	Flight func(last time.Duration) *recorder.FlightData
	// Anomalies are those that the flight recorder has kept longer than the rest, Anomaly what is kept
	// around one of them; nil, or answers of nil, where there are none. AnomalyFiles is the directory
	// with a file of each, empty where they are in memory alone.
	Anomalies    func() *recorder.Anomalies
	Anomaly      func(number uint64) *recorder.FlightData
	AnomalyFiles string
	// Bounds are those of this process that no agent tells of, for the status; nil for none.
	Bounds func(context.Context) []model.Drop
	// Refusals are what senders were refused: everybody's for "", else those of one tenant; nil for none.
	Refusals func(tenant string) []model.Refusal
	// Tenant is whose view this is, where each tenant has one. Its status has the refusals of this tenant alone, and none of
	// Bounds, which tell how much others send.
	Tenant string
	// Ready is why the server cannot answer yet, or nil.
	Ready func() error
	// Sources names what the numbers come from, for the status ("agent in this process").
	Sources []string
	Version string
	// Hosts are names, besides "localhost", under which a server on loopback may be addressed.
	// Other names are refused there: a hostile page could make its own name point to loopback.
	Hosts []string
	// MaxEdges bounds the edges that an answer shows; 0 stands for 1000. What is computed from a graph is computed from all of its edges.
	MaxEdges int
	// RelativeError is that of the querier's histograms, where it is greater than model.RelativeError.
	RelativeError float64
	// Busy has room for as many graphs, or stretches of the flight recorder, as are computed at a time, by all handlers that
	// share it; nil for GraphsAtOnce of this one alone.
	Busy chan struct{}
	// Timeout bounds one answer of the JSON API; 0 stands for 20 s.
	Timeout time.Duration
	// Now is the clock; nil for time.Now.
	Now    func() time.Time
	Logger *slog.Logger
}

// GraphsAtOnce is how many graphs are computed at a time.
const GraphsAtOnce = 2

type server struct {
	Options
	querier   Querier
	extents   extents
	baselines baselines
}

// New is the handler of everything that Outsight serves.
func New(querier Querier, options Options) http.Handler {
	s := &server{Options: options, querier: querier}
	if s.Busy == nil {
		s.Busy = make(chan struct{}, GraphsAtOnce)
	}
	if s.MaxEdges == 0 {
		s.MaxEdges = 1000
	}
	if s.Timeout == 0 {
		s.Timeout = 20 * time.Second
	}
	if s.Now == nil {
		s.Now = time.Now
	}
	if s.Logger == nil {
		s.Logger = slog.New(slog.DiscardHandler)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/outsight/graph", s.json(s.graph))
	mux.HandleFunc("GET /api/outsight/baseline", s.json(s.baseline))
	mux.HandleFunc("GET /api/outsight/extent", s.json(s.extent))
	mux.HandleFunc("GET /api/outsight/picture", s.json(s.picture))
	mux.HandleFunc("GET /api/outsight/path", s.json(s.path))
	mux.HandleFunc("GET /api/outsight/contention", s.json(s.contention))
	mux.HandleFunc("GET /api/outsight/services", s.json(s.services))
	mux.HandleFunc("GET /api/outsight/hosts", s.json(s.hostList))
	mux.HandleFunc("GET /api/outsight/recordings", s.json(s.recordings))
	mux.HandleFunc("GET /api/outsight/changes", s.json(s.changes))
	mux.HandleFunc("GET /api/outsight/heatmap", s.json(s.heatMap))
	mux.HandleFunc("GET /api/outsight/containers", s.json(s.containers))
	mux.HandleFunc("GET /api/outsight/flight", s.json(s.flight))
	mux.HandleFunc("GET /api/outsight/status", s.json(s.status))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { writeText(w, http.StatusOK, "ok\n") })
	mux.HandleFunc("GET /readyz", s.readyz)
	mux.HandleFunc("/api/", func(w http.ResponseWriter, r *http.Request) {
		writeError(w, http.StatusNotFound, "there is no %s %s", r.Method, r.URL.Path)
	})
	if s.Prometheus != nil {
		mux.Handle("/api/v1/", s.Prometheus)
	}
	if s.Metrics != nil {
		mux.Handle("GET /metrics", s.Metrics)
	}
	mux.Handle("/", embeddedPage())
	return s.protect(s.Auth.Require(mux))
}

// embeddedPage is made once, however many tenants look at it.
var embeddedPage = sync.OnceValue(func() http.Handler { return newPage(web.Files()) })

func (s *server) readyz(w http.ResponseWriter, _ *http.Request) {
	if s.Ready != nil {
		if err := s.Ready(); err != nil {
			writeText(w, http.StatusServiceUnavailable, "not ready: "+err.Error()+"\n")
			return
		}
	}
	writeText(w, http.StatusOK, "ready\n")
}

func writeText(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text)) // who asked has gone; nobody to tell
}
