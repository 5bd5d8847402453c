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

// A brief graph has all numbers of the nodes whose edges it shows and of the one that is asked for, and of the others all
// but some durations.
func TestBriefGraph(t *testing.T) {
	left := 0
	for seed := range uint64(20) {
		w := windowOfPair(randomPair(rand.New(rand.NewPCG(seed, 3))))
		whole := FromFrames(w, Options{MaxEdges: 2})
		for _, asked := range whole.Nodes {
			brief := FromFrames(w, Options{MaxEdges: 2, Brief: true, Node: asked.ID})
			for _, n := range whole.Nodes {
				got := brief.Node(n.ID)
				complete := n == asked || slices.ContainsFunc(whole.Edges, func(e *Edge) bool {
					return e.Client == n.ID || e.Server == n.ID
				})
				for of, sides := range map[Of][2]*Side{OfServed: {got.Served, n.Served}, OfCalled: {got.Called, n.Called}} {
					if sides[1] == nil {
						continue
					}
					for i := range sideNumbers {
						number := &sideNumbers[i]
						v, ok := number.of(sides[0])
						want, known := number.of(sides[1])
						durations := slices.ContainsFunc([]string{"first_byte", "rtt", "duration", "network_delay"}, func(c string) bool {
							return slices.Contains(number.Of, c)
						})
						if complete || !durations {
							if v != want || ok != known {
								t.Fatalf("seed %d: %s %s of %s is %v, not %v", seed, of, number.Key, n.Name, v, want)
							}
						} else if ok {
							t.Fatalf("seed %d: %s %s of %s is there", seed, of, number.Key, n.Name)
						} else if known {
							left++
						}
					}
				}
			}
		}
	}
	if left == 0 {
		t.Error("nothing was left out")
	}
}
