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

// row is a container of the table.
type row struct {
	*graph.Node
	// wait is what it waited for a CPU behind, nil where it did not; waitKnown is whether that is counted at all.
	wait      *graph.Wait
	waitKnown bool
}

// rows are the containers to show, in order.
func (t *table) rows() []row {
	var rows []row
	wanted := strings.ToLower(t.filter)
	for _, n := range t.graph.Nodes {
		if n.Kind != graph.KindOutside && (strings.Contains(strings.ToLower(n.Name), wanted) ||
			strings.Contains(strings.ToLower(n.Image), wanted)) {
			rows = append(rows, row{n, t.waits[n.ID], t.waitsKnown && n.Usage != nil})
		}
	}
	slices.SortStableFunc(rows, func(a, b row) int {
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

func (t *table) layout(rows []row) layout {
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

// empty reports a column that says nothing of any container and is not missed.
func (c column) empty(rows []row) bool {
	return c.optional && !slices.ContainsFunc(rows, func(n row) bool { return !math.IsNaN(c.value(n)) && c.value(n) > 0 })
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

// summary is of the whole host, and says how far to trust the numbers.
func (t *table) summary() []string {
	h := &t.host
	used := t.cores + t.otherCores
	whose := "agent process"
	if t.programsKnown {
		whose = "agent and kernel programs"
	}
	lines := []string{
		fmt.Sprintf("%s · kernel %s · %s · the %.1f s to %s", graph.Clean(h.Name), h.Kernel,
			plural(running(t.to), "container"),
			t.seconds, t.to.Time.Local().Format(time.TimeOnly)),
		fmt.Sprintf("CPU %.2f of %d cores · memory %s of %s · %s requests · %s %s of a core, %s",
			used, int(h.Cores), bytesText(t.memory), bytesText(number(h.MemoryBytes)), graph.PerSecond(&t.requests),
			whose, percent(&t.agentCores), bytesText(h.AgentMemoryBytes)),
	}
	lines = append(lines, t.trust())
	if t.waitsKnown {
		lines = append(lines, t.longestWait())
	}
	return lines
}

// leastWait is from which rate on a wait is worth a line, in ms per second.
const leastWait = 1

// longestWait says of the container that waited longest for a CPU what it waited behind.
func (t *table) longestWait() string {
	if t.longest == nil || t.longest.Rate < leastWait {
		return "no container waited for a CPU"
	}
	return t.longest.Line
}

// leastStolen is from which share on stolen CPU time is worth words.
const leastStolen = 0.001

// trust says what share of the truth the numbers are.
func (t *table) trust() string {
	share := t.accounted()
	text := fmt.Sprintf("%.1f %% of the CPU time accounted for", 100*share)
	if stolen := t.stolen(); stolen >= leastStolen {
		text += fmt.Sprintf(", %.1f %% of it taken by the hypervisor", 100*stolen)
	}
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
		line += strings.Repeat(" ", gap) + paint(i, pad(columns[i].title, columns[i].width, columns[i].left))
	}
	if l.image > 0 {
		line += strings.Repeat(" ", gap) + paint(len(columns), pad("image", l.image, true))
	}
	return line
}

func (t *table) row(l layout, n row, paint paint) string {
	name := graph.Clean(n.Name)
	if n.Gone {
		name += " (ended)"
	}
	line := paint(byName, pad(name, l.name, true))
	for _, i := range l.shown {
		line += strings.Repeat(" ", gap) + paint(i, pad(columns[i].cell(n), columns[i].width, columns[i].left))
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
