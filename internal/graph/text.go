package graph

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"outsight/internal/model"
)

// Text is the graph as a tree for a terminal of width columns (0 stands for 100): entry points
// first, under each node the servers that it calls. A node's own calls are shown once, at its
// first line; at later ones an arrow points back to it. Names are cleaned.
func Text(g *Graph, width int) string {
	if width <= 0 {
		width = 100
	}
	t := &tree{g: g, width: width, columns: columns, out: map[string][]*Edge{}, shown: map[string]bool{}}
	for len(t.columns) > 3 && t.nameWidth() < 34 {
		t.columns = t.columns[:len(t.columns)-1]
	}
	degree := map[string]int{}
	for _, e := range g.Edges {
		t.out[e.Client] = append(t.out[e.Client], e)
		degree[e.Client]++
		degree[e.Server]++
	}
	for _, edges := range t.out {
		slices.SortStableFunc(edges, func(x, y *Edge) int { return cmp.Compare(y.busy(), x.busy()) })
	}
	t.header()
	for _, id := range entries(g) {
		if !t.shown[id] {
			t.root(id)
		}
	}
	t.alone(degree)
	return t.b.String()
}

type tree struct {
	g     *Graph
	width int
	// columns are fewer in a narrow terminal, so that names stay readable.
	columns []column
	out     map[string][]*Edge
	shown   map[string]bool
	b       strings.Builder
}

type column struct {
	title string
	width int
	cell  func(*Edge) string
}

// The columns to the right of the tree, the most wanted first.
var columns = []column{
	{"req/s", 9, func(e *Edge) string { return PerSecond(e.Best().TransactionsPerSecond) }},
	{"p50", 10, func(e *Edge) string { return Duration(e.Best().P50) }},
	{"p99", 10, func(e *Edge) string { return Duration(e.Best().P99) }},
	{"bytes/s", 11, func(e *Edge) string { return BytesPerSecond(e.Best().bytesPerSecond()) }},
	{"seen by", 8, seenBy},
}

func seenBy(e *Edge) string {
	switch {
	case e.Paired:
		return "both"
	case e.ClientSide != nil && e.ServerSide != nil:
		return "both?"
	case e.ClientSide != nil:
		return "client"
	}
	return "server"
}

func (s *Side) bytesPerSecond() *float64 {
	if s.RequestBytesPerSecond == nil || s.ResponseBytesPerSecond == nil {
		return nil
	}
	sum := *s.RequestBytesPerSecond + *s.ResponseBytesPerSecond
	return &sum
}

func (e *Edge) busy() float64 { return e.Best().Of(Transactions) }

func (t *tree) nameWidth() int {
	w := t.width
	for _, c := range t.columns {
		w -= c.width
	}
	return max(w, 16)
}

func (t *tree) line(left string, cells func(i int) string) {
	w := t.nameWidth()
	left = cut(left, w)
	line := left + strings.Repeat(" ", w-utf8.RuneCountInString(left))
	for i, c := range t.columns {
		cell := cells(i)
		line += strings.Repeat(" ", max(1, c.width-utf8.RuneCountInString(cell))) + cell
	}
	t.b.WriteString(strings.TrimRight(line, " ") + "\n")
}

func (t *tree) header() {
	if len(t.g.Edges) == 0 {
		t.b.WriteString("No traffic was seen.\n")
		return
	}
	t.line("", func(i int) string { return t.columns[i].title })
}

func (t *tree) root(id string) {
	if len(t.out[id]) == 0 {
		return
	}
	t.b.WriteString(cut(t.name(id), t.width) + "\n")
	t.children(id, "")
}

func (t *tree) children(id, indent string) {
	t.shown[id] = true
	edges := t.out[id]
	for i, e := range edges {
		branch, below := "├─▶ ", "│   "
		if i == len(edges)-1 {
			branch, below = "└─▶ ", "    "
		}
		again := t.shown[e.Server] && len(t.out[e.Server]) > 0
		name := t.name(e.Server) + mark(e)
		if again {
			name += " ↑"
		}
		t.line(indent+branch+name, func(i int) string { return t.columns[i].cell(e) })
		if !again {
			t.children(e.Server, indent+below)
		}
	}
}

// mark says what is not a sequence of requests over TCP.
func mark(e *Edge) string {
	switch best := e.Best(); {
	case e.Transport == model.TCP.String():
		return ""
	case best.Of(OneWay) > 0 && best.Of(Transactions) == 0:
		return " (" + e.Transport + ", one way)"
	}
	return " (" + e.Transport + ")"
}

func (t *tree) name(id string) string {
	n := t.g.Node(id)
	if n == nil {
		return Clean(id)
	}
	name := Clean(n.Name)
	if n.AddressCount > 1 {
		name += fmt.Sprintf(" (%d addresses)", n.AddressCount)
	}
	return name
}

// alone lists the containers without an edge, so that the tree leaves none out.
func (t *tree) alone(degree map[string]int) {
	var names []string
	for _, n := range t.g.Nodes {
		if degree[n.ID] == 0 && n.Kind != KindOutside {
			names = append(names, t.name(n.ID))
		}
	}
	if len(names) > 0 {
		t.b.WriteString("\nNo traffic seen: " + strings.Join(names, ", ") + "\n")
	}
	if t.g.OmittedEdges > 0 {
		fmt.Fprintf(&t.b, "\n%d less busy edges are left out.\n", t.g.OmittedEdges)
	}
	if t.g.HiddenEdges > 0 {
		fmt.Fprintf(&t.b, "\n%d edges are below the share that is shown.\n", t.g.HiddenEdges)
	}
	if u := t.g.Unplaced; u != nil {
		bytes := u.Of(RequestBytes) + u.Of(ResponseBytes)
		fmt.Fprintf(&t.b, "\n%s are in no edge: the kernel's table of edges was full.\n", Bytes(&bytes))
	}
}

// entries is an order of nodes to begin with: those that nobody calls, busiest first; then, for
// what only cycles reach, those that call more than they are called.
func entries(g *Graph) []string {
	type score struct {
		id      string
		callers int
		in, out float64
	}
	scores := make([]score, len(g.Nodes))
	at := map[string]*score{}
	for i, n := range g.Nodes {
		scores[i].id = n.ID
		at[n.ID] = &scores[i]
	}
	for _, e := range g.Edges {
		if e.Client == e.Server {
			continue
		}
		at[e.Client].out += e.busy()
		at[e.Server].in += e.busy()
		at[e.Server].callers++
	}
	slices.SortStableFunc(scores, func(x, y score) int {
		return cmp.Or(cmp.Compare(min(x.callers, 1), min(y.callers, 1)), cmp.Compare(y.out-y.in, x.out-x.in))
	})
	ids := make([]string, len(scores))
	for i, s := range scores {
		ids[i] = s.id
	}
	return ids
}

// Text is the analysis and the critical path, nil for none, for a terminal. Names are cleaned.
func (a *Analysis) Text(p *Path) string {
	var b strings.Builder
	if len(a.Entries) == 0 {
		return "No requests came in from outside of the containers.\n"
	}
	for _, e := range a.Entries {
		rate := e.ArrivalRate
		fmt.Fprintf(&b, "Requests come in at %s: %s.\n", Clean(e.Name), PerSecond(&rate))
	}
	a.saturation(&b)
	a.table(&b)
	if p != nil {
		p.text(&b)
	}
	return b.String()
}

func (a *Analysis) saturation(b *strings.Builder) {
	if a.SaturationRate == nil {
		return
	}
	r := a.Resources[0]
	fmt.Fprintf(b, "The first limit is %s (%s), at about %s, %.1f times what comes in now.\n", Clean(r.Name), r.Limit(),
		PerSecond(a.SaturationRate), *a.Extrapolation)
	if *a.Extrapolation > 4 {
		b.WriteString("That is far away: the estimate takes for granted that CPU time grows as requests do. Look again under more load.\n")
	}
}

func (a *Analysis) table(b *strings.Builder) {
	b.WriteByte('\n')
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "resource\tused\tof\tserves\tcould serve\tCPU per request at the entry\tanswers in\t")
	for _, r := range a.Resources {
		demand := "-"
		if r.Demand != nil {
			cpu := Seconds(r.CPUCores / a.ArrivalRate)
			demand = Duration(&cpu)
		}
		fmt.Fprintf(w, "%s\t%.1f %%\t%s\t%s\t%s\t%s\t%s\t\n", Clean(r.Name), 100*r.Utilisation, r.Limit(),
			PerSecond(r.ArrivalRate), PerSecond(r.MaxArrivalRate), demand, Duration(r.Latency))
	}
	w.Flush()
}

func (p *Path) text(b *strings.Builder) {
	if p.Statistic == Mean {
		p.meanText(b)
		return
	}
	fmt.Fprintf(b, "\nCritical path by %s: a request to %s takes %s at %s. Those of several calls do not add up; the parts of the mean do (--percentile mean).\n\n",
		p.Statistic, Clean(p.Hops[0].Name), Duration(p.Whole), p.Statistic)
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "  hop\tits call takes, %s\tanswers all in, %s\t\n", p.Statistic, p.Statistic)
	for i, h := range p.Hops {
		fmt.Fprintf(w, "  %s\t%s\t%s\t\n", h.branch(i), Duration(h.Weight), Duration(h.Served))
	}
	w.Flush()
}

// meanText has the parts of each hop, and their sum.
func (p *Path) meanText(b *strings.Builder) {
	fmt.Fprintf(b, "\nCritical path by the mean: a request to %s takes %s, of which\n\n", Clean(p.Hops[0].Name),
		Duration(p.Whole))
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "  hop\tcalls\ta call takes\tnetwork\tof it own\tother servers\ttogether\t")
	whole := 0.0
	for i, h := range p.Hops {
		o := h.OfRequest
		if o == nil {
			continue
		}
		own := seconds(o.Own)
		if h.Concurrent {
			own = "calls at a time"
		}
		fmt.Fprintf(w, "  %s\t%.3g\t%s\t%s\t%s\t%s\t%s\t\n", h.branch(i), o.Calls, Duration(h.Weight),
			seconds(o.Network), own, seconds(o.Others), seconds(o.Seconds()))
		whole += o.Seconds()
	}
	fmt.Fprintf(w, "  sum\t\t\t\t\t\t%s\t\n", seconds(whole))
	w.Flush()
}

func seconds(v float64) string {
	if v == 0 {
		return "0"
	}
	s := Seconds(v)
	return Duration(&s)
}

// branch is the hop's name, below the hop before.
func (h *Hop) branch(i int) string {
	if i == 0 {
		return Clean(h.Name)
	}
	return strings.Repeat("   ", i-1) + "└─▶ " + Clean(h.Name)
}
