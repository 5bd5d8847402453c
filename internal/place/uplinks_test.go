package place

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestUplinksFollowMoves: what a move is said to add to the cost is what it adds, and the uplinks' bytes after many moves
// are those of the placement summed anew.
func TestUplinksFollowMoves(t *testing.T) {
	for seed := range uint64(10) {
		hosts := 1 + int(seed)
		p := Random(40, hosts, seed)
		p.Together = [][]int{{0, 1, 9}}
		c := compile(p, Options{Weights: Weights{Traffic: 0.3, Uplink: 1, Balance: 0.1, Moves: 0.1}})
		s, random := newState(c, c.homes()), rand.New(rand.NewPCG(seed, 2))
		for range 500 {
			n, to := random.IntN(len(s.units)), random.IntN(hosts)
			before, d := s.cost(), 0.0
			if to != int(s.at[n]) {
				d = s.delta(n, to)
				s.move(n, to)
			}
			if !near(s.cost(), before+d) {
				t.Fatalf("seed %d: the cost is %v, before %v and %v more", seed, s.cost(), before, d)
			}
		}
		anew := newState(c, s.at)
		for h := range hosts {
			if !near(anew.uplinks.of[h], s.uplinks.of[h]) {
				t.Errorf("seed %d: host %d exchanges %v, want %v", seed, h, s.uplinks.of[h], anew.uplinks.of[h])
			}
		}
		f := newPlan(c, c.containersAt(s)).figures()
		if got := slices.Max(s.uplinks.of) * c.whole.bytes; got-f.BusiestUplink > 1e-6*got+1e-6 || f.BusiestUplink-got > 1e-6*got+1e-6 {
			t.Errorf("seed %d: the busiest uplink has %v, the figures say %v", seed, got, f.BusiestUplink)
		}
	}
}

// TestBusyUplinkIsRelieved: where the same bytes go between hosts in any case, they are spread over uplinks.
func TestBusyUplinkIsRelieved(t *testing.T) {
	p := &Problem{}
	for _, name := range []string{"a", "b", "c", "d"} {
		p.Hosts = append(p.Hosts, Host{Name: name, Cores: 4, MemoryBytes: 4})
	}
	// Four clients, each on a host of its own, and four servers on the first host, each of which talks to all.
	for i := range 4 {
		p.Containers = append(p.Containers, Container{Name: "client", Host: i, Pinned: "stays", Memory: Use{1, 1}})
	}
	for i := range 2 {
		p.Containers = append(p.Containers, Container{Name: "server", Memory: Use{1, 1}})
		for client := range 4 {
			p.Traffic = append(p.Traffic, Traffic{A: 4 + i, B: client, Bytes: 100})
		}
	}
	weights := Weights{Traffic: 1, Moves: 0.01}
	o := Options{Weights: weights, Seed: 1}
	if r := checked(t, p, o); len(r.Moves) != 0 || r.After.BusiestUplink != 600 {
		t.Errorf("by traffic alone: moves %v, busiest %v", r.Moves, r.After.BusiestUplink)
	}
	o.Weights.Uplink = 0.5
	for _, o.Search = range []Search{Exact, Anneal} {
		if r := checked(t, p, o); len(r.Moves) != 1 || r.After.BusiestUplink != 400 || r.After.CrossBytes != 600 {
			t.Errorf("%s: moves %v, busiest %v of %v", o.Search, r.Moves, r.After.BusiestUplink, r.After.CrossBytes)
		}
	}
}
