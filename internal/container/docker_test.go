package container

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"outsight/internal/model"
)

func TestDockerContainer(t *testing.T) {
	e := hostEngine(t)
	r := runRegistry(t, Options{})
	id := e.start(t, "osct-web", "--label", "tier=web", "--label", "shown=\x1b[2Jgone\x07", "--label",
		"io.kubernetes.container.name=coredns",
		"--label", "io.kubernetes.pod.name=shop-0", "--label", "io.kubernetes.pod.namespace=shop", "--label",
		"io.kubernetes.pod.uid="+uid,
		testImage, "/bin/sleep", "600")
	awaitContainer(t, r, id, isNamed("osct-web"))
	var inspected []struct {
		State struct {
			Pid       int
			StartedAt time.Time
		}
		NetworkSettings struct{ IPAddress string }
	}
	if err := json.Unmarshal([]byte(e.run(t, "inspect", id)), &inspected); err != nil {
		t.Fatal(err)
	}
	want := inspected[0]
	c := awaitContainer(t, r, id, func(c *model.Container) error {
		if c.PID != want.State.Pid || !c.Started.Equal(want.State.StartedAt) {
			return fmt.Errorf("want %+v", want.State)
		}
		if len(c.Addresses) != 1 || c.Addresses[0].String() != want.NetworkSettings.IPAddress {
			return fmt.Errorf("addresses %v, want %v", c.Addresses, want.NetworkSettings.IPAddress)
		}
		return nil
	})
	netns, err := r.proc.netns(c.PID)
	if err != nil || c.NetNS != netns || netns == r.proc.hostNetNS {
		t.Errorf("namespace %d, want %d, %v", c.NetNS, netns, err)
	}
	if c.Image != testImage || c.Runtime != model.Docker || c.Labels["tier"] != "web" || c.CgroupPath != "/docker/"+id {
		t.Errorf("%+v", c)
	}
	// It is in no pod's group, so that its labels make it none.
	if c.PodName != "" || c.PodNamespace != "" || c.PodUID != "" || c.Labels["shown"] != "\ufffd[2Jgone\ufffd" {
		t.Errorf("%+v", c)
	}
	if f := r.Features()[0]; f.State != model.FeatureWorks || f.Reason != "" {
		t.Errorf("%+v", f)
	}
	e.run(t, "rename", "osct-web", "osct-shop")
	awaitContainer(t, r, id, isNamed("osct-shop"))
	if c.Name != "osct-web" {
		t.Error("a container was changed that had been handed out")
	}

	r.Collect()
	e.run(t, "stop", "--time", "0", id)
	eventually(t, func() error {
		if find(r.Containers(), id) != nil {
			return errors.New("it runs")
		}
		return nil
	})
	last := find(r.Collect().Containers, id)
	if last == nil || last.Ended.IsZero() || last.Name != "osct-shop" {
		t.Errorf("its end: %+v", last)
	}
	if again := find(r.Collect().Containers, id); again != nil {
		t.Errorf("it was collected twice: %+v", again)
	}

	e.run(t, "start", id)
	second := awaitContainer(t, r, id, func(c *model.Container) error {
		if c.PID == 0 || c.PID == want.State.Pid || len(c.Addresses) == 0 || !c.Started.After(want.State.StartedAt) {
			return errors.New("not started again")
		}
		return nil
	})
	if second.Name != "osct-shop" || second.Cgroup == last.Cgroup {
		t.Errorf("%+v, before %+v", second, last)
	}
}

// TestDockerHostNetwork is a container without a network namespace of its own.
func TestDockerHostNetwork(t *testing.T) {
	e := hostEngine(t)
	r := runRegistry(t, Options{})
	id := e.start(t, "osct-hostnet", "--network", "host", testImage, "/bin/sleep", "600")
	c := awaitContainer(t, r, id, func(c *model.Container) error {
		if c.NetNS != r.proc.hostNetNS {
			return fmt.Errorf("want namespace %d", r.proc.hostNetNS)
		}
		return nil
	})
	host := r.Host()
	if len(host.Addresses) == 0 || fmt.Sprint(c.Addresses) != fmt.Sprint(host.Addresses) || host.NetNS != c.NetNS {
		t.Errorf("%+v, the host %+v", c, host)
	}
	f := NewFiles(r.layout, Options{})
	defer f.Close()
	if u := readOne(t, f, c); u.Err != nil || u.Network != nil || u.Memory == nil {
		t.Errorf("%+v", u)
	}
}

// TestDockerAlreadyRuns is a container that is older than the Registry.
func TestDockerAlreadyRuns(t *testing.T) {
	e := hostEngine(t)
	id := e.start(t, "osct-old", testImage, "/bin/sleep", "600")
	r := runRegistry(t, Options{})
	awaitContainer(t, r, id, func(c *model.Container) error {
		if c.Name != "osct-old" || c.PID == 0 || len(c.Addresses) != 1 || c.Started.IsZero() {
			return errors.New("not complete")
		}
		return nil
	})
}

// TestDockerNetworkConnected gives a running container another address.
func TestDockerNetworkConnected(t *testing.T) {
	e := hostEngine(t)
	const network = "osct-second"
	e.command("network", "rm", network).Run() // of a test that was killed
	e.run(t, "network", "create", network)
	t.Cleanup(func() { e.command("network", "rm", network).Run() })
	id := e.start(t, "osct-two", testImage, "/bin/sleep", "600")
	t.Cleanup(func() { e.command("network", "disconnect", "--force", network, id).Run() })
	r := runRegistry(t, Options{})
	addresses := func(n int) func(c *model.Container) error {
		return func(c *model.Container) error {
			if len(c.Addresses) != n {
				return fmt.Errorf("want %d addresses", n)
			}
			return nil
		}
	}
	awaitContainer(t, r, id, addresses(1))
	e.run(t, "network", "connect", network, id)
	awaitContainer(t, r, id, addresses(2))
	e.run(t, "network", "disconnect", network, id)
	awaitContainer(t, r, id, addresses(1))
}

// TestDockerUsage compares what is read with what the container is made to do.
func TestDockerUsage(t *testing.T) {
	e := hostEngine(t)
	id := e.start(t, "osct-usage", "--memory", "64m", "--cpus", "0.2", testImage,
		"/bin/sh", "-c", "sleep 600 & sleep 600 & while :; do :; done")
	r := runRegistry(t, Options{})
	c := awaitContainer(t, r, id, func(c *model.Container) error {
		if c.NetNS == 0 || c.PID == 0 {
			return errors.New("not complete")
		}
		return nil
	})
	f := NewFiles(r.layout, Options{})
	defer f.Close()
	var u *Usage
	eventually(t, func() error {
		u = readOne(t, f, c)
		// The kernel adds the time when the throttling ends, later than it counts the period.
		if u.Err != nil || u.Throttle == nil || u.Throttle.ThrottledPeriods == 0 || u.Throttle.ThrottledNS == 0 ||
			*u.Threads != 3 {
			return fmt.Errorf("%+v", u)
		}
		return nil
	})
	if u.Memory.LimitBytes != 64<<20 || u.Memory.UsageBytes == 0 || u.Network == nil {
		t.Errorf("%+v", u)
	}
	if u.Throttle.Periods < u.Throttle.ThrottledPeriods {
		t.Errorf("%+v", *u.Throttle)
	}
	before, err := f.CPUUsage(c)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		after, err := f.CPUUsage(c)
		if err != nil || after <= before {
			return fmt.Errorf("cpu %d, then %d, %v", before, after, err)
		}
		return nil
	})
}

// TestDockerDisk reads and writes 64 blocks past the page cache. A rule that allows everything
// makes kernels since 6.10 count.
func TestDockerDisk(t *testing.T) {
	e := hostEngine(t)
	volume, err := os.MkdirTemp("/var/tmp", "osct-disk-") // /tmp may be memory
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(volume) })
	device := blockDevice(t, volume)
	id := e.start(t, "osct-disk", "--device-read-bps", device+":1tb", "--volume", volume+":/volume", testImage,
		"/bin/sleep", "600")
	r := runRegistry(t, Options{})
	c := awaitContainer(t, r, id, isNamed("osct-disk"))
	f := NewFiles(r.layout, Options{})
	defer f.Close()
	read := func() model.DiskCounters {
		t.Helper()
		u := readOne(t, f, c)
		if u.Err != nil {
			t.Fatal(u.Err)
		}
		if u.Disk == nil {
			return model.DiskCounters{}
		}
		return *u.Disk
	}
	before := read()
	e.run(t, "exec", id, "/bin/dd", "if=/dev/zero", "of=/volume/f", "bs=64k", "count=64", "oflag=direct")
	written := read()
	e.run(t, "exec", id, "/bin/dd", "if=/volume/f", "of=/dev/null", "bs=64k", "count=64", "iflag=direct")
	after := read()
	if n := written.WriteBytes - before.WriteBytes; n != 64*64<<10 {
		t.Errorf("%d bytes written, want %d", n, 64*64<<10)
	}
	if n := after.ReadBytes - written.ReadBytes; n != 64*64<<10 {
		t.Errorf("%d bytes read, want %d", n, 64*64<<10)
	}
	if n := after.Reads - written.Reads; n < 64 {
		t.Errorf("%d reads, want 64 or more", n)
	}
	for _, feature := range f.Features() {
		// Who wrote what is written back later is known with cgroup v2 only.
		works := feature.Name != "cgroup/write-back" || f.sources[diskBytes].v2
		if works != (feature.State == model.FeatureWorks) {
			t.Errorf("%+v", feature)
		}
	}
}

// TestDockerFaults takes Docker away in all ways: containers are known by their ids at once, and
// by their names when it is back.
func TestDockerFaults(t *testing.T) {
	l := hostLayout(t)
	e := newPrivateEngine(t)
	r := runRegistry(t, Options{DockerSocket: e.socket})
	absent := func(reason string) {
		t.Helper()
		eventually(t, func() error {
			if f := r.Features()[0]; f.State != model.FeatureAbsent || !strings.Contains(f.Reason, reason) || f.Remedy == "" {
				return fmt.Errorf("%+v", f)
			}
			return nil
		})
	}
	works := func() {
		t.Helper()
		eventually(t, func() error {
			if f := r.Features()[0]; f.State != model.FeatureWorks {
				return fmt.Errorf("%+v", f)
			}
			return nil
		})
	}
	absent("no socket at " + e.socket)
	e.up(t)
	t.Cleanup(func() { e.down(t) })
	e.image(t)
	works()
	id := e.start(t, "osct-inner", "--network", "none", testImage, "/bin/sleep", "600")
	awaitContainer(t, r, id, isNamed("osct-inner"))

	// Frozen, it takes connections and does not answer.
	if err := e.daemon.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	path := "/docker/" + testID(10)
	makeGroup(t, l, path)
	awaitContainer(t, r, testID(10), isNamed(testID(10)[:12]))
	absent("deadline exceeded")
	if err := e.daemon.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	e.run(t, "rename", "osct-inner", "osct-middle")
	awaitContainer(t, r, id, isNamed("osct-middle"))
	works()

	e.down(t)
	absent("")
	awaitContainer(t, r, id, isNamed("osct-middle")) // what was told is kept
	e.up(t)
	works()
	e.run(t, "rename", "osct-middle", "osct-outer")
	awaitContainer(t, r, id, isNamed("osct-outer"))
	e.run(t, "rm", "--force", id)
}

// TestDockerRefuses is about answers that are none of a Docker's.
func TestDockerRefuses(t *testing.T) {
	check := func(answer, want string) {
		t.Helper()
		socket := filepath.Join(t.TempDir(), "s")
		listener, err := net.Listen("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		go func() {
			for {
				connection, err := listener.Accept()
				if err != nil {
					return
				}
				connection.Read(make([]byte, 4096))
				connection.Write([]byte(answer))
				connection.Close()
			}
		}()
		d := newDocker(socket)
		if _, err := d.list(t.Context(), ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.30q: list: %v, want %q", answer, err, want)
		}
		if err := d.watch(t.Context(), func() error { return nil }, func(dockerMessage) {}); err == nil {
			t.Errorf("%.30q: the stream of events ended without an error", answer)
		}
	}
	check("", "EOF")
	check("garbage\r\n\r\n", "malformed")
	check("HTTP/1.1 500 Internal Server Error\r\nContent-Length: 5\r\n\r\nboom\n", "status 500: boom")
	check("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n[{\"Id\":1}", "decoding")
	check("HTTP/1.1 200 OK\r\n\r\n[{\"Id\":\""+strings.Repeat("x", dockerEvent+1), "decoding")
	check("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", errNoSuchContainer.Error())
}

// TestDockerAnswers reads real answers.
func TestDockerAnswers(t *testing.T) {
	var list []dockerSummary
	if err := json.Unmarshal(testFile(t, "docker/list.json"), &list); err != nil {
		t.Fatal(err)
	}
	if len(list) != 1 || list[0].ID != idA || list[0].Names[0] != "/osct-cap" || list[0].Image != testImage {
		t.Errorf("%+v", list)
	}
	var details dockerDetails
	if err := json.Unmarshal(testFile(t, "docker/inspect.json"), &details); err != nil {
		t.Fatal(err)
	}
	if details.ID != idA || details.Name != "/osct-cap" || details.State.Pid != 7730 ||
		details.Config.Image != testImage ||
		details.State.StartedAt.UTC().Format(time.RFC3339Nano) != "2026-11-21T15:18:34.806882479Z" {
		t.Errorf("%+v", details)
	}
	var got []string
	for line := range bytes.Lines(testFile(t, "docker/events.json")) {
		var m dockerMessage
		if err := json.Unmarshal(line, &m); err != nil {
			t.Fatal(err)
		}
		got = append(got, m.Type+" "+m.Action+" "+m.container()[:4])
	}
	want := "network connect df40,container start df40,container rename df40,network connect df40," +
		"network disconnect df40,network disconnect df40,network disconnect df40"
	if strings.Join(got, ",") != want {
		t.Errorf("%v", got)
	}
}

func TestDockerNames(t *testing.T) {
	r := newRegistry(t, newTree(t).Layout, quiet(t))
	r.HandleEvent(made(5, "/docker/"+idA))
	check := func(s dockerSummary, name string) {
		t.Helper()
		s.ID = idA
		r.describeSummary(s)
		if got := r.Lookup(5).Name; got != name {
			t.Errorf("%+v: name %q, want %q", s, got, name)
		}
	}
	check(dockerSummary{}, idA[:12])
	check(dockerSummary{Names: []string{"/web/alias", "/db"}}, "db")
	// A kubelet's name for the container is in a label, which counts in that pod's group.
	ofKubelet := dockerSummary{Names: []string{"/k8s_cart_cart-0_shop_" + uid + "_0"},
		Labels: map[string]string{labelContainerName: "cart", labelPodUID: uid}}
	check(ofKubelet, "k8s_cart_cart-0_shop_"+uid+"_0")
	r.HandleEvent(made(6, "/kubepods/burstable/pod"+uid+"/"+idB))
	ofKubelet.ID = idB
	r.describeSummary(ofKubelet)
	if got := r.Lookup(6).Name; got != "cart" {
		t.Errorf("in the pod's group: name %q, want cart", got)
	}
	if r.describeSummary(dockerSummary{ID: strings.Repeat("e", 64)}) {
		t.Error("a container without a group is known")
	}
}

func FuzzDockerMessage(f *testing.F) {
	for line := range bytes.Lines(testFile(f, "docker/events.json")) {
		f.Add(line)
	}
	f.Add([]byte(`{"Type":"network"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var m dockerMessage
		if json.Unmarshal(text, &m) == nil {
			m.container()
		}
	})
}

// What ran before is named once Named says so; without Docker, Named does not keep anyone waiting.
func TestNamed(t *testing.T) {
	e := hostEngine(t)
	id := e.start(t, "osct-before", testImage, "/bin/sleep", "600")
	r := runRegistry(t, Options{})
	<-r.Named()
	if c := find(r.Containers(), id); c == nil || c.Name != "osct-before" {
		t.Errorf("got %+v, want it by its name", c)
	}
	<-runRegistry(t, Options{DockerSocket: filepath.Join(t.TempDir(), "none")}).Named()
}
