package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"outsight/internal/graph"
)

// column of the table of containers.
type column struct {
	// name in --sort, empty for what cannot be sorted by; key that sorts by it.
	name, key, title string
	width            int
	// need is the order in which columns give way in a narrow terminal: 0 never does.
	need int
	// optional columns are left out where they say nothing.
	optional bool
	cell     func(*graph.Node) string
	// value to sort by; NaN sorts last.
	value func(*graph.Node) float64
	// alarm tells a value that a reader should look at.
	alarm func(*graph.Node) bool
}

const (
	nameWidthMin, nameWidthMax = 16, 40
	imageWidthMin              = 16
	gap                        = 2
	leastNeed                  = 8
)

// columns after the name, in order.
var columns = []column{
	{name: "cpu", key: "c", title: "CPU", width: 7,
		cell:  func(n *graph.Node) string { return percent(usage(n).CPUCores) },
		value: func(n *graph.Node) float64 { return value(usage(n).CPUCores) }},
	{name: "wait", key: "w", title: "wait p99", width: 9, need: 4,
		cell:  func(n *graph.Node) string { return graph.Duration(usage(n).RunQueueP99) },
		value: func(n *graph.Node) float64 { return seconds(usage(n).RunQueueP99) },
		alarm: func(n *graph.Node) bool { return seconds(usage(n).RunQueueP99) >= 0.02 }},
	{name: "throttled", key: "h", title: "throttled", width: 9, need: 5, optional: true,
		cell:  func(n *graph.Node) string { return percent(usage(n).ThrottledShare) },
		value: func(n *graph.Node) float64 { return value(usage(n).ThrottledShare) },
		alarm: func(n *graph.Node) bool { return value(usage(n).ThrottledShare) > 0 }},
	{name: "memory", key: "m", title: "memory", width: 9,
		cell:  func(n *graph.Node) string { return graph.Bytes(usage(n).WorkingSetBytes) },
		value: func(n *graph.Node) float64 { return value(usage(n).WorkingSetBytes) },
		alarm: func(n *graph.Node) bool { return limitShare(n) >= 0.9 }},
	{name: "limit", key: "", title: "of limit", width: 8, need: 6, optional: true,
		cell: func(n *graph.Node) string {
			if s := limitShare(n); !math.IsNaN(s) {
				return percent(&s)
			}
			return "–"
		},
		value: limitShare,
		alarm: func(n *graph.Node) bool { return limitShare(n) >= 0.9 }},
	{name: "net", key: "n", title: "net in", width: 10, need: 3,
		cell: func(n *graph.Node) string { return graph.BytesPerSecond(usage(n).NetworkReceiveBytes) },
		value: func(n *graph.Node) float64 {
			return sum(usage(n).NetworkReceiveBytes, usage(n).NetworkTransmitBytes)
		}},
	{title: "net out", width: 10, need: 3,
		cell: func(n *graph.Node) string { return graph.BytesPerSecond(usage(n).NetworkTransmitBytes) }},
	{name: "disk", key: "d", title: "disk read", width: 10, need: 7,
		cell:  func(n *graph.Node) string { return graph.BytesPerSecond(usage(n).DiskReadBytes) },
		value: func(n *graph.Node) float64 { return sum(usage(n).DiskReadBytes, usage(n).DiskWriteBytes) }},
	{title: "disk write", width: 10, need: 7,
		cell: func(n *graph.Node) string { return graph.BytesPerSecond(usage(n).DiskWriteBytes) }},
	{name: "requests", key: "r", title: "served", width: 8,
		cell:  func(n *graph.Node) string { return graph.PerSecond(served(n).TransactionsPerSecond) },
		value: func(n *graph.Node) float64 { return value(served(n).TransactionsPerSecond) }},
	{title: "p50", width: 9, need: 2,
		cell: func(n *graph.Node) string { return graph.Duration(served(n).P50) }},
	{name: "latency", key: "l", title: "p99", width: 9, need: 1,
		cell:  func(n *graph.Node) string { return graph.Duration(served(n).P99) },
		value: func(n *graph.Node) float64 { return seconds(served(n).P99) }},
	{name: "threads", key: "t", title: "threads", width: 7, need: 8,
		cell:  func(n *graph.Node) string { return count(usage(n).Threads) },
		value: func(n *graph.Node) float64 { return value(usage(n).Threads) }},
}

// byName is the sort column of those that want none of the numbers.
const byName = -1

// columnNamed is the index of the column that --sort names, byName for "name", less for none.
func columnNamed(name string) int {
	if name == "name" {
		return len(columns)
	}
	return slices.IndexFunc(columns, func(c column) bool { return c.name != "" && c.name == name })
}

func sortNames() string {
	names := []string{"name"}
	for _, c := range columns {
		if c.name != "" {
			names = append(names, c.name)
		}
	}
	return strings.Join(names, ", ")
}

// table is the containers of a look, as text.
type table struct {
	look
	// sort is a column, or len(columns) for the name.
	sort    int
	reverse bool
	filter  string
	// width of the terminal; 0 is as wide as it takes.
	width int
}

// rows are the containers to show, in order.
func (t *table) rows() []*graph.Node {
	var rows []*graph.Node
	wanted := strings.ToLower(t.filter)
	for _, n := range t.graph.Nodes {
		if n.Kind != graph.KindOutside && (strings.Contains(strings.ToLower(n.Name), wanted) || strings.Contains(strings.ToLower(n.Image), wanted)) {
			rows = append(rows, n)
		}
	}
	slices.SortStableFunc(rows, func(a, b *graph.Node) int {
		order := 0
		if t.sort < len(columns) {
			order = compareLargestFirst(columns[t.sort].value(a), columns[t.sort].value(b))
		}
		order = cmp.Or(order, cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
		if t.reverse {
			return -order
		}
		return order
	})
	return rows
}

func compareLargestFirst(a, b float64) int {
	switch {
	case math.IsNaN(a) && math.IsNaN(b):
		return 0
	case math.IsNaN(a):
		return 1
	case math.IsNaN(b):
		return -1
	}
	return cmp.Compare(b, a)
}

// layout is which columns there is room for, and how wide name and image are.
type layout struct {
	shown       []int
	name, image int
}

func (t *table) layout(rows []*graph.Node) layout {
	l := layout{name: nameWidthMin}
	name, image := 0, 0
	for _, n := range rows {
		name = max(name, ansi.StringWidth(graph.Clean(n.Name)))
		image = max(image, ansi.StringWidth(graph.Clean(n.Image)))
	}
	// Columns of one need come and go together; the most needed first, and what there is no
	// room for makes room for less.
	for need := 0; need <= leastNeed; need++ {
		with := l
		for i, c := range columns {
			if c.need == need && !c.empty(rows) {
				with.shown = append(with.shown, i)
			}
		}
		if need == 0 || t.width == 0 || with.numbers()+with.name <= t.width {
			l = with
		}
	}
	slices.Sort(l.shown)
	if t.width == 0 {
		l.name, l.image = max(l.name, name), image
		return l
	}
	l.name = max(nameWidthMin, min(name, nameWidthMax, t.width-l.numbers()))
	if room := t.width - l.numbers() - l.name - gap; room >= imageWidthMin {
		l.image = min(room, image)
	}
	return l
}

// empty tells a column that says nothing of any container and is not missed.
func (c column) empty(rows []*graph.Node) bool {
	return c.optional && !slices.ContainsFunc(rows, func(n *graph.Node) bool { return !math.IsNaN(c.value(n)) && c.value(n) > 0 })
}

// numbers is the width of the columns between name and image.
func (l layout) numbers() int {
	w := 0
	for _, i := range l.shown {
		w += gap + columns[i].width
	}
	return w
}

// plain is the table without colours.
func (t *table) plain() string {
	rows := t.rows()
	l := t.layout(rows)
	lines := append(t.summary(), "", t.header(l, func(_ int, s string) string { return s }))
	for _, n := range rows {
		lines = append(lines, t.row(l, n, func(_ int, s string) string { return s }))
	}
	for i, line := range lines {
		if t.width > 0 {
			line = ansi.Truncate(line, t.width, "…")
		}
		lines[i] = strings.TrimRight(line, " ")
	}
	return strings.Join(lines, "\n") + "\n"
}

// summary tells of the whole host, and how far to trust the numbers.
func (t *table) summary() []string {
	h, self := t.to.Host, t.to.Self
	used := t.cores + t.otherCores
	lines := []string{
		fmt.Sprintf("%s · kernel %s · %s · the %.1f s to %s", graph.Clean(h.Name), h.Kernel, plural(running(t.to), "container"),
			t.seconds, t.to.Time.Local().Format(time.TimeOnly)),
		fmt.Sprintf("CPU %.2f of %d cores · memory %s of %s · %s requests · agent %s of a core, %s",
			used, h.Cores, bytesText(t.memory), bytesText(float64(h.MemoryBytes)), graph.PerSecond(&t.requests),
			percent(&t.agentCores), bytesText(float64(self.RSSBytes))),
	}
	return append(lines, t.trust())
}

// trust says what share of the truth the numbers are.
func (t *table) trust() string {
	share := t.accounted()
	text := fmt.Sprintf("%.1f %% of the CPU time accounted for", 100*share)
	if len(t.dropped) == 0 {
		return text + ", nothing dropped"
	}
	var parts []string
	for _, d := range t.dropped {
		parts = append(parts, fmt.Sprintf("%d in %s", d.Count, d.Name))
	}
	return text + ", dropped: " + strings.Join(parts, ", ") + " (see: outsight doctor)"
}

// paint colours a cell that has its final width; the column is -1 for the name, len(columns)
// for the image.
type paint func(column int, cell string) string

func (t *table) header(l layout, paint paint) string {
	line := paint(byName, pad("container", l.name, true))
	for _, i := range l.shown {
		line += strings.Repeat(" ", gap) + paint(i, pad(columns[i].title, columns[i].width, false))
	}
	if l.image > 0 {
		line += strings.Repeat(" ", gap) + paint(len(columns), pad("image", l.image, true))
	}
	return line
}

func (t *table) row(l layout, n *graph.Node, paint paint) string {
	name := graph.Clean(n.Name)
	if n.Gone {
		name += " (ended)"
	}
	line := paint(byName, pad(name, l.name, true))
	for _, i := range l.shown {
		line += strings.Repeat(" ", gap) + paint(i, pad(columns[i].cell(n), columns[i].width, false))
	}
	if l.image > 0 {
		line += strings.Repeat(" ", gap) + paint(len(columns), pad(graph.Clean(n.Image), l.image, true))
	}
	return line
}

// pad makes s exactly width cells wide.
func pad(s string, width int, left bool) string {
	s = ansi.Truncate(s, width, "…")
	fill := strings.Repeat(" ", max(0, width-ansi.StringWidth(s)))
	if left {
		return s + fill
	}
	return fill + s
}

var (
	noUsage graph.Usage
	noSide  graph.Side
)

func usage(n *graph.Node) *graph.Usage {
	if n.Usage == nil {
		return &noUsage
	}
	return n.Usage
}

func served(n *graph.Node) *graph.Side {
	if n.Served == nil {
		return &noSide
	}
	return n.Served
}

// number is 0 and value is NaN for what could not be had.
func number(v *float64) float64 {
	if v == nil {
		return 0
	}
	return *v
}

func value(v *float64) float64 {
	if v == nil {
		return math.NaN()
	}
	return *v
}

func seconds(s *graph.Seconds) float64 {
	if s == nil {
		return math.NaN()
	}
	return float64(*s)
}

func sum(a, b *float64) float64 { return value(a) + value(b) }

func limitShare(n *graph.Node) float64 {
	u := usage(n)
	if number(u.MemoryLimitBytes) == 0 {
		return math.NaN()
	}
	return value(u.WorkingSetBytes) / *u.MemoryLimitBytes
}

// percent writes a share: "71.2 %".
func percent(v *float64) string {
	switch {
	case v == nil:
		return "–"
	case *v == 0:
		return "0 %"
	case *v < 0.0005:
		return "<0.1 %"
	}
	return fmt.Sprintf("%.1f %%", 100**v)
}

func count(v *float64) string {
	if v == nil {
		return "–"
	}
	return fmt.Sprintf("%.0f", *v)
}

func bytesText(v float64) string { return graph.Bytes(&v) }
