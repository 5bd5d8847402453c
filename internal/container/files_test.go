package container

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"outsight/internal/model"
)

// v2Group is a control group of plain files, as v2 would have it.
func v2Group(t testing.TB) (*Files, *model.Container, string) {
	t.Helper()
	root := t.TempDir()
	path := "/system.slice/docker-" + idA + ".scope"
	for _, name := range []string{"memory.current", "memory.stat", "memory.max", "memory.events", "cpu.stat", "io.stat",
		"pids.current", "cpu.pressure", "memory.pressure", "io.pressure"} {
		writeFile(t, filepath.Join(root, path, name), string(testFile(t, "v2/"+name)))
	}
	f := NewFiles(Layout{Name: "v2", MountPoint: root, unified: root, v2: []string{"cpu", "io", "memory", "pids"}},
		Options{})
	t.Cleanup(f.Close)
	return f, &model.Container{ID: idA, CgroupPath: path, Cgroup: 7}, root + path
}

func readOne(t testing.TB, f *Files, c *model.Container) *Usage {
	t.Helper()
	usages := make([]Usage, 1)
	f.Read([]*model.Container{c}, usages)
	return &usages[0]
}

func TestReadV2(t *testing.T) {
	f, c, _ := v2Group(t)
	u := readOne(t, f, c)
	if u.Err != nil || u.Memory == nil || u.Throttle == nil || u.Disk == nil || u.Threads == nil {
		t.Fatalf("%+v", u)
	}
	if want := (model.MemorySample{UsageBytes: 61775872, WorkingSetBytes: 61775872 - 32948224, RSSBytes: 12783616,
		CacheBytes: 45719552, PageFaults: 9351, MajorPageFaults: 123, OOMKills: 2, FileRefaults: 4,
		HasRefaults: true}); *u.Memory != want {
		t.Errorf("memory %+v, want %+v", *u.Memory, want)
	}
	if want := (model.ThrottleCounters{Periods: 115, ThrottledPeriods: 37, ThrottledNS: 2211549000}); *u.Throttle != want {
		t.Errorf("throttle %+v, want %+v", *u.Throttle, want)
	}
	if p := u.Pressure; p == nil || p.CPU.WaitingNS != 2568173985000 || p.IO.StalledNS != 86378137000 || !p.Memory.Known {
		t.Errorf("pressure %+v", p)
	}
	if u.Disk.Reads != 192+8950+1 || *u.Threads != 7 {
		t.Errorf("disk %+v, %d threads", *u.Disk, *u.Threads)
	}
	if u.Network != nil {
		t.Errorf("network %+v without a namespace", *u.Network)
	}
	if cpu, err := f.CPUUsage(c); err != nil || cpu != 6141270000 {
		t.Errorf("cpu %d, %v", cpu, err)
	}
	for _, feature := range f.Features() {
		if feature.State != model.FeatureWorks {
			t.Errorf("%+v", feature)
		}
	}
}

func TestReadLimit(t *testing.T) {
	f, c, directory := v2Group(t)
	if u := readOne(t, f, c); u.Memory.LimitBytes != 0 {
		t.Errorf("no limit: %d", u.Memory.LimitBytes)
	}
	writeFile(t, filepath.Join(directory, "memory.max"), "134217728\n")
	for range limitEvery {
		readOne(t, f, c)
	}
	if u := readOne(t, f, c); u.Memory.LimitBytes != 134217728 {
		t.Errorf("limit %d", u.Memory.LimitBytes)
	}
}

// TestReadGarbage is about files that are not what they should be: the numbers are absent,
// the others are not disturbed, and all is well again when the file is.
func TestReadGarbage(t *testing.T) {
	f, c, directory := v2Group(t)
	for _, text := range []string{"", "anon", "anon 1\nfile x\n", "\x00\xff\n", strings.Repeat("anon 1\n", 20000),
		"anon 99999999999999999999\n"} {
		writeFile(t, filepath.Join(directory, "memory.stat"), text)
		u := readOne(t, f, c)
		if u.Err == nil || !strings.Contains(u.Err.Error(), "memory.stat") || u.Memory != nil {
			t.Errorf("%.20q: error %v, memory %+v", text, u.Err, u.Memory)
		}
		if u.Throttle == nil || u.Disk == nil || u.Threads == nil {
			t.Errorf("%.20q: %+v", text, u)
		}
	}
	writeFile(t, filepath.Join(directory, "memory.stat"), string(testFile(t, "v2/memory.stat")))
	if u := readOne(t, f, c); u.Err != nil || u.Memory == nil {
		t.Errorf("%+v", u)
	}
	writeFile(t, filepath.Join(directory, "io.stat"), strings.Repeat("8:0 rbytes=1\n", bufferLimit/10))
	if u := readOne(t, f, c); u.Err == nil || u.Disk != nil {
		t.Errorf("a file of more than %d bytes: %+v", bufferLimit, u)
	}
}

// TestReadWithoutControllers is a host that lacks most of them.
func TestReadWithoutControllers(t *testing.T) {
	f, c, directory := v2Group(t)
	f.sources = sourcesOf(&Layout{unified: f.layout.unified, v2: []string{"memory"}})
	f.pressureless = "no pressure"
	if err := os.Remove(filepath.Join(directory, "memory.events")); err != nil {
		t.Fatal(err)
	}
	u := readOne(t, f, c)
	if u.Err != nil || u.Memory == nil || u.Memory.OOMKills != 0 {
		t.Errorf("%+v", u)
	}
	if u.Throttle != nil || u.Disk != nil || u.Threads != nil {
		t.Errorf("%+v", u)
	}
	for _, feature := range f.Features() {
		absent := feature.State == model.FeatureAbsent && feature.Reason != "" && feature.Remedy != ""
		if absent != (feature.Name != "cgroup/memory") {
			t.Errorf("%+v", feature)
		}
	}
}

func TestOpenFilesAreBounded(t *testing.T) {
	f, c, _ := v2Group(t)
	f.maxOpen = 2
	for range 3 {
		if u := readOne(t, f, c); u.Err != nil || u.Disk == nil || u.Threads == nil {
			t.Fatalf("%+v", u)
		}
	}
	// Ten files; of the limit's there is one reading in these three.
	if d := f.Drops()[0]; d.Used != 2 || d.Capacity != 2 || d.Count != 3*7+1 {
		t.Errorf("%+v", d)
	}
	f.Read(nil, nil)
	if d := f.Drops()[0]; d.Used != 0 {
		t.Errorf("%d files are open of no container", d.Used)
	}
}

// TestReadHere is on real control groups: numbers that the test itself brings about.
func TestReadHere(t *testing.T) {
	l := hostLayout(t)
	path := "/osct-read/" + testID(2)
	id := makeGroup(t, l, path)
	const threads = 3
	var pid int
	for range threads {
		pid = enter(t, l, path, "/bin/sleep", "600").Process.Pid
	}
	f := NewFiles(l, Options{})
	defer f.Close()
	c := &model.Container{ID: testID(2), CgroupPath: path, Cgroup: id, PID: pid}
	u := readOne(t, f, c)
	if u.Err != nil || u.Threads == nil || *u.Threads != threads {
		t.Fatalf("%+v", u)
	}
	if u.Memory == nil || u.Memory.UsageBytes == 0 || u.Memory.PageFaults == 0 || u.Memory.LimitBytes != 0 {
		t.Errorf("memory %+v", u.Memory)
	}
	if err := os.WriteFile(l.v1["memory"]+path+"/memory.limit_in_bytes", []byte("52428800"), 0); err != nil {
		t.Fatal(err)
	}
	if u := readOne(t, f, c); u.Memory.LimitBytes != 52428800 {
		t.Errorf("limit %d", u.Memory.LimitBytes)
	}
	before, err := f.CPUUsage(c)
	if err != nil || before == 0 {
		t.Errorf("cpu %d, %v", before, err)
	}
}

// TestOutOfMemory lets the kernel kill a process.
func TestOutOfMemory(t *testing.T) {
	l := hostLayout(t)
	path := "/osct-oom/" + testID(3)
	id := makeGroup(t, l, path)
	if err := os.WriteFile(l.v1["memory"]+path+"/memory.limit_in_bytes", []byte("8388608"), 0); err != nil {
		t.Fatal(err)
	}
	cmd := enter(t, l, path, "/usr/bin/tail", "/dev/zero")
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("it ended with %v", err)
	}
	f := NewFiles(l, Options{})
	defer f.Close()
	u := readOne(t, f, &model.Container{ID: testID(3), CgroupPath: path, Cgroup: id})
	if u.Err != nil || u.Memory == nil || u.Memory.OOMKills != 1 {
		t.Errorf("%+v, %+v", u, u.Memory)
	}
}

// TestVanished is about the last numbers of a container, and that no file stays open.
func TestVanished(t *testing.T) {
	l := hostLayout(t)
	path := "/osct-vanished/" + testID(4)
	id := makeGroup(t, l, path)
	cmd := enter(t, l, path, "/bin/sleep", "600")
	f := NewFiles(l, Options{})
	defer f.Close()
	c := &model.Container{ID: testID(4), CgroupPath: path, Cgroup: id, PID: cmd.Process.Pid}
	last := readOne(t, f, c)
	if last.Err != nil || last.Memory == nil {
		t.Fatalf("%+v", last)
	}
	cmd.Process.Kill()
	cmd.Wait()
	for point := range l.mounts() {
		removeGroup(t, point+path)
	}
	u := readOne(t, f, c)
	if u.Err != nil || u.Memory == nil || *u.Memory != *last.Memory || *u.Threads != *last.Threads {
		t.Errorf("its group is gone: %+v, last %+v", u, last)
	}
	ended := *c
	ended.Ended = c.Started.Add(1)
	if u := readOne(t, f, &ended); u.Err != nil || u.Memory == nil || *u.Memory != *last.Memory {
		t.Errorf("ended: %+v", u)
	}
	f.Read(nil, nil)
	if d := f.Drops()[0]; d.Used != 0 || len(f.groups) != 0 {
		t.Errorf("%d files, %d groups are kept", d.Used, len(f.groups))
	}
	// A container that was never read has no numbers.
	if u := readOne(t, f, &ended); u.Err != nil || u.Memory != nil || u.Threads != nil {
		t.Errorf("%+v", u)
	}
}

// TestNoAllocation keeps the cost of a reading in the steady state what it is.
func TestNoAllocation(t *testing.T) {
	l := hostLayout(t)
	path := "/osct-alloc/" + testID(5)
	id := makeGroup(t, l, path)
	f := NewFiles(l, Options{})
	defer f.Close()
	pid, netns := enterOwnNetwork(t, l, path)
	containers := []*model.Container{{ID: testID(5), CgroupPath: path, Cgroup: id, PID: pid, NetNS: netns}}
	usages := make([]Usage, 1)
	f.Read(containers, usages)
	if u := usages[0]; u.Err != nil || u.Memory == nil || u.Network == nil {
		t.Fatalf("%+v", u)
	}
	f.counted.Store(true) // looking for devices at the root is no part of the steady state
	n := 1.0
	for try := 0; n != 0 && try < 5; try++ { // when interfaces come or go on this host, they are listed
		n = testing.AllocsPerRun(100, func() { f.Read(containers, usages) })
	}
	if n != 0 {
		t.Errorf("%v allocations in a reading", n)
	}
}

// enterOwnNetwork starts a process in a network namespace of its own, and waits until it has
// come to sleep. The command is one that does.
func enterOwnNetwork(t testing.TB, l Layout, path string, command ...string) (pid int, netns uint32) {
	t.Helper()
	if command == nil {
		command = []string{"/bin/sleep", "600"}
	}
	pid = enter(t, l, path, append([]string{"/usr/bin/unshare", "--net"}, command...)...).Process.Pid
	p := newProcesses("/proc", l.Subsystem)
	eventually(t, func() error {
		if comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); err != nil || string(comm) != "sleep\n" {
			return fmt.Errorf("it is %q yet, %v", comm, err)
		}
		return nil
	})
	netns, err := p.netns(pid)
	if err != nil || netns == p.hostNetNS {
		t.Fatalf("it is in namespace %d, the host's is %d, %v", netns, p.hostNetNS, err)
	}
	return pid, netns
}

// TestTrust is about pids that mean another process than they did.
func TestTrust(t *testing.T) {
	l := hostLayout(t)
	own, other := "/osct-trust/"+testID(6), "/osct-trust/"+testID(7)
	ownID := makeGroup(t, l, own)
	makeGroup(t, l, other)
	makeGroup(t, l, own+"/child")
	ownPID, ownNet := enterOwnNetwork(t, l, own)
	otherPID, otherNet := enterOwnNetwork(t, l, other)
	childPID := enter(t, l, own+"/child", "/bin/sleep", "600").Process.Pid
	p := newProcesses("/proc", l.Subsystem)
	for _, pid := range []int{ownPID, childPID} {
		if err := p.trust(pid, own); err != nil {
			t.Error(err)
		}
	}
	if err := p.trust(otherPID, own); !errors.Is(err, errMoved) {
		t.Errorf("error %v", err)
	}
	if err := p.trust(ownPID, own[:len(own)-1]); !errors.Is(err, errMoved) {
		t.Errorf("the start of a name: error %v", err)
	}
	f := NewFiles(l, Options{})
	defer f.Close()
	check := func(pid int, netns uint32, want bool) {
		t.Helper()
		f.Read(nil, nil)
		c := &model.Container{ID: testID(6), CgroupPath: own, Cgroup: ownID, PID: pid, NetNS: netns}
		if u := readOne(t, f, c); u.Err != nil || (u.Network != nil) != want {
			t.Errorf("pid %d, namespace %d: %+v", pid, netns, u)
		}
	}
	check(ownPID, ownNet, true)
	check(otherPID, otherNet, false)
	check(ownPID, otherNet, false)
	check(1<<22-1, ownNet, false)
	check(childPID, f.proc.hostNetNS, false) // its numbers would be the whole host's
	if pid, err := firstPID(l.MountPoint+own, 0); err != nil || pid != ownPID {
		t.Errorf("first process %d, %v, want %d", pid, err, ownPID)
	}
	if pid, err := firstPID(l.MountPoint+filepath.Dir(own), 1); err != nil || pid != ownPID && pid != otherPID {
		t.Errorf("first process below %d, %v", pid, err)
	}
	if pid, err := firstPID(l.MountPoint+filepath.Dir(own), 0); err != nil || pid != 0 {
		t.Errorf("no process, but %d, %v", pid, err)
	}
}

// TestInterfaces counts packets that the test sends over a pair of interfaces.
func TestInterfaces(t *testing.T) {
	l := hostLayout(t)
	path := "/osct-interfaces/" + testID(8)
	id := makeGroup(t, l, path)
	const script = `ip link set lo up
ip link add osct0 type veth peer name osct1
echo 1 > /proc/sys/net/ipv6/conf/osct0/disable_ipv6
echo 1 > /proc/sys/net/ipv6/conf/osct1/disable_ipv6
ip addr add 10.99.0.1/24 dev osct0
ip link set osct0 up; ip link set osct1 up
ip neigh add 10.99.0.2 lladdr 02:00:00:00:00:02 dev osct0
exec sleep 600`
	pid, netns := enterOwnNetwork(t, l, path, "/bin/sh", "-ec", script)
	p := newProcesses("/proc", l.Subsystem)
	eventually(t, func() error {
		list, err := p.addresses(pid)
		if err != nil || len(list) != 1 || list[0].String() != "10.99.0.1" {
			return fmt.Errorf("addresses %v, %v", list, err)
		}
		return nil
	})
	f := NewFiles(l, Options{})
	defer f.Close()
	containers := []*model.Container{
		{ID: testID(8), CgroupPath: path, Cgroup: id, PID: pid, NetNS: netns},
		{ID: testID(9), CgroupPath: path, Cgroup: id + 1, PID: pid, NetNS: netns}, // shares the namespace
	}
	usages := make([]Usage, 2)
	f.Read(containers, usages)
	before := *usages[0].Network
	// A datagram to a neighbour that is not there leaves by one interface and comes in by the other.
	const datagrams, size = 20, 14 + 20 + 8 + len("0123456789") // Ethernet, IPv4, UDP, text
	send := fmt.Sprintf("for i in $(seq %d); do echo -n 0123456789 > /dev/udp/10.99.0.2/9; done", datagrams)
	if out, err := exec.Command("nsenter", fmt.Sprintf("--net=/proc/%d/ns/net", pid), "/bin/bash", "-ec",
		send).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	f.Read(containers, usages)
	n := *usages[0].Network
	want := before
	want.TransmitPackets += datagrams
	want.ReceivePackets += datagrams
	want.TransmitBytes += datagrams * uint64(size)
	want.ReceiveBytes += datagrams * uint64(size)
	if n != want {
		t.Errorf("%d datagrams: %+v, want %+v", datagrams, n, want)
	}
	if *usages[1].Network != n {
		t.Errorf("%+v, %+v in one namespace", *usages[1].Network, n)
	}
	file, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/dev", pid))
	if err != nil {
		t.Fatal(err)
	}
	if want, _, err := parseNetDev(file); err != nil || want != n {
		t.Errorf("%+v, the file says %+v, %v", n, want, err)
	}
}

// TestQuietInterfaces: interfaces that stand still are looked at rarely while kernel programs see nothing either, and in
// the next reading when they have seen something.
func TestQuietInterfaces(t *testing.T) {
	l := hostLayout(t)
	path := "/osct-quiet/" + testID(7)
	id := makeGroup(t, l, path)
	pid, netns := enterOwnNetwork(t, l, path, "/bin/sh", "-ec", `ip link add osct0 type veth peer name osct1
echo 1 > /proc/sys/net/ipv6/conf/osct0/disable_ipv6
echo 1 > /proc/sys/net/ipv6/conf/osct1/disable_ipv6
ip addr add 10.99.0.1/24 dev osct0
ip link set osct0 up; ip link set osct1 up
ip neigh add 10.99.0.2 lladdr 02:00:00:00:00:02 dev osct0
exec sleep 600`)
	p := newProcesses("/proc", l.Subsystem)
	eventually(t, func() error {
		list, err := p.addresses(pid)
		if err != nil || len(list) != 1 {
			return fmt.Errorf("addresses %v, %v", list, err)
		}
		return nil
	})
	f := NewFiles(l, Options{})
	defer f.Close()
	containers := []*model.Container{{ID: testID(7), CgroupPath: path, Cgroup: id, PID: pid, NetNS: netns}}
	usages := make([]Usage, 1)
	packets := func(traffic map[uint32]uint64) uint64 {
		t.Helper()
		f.Traffic(traffic)
		f.Read(containers, usages)
		if usages[0].Network == nil {
			t.Fatalf("no network: %v", usages[0].Err)
		}
		return usages[0].Network.TransmitPackets
	}
	sent := uint64(0)
	send := func() {
		t.Helper()
		if out, err := exec.Command("nsenter", fmt.Sprintf("--net=/proc/%d/ns/net", pid), "/bin/bash", "-ec",
			"echo -n 0123456789 > /dev/udp/10.99.0.2/9").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		sent++
	}
	quiet := func(traffic map[uint32]uint64) {
		t.Helper()
		for range 2 * quietEvery {
			if n := packets(traffic); n != sent {
				t.Fatalf("%d packets, want %d", n, sent)
			}
		}
	}
	sent = packets(nil)
	quiet(nil)
	// What programs do not see is found some readings later, more of them where they see the rest.
	for _, c := range []struct {
		traffic map[uint32]uint64
		most    int
	}{{nil, backoffEvery}, {map[uint32]uint64{netns: 5}, quietEvery}} {
		quiet(c.traffic)
		skipped := 0
		for phase := range 2 * quietEvery {
			before := sent
			send()
			readings := 1
			for ; packets(c.traffic) == before; readings++ {
				if readings == c.most {
					t.Fatalf("traffic %v: not seen in %d readings", c.traffic, readings)
				}
			}
			skipped = max(skipped, readings-1)
			quiet(c.traffic)
			for range phase { // of its turns, in which the next packet is sent
				packets(c.traffic)
			}
		}
		if skipped < backoffEvery-1 || c.traffic != nil && skipped < backoffEvery {
			t.Errorf("traffic %v: at most %d readings in a row were left out", c.traffic, skipped)
		}
	}
	// And later still where nothing was found for long.
	seldom := map[uint32]uint64{netns: 5}
	for range stillAfter * quietEvery {
		packets(seldom)
	}
	before := sent
	send()
	readings := 1
	for ; packets(seldom) == before; readings++ {
		if readings == stackEvery {
			t.Fatalf("not seen in %d readings after a long standstill", readings)
		}
	}
	for range quietEvery { // it is looked at each time again
		before := sent
		send()
		if packets(seldom) == before {
			t.Fatal("not seen in the reading after the one that ended a standstill")
		}
	}
	// What they see is there at once.
	for n := range uint64(2 * quietEvery) {
		traffic := map[uint32]uint64{netns: 6 + n}
		send()
		if got := packets(traffic); got != sent {
			t.Fatalf("%d packets in the reading after traffic, want %d", got, sent)
		}
		quiet(traffic)
		packets(traffic)
	}
}

// TestZeroWindows has a receiver that does not read until its sender has filled the window: the
// counters grow as the kernel's own file says.
func TestZeroWindows(t *testing.T) {
	l := hostLayout(t)
	path := "/osct-windows/" + testID(8)
	id := makeGroup(t, l, path)
	const script = `
import os, socket
os.system("ip link set lo up")
listener = socket.create_server(("127.0.0.1", 0))
sender = socket.create_connection(listener.getsockname())
receiver, _ = listener.accept()
sender.settimeout(0.5)
try:
    while True: sender.send(b"x" * 65536)
except TimeoutError: pass
receiver.settimeout(0.5)
try:
    while receiver.recv(1 << 20): pass
except TimeoutError: pass
os.execv("/bin/sleep", ["sleep", "600"])`
	pid, netns := enterOwnNetwork(t, l, path, "/usr/bin/python3", "-c", script)
	f := NewFiles(l, Options{})
	defer f.Close()
	c := []*model.Container{{ID: testID(8), CgroupPath: path, Cgroup: id, PID: pid, NetNS: netns}}
	file := func(name string) (n uint64) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/netstat", pid))
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(string(text), "\n")
		values := strings.Fields(lines[1])
		for i, field := range strings.Fields(lines[0]) {
			if field == name {
				n, _ = strconv.ParseUint(values[i], 10, 64)
			}
		}
		return n
	}
	usages := make([]Usage, 1)
	f.Read(c, usages)
	got := usages[0].TCP
	if got == nil || got.ZeroWindows == 0 || got.ZeroWindows != file("TCPToZeroWindowAdv") ||
		got.ZeroWindowsEnded != file("TCPFromZeroWindowAdv") {
		t.Errorf("%+v, the file says %d closed windows, %d opened again", got, file("TCPToZeroWindowAdv"),
			file("TCPFromZeroWindowAdv"))
	}
	if usages[0].Err != nil {
		t.Error(usages[0].Err)
	}
}

// TestQuietDisks: files of block I/O that stand still are looked at rarely while programs see no requests either, and in
// the next reading when they have seen one.
func TestQuietDisks(t *testing.T) {
	g := &groupFiles{}
	g.reset()
	f := &Files{groups: map[string]*groupFiles{}, sources: [fileKinds]source{}}
	requests := uint64(0)
	f.Disks(func(string) uint64 { return requests })
	c := &model.Container{ID: testID(4)}
	looked := func() bool {
		f.turn++
		before := g.last.has[diskNumbers]
		g.last.has[diskNumbers] = true // a look finds no file and takes it away
		_ = f.readDisk(c, g)
		found := !g.last.has[diskNumbers]
		g.last.has[diskNumbers] = before
		return found
	}
	for range backoffAfter {
		if !looked() {
			t.Fatal("the file is not looked at")
		}
	}
	looks := 0
	for range 2 * quietEvery {
		if looked() {
			looks++
		}
	}
	if looks != 2 {
		t.Errorf("%d looks in %d turns, want 2", looks, 2*quietEvery)
	}
	requests++
	if !looked() {
		t.Error("a request was counted, and the file is not looked at")
	}
}
