package graph

import (
	"cmp"
	"math"
	"slices"

	"outsight/internal/model"
)

// Difference is what changed between two windows, the surest and greatest changes first.
type Difference struct {
	Changes []Change `json:"changes"`
	// Omitted is how many less sure or lesser changes Compare has left out.
	Omitted int `json:"omitted"`
}

// Change is one number of a node or an edge in two windows. A nil Before or After is one that the window
// does not have: the node or edge was not there.
type Change struct {
	// Node or Edge is the ID of what changed; the other one is "". Name is for people: "a" or "a → b".
	Node string `json:"node,omitempty"`
	Edge string `json:"edge,omitempty"`
	Name string `json:"name"`
	// What changed: "cpu", "memory", "rate", "mean", "p99", "failures", "retransmits", or
	// "presence" for what is in one window alone.
	What   string   `json:"what"`
	Unit   string   `json:"unit"`
	Before *float64 `json:"before,omitempty"`
	After  *float64 `json:"after,omitempty"`
	// Deviations is how many standard deviations of chance the change is: of counts as of a Poisson process, of
	// means by the spread of the histogram, of quantiles by the spread of ranks. 0 where chance has no
	// part in it.
	Deviations float64 `json:"deviations"`
	// Sure is true from sureDeviations on, or without chance if it is more than a tenth.
	Sure bool `json:"sure"`
}

const (
	// sureDeviations are rare by chance alone: once in 370 numbers that do not change.
	sureDeviations = 3
	// leastChange is the share below which a change is not listed, however sure.
	leastChange = 0.1
)

// Compare lists at most most changes from before to after.
func Compare(before, after *Graph, most int) *Difference {
	c := comparison{before: before, after: after}
	c.nodes()
	c.edges()
	slices.SortFunc(c.changes, func(x, y Change) int {
		return cmp.Or(-compareBool(x.Sure, y.Sure), cmp.Compare(y.size(), x.size()),
			cmp.Compare(x.Node+x.Edge, y.Node+y.Edge), cmp.Compare(x.What, y.What))
	})
	d := &Difference{Changes: c.changes}
	if len(d.Changes) > most {
		d.Omitted, d.Changes = len(d.Changes)-most, d.Changes[:most]
	}
	if d.Changes == nil {
		d.Changes = []Change{}
	}
	return d
}

func compareBool(x, y bool) int {
	switch {
	case x == y:
		return 0
	case x:
		return 1
	}
	return -1
}

// size is how many times doubled or halved; what appeared or went is before all others.
func (c *Change) size() float64 {
	if c.Before == nil || c.After == nil || *c.Before == 0 || *c.After == 0 {
		return math.Inf(1)
	}
	return math.Abs(math.Log2(*c.After / *c.Before))
}

type comparison struct {
	before, after *Graph
	changes       []Change
}

func (c *comparison) nodes() {
	old := c.before.byID()
	for _, n := range c.after.Nodes {
		was := old[n.ID]
		delete(old, n.ID)
		of := Change{Node: n.ID, Name: n.Name}
		if was == nil {
			c.presence(of, nil, ptrTo(1), math.Inf(1))
			continue
		}
		if n.Usage == nil || was.Usage == nil {
			continue
		}
		c.level(of, "cpu", "cores", was.Usage.CPUCores, n.Usage.CPUCores, 0.005)
		c.level(of, "memory", "B", was.Usage.MemoryBytes, n.Usage.MemoryBytes, 1<<20)
	}
	for _, n := range old {
		c.presence(Change{Node: n.ID, Name: n.Name}, ptrTo(1), nil, math.Inf(1))
	}
}

func (c *comparison) edges() {
	names := c.before.byID()
	for id, n := range c.after.byID() {
		names[id] = n
	}
	old := map[string]*Edge{}
	for _, e := range c.before.Edges {
		old[e.ID] = e
	}
	of := func(e *Edge) Change {
		return Change{Edge: e.ID, Name: names[e.Client].Name + " → " + names[e.Server].Name}
	}
	for _, e := range c.after.Edges {
		was := old[e.ID]
		delete(old, e.ID)
		if was == nil {
			c.presence(of(e), nil, ptrTo(1), e.events())
			continue
		}
		c.edge(of(e), was.Best(), e.Best())
	}
	for _, e := range old {
		c.presence(of(e), ptrTo(1), nil, e.events())
	}
}

// events is how often the edge was used.
func (e *Edge) events() float64 { return e.Best().Of(Transactions) + e.Best().Of(ConnectionsOpened) }

func (c *comparison) edge(of Change, was, is *Side) {
	x, y := c.before.CoveredSeconds, c.after.CoveredSeconds
	c.count(of, "rate", "/s", was.Of(Transactions), x, is.Of(Transactions), y)
	c.count(of, "failures", "/s", was.Failures(), x, is.Failures(), y)
	c.count(of, "retransmits", "/s", was.Of(Retransmits), x, is.Of(Retransmits), y)
	if was.latency.Count < 2 || is.latency.Count < 2 {
		return
	}
	m1, v1 := spread(&was.latency)
	m2, v2 := spread(&is.latency)
	c.add(of, "mean", "s", m1, m2, math.Sqrt(v1/was.latency.Count+v2/is.latency.Count))
	if p1, p2 := finite(was.P99), finite(is.P99); p1 != nil && p2 != nil &&
		min(was.latency.Count, is.latency.Count) >= leastForP99 {
		c.add(of, "p99", "s", *p1, *p2, towards(&was.latency, &is.latency, 0.99))
	}
}

// leastForP99 leaves ten transactions above the quantile.
const leastForP99 = 1000

// count compares two numbers of events, each in so many seconds.
func (c *comparison) count(of Change, what, unit string, n1, seconds1, n2, seconds2 float64) {
	if seconds1 <= 0 || seconds2 <= 0 {
		return
	}
	c.add(of, what, unit, n1/seconds1, n2/seconds2, math.Sqrt(n1/seconds1/seconds1+n2/seconds2/seconds2))
}

// add lists a change whose difference has that standard deviation by chance, if it is large enough.
func (c *comparison) add(of Change, what, unit string, before, after, deviation float64) {
	if before == after || math.Abs(after-before) < leastChange*max(before, after) || math.IsInf(deviation, 0) ||
		math.IsNaN(deviation) {
		return
	}
	of.What, of.Unit, of.Before, of.After = what, unit, &before, &after
	if deviation > 0 {
		of.Deviations = math.Abs(after-before) / deviation
	}
	of.Sure = deviation == 0 || of.Deviations >= sureDeviations
	c.changes = append(c.changes, of)
}

// level compares two numbers that have no chance in them; less than least is no change.
func (c *comparison) level(of Change, what, unit string, before, after *float64, least float64) {
	if before != nil && after != nil && math.Abs(*after-*before) >= least {
		c.add(of, what, unit, *before, *after, 0)
	}
}

// presence lists what was there in one window alone, with that many events; a node has no need of any.
func (c *comparison) presence(of Change, before, after *float64, events float64) {
	of.What, of.Before, of.After, of.Sure = "presence", before, after, math.Sqrt(events) >= sureDeviations
	if !math.IsInf(events, 1) {
		of.Deviations = math.Sqrt(events)
	}
	c.changes = append(c.changes, of)
}

func ptrTo(v float64) *float64 { return &v }

// finite is a duration as a number, nil where it is past the end of a histogram.
func finite(s *Seconds) *float64 {
	if s == nil || math.IsInf(float64(*s), 0) {
		return nil
	}
	return ptrTo(float64(*s))
}

// spread is a histogram's exact mean and the variance of its buckets' middles.
func spread(h *model.FloatHistogram) (mean, variance float64) {
	mean = h.Sum / h.Count
	squares := h.ZeroCount * mean * mean
	for i, n := range h.Buckets {
		if n > 0 {
			d := model.BucketMiddle(h.Offset+int32(i)) - mean
			squares += n * d * d
		}
	}
	return mean, squares / h.Count
}

// towards is the standard deviation by chance of the difference of two quantiles: of the lower one
// upwards and of the higher one downwards, by a deviation of the rank.
func towards(x, y *model.FloatHistogram, q float64) float64 {
	if x.Quantile(q) > y.Quantile(q) {
		x, y = y, x
	}
	rank := func(h *model.FloatHistogram, sign float64) float64 {
		return h.Quantile(min(q+sign*math.Sqrt(q*(1-q)/h.Count), 1))
	}
	return math.Hypot(rank(x, 1)-x.Quantile(q), y.Quantile(q)-rank(y, -1))
}
