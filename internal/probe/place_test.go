package probe

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	if os.Getuid() != 0 {
		fmt.Fprintln(os.Stderr, "network namespaces are made for real: run the tests as root")
		os.Exit(1)
	}
	// Tests have network namespaces of their own, and wait for packets most of the time: on two processors, too, all of them
	// run beside each other that say so.
	flag.Parse()
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// space is a process in a network namespace of its own.
type space struct {
	*Place
	pid int
}

// newSpace starts one for the test.
func newSpace(t testing.TB, name string, addresses ...string) *space {
	t.Helper()
	c := exec.Command("sleep", "600")
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.PidfdOpen(c.Process.Pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	s := &space{At(name, os.NewFile(uintptr(fd), "pidfd")), c.Process.Pid}
	for _, a := range addresses {
		s.Addresses = append(s.Addresses, netip.MustParseAddr(a))
	}
	t.Cleanup(func() { s.kill(); _ = c.Wait(); s.Close() })
	s.run(t, "ip link set lo up")
	return s
}

func (s *space) kill() { _ = syscall.Kill(s.pid, syscall.SIGKILL) }

// run runs a command in the namespace.
func (s *space) run(t testing.TB, command string) {
	t.Helper()
	arguments := append([]string{"-t", fmt.Sprint(s.pid), "-n"}, strings.Fields(command)...)
	if out, err := exec.Command("nsenter", arguments...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", command, err, out)
	}
}

// join puts a pair of interfaces between two namespaces.
func join(t testing.TB, a, b *space, nameA, nameB string, addressesA, addressesB []string) {
	t.Helper()
	a.run(t, fmt.Sprintf("ip link add %s type veth peer name %s netns %d", nameA, nameB, b.pid))
	for _, end := range []struct {
		*space
		name      string
		addresses []string
	}{{a, nameA, addressesA}, {b, nameB, addressesB}} {
		for _, address := range end.addresses {
			flags := ""
			if strings.Contains(address, ":") {
				flags = " nodad"
			}
			end.run(t, "ip addr add "+address+" dev "+end.name+flags)
		}
		end.run(t, "ip link set "+end.name+" up")
	}
}

// routed are three namespaces in a row.
func routed(t testing.TB) (a, router, b *space) {
	t.Helper()
	a = newSpace(t, "a", "192.0.2.2", "2001:db8:1::2")
	router = newSpace(t, "router")
	b = newSpace(t, "b", "198.51.100.2", "2001:db8:2::2")
	join(t, a, router, "eth0", "left", []string{"192.0.2.2/24", "2001:db8:1::2/64"}, []string{"192.0.2.1/24", "2001:db8:1::1/64"})
	join(t, b, router, "eth0", "right", []string{"198.51.100.2/24", "2001:db8:2::2/64"},
		[]string{"198.51.100.1/24", "2001:db8:2::1/64"})
	router.run(t, "sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1")
	a.run(t, "ip route add default via 192.0.2.1")
	a.run(t, "ip -6 route add default via 2001:db8:1::1")
	b.run(t, "ip route add default via 198.51.100.1")
	b.run(t, "ip -6 route add default via 2001:db8:2::1")
	// The first packets over new interfaces may wait a second for a neighbour's address.
	for _, to := range b.Addresses {
		for reached := false; !reached; {
			path, err := traced(a.Place, Address(to), "icmp")
			if err != nil {
				t.Fatal(err)
			}
			reached = path.Reached
		}
	}
	return a, router, b
}

// TestSocketsOfVanishingPlaces makes sockets in namespaces whose processes end meanwhile: each is made there, or the error
// is ErrEnded; all threads come back, and no descriptor stays.
func TestSocketsOfVanishingPlaces(t *testing.T) {
	files := func() int {
		all, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	own, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	before := 0
	made, ended := 0, 0
	for round := range 50 {
		c := exec.Command("sleep", "600")
		c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		fd, err := unix.PidfdOpen(c.Process.Pid, unix.PIDFD_NONBLOCK)
		if err != nil {
			t.Fatal(err)
		}
		p := At("vanishing", os.NewFile(uintptr(fd), "pidfd"))
		var making sync.WaitGroup
		var mu sync.Mutex
		for range 8 {
			making.Go(func() {
				for range 5 {
					s, err := p.listenUDP(netip.MustParseAddrPort("127.0.0.1:0"))
					mu.Lock()
					switch {
					case err == nil:
						made++
						s.Close()
					case errors.Is(err, ErrEnded):
						ended++
					default:
						t.Error(err)
					}
					mu.Unlock()
				}
			})
		}
		if round%2 == 1 {
			time.Sleep(time.Duration(round) * 10 * time.Microsecond)
		}
		_ = c.Process.Kill()
		_ = c.Wait()
		making.Wait()
		if _, err := p.listenUDP(netip.MustParseAddrPort("127.0.0.1:0")); !errors.Is(err, ErrEnded) || !p.hasEnded() {
			t.Fatalf("after its end: %v", err)
		}
		p.Close()
		if round == 0 {
			before = files()
		}
	}
	if made+ended != 50*40 || ended == 0 {
		t.Errorf("%d made, %d ended, want 2000 in all and some ended", made, ended)
	}
	if after := files(); after > before {
		t.Errorf("%d descriptors, %d before", after, before)
	}
	tasks, err := filepath.Glob("/proc/self/task/*/ns/net")
	if err != nil || len(tasks) == 0 {
		t.Fatal(err)
	}
	for _, task := range tasks {
		if at, err := os.Readlink(task); err == nil && at != own {
			t.Errorf("a thread stayed in %s", at)
		}
	}
}

// TestEndOfAPlace: a measurement whose container ends says so, whichever end it is.
func TestEndOfAPlace(t *testing.T) {
	t.Parallel()
	for _, which := range []string{"a", "b"} {
		a, _, b := routed(t)
		began := make(chan struct{})
		once := sync.OnceFunc(func() { close(began) })
		go func() {
			<-began
			if which == "a" {
				a.kill()
			} else {
				b.kill()
			}
		}()
		_, err := Measure(context.Background(), a.Place, b.Place, Options{Duration: time.Minute,
			Progress: func(Progress) { once() }})
		if !errors.Is(err, ErrEnded) || !strings.HasPrefix(fmt.Sprint(err), which+":") {
			t.Errorf("the end of %s: %v", which, err)
		}
		if _, err = Measure(context.Background(), a.Place, b.Place, Options{}); !errors.Is(err, ErrEnded) {
			t.Errorf("after the end of %s: %v", which, err)
		}
	}
}
