package main

import (
	"fmt"
	"math"
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"outsight/internal/graph"
)

// topView is the table on a terminal.
type topView struct {
	table  table
	from   string
	height int
	offset int
	paused bool
	// typing is true while a filter is being written.
	typing bool
	ready  bool
}

func newTopView(o topOptions, from string) *topView {
	return &topView{table: table{sort: columnNamed(o.sort), filter: o.filter, width: 80}, from: from, height: 24}
}

func (v *topView) Init() tea.Cmd { return nil }

func (v *topView) Update(message tea.Msg) (tea.Model, tea.Cmd) {
	switch m := message.(type) {
	case look:
		if !v.paused || !v.ready {
			v.table.look = m
			v.ready = m.from != m.to
		}
	case tea.WindowSizeMsg:
		v.table.width, v.height = m.Width, m.Height
	case tea.KeyPressMsg:
		if m.String() == "ctrl+c" {
			return v, tea.Quit
		}
		if v.typing {
			v.typeFilter(m)
			return v, nil
		}
		return v, v.press(m.String())
	}
	return v, nil
}

func (v *topView) press(key string) tea.Cmd {
	switch key {
	case "q", "esc":
		return tea.Quit
	case "/":
		v.typing = true
	case "p", "space":
		v.paused = !v.paused
	case "i":
		v.table.reverse = !v.table.reverse
	case "a":
		v.sortBy(len(columns))
	case "left":
		v.moveSort(-1)
	case "right":
		v.moveSort(1)
	case "up", "k":
		v.offset--
	case "down", "j":
		v.offset++
	case "pgup":
		v.offset -= v.room()
	case "pgdown":
		v.offset += v.room()
	case "home", "g":
		v.offset = 0
	case "end", "G":
		v.offset = math.MaxInt32
	default:
		if i := slices.IndexFunc(columns, func(c column) bool { return c.key != "" && c.key == key }); i >= 0 {
			v.sortBy(i)
		}
	}
	return nil
}

func (v *topView) sortBy(i int) { v.table.sort, v.table.reverse, v.offset = i, false, 0 }

// moveSort goes to the next column on the screen that can be sorted by.
func (v *topView) moveSort(step int) {
	shown := append([]int{len(columns)}, v.table.layout(v.table.rows()).shown...)
	shown = slices.DeleteFunc(shown, func(i int) bool { return i < len(columns) && columns[i].value == nil })
	at := max(0, slices.Index(shown, v.table.sort))
	v.sortBy(shown[min(max(at+step, 0), len(shown)-1)])
}

func (v *topView) typeFilter(m tea.KeyPressMsg) {
	switch m.String() {
	case "enter":
		v.typing = false
	case "esc":
		v.typing, v.table.filter = false, ""
	case "backspace":
		if runes := []rune(v.table.filter); len(runes) > 0 {
			v.table.filter = string(runes[:len(runes)-1])
		}
	case "ctrl+u":
		v.table.filter = ""
	default:
		v.table.filter += m.Key().Text
	}
	v.offset = 0
}

// Styles use the terminal's own colours, so that they suit a light one and a dark one.
func style(codes, s string) string { return "\x1b[" + codes + "m" + s + "\x1b[m" }

const (
	bold   = "1"
	dim    = "2"
	green  = "32"
	yellow = "33"
	red    = "1;31"
	cyan   = "36"
	invert = "7"
)

func (v *topView) View() tea.View {
	view := tea.NewView(v.text())
	view.AltScreen = true
	view.WindowTitle = "outsight top"
	return view
}

func (v *topView) text() string {
	if !v.ready {
		return style(bold, " outsight top") + style(dim, " · "+v.from) + "\n\n Counting for a second …"
	}
	t := &v.table
	rows := t.rows()
	l := t.layout(rows)
	room := v.room()
	v.offset = max(0, min(v.offset, len(rows)-room))
	lines := v.top()
	lines = append(lines, "", t.header(l, v.paintHeader))
	for _, n := range rows[v.offset:min(v.offset+room, len(rows))] {
		lines = append(lines, v.row(l, n))
	}
	if len(rows) == 0 {
		lines = append(lines, style(dim, "no container has "+fmt.Sprintf("%q", t.filter)+" in its name or image"))
	}
	for len(lines) < v.height-1 {
		lines = append(lines, "")
	}
	lines = append(lines[:max(0, v.height-1)], v.footer(len(rows), room))
	for i := range lines {
		lines[i] = ansi.Truncate(lines[i], t.width, "…")
	}
	return strings.Join(lines, "\n")
}

// room is how many containers there is room for.
func (v *topView) room() int {
	lines := topLines
	if v.table.waitsKnown {
		lines++
	}
	return max(1, v.height-lines-3)
}

// topLines is the number of lines of top, without that of who waited.
const topLines = 3

// top is the summary, with a bar of the CPUs.
func (v *topView) top() []string {
	t := &v.table
	plain := t.summary()
	used := (t.cores + t.otherCores) / max(t.host.Cores, 1)
	first, others, _ := strings.Cut(plain[0], " · ")
	lines := []string{
		style(bold+";"+cyan, first) + style(dim, " · "+others),
		bar(used, 16) + " " + plain[1],
		plain[2],
	}
	if len(t.dropped) > 0 || t.accounted() < 0.98 || t.accounted() > 1.02 {
		lines[2] = style(yellow, plain[2])
	} else {
		lines[2] = style(green, "✓ ") + style(dim, plain[2])
	}
	if t.waitsKnown {
		line := style(dim, plain[3])
		if t.longest != nil && t.longest.Rate >= longWait {
			line = style(yellow, plain[3])
		}
		lines = append(lines, line)
	}
	return lines
}

// bar shows a share in eighths of a cell.
func bar(share float64, width int) string {
	share = max(0, min(share, 1))
	eighths := int(math.Round(share * float64(width) * 8))
	full, part := eighths/8, eighths%8
	cells := strings.Repeat("█", full)
	if part > 0 {
		cells += string([]rune("▏▎▍▌▋▊▉")[part-1])
	}
	colour := green
	if share >= 0.9 {
		colour = red
	} else if share >= 0.7 {
		colour = yellow
	}
	return style(colour, cells) + style(dim, strings.Repeat("░", width-ansi.StringWidth(cells)))
}

func (v *topView) paintHeader(i int, cell string) string {
	sorted := i == v.table.sort || i == byName && v.table.sort == len(columns)
	if i == len(columns) || !sorted {
		return style(dim, cell)
	}
	return style(bold+";"+cyan, cell)
}

func (v *topView) row(l layout, n row) string {
	return v.table.row(l, n, func(i int, cell string) string {
		switch {
		case i == byName && n.Gone, i == len(columns):
			return style(dim, cell)
		case i == byName && n.Kind == graph.KindHost:
			return style(dim, cell)
		case i == byName:
			return style(bold, cell)
		case columns[i].alarm != nil && columns[i].alarm(n):
			return style(red, cell)
		case quiet(cell):
			return style(dim, cell)
		case i == v.table.sort:
			return style(cyan, cell)
		}
		return cell
	})
}

// quiet reports cells that say that nothing happened.
func quiet(cell string) bool {
	switch strings.TrimSpace(cell) {
	case "–", "0", "0 %", "0/s", "0 B/s", "<0.1 %", "0.0 %":
		return true
	}
	return false
}

func (v *topView) footer(rows, room int) string {
	if v.typing {
		return style(invert, " filter: "+v.table.filter+"▏") + style(dim, " enter keeps it, esc clears it")
	}
	var keys []string
	for _, c := range columns {
		if c.key != "" {
			keys = append(keys, style(bold, c.key)+style(dim, " "+c.name))
		}
	}
	keys = append(keys, style(bold, "a")+style(dim, " name"), style(bold, "i")+style(dim, " invert"),
		style(bold, "/")+style(dim, " filter"),
		style(bold, "p")+style(dim, " pause"))
	line := style(bold, "q") + style(dim, " quit") + "  "
	if v.paused {
		line += style(invert, " paused ") + "  "
	}
	if v.table.filter != "" {
		line += style(invert, fmt.Sprintf(" filter: %s ", v.table.filter)) + "  "
	}
	if rows > room {
		line += style(dim, fmt.Sprintf("%d–%d of %d", v.offset+1, min(v.offset+room, rows), rows)) + "  "
	}
	return line + strings.Join(keys, "  ")
}
