package graph

import (
	"cmp"
	"container/heap"
	"fmt"
	"math"
	"slices"
)

// Percentile selects the latency of an edge that a path is weighed with.
type Percentile string

// The percentiles of a path.
const (
	P50 Percentile = "p50"
	P75 Percentile = "p75"
	P90 Percentile = "p90"
	P99 Percentile = "p99"
)

// ParsePercentile reads a percentile; "" is P99.
func ParsePercentile(text string) (Percentile, error) {
	switch p := Percentile(text); p {
	case P50, P75, P90, P99:
		return p, nil
	case "":
		return P99, nil
	}
	return "", fmt.Errorf("percentile is %q, want p50, p75, p90 or p99", text)
}

func (p Percentile) of(s *Side) *Seconds {
	switch p {
	case P50:
		return s.P50
	case P75:
		return s.P75
	case P90:
		return s.P90
	}
	return s.P99
}

// Path is a chain of calls from an entry, and where the time of a request goes on it.
type Path struct {
	Percentile Percentile `json:"percentile"`
	// Score is the sum of the hops' weights; the critical path has the greatest.
	Score Seconds `json:"score"`
	Hops  []Hop   `json:"hops"`
}

// Hop is a node of a path. The times are means, which add up (percentiles do not):
// Served = Own + Next + Others, unless Concurrent.
type Hop struct {
	Node string `json:"node"`
	Name string `json:"name"`
	// Edge leads here from the hop before; "" for the entry. Weight is its latency; that of the entry
	// is of all that it serves, and not in the score.
	Edge   string   `json:"edge,omitempty"`
	Weight *Seconds `json:"weight,omitempty"`
	// Served is how long the node takes to answer.
	Served *Seconds `json:"served,omitempty"`
	// Own is the time in the node itself; Next is the wait for the next hop, Others for the other
	// servers that it calls: calls per request times the mean round trip.
	Own    float64 `json:"own"`
	Next   float64 `json:"next"`
	Others float64 `json:"others"`
	// Concurrent is true where the node waits for longer than it takes to answer: it calls several
	// servers at a time, or for itself. Its own time is not known then, and 0.
	Concurrent bool `json:"concurrent,omitempty"`
}

// maxEntries bounds the entries, the busiest ones, that paths are looked for from.
const maxEntries = 32

// CriticalPath is the path of the greatest score among the widest paths from each of the entries (g.Entries) to all that it
// reaches (paper 000, section 3.2.2): the widest path to a node is the one whose fastest edge is the
// slowest. The weight of an edge is the percentile of the server's response time, or of the client's
// round trip where the server did not count; of several edges between two nodes, the slowest counts. What is
// no part of the application (the rest of a host, its resolver among it, and servers outside) is on no path.
// The score is the sum of weights, so that a slow chain comes before a slow call. Nil without requests.
func (g *Graph) CriticalPath(p Percentile, entries []Entry) *Path {
	r := g.roads(p)
	var best *Path
	var last int
	var by []*road
	for _, entry := range entries[:min(len(entries), maxEntries)] {
		came, score := r.widest(r.at[entry.Node])
		for i, n := range g.Nodes {
			if score[i] >= 0 && (best == nil || score[i] > float64(best.Score) || score[i] == float64(best.Score) && n.ID < g.Nodes[last].ID) {
				best, last, by = &Path{Percentile: p, Score: Seconds(score[i])}, i, came
			}
		}
	}
	if best == nil {
		return nil
	}
	for i := last; ; i = by[i].from {
		n := g.Nodes[i]
		hop := Hop{Node: n.ID, Name: n.Name}
		if n.Served != nil {
			hop.Served, hop.Weight = n.Served.Mean, p.of(n.Served)
		}
		if by[i] != nil {
			hop.Edge, hop.Weight = by[i].edge.ID, p.of(served(by[i].edge))
		}
		best.Hops = append(best.Hops, hop)
		if by[i] == nil {
			break
		}
	}
	slices.Reverse(best.Hops)
	best.attribute(g)
	return best
}

// roads are a graph's edges by the places of their nodes, for the looking for paths.
type roads struct {
	at  map[string]int
	out [][]*road
}

type road struct {
	from, to int
	weight   float64
	edge     *Edge
}

// roads leaves one edge between two nodes, the slowest, without those to a node itself or out of the application.
func (g *Graph) roads(p Percentile) *roads {
	r := &roads{at: nodeIndex(g), out: make([][]*road, len(g.Nodes))}
	beyond := map[string]bool{}
	for _, n := range g.Nodes {
		beyond[n.ID] = n.Kind == KindHost || n.Kind == KindOutside
	}
	between := make(map[[2]int]*road, len(g.Edges))
	for _, e := range g.Edges {
		w := p.of(served(e))
		if w == nil || e.Client == e.Server || beyond[e.Server] {
			continue
		}
		fresh := &road{r.at[e.Client], r.at[e.Server], float64(*w), e}
		pair := [2]int{fresh.from, fresh.to}
		if known := between[pair]; known == nil {
			between[pair] = fresh
			r.out[fresh.from] = append(r.out[fresh.from], fresh)
		} else if fresh.weight > known.weight {
			*known = *fresh
		}
	}
	return r
}

func served(e *Edge) *Side {
	if e.ServerSide != nil && e.ServerSide.Mean != nil {
		return e.ServerSide
	}
	return e.Best()
}

// widest finds the widest path from start to all that it reaches: the road by which each place is come
// to, and the sum of weights up to it, less than 0 for what is not reached.
func (r *roads) widest(start int) (came []*road, score []float64) {
	came, score = make([]*road, len(r.out)), make([]float64, len(r.out))
	width, done := make([]float64, len(r.out)), make([]bool, len(r.out))
	for i := range score {
		score[i], width[i] = -1, -1
	}
	score[start], width[start] = 0, math.Inf(1)
	todo := &widths{{start, math.Inf(1)}}
	for todo.Len() > 0 {
		from := heap.Pop(todo).(widthTo).place
		if done[from] {
			continue
		}
		done[from] = true
		for _, road := range r.out[from] {
			if through := min(width[from], road.weight); !done[road.to] && through > width[road.to] {
				width[road.to], came[road.to], score[road.to] = through, road, score[from]+road.weight
				heap.Push(todo, widthTo{road.to, through})
			}
		}
	}
	return came, score
}

type widthTo struct {
	place int
	width float64
}

// widths is a heap with the widest on top; of equally wide ones the first.
type widths []widthTo

func (w widths) Len() int { return len(w) }
func (w widths) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(w[j].width, w[i].width), cmp.Compare(w[i].place, w[j].place)) < 0
}
func (w widths) Swap(i, j int) { w[i], w[j] = w[j], w[i] }
func (w *widths) Push(x any)   { *w = append(*w, x.(widthTo)) }
func (w *widths) Pop() any {
	last := (*w)[len(*w)-1]
	*w = (*w)[:len(*w)-1]
	return last
}

// attribute splits the time in which each hop answers.
func (p *Path) attribute(g *Graph) {
	nodes, calls := g.byID(), map[string][]*Edge{}
	for _, h := range p.Hops {
		calls[h.Node] = nil
	}
	for _, e := range g.Edges {
		if of, ok := calls[e.Client]; ok {
			calls[e.Client] = append(of, e)
		}
	}
	for i := range p.Hops {
		h := &p.Hops[i]
		n := nodes[h.Node]
		if h.Served == nil || n.Served.Transactions == 0 {
			continue
		}
		for _, e := range calls[h.Node] {
			best := e.Best()
			if e.Server == h.Node || best.Mean == nil || math.IsInf(float64(*best.Mean), 0) {
				continue
			}
			wait := best.Transactions / n.Served.Transactions * float64(*best.Mean)
			if i+1 < len(p.Hops) && e.Server == p.Hops[i+1].Node {
				h.Next += wait
			} else {
				h.Others += wait
			}
		}
		h.Own = float64(*h.Served) - h.Next - h.Others
		if h.Concurrent = h.Own < 0; h.Concurrent {
			h.Own = 0
		}
	}
}
