package graph

import (
	"slices"
	"testing"

	"outsight/internal/model"
)

func TestServicesAreThePapersTable(t *testing.T) {
	g := office()
	g.CoveredSeconds = 10
	a, list := g.Services(map[string]float64{"vm": 4})
	if a.Bottleneck != "app" || !near(*a.SaturationRate, 200) {
		t.Errorf("the analysis beside it says %v at %v", a.Bottleneck, a.SaturationRate)
	}
	var names []string
	byName := map[string]Service{}
	for _, s := range list {
		names = append(names, s.Name)
		byName[s.Name] = s
	}
	// load and worker are used up by a third and a fifth, and no request comes to them.
	if want := []string{"app", "CPUs of vm", "load", "worker", "db", "host", "cache", "web"}; !slices.Equal(names, want) {
		t.Fatalf("got %v, want %v", names, want)
	}
	app := byName["app"]
	if !app.Reached || !near(app.Utilisation, 0.5) || !near(*app.Demand, 0.005) || !near(*app.ArrivalRate, 100) ||
		!near(*app.MaxArrivalRate, 200) ||
		app.TCP == nil || app.TCP.Requests != 1000 || !near(float64(*app.TCP.P99), 0.015) || app.HTTP != nil ||
		*app.ErrorShare != 0 {
		t.Errorf("app: %+v", app)
	}
	if w := byName["worker"]; w.Reached || w.Demand != nil || w.TCP != nil || w.ErrorShare != nil ||
		!near(w.Utilisation, 0.2) {
		t.Errorf("worker: %+v", w)
	}
}

// What was recognised as HTTP is timed apart from the rest, and failures of any protocol count.
func TestServicesTellHTTPApart(t *testing.T) {
	g := office()
	g.CoveredSeconds = 10
	endpoint := func(p model.Protocol, n, failed float64, seconds float64) endpoints {
		e := &Endpoint{Protocol: string(p), Name: "x", Requests: n, Statuses: map[string]float64{}, failed: failed}
		e.latency.Merge(&model.FloatHistogram{Count: n, Sum: n * seconds, Offset: model.BucketOf(0), Buckets: []float64{n}})
		return endpoints{{string(p), "x"}: e}
	}
	for _, e := range g.Edges {
		side := *e.ServerSide
		switch e.Server {
		case "db":
			side.endpoints = endpoint(model.PostgreSQL, 400, 7, 0.004)
		case "app":
			side.endpoints = endpoint(model.HTTP, 800, 20, 0.015)
			side.endpoints[endpointName{"grpc", "y"}] = endpoint(model.GRPC, 100, 0, 0.015)[endpointName{"grpc", "x"}]
		}
		e.ServerSide = &side
	}
	for _, n := range g.Nodes {
		if n.ID == "app" {
			n.Served.set(Aborted, 5)
		}
	}
	_, list := g.Services(map[string]float64{"vm": 4})
	for _, s := range list {
		switch s.Name {
		case "app":
			if s.HTTP == nil || s.HTTP.Requests != 900 || !near(*s.HTTP.RequestsPerSecond, 90) ||
				!near(float64(*s.HTTP.Mean), 0.015) ||
				s.Failed != 20 || s.Aborted != 5 || !near(*s.ErrorShare, 25.0/1005) || !near(*s.ErrorsPerSecond, 2.5) {
				t.Errorf("app: %+v, HTTP %+v", s, s.HTTP)
			}
		case "db": // two edges lead to it
			if s.HTTP != nil || s.Failed != 14 {
				t.Errorf("db: %+v", s)
			}
		case "web":
			if s.HTTP != nil || s.Failed != 0 {
				t.Errorf("web: %+v", s)
			}
		}
	}
}

func TestServicesWithoutCPU(t *testing.T) {
	rate := 3.0
	g := &Graph{CoveredSeconds: 10, Nodes: []*Node{{ID: "web/nginx", Name: "web/nginx", Kind: KindProcess,
		Served: answering(rate, 0.1)},
		{ID: "192.0.2.1", Name: "192.0.2.1", Kind: KindOutside, Served: answering(rate, 0.1)}}}
	_, list := g.Services(nil)
	if len(list) != 1 || list[0].Utilisation != 0 || list[0].Demand != nil || list[0].TCP == nil {
		t.Errorf("got %+v", list)
	}
}
