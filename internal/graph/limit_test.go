package graph

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// The graph with at most so many edges is that of all, limited, and what is made of the memory of earlier graphs is no
// part of them.
func TestMostEdges(t *testing.T) {
	for seed := range uint64(20) {
		prev, cur := randomPair(rand.New(rand.NewPCG(seed, 3)))
		frames := framesOf(prev, cur)
		w := windowBetween(frames[0], frames[1])
		all := FromFrames(w, Options{})
		edges, whole := len(all.Edges), withoutMeans(t, all)
		for _, most := range []int{1, 5, edges - 1, edges, edges + 1} {
			if most <= 0 {
				continue
			}
			limited := FromFrames(w, Options{MaxEdges: most})
			if len(limited.Edges) != min(most, edges) || limited.OmittedEdges != edges-len(limited.Edges) {
				t.Fatalf("%d of %d edges, %d left out, want %d", len(limited.Edges), edges, limited.OmittedEdges, most)
			}
			want := FromFrames(w, Options{})
			want.Limit(most)
			if got, want := withoutMeans(t, limited), withoutMeans(t, want); got != want {
				t.Errorf("seed %d: with at most %d edges it is not what is left of %d: %s", seed, most, edges,
					firstDifference(got, want))
			}
		}
		if withoutMeans(t, all) != whole {
			t.Errorf("seed %d: a graph is another after others were made", seed)
		}
	}
}

func TestMostBytes(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var edges []*Edge
	for i := range 500 {
		edges = append(edges, &Edge{Client: fmt.Sprint(random.IntN(9)), Server: fmt.Sprint(i),
			ClientSide: &Side{values: of(RequestBytes, float64(random.IntN(30)))}})
	}
	sorted := slices.SortedFunc(slices.Values(edges), byBytes)
	for _, order := range []func(){
		func() {},
		func() { slices.SortFunc(edges, byBytes) },
		func() { slices.Reverse(edges) },
	} {
		order()
		for _, n := range []int{0, 1, 2, 7, 249, 250, 251, 499, 500, 501} {
			if best := mostBytes(edges, n); !slices.Equal(best, sorted[:min(n, 500)]) {
				t.Errorf("the %d with the most bytes are others", n)
			}
		}
	}
}
