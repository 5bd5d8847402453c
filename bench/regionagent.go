package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"

	"outsight/internal/kernel/host"
	outside "outsight/internal/region"
	"outsight/internal/region/readwire"
	"outsight/internal/region/shm"
	"outsight/internal/region/tcp"
)

const (
	// asleepBudget is in percent of a core, of what the agent does in its own process.
	asleepBudget = 0.02
	// asleepEdges are edges of asleepEdges/2 connections.
	asleepEdges = 200
	// asleepSettle lets the agent fall asleep; asleepLook is the longest of its intervals.
	asleepSettle, asleepLook = 15 * time.Second, 60 * time.Second
	agentReadings            = 300
	regionAgentAddress       = "10.217.2.2"
	regionAgentPort          = 8473
	// Budgets of all counters at once, in ms.
	kernelCountersBudget, tcpCountersBudget = 2, 1
)

// measureRegionAgent takes what an ordinary agent costs the host with containers, and with edges beside them by its parts.
func measureRegionAgent(ctx context.Context, o options) ([]row, error) {
	return o.watched(ctx, "agent", func(ctx context.Context, o options) ([]row, error) {
		rows, _, err := ordinaryAgent(ctx, o, 0, 0.5)
		if err != nil {
			return nil, err
		}
		withEdges, parts, err := ordinaryAgent(ctx, o, asleepEdges, 0)
		return slices.Concat(rows, withEdges, parts), err
	})
}

// measureRegionAsleep takes what an agent costs that is there for readers of regions alone, while it is read each second; and
// how long reading all counters takes by each transport.
func measureRegionAsleep(ctx context.Context, o options) ([]row, error) {
	return o.watched(ctx, "asleep", asleepAgent)
}

// watched measures while there are containers.
func (o options) watched(ctx context.Context, part string, measure func(context.Context, options) ([]row, error)) ([]row, error) {
	defer removeContainers()
	if err := startContainers(ctx, o.containers); err != nil {
		return nil, err
	}
	rows, err := measure(ctx, o)
	if err != nil {
		return nil, err
	}
	return rows, o.document("region.md", part, rowsTable(rows))
}

// ordinaryAgent is what an agent costs with so many edges, its flight recorder on, and by parts.
func ordinaryAgent(ctx context.Context, o options, edges int, budget float64) (whole, parts []row, err error) {
	end, err := holdConnections(edges / edgesPerConnection)
	if err != nil {
		return nil, nil, err
	}
	defer end()
	a, err := startAgent(ctx, o, "outsight-agent")
	if err != nil {
		return nil, nil, err
	}
	defer a.stop()
	what := fmt.Sprintf("ordinary agent, %d containers", o.containers)
	if edges > 0 {
		what += fmt.Sprintf(" and %d edges", edges)
	}
	progress("%s: watching for %v", what, observe)
	if err := sleep(ctx, settle); err != nil {
		return nil, nil, err
	}
	used, err := usedBy(ctx, a.command.Process.Pid, func() error { return sleep(ctx, observe) })
	if err != nil {
		return nil, nil, err
	}
	whole = []row{{what: what + ": its process", value: used.share(), unit: "% of a core", budget: budget,
		detail: fmt.Sprintf("schedstat of its threads over %v; they ran %.0f times a second", observe, used.wakeups())}}
	costs, err := a.costs()
	if err != nil {
		return nil, nil, err
	}
	for _, p := range costs {
		parts = append(parts, row{what: what + ": part " + p.name, value: p.value * 100 * float64(runtime.NumCPU()),
			unit: "% of a core", detail: "outsight_feature_cost_ratio, kernel programs included, of windows of 50 ms"})
	}
	return whole, parts, nil
}

// partCost is what a part costs, as a share of all CPUs.
type partCost struct {
	name  string
	value float64
}

var featureCost = regexp.MustCompile(`(?m)^outsight_feature_cost_ratio\{.*\bname="([^"]+)".*\} (\S+)$`)

// costs are what the agent says of its own parts, the dearest first.
func (a *agent) costs() (parts []partCost, err error) {
	response, err := http.Get("http://" + a.address + "/metrics")
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	for _, found := range featureCost.FindAllSubmatch(text, -1) {
		value, err := strconv.ParseFloat(string(found[2]), 64)
		if err != nil {
			return nil, err
		}
		if value > 0 {
			parts = append(parts, partCost{string(found[1]), value})
		}
	}
	slices.SortFunc(parts, func(a, b partCost) int { return cmp.Compare(b.value, a.value) })
	if len(parts) == 0 {
		return nil, errors.New("/metrics tells no costs of parts")
	}
	return parts, nil
}

// asleepAgent is what an agent costs that is there for readers of regions alone, and how long they take.
func asleepAgent(ctx context.Context, o options) (rows []row, err error) {
	end, err := holdConnections(asleepEdges / edgesPerConnection)
	if err != nil {
		return nil, err
	}
	defer end()
	w, err := newAgentWire()
	if err != nil {
		return nil, err
	}
	defer w.remove()
	directory, err := os.MkdirTemp("", "outsight-bench-region-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(directory)
	socket, keys := filepath.Join(directory, "region.sock"), filepath.Join(directory, "keys")
	const secret = "1 000102030405060708090a0b0c0d0e0f\n"
	if err := os.WriteFile(keys, []byte(secret), 0o600); err != nil {
		return nil, err
	}
	parsed, err := outside.ParseKeys([]byte(secret))
	if err != nil {
		return nil, err
	}
	a, err := startAgent(ctx, o, fmt.Sprintf("outsight-agent --region-only --region-socket %s --region-listen %s:%d --region-key-file %s",
		socket, w.device, regionAgentPort, keys))
	if err != nil {
		return nil, err
	}
	defer a.stop()
	pid := a.command.Process.Pid
	progress("outsight-agent --region-only: %d containers and %d edges, read each second for %v", o.containers, asleepEdges, asleepLook)
	shared, err := shm.Open(ctx, socket, shm.Options{})
	if err != nil {
		return nil, err
	}
	defer shared.Close()
	if err := sleep(ctx, asleepSettle); err != nil {
		return nil, err
	}
	statistics, err := host.EnableStatistics()
	if err != nil {
		return nil, err
	}
	defer statistics.Close()
	programs, err := programsOf(ctx, pid)
	if err != nil {
		return nil, err
	}
	figures := runTimeOf(programs, figuresProgram)
	before := runTime(programs)
	timer, err := figuresTimer(ctx, pid)
	if err != nil {
		return nil, err
	}
	samples, err := sampleProcess(pid)
	if err != nil {
		return nil, err
	}
	defer samples.close()
	var sample *outside.Sample
	used, err := usedBy(ctx, pid, func() error {
		collector := outside.NewCollector(shared)
		for begun := time.Now(); time.Since(begun) < asleepLook; {
			if sample, err = collector.Collect(ctx); err != nil {
				return err
			}
			if err := sleep(ctx, time.Second); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	user, all, err := samples.read()
	if err != nil {
		return nil, err
	}
	if programs, err = programsOf(ctx, pid); err != nil {
		return nil, err
	}
	timerAfter, err := figuresTimer(ctx, pid)
	if err != nil {
		return nil, err
	}
	if len(sample.Containers) < o.containers || len(sample.Edges) < asleepEdges {
		return nil, fmt.Errorf("%d containers and %d edges were read, want %d and %d", len(sample.Containers), len(sample.Edges),
			o.containers, asleepEdges)
	}
	of := fmt.Sprintf("%d containers, %d edges, read at --region-socket each second for %v", len(sample.Containers)-1, len(sample.Edges),
		asleepLook)
	seconds := used.elapsed.Seconds()
	inProgram := float64(runTimeOf(programs, figuresProgram)-figures) / 1e9
	part, low, high := share(user, all)
	ofCore := func(percent float64) float64 { return percent * used.cpu.Seconds() / seconds }
	rows = append(rows,
		row{what: "agent asleep (--region-only): its process in user space", value: ofCore(part), low: ofCore(low), high: ofCore(high),
			unit: "% of a core", budget: asleepBudget, detail: fmt.Sprintf("%.3g to %.3g with 95 %% certainty: schedstat of its threads, and "+
				"%d of %d samples of where they were, one each %d us of their CPU time; they ran %.3g times a second; %s", ofCore(low),
				ofCore(high), user, all, samplePeriod/1000, used.wakeups(), of)},
		row{what: "agent asleep: its process in the kernel", value: ofCore(100 - part), unit: "% of a core", detail: "the rest"},
		row{what: "agent asleep: the kernel's timer that reads figures each second, no process", value: 100 * float64(timerAfter-timer) / 1e9 / seconds,
			unit: "% of a core", detail: "by its own clock"},
		row{what: "agent asleep: kernel programs at hooks", value: 100 * (float64(runTime(programs)-before)/1e9 - inProgram) / seconds,
			unit: "% of a core", detail: "the same; what the containers and this machine do makes them run"})
	readings, err := w.readings(ctx, a, shared, parsed[0])
	return append(rows, readings...), err
}

// figuresProgram is the one of bpf/groups that reads what files of control groups say.
const figuresProgram = "read_groups"

func runTimeOf(programs []program, name string) (ns uint64) {
	for _, p := range programs {
		if p.Name == name {
			ns += p.RunTimeNS
		}
	}
	return ns
}

// readings are how long one reading of all counters takes by each transport, and how often the agent runs for it.
func (w *agentWire) readings(ctx context.Context, a *agent, shared *shm.Client, key outside.Key) (rows []row, err error) {
	pid := a.command.Process.Pid
	read := func(way, what string, budget float64, r outside.Reader, thorough time.Duration) error {
		collector := outside.NewCollector(r)
		collector.Thorough = thorough
		var took []float64
		var sample *outside.Sample
		used, err := usedBy(ctx, pid, func() (err error) {
			for i := range agentReadings + 1 {
				begun := time.Now()
				if sample, err = collector.Collect(ctx); err != nil {
					return err
				}
				if i > 0 { // the first one reads names
					took = append(took, time.Since(begun).Seconds()*1e3)
				}
				if err := sleep(ctx, 10*time.Millisecond); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("%s: %w", way, err)
		}
		progress("%s: %.3g ms", way, median(took))
		rows = append(rows, row{what: fmt.Sprintf("%s of %d containers and %d edges, %s", what, len(sample.Containers)-1,
			len(sample.Edges), way), value: median(took), unit: "ms", budget: budget, low: quartile(took, 1), high: quartile(took, 3),
			detail: fmt.Sprintf("median of %d readings each 10 ms, p99 %.3g ms; %d reads, %d bytes; threads of the agent ran %d times",
				len(took), percentile(took, 0.99), sample.Reads, sample.Bytes, used.ran)})
		return nil
	}
	one := func(way string, budget float64, r outside.Reader) error {
		if err := read(way, "all counters", budget, r, 24*time.Hour); err != nil {
			return err
		}
		return read(way, "all counters and histograms", 0, r, 0)
	}
	// While it is stopped nothing of it can run. The other transport needs it.
	if err := stopProcess(pid); err != nil {
		return nil, err
	}
	defer syscall.Kill(pid, syscall.SIGCONT)
	if err := one("socket, agent stopped", 0, shared); err != nil {
		return nil, err
	}
	wire, err := readwire.KeyOf(key)
	if err != nil {
		return nil, err
	}
	address := fmt.Sprintf("%s:%d", regionAgentAddress, regionAgentPort)
	var packets *readwire.Client
	if err := w.inside(w.client, func() (err error) {
		packets, err = readwire.Dial(address, wire, readwire.Options{Window: 16})
		return err
	}); err != nil {
		return nil, err
	}
	defer packets.Close()
	if err := one("kernel, agent stopped", kernelCountersBudget, readwire.Reader{Client: packets}); err != nil {
		return nil, err
	}
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		return nil, err
	}
	var stream *tcp.Client
	if err := w.inside(w.client, func() (err error) {
		stream, err = tcp.Dial(ctx, address, key)
		return err
	}); err != nil {
		return nil, err
	}
	defer stream.Close()
	return rows, one("TCP", tcpCountersBudget, stream)
}

// stopProcess stops all threads, and waits until none runs.
func stopProcess(pid int) error {
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return err
	}
	for last := uint64(0); ; {
		time.Sleep(50 * time.Millisecond)
		_, ran, err := scheduled(pid)
		if err != nil || ran == last {
			return err
		}
		last = ran
	}
}

// agentWire is a network namespace with a wire to the namespace of this process.
type agentWire struct {
	regionWire
	device string
}

func newAgentWire() (*agentWire, error) {
	w := &agentWire{regionWire{client: fmt.Sprintf("outsight-bench-%d-reader", os.Getpid())}, fmt.Sprintf("osb%d", os.Getpid())}
	for _, arguments := range [][]string{
		{"netns", "add", w.client},
		{"link", "add", w.device, "type", "veth", "peer", "name", "e0", "netns", w.client},
		{"-n", w.client, "address", "add", "10.217.2.1/24", "dev", "e0"},
		{"address", "add", regionAgentAddress + "/24", "dev", w.device},
		{"-n", w.client, "link", "set", "e0", "up"}, {"link", "set", w.device, "up"},
	} {
		if out, err := exec.Command("ip", arguments...).CombinedOutput(); err != nil {
			w.remove()
			return nil, fmt.Errorf("ip %v: %w: %s", arguments, err, out)
		}
	}
	return w, nil
}

// remove takes the namespace away, and with it the wire.
func (w *agentWire) remove() { exec.Command("ip", "netns", "del", w.client).Run() }

// processUse is what threads of a process did in a stretch of time.
type processUse struct {
	cpu, elapsed time.Duration
	// ran is how often one of them was given a CPU.
	ran uint64
}

func (u *processUse) share() float64   { return 100 * u.cpu.Seconds() / u.elapsed.Seconds() }
func (u *processUse) wakeups() float64 { return float64(u.ran) / u.elapsed.Seconds() }

// usedBy is what a process does during do.
func usedBy(ctx context.Context, pid int, do func() error) (*processUse, error) {
	begun := time.Now()
	cpu, ran, err := scheduled(pid)
	if err != nil {
		return nil, err
	}
	if err := do(); err != nil {
		return nil, err
	}
	after, ranAfter, err := scheduled(pid)
	return &processUse{after - cpu, time.Since(begun), ranAfter - ran}, errors.Join(err, ctx.Err())
}

// scheduled is the CPU time of all threads of a process, and how often they were given a CPU.
func scheduled(pid int) (cpu time.Duration, ran uint64, err error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(files) == 0 {
		return 0, 0, fmt.Errorf("process %d has no threads: %w", pid, err)
	}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			return 0, 0, err
		}
		var onCPU, waited, slices uint64
		if _, err := fmt.Sscan(string(text), &onCPU, &waited, &slices); err != nil {
			return 0, 0, fmt.Errorf("reading %q: %w", path, err)
		}
		cpu, ran = cpu+time.Duration(onCPU), ran+slices
	}
	return cpu, ran, nil
}
