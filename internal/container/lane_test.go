package container

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"outsight/internal/model"
)

// laneValue is the value of one column.
func laneValue(t *testing.T, r *Lane, values []float64, column string) float64 {
	t.Helper()
	i := slices.Index(r.Columns(), column)
	if i < 0 {
		t.Fatalf("there is no column %q", column)
	}
	return values[i]
}

func v2Lane(t testing.TB) (*Lane, *model.Container, string) {
	t.Helper()
	root, path := t.TempDir(), "/system.slice/docker-"+idA+".scope"
	for _, name := range []string{"memory.current", "memory.stat", "memory.max", "cpu.stat", "io.stat", "pids.current",
		"cpu.pressure", "memory.pressure", "io.pressure"} {
		writeFile(t, filepath.Join(root, path, name), string(testFile(t, "v2/"+name)))
	}
	writeFile(t, filepath.Join(root, path, "cpu.max"), "150000 100000\n")
	writeFile(t, filepath.Join(root, path, "pids.max"), "max\n")
	r := NewLane(Layout{Name: "v2", MountPoint: root, unified: root, v2: []string{"cpu", "io", "memory", "pids"}},
		Options{ProcRoot: pressedProc(t)})
	t.Cleanup(r.Close)
	return r, &model.Container{ID: idA, CgroupPath: path, Cgroup: 7}, root + path
}

func TestLaneReadsV2(t *testing.T) {
	r, c, dir := v2Lane(t)
	values := make([]float64, len(r.Columns()))
	if err := r.Read(c, values, true); err != nil {
		t.Fatal(err)
	}
	want := func(column string, want float64) {
		t.Helper()
		if got := laneValue(t, r, values, column); got != want && !(math.IsNaN(got) && math.IsNaN(want)) {
			t.Errorf("%s is %v, want %v", column, got, want)
		}
	}
	if r.Version() != 2 {
		t.Errorf("version %d", r.Version())
	}
	want("memory.current", 61775872)
	want("memory.stat/anon", 12783616)
	want("memory.stat/pgfault", 9351)
	want("refaults_anon", 0)
	want("refaults_file", 4)
	want("pressure_cpu_waiting_ns", pressureIn(t, "cpu", "some"))
	want("pressure_cpu_stalled_ns", pressureIn(t, "cpu", "full"))
	want("pressure_memory_waiting_ns", pressureIn(t, "memory", "some"))
	want("pressure_io_stalled_ns", pressureIn(t, "io", "full"))
	want("cpu.stat/nr_throttled", 37)
	want("cpu.stat/throttled_usec", 2211549)
	want("cpu_quota_ns", 150e6)
	want("cpu_period_ns", 100e6)
	want("pids.current", 7)
	want("pids.max", math.Inf(1))
	want("memory.high", math.NaN()) // there is no such file
	want("io.stat/rios", 192+8950+1)
	want("io.stat/dios", dios(t))
	// The files stay open: their new text is read, and a group that is gone has no numbers.
	writeFile(t, filepath.Join(dir, "memory.current"), "5\n")
	if err := r.Read(c, values, true); err != nil {
		t.Fatal(err)
	}
	want("memory.current", 5)
	r.Forget(c.ID)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := r.Read(c, values, true); err != nil {
		t.Errorf("reading a group that is gone: %v", err)
	}
	want("memory.current", math.NaN())
}

// pressedProc is the procfs of a kernel that keeps pressure stall information.
func pressedProc(t testing.TB) string {
	t.Helper()
	root := t.TempDir()
	writeFile(t, filepath.Join(root, "pressure", "cpu"), "")
	return root
}

// pressureIn is a total of a pressure file in ns, read with other means than those under test.
func pressureIn(t *testing.T, resource, kind string) float64 {
	t.Helper()
	for _, line := range strings.Split(string(testFile(t, "v2/"+resource+".pressure")), "\n") {
		if _, total, found := strings.Cut(line, "total="); found && strings.HasPrefix(line, kind+" ") {
			us, err := strconv.Atoi(total)
			if err != nil {
				t.Fatal(err)
			}
			return float64(us) * 1000
		}
	}
	t.Fatalf("no line %s in %s.pressure", kind, resource)
	return 0
}

// Old kernels have refaults under one name, no pressure of the CPU for all threads, and some hosts none at all; on a v1
// host, refaults are of the groups below, too, and pressure is in the v2 hierarchy.
func TestLaneOfOtherKernels(t *testing.T) {
	r, c, dir := v2Lane(t)
	writeFile(t, filepath.Join(dir, "memory.stat"), "workingset_refault 77\n")
	writeFile(t, filepath.Join(dir, "cpu.pressure"), "some avg10=0.00 avg60=0.00 avg300=0.00 total=5\n")
	if err := os.Remove(filepath.Join(dir, "io.pressure")); err != nil {
		t.Fatal(err)
	}
	values := make([]float64, len(r.Columns()))
	check := func(want map[string]float64) {
		t.Helper()
		if err := r.Read(c, values, true); err != nil {
			t.Fatal(err)
		}
		for column, want := range want {
			if got := laneValue(t, r, values, column); got != want && !(math.IsNaN(got) && math.IsNaN(want)) {
				t.Errorf("%s is %v, want %v", column, got, want)
			}
		}
	}
	check(map[string]float64{"refaults_file": 77, "refaults_anon": math.NaN(), "pressure_cpu_waiting_ns": 5000,
		"pressure_cpu_stalled_ns": math.NaN(), "pressure_io_waiting_ns": math.NaN()})
	if n := slices.Index(r.Columns(), "refaults_file"); slices.Contains(r.Columns()[n+1:], "refaults_file") {
		t.Errorf("a column is there twice: %v", r.Columns())
	}
	without := NewLane(Layout{Name: "v2", unified: t.TempDir()}, Options{ProcRoot: t.TempDir()})
	if slices.Contains(without.Columns(), "pressure_cpu_waiting_ns") {
		t.Error("columns for what this kernel does not keep")
	}

	memory, unified := t.TempDir(), t.TempDir()
	writeFile(t, filepath.Join(memory, c.CgroupPath, "memory.stat"),
		"workingset_refault_file 1\ntotal_workingset_refault_anon 2\ntotal_workingset_refault_file 3\n")
	writeFile(t, filepath.Join(unified, c.CgroupPath, "memory.pressure"), "some total=6\nfull total=4\n")
	r = NewLane(Layout{Name: "hybrid", unified: unified, v1: map[string]string{"memory": memory}},
		Options{ProcRoot: pressedProc(t)})
	t.Cleanup(r.Close)
	values = make([]float64, len(r.Columns()))
	check(map[string]float64{"refaults_anon": 2, "refaults_file": 3, "pressure_memory_waiting_ns": 6000,
		"pressure_memory_stalled_ns": 4000})
}

// dios is counted with other means than those under test.
func dios(t *testing.T) (sum float64) {
	for _, line := range strings.Split(string(testFile(t, "v2/io.stat")), "\n") {
		if _, after, found := strings.Cut(line, "dios="); found {
			n, err := strconv.Atoi(strings.Fields(after)[0])
			if err != nil {
				t.Fatal(err)
			}
			sum += float64(n)
		}
	}
	return sum
}

func TestLaneSaysWhatItCannotParse(t *testing.T) {
	r, c, dir := v2Lane(t)
	writeFile(t, filepath.Join(dir, "memory.stat"), "anon twelve\n")
	values := make([]float64, len(r.Columns()))
	err := r.Read(c, values, true)
	if err == nil || !strings.Contains(err.Error(), "memory.stat") {
		t.Errorf("%v, want an error that names memory.stat", err)
	}
	if got := laneValue(t, r, values, "memory.current"); got != 61775872 {
		t.Errorf("the other files were not read: memory.current is %v", got)
	}
}

func TestLaneBacksOffUnchangedFiles(t *testing.T) {
	r, c, dir := v2Lane(t)
	values := make([]float64, len(r.Columns()))
	memory := func(all bool) float64 {
		t.Helper()
		if err := r.Read(c, values, all); err != nil {
			t.Fatal(err)
		}
		if got := laneValue(t, r, values, "pids.max"); !math.IsInf(got, 1) {
			t.Errorf("the limit is %v", got)
		}
		return laneValue(t, r, values, "memory.current")
	}
	given := func(readings int, all bool) (n int) {
		for range readings {
			if !math.IsNaN(memory(all)) {
				n++
			}
		}
		return n
	}
	if got := given(1+backoffAfter, false); got != 1+backoffAfter {
		t.Errorf("%d of the first %d readings give the value", got, 1+backoffAfter)
	}
	if got, want := given(4*backoffEvery, false), 4; got != want {
		t.Errorf("%d of the next %d do, want %d", got, 4*backoffEvery, want)
	}
	if got := given(2*backoffEvery, true); got != 2*backoffEvery {
		t.Errorf("%d of %d do where all are wanted", got, 2*backoffEvery)
	}
	writeFile(t, filepath.Join(dir, "memory.current"), "4096\n")
	if got := given(backoffEvery, false); got == 0 {
		t.Errorf("what changed is not given within %d readings", backoffEvery)
	}
	if got := given(backoffAfter, false); got < backoffAfter-backoffEvery {
		t.Errorf("%d of %d give what has changed lately", got, backoffAfter)
	}
	if got := memory(true); got != 4096 {
		t.Errorf("memory.current is %v", got)
	}
	given(limitEvery*(backoffAfter+2*backoffEvery), false) // limits say the same for long, too, and are in each reading
}

func TestLaneTriesAgainWhatItCouldNotOpen(t *testing.T) {
	r, c, dir := v2Lane(t)
	values := make([]float64, len(r.Columns()))
	if err := os.Rename(dir, dir+".later"); err != nil {
		t.Fatal(err)
	}
	if err := r.Read(c, values, true); err != nil {
		t.Fatal(err) // it may have ended
	}
	if err := os.Rename(dir+".later", dir); err != nil {
		t.Fatal(err)
	}
	for i := range limitEvery {
		if err := r.Read(c, values, true); err != nil {
			t.Fatal(err)
		}
		if got, found := laneValue(t, r, values, "memory.current"), i == limitEvery-1; math.IsNaN(got) == found {
			t.Errorf("reading %d gives %v", 2+i, got)
		}
	}
}

func TestLaneReadsThisHost(t *testing.T) {
	l := hostLayout(t)
	path := "/osct-lane/" + testID(1)
	id := makeGroup(t, l, path)
	pid, _ := enterOwnNetwork(t, l, path)
	c := &model.Container{ID: testID(1), CgroupPath: path, Cgroup: id, PID: pid}
	r, f := NewLane(l, Options{}), NewFiles(l, Options{})
	t.Cleanup(r.Close)
	t.Cleanup(f.Close)
	values := make([]float64, len(r.Columns()))
	before := readOne(t, f, c)
	if err := r.Read(c, values, true); err != nil {
		t.Fatal(err)
	}
	after := readOne(t, f, c)
	memory, cpu := "memory.current", "cpu.stat/usage_usec"
	if r.Version() == 1 {
		memory, cpu = "memory.usage.current", "cpu.usage.total"
	}
	got, least, most := laneValue(t, r, values, memory), before.Memory.UsageBytes, after.Memory.UsageBytes
	if got < float64(min(least, most)) || got > float64(max(least, most)) {
		t.Errorf("%s is %v, want %d to %d", memory, got, least, most)
	}
	if got := laneValue(t, r, values, cpu); !(got > 0) {
		t.Errorf("%s is %v", cpu, got)
	}
	if allocations := testing.AllocsPerRun(50, func() { r.Read(c, values, true) }); allocations != 0 {
		t.Errorf("a reading allocates %v times", allocations)
	}
}

func FuzzLane(f *testing.F) {
	for _, name := range []string{"memory.stat", "cpu.stat", "io.stat"} {
		f.Add(testFile(f, "v2/"+name))
	}
	f.Add([]byte("8:0 Read 5\n8:0 Write 7\nTotal 12\n"))
	f.Add([]byte("max 100000\n"))
	f.Add([]byte("some avg10=0.00 avg60=0.00 avg300=0.00 total=1234\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		file := &laneFile{keys: map[string]int{"anon": 0, "rbytes": 1, "Read": 0, "": 1}, columns: []int{0, 1}}
		for _, parse := range []laneParser{laneNumber, laneWords, laneKeys, laneDevices, laneIOStat, laneQuota,
			lanePressure} {
			parse(file, text, make([]float64, 2))
		}
	})
}
