package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"outsight/internal/container"
	"outsight/internal/kernel"
	"outsight/internal/model"
)

// measureDisk holds what is counted of block devices against fio and the control group's own files,
// percentiles against the single requests, and takes what the counting costs. The device is a loop device in memory:
// there is hardly a faster one here, so the programs' share of a request is the largest.
func measureDisk(ctx context.Context, o options) ([]row, error) {
	layout, err := container.Detect(container.Options{})
	if err != nil {
		return nil, err
	}
	device, err := newBenchDisk(ctx)
	if err != nil {
		return nil, err
	}
	defer device.remove()
	groups, err := makeGroups(layout, 1)
	defer groups.remove()
	if err != nil {
		return nil, err
	}
	b := &diskBench{device: device, groups: groups, mount: layout.BlockMount()}
	if err := b.makeCount(); err != nil {
		return nil, err
	}
	exact, err := b.exact(ctx, layout)
	if err != nil {
		return nil, err
	}
	costs, err := b.costs(ctx, layout, o)
	return append(exact, costs...), err
}

type diskBench struct {
	device *benchDisk
	groups *benchGroups
	// mount is where the hierarchy of block I/O is.
	mount string
}

func (b *diskBench) open(l container.Layout, o kernel.Options) (*kernel.Probes, error) {
	o.Controller, o.GroupMount, o.BlockMount, o.WithoutEndpoints = l.Subsystem, l.MountPoint, b.mount, true
	return kernel.Open(o)
}

func (b *diskBench) group() string { return filepath.Join(b.mount, b.groups.containers[0].CgroupPath) }

// makeCount makes the kernel count the group's I/O on the device in its files: on v1 it does so on devices with a
// throttling rule. Nobody reaches this one.
func (b *diskBench) makeCount() error {
	rule := filepath.Join(b.group(), "blkio.throttle.read_bps_device")
	if _, err := os.Stat(rule); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return os.WriteFile(rule, fmt.Appendf(nil, "%d:%d 1000000000000", b.device.block.Major, b.device.block.Minor), 0)
}

type fioCounts struct {
	Bytes uint64  `json:"io_bytes"`
	Total uint64  `json:"total_ios"`
	IOPS  float64 `json:"iops"`
}

func (b *diskBench) fio(ctx context.Context, arguments ...string) (read, write fioCounts, err error) {
	words := b.groups.inGroup(0, append([]string{"fio", "--name=job", "--output-format=json", "--thread=1",
		"--filename=" + b.device.path,
		"--direct=1", "--bs=4k", "--ioengine=libaio", "--size=64m"}, arguments...)...)
	out, err := output(ctx, words[0], words[1:]...)
	if err != nil {
		return read, write, fmt.Errorf("running fio: %w", err)
	}
	var report struct {
		Jobs []struct{ Read, Write fioCounts }
	}
	if err := json.Unmarshal(out, &report); err != nil || len(report.Jobs) != 1 {
		return read, write, fmt.Errorf("reading fio's report: got %d jobs, want 1: %w", len(report.Jobs), err)
	}
	return report.Jobs[0].Read, report.Jobs[0].Write, nil
}

// counted is what the programs have of the group on the device.
func (b *diskBench) counted(p *kernel.Probes) (sum model.DeviceCounters, err error) {
	all, err := p.ReadDisks()
	for _, d := range all {
		if d.Syncs == nil && d.Device.Compare(b.device.block) == 0 && d.Group == b.groups.containers[0].Cgroup {
			sum.Add(&d.Counters)
		}
	}
	return sum, err
}

// file is what the group's files have.
func (b *diskBench) file() (readBytes, writeBytes uint64, err error) {
	prefix := fmt.Sprintf("%d:%d ", b.device.block.Major, b.device.block.Minor)
	text, err := os.ReadFile(filepath.Join(b.group(), "blkio.throttle.io_service_bytes"))
	if errors.Is(err, os.ErrNotExist) {
		text, err = os.ReadFile(filepath.Join(b.group(), "io.stat"))
	}
	for line := range strings.Lines(string(text)) {
		rest, ok := strings.CutPrefix(line, prefix)
		if !ok {
			continue
		}
		fmt.Sscanf(rest, "Read %d", &readBytes)
		fmt.Sscanf(rest, "Write %d", &writeBytes)
		fmt.Sscanf(rest, "rbytes=%d wbytes=%d", &readBytes, &writeBytes)
	}
	return readBytes, writeBytes, err
}

func (b *diskBench) exact(ctx context.Context, l container.Layout) ([]row, error) {
	p, err := b.open(l, kernel.Options{LogRequests: 1 << 16})
	if err != nil {
		return nil, err
	}
	defer p.Close()
	progress("disk: fio's random reads and writes of 4 KiB, eight at a time")
	read, write, err := b.fio(ctx, "--rw=randrw", "--iodepth=8")
	if err != nil {
		return nil, err
	}
	got, err := b.counted(p)
	if err != nil {
		return nil, err
	}
	fileRead, fileWrite, err := b.file()
	if err != nil {
		return nil, err
	}
	difference := func(what string, ours, theirs uint64) row {
		return row{what: "disk: " + what, value: math.Abs(float64(ours) - float64(theirs)), unit: "of " + fmt.Sprint(theirs),
			detail: fmt.Sprintf("counted %d, %d there", ours, theirs)}
	}
	rows := []row{
		difference("bytes read that differ from fio's", got.Read.Bytes, read.Bytes),
		difference("bytes written that differ from fio's", got.Write.Bytes, write.Bytes),
		difference("reads that differ from fio's", got.Read.Operations, read.Total),
		difference("writes that differ from fio's", got.Write.Operations, write.Total),
		difference("bytes read that differ from the group's file", got.Read.Bytes, fileRead),
		difference("bytes written that differ from the group's file", got.Write.Bytes, fileWrite),
	}
	requests, err := p.DiskRequests()
	if err != nil {
		return nil, err
	}
	for _, kind := range []struct {
		name  string
		write bool
		ours  *model.Histogram
	}{{"read", false, got.Read.Latency}, {"write", true, got.Write.Latency}} {
		var took []float64
		for _, r := range requests {
			if r.Write == kind.write && r.Device.Compare(b.device.block) == 0 {
				took = append(took, float64(r.EndedNS-r.IssuedNS)/1e9)
			}
		}
		if len(took) == 0 {
			return nil, fmt.Errorf("no single %s was logged", kind.name)
		}
		slices.Sort(took)
		worst, p99 := 0.0, 0.0
		for _, q := range []float64{0.5, 0.9, 0.99} {
			p99 = took[int(math.Ceil(q*float64(len(took))))-1]
			worst = max(worst, 100*math.Abs(kind.ours.Quantile(q)/p99-1))
		}
		rows = append(rows, row{what: fmt.Sprintf("disk: error of a %s's p50, p90 and p99, the worst", kind.name),
			value: worst, unit: "%",
			budget: quantileBudget, detail: fmt.Sprintf("%d single requests, p99 %.0f µs", len(took), 1e6*p99)})
	}
	return rows, nil
}

// costs are what a request and a reading pay, and what fio loses, in turns with and without the programs.
func (b *diskBench) costs(ctx context.Context, l container.Layout, o options) ([]row, error) {
	p, err := b.open(l, kernel.Options{})
	if err != nil {
		return nil, err
	}
	defer p.Close()
	q, err := b.open(l, kernel.Options{WithoutDisks: true})
	if err != nil {
		return nil, err
	}
	defer q.Close()
	load := []string{"--rw=randread", "--iodepth=32", "--time_based",
		fmt.Sprintf("--runtime=%d", max(int(o.run/time.Second), 1))}
	// Nothing, all but the programs of this part, and all take turns.
	ways := []struct{ p, q func() error }{{p.Pause, q.Pause}, {p.Pause, q.Resume}, {p.Resume, q.Pause}}
	var all, part []float64
	var rates [3]float64
	for i := range o.pairs {
		for turn := range ways {
			way := (i + turn) % len(ways)
			if err := errors.Join(ways[way].p(), ways[way].q()); err != nil {
				return nil, err
			}
			read, _, err := b.fio(ctx, load...)
			if err != nil {
				return nil, err
			}
			rates[way] = read.IOPS
		}
		all, part = append(all, 100*(1-rates[2]/rates[0])), append(part, 100*(1-rates[2]/rates[1]))
		progress("disk: %.0f reads a second, %.0f without the programs for disks, %.0f without any", rates[2], rates[1],
			rates[0])
	}
	if err := q.Pause(); err != nil {
		return nil, err
	}
	if err := p.Resume(); err != nil {
		return nil, err
	}
	detail := fmt.Sprintf("fio, 4 KiB random reads, 32 at a time, the worst case; the last %.0f, %.0f and %.0f a second", rates[2], rates[1], rates[0])
	rows := []row{
		{what: "disk: reads a second lost on a loop device in memory, all programs", value: median(all), unit: "%",
			low:  quartile(all, 1),
			high: quartile(all, 3), detail: detail},
		{what: "disk: the same, by the programs for disks and files alone", value: median(part), unit: "%",
			low:  quartile(part, 1),
			high: quartile(part, 3), detail: detail},
	}
	statistics, err := kernel.EnableStatistics()
	if err != nil {
		return nil, err
	}
	defer statistics.Close()
	before := costsByName(p)
	if _, _, err := b.fio(ctx, load...); err != nil {
		return nil, err
	}
	if err := syncOften(ctx, b.groups); err != nil {
		return nil, err
	}
	const readings = 20
	for range readings {
		if _, err := p.ReadCgroups(); err != nil {
			return nil, err
		}
	}
	for _, c := range p.ProgramCosts() {
		runs := c.Runs - before[c.Name].Runs
		if runs == 0 || !slices.Contains(diskPrograms, c.Name) {
			continue
		}
		rows = append(rows, row{what: "disk: kernel program " + c.Name,
			value: float64(c.RunTimeNS-before[c.Name].RunTimeNS) / float64(runs),
			unit:  "ns per run", detail: fmt.Sprintf("%d runs, statistics on (about 40 ns of it)", runs)})
	}
	return rows, nil
}

var diskPrograms = []string{"tp_btf/block_rq_issue", "tp_btf/block_rq_complete", "tp_btf/ext4_sync_file_enter",
	"tp_btf/ext4_sync_file_exit",
	"syscall (files)", "iter/task (files)", "tp_btf/sched_process_exit (files)"}

func costsByName(p *kernel.Probes) map[string]model.ProgramCost {
	all := map[string]model.ProgramCost{}
	for _, c := range p.ProgramCosts() {
		all[c.Name] = c
	}
	return all
}

// syncOften writes and synchronises a file of the file system that is here.
func syncOften(ctx context.Context, g *benchGroups) error {
	dir, err := os.MkdirTemp("", "outsight-bench-sync")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	words := g.inGroup(0, "fio", "--name=sync", "--filename="+filepath.Join(dir, "file"), "--rw=write", "--bs=4k",
		"--size=4m", "--fsync=1")
	_, err = output(ctx, words[0], words[1:]...)
	return err
}

// benchDisk is a loop device on a file in memory.
type benchDisk struct {
	file, path string
	block      model.BlockDevice
}

func newBenchDisk(ctx context.Context) (*benchDisk, error) {
	d := &benchDisk{file: filepath.Join("/dev/shm", fmt.Sprintf("outsight-bench-%d", os.Getpid()))}
	if err := os.WriteFile(d.file, make([]byte, 64<<20), 0o600); err != nil {
		return nil, err
	}
	out, err := output(ctx, "losetup", "--find", "--show", d.file)
	if err != nil {
		os.Remove(d.file)
		return nil, fmt.Errorf("making a loop device: %w", err)
	}
	d.path = strings.TrimSpace(string(out))
	numbers, err := os.ReadFile(filepath.Join("/sys/block", filepath.Base(d.path), "dev"))
	if err == nil {
		_, err = fmt.Sscanf(string(numbers), "%d:%d", &d.block.Major, &d.block.Minor)
	}
	if err != nil {
		d.remove()
		return nil, fmt.Errorf("reading the numbers of %s: %w", d.path, err)
	}
	return d, nil
}

// remove does so even if the run was interrupted.
func (d *benchDisk) remove() {
	exec.Command("losetup", "--detach", d.path).Run()
	os.Remove(d.file)
}
