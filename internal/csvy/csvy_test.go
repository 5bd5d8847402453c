package csvy

import (
	"bufio"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the golden files instead of comparing them")

var nan = math.NaN()

const containerID = "5c1f0e3d9a7b46828f1e0d2c3b4a59687766554433221100ffeeddccbbaa9988"

var start = time.Unix(1790000000, 123456789)

// exampleHead is a head with everything in it, texts that need quotes included.
func exampleHead(version int, columns ...string) Head {
	h := Head{
		Version: "0.4", Provider: "docker", CgroupVersion: version, Cgroup: "system.slice/docker-" + containerID + ".scope",
		Driver:   "systemd",
		Interval: 50 * time.Millisecond, FileInterval: time.Second, Started: start, MonotonicNS: 777_000_000_000,
		Polled: start.Add(-time.Second), Part: 1,
		Container: Container{
			ID: containerID, Name: "shop-cart", Image: "shop:1.0", Command: `sh -c "sleep 1; echo 'ü'"`, Status: "Up 4 seconds",
			Runtime: "docker",
			Labels:  map[string]string{"tier": "back: end", "on": "yes", "empty": ""}, Created: start.Add(-time.Hour),
		},
		Host: Host{
			Name: "node-1", System: "Linux", Kernel: "6.18.1", Cores: 4, OnlineCores: 2, MHz: 2200, MemoryBytes: 8 << 30,
			SwapBytes:    1 << 30,
			Distribution: map[string]string{"ID": "debian", "NAME": "Debian GNU/Linux", "VERSION_ID": "12"},
		},
	}
	for _, name := range columns {
		h.Columns = append(h.Columns, ColumnNamed(name))
	}
	return h
}

func write(t *testing.T, dir string, format Format, h Head, o Options, rows ...[]float64) (path string) {
	t.Helper()
	w, err := Create(dir, format, h, o)
	if err != nil {
		t.Fatal(err)
	}
	for i, row := range rows {
		if i == 2 {
			if err := w.Lost(3); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Row(start.Add(time.Duration(i)*50*time.Millisecond), row); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	found := recordings(t, dir)
	return found[len(found)-1]
}

func recordings(t *testing.T, dir string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

var (
	exampleV2 = []string{
		Tick, DueNS, LatenessNS, CPUNS, Running, RequestsServing, MemoryBytes, MemoryLimitBytes, "minor_faults", MajorFaults,
		DiskReadBytes, "disk_discards", ThrottledNS, CPUQuotaNS, "memory.stat/anon", "memory.high",
		"refaults_anon", "refaults_file", "pressure_cpu_waiting_ns", "pressure_memory_stalled_ns",
	}
	exampleRowsV2 = [][]float64{
		{0, 777e9, 1200, 123456, 1, 0, 4096, math.Inf(1), 10, 1, 8192, 7, 5000, math.Inf(1), 100, 1 << 20, 31, 32, 33000,
			34000},
		{1, 777.05e9, 900, 50123456, 2, 3, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan},
		{5, 777.25e9, 52000, 100123999, 0, 1, 8192, math.Inf(1), 12, 1, 8192, 7, 5999, math.Inf(1), 120, 1 << 20, 31, 35,
			36000, nan},
	}
	exampleV1 = []string{CPUNS, MemoryBytes, MemoryLimitBytes, "cpu.usage.percpu/0", "cpu.usage.percpu/1",
		"blkio.service.time.read", "blkio.service.time.write"}
	exampleRowsV1 = [][]float64{
		{45675783181, 4096, 9223372036854771712, 45000000000, 675783181, 1, 2},
		{45675783182, 4096, 9223372036854771712, 45000000000, 675783182, nan, 3},
		{nan, nan, nan, nan, nan, nan, nan},
	}
)

func TestGoldenFiles(t *testing.T) {
	f := func(golden string, format Format, h Head, rows [][]float64) {
		t.Helper()
		path := write(t, t.TempDir(), format, h, Options{}, rows...)
		wanted := containerID + "_1790000000.log"
		if format == CSVY {
			wanted = "shop-cart-" + containerID[:12] + "_1790000000.csvy"
		}
		if filepath.Base(path) != wanted {
			t.Errorf("the file's name is %s, want %s", filepath.Base(path), wanted)
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		golden = filepath.Join("testdata", golden)
		if *update {
			if err := os.WriteFile(golden, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != string(want) {
			t.Errorf("%s: got\n%s\nwant\n%s", golden, got, want)
		}
	}
	f("superset-v2.csvy", CSVY, exampleHead(2, exampleV2...), exampleRowsV2)
	f("radvisor-v2.log", RAdvisor, exampleHead(2, exampleV2...), exampleRowsV2)
	f("radvisor-v1.log", RAdvisor, exampleHead(1, exampleV1...), exampleRowsV1)
}

// TestRAdvisorLayout holds the layout against rows that rAdvisor 1.4.0 wrote.
func TestRAdvisorLayout(t *testing.T) {
	for version, count := range map[int]int{1: 75, 2: 36} {
		if n := len(RAdvisorColumns(version)) + 1; n != count {
			t.Errorf("cgroup v%d has %d columns, want %d", version, n, count)
		}
	}
	names := func(path string) string {
		b, err := os.ReadFile(filepath.Join("testdata", path))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			if strings.HasPrefix(line, "read,") {
				return line
			}
		}
		return ""
	}
	for _, version := range []string{"v1", "v2"} {
		got, want := names("radvisor-"+version+".log"), names("from-radvisor-1.4.0-"+version+".log")
		if got != want || got == "" {
			t.Errorf("our columns:\n%srAdvisor's:\n%s", got, want)
		}
	}
}

func open(t *testing.T, path string) *Recording {
	t.Helper()
	r, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func equal(a, b []float64) bool {
	return slices.EqualFunc(a, b, func(x, y float64) bool { return x == y || math.IsNaN(x) && math.IsNaN(y) })
}

func wantColumn(t *testing.T, r *Recording, name string, want ...float64) {
	t.Helper()
	if got := r.Column(name); !equal(got, want) {
		t.Errorf("%s: column %s is %v, want %v", r.Path, name, got, want)
	}
}

func TestSupersetIsReadBack(t *testing.T) {
	h := exampleHead(2, exampleV2...)
	r := open(t, write(t, t.TempDir(), CSVY, h, Options{}, exampleRowsV2...))
	for i, c := range h.Columns {
		var want []float64
		for _, row := range exampleRowsV2 {
			want = append(want, row[i])
		}
		wantColumn(t, r, c.Name, want...)
		if got := r.Head.Columns[r.Head.Index(c.Name)]; got != c {
			t.Errorf("got column %+v, want %+v", got, c)
		}
	}
	wantColumn(t, r, LostTicks, 0, 0, 3)
	if r.Lost() != 3 {
		t.Errorf("%d ticks are lost, want 3", r.Lost())
	}
	if want := []int64{start.UnixNano(), start.UnixNano() + 50e6, start.UnixNano() + 100e6}; !slices.Equal(r.At, want) {
		t.Errorf("got times %v, want %v", r.At, want)
	}
	got := r.Head
	got.Columns, h.Columns = nil, nil
	if got.Container.Created = h.Container.Created; !got.Started.Equal(h.Started) || !got.Polled.Equal(h.Polled) {
		t.Errorf("got times %v and %v, want %v and %v", got.Started, got.Polled, h.Started, h.Polled)
	}
	got.Started, got.Polled = h.Started, h.Polled
	if !reflect.DeepEqual(got, h) {
		t.Errorf("got head %+v\nwant %+v", got, h)
	}
	// By its ticks 200 ms passed between the last two rows, by the clock 50 ms.
	if len(r.Problems) != 1 || !strings.Contains(r.Problems[0].String(), "the clock was set: it went back by 150ms") {
		t.Errorf("got problems %v, want the step of the clock", r.Problems)
	}
	if r.End.Cut || r.End.Rows != 3 {
		t.Errorf("got end %+v", r.End)
	}
}

// TestRAdvisorFilesAreRead reads what rAdvisor itself wrote.
func TestRAdvisorFilesAreRead(t *testing.T) {
	r := open(t, "testdata/from-radvisor-1.4.0-v2.log")
	wantColumn(t, r, "pids.max", 28989)
	wantColumn(t, r, CPUNS, 58688e3)
	wantColumn(t, r, MemoryBytes, 5558272)
	wantColumn(t, r, MemoryLimitBytes, math.Inf(1))
	wantColumn(t, r, "disk_reads", 58)
	wantColumn(t, r, "minor_faults", 1650)
	if r.Head.Name() != "silly_elion" || r.Head.CgroupVersion != 2 || r.Head.Host.Cores != 32 ||
		r.Head.Driver != "systemd" || r.Format != RAdvisor {
		t.Errorf("got head %+v", r.Head)
	}
	r = open(t, "testdata/from-radvisor-1.4.0-v1.log")
	wantColumn(t, r, CPUNS, 45675783181)
	wantColumn(t, r, "cpu.usage.percpu/3", 12618688155)
	wantColumn(t, r, "cpu.usage.percpu/31", 0)
	wantColumn(t, r, DiskReadBytes, 0)
	wantColumn(t, r, DiskWriteBytes, 668844032)
	wantColumn(t, r, DiskTimeNS, 68057100860)
	wantColumn(t, r, "blkio.bfq.service.ios.async", nan)
	if r.Head.Name() != "kube-proxy-hsplg" || r.Head.Container.Key() != "9f0b1893-15e7-442a-966a-b0d19a35fc1c" ||
		r.Head.CgroupVersion != 1 {
		t.Errorf("got head %+v", r.Head)
	}
	// An old version: other keys in the head, fewer columns, texts in cells.
	r = open(t, "testdata/from-radvisor-1.1.7.log")
	wantColumn(t, r, CPUNS, 255777313)
	wantColumn(t, r, "pids.current", 2)
	wantColumn(t, r, "blkio.service.bytes", nan)
	if r.Head.Version != "1.1.7" || r.Head.Cgroup == "" || r.Head.CgroupVersion != 1 {
		t.Errorf("got head %+v", r.Head)
	}
	if len(r.Problems) != 5 || !strings.Contains(r.Problems[1].String(), `holds "Total", which is no number`) {
		t.Errorf("got problems %v", r.Problems)
	}
}

// TestBadFiles reads what is readable, and names the rest with its line.
func TestBadFiles(t *testing.T) {
	good := func() string {
		b, err := os.ReadFile("testdata/superset-v2.csvy")
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}()
	firstRow := strings.Count(good[:strings.Index(good, "read,")], "\n") + 2
	rows := strings.SplitAfter(good[strings.Index(good, "\nread,")+1:], "\n")
	head := good[:strings.Index(good, "\nread,")+1]
	other := strings.Replace(head, "Version: 1.4.0", "Version: 1.5.0", 1) +
		"read,cpu_ns,novelty\n1790000009000000000,5,6\n"

	f := func(name, text string, wantRows int, wantCut bool, wantProblem string) {
		t.Helper()
		r, err := Parse(strings.NewReader(text))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
		var problems strings.Builder
		for _, p := range r.Problems {
			problems.WriteString(p.String() + "\n")
		}
		if len(r.At) != wantRows || r.End.Rows != wantRows || r.End.Cut != wantCut {
			t.Errorf("%s: got %d rows and end %+v, want %d rows and cut %v", name, len(r.At), r.End, wantRows, wantCut)
		}
		if !strings.Contains(problems.String(), wantProblem) {
			t.Errorf("%s: got problems\n%swant %q", name, problems.String(), wantProblem)
		}
		for i := range r.Values {
			if len(r.Values[i]) != len(r.At) {
				t.Fatalf("%s: column %s has %d values of %d", name, r.Head.Columns[i].Name, len(r.Values[i]), len(r.At))
			}
		}
	}
	line := func(n int) string { return "line " + itoa(firstRow+n) + ": " }
	f("cut in a row", good[:len(good)-20], 2, true, line(2)+"the file ends within this row")
	f("cut after a row", good[:len(good)-len(rows[3])], 2, false, "")
	f("no rows", head+rows[0], 0, false, "")
	f("a row too short", head+rows[0]+rows[1]+"1790000000200000000,1,2\n"+rows[2], 2, false,
		line(1)+"the row does not have as many cells")
	f("a row without time", head+rows[0]+rows[1]+strings.Replace(rows[2], "1790", "x", 1), 1, false,
		line(1)+`the row has no time but "x`)
	f("zeros after a crash", head+rows[0]+rows[1]+strings.Repeat("\x00", 4096), 1, true, line(1))
	f("zeros within", head+rows[0]+rows[1]+strings.Repeat("\x00", 4096)+"\n"+rows[2], 2, false, line(1))
	f("no number in a cell", head+rows[0]+strings.Replace(rows[1], ",8192,", ",8k,", 1), 1, false,
		line(0)+`the column "io.stat/rbytes" holds "8k"`)
	f("a long line", head+rows[0]+rows[1]+strings.Repeat("9", maxLine+5)+"\n"+rows[2], 2, false,
		line(1)+"the line is longer")
	f("ends of Windows", strings.ReplaceAll(good, "\n", "\r\n"), 3, false, "")
	f("a blank line after the head", head+"\n"+strings.Join(rows, ""), 3, false, "")
	f("a fence in the midst", head+rows[0]+rows[1]+"---\n"+rows[2]+rows[3], 3, false,
		line(1)+"a second head begins here that cannot be read")
	f("two versions", good+other, 4, false, line(3)+`a second recording begins here (version "0.4")`)
	f("two versions", good+other, 4, false, `the column "novelty" is new here`)
	f("the clock set back", strings.Replace(head+rows[0]+rows[1]+rows[2], "179000000017", "179000000009", 1), 2, false,
		line(1)+"the clock was set: it went back by")

	bad := func(name, text, want string) {
		t.Helper()
		if _, err := Parse(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want %q", name, err, want)
		}
	}
	bad("empty", "", "the file is empty")
	bad("foreign", "\x7fELF\x02\x01", "not a recording: it begins with")
	bad("other YAML", "---\na: 1\n---\nread,x\n", "not a recording")
	bad("cut in the head", head[:100], "the file ends within its head")
	bad("cut in the names", head+"read,pi", "the file ends before its first row")
	bad("no names", head+"1,2,3\n", "the row of names begins with")
	bad("a later layout", strings.Replace(head, "Layout: 1", "Layout: 9", 1)+rows[0], "its layout is version 9")
	bad("no YAML", "---\n\t}{\n---\nread\n", "reading the head")
}

func itoa(n int) string { return string(AppendNumber(nil, float64(n))) }

// TestVectors writes one cell for the numbers of all CPUs, and none where one is missing.
func TestVectors(t *testing.T) {
	h := exampleHead(1, "cpu.usage.percpu/0", "cpu.usage.percpu/1", "cpu.usage.percpu/2", CPUNS)
	path := write(t, t.TempDir(), CSVY, h, Options{}, []float64{1, 2, 3, 6}, []float64{nan, nan, nan, 7},
		[]float64{1, nan, 3, 8})
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\n1790000000123456789,,,6,,,1 2 3,", "\n1790000000173456789,,,7,,,,",
		"\n1790000000223456789,,,8,,,,"} {
		if !strings.Contains(string(b), want) {
			t.Errorf("there is no row %q in\n%s", want, b)
		}
	}
	r := open(t, path)
	wantColumn(t, r, "cpu.usage.percpu/0", 1, nan, nan)
	wantColumn(t, r, "cpu.usage.percpu/2", 3, nan, nan)
}

func FuzzParse(f *testing.F) {
	paths, err := filepath.Glob("testdata/*")
	if err != nil || len(paths) < 5 {
		f.Fatalf("got seeds %v: %v", paths, err)
	}
	for _, path := range paths {
		if strings.HasSuffix(path, "fuzz") {
			continue
		}
		b, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(b))
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := Parse(strings.NewReader(text))
		if err != nil {
			return
		}
		if r.End.Rows != len(r.At) || r.End.Bytes > int64(len(text)) {
			t.Errorf("got end %+v of %d rows and %d bytes", r.End, len(r.At), len(text))
		}
		for i := range r.Values {
			if len(r.Values[i]) != len(r.At) {
				t.Errorf("column %d has %d values of %d", i, len(r.Values[i]), len(r.At))
			}
		}
	})
}

// TestFilesFillWhatTheKernelDoesNotKnow: of a number that both lanes have, the kernel's is taken.
func TestFilesFillWhatTheKernelDoesNotKnow(t *testing.T) {
	dir, none := t.TempDir(), math.NaN()
	h := exampleHead(2, ThrottledNS, MemoryBytes, "memory.current", "cpu.stat/throttled_usec")
	r, err := Open(write(t, dir, CSVY, h, Options{}, []float64{none, 4096, 8192, 5}, []float64{7000, none, 8192, 6},
		[]float64{none, none, none, none}))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]float64{MemoryBytes: {4096, 8192, none}, ThrottledNS: {5000, 7000, none}} {
		if got := r.Column(name); !slices.EqualFunc(got, want,
			func(a, b float64) bool { return a == b || math.IsNaN(a) && math.IsNaN(b) }) {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
}

// A small text does not make a reader build much, and a large one is read in part.
func TestReadingIsBounded(t *testing.T) {
	head := "---\nVersion: 1.4.0\nProvider: docker\nCollectorType: cgroup_v2\nOutsight:\n  Layout: 1\n---\n"
	for name, names := range map[string]string{
		"columns":          "read" + strings.Repeat(",a", maxColumns+1),
		"different names":  "read," + strings.Join(numbered(maxColumns+1), ","),
		"as many as fit":   "read," + strings.Join(numbered(100_000), ","),
		"of the same CPUs": "read" + strings.Repeat(","+perCPU, 60_000),
	} {
		_, err := Parse(strings.NewReader(head + names + "\n"))
		if err == nil || !strings.Contains(err.Error(), "it names more than 8192 columns") {
			t.Errorf("%s: %v", name, err)
		}
	}
	rows := head + "read,pids.current,cpu_ns\n" + strings.Repeat("1790000000000000000,1,2\n", 100)
	p := parser{in: bufio.NewReader(strings.NewReader(rows)), r: &Recording{}, index: map[string]int{}, maxValues: 30}
	r, err := p.parse()
	if err != nil || !r.End.Cut || len(r.Problems) == 0 || len(r.At) != 15 {
		t.Fatalf("%+v, %v", r, err)
	}
	if got := fmt.Sprint(r.Problems); !strings.Contains(got, "the rest is left out") {
		t.Errorf("got %s", got)
	}
}

func numbered(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprint("n", i)
	}
	return names
}
