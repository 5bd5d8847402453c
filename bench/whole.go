package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	inside "outsight/internal/agent"
	"outsight/internal/model"
	"outsight/internal/otlp"
)

// whole is how long the parts are held against the host's own sums.
const whole = 60 * time.Second

// measureWhole holds what is counted of all containers and of the rest of the host, together, against what
// the host counts by itself, under a load of all kinds, with processes that live for a millisecond.
func measureWhole(ctx context.Context, _ options) ([]row, error) {
	defer removeContainers()
	if err := startContainers(ctx, 3); err != nil {
		return nil, err
	}
	data, err := os.MkdirTemp("/var/tmp", "outsight-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(data)
	for i, script := range []string{
		"while :; do /busybox true; done",
		"while :; do :; done",
		"while :; do /busybox dd if=/dev/zero of=/data/file bs=64k count=160 conv=fsync 2>/dev/null; /busybox sleep 0.1; done",
	} {
		_, err := output(ctx, "docker", "run", "-d", "--label", benchLabel, "--name",
			fmt.Sprintf("outsight-bench-%d-load-%d", os.Getpid(), i),
			"--cpus", "0.6", "-v", data+":/data", benchImage, "/busybox", "sh", "-c", script)
		if err != nil {
			return nil, err
		}
	}
	host, err := inside.Open(inside.HostOptions{})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- host.Run(ctx) }()
	rows, err := wholeOf(ctx, host)
	cancel()
	return rows, errors.Join(err, <-ended, host.Close())
}

func wholeOf(ctx context.Context, host *inside.Host) ([]row, error) {
	if err := sleep(ctx, settle); err != nil {
		return nil, err
	}
	progress("parts: %v of mixed load", whole)
	before, err := lookAtWhole(ctx, host)
	if err != nil {
		return nil, err
	}
	if err := sleep(ctx, whole); err != nil {
		return nil, err
	}
	after, err := lookAtWhole(ctx, host)
	if err != nil {
		return nil, err
	}
	elapsed := float64(after.at.Sub(before.at)) * float64(host.Machine.Cores)
	used, idle := after.used-before.used, after.idle-before.idle
	busy := after.busyTicks - before.busyTicks
	rows := []row{
		{what: "parts: CPU of containers, host and idle against the wall clock", value: off(used+idle, elapsed),
			unit: "%", budget: 1,
			detail: fmt.Sprintf("%.2f CPU seconds used and %.2f idle of %.2f", used/1e9, idle/1e9, elapsed/1e9)},
		{what: "parts: CPU of containers and host against /proc/stat", value: off(used, busy), unit: "%",
			detail: fmt.Sprintf("%.2f CPU seconds, the kernel's ticks, which are samples, say %.2f; %d containers",
				used/1e9, busy/1e9, after.containers)},
		{what: "parts: energy of containers, host and idle against the meter", value: off(after.parts-before.parts,
			after.energy-before.energy), unit: "%", budget: 1,
			detail: fmt.Sprintf("%.1f J by %s", (after.energy-before.energy)/1e6, after.meter)},
	}
	if exact := after.cpuacct - before.cpuacct; exact > 0 {
		rows = append(rows, row{what: "parts: CPU of containers and host against the root's cpuacct.usage",
			value: off(used, exact), unit: "%", budget: 1,
			detail: fmt.Sprintf("%.3f CPU seconds, the kernel's own sum is %.3f; %d containers", used/1e9, exact/1e9,
				after.containers)})
	}
	for device, wrote := range after.wrote {
		theirs := after.diskstats[device] - before.diskstats[device]
		if ours := wrote - before.wrote[device]; theirs > 1<<20 {
			rows = append(rows, row{what: "parts: bytes written to " + device + " against /proc/diskstats",
				value: off(ours, theirs), unit: "%", budget: 1,
				detail: fmt.Sprintf("%.1f MiB, the kernel says %.1f", ours/(1<<20), theirs/(1<<20))})
		}
	}
	return rows, nil
}

func off(ours, theirs float64) float64 { return 100 * math.Abs(ours/theirs-1) }

// wholeAt are the sums of one moment: times in ns, energy in microjoules, bytes by device.
type wholeAt struct {
	at                    time.Time
	used, idle, busyTicks float64
	cpuacct               float64 // 0 without control groups v1
	parts, energy         float64
	meter                 string
	containers            int
	wrote, diskstats      map[string]float64
}

// lookAtWhole takes the next frame, and the host's own sums with it.
func lookAtWhole(ctx context.Context, host *inside.Host) (w wholeAt, err error) {
	last := host.Frame()
	for host.Frame() == last {
		if err := sleep(ctx, time.Millisecond); err != nil {
			return w, err
		}
	}
	f := host.Frame()
	w = wholeAt{at: f.Time, wrote: map[string]float64{}, diskstats: map[string]float64{}}
	if w.busyTicks, err = hostTicks(busyPlaces); err != nil {
		return w, err
	}
	if w.cpuacct, err = rootCPU(); err != nil {
		return w, err
	}
	for _, s := range otlp.FromFrame(f, otlp.SeriesOptions{WithoutEdges: true}) {
		w.add(&s)
	}
	if w.meter == "" {
		return w, errors.New("no meter and no model of energy")
	}
	return w, readDiskstats(w.diskstats)
}

// add adds a series to the sum that it belongs to.
func (w *wholeAt) add(s *model.Series) {
	label := func(name string) string {
		i := slices.IndexFunc(s.Labels, func(l model.Label) bool { return l.Name == name })
		if i < 0 {
			return ""
		}
		return s.Labels[i].Value
	}
	switch s.Name {
	case otlp.HostCPUIdle:
		w.idle += s.Value * 1e9
	case otlp.HostCPUOther:
		w.used += s.Value * 1e9
	case otlp.ContainerCPUUsage:
		w.used += s.Value * 1e9
		w.containers++
	case "container_disk_io_bytes_total":
		if label("direction") == "write" {
			w.wrote[label("device")] += s.Value
		}
	case "container_energy_joules_total":
		w.parts += s.Value * 1e6
	case "outsight_host_energy_joules_total":
		w.energy += s.Value * 1e6
		if label("part") == "idle" {
			w.parts += s.Value * 1e6
		}
	case "outsight_energy_meter":
		w.meter = label("source")
	}
}

// Places of /proc/stat's line of all CPUs: user nice system idle iowait irq softirq steal.
var (
	busyPlaces  = []int{0, 1, 2, 5, 6}
	stealPlaces = []int{7}
)

// hostTicks is the sum in ns of what /proc/stat has at these places for all CPUs together.
func hostTicks(places []int) (float64, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	line, _, _ := bytes.Cut(text, []byte("\n"))
	sum := 0.0
	for i, field := range strings.Fields(string(line))[1:] {
		if ticks, err := strconv.ParseFloat(field, 64); err == nil && slices.Contains(places, i) {
			sum += ticks
		}
	}
	hz, err := exec.Command("getconf", "CLK_TCK").Output()
	if err != nil {
		return 0, err
	}
	perSecond, err := strconv.ParseFloat(strings.TrimSpace(string(hz)), 64)
	return sum / perSecond * 1e9, err
}

// rootCPU is the CPU time in ns that all threads have used, as control groups v1 have it: the root's file of v2
// repeats /proc/stat.
func rootCPU() (float64, error) {
	text, err := os.ReadFile("/sys/fs/cgroup/cpuacct/cpuacct.usage")
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(strings.TrimSpace(string(text)), 64)
}

// readDiskstats reads the bytes written to each device.
func readDiskstats(to map[string]float64) error {
	text, err := os.ReadFile("/proc/diskstats")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 9 {
			sectors, err := strconv.ParseFloat(fields[9], 64)
			if err != nil {
				return err
			}
			to[fields[2]] = sectors * 512
		}
	}
	return nil
}
