// Package api serves Outsight over HTTP: the page, the JSON that the page reads, the Prometheus HTTP API and health.
// Answers are computed of frames, so that each of them exists for any past window.
package api

import (
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"outsight/internal/access"
	"outsight/internal/framelog"
	"outsight/internal/graph"
	"outsight/internal/model"
	"outsight/internal/recorder"
	"outsight/internal/store"
	"outsight/web"
)

// DefaultAddress is where to listen by default: on loopback alone, because page and API need no credentials there.
const DefaultAddress = "127.0.0.1:8470"

// PromQL says of what series are made of frames.
type PromQL string

// The kinds. Where there are no series, answers have no queries.
const (
	PromQLFull       PromQL = "full"
	PromQLContainers PromQL = "containers" // of containers and hosts, and not of edges and endpoints
	PromQLOff        PromQL = "off"
)

// Options of New. The zero value works.
type Options struct {
	// Log has the frames that everything is computed of. Without one, what needs it answers that there is none.
	Log framelog.Log
	// Names know what Kubernetes calls addresses; nil where there is no cluster.
	Names graph.Names
	// Prometheus answers the paths under /api/v1/; nil for none.
	Prometheus http.Handler
	// PromQL says which series it has; empty for PromQLFull where there is Prometheus, else PromQLOff.
	PromQL PromQL
	// Auth checks tokens; nil allows everybody.
	Auth *access.Authenticator
	// Hosts knows the names of this server, and refuses what web pages of others send; nil for the default.
	Hosts *access.HostPolicy
	// Metrics answers /metrics; nil for none.
	Metrics http.Handler
	// Flight is what the flight recorder of an agent in the same process has kept of the last while;
	// nil, or an answer of nil, where there is none.
	Flight func(last time.Duration) *recorder.FlightData
	// Anomalies are those whose recordings are kept longer, Anomaly is the recording of one of them; nil, or returning
	// nil, if there are none. AnomalyFiles is the directory with a file of each, empty if they are in memory alone.
	Anomalies    func() *recorder.Anomalies
	Anomaly      func(number uint64) *recorder.FlightData
	AnomalyFiles string
	// Bounds are the limits of this process that no agent reports, for the status; nil for none.
	Bounds func(context.Context) []model.Drop
	// Refusals are what senders were refused: everybody's for "", else those of one tenant; nil for none.
	Refusals func(tenant string) []model.Refusal
	// Quotas are what tenants have of what they may have: everybody's for "", else those of one tenant; nil for none.
	Quotas func(tenant string) []model.Quota
	// Tenant is whose view this is, if each tenant has one. Its status has the refusals of this tenant alone, and none
	// of Bounds, which would show how much others send.
	Tenant string
	// FramesOf is whose frames are read where Tenant is empty: who names no tenant may read the series of all, but frames
	// are kept for each tenant apart.
	FramesOf string
	// HostsWith are the hosts of a tenant that have an address, or a container with it, now; nil where that is not known.
	HostsWith func(tenant string, address netip.Addr) []string
	// HostLabels are labels of hosts by their names, as Kubernetes' nodes have them now, for placements; nil for none.
	HostLabels func() map[string]map[string]string
	// Features are those of this process that no agent reports, for the status; nil for none.
	Features func() []model.Feature
	// Ready is why the server cannot answer yet, or nil.
	Ready func() error
	// Sources are where the numbers come from, for the status ("agent in this process").
	Sources []string
	Version string
	// MaxEdges bounds the edges that an answer shows; 0 stands for 1000. What is computed from a graph is computed from
	// all of its edges.
	MaxEdges int
	// Busy has a slot for each concurrent computation of a graph or of a stretch of the flight recorder, for all
	// handlers that share it; nil for NewSlots of this handler alone.
	Busy *store.Scheduler
	// Hold reserves memory for an answer of a tenant until release is called; nil where answers are not bounded.
	Hold func(tenant string, bytes int64) (release func(), err error)
	// TenantQueries is what the queries of each tenant use, for the status; nil for none.
	TenantQueries func() []store.TenantQueries
	// Timeout bounds one answer of the JSON API; 0 stands for 20 s.
	Timeout time.Duration
	// Now is the clock; nil for time.Now.
	Now    func() time.Time
	Logger *slog.Logger
}

// maxRunningGraphs is how many graphs are computed at a time; one more may be of a tenant that has none. graphsWaiting
// bounds those that wait.
const maxRunningGraphs, maxWaitingGraphs = 2, 256

// NewSlots returns slots for the computation of graphs, which tenants share.
func NewSlots() *store.Scheduler {
	return store.NewScheduler(store.SchedulerOptions{Slots: maxRunningGraphs, SpareSlots: 1, Waiting: maxWaitingGraphs,
		Share: func(string) float64 { return 0.5 }})
}

type server struct {
	Options
	pace      pace
	baselines baselines
}

// New is the handler of everything that Outsight serves.
func New(options Options) http.Handler {
	s := newServer(options)
	return s.protect(s.routes())
}

// newServer has the defaults of the options that are not set.
func newServer(options Options) *server {
	s := &server{Options: options, pace: usualPace}
	if s.Busy == nil {
		s.Busy = NewSlots()
	}
	if s.MaxEdges == 0 {
		s.MaxEdges = 1000
	}
	if s.PromQL == "" {
		s.PromQL = PromQLOff
		if s.Prometheus != nil {
			s.PromQL = PromQLFull
		}
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
	return s
}

// routes are all routes, with the roles that they need.
func (s *server) routes() *access.Mux {
	mux := access.NewMux(s.Auth, s.Hosts)
	mux.HandleFunc(access.Read, "GET /api/outsight/graph", s.json(s.graph))
	mux.HandleFunc(access.Read, "GET /api/outsight/baseline", s.json(s.baseline))
	mux.HandleFunc(access.Read, "GET /api/outsight/extent", s.json(s.extent))
	mux.HandleFunc(access.Read, "GET /api/outsight/picture", s.json(s.picture))
	mux.HandleFunc(access.Read, "GET /api/outsight/cypher", s.json(s.cypherMap))
	mux.HandleFunc(access.Read, "GET /api/outsight/path", s.json(s.path))
	mux.HandleFunc(access.Read, "GET /api/outsight/whatif", s.json(s.whatif))
	mux.HandleFunc(access.Read, "GET /api/outsight/runout", s.json(s.runOut))
	mux.HandleFunc(access.Read, "GET /api/outsight/contention", s.json(s.contention))
	mux.HandleFunc(access.Read, "GET /api/outsight/services", s.json(s.services))
	mux.HandleFunc(access.Read, "GET /api/outsight/hosts", s.json(s.hostList))
	mux.HandleFunc(access.Read, "GET /api/outsight/probes", s.json(s.probes))
	mux.HandleFunc(access.Record, "GET /api/outsight/recordings", s.json(s.recordings))
	mux.HandleFunc(access.Read, "GET /api/outsight/changes", s.json(s.changes))
	mux.HandleFunc(access.Read, "GET /api/outsight/events", s.json(s.events))
	mux.HandleFunc(access.Read, "GET /api/outsight/matrix", s.json(s.matrix))
	mux.HandleFunc(access.Read, "GET /api/outsight/place", s.json(s.place))
	mux.HandleFunc(access.Read, "POST /api/outsight/place", s.json(s.place))
	mux.HandleFunc(access.Read, "GET /api/outsight/containers", s.json(s.containers))
	mux.HandleFunc(access.Read, "GET /api/outsight/chart", s.json(s.chart))
	mux.HandleFunc(access.Read, "GET /api/outsight/lines", s.json(s.lines))
	mux.HandleFunc(access.Read, "GET /api/outsight/labelled", s.json(s.labelled))
	mux.HandleFunc(access.Record, "GET /api/outsight/flight", s.json(s.flight))
	mux.HandleFunc(access.Read, "GET /api/outsight/status", s.json(s.status))
	missing := func(w http.ResponseWriter, r *http.Request) {
		writeError(w, http.StatusNotFound, "there is no %s %s", r.Method, r.URL.Path)
	}
	mux.HandleFunc(access.Read, "/api", missing)
	mux.HandleFunc(access.Read, "/api/", missing)
	if s.Prometheus != nil {
		mux.Handle(access.Read, "/api/v1/", s.Prometheus)
	}
	// With tenants, access.ByTenant serves them to the operator alone.
	metrics := access.Read | access.Administer
	mux.HandleFunc(metrics, "/metrics", missing)
	if s.Metrics != nil {
		mux.Handle(metrics, "GET /metrics", s.Metrics)
	}
	mux.HandleFunc(access.Public, "GET /healthz",
		func(w http.ResponseWriter, _ *http.Request) { writeText(w, http.StatusOK, "ok\n") })
	mux.HandleFunc(access.Public, "GET /readyz", s.readyz)
	mux.Handle(access.Public, "/", embeddedPage())
	return mux
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
