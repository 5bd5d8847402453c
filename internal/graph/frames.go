package graph

import (
	"time"

	"outsight/internal/frame"
	"outsight/internal/model"
)

// FromFrames is the graph of a window: of each host, what its counters gained between two frames, and the levels of the
// later one. Rows that were removed in between are in those that sum them; they appear as nodes that are Gone, or with
// the container that goes on under their name.
func FromFrames(w *frame.Window, o Options) *Graph {
	var g *Graph
	var shown []int32
	m := readFrameMap(w, o, func(m *frameMap) { g, shown = m.choose() })
	defer m.release()
	m.fill(g, shown)
	return g
}

// readFrameMap reads a window up to its nodes and what each has to do with another. It must be released. It calls related
// when that is known, while histograms are still added up.
func readFrameMap(w *frame.Window, o Options, related func(m *frameMap)) *frameMap {
	m := newFrameMap(w, o)
	m.findContainers()
	both(m.useContainers, m.readEdges)
	all := func(*mapRow) bool { return true }
	parallelWith(len(m.parts), func(i int) { m.addUp(i, edgeHistograms[:1], all) }, func() {
		m.findEnds()
		m.pair()
		m.name()
		m.makeNodes()
		m.relate()
		m.crossings = m.cross()
		related(m)
	})
	return m
}

// frameMap is what a graph is made of.
type frameMap struct {
	o       Options
	only    only
	limited bool // only is asked for
	window  *frame.Window
	covered float64
	parts   []part

	containers []mapContainer
	// containerAt has the containers by their nodes' IDs.
	containerAt map[string]int32
	addresses   []mapAddress
	addressAt   map[string]int32
	scratch     frame.Durations
	*mapMemory

	crossings crossings

	nodes  []*Node
	nodeAt map[string]int32
	// processNodes has the nodes of processes of containers.
	processNodes map[processOf]int32
	// ownAddress are the servers outside that have a node each; listed are the addresses that nodes list.
	ownAddress map[string]string
	listed     map[uint64]bool
}

// part is a span of one host.
type part struct {
	host string
	// hostAt and spanAt are where it is in the window.
	hostAt, spanAt int
	// newest: levels are those of the host's newest span. silent: the host was not heard of any more at the end.
	newest, silent bool
	frame.Span
	containers, edges *frame.Difference
	// rows of edges in which something happened are those of the map from rows[0] to rows[1].
	rows [2]int
	// containerOf is the index of the container of each row of After's containers, -1 where it is no one's.
	containerOf []int32
	// addressOf is the index of an address by its string; -1 where that is not known yet.
	addressOf []int32
	view      edgeView
	// fileBase is what columns of files are counted from, where Before is not there; booted: the host began anew since.
	fileBase *frame.Frame
	booted   bool
	seconds  float64 // hostSeconds
	sums     map[uint32]int32
}

// silence is after how long a host whose frames end counts as gone: there is a frame of each minute, however old it is.
const silence = 2 * frame.KeyInterval

func newFrameMap(w *frame.Window, o Options) *frameMap {
	m := &frameMap{o: o, window: w, addressAt: map[string]int32{}, nodeAt: map[string]int32{},
		mapMemory: newMapMemory()}
	m.only, m.limited = o.only()
	spans := 0
	for i := range w.Hosts {
		spans += len(w.Hosts[i].Spans)
	}
	m.parts = make([]part, 0, spans)
	for i := range w.Hosts {
		h := &w.Hosts[i]
		m.covered = max(m.covered, hostSeconds(h))
		for k := range h.Spans {
			p := part{host: h.Host, hostAt: i, spanAt: k, Span: h.Spans[k], newest: k == len(h.Spans)-1, seconds: hostSeconds(h),
				sums: map[uint32]int32{}}
			p.silent = !p.newest || w.To.Sub(p.After.Time) > silence
			if p.Before == nil && k > 0 {
				p.fileBase = h.Spans[k-1].After
				p.booted = p.fileBase.Boot != p.After.Boot
			} else if p.Before == nil {
				p.Before = p.After // its counters' start is not in the window
			}
			m.parts = append(m.parts, p)
		}
	}
	parallelEach(len(m.parts), func(i int) {
		p := &m.parts[i]
		p.containers = frame.Since(frame.Containers, p.Before, p.After)
	})
	return m
}

// Covered is how much of a window was observed: the greatest of all hosts.
func Covered(w *frame.Window) time.Duration {
	longest := 0.0
	for i := range w.Hosts {
		longest = max(longest, hostSeconds(&w.Hosts[i]))
	}
	return time.Duration(longest * 1e9)
}

// hostSeconds is how much of the window was observed of a host.
func hostSeconds(h *frame.HostSpans) float64 {
	if len(h.Spans) == 0 {
		return 0
	}
	first, last := h.Spans[0].Before, h.Spans[len(h.Spans)-1].After
	if first == nil {
		first = h.Spans[0].After
	}
	return max(last.Time.Sub(first.Time).Seconds(), 0)
}

func (m *frameMap) emptyGraph() *Graph {
	return &Graph{From: m.window.From, To: m.window.To, CoveredSeconds: m.covered, ErrorBound: model.RelativeError,
		Nodes: []*Node{}, Edges: []*Edge{}, CountedShare: map[string]float64{}}
}

// since is what a counter gained; a counter that fell has restarted from 0.
func since(before, now uint64) uint64 {
	if now < before {
		return now
	}
	return now - before
}
