package network

import (
	"fmt"
	"testing"

	"outsight/internal/model"
)

func endpoint(name string, n uint64) model.Endpoint {
	return model.Endpoint{
		EndpointKey: model.EndpointKey{Protocol: model.HTTP, Name: name, Status: "2xx"},
		Latency:     &model.Histogram{Count: n, SumNS: n, ZeroCount: n},
	}
}

func counts(endpoints []model.Endpoint) map[string]uint64 {
	all := map[string]uint64{}
	for _, e := range endpoints {
		all[e.Name] += e.Transactions()
	}
	return all
}

// What the kernel gives up and counts anew adds up; what moves to another edge counts there only
// from then on.
func TestEndpointsAddUp(t *testing.T) {
	g := newLedger(Options{MaxContainerEdges: 256, MaxNewEdges: 256})
	one, two := g.total(edgeKey{client: "1"}, model.Peer{}, model.Peer{}),
		g.total(edgeKey{client: "2"}, model.Peer{}, model.Peer{})
	l := &line{to: one}
	g.lines[lineKey{}] = l
	expect := func(what string, of *total, want map[string]uint64) {
		t.Helper()
		g.addUp()
		if got := counts(of.endpoints); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	l.takeEndpoints([]model.Endpoint{endpoint("a", 5), endpoint("b", 1)})
	expect("two", one, map[string]uint64{"a": 5, "b": 1})
	l.takeEndpoints([]model.Endpoint{endpoint("a", 7)})
	expect("one was given up", one, map[string]uint64{"a": 7, "b": 1})
	l.takeEndpoints([]model.Endpoint{endpoint("a", 2), endpoint("b", 3)})
	expect("both counted anew", one, map[string]uint64{"a": 9, "b": 4})
	l.keepEndpoints()
	l.to = two
	l.moveEndpoints()
	expect("it moved", one, map[string]uint64{"a": 9, "b": 4})
	l.takeEndpoints([]model.Endpoint{endpoint("a", 3), endpoint("b", 3)})
	expect("what moved", two, map[string]uint64{"a": 1})
	expect("what did not move", one, map[string]uint64{"a": 9, "b": 4})
}

// A million routes that come and go in the kernel's table are no million labels.
func TestEndpointsOfAnEdgeAreBounded(t *testing.T) {
	g := newLedger(Options{MaxContainerEdges: 256, MaxNewEdges: 256})
	l := &line{to: g.total(edgeKey{}, model.Peer{}, model.Peer{})}
	const rounds = 1000
	for i := range rounds {
		l.takeEndpoints([]model.Endpoint{endpoint(fmt.Sprintf("GET /%d", i), 1)})
	}
	l.keepEndpoints()
	got := counts(l.to.goneEndpoints.list())
	if len(got) != maxEdgeEndpoints+1 || got[model.OtherEndpoint] != rounds-maxEdgeEndpoints {
		t.Errorf("%d endpoints, %d of them other", len(got), got[model.OtherEndpoint])
	}
}

func TestKafkaRequests(t *testing.T) {
	for key, want := range map[string]string{"0": "Produce", "3": "Metadata", "18": "ApiVersions",
		"36": "SaslAuthenticate", "68": "ConsumerGroupHeartbeat", "120": "120", "other": "other"} {
		if got := kafkaRequest(key); got != want {
			t.Errorf("%s is %s, want %s", key, got, want)
		}
	}
}
