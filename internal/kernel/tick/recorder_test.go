package tick

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"outsight/internal/kernel/host"
	"outsight/internal/kernel/kerneltest"
	"outsight/internal/model"
	"outsight/internal/monotonic"
)

// recording are ticks with samples of their own.
type recording struct {
	*Recorder
	ticks []model.Tick
}

func record(t *testing.T, p *modules, o RecorderOptions) *recording {
	t.Helper()
	r, err := p.Record(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Errorf("closing the recorder: %v", err)
		}
	})
	return &recording{Recorder: r}
}

func (r *recording) drain(t *testing.T) {
	t.Helper()
	err := r.Drain(func(tick *model.Tick) {
		kept := *tick
		kept.Samples = slices.Clone(tick.Samples)
		r.ticks = append(r.ticks, kept)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// run records for so long.
func (r *recording) run(t *testing.T, length time.Duration) {
	t.Helper()
	for end := time.Now().Add(length); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		r.drain(t)
	}
	r.drain(t)
}

// pause stops the recorder, and waits until no timer is called any more.
func (r *recording) pause(t *testing.T) {
	t.Helper()
	r.Pause()
	before := r.Cost()
	kerneltest.Eventually(t, "the timers have ended", func() bool {
		time.Sleep(3 * r.Interval())
		cost := r.Cost()
		same := cost == before
		before = cost
		return same
	})
	r.drain(t)
}

// of is a group's samples, with the ticks that they are of.
func (r *recording) of(id model.CgroupID) (samples []model.TickSample, ticks []model.Tick) {
	for _, tick := range r.ticks {
		for _, s := range tick.Samples {
			if s.Group == id {
				samples, ticks = append(samples, s), append(ticks, tick)
			}
		}
	}
	return samples, ticks
}

func TestRecorderTicksOnceEachInterval(t *testing.T) {
	p := open(t)
	for _, interval := range []time.Duration{time.Millisecond, 20 * time.Millisecond} {
		t.Run(interval.String(), func(t *testing.T) {
			begun := monotonic.Now()
			r := record(t, p, RecorderOptions{Interval: interval})
			r.run(t, time.Second)
			ended := monotonic.Now()
			r.pause(t)
			drained := monotonic.Now()
			if len(r.ticks) == 0 {
				t.Fatal("no ticks")
			}
			first, last, losses := r.ticks[0], r.ticks[len(r.ticks)-1], r.Losses()
			if first.Number == 0 && first.DueNS < begun || last.BeganNS > drained {
				t.Errorf("ticks from %d to %d, recorded from %d to %d", first.DueNS, last.BeganNS, begun, drained)
			}
			// What was left out is known by the next tick that was not.
			if got, want := uint64(len(r.ticks))+losses.Full+losses.Late, last.Number+1; got != want &&
				losses.Full == 0 || got < want {
				t.Errorf("%d ticks and %+v lost, want %d together", len(r.ticks), losses, want)
			}
			// All that were due are there: the last began at most one interval, and what a busy
			// host delays it, before the end.
			if due := first.Number + (ended-first.DueNS)/uint64(interval); due > last.Number+2+50*uint64(time.Millisecond)/uint64(interval) {
				t.Errorf("%d ticks were due, the last is number %d", due, last.Number)
			}
			for i, tick := range r.ticks {
				if tick.DueNS != first.DueNS+(tick.Number-first.Number)*uint64(interval) {
					t.Fatalf("tick %d was due at %d, the first at %d", tick.Number, tick.DueNS, first.DueNS)
				}
				if tick.BeganNS < tick.DueNS || tick.CostNS == 0 {
					t.Fatalf("tick %d was due at %d, began at %d and cost %d", tick.Number, tick.DueNS, tick.BeganNS, tick.CostNS)
				}
				if i > 0 && tick.Number <= r.ticks[i-1].Number {
					t.Fatalf("tick %d after %d", tick.Number, r.ticks[i-1].Number)
				}
			}
		})
	}
}

func TestEitherTimerTakesTheTicks(t *testing.T) {
	p := open(t)
	r := record(t, p, RecorderOptions{Interval: 10 * time.Millisecond})
	if want := min(runtime.NumCPU(), 2); len(r.timerCPUs) != want {
		t.Fatalf("timers on CPUs %v, want %d", r.timerCPUs, want)
	}
	for number := range r.timerCPUs {
		r.pause(t)
		r.ticks = nil
		c := &r.control.Entries[0]
		atomic.StoreUint64(&c.DueNs, monotonic.Now())
		atomic.StoreUint32(&c.Stopped, 0)
		if err := r.startTimer(uint32(number)); err != nil {
			t.Fatal(err)
		}
		const want = 5
		for end := time.Now().Add(kerneltest.Patience()); len(r.ticks) < want && time.Now().Before(end); {
			r.run(t, 20*r.Interval())
		}
		if len(r.ticks) < want {
			t.Errorf("timer %d alone made %d ticks", number, len(r.ticks))
		}
	}
}

func TestRecorderRefusesIntervals(t *testing.T) {
	p := open(t)
	for _, interval := range []time.Duration{-1, 999 * time.Microsecond, 11 * time.Second} {
		if r, err := p.Record(RecorderOptions{Interval: interval}); err == nil {
			r.Close()
			t.Errorf("records every %v", interval)
		}
	}
}

func TestRecorderTicksSumToTheGroupsCPUTime(t *testing.T) {
	p := open(t)
	g := kerneltest.NewGroup(t, "recorded")
	g.Start(t, "spin")
	r := record(t, p, RecorderOptions{Interval: 2 * time.Millisecond})
	r.run(t, 100*time.Millisecond)
	r.ticks = nil
	begun, stolen := monotonic.Now(), kerneltest.StolenTime(t)
	before := g.CPUTime(t)
	r.run(t, 2*time.Second)
	after := g.CPUTime(t)
	ended := monotonic.Now()
	samples, ticks := r.of(g.ID(t))
	if len(samples) < 500 {
		t.Fatalf("%d samples of the group in two seconds", len(samples))
	}
	last := len(samples) - 1
	gained := time.Duration(samples[last].CPUNS - samples[0].CPUNS)
	span := time.Duration(ticks[last].BeganNS - ticks[0].BeganNS)
	// The file was read before the first tick and after the last; how long before and after, only
	// a busy host knows.
	outside := time.Duration(ended-begun) - span
	// The kernel accounts at its ticks, and leaves out what the hypervisor took (CONFIG_PARAVIRT_TIME_ACCOUNTING), which
	// the run queue's clock has.
	stolen = kerneltest.StolenTime(t) - stolen
	late := 5*time.Millisecond + stolen
	t.Logf("ticks: %v over %v; file: %v; stolen: %v; the recorder took %v", gained, span, after-before, stolen,
		time.Duration(r.Cost()))
	if want := after - before; gained > want+late || gained < want-outside-10*time.Millisecond {
		t.Errorf("the ticks say %v over %v, the group's file %v, %v of it outside of them at most", gained, span, want,
			outside)
	}
	// A thread that ran at two ticks and was not switched in between ran all the time, whatever
	// else this host does.
	whole, wrong := 0, 0
	for i := range last {
		from, to := &samples[i], &samples[i+1]
		if from.Running != 1 || to.Running != 1 || from.Involuntary != to.Involuntary || from.Voluntary != to.Voluntary {
			continue
		}
		whole++
		if share := float64(to.CPUNS-from.CPUNS) / float64(ticks[i+1].BeganNS-ticks[i].BeganNS); share < 0.95 ||
			share > 1.05 {
			t.Logf("%.3f CPUs in tick %d", share, ticks[i+1].Number)
			wrong++
		}
	}
	// The machine itself may stand still between two steps of a tick, if it is a virtual one.
	if whole < 10 || wrong*20 > whole {
		t.Errorf("of %d ticks in which the thread ran all the time, %d say otherwise", whole, wrong)
	}
}

// TestRecorderKnowsMemoryAndThrottling holds both against the group's files, before and after.
func TestRecorderKnowsMemoryAndThrottling(t *testing.T) {
	p := open(t)
	name := fmt.Sprintf("outsight-test-%d-limited", os.Getpid())
	cpu, usage, stat := filepath.Join("/sys/fs/cgroup", name), "memory.current", "cpu.stat"
	var g *kerneltest.Group
	if kerneltest.Controller() == "" {
		g = kerneltest.NewGroupAt(t, cpu)
		write(t, filepath.Join(cpu, "cpu.max"), "10000 100000")
	} else {
		cpu, usage = filepath.Join("/sys/fs/cgroup/cpu", name), "memory.usage_in_bytes"
		g = kerneltest.NewGroupAt(t, filepath.Join("/sys/fs/cgroup/memory", name), cpu)
		write(t, filepath.Join(cpu, "cpu.cfs_quota_us"), "10000")
	}
	numbers := func() (memory, periods, throttledNS uint64) {
		memory = fileNumber(t, filepath.Join(g.Dirs[0], usage), "")
		periods = fileNumber(t, filepath.Join(cpu, stat), "nr_throttled")
		if kerneltest.Controller() == "" {
			return memory, periods, 1000 * fileNumber(t, filepath.Join(cpu, stat), "throttled_usec")
		}
		return memory, periods, fileNumber(t, filepath.Join(cpu, stat), "throttled_time")
	}
	g.Start(t, "spin")
	r := record(t, p, RecorderOptions{Interval: 5 * time.Millisecond})
	r.run(t, 1500*time.Millisecond)
	for range 5 {
		r.ticks = nil
		memory, periods, ns := numbers()
		r.run(t, 150*time.Millisecond)
		memoryAfter, periodsAfter, nsAfter := numbers()
		samples, _ := r.of(g.ID(t))
		if len(samples) < 5 {
			t.Fatalf("%d samples", len(samples))
		}
		for _, s := range samples {
			if !s.HasMemory || !s.HasThrottled {
				t.Fatalf("not known: %+v", s)
			}
			// What a CPU has charged in advance comes and goes.
			const batch = 64 * 4096 * 2
			if s.MemoryBytes+batch < min(memory, memoryAfter) || s.MemoryBytes > max(memory, memoryAfter)+batch {
				t.Errorf("%d bytes of memory, the file says %d and %d", s.MemoryBytes, memory, memoryAfter)
			}
			if s.ThrottledPeriods < periods || s.ThrottledPeriods > periodsAfter || s.ThrottledNS/1000 < ns/1000 ||
				s.ThrottledNS/1000 > nsAfter/1000 {
				t.Errorf("throttled in %d periods for %d ns, the file says %d to %d and %d to %d", s.ThrottledPeriods,
					s.ThrottledNS, periods, periodsAfter, ns, nsAfter)
			}
		}
		if memory == 0 || periodsAfter == 0 || nsAfter == 0 {
			t.Fatalf("%d bytes, %d periods, %d ns: the test tests nothing", memory, periodsAfter, nsAfter)
		}
	}
}

// TestRecorderKnowsFaults holds the faults of a process against those that the kernel tells of it.
func TestRecorderKnowsFaults(t *testing.T) {
	p := open(t)
	g := kerneltest.NewGroup(t, "faults")
	pid, _ := g.Start(t, "touch")
	toggle := func() {
		if err := syscall.Kill(pid, syscall.SIGUSR1); err != nil {
			t.Fatal(err)
		}
	}
	// fromProc are the minor and the major ones, by /proc/PID/stat.
	fromProc := func() (minor, major uint64) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			t.Fatal(err)
		}
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		minor, _ = strconv.ParseUint(fields[7], 10, 64)
		major, _ = strconv.ParseUint(fields[9], 10, 64)
		return minor, major
	}
	r := record(t, p, RecorderOptions{Interval: 2 * time.Millisecond})
	// ours are both while nothing changes.
	ours := func() (s model.TickSample) {
		kerneltest.Eventually(t, "the process rests", func() bool {
			before, _ := fromProc()
			r.ticks = nil
			r.run(t, 50*time.Millisecond)
			samples, _ := r.of(g.ID(t))
			if len(samples) == 0 {
				return false
			}
			s = samples[len(samples)-1]
			after, _ := fromProc()
			return before == after && samples[0].MinorFaults == s.MinorFaults
		})
		return s
	}
	before := ours()
	minor, major := fromProc()
	toggle()
	kerneltest.Eventually(t, "faults are seen while their thread runs on", func() bool {
		r.ticks = nil
		r.run(t, 100*time.Millisecond)
		samples, _ := r.of(g.ID(t))
		for i := range len(samples) - 1 {
			from, to := samples[i], samples[i+1]
			if from.Running == 1 && to.Running == 1 && from.Involuntary == to.Involuntary && from.Voluntary == to.Voluntary &&
				to.MinorFaults > from.MinorFaults {
				return true
			}
		}
		return false
	})
	toggle()
	after := ours()
	minorAfter, majorAfter := fromProc()
	if got, want := after.MinorFaults-before.MinorFaults, minorAfter-minor; got != want || want < 1000 {
		t.Errorf("%d minor faults, the kernel says %d", got, want)
	}
	if got, want := after.MajorFaults-before.MajorFaults, majorAfter-major; got != want {
		t.Errorf("%d major faults, the kernel says %d", got, want)
	}
}

// TestRecorderForgetsMemoryOfGroupsThatAreGone: nothing is read of a group whose directory is gone.
func TestRecorderForgetsMemoryOfGroupsThatAreGone(t *testing.T) {
	p := open(t)
	g := kerneltest.NewGroup(t, "forgotten")
	id := g.ID(t)
	_, stop := g.Start(t, "idle")
	r := record(t, p, RecorderOptions{Interval: 5 * time.Millisecond})
	r.run(t, 1200*time.Millisecond)
	if samples, _ := r.of(id); len(samples) == 0 || !samples[len(samples)-1].HasMemory {
		t.Fatalf("%d samples, the last without memory", len(samples))
	}
	stop()
	g.Remove(t)
	r.drain(t)
	r.ticks = nil
	r.run(t, 1200*time.Millisecond) // its slot is not released
	samples, ticks := r.of(id)
	if len(samples) < 100 {
		t.Fatalf("%d samples of the group without a directory: the test tests nothing", len(samples))
	}
	for i, s := range samples[1:] { // one tick may have been running
		if s.HasMemory || s.HasThrottled {
			t.Fatalf("tick %d still reads its memory", ticks[i+1].Number)
		}
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0); err != nil {
		t.Fatal(err)
	}
}

// fileNumber is the number in a file, or behind a key in one.
func fileNumber(t *testing.T, path, key string) uint64 {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if value, found := strings.CutPrefix(line, key); found {
			n, err := strconv.ParseUint(strings.TrimSpace(value), 10, 64)
			if err == nil {
				return n
			}
		}
	}
	t.Fatalf("%s has no %s:\n%s", path, key, text)
	return 0
}

func TestRecorderSeesGroupsComeAndGo(t *testing.T) {
	p := open(t)
	r := record(t, p, RecorderOptions{Interval: 5 * time.Millisecond})
	r.run(t, 50*time.Millisecond)
	g := kerneltest.NewGroup(t, "coming")
	id := g.ID(t)
	began := monotonic.Now()
	_, stop := g.Start(t, "idle")
	r.run(t, 50*time.Millisecond)
	_, ticks := r.of(id)
	if len(ticks) == 0 || ticks[0].BeganNS < began {
		t.Fatalf("%d ticks have the new group", len(ticks))
	}
	stop()
	g.Remove(t)
	p.Forget(id)
	r.drain(t)
	r.ticks = nil
	r.run(t, 50*time.Millisecond)
	if samples, _ := r.of(id); len(r.ticks) == 0 || len(samples) > 0 {
		t.Errorf("%d of %d ticks have the group that is gone", len(samples), len(r.ticks))
	}
}

func TestRecorderLeavesOutWhatIsIgnored(t *testing.T) {
	p := open(t)
	g, other := kerneltest.NewGroup(t, "ignored"), kerneltest.NewGroup(t, "wanted")
	g.Start(t, "spin")
	other.Start(t, "idle")
	r := record(t, p, RecorderOptions{Interval: 5 * time.Millisecond})
	r.run(t, 30*time.Millisecond)
	r.Ignore(g.ID(t))
	r.drain(t)
	r.ticks = nil
	r.run(t, 50*time.Millisecond)
	// The tick that was running then may still have it.
	if samples, _ := r.of(g.ID(t)); len(samples) > 1 {
		t.Errorf("%d samples of a group that is ignored", len(samples))
	}
	if samples, _ := r.of(other.ID(t)); len(samples) == 0 {
		t.Error("no samples of the other group")
	}
}

func TestRecorderCountsTicksWithoutRoom(t *testing.T) {
	p := open(t)
	r := record(t, p, RecorderOptions{Interval: time.Millisecond, RingBytes: 64 * sampleBytes})
	kerneltest.Eventually(t, "filling the ring", func() bool { return r.Losses().Full > 10 })
	r.drain(t)
	if len(r.ticks) == 0 || r.ticks[0].Number != 0 {
		t.Fatalf("%d ticks from a full ring", len(r.ticks))
	}
	kept := len(r.ticks)
	kerneltest.Eventually(t, "recording on", func() bool { r.drain(t); return len(r.ticks) > 2*kept })
	losses, last := r.Losses(), r.ticks[len(r.ticks)-1]
	// The kernel may have made more since.
	if missing := last.Number + 1 - uint64(len(r.ticks)); losses.Full+losses.Late < missing || losses.Full <= 10 {
		t.Errorf("%d ticks are missing, %+v are counted", missing, losses)
	}
	for _, tick := range r.ticks {
		seen := map[model.CgroupID]bool{}
		for _, s := range tick.Samples {
			if s.Group == 0 || seen[s.Group] {
				t.Fatalf("tick %d has group %d twice or group 0", tick.Number, s.Group)
			}
			seen[s.Group] = true
		}
	}
}

func TestRecordersDoNotDisturbEachOther(t *testing.T) {
	p := open(t)
	slow, fast := record(t, p, RecorderOptions{Interval: 20 * time.Millisecond}),
		record(t, p, RecorderOptions{Interval: 2 * time.Millisecond})
	for range 20 {
		slow.run(t, 20*time.Millisecond)
		fast.run(t, 20*time.Millisecond)
	}
	// On a busy host ticks are late, or find no room while this process does not run.
	losses := fast.Losses()
	if due := len(fast.ticks) + int(losses.Full+losses.Late); len(slow.ticks) < 20 || len(fast.ticks) < 20 ||
		due < 8*len(slow.ticks) {
		t.Errorf("%d ticks of 20 ms, and %d of 2 ms with %+v", len(slow.ticks), len(fast.ticks), losses)
	}
}

func TestRecorderPausesAndGoesOn(t *testing.T) {
	p := open(t)
	r := record(t, p, RecorderOptions{Interval: 2 * time.Millisecond})
	r.run(t, 50*time.Millisecond)
	r.pause(t)
	r.ticks = nil
	r.run(t, 50*time.Millisecond)
	if len(r.ticks) > 0 {
		t.Errorf("%d ticks while it pauses", len(r.ticks))
	}
	if err := r.Resume(); err != nil {
		t.Fatal(err)
	}
	r.run(t, 100*time.Millisecond)
	if len(r.ticks) < 25 {
		t.Errorf("%d ticks of 2 ms in 100 ms", len(r.ticks))
	}
}

// talk is the workload "talk": a client that sends a request, and a server that replies, each when its input says so.
func talk() int {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	client, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	server, err := listener.Accept()
	fmt.Println("ready")
	for lines := bufio.NewScanner(os.Stdin); err == nil && lines.Scan(); fmt.Println("done") {
		from, to, bytes := client, server, 100
		if lines.Text() == "reply" {
			from, to, bytes = server, client, 1000
		}
		if _, err = from.Write(make([]byte, bytes)); err == nil {
			_, err = io.ReadFull(to, make([]byte, bytes))
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func TestRecorderShowsWhatIsInFlight(t *testing.T) {
	p := open(t)
	g := kerneltest.NewGroup(t, "talking")
	cmd := g.Workload("talk")
	in, out := kerneltest.StartTalking(t, cmd)
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the workload: %v", err)
		}
	})
	if line, err := out.ReadString('\n'); line != "ready\n" {
		t.Fatalf("the workload says %q: %v", line, err)
	}
	do := func(what string) {
		t.Helper()
		fmt.Fprintln(in, what)
		if line, err := out.ReadString('\n'); line != "done\n" {
			t.Fatalf("%s: the workload says %q: %v", what, line, err)
		}
	}
	do("request")
	do("reply")
	// The edges are known to the recorder from its beginning on.
	r := record(t, p, RecorderOptions{Interval: 5 * time.Millisecond})
	level := func(what string, inFlight uint32) (last model.TickSample) {
		t.Helper()
		kerneltest.Eventually(t, fmt.Sprintf("%d in flight %s", inFlight, what), func() bool {
			r.drain(t)
			samples, _ := r.of(g.ID(t))
			r.ticks = nil
			if len(samples) > 0 {
				last = samples[len(samples)-1]
			}
			return len(samples) > 0 && last.Asking == inFlight && last.Serving == inFlight
		})
		return last
	}
	before := level("before the request", 0)
	do("request")
	level("during the request", 1)
	do("reply")
	after := level("after the reply", 0)
	sent, received := after.SentBytes-before.SentBytes, after.ReceivedBytes-before.ReceivedBytes
	if want := uint64(100 + 1000); sent != want || received != want {
		t.Errorf("%d bytes were sent and %d received, want %d", sent, received, want)
	}
}

// recordUntilKilled is the workload "record".
func recordUntilKilled() int {
	p := newModules()
	k, err := host.ReadKernel(host.KernelOptions{Controller: kerneltest.Controller(), ProcFS: "/proc",
		BTF: "/sys/kernel/btf/vmlinux"})
	for _, m := range p.all() {
		if err == nil {
			_ = m.Open(k) // Record fails without
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if _, err := p.Record(RecorderOptions{Interval: time.Millisecond}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println("ready")
	bufio.NewReader(os.Stdin).ReadByte()
	return 0
}

func TestKilledRecorderLeavesNothing(t *testing.T) {
	before := loadedRecorders(t)
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), kerneltest.WorkloadVariable+"=record")
	command.Stderr = os.Stderr
	in, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	during := loadedRecorders(t)
	command.Process.Kill()
	command.Wait()
	if line != "ready\n" || during <= before {
		t.Fatalf("the workload says %q, with %d recorders before and %d then", line, before, during)
	}
	kerneltest.Eventually(t, "the kernel lets go of the timer", func() bool { return loadedRecorders(t) == before })
}

// recorderPrograms counts the programs with a timer that the kernel has.
func loadedRecorders(t *testing.T) (n int) {
	t.Helper()
	for id := ebpf.ProgramID(0); ; {
		next, err := ebpf.ProgramGetNextID(id)
		if err != nil {
			return n
		}
		id = next
		program, err := ebpf.NewProgramFromID(id)
		if err != nil {
			continue // gone meanwhile
		}
		if info, err := program.Info(); err == nil && info.Name == "start_recorder" {
			n++
		}
		program.Close()
	}
}
