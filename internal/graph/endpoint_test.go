package graph

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"outsight/internal/model"
)

// What was asked for on an edge.
func TestEndpointsOfAnEdge(t *testing.T) {
	latency := func(n uint64) *model.Histogram {
		return &model.Histogram{Count: n, SumNS: n * 1e6, Buckets: []uint64{n}, Offset: model.BucketOf(time.Millisecond)}
	}
	endpoint := func(name, status string, n uint64) model.Endpoint {
		return model.Endpoint{EndpointKey: model.EndpointKey{Protocol: model.HTTP, Name: name, Status: status},
			Latency: latency(n), Aside: 1}
	}
	edge := func(endpoints ...model.Endpoint) *model.Snapshot {
		return &model.Snapshot{Time: start.Add(20 * time.Second), Edges: []model.Edge{{
			Side:     model.RoleServer,
			Client:   model.Peer{Container: &model.Container{ID: "a", Name: "web"}},
			Server:   model.Peer{Container: &model.Container{ID: "b", Name: "api"}},
			Counters: model.EdgeCounters{SentBytes: uint64(len(endpoints)) + 1, Latency: latency(1)}, Endpoints: endpoints,
		}}}
	}
	prev := edge(endpoint("GET /a", "2xx", 10), endpoint("GET /a", "5xx", 1))
	prev.Time = start
	g := graphOf(prev, edge(endpoint("GET /a", "2xx", 40), endpoint("GET /a", "5xx", 11),
		endpoint("GET /b", "4xx", 4)))
	check := func(from string, list []*Endpoint) {
		t.Helper()
		if len(list) != 2 {
			t.Fatalf("%s: %d endpoints, want 2", from, len(list))
		}
		a, b := list[0], list[1]
		if a.Name != "GET /a" || a.Requests != 40 || a.ErrorShare != 0.25 || *a.ErrorsPerSecond != 0.5 ||
			*a.RequestsPerSecond != 2 || b.Name != "GET /b" || b.Requests != 5 || b.ErrorShare != 0 {
			t.Errorf("%s: %+v and %+v", from, *a, *b)
		}
		if want := (map[string]float64{"2xx": 30, "5xx": 10}); !reflect.DeepEqual(a.Statuses, want) {
			t.Errorf("%s: statuses %v, want %v", from, a.Statuses, want)
		}
		if a.P50 == nil || float64(*a.P50) < 0.001*(1-model.RelativeError) ||
			float64(*a.P50) > 0.001*(1+model.RelativeError) {
			t.Errorf("%s: p50 %v, want 1 ms", from, a.P50)
		}
	}
	check("snapshots", g.Edges[0].Endpoints)
}

func TestEndpointsAreBounded(t *testing.T) {
	var changes []endpointChange
	for i := range MaxEndpoints + 5 {
		changes = append(changes, endpointChange{key: model.EndpointKey{Protocol: model.HTTP, Name: fmt.Sprint(i)},
			requests: float64(i + 1)})
	}
	changes[0].key.Status, changes[1].key.Status = "2xx", "5xx"
	list, omitted, others := endpoints(nil).add(changes).top(MaxEndpoints, 2)
	if len(list) != MaxEndpoints || omitted != 5 || list[0].Requests != MaxEndpoints+5 {
		t.Errorf("%d endpoints, %d omitted, the first with %v requests", len(list), omitted, list[0].Requests)
	}
	if want := 1 + 2 + 3 + 4 + 5.0; others.Requests != want || *others.RequestsPerSecond != want/2 ||
		*others.ErrorsPerSecond != 1 || others.P99 != nil {
		t.Errorf("the others are %+v, want %v requests in 2 s, of them 2 failed", *others, want)
	}
	if _, _, none := endpoints(nil).add(changes).top(100, 1); none != nil {
		t.Errorf("with room for all, the others are %+v", *none)
	}
}
