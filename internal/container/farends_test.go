package container

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"outsight/internal/model"
)

// TestFarEnds: interfaces with their other ends in this namespace are read when these have counted something, in the next
// reading, and only then. An interface without one has its turns.
func TestFarEnds(t *testing.T) {
	l := hostLayout(t)
	path := "/osct-far/" + testID(6)
	id := makeGroup(t, l, path)
	pid, netns := enterOwnNetwork(t, l, path, "/bin/sh", "-ec", "exec sleep 600")
	run := func(command string, arguments ...any) {
		t.Helper()
		command = fmt.Sprintf(command, arguments...)
		if out, err := exec.Command("/bin/bash", "-ec", command).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", command, err, out)
		}
	}
	run(`ip link add osctfar type veth peer name eth0 netns %[1]d
echo 1 > /proc/sys/net/ipv6/conf/osctfar/disable_ipv6
ip link set osctfar up
nsenter --net=/proc/%[1]d/ns/net bash -ec "echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6
ip addr add 10.99.6.1/24 dev eth0; ip link set eth0 up
ip neigh add 10.99.6.2 lladdr 02:00:00:00:00:02 dev eth0"`, pid)
	t.Cleanup(func() { exec.Command("ip", "link", "delete", "osctfar").Run() })
	f := NewFiles(l, Options{})
	defer f.Close()
	containers := []*model.Container{{ID: testID(6), CgroupPath: path, Cgroup: id, PID: pid, NetNS: netns}}
	usages := make([]Usage, 1)
	read := func() model.NetworkCounters {
		t.Helper()
		f.Read(containers, usages)
		if usages[0].Network == nil {
			t.Fatalf("no network: %v", usages[0].Err)
		}
		return *usages[0].Network
	}
	inFile := func() model.NetworkCounters {
		t.Helper()
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/dev", pid))
		if err != nil {
			t.Fatal(err)
		}
		n, _, err := parseNetDev(text)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	eventually(t, func() error {
		read()
		if n := f.networks[netns]; !n.farEnds {
			return fmt.Errorf("the other end is not found: %+v, of it %+v", n, f.ends.Of(n.number))
		}
		return nil
	})
	quiet := func() bool {
		n := f.networks[netns]
		return n.isQuiet(f, netns)
	}
	turnOfItsOwn := func() bool { return (f.turn+uint64(netns))%stackEvery == 0 }
	read()
	for i := range 3 * stackEvery {
		if i%3 == 0 {
			run(`nsenter --net=/proc/%d/ns/net bash -c "echo -n 0123456789 > /dev/udp/10.99.6.2/9"`, pid)
		}
		if n := read(); n != inFile() {
			t.Fatalf("%+v, the file says %+v", n, inFile())
		}
		if i%3 == 2 && !turnOfItsOwn() && !quiet() {
			t.Fatalf("interfaces are read that have stood still: %+v, their other ends %+v", f.networks[netns],
				f.ends.Of(f.networks[netns].number))
		}
	}
	run(`nsenter --net=/proc/%d/ns/net bash -c "ip link add one type veth peer name other"`, pid)
	for range stackEvery + 1 {
		read()
	}
	if f.networks[netns].farEnds {
		t.Error("the namespace has interfaces without other ends, and they are not looked at")
	}
}
