package graph

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"testing"
)

// TestMemory: graphs that are made one after the other in the same memory are the same as each in its own.
func TestMemory(t *testing.T) {
	text := func(g *Graph) string {
		t.Helper()
		b, err := json.Marshal(g)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	var memory Memory
	used := 0
	for seed := range uint64(20) {
		w := windowOfPair(randomPair(rand.New(rand.NewPCG(seed, 5))))
		for _, o := range []Options{{}, {Brief: true, MaxEdges: 3}, {By: ByProcess}} {
			want := FromFrames(w, o)
			o.Memory = &memory
			got := FromFrames(w, o)
			if text(got) != text(want) {
				t.Fatalf("seed %d: in memory that was used\n%s\nwant\n%s", seed, text(got), text(want))
			}
			for i, n := range got.Nodes {
				if n.Served != nil && !reflect.DeepEqual(n.Served.latency, want.Nodes[i].Served.latency) {
					t.Errorf("seed %d: %s: %v, want %v", seed, n.Name, n.Served.latency, want.Nodes[i].Served.latency)
				}
			}
			used += len(memory.sides)
			memory.Release()
		}
	}
	if used == 0 {
		t.Error("no memory was used")
	}
}
