package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"outsight/internal/frame"
	"outsight/internal/model"
)

// twoSeconds are two snapshots a second apart: web works half a core, db holds the most memory
// near its limit, and the rest of two cores is idle.
func twoSeconds() (from, to *model.Snapshot) {
	begin := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	container := func(name string, runtime model.Runtime) *model.Container {
		return &model.Container{ID: "id-" + name, Name: name, Image: name + ":1", Runtime: runtime,
			Started: begin.Add(-time.Hour)}
	}
	web, db, host := container("web", model.Docker), container("db", model.Docker), container("host", model.HostRuntime)
	host.Image = ""
	at := func(second uint64) *model.Snapshot {
		sample := func(c *model.Container, cpu, memory, limit uint64) model.ContainerSample {
			s := model.ContainerSample{Container: c, CPU: &model.CPUCounters{UsageNS: second * cpu},
				Processes: &model.ProcessCounters{Threads: 3}}
			if memory > 0 {
				s.Memory = &model.MemorySample{UsageBytes: memory, WorkingSetBytes: memory, LimitBytes: limit}
				s.Network = &model.NetworkCounters{ReceiveBytes: second * 2000, TransmitBytes: second * 500}
			}
			return s
		}
		return &model.Snapshot{
			Time: begin.Add(time.Duration(second) * time.Second), Window: time.Second,
			Host: model.Host{Name: "h1", Kernel: "6.1", Cores: 2, MemoryBytes: 4 << 30},
			Containers: []model.ContainerSample{
				sample(host, 1e8, 0, 0), sample(db, 2e8, 95<<20, 100<<20), sample(web, 5e8, 10<<20, 0),
			},
			Self: model.SelfSample{IdleNS: second * 12e8, CPUNS: second * 3e6, RSSBytes: 20 << 20},
		}
	}
	return at(1), at(2)
}

// framed makes frames of two snapshots of one agent.
func framed(from, to *model.Snapshot) (before, after *frame.Frame) {
	b := frame.NewBuilder(from.Time)
	before = b.Build(from)
	if to == from {
		return before, before
	}
	return before, b.Build(to)
}

func lookOf(from, to *model.Snapshot) look { return newLook(framed(from, to)) }

func TestTable(t *testing.T) {
	from, to := twoSeconds()
	f := func(sort string, reverse bool, filter string, want ...string) {
		t.Helper()
		table := table{look: lookOf(from, to), sort: columnNamed(sort), reverse: reverse, filter: filter}
		var got []string
		for _, n := range table.rows() {
			got = append(got, n.Name)
		}
		if strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("by %s, reverse %v, filter %q: got %v, want %v", sort, reverse, filter, got, want)
		}
	}
	f("cpu", false, "", "web", "db", "host")
	f("cpu", true, "", "host", "db", "web")
	f("memory", false, "", "db", "web", "host")
	f("name", false, "", "db", "host", "web")
	f("latency", false, "", "db", "host", "web") // none has one: by name
	f("cpu", false, "WE", "web")
	f("cpu", false, ":1", "web", "db")
	f("cpu", false, "nothing")

	table := table{look: lookOf(from, to), sort: columnNamed("cpu"), width: 60}
	lines := strings.Split(table.plain(), "\n")
	want := []string{
		"container             CPU     memory    served        p99",
		"web                50.0 %   10.0 MiB         –          –",
		"db                 20.0 %   95.0 MiB         –          –",
		"host               10.0 %          –         –          –",
		"",
	}
	if got := lines[4:]; strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if want := "100.0 % of the CPU time accounted for, nothing dropped"; lines[2] != want {
		t.Errorf("got %q, want %q", lines[2], want)
	}
	table.width = 0
	if text := table.plain(); !strings.Contains(text, "of limit") || !strings.Contains(text, "95.0 %") ||
		strings.Contains(text, "throttled") {
		t.Errorf("want the limit, which db has, and no throttling, which nobody has:\n%s", text)
	}
}

// contended are the same two seconds, in which web waited behind db and its quota, and db hardly.
func contended() (from, to *model.Snapshot) {
	from, to = twoSeconds()
	rest := *to.Containers[0].Container
	rest.ID = model.HostContainerID
	for i, s := range []*model.Snapshot{from, to} {
		ms := uint64(i) * 1e6
		s.Containers[0].Container = &rest
		s.Containers[0].Contention = &model.Contention{ContentionRest: model.ContentionRest{OwnNS: 500 * ms}}
		s.Containers[1].Contention = &model.Contention{ContentionRest: model.ContentionRest{OwnNS: ms / 100}}
		s.Containers[2].Contention = &model.Contention{ContentionRest: model.ContentionRest{QuotaNS: 7 * ms},
			By: []model.Contender{{ID: "id-db", Name: "db", WaitNS: 31 * ms}}}
	}
	return from, to
}

// TestTopTellsWhoWaited: in 80 columns there is room for who waited behind whom, and a line has the worst of it in
// full.
func TestTopTellsWhoWaited(t *testing.T) {
	from, to := contended()
	table := table{look: lookOf(from, to), sort: columnNamed("behind"), width: 80}
	lines := strings.Split(table.plain(), "\n")
	want := []string{
		"web waited 38 ms/s for a CPU: 31 behind db, 7.0 own quota",
		"",
		"container             CPU  waited behind             memory    served        p99",
		"host               10.0 %  500 ms/s itself                –         –          –",
		"web                50.0 %  38 ms/s db              10.0 MiB         –          –",
		"db                 20.0 %  0                       95.0 MiB         –          –",
		"",
	}
	if got := lines[3:]; strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	v := newTopView(topOptions{sort: "behind"}, "test")
	v.Update(lookOf(from, to))
	v.Update(tea.WindowSizeMsg{Width: 80, Height: 9})
	shown := strings.Split(ansi.Strip(v.text()), "\n")
	if len(shown) != 9 || !strings.Contains(shown[3], "31 behind db") || !strings.HasPrefix(shown[7], "web") ||
		!strings.Contains(shown[8], "1–2 of 3") {
		t.Errorf("got\n%s", strings.Join(shown, "\n"))
	}
	// Without waits, and where they are not counted.
	table.look = lookOf(to, to)
	if got := table.summary(); len(got) != 4 || got[3] != "no container waited for a CPU" {
		t.Errorf("got %q", got)
	}
	table.look = lookOf(twoSeconds())
	if text := table.plain(); strings.Contains(text, "waited") {
		t.Errorf("it shows waits that are not counted:\n%s", text)
	}
	text, err := json.Marshal(lookOf(from, to).document(topOptions{sort: "behind"}))
	if err != nil || !strings.Contains(string(text),
		`"line":"web waited 38 ms/s for a CPU: 31 behind db, 7.0 own quota"`) ||
		strings.Count(string(text), `"contention"`) != 3 {
		t.Errorf("got %s, %v", text, err)
	}
}

// TestWhoseCPU: the kernel's part is known only while it keeps statistics.
func TestWhoseCPU(t *testing.T) {
	from, to := twoSeconds()
	f := func(want string) {
		t.Helper()
		table := table{look: lookOf(from, to)}
		if got := table.summary()[1]; !strings.Contains(got, want) {
			t.Errorf("got %q, want %q in it", got, want)
		}
	}
	f("agent process 0.3 % of a core")
	from.Self.Programs = []model.ProgramCost{{Name: "switch", RunTimeNS: 1e6}}
	to.Self.Programs = []model.ProgramCost{{Name: "switch", RunTimeNS: 5e6}}
	f("agent and kernel programs 0.7 % of a core")
}

// The hypervisor's share is said, and completes what files report without it.
func TestTableTellsWhatWasStolen(t *testing.T) {
	from, to := twoSeconds()
	f := func(want string) {
		t.Helper()
		table := table{look: lookOf(from, to)}
		if got := table.trust(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	to.Self.StealNS = 200_000_000 // a tenth of two CPUs in a second
	f("100.0 % of the CPU time accounted for, 10.0 % of it taken by the hypervisor, nothing dropped")
	to.Self.IdleNS -= 500_000_000
	f("85.0 % of the CPU time accounted for, 10.0 % of it taken by the hypervisor, nothing dropped")
}

func TestTableTellsWhatWasDropped(t *testing.T) {
	from, to := twoSeconds()
	from.Self.Drops = []model.Drop{{Name: "edges", Count: 5}, {Name: "old", Count: 9}}
	to.Self.Drops = []model.Drop{{Name: "edges", Count: 12}, {Name: "old", Count: 9}, {Name: "new", Count: 1}}
	table := table{look: lookOf(from, to)}
	if got, want := table.trust(), "100.0 % of the CPU time accounted for, dropped: 7 in edges, 1 in new (see: outsight "+
		"doctor)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestNamesCannotDriveTheTerminal(t *testing.T) {
	from, to := twoSeconds()
	for _, s := range []*model.Snapshot{from, to} {
		evil := *s.Containers[2].Container
		evil.Name, evil.Image = "\x1b[2Jweb\r\n", "\u202eimage\x07"
		s.Containers[2].Container = &evil
	}
	table := table{look: lookOf(from, to)}
	if text := table.plain(); strings.ContainsAny(text, "\x1b\r\x07\u202e") {
		t.Errorf("control characters of a name reach the terminal: %q", text)
	}
}

func TestViewFitsEveryTerminal(t *testing.T) {
	from, to := twoSeconds()
	for i := range 30 {
		for _, s := range []*model.Snapshot{from, to} {
			c := *s.Containers[1].Container
			c.ID, c.Name = fmt.Sprint("more", i), strings.Repeat("容器", i)
			sample := s.Containers[1]
			sample.Container = &c
			s.Containers = append(s.Containers, sample)
		}
	}
	for width := 1; width < 220; width += 7 {
		for _, height := range []int{1, 2, 5, 9, 24, 60} {
			v := newTopView(topOptions{sort: "cpu"}, "test")
			v.Update(lookOf(from, to))
			v.Update(tea.WindowSizeMsg{Width: width, Height: height})
			lines := strings.Split(v.text(), "\n")
			if len(lines) > height {
				t.Errorf("%dx%d: %d lines", width, height, len(lines))
			}
			for _, line := range lines {
				if w := ansi.StringWidth(line); w > width {
					t.Errorf("%dx%d: a line of %d cells: %q", width, height, w, line)
				}
			}
		}
	}
}

func TestKeys(t *testing.T) {
	from, to := twoSeconds()
	v := newTopView(topOptions{sort: "cpu"}, "test")
	v.Update(lookOf(from, to))
	v.Update(tea.WindowSizeMsg{Width: 150, Height: 20})
	press := func(keys ...string) (quits bool) {
		for _, k := range keys {
			m := tea.KeyPressMsg{Text: k, Code: []rune(k)[0]}
			switch k {
			case "enter":
				m = tea.KeyPressMsg{Code: tea.KeyEnter}
			case "esc":
				m = tea.KeyPressMsg{Code: tea.KeyEscape}
			case "right":
				m = tea.KeyPressMsg{Code: tea.KeyRight}
			case "backspace":
				m = tea.KeyPressMsg{Code: tea.KeyBackspace}
			}
			_, command := v.Update(m)
			quits = command != nil
		}
		return quits
	}
	first := func(want string) {
		t.Helper()
		rows := v.table.rows()
		if len(rows) == 0 || rows[0].Name != want {
			t.Errorf("%s is not first of %d containers", want, len(rows))
		}
	}
	first("web")
	press("m")
	first("db")
	press("a", "i")
	first("web")
	press("c")
	first("web")
	press("right")
	if got := columns[v.table.sort].name; got != "wait" {
		t.Errorf("right of CPU is %q, want wait", got)
	}
	press("/", "d", "q", "backspace", "b", "enter")
	first("db")
	if v.table.filter != "db" || len(v.table.rows()) != 1 {
		t.Errorf("the filter is %q", v.table.filter)
	}
	press("/", "esc")
	if v.table.filter != "" || v.typing {
		t.Errorf("esc left the filter %q", v.table.filter)
	}
	press("p")
	before := v.table.to
	v.Update(lookOf(to, to))
	if v.table.to != before {
		t.Error("a paused table changed")
	}
	if !press("q") {
		t.Error("q does not quit")
	}
}

func TestWindow(t *testing.T) {
	w := window{length: 2 * time.Second}
	at := func(ms int) *frame.Frame {
		return &frame.Frame{Header: frame.Header{
			Time: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(ms) * time.Millisecond)}}
	}
	f := func(ms, wantSpan int, wantFull bool) {
		t.Helper()
		s := at(ms)
		oldest, full := w.add(s)
		if span := s.Time.Sub(oldest.Time); span != time.Duration(wantSpan)*time.Millisecond || full != wantFull {
			t.Errorf("at %d ms: %v, full %v; want %d ms, full %v", ms, span, full, wantSpan, wantFull)
		}
	}
	f(300, 0, false)
	f(1000, 700, false)
	f(2000, 1700, false)
	f(3000, 2000, true)
	f(4001, 2001, true)
	f(4990, 1990, true)
	f(9000, 4010, true)
}
