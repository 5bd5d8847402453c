package block

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"outsight/internal/kernel/host"
	"outsight/internal/kernel/kerneltest"
	"outsight/internal/model"
)

// loopDevice is a device that only this test uses.
type loopDevice struct {
	path  string
	name  string
	block model.BlockDevice
}

func newLoopDevice(t *testing.T, bytes int64) *loopDevice {
	t.Helper()
	file := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(file, make([]byte, bytes), 0o600); err != nil {
		t.Fatal(err)
	}
	return loopOver(t, file)
}

// loopOver makes a loop device of a file.
func loopOver(t *testing.T, file string) *loopDevice {
	t.Helper()
	out, err := exec.Command("losetup", "--find", "--show", file).CombinedOutput()
	if err != nil {
		t.Fatalf("making a loop device (this test needs root): %v: %s", err, out)
	}
	d := &loopDevice{path: strings.TrimSpace(string(out))}
	d.name = filepath.Base(d.path)
	t.Cleanup(func() {
		if out, err := exec.Command("losetup", "--detach", d.path).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	d.number(t)
	settle(t)
	return d
}

func (d *loopDevice) number(t *testing.T) {
	t.Helper()
	numbers, err := os.ReadFile("/sys/block/" + d.name + "/dev")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscanf(string(numbers), "%d:%d", &d.block.Major, &d.block.Minor); err != nil {
		t.Fatal(err)
	}
	d.block.Name = d.name
}

// settle waits for what udev and others look up on a new device.
func settle(t *testing.T) { t.Helper(); exec.Command("udevadm", "settle").Run() }

// diskstats are the kernel's own counters of a device. What is merged into a request is none by itself: while a device is
// busy, that happens to those next to each other that wait.
type diskstats struct {
	reads, readsMerged, readBytes, writes, writesMerged, writeBytes, discards, discardBytes, flushes uint64
}

func (d *loopDevice) diskstats(t *testing.T) (s diskstats) {
	t.Helper()
	text, err := os.ReadFile("/sys/block/" + d.name + "/stat")
	if err != nil {
		t.Fatal(err)
	}
	var n [17]uint64
	for i, f := range strings.Fields(string(text)) {
		fmt.Sscan(f, &n[i])
	}
	s.reads, s.readsMerged, s.readBytes, s.writes, s.writesMerged, s.writeBytes = n[0], n[1], n[2]*512, n[4], n[5], n[6]*512
	s.discards, s.discardBytes, s.flushes = n[11], n[13]*512, n[15]
	return s
}

// diskGroup is a control group in the hierarchy of containers and in that of block I/O.
func diskGroup(t *testing.T, name string, device *loopDevice) *kerneltest.Group {
	t.Helper()
	name = fmt.Sprintf("outsight-test-%d-%s", os.Getpid(), name)
	if kerneltest.Controller() == "" {
		return kerneltest.NewGroupAt(t, filepath.Join("/sys/fs/cgroup", name))
	}
	// Something between makes the ids of the hierarchies differ.
	g := kerneltest.NewGroupAt(t, filepath.Join("/sys/fs/cgroup/memory", name), filepath.Join("/sys/fs/cgroup/blkio",
		name))
	if device != nil {
		// The kernel counts v1 groups' I/O on devices with a rule only: one that is never reached.
		rule := fmt.Sprintf("%d:%d 1000000000000", device.block.Major, device.block.Minor)
		if err := os.WriteFile(filepath.Join(g.Dirs[1], "blkio.throttle.read_bps_device"), []byte(rule), 0); err != nil {
			t.Fatal(err)
		}
	}
	return g
}

// fileCounts are what the control group's own files tell of a device.
func fileCounts(g *kerneltest.Group, t *testing.T, device *loopDevice) (readBytes, writeBytes, reads, writes uint64) {
	t.Helper()
	dir := g.Dirs[len(g.Dirs)-1]
	prefix := fmt.Sprintf("%d:%d ", device.block.Major, device.block.Minor)
	lines := func(file string) (found []string) {
		text, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if rest, ok := strings.CutPrefix(line, prefix); ok {
				found = append(found, rest)
			}
		}
		return found
	}
	if len(g.Dirs) == 1 {
		for _, line := range lines("io.stat") {
			fmt.Sscanf(line, "rbytes=%d wbytes=%d rios=%d wios=%d", &readBytes, &writeBytes, &reads, &writes)
		}
		return
	}
	for _, line := range lines("blkio.throttle.io_service_bytes") {
		fmt.Sscanf(line, "Read %d", &readBytes)
		fmt.Sscanf(line, "Write %d", &writeBytes)
	}
	for _, line := range lines("blkio.throttle.io_serviced") {
		fmt.Sscanf(line, "Read %d", &reads)
		fmt.Sscanf(line, "Write %d", &writes)
	}
	return
}

type fioSide struct {
	Bytes uint64 `json:"io_bytes"`
	Total uint64 `json:"total_ios"`
}

type fioJob struct{ Read, Write fioSide }

// fio runs fio in the group and answers what it tells of itself.
func fio(g *kerneltest.Group, t *testing.T, arguments ...string) fioJob {
	t.Helper()
	job, err := tryFio(g, arguments...)
	if err != nil {
		t.Fatal(err)
	}
	return job
}

// shell is a command that runs in the group.
func shell(g *kerneltest.Group, words ...string) *exec.Cmd {
	script := ""
	for _, dir := range g.Dirs {
		script += "echo $$ > " + filepath.Join(dir, "cgroup.procs") + "; "
	}
	return exec.Command("sh", append([]string{"-ec", script + `exec "$@"`, "sh"}, words...)...)
}

func tryFio(g *kerneltest.Group, arguments ...string) (fioJob, error) {
	out, err := shell(g, append([]string{"fio", "--name=job", "--output-format=json", "--thread=1"},
		arguments...)...).Output()
	if err != nil {
		return fioJob{}, fmt.Errorf("running fio: %w: %s", err, out)
	}
	var report struct{ Jobs []fioJob }
	if err := json.Unmarshal(out, &report); err != nil || len(report.Jobs) != 1 {
		return fioJob{}, fmt.Errorf("reading fio's report: %v: %s", err, out)
	}
	return report.Jobs[0], nil
}

// readDevice reads so many blocks of 64 KiB of a device, past the page cache. It takes a tenth of the time of fio.
func readDevice(t *testing.T, g *kerneltest.Group, device *loopDevice, blocks int) {
	t.Helper()
	out, err := shell(g, "dd", "if="+device.path, "of=/dev/null", "iflag=direct", "bs=64k",
		fmt.Sprint("count=", blocks)).CombinedOutput()
	if err != nil {
		t.Fatalf("reading %s: %v: %s", device.path, err, out)
	}
}

func openDisks(t *testing.T, o Options) *blockAndGroups {
	t.Helper()
	if kerneltest.Controller() != "" {
		o.GroupMount, o.BlockMount = "/sys/fs/cgroup/memory", "/sys/fs/cgroup/blkio"
	}
	return open(t, o)
}

func readDisks(t *testing.T, p *blockAndGroups) []model.KernelDisk {
	t.Helper()
	all, err := p.ReadDisks()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// on sums the entries of a device; of a group if it is not 0.
func on(all []model.KernelDisk, device model.BlockDevice, group model.CgroupID) (sum model.DeviceCounters) {
	for _, d := range all {
		if d.Syncs == nil && d.Device == device && (group == 0 || d.Group == group) {
			sum.Add(&d.Counters)
		}
	}
	return sum
}

const direct = "--direct=1"

func TestDiskCountsWhatFioAndTheKernelsFilesTell(t *testing.T) {
	p := openDisks(t, Options{})
	kerneltest.CountExactly(t, func(f *kerneltest.Faults, number int) { diskCounts(t, f, p, fmt.Sprint("disk", number)) })
}

func diskCounts(t *testing.T, f *kerneltest.Faults, p *blockAndGroups, group string) {
	device := newLoopDevice(t, 64<<20)
	g := diskGroup(t, group, device)
	before := device.diskstats(t)
	earlier := on(readDisks(t, p), device.block, 0)
	job := fio(g, t, "--filename="+device.path, direct, "--rw=randrw", "--bs=4k", "--size=16m", "--ioengine=libaio",
		"--iodepth=8")
	settle(t)
	all := readDisks(t, p)
	got, after := on(all, device.block, g.ID(t)), device.diskstats(t)
	readsMerged, writesMerged := after.readsMerged-before.readsMerged, after.writesMerged-before.writesMerged
	if got.Read.Bytes != job.Read.Bytes || got.Write.Bytes != job.Write.Bytes ||
		got.Read.Operations+readsMerged != job.Read.Total || got.Write.Operations+writesMerged != job.Write.Total ||
		job.Read.Total+job.Write.Total != 4096 {
		f.Errorf("counted %d bytes in %d reads and %d in %d writes, %d and %d merged; fio %+v", got.Read.Bytes,
			got.Read.Operations, got.Write.Bytes, got.Write.Operations, readsMerged, writesMerged, job)
	}
	readBytes, writeBytes, reads, writes := fileCounts(g, t, device)
	if got.Read.Bytes != readBytes || got.Write.Bytes != writeBytes || got.Read.Operations+readsMerged != reads ||
		got.Write.Operations+writesMerged != writes {
		f.Errorf("counted %d bytes in %d reads and %d in %d writes, %d and %d merged; the group's files say %d in %d and %d in %d",
			got.Read.Bytes, got.Read.Operations, got.Write.Bytes, got.Write.Operations, readsMerged, writesMerged, readBytes,
			reads, writeBytes, writes)
	}
	for _, o := range []model.DiskOperations{got.Read, got.Write} {
		if o.Latency == nil || o.Latency.Count != o.Operations || o.Latency.SumNS != o.TimeNS || o.TimeNS == 0 ||
			o.QueueNS == 0 ||
			o.Untimed != 0 || o.Errors != 0 {
			f.Errorf("%+v of %d operations", o.Latency, o.Operations)
		}
	}
	slot, found := p.SlotDisk(g.ID(t))
	want := model.SlotDisk{ReadBytes: got.Read.Bytes, WriteBytes: got.Write.Bytes, Reads: got.Read.Operations,
		Writes: got.Write.Operations,
		ReadNS: got.Read.TimeNS, WriteNS: got.Write.TimeNS, QueueNS: got.Read.QueueNS + got.Write.QueueNS}
	// Other devices are in it too: what fio's own files took.
	if !found || slot.ReadBytes < want.ReadBytes || slot.WriteBytes < want.WriteBytes || slot.Reads < want.Reads ||
		slot.Writes < want.Writes ||
		slot.ReadNS < want.ReadNS || slot.WriteNS < want.WriteNS || slot.QueueNS < want.QueueNS {
		f.Errorf("the slot has %+v, want at least %+v", slot, want)
	}
	checkWhole(t, f, on(all, device.block, 0), earlier, before, device)
}

// checkWhole holds the sum over all groups against the kernel's counters of the device.
func checkWhole(t *testing.T, f interface{ Errorf(string, ...any) }, sum, earlier model.DeviceCounters, before diskstats,
	device *loopDevice) {
	t.Helper()
	sum = sum.Since(&earlier)
	after := device.diskstats(t)
	after.reads -= before.reads
	after.readBytes -= before.readBytes
	after.writes -= before.writes
	after.writeBytes -= before.writeBytes
	after.discards -= before.discards
	after.discardBytes -= before.discardBytes
	if sum.Read.Operations != after.reads || sum.Read.Bytes != after.readBytes || sum.Write.Bytes != after.writeBytes ||
		sum.Discard.Operations != after.discards || sum.Discard.Bytes != after.discardBytes {
		f.Errorf("all groups: %+v, the device %+v", sum, after)
	}
}

func quantileOf(sorted []uint64, q float64) float64 {
	return float64(sorted[int(math.Ceil(q*float64(len(sorted))))-1]) / 1e9
}

func TestDiskLatencyIsThatOfTheSingleRequests(t *testing.T) {
	p := openDisks(t, Options{LogRequests: 1 << 15})
	device := newLoopDevice(t, 64<<20)
	g := diskGroup(t, "latency", device)
	fio(g, t, "--filename="+device.path, direct, "--rw=randrw", "--bs=4k", "--size=32m", "--ioengine=libaio",
		"--iodepth=4")
	got := on(readDisks(t, p), device.block, g.ID(t))
	requests, err := p.DiskRequests()
	if err != nil {
		t.Fatal(err)
	}
	for write, o := range map[bool]model.DiskOperations{false: got.Read, true: got.Write} {
		var took []uint64
		var sum uint64
		for _, r := range requests {
			if r.Write == write && r.Device.Compare(device.block) == 0 {
				took = append(took, r.EndedNS-r.IssuedNS)
				sum += r.EndedNS - r.IssuedNS
			}
		}
		if uint64(len(took)) < o.Operations || len(took) == 0 {
			t.Fatalf("write %v: %d requests are logged, %d counted", write, len(took), o.Operations)
		}
		slices.Sort(took)
		for _, q := range []float64{0.5, 0.9, 0.99} {
			if exact, ours := quantileOf(took, q), o.Latency.Quantile(q); math.Abs(ours/exact-1) > model.RelativeError {
				t.Errorf("write %v: p%g is %v, of the single requests %v", write, q*100, ours, exact)
			}
		}
	}
}

func TestDisksOfTwoGroupsAreApart(t *testing.T) {
	p := openDisks(t, Options{})
	kerneltest.CountExactly(t, func(f *kerneltest.Faults, number int) { groupsAreApart(t, f, p, fmt.Sprint(number)) })
}

func groupsAreApart(t *testing.T, f *kerneltest.Faults, p *blockAndGroups, number string) {
	device := newLoopDevice(t, 64<<20)
	groups := []*kerneltest.Group{diskGroup(t, "one"+number, device), diskGroup(t, "two"+number, device)}
	type answer struct {
		job fioJob
		err error
	}
	answers := []chan answer{make(chan answer, 1), make(chan answer, 1)}
	for i, g := range groups {
		go func() {
			job, err := tryFio(g, "--filename="+device.path, direct, "--rw=write", "--bs=4k", fmt.Sprintf("--offset=%dm", 32*i),
				fmt.Sprintf("--size=%dm", 8+8*i), "--ioengine=libaio", "--iodepth=16", "--iodepth_batch=8")
			answers[i] <- answer{job, err}
		}()
	}
	for i, g := range groups {
		a := <-answers[i]
		if a.err != nil {
			t.Fatal(a.err)
		}
		// What is written in order is merged, so there are fewer requests than writes.
		got := on(readDisks(t, p), device.block, g.ID(t))
		if want := uint64(8+8*i) << 20; got.Write.Bytes != want || a.job.Write.Bytes != want || got.Write.Operations == 0 ||
			got.Write.Operations > a.job.Write.Total || got.Write.Latency.Count != got.Write.Operations {
			f.Errorf("group %d: %+v, want %d bytes as fio: %+v", i, got.Write, want, a.job)
		}
	}
}

// TestDiskFlushesAndDiscards has writes that must be on the device (a flush before or after), flushes alone, and
// discards.
func TestDiskFlushesAndDiscards(t *testing.T) {
	p := openDisks(t, Options{})
	kerneltest.CountExactly(t, func(f *kerneltest.Faults, number int) { flushesAndDiscards(t, f, p, fmt.Sprint("flush", number)) })
}

func flushesAndDiscards(t *testing.T, f *kerneltest.Faults, p *blockAndGroups, group string) {
	device := newLoopDevice(t, 32<<20)
	g := diskGroup(t, group, device)
	before, earlier := device.diskstats(t), on(readDisks(t, p), device.block, 0)
	const syncs = 64
	fio(g, t, "--filename="+device.path, direct, "--rw=write", "--bs=4k", fmt.Sprintf("--size=%dk", 4*syncs),
		"--ioengine=sync", "--fsync=1")
	fio(g, t, "--filename="+device.path, direct, "--rw=write", "--bs=4k", fmt.Sprintf("--size=%dk", 4*syncs),
		"--ioengine=sync", "--sync=dsync")
	fio(g, t, "--filename="+device.path, direct, "--rw=trim", "--bs=64k", "--size=1m", "--ioengine=sync")
	got := on(readDisks(t, p), device.block, g.ID(t))
	if got.Write.Operations != 2*syncs || got.Write.Bytes != 2*syncs*4096 || got.Discard.Operations != 16 ||
		got.Discard.Bytes != 1<<20 {
		f.Errorf("%d writes of %d bytes, %d discards of %d, want %d and 16", got.Write.Operations, got.Write.Bytes,
			got.Discard.Operations, got.Discard.Bytes, 2*syncs)
	}
	if got.Flush.Operations < syncs || got.Flush.TimeNS == 0 {
		f.Errorf("%d flushes in %d ns, want %d at least", got.Flush.Operations, got.Flush.TimeNS, syncs)
	}
	after, all := device.diskstats(t), readDisks(t, p)
	sum := on(all, device.block, 0)
	sum = sum.Since(&earlier)
	// The kernel counts a request that is only a flush as a write, and the device's own flush besides.
	var own uint64
	for _, d := range all {
		if d.Device == device.block && d.BlockGroup == 0 {
			own += d.Counters.Flush.Operations
		}
	}
	if own != after.flushes-before.flushes || sum.Write.Operations+sum.Flush.Operations-own != after.writes-before.writes {
		f.Errorf("%d flushes of the device, %d writes and %d flushes; the device counted %+v before, %+v after", own,
			sum.Write.Operations, sum.Flush.Operations-own, before, after)
	}
	checkWhole(t, f, on(all, device.block, 0), earlier, before, device)
}

// TestRequestsThatAreNotNear has an array for a single one.
func TestRequestsThatAreNotNear(t *testing.T) {
	p := openDisks(t, Options{NearRequests: 1})
	kerneltest.CountExactly(t, func(f *kerneltest.Faults, number int) { requestsNotNear(t, f, p, fmt.Sprint("far", number)) })
}

func requestsNotNear(t *testing.T, f *kerneltest.Faults, p *blockAndGroups, group string) {
	device := newLoopDevice(t, 64<<20)
	g := diskGroup(t, group, device)
	before := device.diskstats(t)
	job := fio(g, t, "--filename="+device.path, direct, "--rw=randread", "--bs=4k", "--size=16m", "--ioengine=libaio",
		"--iodepth=32")
	got := on(readDisks(t, p), device.block, g.ID(t))
	merged := device.diskstats(t).readsMerged - before.readsMerged
	if got.Read.Operations+merged != job.Read.Total || got.Read.Latency.Count != got.Read.Operations || got.Read.Untimed != 0 {
		f.Errorf("%+v, %d merged, fio %+v", got.Read, merged, job)
	}
}

// TestRequestsThatFindNoRoom are counted, and reported as untimed.
func TestRequestsThatFindNoRoom(t *testing.T) {
	p := openDisks(t, Options{NearRequests: 1, MaxRequests: 1})
	kerneltest.CountExactly(t, func(f *kerneltest.Faults, number int) { requestsWithoutRoom(t, f, p, fmt.Sprint("untimed", number)) })
}

func requestsWithoutRoom(t *testing.T, f *kerneltest.Faults, p *blockAndGroups, group string) {
	device := newLoopDevice(t, 64<<20)
	g := diskGroup(t, group, device)
	job := fio(g, t, "--filename="+device.path, direct, "--rw=randread", "--bs=4k", "--size=16m", "--ioengine=libaio",
		"--iodepth=32",
		"--iodepth_batch=16", "--iodepth_batch_complete_min=16")
	got := on(readDisks(t, p), device.block, g.ID(t))
	drops := p.Drops()
	at := slices.IndexFunc(drops, func(d model.Drop) bool { return d.Name == "disk_requests" })
	if got.Read.Bytes != job.Read.Bytes || got.Read.Untimed == 0 ||
		got.Read.Latency.Count+got.Read.Untimed != got.Read.Operations ||
		drops[at].Count < got.Read.Untimed {
		f.Errorf("%+v, %d in the histogram, fio %+v, %+v", got.Read, got.Read.Latency.Count, job, drops[at])
	}
}

// TestDisksThatFindNoEntry are counted together, and reported.
func TestDisksThatFindNoEntry(t *testing.T) {
	p := openDisks(t, Options{MaxDisks: 16})
	device := newLoopDevice(t, 16<<20)
	const groups = 24
	before, earlier := device.diskstats(t), readDisks(t, p)
	for i := range groups {
		g := diskGroup(t, fmt.Sprintf("many%d", i), nil)
		readDevice(t, g, device, 16)
	}
	read := device.diskstats(t).readBytes - before.readBytes
	all := readDisks(t, p)
	var overflow model.DeviceCounters
	entries := 0
	for _, d := range all {
		if d.Overflow {
			overflow.Add(&d.Counters)
		} else {
			entries++
		}
	}
	drops := p.Drops()
	at := slices.IndexFunc(drops, func(d model.Drop) bool { return d.Name == "disks" })
	if entries != 16 || drops[at].Capacity != 16 || drops[at].Used != 16 || drops[at].Count == 0 ||
		overflow.Read.Bytes < (groups-16)<<20 {
		t.Errorf("%d entries, %+v, %d bytes are of none", entries, drops[at], overflow.Read.Bytes)
	}
	mine, was := on(all, device.block, 0), on(earlier, device.block, 0)
	if got := mine.Read.Bytes - was.Read.Bytes + overflow.Read.Bytes; got < read {
		t.Errorf("%d bytes together, the device read %d", got, read)
	}
}

// TestQuietDisksAreEvicted makes room for others once three quarters are in use, and counts on.
func TestQuietDisksAreEvicted(t *testing.T) {
	p := openDisks(t, Options{MaxDisks: 16})
	device := newLoopDevice(t, 16<<20)
	groups := make([]*kerneltest.Group, 13)
	read := func(g *kerneltest.Group) { readDevice(t, g, device, 1) }
	for i := range groups {
		groups[i] = diskGroup(t, fmt.Sprintf("quiet%d", i), nil)
		read(groups[i])
	}
	readDisks(t, p)
	p.disks.quiet = 0
	readDisks(t, p) // evicts
	if left := on(readDisks(t, p), device.block, groups[0].ID(t)); left.Read.Bytes != 1<<16 {
		t.Errorf("the last reading has %d bytes", left.Read.Bytes)
	}
	p.disks.quiet = diskQuietBefore
	if mine := on(readDisks(t, p), device.block, groups[0].ID(t)); mine.Read.Operations != 0 {
		t.Errorf("it is still there: %+v", mine)
	}
	read(groups[0])
	if mine := on(readDisks(t, p), device.block, groups[0].ID(t)); mine.Read.Bytes != 1<<16 ||
		mine.Read.Latency.Count != mine.Read.Operations {
		t.Errorf("anew it has %+v", mine.Read)
	}
}

// newMemoryDevice is a device without requests, in compressed memory.
func newMemoryDevice(t *testing.T) *loopDevice {
	t.Helper()
	number, err := os.ReadFile("/sys/class/zram-control/hot_add")
	if errors.Is(err, os.ErrNotExist) {
		t.Skip("the kernel has no zram (CONFIG_ZRAM)")
	}
	if err != nil {
		t.Fatal(err)
	}
	n := strings.TrimSpace(string(number))
	d := &loopDevice{name: "zram" + n, path: "/dev/zram" + n}
	t.Cleanup(func() {
		kerneltest.Eventually(t, "removing "+d.name, func() bool {
			return os.WriteFile("/sys/class/zram-control/hot_remove", []byte(n), 0) == nil
		})
	})
	if err := os.WriteFile("/sys/block/"+d.name+"/disksize", []byte("33554432"), 0); err != nil {
		t.Fatal(err)
	}
	d.number(t)
	return d
}

func TestDevicesWithoutRequests(t *testing.T) {
	device := newMemoryDevice(t)
	p := openDisks(t, Options{LogRequests: 1 << 14})
	g := diskGroup(t, "bios", device)
	before, earlier := device.diskstats(t), on(readDisks(t, p), device.block, 0)
	job := fio(g, t, "--filename="+device.path, direct, "--rw=randrw", "--bs=4k", "--size=16m", "--ioengine=libaio",
		"--iodepth=8")
	fio(g, t, "--filename="+device.path, direct, "--rw=trim", "--bs=64k", "--size=1m", "--ioengine=sync")
	all := readDisks(t, p)
	got := on(all, device.block, g.ID(t))
	if got.Read.Bytes != job.Read.Bytes || got.Write.Bytes != job.Write.Bytes || got.Read.Operations != job.Read.Total ||
		got.Write.Operations != job.Write.Total || got.Discard.Operations != 16 || got.Discard.Bytes != 1<<20 {
		t.Errorf("counted %+v, fio %+v", got, job)
	}
	readBytes, writeBytes, reads, writes := fileCounts(g, t, device)
	if got.Read.Bytes != readBytes || got.Write.Bytes != writeBytes || got.Read.Operations != reads ||
		got.Write.Operations != writes {
		t.Errorf("counted %d bytes in %d reads and %d in %d writes; the group's files say %d in %d and %d in %d",
			got.Read.Bytes, got.Read.Operations, got.Write.Bytes, got.Write.Operations, readBytes, reads, writeBytes, writes)
	}
	for _, o := range []model.DiskOperations{got.Read, got.Write} {
		if o.Latency == nil || o.Latency.Count != o.Operations || o.Latency.SumNS != o.TimeNS || o.TimeNS == 0 ||
			o.Untimed != 0 {
			t.Errorf("%+v of %d operations", o.Latency, o.Operations)
		}
	}
	// zram leaves discards out of its counters.
	whole := on(all, device.block, 0)
	whole.Discard = model.DiskOperations{}
	checkWhole(t, t, whole, earlier, before, device)
}

// TestDisksOfForgottenGroupsAreEvicted reads what was counted up to the end once more, and no more then.
func TestDisksOfForgottenGroupsAreEvicted(t *testing.T) {
	p := openDisks(t, Options{})
	device := newLoopDevice(t, 16<<20)
	g := diskGroup(t, "forgotten", device)
	g.Start(t, "idle") // a slot of its own
	read := func() {
		fio(g, t, "--filename="+device.path, direct, "--rw=read", "--bs=64k", "--size=1m", "--ioengine=sync")
	}
	read()
	id := g.ID(t)
	p.Forget(id)
	if got := on(readDisks(t, p), device.block, id); got.Read.Bytes != 1<<20 {
		t.Errorf("the last reading has %d bytes", got.Read.Bytes)
	}
	if got := on(readDisks(t, p), device.block, id); got.Read.Operations != 0 {
		t.Errorf("it is still there: %+v", got)
	}
	read()
	if got := on(readDisks(t, p), device.block, id); got.Read.Bytes != 1<<20 ||
		got.Read.Latency.Count != got.Read.Operations {
		t.Errorf("anew it has %+v", got.Read)
	}
}

// TestGroupsOfTwoHierarchies finds a group by the path of that which accounts its I/O.
func TestGroupsOfTwoHierarchies(t *testing.T) {
	if kerneltest.Controller() == "" {
		t.Skip("cgroup v2 has one hierarchy")
	}
	g := diskGroup(t, "translated", nil)
	translator := newGroupTranslator("/sys/fs/cgroup/blkio", "/sys/fs/cgroup/memory")
	defer translator.Close()
	other := &kerneltest.Group{Dirs: g.Dirs[1:]}
	if got := translator.translate(uint64(other.ID(t))); got != uint64(g.ID(t)) || other.ID(t) == g.ID(t) {
		t.Errorf("%d is %d in the other hierarchy, want %d", other.ID(t), got, g.ID(t))
	}
	if got := translator.translate(1 << 40); got != 0 {
		t.Errorf("a group that is not there is %d", got)
	}
}

// TestGroupsAreLearntFromTheirTasks has no reader that could look the group up.
func TestGroupsAreLearntFromTheirTasks(t *testing.T) {
	p := open(t, Options{})
	device := newLoopDevice(t, 16<<20)
	g := diskGroup(t, "learnt", device)
	fio(g, t, "--filename="+device.path, direct, "--rw=read", "--bs=64k", "--size=1m", "--ioengine=sync")
	if got := on(readDisks(t, p), device.block, g.ID(t)); got.Read.Bytes != 1<<20 {
		t.Errorf("%d bytes are the group's", got.Read.Bytes)
	}
}

// TestSyncsAreTimed has a program sync a known number of times.
func TestSyncsAreTimed(t *testing.T) {
	p := openDisks(t, Options{})
	dir := cmp.Or(fileSystem("ext4"), t.TempDir())
	var about unix.Statfs_t
	if err := unix.Statfs(dir, &about); err != nil {
		t.Fatal(err)
	}
	if about.Type != unix.EXT4_SUPER_MAGIC {
		if fileSystem("ext4") != "" {
			t.Fatalf("no ext4 is mounted at %s", dir)
		}
		t.Skipf("the file system here is %#x, no ext4", about.Type)
	}
	countSyncs(t, p, filepath.Join(dir, "synced"))
}

// Of a pair of hooks whose second cannot be had, nothing stays.
func TestPairOfHooks(t *testing.T) {
	p := openDisks(t, Options{})
	spec, err := loadDisk()
	if err != nil {
		t.Fatal(err)
	}
	for name, m := range p.disks.collection.Maps {
		spec.Maps[name].MaxEntries = m.MaxEntries()
	}
	good := diskHooks[len(diskHooks)-1]
	absent := good
	absent.Program = "none"
	before := []int{len(p.Programs()), len(p.Attachments()), kerneltest.OpenFiles()}
	if err := p.AttachAll(kerneltest.Kernel(t), spec, p.disks.collection, host.Way{good, absent}); err == nil {
		t.Error("a program that does not exist was attached")
	}
	if after := []int{len(p.Programs()), len(p.Attachments()), kerneltest.OpenFiles()}; !slices.Equal(before, after) {
		t.Errorf("there were %d programs, attachments and open files, and are %d", before, after)
	}
}

// fileSystem is where a file system of this kind is mounted already, or empty; see test/kernels.
func fileSystem(kind string) string {
	dir := os.Getenv("OUTSIGHT_FILE_SYSTEMS")
	if dir == "" {
		return ""
	}
	return filepath.Join(dir, kind)
}

// TestSyncsOfOtherFileSystems does the same on each file system that is timed and that this kernel has.
func TestSyncsOfOtherFileSystems(t *testing.T) {
	p := openDisks(t, Options{})
	for _, w := range syncWays {
		t.Run(w.fileSystem, func(t *testing.T) {
			if !knowsFileSystem("/proc", w.fileSystem) {
				if fileSystem(w.fileSystem) != "" {
					t.Fatal("its module was not loaded")
				}
				t.Skipf("this kernel has no %s", w.fileSystem)
			}
			if kerneltest.WithoutTrampolines() {
				for _, h := range w.hooks {
					if !slices.ContainsFunc(p.Features(), func(f model.Feature) bool {
						return f.Name == h.Name && f.State == model.FeatureAbsent && f.Reason == errNoTrampolines.Error()
					}) {
						t.Errorf("%s is not said to be absent: %+v", h.Name, p.Features())
					}
				}
				return
			}
			dir := fileSystem(w.fileSystem)
			if dir == "" {
				dir = mountNew(t, w.fileSystem)
			}
			countSyncs(t, p, filepath.Join(dir, "synced"))
		})
	}
	// Where functions can't be had, the verifier still accepts the programs, and the arguments are where they look.
	spec, err := loadDisk()
	if err != nil {
		t.Fatal(err)
	}
	for name, m := range p.disks.collection.Maps {
		spec.Maps[name].MaxEntries = m.MaxEntries()
	}
	types, err := kerneltest.Types.Kernel()
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range syncWays {
		for _, h := range w.hooks {
			var function *btf.Func
			if _, name, _ := strings.Cut(h.Name, "/"); types.TypeByName(name, &function) != nil {
				continue // it is in a module, or nowhere
			}
			proto := function.Type.(*btf.FuncProto)
			if len(proto.Params) != 4 || proto.Params[3].Name != "datasync" {
				t.Errorf("%s has the arguments %v", h.Name, proto.Params)
			}
			if err := p.TryAttach(kerneltest.Kernel(t), spec, p.disks.collection, h); err != nil && !errors.Is(err, unix.EPERM) {
				t.Errorf("%s: %v", h.Name, err)
			}
		}
	}
	// What the kernel does not have is no fault of it.
	nothing := t.TempDir()
	if knowsFileSystem(nothing, "xfs") {
		t.Error("a file system without a list of them")
	}
	if err := os.WriteFile(filepath.Join(nothing, "filesystems"),
		[]byte("nodev\tsysfs\n\text4\nnodev\txfsdev\n\tbtrfs\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if knowsFileSystem(nothing, "xfs") || !knowsFileSystem(nothing, "btrfs") || !knowsFileSystem(nothing, "sysfs") {
		t.Error("the list of file systems is misread")
	}
}

// mountNew makes a file system and mounts it until the test ends.
func mountNew(t *testing.T, kind string) (dir string) {
	t.Helper()
	if _, err := exec.LookPath("mkfs." + kind); err != nil {
		t.Skip(err)
	}
	file := filepath.Join(t.TempDir(), "disk")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Truncate(file, 320<<20)); err != nil {
		t.Fatal(err)
	}
	device := loopOver(t, file)
	if out, err := exec.Command("mkfs."+kind, device.path).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	dir = t.TempDir()
	if out, err := exec.Command("mount", "-t", kind, device.path, dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	return dir
}

// countSyncs has a program write a file and synchronise it a known number of times.
func countSyncs(t *testing.T, p *blockAndGroups, file string) {
	t.Helper()
	g := diskGroup(t, "synced", nil)
	begun := time.Now()
	if out, err := g.Workload("sync", syncedVariable+"="+file).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	window := time.Since(begun)
	var got model.SyncCounters
	for _, d := range readDisks(t, p) {
		if d.Syncs != nil && d.Group == g.ID(t) {
			got.Add(d.Syncs)
		}
	}
	if got.FSync.Operations != 32 || got.FDataSync.Operations != 16 || got.FSync.Latency.Count != 32 ||
		got.FDataSync.Latency.Count != 16 {
		t.Errorf("%+v, want 32 and 16", got)
	}
	if sum := time.Duration(got.FSync.TimeNS + got.FDataSync.TimeNS); sum == 0 || sum > window {
		t.Errorf("they took %v of %v", sum, window)
	}
}

// syncedVariable holds the file of syncFile.
const syncedVariable = "OUTSIGHT_TEST_SYNCED"

// syncFile is a workload: it writes a file, and synchronises it 32 times and its data 16 times.
func syncFile() int {
	file, err := os.Create(os.Getenv(syncedVariable))
	for i := 0; err == nil && i < 48; i++ {
		if _, err = file.Write(make([]byte, 4096)); err != nil {
			break
		}
		if i < 32 {
			err = unix.Fsync(int(file.Fd()))
		} else {
			err = unix.Fdatasync(int(file.Fd()))
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func TestDevicesThatHaveNoRequests(t *testing.T) {
	f := func(want bool, files ...string) {
		t.Helper()
		dir := t.TempDir()
		for _, file := range files {
			name, text, _ := strings.Cut(file, "=")
			if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := hasBioDevice(dir); got != want {
			t.Errorf("%q: %v, want %v", files, got, want)
		}
	}
	f(false)
	f(false, "vda/size=1024", "vda/mq/0/cpu_list=0")
	f(false, "vda/size=1024", "vda/mq/0/cpu_list=0", "zram0/size=0")
	f(true, "vda/size=1024", "vda/mq/0/cpu_list=0", "dm-0/size=512")
}
