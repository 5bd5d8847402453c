package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"outsight/internal/container"
	"outsight/internal/kernel"
)

// switchWork is what this program does instead where the variable is set: it works on the first CPU alone.
const switchWork = "OUTSIGHT_BENCH_SWITCHES"

// switchLoad is a load that switches between control groups on one CPU.
type switchLoad struct {
	name string
	// spinners beside the pair that passes a byte to and fro, each in a group of its own.
	spinners int
	// naps is how long the pair sleeps between two passes; without, the CPU never idles.
	naps time.Duration
}

var switchLoads = []switchLoad{
	{"two groups in turns", 0, 0},
	{"two groups in turns, CPU idle between", 0, 50 * time.Microsecond},
	{"two groups in turns beside 4 that spin", 4, 0},
	{"two groups in turns beside 16 that spin", 16, 0},
}

// measureContention tells what it costs at each switch to know who ran while whom waited: by the kernel's
// statistics of programs, and by how many switches fewer there are with the program than without.
func measureContention(ctx context.Context, o options) ([]row, error) {
	layout, err := container.Detect(container.Options{})
	if err != nil {
		return nil, err
	}
	p, err := kernel.Open(kernel.Options{Controller: layout.Subsystem, WithoutEndpoints: true})
	if err != nil {
		return nil, err
	}
	defer p.Close()
	var rows []row
	for _, l := range switchLoads {
		if !strings.Contains(l.name, o.loads) {
			continue
		}
		measured, err := l.measure(ctx, p, layout, o)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", l.name, err)
		}
		rows = append(rows, measured...)
	}
	return rows, nil
}

func (l switchLoad) measure(ctx context.Context, p *kernel.Probes, layout container.Layout, o options) (rows []row,
	err error) {
	g, err := makeGroups(layout, l.spinners+2)
	defer g.remove()
	if err != nil {
		return nil, err
	}
	progress("contention: %s", l.name)
	there, back, err := pipes()
	if err != nil {
		return nil, err
	}
	defer closeAll(there, back)
	ctx, cancel := context.WithCancel(ctx)
	var running []*exec.Cmd
	defer func() {
		cancel()
		for _, c := range running {
			c.Wait()
		}
	}()
	start := func(group int, work string, files ...*os.File) (io.Reader, error) {
		args := g.inGroup(group, os.Args[0])
		c := exec.CommandContext(ctx, args[0], args[1:]...)
		c.Env, c.ExtraFiles, c.Stderr = append(os.Environ(), switchWork+"="+work), files, os.Stderr
		out, err := c.StdoutPipe()
		if err != nil {
			return nil, err
		}
		if err := c.Start(); err != nil {
			return nil, err
		}
		running = append(running, c)
		return out, nil
	}
	for i := range l.spinners {
		if _, err := start(i+2, "spin"); err != nil {
			return nil, err
		}
	}
	if _, err := start(0, "echo", there[0], back[1]); err != nil {
		return nil, err
	}
	lines, err := start(1, "ask "+strconv.FormatInt(int64(l.naps), 10), back[0], there[1])
	if err != nil {
		return nil, err
	}
	var passes atomic.Uint64
	go func() {
		for scan := bufio.NewScanner(lines); scan.Scan(); {
			if n, err := strconv.ParseUint(scan.Text(), 10, 64); err == nil {
				passes.Store(n)
			}
		}
	}()
	for end := time.Now().Add(20 * time.Second); passes.Load() == 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			return nil, errors.New("the load did not begin")
		}
	}
	losses, speed, err := lossOfContention(p, &passes, 8*o.pairs)
	if err != nil {
		return nil, err
	}
	low, high := interval(losses)
	mid := median(losses)
	rows = append(rows, row{what: "contention: " + l.name + ": passes lost", value: mid, unit: "%",
		detail: fmt.Sprintf("median of %d pairs of turns, 95 %% within %.2f and %.2f; %.0f passes/s without it",
			len(losses), low, high, speed)})
	statistics, err := kernel.EnableStatistics()
	if err != nil {
		return nil, err
	}
	defer statistics.Close()
	for _, with := range []bool{false, true} {
		if err := switchContention(p, with); err != nil {
			return nil, err
		}
		before := costs(p)
		time.Sleep(2 * time.Second) // the measured time
		for name, after := range costs(p) {
			if name != "tp_btf/sched_switch" && (name != "contention" || !with) {
				continue
			}
			what := "contention: " + l.name + ": " + name
			if name != "contention" {
				what += map[bool]string{true: " with it", false: " without it"}[with]
			}
			runs := after[0] - before[name][0]
			rows = append(rows, row{what: what, value: float64(after[1]-before[name][1]) / float64(max(runs, 1)),
				unit:   "ns per run",
				detail: fmt.Sprintf("%.0f runs/s on all CPUs, statistics on", float64(runs)/2)})
		}
	}
	return rows, nil
}

// costs are the runs of each program and their nanoseconds.
func costs(p *kernel.Probes) map[string][2]uint64 {
	all := map[string][2]uint64{}
	for _, c := range p.ProgramCosts() {
		all[c.Name] = [2]uint64{c.Runs, c.RunTimeNS}
	}
	return all
}

func switchContention(p *kernel.Probes, on bool) error {
	if on {
		return p.Restore("contention")
	}
	return p.Shed("contention")
}

// lossOfContention takes turns without and with the program, and returns each pair's loss of passes.
func lossOfContention(p *kernel.Probes, passes *atomic.Uint64, pairs int) (losses []float64, plain float64, err error) {
	var plainSpeeds []float64
	for pair := range pairs {
		var speeds [2]float64
		for i := range 2 {
			with := (i + pair) % 2
			if err := switchContention(p, with == 1); err != nil {
				return nil, 0, err
			}
			time.Sleep(rest)
			begun, first := time.Now(), passes.Load()
			time.Sleep(turn)
			speeds[with] = float64(passes.Load()-first) / time.Since(begun).Seconds()
		}
		if speeds[0] > 0 {
			losses, plainSpeeds = append(losses, 100*(1-speeds[1]/speeds[0])), append(plainSpeeds, speeds[0])
		}
	}
	if len(losses) == 0 {
		return nil, 0, errors.New("the load does nothing")
	}
	return losses, median(plainSpeeds), nil
}

func pipes() (there, back [2]*os.File, err error) {
	if there[0], there[1], err = os.Pipe(); err != nil {
		return there, back, err
	}
	back[0], back[1], err = os.Pipe()
	return there, back, err
}

func closeAll(pairs ...[2]*os.File) {
	for _, p := range pairs {
		p[0].Close()
		p[1].Close()
	}
}

// workSwitching is what the processes of a switchLoad do. It uses system calls alone, so that no other thread
// of the runtime takes part.
func workSwitching(work string) {
	// A first thread alone: the others of the runtime are asleep.
	tasks, _ := os.ReadDir("/proc/self/task")
	var first unix.CPUSet
	first.Set(0)
	for _, task := range tasks {
		if tid, err := strconv.Atoi(task.Name()); err == nil {
			_ = unix.SchedSetaffinity(tid, &first) // one that has ended needs none
		}
	}
	const in, out = 3, 4
	one := []byte{1}
	name, argument, _ := strings.Cut(work, " ")
	switch name {
	case "spin":
		for end := time.Now().Add(time.Hour); time.Now().Before(end); { // it is ended before
		}
	case "echo":
		for {
			if n, err := unix.Read(in, one); err != nil && err != unix.EINTR || n == 0 && err == nil {
				return
			} else if n == 1 {
				unix.Write(out, one)
			}
		}
	case "ask":
		naps, _ := strconv.ParseInt(argument, 10, 64)
		told := time.Now()
		for passes := uint64(1); ; passes++ {
			unix.Write(out, one)
			for {
				if n, err := unix.Read(in, one); err != nil && err != unix.EINTR || n == 0 && err == nil {
					return
				} else if n == 1 {
					break
				}
			}
			if naps > 0 {
				nap := unix.NsecToTimespec(naps)
				_ = unix.Nanosleep(&nap, nil)
			}
			if now := time.Now(); now.Sub(told) > time.Millisecond {
				fmt.Println(passes)
				told = now
			}
		}
	}
}
