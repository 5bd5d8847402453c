package graph

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"outsight/internal/frame"
	"outsight/internal/model"
)

// testNames are a pod at 10.0.0.9 that has the address of another one from a time on, and a service.
type testNames struct{ moves time.Time }

func (n testNames) End(at time.Time, address netip.Addr, service netip.AddrPort, _ model.Transport) (end model.NamedEnd,
	ok bool) {
	switch address.String() {
	case "10.0.0.9":
		end.PodIdentity = model.PodIdentity{Namespace: "shop", Pod: "old-0", Workload: "old", WorkloadKind: "StatefulSet"}
		if !at.Before(n.moves) {
			end.Pod, end.Workload = "new-0", "new"
		}
	case "10.96.0.1":
		end.ServiceNamespace, end.Service = "shop", "api"
	}
	if service.Port() == 80 && end.Pod != "" {
		end.ServiceNamespace, end.Service = "shop", "web"
	}
	return end, end != model.NamedEnd{}
}

func (n testNames) Container(id string) (model.PodIdentity, bool) {
	return model.PodIdentity{Namespace: "shop", Pod: "cart-0", Container: "main", Workload: "cart",
		WorkloadKind: "Deployment"}, id == "cart"
}

// TestNamesOfTheWindowsTime: the ends of a window have the names of its time, whenever it is read.
func TestNamesOfTheWindowsTime(t *testing.T) {
	m := newPairedHost("a", "192.0.2.1")
	cart := m.runs("cart", nil, "10.0.0.1")
	pod, service := m.dials(cart, "10.0.0.9:80"), m.dials(cart, "10.96.0.1:443")
	start := time.Unix(1_800_000_000, 0)
	builder := frame.NewBuilder(start)
	var frames []*frame.Frame
	for i := range 3 {
		for j, e := range []*model.Edge{pod, service} {
			e.Instance = uint64(j + 1)
			e.Counters.SentBytes += 100
		}
		m.Edges = []model.Edge{*pod, *service}
		m.Time = start.Add(time.Duration(i) * time.Minute)
		frames = append(frames, builder.Build(&m.Snapshot))
	}
	o := Options{By: ByPod, Names: testNames{moves: frames[2].Time}}
	for i, want := range []string{"old-0", "new-0"} {
		g := FromFrames(&frame.Window{From: frames[i].Time, To: frames[i+1].Time, Hosts: []frame.HostSpans{{Host: "a",
			Spans: []frame.Span{{Before: frames[i], After: frames[i+1]}}}}}, o)
		var got []string
		for _, e := range g.Edges {
			got = append(got, fmt.Sprintf("%s>%s %v", e.Client, e.Server, e.ClientSide.Of(RequestBytes)))
		}
		slices.Sort(got)
		edges := []string{"pod/shop/cart-0>pod/shop/" + want + " 100", "pod/shop/cart-0>service/shop/api 100"}
		if !slices.Equal(got, edges) {
			t.Errorf("minute %d: %q, want %q", i, got, edges)
		}
	}
}
