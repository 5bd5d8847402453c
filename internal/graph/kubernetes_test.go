package graph

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"outsight/internal/frame"
	"outsight/internal/model"
)

// clusterNames are names by address, which do not change.
type clusterNames map[string]model.NamedEnd

func (n clusterNames) End(_ time.Time, address netip.Addr, _ netip.AddrPort, _ model.Transport) (model.NamedEnd, bool) {
	end, ok := n[address.String()]
	return end, ok
}

func (clusterNames) Container(string) (model.PodIdentity, bool) { return model.PodIdentity{}, false }

// cluster is a cluster's traffic: two hosts with a pod each, edges that each host counted at its end and named by
// address at the other, and edges to services. The server counted so many requests of the client's 1000.
func cluster(served uint64) (*frame.Window, clusterNames) {
	cart := model.PodIdentity{Namespace: "shop", Pod: "cart-0", Container: "main", Workload: "cart",
		WorkloadKind: "Deployment"}
	db := model.PodIdentity{Namespace: "data", Pod: "db-0", Container: "main", Workload: "db", WorkloadKind: "StatefulSet"}
	other := db
	other.Pod = "db-1"
	names := clusterNames{"10.0.0.1": {PodIdentity: cart, Node: "n1"}, "10.0.0.2": {PodIdentity: db, Node: "n2"},
		// A service whose pods are of one workload, and one of which nothing is known.
		"10.96.0.1": {PodIdentity: model.PodIdentity{Namespace: "data", Workload: "db", WorkloadKind: "StatefulSet"},
			ServiceNamespace: "data", Service: "db"},
		"10.96.0.2": {ServiceNamespace: "default", Service: "api"},
		// A pod on a host that is not watched.
		"10.0.0.3": {PodIdentity: other, Node: "n3"}}
	in := func(id, name string, p model.PodIdentity) *model.Container {
		return &model.Container{ID: id, Name: name, PodNamespace: p.Namespace, PodName: p.Pod, Workload: p.Workload,
			WorkloadKind: p.WorkloadKind}
	}
	a, b := in("aaa", "main", cart), in("bbb", "main", db)
	host := &model.Container{ID: model.HostContainerID, Name: "host", Runtime: model.HostRuntime}
	w := &frame.Window{From: start, To: start.Add(20 * time.Second)}
	add := func(name string, containers []*model.Container, edges func(n uint64) []model.Edge) {
		at := func(seconds int, n uint64) *model.Snapshot {
			s := &model.Snapshot{Time: start.Add(time.Duration(seconds) * time.Second), Host: model.Host{Name: name}}
			for _, c := range containers {
				s.Containers = append(s.Containers, model.ContainerSample{Container: c,
					CPU: &model.CPUCounters{UsageNS: n * 1e9}})
			}
			s.Edges = edges(n)
			for i := range s.Edges {
				s.Edges[i].Instance = uint64(i + 1)
			}
			return s
		}
		f := framesOf(at(0, 0), at(20, 200))
		w.Hosts = append(w.Hosts, frame.HostSpans{Host: name, Spans: []frame.Span{{Before: f[0], After: f[1]}}})
	}
	add("n1", []*model.Container{a, host}, func(n uint64) (all []model.Edge) {
		for _, address := range []string{"10.0.0.2", "10.96.0.1", "10.96.0.2", "198.51.100.9", "10.0.0.3"} {
			e := edge(model.RoleClient, inside(a), outside(address), "10.97.0.1:1", model.EdgeCounters{SentBytes: n})
			if address == "10.0.0.2" {
				e.Counters.Latency = latency(5*n, time.Millisecond)
			}
			all = append(all, e)
		}
		return all
	})
	add("n2", []*model.Container{b, in("ccc", "POD", db), host}, func(n uint64) []model.Edge {
		return []model.Edge{edge(model.RoleServer, outside("10.0.0.1"), inside(b), "10.0.0.2:1",
			model.EdgeCounters{ReceivedBytes: n, Latency: latency(served*n/200, time.Millisecond)})}
	})
	return w, names
}

func TestGroupingsInKubernetes(t *testing.T) {
	for by, want := range map[Grouping][]string{
		ByContainer: {
			"aaa>198.51.100.9: client 200", "aaa>bbb: client 200 server 200", "aaa>pod/data/db-1: client 200",
			"aaa>service/default/api: client 200", "aaa>workload/data/StatefulSet/db: client 200",
			"node aaa (container) [10.0.0.1]", "node bbb (container) [10.0.0.2]", "node ccc (container) []",
			"node pod/data/db-1 (pod) [10.0.0.3]",
			"node service/default/api (cluster-service) [10.96.0.2]", "node workload/data/StatefulSet/db (workload) [10.96.0.1]",
		},
		ByPod: {
			"pod/shop/cart-0>198.51.100.9: client 200", "pod/shop/cart-0>pod/data/db-0: client 200 server 200",
			"pod/shop/cart-0>pod/data/db-1: client 200",
			"pod/shop/cart-0>service/default/api: client 200", "pod/shop/cart-0>workload/data/StatefulSet/db: client 200",
			"node pod/data/db-0 (pod) [10.0.0.2]", "node pod/data/db-1 (pod) [10.0.0.3]",
			"node pod/shop/cart-0 (pod) [10.0.0.1]",
			"node service/default/api (cluster-service) [10.96.0.2]", "node workload/data/StatefulSet/db (workload) [10.96.0.1]",
		},
		ByWorkload: {
			"workload/shop/Deployment/cart>198.51.100.9: client 200",
			"workload/shop/Deployment/cart>service/default/api: client 200",
			"workload/shop/Deployment/cart>workload/data/StatefulSet/db: client 600 server 200",
			"node service/default/api (cluster-service) [10.96.0.2]",
			"node workload/data/StatefulSet/db (workload) [10.0.0.2 10.0.0.3 10.96.0.1]",
			"node workload/shop/Deployment/cart (workload) [10.0.0.1]",
		},
		ByNamespace: {
			"namespace/shop>198.51.100.9: client 200", "namespace/shop>namespace/data: client 600 server 200",
			"namespace/shop>service/default/api: client 200",
			"node namespace/data (namespace) [10.0.0.2 10.0.0.3 10.96.0.1]",
			"node namespace/shop (namespace) [10.0.0.1]", "node service/default/api (cluster-service) [10.96.0.2]",
		},
		ByHost: {
			"all/n1>10.96.0.1: client 200", "all/n1>10.96.0.2: client 200", "all/n1>198.51.100.9: client 200",
			"all/n1>all/n2: client 200 server 200", "all/n1>all/n3: client 200",
			"node all/n1 (host) [10.0.0.1]", "node all/n2 (host) [10.0.0.2]", "node all/n3 (host) [10.0.0.3]",
		},
	} {
		w, names := cluster(1000)
		g := FromFrames(w, Options{By: by, Names: names})
		var got []string
		for _, e := range g.Edges {
			text := e.ID + ":"
			if e.ClientSide != nil {
				text += fmt.Sprintf(" client %v", e.ClientSide.Of(RequestBytes))
			}
			if e.ServerSide != nil {
				text += fmt.Sprintf(" server %v", e.ServerSide.Of(RequestBytes))
			}
			got = append(got, text)
		}
		for _, n := range g.Nodes {
			if n.Kind != KindOutside && n.SeriesID != model.HostContainerID {
				got = append(got, fmt.Sprintf("node %s (%s) %v", n.ID, n.Kind, n.Addresses))
			}
		}
		order := func(a, b string) int {
			return cmp.Or(cmp.Compare(strings.Count(a, "node ")%2, strings.Count(b, "node ")%2), strings.Compare(a, b))
		}
		slices.SortFunc(got, order)
		slices.SortFunc(want, order)
		if !slices.Equal(got, want) {
			t.Errorf("by %s: got\n %s\nwant\n %s", by, strings.Join(got, "\n "), strings.Join(want, "\n "))
		}
	}
	w, names := cluster(1000)
	g := FromFrames(w, Options{By: ByWorkload, Names: names})
	if n := g.Node("workload/data/StatefulSet/db"); n == nil || *n.Usage.CPUCores != 20 ||
		n.WorkloadKind != "StatefulSet" || n.Name != "data/db" {
		t.Errorf("the workload is %+v", n)
	}
}

// TestSidesOfTwoHostsArePaired where their counts agree, and not otherwise.
func TestSidesOfTwoHostsArePaired(t *testing.T) {
	for served, want := range map[uint64]bool{1000: true, 1009: true, 1100: false, 500: false} {
		w, names := cluster(served)
		for _, e := range FromFrames(w, Options{Names: names}).Edges {
			if e.ID == "aaa>bbb" && e.Paired != want || e.ID != "aaa>bbb" && e.Paired {
				t.Errorf("%v requests sent and %v served: %s is paired: %v", 1000, served, e.ID, e.Paired)
			}
		}
	}
}
