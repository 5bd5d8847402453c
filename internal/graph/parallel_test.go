package graph

import (
	"fmt"
	"math"
	"testing"
	"time"

	"outsight/internal/model"
)

// A map of so many edges that it is made in halves has all of them, in order, and its nodes their sums.
func TestManyEdges(t *testing.T) {
	const clients, servers = 60, 50
	s := &model.Snapshot{Time: start.Add(time.Second), Host: model.Host{Name: "vm"}}
	h := &model.Histogram{Count: 7, SumNS: 7e6, Offset: model.BucketOf(time.Millisecond), Buckets: []uint64{7}}
	for c := range clients {
		for n := range servers {
			client, server := container(fmt.Sprint("c", c), fmt.Sprint("client-", c)),
				container(fmt.Sprint("s", n), fmt.Sprint("server-", n))
			s.Edges = append(s.Edges, edge(model.RoleClient, inside(client), inside(server), fmt.Sprintf("10.0.0.%d:80", n),
				model.EdgeCounters{SentBytes: 10, Requests: 7, Replies: 7, Latency: h}))
		}
	}
	g := graphOf(&model.Snapshot{Time: start, Host: s.Host}, s)
	if len(g.Edges) != clients*servers || len(g.Edges) < 2*worthParallel {
		t.Fatalf("%d edges", len(g.Edges))
	}
	for i, e := range g.Edges {
		if e.ClientSide.Of(Transactions) != 7 || e.ClientSide.P50 == nil || e.Services == nil {
			t.Fatalf("edge %d: %+v", i, e.ClientSide)
		}
		if i > 0 && e.Client == g.Edges[i-1].Client && e.Server == g.Edges[i-1].Server {
			t.Errorf("edge %d is there twice", i)
		}
	}
	for _, n := range g.Nodes {
		of, want := n.Called, 7.0*servers
		if n.Called == nil || n.Name[0] == 's' {
			of, want = n.Served, 7*clients
		}
		if of == nil || of.Of(Transactions) != want || math.Abs(of.latency.Count-want) > 1e-9 ||
			of.Of(RequestBytes) != want/7*10 {
			t.Errorf("%s: %+v, want %v transactions", n.Name, of, want)
		}
	}
}

func TestBothPanics(t *testing.T) {
	defer func() {
		if p := recover(); p != "second" {
			t.Errorf("recovered %v", p)
		}
	}()
	both(func() {}, func() { panic("second") })
}

// TestInTurn does each thing of each kind once.
func TestInTurn(t *testing.T) {
	var first int
	a, b, c := make([]int, 70), make([]int, 0), make([]int, 1)
	count := func(all []int) each { return each{len(all), func(i int) { all[i]++ }} }
	parallelInTurn(func() { first++ }, count(a), count(b), count(c))
	for i, n := range append(append(a, c...), first) {
		if n != 1 {
			t.Errorf("%d was done %d times", i, n)
		}
	}
}

// of are values of which one is known.
func of(f Field, number float64) (v values) {
	v.set(f, number)
	return v
}
