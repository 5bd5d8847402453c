package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"outsight/internal/container"
	"outsight/internal/kernel"
)

const (
	// switchBudget is in nanoseconds per switch without counters.
	switchBudget = 150
	// switchTurns is how many turns each set of programs gets.
	switchTurns = 100
)

// measureCounters takes what a context switch costs without and with counters. The load is two processes
// in two control groups that pass a byte to and fro on one CPU, so that every switch is to another
// group. The counters are the kernel's software events: their reading costs what the helper and the
// program cost, not what the hardware's registers do.
func measureCounters(ctx context.Context, o options) ([]row, error) {
	layout, err := container.Detect(container.Options{})
	if err != nil {
		return nil, err
	}
	g, err := makeGroups(layout, 2)
	defer g.remove()
	if err != nil {
		return nil, err
	}
	open := func(mode kernel.CounterMode) (*kernel.Probes, error) {
		return kernel.Open(kernel.Options{Controller: layout.Subsystem, WithoutEndpoints: true, Counters: mode})
	}
	off, err := open(kernel.CountersOff)
	if err != nil {
		return nil, err
	}
	defer off.Close()
	on, err := open(kernel.CountersSoftware)
	if err != nil {
		return nil, err
	}
	defer on.Close()
	if err := errors.Join(off.Pause(), on.Pause()); err != nil {
		return nil, err
	}
	rows, err := costPerRun(ctx, g, off, on, o.run)
	if err != nil {
		return nil, err
	}
	more, err := costInTurns(ctx, g, off, on)
	return append(rows, more...), err
}

// costPerRun takes nanoseconds per run from the kernel's own statistics, at three rates of switches.
func costPerRun(ctx context.Context, g *benchGroups, off, on *kernel.Probes, length time.Duration) ([]row, error) {
	statistics, err := kernel.EnableStatistics()
	if err != nil {
		return nil, err
	}
	defer statistics.Close()
	var rows []row
	for _, rate := range []string{"30000", "100000", ""} {
		progress("switches: programs at a rate of %s a second", switchRate(rate))
		p, err := startPingPong(ctx, g, rate)
		if err != nil {
			return nil, err
		}
		for _, mode := range []struct {
			name     string
			probes   *kernel.Probes
			programs []string
			budget   float64
		}{
			{"without counters", off, []string{"tp_btf/sched_switch"}, switchBudget},
			{"with counters", on, []string{"tp_btf/sched_switch", "perf_event/counters"}, 0},
		} {
			ns, perSecond, err := runsOf(mode.probes, mode.programs, length)
			if err != nil {
				p.stop()
				return nil, err
			}
			rows = append(rows, row{what: "a switch " + mode.name + ", " + switchRate(rate), value: ns, unit: "ns",
				budget: mode.budget,
				detail: fmt.Sprintf("%s at %.0f switches/s; run times of the kernel's statistics, some 40 ns of each program are theirs",
					strings.Join(mode.programs, " and "), perSecond)})
		}
		p.stop()
	}
	return rows, nil
}

func switchRate(rate string) string {
	if rate == "" {
		return "as many as there can be"
	}
	return rate + "/s"
}

// runsOf attaches the programs for a while: nanoseconds of some of them together, per run of the first.
func runsOf(p *kernel.Probes, programs []string, length time.Duration) (ns, perSecond float64, err error) {
	if err := p.Resume(); err != nil {
		return 0, 0, err
	}
	defer p.Pause()
	sum := func() (runs, time uint64) {
		for _, c := range p.ProgramCosts() {
			if slices.Contains(programs, c.Name) {
				time += c.RunTimeNS
				if c.Name == programs[0] {
					runs = c.Runs
				}
			}
		}
		return runs, time
	}
	begun := time.Now()
	runs, spent := sum()
	time.Sleep(length)
	runsAfter, spentAfter := sum()
	seconds := time.Since(begun).Seconds()
	if runsAfter == runs {
		return 0, 0, errors.New("the program did not run")
	}
	return float64(spentAfter-spent) / float64(runsAfter-runs), float64(runsAfter-runs) / seconds, nil
}

// switchMode is something that is attached while a switch is timed.
type switchMode struct {
	what   string
	budget float64
	attach func() (detach func() error, err error)
}

func switchModes(off, on *kernel.Probes) []switchMode {
	empty := func(programs int) func() (func() error, error) {
		return func() (func() error, error) { return kernel.AttachNothing(programs) }
	}
	return []switchMode{
		{attach: empty(0)},
		{"an empty program at the same hook", 0, empty(1)},
		{"two empty programs", 0, empty(2)},
		{"all programs without counters, contention given up", switchBudget, func() (func() error, error) {
			return off.Pause, errors.Join(off.Resume(), off.Shed("contention"))
		}},
		{"all programs without counters", switchBudget, func() (func() error, error) { return off.Pause, off.Resume() }},
		{"all programs with counters", 0, func() (func() error, error) { return on.Pause, on.Resume() }},
	}
}

// costInTurns lets the load run as fast as it can, without programs and with some in turn, and compares the time of a
// switch.
func costInTurns(ctx context.Context, g *benchGroups, off, on *kernel.Probes) ([]row, error) {
	progress("switches: in turns without programs and with some")
	p, err := startPingPong(ctx, g, "")
	if err != nil {
		return nil, err
	}
	defer p.stop()
	modes := switchModes(off, on)
	times := make([][]float64, len(modes)) // ns per switch
	for number := range len(modes) * switchTurns {
		i := number % len(modes)
		if number/len(modes)%2 == 1 {
			i = len(modes) - 1 - i
		}
		detach, err := modes[i].attach()
		if err != nil {
			return nil, errors.Join(err, detach())
		}
		ns, err := p.turn()
		if err := errors.Join(err, detach()); err != nil {
			return nil, err
		}
		times[i] = append(times[i], ns)
	}
	detail := fmt.Sprintf("%d turns of %v each; a switch and what the two processes do takes %.0f ns of CPU time without programs", len(times[0]), turn, median(times[0]))
	var rows []row
	for i := 1; i < len(modes); i++ {
		var added []float64
		for n := range times[0] {
			added = append(added, times[i][n]-times[0][n])
		}
		low, high := interval(added)
		rows = append(rows, row{what: "added to a switch by " + modes[i].what, value: median(added), unit: "ns",
			budget: modes[i].budget, low: low, high: high,
			detail: fmt.Sprintf("%.0f to %.0f with 95 %% certainty; %s", low, high, detail)})
	}
	return rows, nil
}

// pingPongLoad is two processes that run on the last CPU.
type pingPongLoad struct{ ping, pong *exec.Cmd }

func startPingPong(ctx context.Context, g *benchGroups, rate string) (*pingPongLoad, error) {
	executable, err := os.Executable()
	if err != nil {
		return nil, err
	}
	toPing, fromPong, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	toPong, fromPing, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, toPing.Close(), fromPong.Close())
	}
	p := &pingPongLoad{}
	start := func(group int, work string, in, out *os.File) (*exec.Cmd, error) {
		words := g.inGroup(group, executable)
		c := exec.CommandContext(ctx, words[0], words[1:]...)
		c.Env = append(os.Environ(), workVariable+"="+work, paceVariable+"="+rate, "GOMAXPROCS=1", "GOGC=off")
		c.ExtraFiles, c.Stderr = []*os.File{in, out}, os.Stderr
		c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := c.Start(); err != nil {
			return nil, err
		}
		var last unix.CPUSet
		last.Set(runtime.NumCPU() - 1)
		return c, unix.SchedSetaffinity(c.Process.Pid, &last)
	}
	p.ping, err = start(0, "ping", toPing, fromPing)
	if err == nil {
		p.pong, err = start(1, "pong", toPong, fromPong)
	}
	err = errors.Join(err, toPing.Close(), fromPing.Close(), toPong.Close(), fromPong.Close())
	if err != nil {
		p.stop()
		return nil, err
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if n, err := p.switches(); err == nil && n > 1000 {
			return p, nil
		}
		if time.Now().After(end) {
			p.stop()
			return nil, errors.New("the two processes do not pass anything to each other")
		}
	}
}

// switches is how often the two were switched out, for whatever reason: whom a byte wakes may run before its sender
// goes to sleep.
func (p *pingPongLoad) switches() (sum uint64, err error) {
	for _, c := range []*exec.Cmd{p.ping, p.pong} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.Process.Pid))
		if err != nil {
			return 0, err
		}
		for _, kind := range []string{"\nvoluntary_ctxt_switches:", "\nnonvoluntary_ctxt_switches:"} {
			_, after, _ := strings.Cut(string(text), kind)
			line, _, _ := strings.Cut(after, "\n")
			n, err := strconv.ParseUint(strings.TrimSpace(line), 10, 64)
			if err != nil {
				return 0, err
			}
			sum += n
		}
	}
	return sum, nil
}

// ran is the CPU time of both processes in nanoseconds, the switches between them included.
func (p *pingPongLoad) ran() (sum uint64, err error) {
	for _, c := range []*exec.Cmd{p.ping, p.pong} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", c.Process.Pid))
		if err != nil {
			return 0, err
		}
		var ns uint64
		if _, err := fmt.Sscan(string(text), &ns); err != nil {
			return 0, err
		}
		sum += ns
	}
	return sum, nil
}

// turn measures the CPU time of a switch for a while. Others on the CPU do not add to it.
func (p *pingPongLoad) turn() (ns float64, err error) {
	time.Sleep(rest)
	first, err := p.switches()
	ran, ranErr := p.ran()
	if err := errors.Join(err, ranErr); err != nil {
		return 0, err
	}
	time.Sleep(turn - rest)
	last, err := p.switches()
	ranAfter, ranErr := p.ran()
	if err := errors.Join(err, ranErr); err != nil {
		return 0, err
	}
	if last == first {
		return 0, errors.New("the load stands still")
	}
	return float64(ranAfter-ran) / float64(last-first), nil
}

func (p *pingPongLoad) stop() {
	for _, c := range []*exec.Cmd{p.ping, p.pong} {
		if c != nil && c.Process != nil {
			c.Process.Kill()
			c.Wait()
		}
	}
}
