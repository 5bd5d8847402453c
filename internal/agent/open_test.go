package agent

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"outsight/internal/kernel"
	"outsight/internal/model"
)

const spinVariable = "OUTSIGHT_TEST_SPIN"

func TestMain(m *testing.M) {
	if group := os.Getenv(spinVariable); group != "" {
		spin(group)
		return
	}
	if group := os.Getenv(answerVariable); group != "" {
		answerAll(group)
		return
	}
	os.Exit(m.Run())
}

// spinTime is the CPU time that a test's container takes.
const spinTime = 200 * time.Millisecond

// spin goes into a control group and works there.
func spin(group string) {
	enter(group)
	// A thread that is moved while it runs counts for its old group until it is switched out.
	time.Sleep(5 * time.Millisecond)
	for begin := cpuTime(); cpuTime()-begin < spinTime; {
	}
}

// enter takes this process into a control group.
func enter(group string) {
	if err := os.WriteFile(group+"/cgroup.procs", []byte(strconv.Itoa(os.Getpid())), 0); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// tellsOne is a part of a program around the agent.
type tellsOne struct{}

func (tellsOne) Features() []model.Feature { return nil }
func (tellsOne) Drops() []model.Drop       { return []model.Drop{{Name: "test/one", Count: 7}} }

// A container that lives 200 ms is in a snapshot with all that it used, and in one more at most
// after its end.
func TestShortContainerOnThisHost(t *testing.T) {
	var mu sync.Mutex
	var seen []*model.Snapshot
	var consumed time.Time // of the last: its numbers were read before
	// since is the first reading in which each control group has an owner. One that is found later brings what it
	// counted before.
	since := -1
	var host *Host
	var err error
	host, err = Open(HostOptions{Reporters: []Reporter{tellsOne{}},
		Options: Options{whenRead: func(s *model.Snapshot) {
			mu.Lock()
			defer mu.Unlock()
			seen, consumed = append(seen, s), time.Now()
			if since < 0 && len(host.groups.unsure) == 0 {
				since = len(seen) - 1
			}
		}}})
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- host.Run(ctx) }()
	snapshots := func(more int) {
		mu.Lock()
		want := len(seen) + more
		mu.Unlock()
		for deadline := time.Now().Add(testPatience); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
			mu.Lock()
			n := len(seen)
			mu.Unlock()
			if n >= want {
				return
			}
		}
		t.Fatalf("no %d snapshots after %v", more, testPatience)
	}
	for began := time.Now(); ; {
		snapshots(1)
		mu.Lock()
		readings, all := len(seen), since >= 0
		mu.Unlock()
		if all {
			break
		} else if time.Since(began) > testPatience {
			t.Fatalf("in each of %d readings some control group had no owner", readings)
		}
	}

	id := randomID()
	group := filepath.Join(host.Layout.MountPoint, "docker", id)
	if err := os.MkdirAll(group, 0o755); err != nil {
		t.Fatal(err)
	}
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), spinVariable+"="+group)
	output, err := command.CombinedOutput()
	if removed := os.Remove(group); removed != nil {
		t.Errorf("removing the group: %v", removed)
	}
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	total := command.ProcessState.UserTime() + command.ProcessState.SystemTime()
	snapshots(3)
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}

	told := make(map[string]model.Drop)
	for _, d := range seen[0].Self.Drops {
		told[d.Name] = d
	}
	if d := told["container/open-files"]; d.Capacity == 0 || told["test/one"].Count != 7 {
		t.Errorf("the bounds in a snapshot are %+v, want those of open files and of the reporter given", told)
	}

	var last *model.ContainerSample
	ended := 0
	for _, s := range seen {
		for i := range s.Containers {
			c := &s.Containers[i]
			if c.Container.ID != id {
				continue
			}
			if last != nil && c.CPU.UsageNS < last.CPU.UsageNS {
				t.Errorf("CPU time went from %d to %d ns", last.CPU.UsageNS, c.CPU.UsageNS)
			}
			last = c
			t.Logf("at %s: %d ns used, ended %v", s.Time.Format("05.000"), c.CPU.UsageNS, c.Container.Ended.Format("05.000"))
			if !c.Container.Ended.IsZero() {
				ended++
			}
		}
	}
	if last == nil {
		t.Fatalf("container %s is in none of %d snapshots", id, len(seen))
	}
	if ended != 1 || last.Container.Ended.IsZero() {
		t.Errorf("it is in %d snapshots with its end, want the last one alone", ended)
	}
	// How exact the kernel's numbers are is the business of its own tests; here none may be lost
	// or be counted twice on the way.
	if used := time.Duration(last.CPU.UsageNS); used < spinTime*9/10 || used > total*11/10 {
		t.Errorf("it used %v, want about %v, which it worked in the group, and no more than %v, its process's whole time",
			used, spinTime, total)
	}
	if last.Processes.Exits != 1 {
		t.Errorf("%d processes ended in it, want 1", last.Processes.Exits)
	}

	// The parts add up to the whole.
	first, end := seen[since], seen[len(seen)-1]
	var used uint64
	began := make(map[string]uint64)
	for _, c := range first.Containers {
		used -= c.CPU.UsageNS
		began[c.Container.ID] = c.CPU.UsageNS
	}
	for _, c := range end.Containers {
		used += c.CPU.UsageNS
		t.Logf("%v of %v by %s", time.Duration(c.CPU.UsageNS-began[c.Container.ID]), time.Duration(c.CPU.UsageNS),
			c.Container.Name)
	}
	used += last.CPU.UsageNS // no longer in the last snapshot
	used += end.Self.IdleNS - first.Self.IdleNS + end.Self.OtherNS - first.Self.OtherNS
	t.Logf("in %v on %d CPUs: %v idle, %v by others, %v stolen", consumed.Sub(first.Time), host.Machine.Cores,
		time.Duration(end.Self.IdleNS-first.Self.IdleNS), time.Duration(end.Self.OtherNS-first.Self.OtherNS),
		time.Duration(end.Self.StealNS-first.Self.StealNS))
	share := float64(used) / float64(consumed.Sub(first.Time)) / float64(host.Machine.Cores)
	t.Logf("%.2f %% of the CPU time is accounted for", 100*share)
	// Containers of others may have ended meanwhile: their share is missing. Half a percent is for the clocks.
	if share > 1.005 {
		t.Errorf("%.1f %% of the CPU time is accounted for, want at most all", 100*share)
	}
}

// A kernel that takes no program leaves what is in files.
func TestWithoutKernelPrograms(t *testing.T) {
	var newest atomic.Pointer[model.Snapshot]
	host, err := Open(HostOptions{Kernel: kernel.Options{KernelTypes: filepath.Join(t.TempDir(), "none")},
		Options: Options{whenRead: newest.Store}})
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	group := filepath.Join(host.Layout.MountPoint, "docker", randomID())
	if err := os.MkdirAll(group, 0o755); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(group)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- host.Run(ctx) }()
	var found *model.ContainerSample
	for deadline := time.Now().Add(testPatience); found == nil &&
		time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if s := newest.Load(); s != nil {
			ours := func(c model.ContainerSample) bool { return c.Container.ID == filepath.Base(group) }
			if i := slices.IndexFunc(s.Containers, ours); i >= 0 {
				found = &s.Containers[i]
			}
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if found == nil || found.Memory == nil || found.CPU != nil {
		t.Errorf("got %+v of a container, want memory and no CPU time", found)
	}
	if host.CountersError() == nil {
		t.Error("the kernel's counters are said to have been read")
	}
	absent := 0
	for _, f := range host.Features() {
		if f.Required && f.State != model.FeatureWorks && f.Reason != "" && f.Remedy != "" {
			absent++
		}
	}
	if absent == 0 {
		t.Errorf("no required feature is absent: %+v", host.Features())
	}
}

func randomID() string {
	var random [32]byte
	rand.Read(random[:])
	return hex.EncodeToString(random[:])
}

// TestDisksOfAContainerOnThisHost has processes of a container, which hardly anybody sees alive, read a file past the
// page cache, and synchronise one. It is read twice, and has to be seen once: a hypervisor's agent may keep programs
// from running.
func TestDisksOfAContainerOnThisHost(t *testing.T) {
	dir := t.TempDir()
	const bytes = 1 << 20
	if err := os.WriteFile(filepath.Join(dir, "read"), make([]byte, bytes), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("sync", filepath.Join(dir, "read")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var mu sync.Mutex
	last := map[string]model.ContainerSample{}
	host, err := Open(HostOptions{Options: Options{whenRead: func(s *model.Snapshot) {
		mu.Lock()
		defer mu.Unlock()
		for _, c := range s.Containers {
			last[c.Container.ID] = c
		}
	}}})
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- host.Run(ctx) }()
	defer func() { cancel(); <-done }()

	id := randomID()
	script := ""
	for _, mount := range slices.Compact([]string{host.Layout.MountPoint, host.Layout.BlockMount()}) {
		group := filepath.Join(mount, "docker", id)
		if err := os.MkdirAll(group, 0o755); err != nil {
			t.Fatal(err)
		}
		defer os.Remove(group)
		script += "echo $$ > " + group + "/cgroup.procs; "
	}
	script += `cd "$1"; for time in 1 2; do dd if=read of=/dev/null bs=64k iflag=direct; done; ` +
		`dd if=/dev/zero of=written bs=64k count=4 conv=fsync`
	if out, err := exec.Command("sh", "-ec", script, "sh", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	// A reading that was made meanwhile may have what was synchronised last, and not all that was read before.
	var got model.ContainerSample
	enough := func() bool {
		mu.Lock()
		defer mu.Unlock()
		got = last[id]
		return got.Syncs != nil && got.Files != nil && got.Files.ReadBytes >= 2*bytes+4<<16 &&
			got.Files.WriteBytes >= bytes+4<<16 && slices.ContainsFunc(got.Devices, func(d model.DeviceSample) bool {
			r := d.Counters.Read
			return d.Device.Name != "" && r.Bytes >= bytes && r.Latency != nil && r.Latency.Count+r.Untimed == r.Operations
		})
	}
	for deadline := time.Now().Add(testPatience); !enough(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("devices %+v, synchronised %+v, files %+v", got.Devices, got.Syncs, got.Files)
		}
	}
	if got.Syncs.FSync.Operations != 1 {
		t.Errorf("synchronised %+v, want one", got.Syncs)
	}
}
