package appmetrics

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"outsight/internal/model"
)

// worker builds the C program of testdata.
var worker = sync.OnceValues(func() (string, error) {
	directory, err := os.MkdirTemp("", "outsight-worker")
	if err != nil {
		return "", err
	}
	program := filepath.Join(directory, "worker")
	output, err := exec.Command("cc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-I../../sdk/c", "-o",
		program, "testdata/worker.c").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("cc: %w\n%s", err, output)
	}
	return program, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if program, err := worker(); err == nil {
		os.RemoveAll(filepath.Dir(program))
	}
	os.Exit(code)
}

// running is a process with metrics, which waits for its input's end.
type running struct {
	*exec.Cmd
	in io.Closer
}

func run(t *testing.T, says []string, name string, arguments ...string) *running {
	t.Helper()
	command := exec.Command(name, arguments...)
	command.Stderr = os.Stderr
	in, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); command.Process.Kill(); command.Wait() })
	left := map[string]bool{}
	for _, line := range says {
		left[line] = true
	}
	for lines := bufio.NewScanner(out); len(left) > 0; {
		if !lines.Scan() {
			t.Fatalf("%s %v has ended and has not said %v", name, arguments, left)
		}
		delete(left, lines.Text())
	}
	return &running{command, in}
}

func runWorker(t *testing.T, says []string, arguments ...string) *running {
	t.Helper()
	program, err := worker()
	if err != nil {
		t.Fatal(err)
	}
	return run(t, says, program, arguments...)
}

func (r *running) end(t *testing.T) {
	t.Helper()
	r.in.Close()
	if err := r.Wait(); err != nil {
		t.Fatal(err)
	}
}

// scanned is a Collector that finds the files of these processes alone, all in the container "box".
func scanned(t *testing.T, o Options, pids ...int) *Collector {
	t.Helper()
	o.GroupOf = func(int) (model.CgroupID, error) { return 7, nil }
	c := New(o)
	t.Cleanup(c.close)
	for _, pid := range pids {
		c.scanProcess(pid)
	}
	return c
}

func owner(model.CgroupID) string { return "box" }

// texts are the metrics of the container as texts.
func texts(c *Collector) map[string]string {
	c.Read(owner)
	all := map[string]string{}
	for _, m := range c.Of("box") {
		value := fmt.Sprint(m.Count)
		if m.Kind == model.Gauge {
			value = fmt.Sprint(m.Level)
		} else if m.Fine {
			value = fmt.Sprint(float64(m.Count) / model.ApplicationFine)
		}
		all[m.Name+"{"+m.Labels+"}"] = value
	}
	return all
}

func expect(t *testing.T, c *Collector, want map[string]string) {
	t.Helper()
	got := texts(c)
	for name, value := range want {
		if got[name] != value {
			t.Errorf("%s is %q, want %q", name, got[name], value)
		}
		delete(got, name)
	}
	for name, value := range got {
		t.Errorf("unexpected: %s %s", name, value)
	}
}

// drop is the count of a bound.
func drop(t *testing.T, c *Collector, name string) uint64 {
	t.Helper()
	for _, d := range c.Drops() {
		if d.Name == name {
			return d.Count
		}
	}
	t.Fatalf("there is no bound %q", name)
	return 0
}

// Two processes of one container are added up. When one has ended, its counters stay, and its gauges do not.
func TestProgram(t *testing.T) {
	first, second := runWorker(t, []string{"ready"}, "count"), runWorker(t, []string{"ready"}, "count")
	c := scanned(t, Options{}, first.Process.Pid, second.Process.Pid)
	both := map[string]string{"app_jobs_done_total{}": "2000", "app_queue_length{}": "-14", "app_cache_hits_total{}": "6",
		"app_cache_bytes{}": "8192", "app_cache_ratio{}": "1.5", "app_load{}": "-1",
		`app_requests_total{method="GET",path="/a \"b\""}`: "10"}
	expect(t, c, both)
	expect(t, c, both) // nothing twice
	c.scanProcess(first.Process.Pid)
	expect(t, c, both)
	first.end(t)
	expect(t, c, both) // its last
	one := map[string]string{"app_jobs_done_total{}": "2000", "app_queue_length{}": "-7", "app_cache_hits_total{}": "6",
		"app_cache_bytes{}": "4096", "app_cache_ratio{}": "0.75", "app_load{}": "-0.5",
		`app_requests_total{method="GET",path="/a \"b\""}`: "10"}
	expect(t, c, one)
	second.end(t)
	c.Read(owner)
	expect(t, c, map[string]string{"app_jobs_done_total{}": "2000", "app_cache_hits_total{}": "6",
		`app_requests_total{method="GET",path="/a \"b\""}`: "10"})
	for _, d := range c.Drops() {
		if d.Count != 0 {
			t.Errorf("%+v", d)
		}
	}
	if len(c.files)+len(c.processes)+len(c.groups)+len(c.groupPages)+c.pages != 0 {
		t.Errorf("%d files, %d processes, %d groups are left", len(c.files), len(c.processes), len(c.groups))
	}
	c.Keep(nil)
	if len(c.sums) != 0 || c.metrics != 0 {
		t.Errorf("%d containers, %d metrics are left", len(c.sums), c.metrics)
	}
}

// A child counts into a file of its own, from 0 on, by the pointers that it had.
func TestFork(t *testing.T) {
	p := runWorker(t, []string{"ready", "child"}, "fork")
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", p.Process.Pid, p.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	var child int
	if _, err := fmt.Sscan(string(children), &child); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if process, err := os.FindProcess(child); err == nil {
			process.Kill()
		}
	})
	c := scanned(t, Options{}, p.Process.Pid)
	got := texts(c)
	if got["app_jobs_done_total{}"] != "110" || got["app_requests_total{}"] != "1" {
		t.Errorf("the parent: %v", got)
	}
	c.scanProcess(child)
	got = texts(c)
	if got["app_jobs_done_total{}"] != "115" || got["app_requests_total{}"] != "3" {
		t.Errorf("both: %v", got)
	}
}

// What a process had counted when it was killed in the middle of counting is all in the container's sum.
func TestKilledWhileItCounts(t *testing.T) {
	p := runWorker(t, []string{"ready"}, "spin")
	c := scanned(t, Options{}, p.Process.Pid)
	c.Read(owner)
	var of *file
	for _, f := range c.files {
		of = f
	}
	// Another mapping, which shows what was there at the end.
	own, err := openFile("/proc", p.Process.Pid, descriptorOf(t, p.Process.Pid), false, anyPages)
	if err != nil {
		t.Fatal(err)
	}
	defer own.close()
	for deadline := time.Now().Add(time.Minute); texts(c)["app_jobs_done_total{}"] == "0"; {
		if time.Now().After(deadline) {
			t.Fatal("it counts nothing")
		}
	}
	if err := p.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	p.Wait()
	value := of.metrics[0].value
	for i := range of.metrics {
		if of.metrics[i].Name == "app_jobs_done_total" {
			value = of.metrics[i].value
		}
	}
	got := texts(c)["app_jobs_done_total{}"]
	if want := fmt.Sprint(own.load(value)); got != want || want == "0" {
		t.Errorf("%s were counted, want %s", got, want)
	}
}

func descriptorOf(t *testing.T, pid int) int {
	t.Helper()
	directory := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(directory)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if link, _ := os.Readlink(filepath.Join(directory, e.Name())); strings.HasPrefix(link, fileLink) {
			var fd int
			fmt.Sscan(e.Name(), &fd)
			return fd
		}
	}
	t.Fatalf("process %d has no file with metrics", pid)
	return 0
}

// Of a million metrics those are read for which there is room, and the others are counted.
func TestMillionMetrics(t *testing.T) {
	const all, most = 1_000_000, 1000
	p := runWorker(t, []string{"ready"}, "many", fmt.Sprint(all))
	c := scanned(t, Options{ContainerMetrics: most}, p.Process.Pid)
	c.Read(owner)
	if got := len(c.Of("box")); got != most {
		t.Errorf("%d metrics, want %d", got, most)
	}
	// Those of the program's five definitions are among them.
	container, process := drop(t, c, "applications/container-metrics"), drop(t, c, "applications/process-metrics")
	if most+container+process != all+5 || container == 0 || process == 0 {
		t.Errorf("%d and %d were refused, %d read, of %d", container, process, most, all+5)
	}
	expectStays := len(c.Of("box"))
	c.Read(owner)
	if len(c.Of("box")) != expectStays || drop(t, c, "applications/process-metrics") != process {
		t.Error("the second reading has others")
	}
}

// Python's and Go's libraries write the same layout.
func TestLibraries(t *testing.T) {
	python := run(t, []string{"ready", "child"}, "python3", "testdata/worker.py")
	c := scanned(t, Options{}, python.Process.Pid)
	got := texts(c)
	for name, want := range map[string]string{"app_jobs_done_total{}": "1000", "app_queue_length{}": "-7.5",
		"app_work_seconds_total{}": "0.25", `app_requests_total{method="GET"}`: "5"} {
		if got[name] != want {
			t.Errorf("Python: %s is %q, want %q", name, got[name], want)
		}
	}
	for _, name := range []string{`app_python_gc_collections_total{generation="2"}`, "app_python_threads{}",
		"app_python_allocated_blocks{}"} {
		if v := got[name]; v == "" || v == "0" {
			t.Errorf("Python: %s is %q", name, v)
		}
	}
	program := filepath.Join(t.TempDir(), "worker")
	if output, err := exec.Command("go", "build", "-o", program, "./testdata/goworker").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	c = scanned(t, Options{}, run(t, []string{"ready"}, program).Process.Pid)
	got = texts(c)
	for name, want := range map[string]string{"app_jobs_done_total{}": "1000", "app_queue_length{}": "-7.5",
		"app_work_seconds_total{}": "0.25", `app_requests_total{method="GET"}`: "5"} {
		if got[name] != want {
			t.Errorf("Go: %s is %q, want %q", name, got[name], want)
		}
	}
	for _, name := range []string{"app_go_gc_cycles_total{}", "app_go_goroutines{}", "app_go_allocated_bytes_total{}",
		"app_go_gc_cpu_seconds_total{}", "app_go_heap_bytes{}"} {
		if v := got[name]; v == "" || v == "0" {
			t.Errorf("Go: %s is %q", name, v)
		}
	}
}

// aligned is a copy that begins at a multiple of 8, as a mapping does.
func aligned(data []byte) []byte {
	if len(data) == 0 {
		return nil
	}
	words := make([]uint64, (len(data)+7)/8)
	to := unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), len(data))
	copy(to, data)
	return to
}
