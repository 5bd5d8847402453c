// Package kerneltest is what tests of the kernel modules share: control groups, workloads in them, and waiting.
package kerneltest

import (
	"bufio"
	"errors"
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
	"github.com/cilium/ebpf/rlimit"

	"outsight/internal/kernel/host"
	"outsight/internal/model"
)

// WorkloadVariable makes a test binary a workload: with it set, it does the named work.
const WorkloadVariable = "OUTSIGHT_TEST_WORKLOAD"

// Main runs a package's tests, or one of its workloads, and closes afterwards what the tests share. Leaked file
// descriptors fail the package.
func Main(m *testing.M, workloads map[string]func(name string) int, shared ...io.Closer) {
	if work := os.Getenv(WorkloadVariable); work != "" {
		os.Exit(workload(work, workloads))
	}
	// Before Linux 5.11 maps count against this limit. Without root the tests say what they lack.
	_ = rlimit.RemoveMemlock()
	before := OpenFiles()
	code := m.Run()
	for _, c := range shared {
		if err := c.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "closing what the tests share:", err)
			code = 1
		}
	}
	if leaked := leakedFiles(before); code == 0 && leaked > 0 {
		fmt.Fprintf(os.Stderr, "%d file descriptors leaked\n", leaked)
		code = 1
	}
	os.Exit(code)
}

// leakedFiles is how many file descriptors there are more than before, without those that the collector closes: the
// pipes of net.TCPConn.ReadFrom stay in a pool for two collections.
func leakedFiles(before int) (leaked int) {
	for range 20 {
		runtime.GC()
		if leaked = OpenFiles() - before - 2; leaked <= 0 { // the runtime's own poller and pipe
			return 0
		}
		time.Sleep(50 * time.Millisecond)
	}
	return leaked
}

// OpenFiles is how many file descriptors this process has.
func OpenFiles() int {
	entries, _ := os.ReadDir("/proc/self/fd")
	return len(entries)
}

// workload joins the control groups in its arguments and then works until its standard input
// ends.
func workload(name string, others map[string]func(name string) int) int {
	for _, procs := range os.Args[1:] {
		if err := os.WriteFile(procs, []byte(strconv.Itoa(os.Getpid())), 0); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	if work := others[name]; work != nil {
		return work(name)
	}
	threads := 1
	switch name {
	case "spin":
	case "spinwithmemory": // it starts outside of the group, whose memory it has none of yet
		touchPages()
	case "spin8":
		threads = 8
	case "idle":
		threads = 0
	case "touch":
		threads = 0
		go touch()
	case "short":
		Spin(100 * time.Millisecond)
		return 0
	case "shorter":
		Spin(5 * time.Millisecond)
		return 0
	}
	runtime.GOMAXPROCS(threads + 1)
	for range threads {
		go Spin(time.Hour)
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
	for len(signals) == 0 {
		if err := syscall.Munmap(touchPages()); err != nil {
			panic(err)
		}
	}
}

// touchPages maps 256 pages and writes to each.
func touchPages() []byte {
	page := os.Getpagesize()
	memory, err := syscall.Mmap(-1, 0, 256*page, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		panic(err)
	}
	for at := 0; at < len(memory); at += page {
		memory[at] = 1
	}
	return memory
}

// Spin keeps a CPU busy.
func Spin(d time.Duration) {
	runtime.LockOSThread()
	for end := time.Now().Add(d); time.Now().Before(end); {
	}
}

// Types are decoded once for all tests.
var Types = btf.NewCache()

// Kernel is what the modules are loaded for.
func Kernel(t testing.TB) *host.Kernel { return KernelOf(t, Controller()) }

// KernelOf is that with the hierarchy of a controller; empty is the default hierarchy.
func KernelOf(t testing.TB, controller string) *host.Kernel {
	t.Helper()
	k, err := host.ReadKernel(host.KernelOptions{Controller: controller, ProcFS: "/proc",
		BTF: "/sys/kernel/btf/vmlinux", Types: Types})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// Open opens modules, in this order, until the end of the test, and fails it if a feature is absent for which this
// kernel is not too old.
func Open(t testing.TB, modules ...host.Module) {
	t.Helper()
	OpenFor(t, Kernel(t), modules...)
}

// OpenFor is Open with what the modules are loaded for.
func OpenFor(t testing.TB, k *host.Kernel, modules ...host.Module) {
	t.Helper()
	for _, m := range modules {
		t.Cleanup(func() {
			if err := m.Close(); err != nil {
				t.Errorf("closing: %v", err)
			}
		})
		_ = m.Open(k) // its features tell
		Check(t, m.Features())
		TellMissed(t, m)
	}
}

// TellMissed has a test that fails say which programs the kernel did not run since the modules were opened, because
// another task was preempted in them: what they would have counted is missing.
func TellMissed(t testing.TB, modules ...host.Module) {
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		for _, cost := range host.ProgramCosts(modules...) {
			if cost.Missed > 0 {
				t.Logf("%s was not run %d times, and ran %d times", cost.Name, cost.Missed, cost.Runs)
			}
		}
	})
}

// Shared are modules that several tests use, one after the other. To load some takes seconds.
type Shared[M any] struct {
	// New makes them: what tests use, and the modules in the order in which they are opened.
	New     func() (M, []host.Module)
	made    M
	modules []host.Module
}

// Open opens them for the first test that asks.
func (s *Shared[M]) Open(t testing.TB) M {
	t.Helper()
	if s.modules == nil {
		s.made, s.modules = s.New()
		k := Kernel(t)
		for _, m := range s.modules {
			_ = m.Open(k) // its features tell
		}
	}
	for _, m := range s.modules {
		Check(t, m.Features())
	}
	TellMissed(t, s.modules...)
	return s.made
}

// Close closes the modules after the last test.
func (s *Shared[M]) Close() error {
	var errs []error
	for _, m := range slices.Backward(s.modules) {
		errs = append(errs, m.Close())
	}
	return errors.Join(errs...)
}

// Check fails a test if a feature is absent for which this kernel is not too old.
func Check(t testing.TB, features []model.Feature) {
	t.Helper()
	for _, f := range features {
		if f.State == model.FeatureAbsent && !(WithoutEdges() && isOfEdges(f)) && !(WithoutExt4() && isOfExt4(f)) &&
			!(isOfSyncWay(f) && WithoutTrampolines()) && !(strings.HasPrefix(f.Name, "tcx/") && host.HaveTCX() != nil) {
			t.Fatalf("%s is absent (this test needs root): %s", f.Name, f.Reason)
		}
	}
}

// WithoutEdges is said by who tests on kernels that are too old for edges, and knows it.
func WithoutEdges() bool { return os.Getenv("OUTSIGHT_WITHOUT_EDGES") != "" }

// Emulated is said by who tests on an emulated machine. It may be slow without measure, and its CPUs stand
// still at any moment, also between the readings of two clocks.
func Emulated() bool { return os.Getenv("OUTSIGHT_EMULATED") != "" }

// Patience is how long a test waits for what must come; readUntil is for what may have come already.
func Patience() time.Duration {
	if Emulated() {
		return 2 * time.Minute
	}
	return 30 * time.Second
}

// WithoutExt4: the kernel has no such file system, or its module is not loaded.
func WithoutExt4() bool {
	text, err := os.ReadFile("/proc/filesystems")
	return err == nil && !strings.Contains(string(text), "\text4\n")
}

func isOfExt4(f model.Feature) bool { return strings.HasPrefix(f.Name, "tp_btf/ext4_") }

// WithoutTrampolines: the kernel lets no program be attached to the end of a function.
var WithoutTrampolines = sync.OnceValue(func() bool {
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.Tracing, AttachType: ebpf.AttachTraceFExit, AttachTo: "inet_sendmsg", License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if err != nil {
		return true
	}
	defer program.Close()
	attached, err := link.AttachTracing(link.TracingOptions{Program: program})
	if err != nil {
		return true
	}
	attached.Close()
	return false
})

// isOfSyncWay: it is attached to the functions of a file system.
func isOfSyncWay(f model.Feature) bool {
	_, function, _ := strings.Cut(f.Name, "/")
	return (strings.HasPrefix(f.Name, "fexit/") || strings.HasPrefix(f.Name, "fentry/")) &&
		(strings.HasPrefix(function, "xfs_") || strings.HasPrefix(function, "btrfs_"))
}

// ofGroups are the features that a kernel has which is too old for edges.
var ofGroups = []string{"tp_btf/sched_switch", "tp_btf/sched_process_exec", "tp_btf/sched_process_exit",
	"tp_btf/cgroup_mkdir",
	"tp_btf/cgroup_rmdir", "tp_btf/cgroup_attach_task", "syscall/read_clocks", "tp_btf/sched_process_fork", "iter/task",
	"contention", "tp_btf/mark_victim", "tp_btf/task_rename"}

func isOfEdges(f model.Feature) bool { return !slices.Contains(ofGroups, f.Name) }

// Controller is that of the hierarchy which identifies containers on this host, as in Options.
func Controller() string {
	if _, err := os.Stat("/sys/fs/cgroup/memory/cgroup.procs"); err == nil {
		return "memory"
	}
	return ""
}

// Group is a control group in the hierarchy that identifies containers and, on v1, also in
// the one that accounts CPU time.
type Group struct{ Dirs []string }

// NewGroup makes a group below the root.
func NewGroup(t *testing.T, name string) *Group {
	t.Helper()
	name = fmt.Sprintf("outsight-test-%d-%s", os.Getpid(), name)
	if Controller() != "" {
		return NewGroupAt(t, filepath.Join("/sys/fs/cgroup/memory", name), filepath.Join("/sys/fs/cgroup/cpuacct", name))
	}
	return NewGroupAt(t, filepath.Join("/sys/fs/cgroup", name))
}

// NewGroupAt makes a group: the first directory identifies it, the last accounts its CPU time.
func NewGroupAt(t *testing.T, dirs ...string) *Group {
	t.Helper()
	g := &Group{Dirs: dirs}
	for _, dir := range g.Dirs {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { g.Remove(t) })
	return g
}

// Remove takes the group away; its processes may still be ending.
func (g *Group) Remove(t *testing.T) {
	for _, dir := range g.Dirs {
		Eventually(t, "removing "+dir, func() bool {
			err := os.Remove(dir)
			return err == nil || os.IsNotExist(err)
		})
	}
}

// ID is the group as kernel programs know it.
func (g *Group) ID(t *testing.T) model.CgroupID {
	t.Helper()
	var stat syscall.Stat_t
	if err := syscall.Stat(g.Dirs[0], &stat); err != nil {
		t.Fatal(err)
	}
	return model.CgroupID(stat.Ino)
}

// CPUTime is the kernel's own account of the group.
func (g *Group) CPUTime(t *testing.T) time.Duration {
	t.Helper()
	if len(g.Dirs) > 1 {
		return time.Duration(ReadNumber(t, filepath.Join(g.Dirs[1], "cpuacct.usage")))
	}
	stat, err := os.ReadFile(filepath.Join(g.Dirs[0], "cpu.stat"))
	if err != nil {
		t.Fatal(err)
	}
	var usec int64
	fmt.Sscanf(string(stat), "usage_usec %d", &usec)
	return time.Duration(usec) * time.Microsecond
}

// ReadNumber reads a file with a number.
func ReadNumber(t *testing.T, path string) int64 {
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

// Workload is this program as one of its workloads, in the group.
func (g *Group) Workload(work string, environment ...string) *exec.Cmd {
	var procs []string
	for _, dir := range g.Dirs {
		procs = append(procs, filepath.Join(dir, "cgroup.procs"))
	}
	cmd := exec.Command(os.Args[0], procs...)
	cmd.Env = append(append(os.Environ(), WorkloadVariable+"="+work), environment...)
	return cmd
}

// StartTalking starts a program that reads requests from its input and writes answers to its output.
func StartTalking(t *testing.T, cmd *exec.Cmd) (in io.WriteCloser, out *bufio.Reader) {
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

// Start runs a workload in the group; stop ends it and waits for it.
func (g *Group) Start(t *testing.T, work string) (pid int, stop func()) {
	t.Helper()
	cmd := g.Workload(work)
	in, out := StartTalking(t, cmd)
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

// ReadUntil reads until what it reads is done, or does not change any more. It is for what is counted of work that
// has ended: then only a sweep of the table of connections may still add to it, which each reading carries out.
func ReadUntil[T any](read func() T, done func(T) bool) T {
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
	if Emulated() {
		return 20 * time.Second
	}
	return 5 * time.Second
}

// Eventually tries until it is so, as long as there is patience.
func Eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(Patience()); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if so() {
			return
		}
	}
	t.Fatalf("%s: not within %v", what, Patience())
}

// StolenTime is what the hypervisor took from all CPUs since the start, to a hundredth of a second.
func StolenTime(t *testing.T) time.Duration { return hostTime(t, 7) }

// IdleTime is for how long all CPUs were idle since the start, waiting for disks apart, to a hundredth of a second.
func IdleTime(t *testing.T) time.Duration { return hostTime(t, 3) }

// hostTime is a number of the line of all CPUs in /proc/stat.
func hostTime(t *testing.T, number int) time.Duration {
	t.Helper()
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		t.Fatal(err)
	}
	line, _, _ := strings.Cut(string(text), "\n")
	fields := strings.Fields(line)
	if len(fields) < number+2 || fields[0] != "cpu" {
		t.Fatalf("/proc/stat begins with %q", line)
	}
	hundredths, err := strconv.ParseInt(fields[number+1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(hundredths) * 10 * time.Millisecond
}

// CostsOf is how often each program of a module ran while do ran, and for how long, by the kernel's statistics: about 40 ns
// of each run are theirs.
func CostsOf(b *testing.B, m host.Module, do func()) []model.ProgramCost {
	b.Helper()
	statistics, err := host.EnableStatistics()
	if err != nil {
		b.Fatal(err)
	}
	defer statistics.Close()
	before := host.ProgramCosts(m)
	do()
	costs := host.ProgramCosts(m)
	for i := range costs {
		costs[i].Runs -= before[i].Runs
		costs[i].RunTimeNS -= before[i].RunTimeNS
	}
	return costs
}
