package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"outsight/internal/container"
	"outsight/internal/csvy"
	"outsight/internal/kernel"
	"outsight/internal/model"
	"outsight/internal/monotonic"
	"outsight/internal/recorder"
)

// recorderGroups is how many control groups are recorded unless the row says otherwise.
const recorderGroups = 100

// measureRecorder takes how regular the recorder's ticks are on a machine that is fully loaded,
// beside a thread that reads files at the same interval, and what either costs.
func measureRecorder(ctx context.Context, o options) ([]row, error) {
	layout, err := container.Detect(container.Options{})
	if err != nil {
		return nil, err
	}
	var rows []row
	for _, measure := range []func(context.Context, options, container.Layout) ([]row, error){
		recorderRegularity, recorderCost, recorderWhole, recorderEffect,
	} {
		measured, err := measure(ctx, o, layout)
		if err != nil {
			return nil, err
		}
		rows = append(rows, measured...)
	}
	return rows, o.document("recorder.md", "recorder", rowsTable(rows))
}

// withGroups runs a measurement with n control groups that the kernel programs know.
func withGroups(l container.Layout, n int, measure func(*kernel.Probes, *benchGroups) ([]row, error)) (rows []row,
	err error) {
	g, err := makeGroups(l, n)
	defer g.remove()
	if err != nil {
		return nil, err
	}
	p, err := kernel.Open(kernel.Options{Controller: l.Subsystem, MaxCgroups: max(1024, 2*n)})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	if err := g.visit(); err != nil {
		return nil, err
	}
	return measure(p, g)
}

// spread is what a series of times looks like against an interval.
type spread struct {
	times    []uint64
	interval time.Duration
}

// deviations of the gaps between two times from the interval, in ms: their standard deviation, that below which
// 99.9 % of them are, the greatest, and how many are over a millisecond.
func (s *spread) deviations() (sd, most, worst float64, over int) {
	squares, offs := 0.0, make([]float64, 0, len(s.times))
	for i := 1; i < len(s.times); i++ {
		off := math.Abs(float64(s.times[i]-s.times[i-1])-float64(s.interval)) / 1e6
		squares += off * off
		offs = append(offs, off)
		if off > 1 {
			over++
		}
	}
	if len(offs) == 0 {
		return 0, 0, 0, 0
	}
	slices.Sort(offs)
	return math.Sqrt(squares / float64(len(offs))), offs[len(offs)*999/1000], offs[len(offs)-1], over
}

// sampleFiles reads the files of containers at an interval until ctx ends, as recorders in user
// space do: a thread with a ticker.
func sampleFiles(ctx context.Context, lane *container.Lane, containers []*model.Container,
	interval time.Duration) spread {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	s, values := spread{interval: interval}, make([]float64, len(lane.Columns()))
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return s
		case <-tick.C:
		}
		s.times = append(s.times, monotonic.Now())
		for _, c := range containers {
			lane.Read(c, values, true)
		}
	}
}

func recorderRegularity(ctx context.Context, o options, l container.Layout) ([]row, error) {
	return withGroups(l, recorderGroups, func(p *kernel.Probes, g *benchGroups) ([]row, error) {
		command := g.inGroup(0, "stress-ng", "--cpu", strconv.Itoa(runtime.NumCPU()), "--quiet")
		stress, err := startProcess(command[0], command[1:]...)
		if err != nil {
			return nil, err
		}
		defer stress.stop()
		if err := sleep(ctx, time.Second); err != nil {
			return nil, err
		}
		var rows []row
		for _, regular := range []struct {
			interval time.Duration
			// sd and worst deviation in ms that the design allows; files whose files are read beside.
			sd, worst float64
			files     int
		}{{50 * time.Millisecond, 0.05, 1, recorderGroups}, {time.Millisecond, 0.1, 0, 1}} {
			progress("recorder: %d groups every %v under stress-ng on every CPU, for %v", recorderGroups,
				regular.interval, o.recorder)
			measured, err := regularity(ctx, o, l, p, g, regular.interval, regular.sd, regular.worst, regular.files)
			if err != nil {
				return nil, err
			}
			rows = append(rows, measured...)
		}
		return rows, nil
	})
}

func regularity(ctx context.Context, o options, l container.Layout, p *kernel.Probes, g *benchGroups,
	interval time.Duration, sdBudget, worstBudget float64, files int) ([]row, error) {
	r, err := p.Record(kernel.RecorderOptions{Interval: interval})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	ctx, cancel := context.WithTimeout(ctx, o.recorder)
	defer cancel()
	lane := container.NewLane(l, container.Options{})
	defer lane.Close()
	stolenBefore, err := hostTicks(stealPlaces)
	if err != nil {
		return nil, err
	}
	beside := make(chan spread)
	go func() { beside <- sampleFiles(ctx, lane, g.containers[:files], interval) }()
	ticks := spread{interval: interval}
	var first, last, cost, samples uint64
	var idle [2]uint64
	var used [2]uint64 // of the group that is under load, at the first tick and at the last
	lost := 0
	next := uint64(0)
	take := func(t *model.Tick) {
		if len(ticks.times) > 0 {
			lost += int(t.Number - next)
		}
		if next = t.Number + 1; len(ticks.times) == 0 {
			idle[0] = t.IdleNS
		}
		idle[1] = t.IdleNS
		ticks.times = append(ticks.times, t.BeganNS)
		cost += t.CostNS
		samples += uint64(len(t.Samples))
		for i := range t.Samples {
			if t.Samples[i].Group == g.containers[0].Cgroup {
				if first == 0 {
					first, used[0] = t.BeganNS, t.Samples[i].CPUNS
				}
				last, used[1] = t.BeganNS, t.Samples[i].CPUNS
			}
		}
	}
	reader := container.NewFiles(l, container.Options{})
	defer reader.Close()
	before, fileBegan, beforeErr := cpuFile(reader, g.containers[0])
	for ctx.Err() == nil {
		if err := r.Drain(take); err != nil {
			return nil, err
		}
		time.Sleep(100 * time.Millisecond)
	}
	after, fileEnded, afterErr := cpuFile(reader, g.containers[0])
	if err := errors.Join(r.Drain(take), beforeErr, afterErr); err != nil {
		return nil, err
	}
	user := <-beside
	stolen, err := hostTicks(stealPlaces)
	if err != nil {
		return nil, err
	}
	if len(ticks.times) < 2 || len(user.times) < 2 || last == first || after == before {
		return nil, fmt.Errorf("%d ticks, %d readings of files", len(ticks.times), len(user.times))
	}
	sd, most, worst, over := ticks.deviations()
	userSD, userMost, userWorst, userOver := user.deviations()
	name := fmt.Sprintf("every %v, %d groups, all CPUs busy: ", interval, recorderGroups)
	detail := fmt.Sprintf("%d ticks in %v; the CPUs were idle for %.2f %%", len(ticks.times), o.recorder,
		100*float64(idle[1]-idle[0])/float64(runtime.NumCPU())/float64(last-first))
	// Both as a share of the wall clock, since the file was not read at the very ticks.
	ours := float64(used[1]-used[0]) / float64(last-first)
	theirs := float64(after-before) / float64(fileEnded-fileBegan)
	rows := []row{
		{what: name + "standard deviation of the gaps", value: sd, unit: "ms", budget: sdBudget, detail: detail},
		{what: name + "99.9 % of the gaps deviate by less than", value: most, unit: "ms", detail: "the same ticks"},
		{what: name + "worst deviation of a gap", value: worst, unit: "ms", budget: worstBudget,
			detail: fmt.Sprintf("%d gaps by over 1 ms; meanwhile the hypervisor took %.0f ms from the CPUs (steal)",
				over, (stolen-stolenBefore)/1e6)},
		{what: name + "ticks lost", value: float64(lost), unit: "ticks", detail: fmt.Sprintf("%+v", r.Losses())},
		{what: name + "standard deviation, files", value: userSD, unit: "ms",
			detail: fmt.Sprintf("a thread that reads the files of %d groups, %d times", files, len(user.times))},
		{what: name + "99.9 % deviate by less than, files", value: userMost, unit: "ms", detail: "the same thread"},
		{what: name + "worst deviation, files", value: userWorst, unit: "ms",
			detail: fmt.Sprintf("%d gaps by over 1 ms", userOver)},
		{what: name + "readings left out, files", value: float64(int(o.recorder/interval) - len(user.times)),
			unit: "readings", detail: "the same thread"},
		{what: name + "standard deviation, files against ticks", value: userSD / sd, unit: "times",
			detail: "in the same minutes"},
		{what: name + "CPU in the ticks against the group's file", value: math.Abs(100 * (ours/theirs - 1)), unit: "%",
			budget: 0.5,
			detail: fmt.Sprintf("%.4f and %.4f CPUs of stress-ng", ours, theirs)},
		{what: name + "one tick", value: float64(cost) / float64(len(ticks.times)) / 1e3, unit: "us",
			detail: fmt.Sprintf("%.0f groups in each, those of the host too", float64(samples)/float64(len(ticks.times)))},
	}
	return rows, nil
}

// cpuFile reads a group's CPU time, and when that was. On a busy machine a reader may be interrupted
// between the two: then it tries again.
func cpuFile(reader *container.Files, c *model.Container) (used, at uint64, err error) {
	for range 1000 {
		began := monotonic.Now()
		used, err = reader.CPUUsage(c)
		if at = monotonic.Now(); err != nil || at-began < uint64(time.Millisecond) {
			return used, at, err
		}
	}
	return 0, 0, errors.New("the machine is too busy to read a file within a millisecond")
}

// cpuClock is the CPU time of the calling thread (unix.CLOCK_THREAD_CPUTIME_ID) or of this process.
func cpuClock(which int32) time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(which, &t); err != nil {
		panic("BUG: no clock of CPU time: " + err.Error())
	}
	return time.Duration(t.Nano())
}

// recorderCost takes what a sample costs: the kernel's part, by the ticks' own clock, and the
// taking out, against reading the same group's files.
func recorderCost(ctx context.Context, _ options, l container.Layout) (rows []row, err error) {
	for _, n := range []int{10, 100, 1000} {
		progress("recorder: cost of a sample with %d groups", n)
		measured, err := withGroups(l, n, func(p *kernel.Probes, g *benchGroups) ([]row,
			error) {
			return sampleCost(ctx, l, p, g)
		})
		if err != nil {
			return nil, err
		}
		rows = append(rows, measured...)
	}
	return rows, nil
}

func sampleCost(ctx context.Context, l container.Layout, p *kernel.Probes, g *benchGroups) ([]row, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const length, interval = 5 * time.Second, 50 * time.Millisecond
	n := len(g.containers)
	r, err := p.Record(kernel.RecorderOptions{Interval: interval})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	var kernel, samples, ticks uint64
	begun := cpuClock(unix.CLOCK_THREAD_CPUTIME_ID)
	every := recorder.DrainEvery(interval)
	for range length / every {
		if err := sleep(ctx, every); err != nil {
			return nil, err
		}
		err := r.Drain(func(t *model.Tick) {
			kernel += t.CostNS
			samples += uint64(len(t.Samples))
			ticks++
		})
		if err != nil {
			return nil, err
		}
	}
	drain := cpuClock(unix.CLOCK_THREAD_CPUTIME_ID) - begun
	if samples < uint64(n)*ticks || ticks == 0 {
		return nil, fmt.Errorf("%d samples of %d groups in %d ticks", samples, n, ticks)
	}
	lane := container.NewLane(l, container.Options{})
	defer lane.Close()
	values := make([]float64, len(lane.Columns()))
	const rounds = 10
	for round := range rounds + 1 {
		if round == 1 { // the files are open now
			begun = cpuClock(unix.CLOCK_THREAD_CPUTIME_ID)
		}
		for _, c := range g.containers {
			if err := lane.Read(c, values, true); err != nil {
				return nil, err
			}
		}
	}
	files := float64(cpuClock(unix.CLOCK_THREAD_CPUTIME_ID)-begun) / float64(rounds*n)
	inKernel, taken := float64(kernel)/float64(samples), float64(drain)/float64(samples)
	name := fmt.Sprintf("%d groups: ", n)
	return []row{
		{what: name + "a sample in the kernel", value: inKernel, unit: "ns",
			detail: fmt.Sprintf("%d samples in %d ticks of %v, by the ticks' own clock", samples, ticks, interval)},
		{what: name + "taking a sample out", value: taken, unit: "ns",
			detail: fmt.Sprintf("CPU time of the thread that drains every %v, as outsight record does", every)},
		{what: name + "reading a group's files", value: files, unit: "ns",
			detail: fmt.Sprintf("%d columns, descriptors kept open", len(values))},
		{what: name + "files against samples", value: files / (inKernel + taken), unit: "times",
			detail: "both parts of a sample"},
	}, nil
}

// warmUp is left out at the beginning of a measurement.
const warmUp = 3 * time.Second

// recorderWhole takes the whole recorder's CPU: the ticks, the file lane once a second, and writing. Groups are at
// rest, or have a process each that looks at a file ten times a second.
func recorderWhole(ctx context.Context, o options, l container.Layout) (rows []row, err error) {
	for _, busy := range []bool{false, true} {
		measured, err := withGroups(l, recorderGroups, func(p *kernel.Probes, g *benchGroups) ([]row, error) {
			name := fmt.Sprintf("whole recorder, 50 ms, %d groups at rest: ", recorderGroups)
			if busy {
				name = fmt.Sprintf("whole recorder, 50 ms, %d groups that run ten times a second: ", recorderGroups)
				for i := range recorderGroups {
					command := g.inGroup(i, "tail", "-n0", "-f", "---disable-inotify", "-s", "0.1", "/etc/passwd")
					process, err := startProcess(command[0], command[1:]...)
					if err != nil {
						return nil, err
					}
					defer process.stop()
				}
			}
			progress("recorder: %s", name)
			return wholeRecorder(ctx, l, p, g, name, o.recorder/4)
		})
		if err != nil {
			return nil, err
		}
		rows = append(rows, measured...)
	}
	return rows, nil
}

func wholeRecorder(ctx context.Context, l container.Layout, p *kernel.Probes, g *benchGroups, name string,
	length time.Duration) ([]row, error) {
	dir, err := os.MkdirTemp("", "outsight-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	ticks, err := p.Record(kernel.RecorderOptions{})
	if err != nil {
		return nil, err
	}
	defer ticks.Close()
	lane := container.NewLane(l, container.Options{})
	defer lane.Close()
	r := recorder.New(ticks, g, lane, recorder.Options{Wanted: func(c *model.Container) bool { return c != benchHost },
		Create: func(h csvy.Head) (recorder.Writer, error) { return csvy.Create(dir, csvy.CSVY, h, csvy.Options{}) }})
	ctx, cancel := context.WithTimeout(ctx, warmUp+length)
	defer cancel()
	// What it takes to begin, to open the files above all, is left out.
	var begun time.Time
	var used time.Duration
	var inTimers uint64
	started := time.AfterFunc(warmUp, func() {
		begun, used, inTimers = time.Now(),
			cpuClock(unix.CLOCK_PROCESS_CPUTIME_ID), ticks.Cost()
	})
	defer started.Stop()
	if err := r.Run(ctx); err != nil {
		return nil, err
	}
	used = cpuClock(unix.CLOCK_PROCESS_CPUTIME_ID) - used
	wall, done := time.Since(begun), r.Progress()
	kernel := float64(ticks.Cost() - inTimers)
	files, _ := filepath.Glob(filepath.Join(dir, "*"))
	var bytes int64
	for _, f := range files {
		if info, err := os.Stat(f); err == nil {
			bytes += info.Size()
		}
	}
	if done.Rows < uint64(recorderGroups)*done.Ticks*9/10 {
		return nil, fmt.Errorf("%+v in %d files", done, len(files))
	}
	return []row{
		{what: name + "CPU", value: 100 * (float64(used) + kernel) / float64(wall), unit: "% of a core", budget: 1,
			detail: fmt.Sprintf("process and timers, files once a second, csvy written, for %v; the timers alone %.2f %%", wall.Round(time.Second), 100*kernel/float64(wall))},
		{what: name + "written", value: float64(bytes) / float64(done.Rows), unit: "bytes per row",
			detail: fmt.Sprintf("%d files", len(files))},
		{what: name + "memory of the ring", value: float64(ticks.RingBytes()) / (1 << 20), unit: "MiB",
			detail: "kernel memory, up to 16 MiB at 1 ms"},
	}, nil
}

// kernels are what the recorder must not slow down; each answers something of what it computed.
var kernels = []struct {
	name string
	step func(*work)
}{
	{"integer", func(w *work) {
		for range 1000 {
			w.integer ^= w.integer << 13
			w.integer ^= w.integer >> 7
			w.integer ^= w.integer << 17
		}
	}},
	{"float", func(w *work) {
		for range 1000 {
			w.float = w.float*1.0000001 + math.Sqrt(w.float)
			if w.float > 1e100 {
				w.float = 1
			}
		}
	}},
	{"memory", func(w *work) {
		for range 250 {
			w.at = (w.at*1664525 + 1013904223) % uint64(len(w.memory))
			w.memory[w.at]++
		}
	}},
}

type work struct {
	integer, at uint64
	float       float64
	memory      []uint64
}

// counter has a cache line of its own.
type counter struct {
	atomic.Uint64
	_ [56]byte
}

// toggle attaches all kernel programs and starts the timer, or the reverse.
func toggle(p *kernel.Probes, r *kernel.Recorder, on bool) error {
	if !on {
		r.Pause()
		return p.Pause()
	}
	return errors.Join(p.Resume(), r.Resume())
}

// recorderEffect compares the speed of programs that compute, on every CPU, with the recorder at
// 50 ms with 100 groups, its hooks included, and without, in turns.
func recorderEffect(ctx context.Context, o options, l container.Layout) ([]row, error) {
	return withGroups(l, recorderGroups, func(p *kernel.Probes, g *benchGroups) ([]row, error) {
		r, err := p.Record(kernel.RecorderOptions{})
		if err != nil {
			return nil, err
		}
		defer r.Close()
		var rows []row
		for _, k := range kernels {
			progress("recorder: effect on the %s kernel for %v", k.name, o.recorder/4)
			stepping := func(_ int, did func(points int) bool) float64 {
				w := &work{integer: 88172645463325252, float: 1, memory: make([]uint64, 4<<20)}
				for did(1) {
					k.step(w)
				}
				return 0
			}
			losses, err := effectOn(ctx, p, r, stepping, int(o.recorder/4/(2*turn)))
			if err != nil {
				return nil, err
			}
			low, high := interval(losses)
			rows = append(rows, row{what: "effect on computing, " + k.name, value: median(losses), unit: "%",
				budget: 0.3, low: low, high: high,
				detail: fmt.Sprintf("%.2f to %.2f with 95 %% certainty, %d pairs of turns, every CPU; hooks and ticks",
					low, high, len(losses))})
		}
		return rows, nil
	})
}

// effectOn compares in turns what a computation does without and with all kernel programs and the ticks. It returns
// each pair's loss in percent.
func effectOn(ctx context.Context, p *kernel.Probes, r *kernel.Recorder, compute computation,
	pairs int) (losses []float64, err error) {
	err = computing(ctx, compute, func(done func() uint64) error {
		time.Sleep(time.Second) // warms up
		for pair := range pairs {
			var speeds [2]float64 // without, with
			for i := range 2 {
				with := (i + pair) % 2
				if err := toggle(p, r, with == 1); err != nil {
					return err
				}
				time.Sleep(rest)
				begun, before := time.Now(), done()
				if err := sleep(ctx, turn); err != nil {
					return err
				}
				speeds[with] = float64(done()-before) / time.Since(begun).Seconds()
				if err := r.Drain(func(*model.Tick) {}); err != nil {
					return err
				}
			}
			losses = append(losses, 100*(1-speeds[1]/speeds[0]))
		}
		return nil
	})
	return losses, err
}
