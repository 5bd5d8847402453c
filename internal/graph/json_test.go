package graph

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

// The lists are those of encoding/json.
func TestListsAreJSON(t *testing.T) {
	f := func(g *Graph) {
		t.Helper()
		var want, got map[string]any
		nodes, err := g.NodesJSON()
		if err != nil {
			t.Fatal(err)
		}
		edges, err := g.EdgesJSON()
		if err != nil {
			t.Fatal(err)
		}
		whole, err := json.Marshal(map[string]any{"nodes": g.Nodes, "edges": g.Edges})
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(whole, &want); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(`{"nodes":`+string(slices.Concat(nodes...))+`,"edges":`+string(slices.Concat(edges...))+"}"), &got); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got\n%v\nwant\n%v", got, want)
		}
	}
	f(&Graph{Nodes: []*Node{}, Edges: []*Edge{}})
	for seed := range uint64(5) {
		prev, cur := randomPair(rand.New(rand.NewPCG(seed, 3)))
		g := fromFrames(prev, cur, ByContainer)
		f(g)
		for len(g.Nodes) > 0 && len(g.Nodes) < 3*partJSON {
			g.Nodes, g.Edges = append(g.Nodes, g.Nodes...), append(g.Edges, g.Edges...)
		}
		f(g)
	}
	bad := math.NaN()
	if _, err := (&Graph{Nodes: []*Node{{ID: "a", StartedSeconds: &bad}}}).NodesJSON(); err == nil {
		t.Error("what is no number is no error")
	}
}
