package kernel

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"

	"outsight/internal/model"
)

// The test binary is also the workload: with this variable set it does the named work.
const workloadVariable = "OUTSIGHT_TEST_WORKLOAD"

func TestMain(m *testing.M) {
	if work := os.Getenv(workloadVariable); work != "" {
		os.Exit(workload(work))
	}
	before := openFiles()
	code := m.Run()
	runtime.GC()
	if after := openFiles(); code == 0 && after > before+2 { // the runtime's own poller and pipe
		fmt.Fprintf(os.Stderr, "%d file descriptors leaked\n", after-before)
		code = 1
	}
	os.Exit(code)
}

func openFiles() int {
	entries, _ := os.ReadDir("/proc/self/fd")
	return len(entries)
}

// workload joins the control groups in its arguments and then works until its standard input
// ends.
func workload(name string) int {
	before := threadsOfSelf()
	for _, procs := range os.Args[1:] {
		if err := os.WriteFile(procs, []byte(strconv.Itoa(os.Getpid())), 0); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	threads := 1
	switch name {
	case "record":
		return recordUntilKilled()
	case "faults":
		return touchPages()
	case "rename":
		return renameProcess()
	case "sync":
		return syncFile()
	case "listen":
		return manyListeners()
	case "streams":
		return untilInputEnds(holdStreams)
	case "datagrams":
		return untilInputEnds(sendToMany)
	case "spin":
	case "spin8":
		threads = 8
	case "pinned-spin", "pinned-spin4", "pinned-nap":
		return pinned(name)
	case "read-file", "take-memory":
		return useMemory(name)
	case "threads":
		return startThreads(before)
	case "idle":
		threads = 0
	case "touch":
		threads = 0
		go touch()
	case "short":
		spin(100 * time.Millisecond)
		return 0
	case "shorter":
		spin(5 * time.Millisecond)
		return 0
	}
	runtime.GOMAXPROCS(threads + 1)
	for range threads {
		go spin(time.Hour)
	}
	fmt.Println("ready")
	bufio.NewReader(os.Stdin).ReadByte()
	return 0
}

// touch waits for a signal, and then touches new pages until the next one.
func touch() {
	runtime.LockOSThread()
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGUSR1)
	<-signals
	for page := os.Getpagesize(); len(signals) == 0; {
		memory, err := syscall.Mmap(-1, 0, 256*page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
		if err != nil {
			panic(err)
		}
		for at := 0; at < len(memory); at += page {
			memory[at] = 1
		}
		if err := syscall.Munmap(memory); err != nil {
			panic(err)
		}
	}
}

func spin(d time.Duration) {
	runtime.LockOSThread()
	for end := time.Now().Add(d); time.Now().Before(end); {
	}
}

// kernelTypes are decoded once for all tests.
var kernelTypes = btf.NewCache()

// open opens the probes as the host's layout wants it.
func open(t *testing.T, o Options) *Probes {
	t.Helper()
	o.WithoutEndpoints = o.WithoutEndpoints || emulated()
	return openWith(t, o)
}

// openWith opens them with endpoints also on an emulated machine, which takes long to verify the parsers.
func openWith(t *testing.T, o Options) *Probes {
	t.Helper()
	o.Controller = controller()
	return openAs(t, o)
}

func openAs(t *testing.T, o Options) *Probes {
	t.Helper()
	o.types = kernelTypes
	p, err := Open(o)
	if err != nil {
		t.Fatalf("opening the probes (this test needs root): %v", err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("closing: %v", err)
		}
	})
	for _, f := range p.Features() {
		if f.State == model.FeatureAbsent && !(withoutEdges() && isOfEdges(f)) && !(withoutExt4() && isOfExt4(f)) && !(isOfSyncWay(f) && withoutTrampolines()) {
			t.Fatalf("%s is absent: %s", f.Name, f.Reason)
		}
	}
	return p
}

// withoutEdges is said by who tests on kernels that are too old for edges, and knows it.
func withoutEdges() bool { return os.Getenv("OUTSIGHT_WITHOUT_EDGES") != "" }

// emulated is said by who tests on an emulated machine. It may be slow without measure, and its CPUs stand
// still at any moment, also between the readings of two clocks.
func emulated() bool { return os.Getenv("OUTSIGHT_EMULATED") != "" }

// patience is how long a test waits for what must come; readUntil is for what may have come already.
func patience() time.Duration {
	if emulated() {
		return 2 * time.Minute
	}
	return 30 * time.Second
}

// withoutExt4: the kernel has no such file system, or its module is not loaded.
func withoutExt4() bool {
	text, err := os.ReadFile("/proc/filesystems")
	return err == nil && !strings.Contains(string(text), "\text4\n")
}

func isOfExt4(f model.Feature) bool { return strings.HasPrefix(f.Name, "tp_btf/ext4_") }

// withoutTrampolines: the kernel lets no program be attached to the end of a function.
var withoutTrampolines = sync.OnceValue(func() bool {
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.Tracing, AttachType: ebpf.AttachTraceFExit, AttachTo: "inet_sendmsg", License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if err != nil {
		return true
	}
	defer program.Close()
	held, err := link.AttachTracing(link.TracingOptions{Program: program})
	if err != nil {
		return true
	}
	held.Close()
	return false
})

func isOfSyncWay(f model.Feature) bool {
	for _, w := range syncWays {
		if slices.ContainsFunc(w.hooks, func(h hook) bool { return h.name == f.Name }) {
			return true
		}
	}
	return false
}

func isOfEdges(f model.Feature) bool {
	return !slices.ContainsFunc(append(cgroupHooks, clocksHook, forkHook, tasksHook, contentionHook, victimHook),
		func(h hook) bool { return h.name == f.Name })
}

func controller() string {
	if _, err := os.Stat("/sys/fs/cgroup/memory/cgroup.procs"); err == nil {
		return "memory"
	}
	return ""
}

// testGroup is a control group in the hierarchy that identifies containers and, on v1, also in
// the one that accounts CPU time.
type testGroup struct{ dirs []string }

func newGroup(t *testing.T, name string) *testGroup {
	t.Helper()
	name = fmt.Sprintf("outsight-test-%d-%s", os.Getpid(), name)
	if controller() != "" {
		return newGroupAt(t, filepath.Join("/sys/fs/cgroup/memory", name), filepath.Join("/sys/fs/cgroup/cpuacct", name))
	}
	return newGroupAt(t, filepath.Join("/sys/fs/cgroup", name))
}

// newGroupAt makes a group: the first directory identifies it, the last accounts its CPU time.
func newGroupAt(t *testing.T, dirs ...string) *testGroup {
	t.Helper()
	g := &testGroup{dirs: dirs}
	for _, dir := range g.dirs {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { g.remove(t) })
	return g
}

func (g *testGroup) remove(t *testing.T) {
	for _, dir := range g.dirs {
		eventually(t, "removing "+dir, func() bool {
			err := os.Remove(dir)
			return err == nil || os.IsNotExist(err)
		})
	}
}

func (g *testGroup) id(t *testing.T) model.CgroupID {
	t.Helper()
	var stat syscall.Stat_t
	if err := syscall.Stat(g.dirs[0], &stat); err != nil {
		t.Fatal(err)
	}
	return model.CgroupID(stat.Ino)
}

// cpuTime is the kernel's own account of the group.
func (g *testGroup) cpuTime(t *testing.T) time.Duration {
	t.Helper()
	if len(g.dirs) > 1 {
		return time.Duration(readNumber(t, filepath.Join(g.dirs[1], "cpuacct.usage")))
	}
	stat, err := os.ReadFile(filepath.Join(g.dirs[0], "cpu.stat"))
	if err != nil {
		t.Fatal(err)
	}
	var usec int64
	fmt.Sscanf(string(stat), "usage_usec %d", &usec)
	return time.Duration(usec) * time.Microsecond
}

func readNumber(t *testing.T, path string) int64 {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// workload is this program as one of its workloads, in the group.
func (g *testGroup) workload(work string, environment ...string) *exec.Cmd {
	var procs []string
	for _, dir := range g.dirs {
		procs = append(procs, filepath.Join(dir, "cgroup.procs"))
	}
	cmd := exec.Command(os.Args[0], procs...)
	cmd.Env = append(append(os.Environ(), workloadVariable+"="+work), environment...)
	return cmd
}

// startTalking starts a program that is told what to do by its input, and tells what it did by its output.
func startTalking(t *testing.T, cmd *exec.Cmd) (in io.WriteCloser, out *bufio.Reader) {
	t.Helper()
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return in, bufio.NewReader(output)
}

// start runs a workload in the group; stop ends it and waits for it.
func (g *testGroup) start(t *testing.T, work string) (pid int, stop func()) {
	t.Helper()
	cmd := g.workload(work)
	in, out := startTalking(t, cmd)
	stop = sync.OnceFunc(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("workload %s: %v", work, err)
		}
	})
	t.Cleanup(stop)
	out.ReadString('\n')
	return cmd.Process.Pid, stop
}

// readUntil reads until what it reads is done, or does not change any more. It is for what is counted of work that
// has ended: then only a sweep of the table of connections may still add to it, which each reading carries out.
func readUntil[T any](read func() T, done func(T) bool) T {
	last := read()
	for quiet, since := 0, time.Now(); !done(last) && (quiet < 50 || time.Since(since) < quietness()); quiet++ {
		time.Sleep(20 * time.Millisecond)
		if next := read(); !reflect.DeepEqual(next, last) {
			last, quiet, since = next, 0, time.Now()
		}
	}
	return last
}

// quietness is some times as long as a sweep waits.
func quietness() time.Duration {
	if emulated() {
		return 20 * time.Second
	}
	return 5 * time.Second
}

// eventually tries until it is so, as long as there is patience.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(patience()); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if so() {
			return
		}
	}
	t.Fatalf("%s: not within %v", what, patience())
}
