package graph

import (
	"cmp"
	"container/heap"
	"fmt"
	"math"
	"slices"
	"strings"

	"outsight/internal/model"
)

// Statistic of response times that a path is chosen by and given in.
type Statistic string

// The statistics of a path. Means add up, percentiles of several calls do not.
const (
	Mean Statistic = "mean"
	P50  Statistic = "p50"
	P75  Statistic = "p75"
	P90  Statistic = "p90"
	P99  Statistic = "p99"
)

// ParseStatistic reads a statistic; "" is Mean.
func ParseStatistic(text string) (Statistic, error) {
	switch s := Statistic(text); s {
	case Mean, P50, P75, P90, P99:
		return s, nil
	case "":
		return Mean, nil
	}
	return "", fmt.Errorf("percentile is %q, want mean, p50, p75, p90 or p99", text)
}

func (s Statistic) of(side *Side) *Seconds {
	switch s {
	case Mean:
		return side.Mean
	case P50:
		return side.P50
	case P75:
		return side.P75
	case P90:
		return side.P90
	}
	return side.P99
}

// rank of a percentile.
func (s Statistic) rank() float64 {
	return map[Statistic]float64{P50: 0.5, P75: 0.75, P90: 0.9, P99: 0.99}[s]
}

// Path is a chain of calls from an entry, and where the time of a request goes on it. All of its times are of one
// Statistic.
type Path struct {
	Statistic Statistic `json:"statistic"`
	// Whole is how long the entry takes to answer. By Mean, the OfRequest of the hops add up to it.
	Whole *Seconds `json:"whole,omitempty"`
	Hops  []Hop    `json:"hops"`
	// Former is true where another path is ahead by less than the numbers' own error, and the former one was kept.
	Former bool `json:"former,omitempty"`
}

// Hop is a node of a path.
type Hop struct {
	Node string `json:"node"`
	Name string `json:"name"`
	// Edge leads here from the hop before; "" for the entry. Weight is how long its calls take, as the server
	// counts where it does; of the entry it is Served.
	Edge   string   `json:"edge,omitempty"`
	Weight *Seconds `json:"weight,omitempty"`
	// Served is how long the node takes to answer anybody.
	Served *Seconds `json:"served,omitempty"`
	// Own is the time in the node itself; Next is the wait for the next hop, Others for the other
	// servers that it calls: calls per request times the mean round trip. They are of a request to the node,
	// and add up to Served unless Concurrent. With percentiles they are absent.
	Own    float64 `json:"own,omitempty"`
	Next   float64 `json:"next,omitempty"`
	Others float64 `json:"others,omitempty"`
	// Concurrent is true where the node waits for longer than it takes to answer: it calls several
	// servers at a time, or for itself. Its own time is not known then, and 0.
	Concurrent bool `json:"concurrent,omitempty"`
	// OfRequest is what the hop is of one request to the entry; nil with percentiles.
	OfRequest *OfRequest `json:"of_request,omitempty"`

	ownMean float64
}

// OfRequest is a hop's part of the mean time of a request to the entry, in seconds.
type OfRequest struct {
	// Calls of the node for one request to the entry.
	Calls float64 `json:"calls"`
	// Network is what the way from the hop before takes and back, Own the node's time, and Others its wait for servers
	// that are not on the path. Of a node that calls several servers at a time, they are in proportion to its waits.
	Network float64 `json:"network"`
	Own     float64 `json:"own"`
	Others  float64 `json:"others"`
}

// Seconds is the sum of the parts.
func (o *OfRequest) Seconds() float64 { return o.Network + o.Own + o.Others }

// maxEntries bounds the entries, the busiest ones, that paths are looked for from.
const maxEntries = 32

// CriticalPath is the chain of calls from one of the entries (g.Entries) on which requests take their time; nil without
// requests. What is no part of the application (what runs in no container of a host, its resolver among it, and servers
// outside) is on no path.
//
// By Mean it begins at the entry whose requests take the most time in sum, and goes on from each node to the one that
// it waits for the longest. By a percentile it is the path of the greatest sum of weights among the widest paths from
// each of the entries to all that it reaches (paper 000, section 3.2.2): the widest path to a node is the one whose
// fastest edge is the slowest.
//
// The former path, by the IDs of its nodes or how they begin, is kept as far as it is there and no other is ahead by
// more than the numbers' own error.
func (g *Graph) CriticalPath(by Statistic, entries []Entry, former []string) *Path {
	entries = entries[:min(len(entries), maxEntries)]
	if by == Mean {
		return g.meanPath(entries, former)
	}
	r := g.links(by)
	start, way, kept := r.slowest(g, entries, former)
	if way == nil {
		return nil
	}
	p := &Path{Statistic: by, Former: kept, Hops: []Hop{hopOf(g.Nodes[start], by)}}
	for _, link := range way {
		hop := hopOf(g.Nodes[link.to], by)
		hop.Edge, hop.Weight = link.edge.ID, by.of(served(link.edge))
		p.Hops = append(p.Hops, hop)
	}
	p.Whole = p.Hops[0].Served
	p.attribute(g)
	for i := range p.Hops {
		h := &p.Hops[i]
		h.Own, h.Next, h.Others, h.Concurrent = 0, 0, 0, false
	}
	return p
}

func hopOf(n *Node, by Statistic) Hop {
	hop := Hop{Node: n.ID, Name: n.Name}
	if n.Served != nil {
		hop.Served = by.of(n.Served)
		hop.Weight = hop.Served
	}
	return hop
}

// begins reports whether an ID is the one of a former path's hop, which may be cut.
func begins(id, former string) bool { return former != "" && strings.HasPrefix(id, former) }

// links are a graph's edges by the indexes of their nodes, for the search for paths.
type links struct {
	at         map[string]int
	out        [][]*link
	by         Statistic
	errorBound float64
}

type link struct {
	from, to int
	weight   float64
	edge     *Edge
}

// links leaves one edge between two nodes, the slowest, without those to a node itself or out of the application.
func (g *Graph) links(p Statistic) *links {
	r := &links{at: nodeIndex(g), out: make([][]*link, len(g.Nodes)), by: p, errorBound: g.ErrorBound}
	beyond := map[string]bool{}
	for _, n := range g.Nodes {
		beyond[n.ID] = n.Kind == KindHost || n.Kind == KindOutside
	}
	between := make(map[[2]int]*link, len(g.Edges))
	for _, e := range g.Edges {
		w := p.of(served(e))
		if w == nil || e.Client == e.Server || beyond[e.Server] {
			continue
		}
		fresh := &link{r.at[e.Client], r.at[e.Server], float64(*w), e}
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

// slowest is the path of the greatest sum of weights among the widest ones, nil for none, or the former path where it
// is not clearly behind.
func (r *links) slowest(g *Graph, entries []Entry, former []string) (start int, way []*link, kept bool) {
	most, last := -1.0, 0
	var by []*link
	for _, entry := range entries {
		reachedBy, score := r.widest(r.at[entry.Node])
		for i, n := range g.Nodes {
			if score[i] >= 0 && (by == nil || score[i] > most || score[i] == most && n.ID < g.Nodes[last].ID) {
				start, last, by, most = r.at[entry.Node], i, reachedBy, score[i]
			}
		}
	}
	if by == nil {
		return 0, nil, false
	}
	way = wayTo(last, by)
	before, old, ok := r.resolve(g, entries, former)
	if !ok || before == start && slices.Equal(old, way) {
		return start, way, false
	}
	// Widths are compared on the way to where the former path ends, sums on both ways.
	reachedBy, _ := r.widest(before)
	end := before
	if len(old) > 0 {
		end = old[len(old)-1].to
	}
	widest := wayTo(end, reachedBy)
	if width(widest)-width(old) <= r.uncertainty(widest, old) && most-sum(old) <= r.uncertainty(way, old) {
		return before, old, true
	}
	return start, way, false
}

func wayTo(last int, reachedBy []*link) []*link {
	way := []*link{}
	for i := last; reachedBy[i] != nil; i = reachedBy[i].from {
		way = append(way, reachedBy[i])
	}
	slices.Reverse(way)
	return way
}

func sum(way []*link) (total float64) {
	for _, link := range way {
		total += link.weight
	}
	return total
}

// width of a way, 0 of none: it is as wide as any.
func width(way []*link) float64 {
	if len(way) == 0 {
		return 0
	}
	return slices.MinFunc(way, func(a, b *link) int { return cmp.Compare(a.weight, b.weight) }).weight
}

// resolve finds the links of a former path that begins at an entry; false where they are not all there.
func (r *links) resolve(g *Graph, entries []Entry, former []string) (start int, way []*link, ok bool) {
	if len(former) == 0 {
		return 0, nil, false
	}
	i := slices.IndexFunc(entries, func(e Entry) bool { return begins(e.Node, former[0]) })
	if i < 0 {
		return 0, nil, false
	}
	start, way = r.at[entries[i].Node], []*link{}
	at := start
	for _, id := range former[1:] {
		i := slices.IndexFunc(r.out[at], func(link *link) bool { return begins(g.Nodes[link.to].ID, id) })
		if i < 0 {
			return 0, nil, false
		}
		way = append(way, r.out[at][i])
		at = r.out[at][i].to
	}
	return start, way, true
}

// uncertainty is by how much the difference of two ways may be off: the bound of histograms and chance, of the links
// that they do not share.
func (r *links) uncertainty(x, y []*link) float64 {
	bound, squares := 0.0, 0.0
	each := func(way, other []*link) {
		for _, link := range way {
			if !slices.Contains(other, link) {
				bound += r.errorBound * link.weight
				d := rankDeviation(&served(link.edge).latency, r.by.rank())
				squares += d * d
			}
		}
	}
	each(x, y)
	each(y, x)
	return bound + sureDeviations*math.Sqrt(squares)
}

// rankDeviation is the standard deviation by chance of a quantile.
func rankDeviation(h *model.FloatHistogram, q float64) float64 {
	if h.Count < 2 {
		return 0
	}
	d := math.Sqrt(q * (1 - q) / h.Count)
	low, high := h.Quantile(max(q-d, 0)), h.Quantile(min(q+d, 1))
	if math.IsInf(high, 0) || math.IsNaN(high-low) {
		return 0
	}
	return (high - low) / 2
}

// widest finds the widest path from start to all that it reaches: the link by which each node is
// reached, and the sum of weights up to it, less than 0 for what is not reached.
func (r *links) widest(start int) (reachedBy []*link, score []float64) {
	reachedBy, score = make([]*link, len(r.out)), make([]float64, len(r.out))
	width, done := make([]float64, len(r.out)), make([]bool, len(r.out))
	for i := range score {
		score[i], width[i] = -1, -1
	}
	score[start], width[start] = 0, math.Inf(1)
	todo := &widths{{start, math.Inf(1)}}
	for todo.Len() > 0 {
		from := heap.Pop(todo).(widthTo).node
		if done[from] {
			continue
		}
		done[from] = true
		for _, link := range r.out[from] {
			if through := min(width[from], link.weight); !done[link.to] && through > width[link.to] {
				width[link.to], reachedBy[link.to], score[link.to] = through, link, score[from]+link.weight
				heap.Push(todo, widthTo{link.to, through})
			}
		}
	}
	return reachedBy, score
}

type widthTo struct {
	node  int
	width float64
}

// widths is a heap with the widest on top; of equally wide ones the first.
type widths []widthTo

func (w widths) Len() int { return len(w) }
func (w widths) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(w[j].width, w[i].width), cmp.Compare(w[i].node, w[j].node)) < 0
}
func (w widths) Swap(i, j int) { w[i], w[j] = w[j], w[i] }
func (w *widths) Push(x any)   { *w = append(*w, x.(widthTo)) }
func (w *widths) Pop() any {
	last := (*w)[len(*w)-1]
	*w = (*w)[:len(*w)-1]
	return last
}

// attribute splits the mean time in which each hop answers.
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
		if n.Served == nil || n.Served.Mean == nil || n.Served.Of(Transactions) == 0 {
			continue
		}
		for _, e := range calls[h.Node] {
			wait, ok := e.waited()
			if !ok {
				continue
			}
			if wait /= n.Served.Of(Transactions); i+1 < len(p.Hops) && e.Server == p.Hops[i+1].Node {
				h.Next += wait
			} else {
				h.Others += wait
			}
		}
		h.Own = float64(*n.Served.Mean) - h.Next - h.Others
		if h.Concurrent = h.Own < 0; h.Concurrent {
			h.Own = 0
		}
		h.ownMean = h.Own
	}
}

// waited is how long the client of an edge has waited in all; false where that is not known, or it calls itself.
func (e *Edge) waited() (seconds float64, ok bool) {
	best := e.Best()
	if e.Server == e.Client || best.Mean == nil || math.IsInf(float64(*best.Mean), 0) {
		return 0, false
	}
	return best.Of(Transactions) * float64(*best.Mean), true
}
