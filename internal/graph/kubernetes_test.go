package graph

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"outsight/internal/model"
)

// pairs makes labels of "name=value".
func pairs(text string) []string {
	var all []string
	for _, one := range strings.Fields(text) {
		name, value, _ := strings.Cut(one, "=")
		all = append(all, name, value)
	}
	return all
}

// labelled is a cluster's traffic as it is stored: two hosts with a pod each that they know by id,
// edges that each host counted at its end and named by address at the other, and edges to services.
func labelled() map[Field][]model.QueryResult {
	cart := "namespace=shop pod=cart-0 container=main workload=cart workload_kind=Deployment"
	db := "namespace=data pod=db-0 container=main workload=db workload_kind=StatefulSet"
	sandbox := strings.Replace(db, "container=main", "container=POD", 1)
	end := func(prefix, labels string) string {
		return prefix + strings.ReplaceAll(labels, " ", " "+prefix)
	}
	of := func(text string) model.QueryResult { return result(points(0, 100, 200), pairs(text)...) }
	return map[Field][]model.QueryResult{
		CPUSeconds: {
			of("host=n1 id=aaa name=main " + cart), of("host=n2 id=bbb name=main " + db),
			of("host=n2 id=ccc name=POD " + sandbox),
			of("host=n1 id=host name=host runtime=host"), of("host=n2 id=host name=host runtime=host"),
		},
		RequestBytes: {
			of("host=n1 side=client client_id=aaa client=main server_id=10.0.0.2 server=10.0.0.2 service=10.0.0.2:1 " +
				end("client_", cart) + " " + end("server_", db) + " server_node=n2"),
			of("host=n2 side=server client_id=10.0.0.1 client=10.0.0.1 server_id=bbb server=main service=10.0.0.2:1 " +
				end("client_", cart) + " " + end("server_", db) + " client_node=n1"),
			// A service whose pods are of one workload, one of which nothing is known, and an address of the internet.
			of("host=n1 side=client client_id=aaa client=main server_id=10.96.0.1 server=10.96.0.1 service=10.96.0.1:80 " + end("client_", cart) +
				" server_namespace=data server_workload=db server_workload_kind=StatefulSet service_name=db service_namespace=data"),
			of("host=n1 side=client client_id=aaa client=main server_id=10.96.0.2 server=10.96.0.2 service=10.96.0.2:80 " + end("client_", cart) + " service_name=api service_namespace=default"),
			of("host=n1 side=client client_id=aaa client=main server_id=198.51.100.9 server=198.51.100.9 service=198.51.100.9:443 " + end("client_", cart)),
			// A pod on a host that is not watched.
			of("host=n1 side=client client_id=aaa client=main server_id=10.0.0.3 server=10.0.0.3 service=10.0.0.3:1 " +
				end("client_", cart) +
				" server_namespace=data server_pod=db-1 server_container=main server_workload=db server_workload_kind=StatefulSet server_node=n3"),
		},
	}
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
		in := Input{From: start, To: start.Add(20e9), Series: listed(labelled()), By: by}
		g := FromSeries(in)
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
	g := FromSeries(Input{From: start, To: start.Add(20e9), Series: listed(labelled()), By: ByWorkload})
	if n := g.Node("workload/data/StatefulSet/db"); n == nil || *n.Usage.CPUCores != 20 ||
		n.WorkloadKind != "StatefulSet" || n.Name != "data/db" {
		t.Errorf("the workload is %+v", n)
	}
}

// TestNamesThatComeLate: a series that gains the labels of a pod is still the same one, and nothing
// is counted twice.
func TestNamesThatComeLate(t *testing.T) {
	plain := "side=client client_id=aaa client=main server_id=10.0.0.2 server=10.0.0.2 service=10.0.0.2:1"
	early, late := points(1000, 1100, none), points(none, none, 1250)
	g := FromSeries(Input{From: start, To: start.Add(20e9), By: ByPod, Series: listed(map[Field][]model.QueryResult{
		CPUSeconds: {host()},
		RequestBytes: {result(early, pairs(plain)...),
			result(late, pairs(plain+" server_namespace=data server_pod=db-0")...)},
	})})
	if len(g.Edges) != 1 || g.Edges[0].Server != "pod/data/db-0" || g.Edges[0].ClientSide.Of(RequestBytes) != 250 {
		t.Errorf("edges are %+v", g.Edges[0])
	}
}

// TestSidesOfTwoHostsArePaired where their counts agree, and not otherwise.
func TestSidesOfTwoHostsArePaired(t *testing.T) {
	for served, want := range map[float64]bool{1000: true, 1009: true, 1100: false, 500: false} {
		series := labelled()
		series[Transactions] = []model.QueryResult{
			result(points(0, 0, 1000), labelsOf(series[RequestBytes][0])...),
			result(points(0, 0, served), labelsOf(series[RequestBytes][1])...),
		}
		g := FromSeries(Input{From: start, To: start.Add(20e9), Series: listed(series)})
		for _, e := range g.Edges {
			if e.ID == "aaa>bbb" && e.Paired != want || e.ID != "aaa>bbb" && e.Paired {
				t.Errorf("%v requests sent and %v served: %s is paired: %v", 1000, served, e.ID, e.Paired)
			}
		}
	}
}

func labelsOf(r model.QueryResult) []string {
	var all []string
	for name, value := range r.Labels {
		all = append(all, name, value)
	}
	return all
}
