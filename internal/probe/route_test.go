package probe

import (
	"bufio"
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"outsight/internal/control"
	"outsight/internal/stamp"
)

const (
	routeKey = "0123456789abcdef"
	// routeChild is the environment of the process that measures: the reflector's address.
	routeChild = "OUTSIGHT_TEST_ROUTE_TO"
)

// TestRoute has a session whose packets are sent by other routers while it runs: by another one as far away, by more of
// them, by one that is silent, and by none.
func TestRoute(t *testing.T) {
	if to := os.Getenv(routeChild); to != "" {
		tellRoutes(t, netip.MustParseAddrPort(to))
		return
	}
	t.Parallel()
	for _, family := range []struct {
		ip, a, b string
		// left and right are the addresses between a and a router, and between the router and b, up to the router's number.
		left, right string
		mask        int
	}{
		{"ip", "198.18.0.1", "198.18.0.2", "192.0.2.1%d", "192.0.2.2%d", 31},
		{"ip -6", "2001:db8::1", "2001:db8::2", "2001:db8:1::1%d", "2001:db8:1::2%d", 127},
	} {
		t.Run(family.ip, func(t *testing.T) {
			t.Parallel()
			a, b := newSpace(t, "a"), newSpace(t, "b", family.b)
			first, second := newSpace(t, "first"), newSpace(t, "second")
			on := func(s *space, format string, args ...any) {
				t.Helper()
				s.run(t, family.ip+" "+fmt.Sprintf(format, args...))
			}
			set := func(s *space, setting string) {
				t.Helper()
				s.run(t, "sysctl -qw "+setting)
			}
			// Routers send as many errors as are due, from where the packet came, and drop nothing that comes from elsewhere than
			// they would send to.
			for _, s := range []*space{a, b, first, second} {
				set(s, "net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 net.ipv4.conf.all.rp_filter=0 "+
					"net.ipv4.conf.default.rp_filter=0 net.ipv4.icmp_ratelimit=0 net.ipv4.icmp_msgs_per_sec=10000 "+
					"net.ipv6.icmp.ratelimit=0 net.ipv4.icmp_errors_use_inbound_ifaddr=1")
			}
			for s, address := range map[*space]string{a: family.a, b: family.b} {
				bits := netip.MustParseAddr(address).BitLen()
				on(s, "addr add %s/%d dev lo", address, bits)
			}
			at := func(format string, n int) string { return fmt.Sprintf(format, n) }
			link := func(x, y *space, name, format string, n int) {
				t.Helper()
				join(t, x, y, name+"x", name+"y", []string{fmt.Sprintf("%s/%d", at(format, n), family.mask)},
					[]string{fmt.Sprintf("%s/%d", at(format, n+1), family.mask)})
			}
			link(a, first, "l1", family.left, 0)
			link(a, second, "l2", family.left, 2)
			link(b, first, "r1", family.right, 0)
			link(b, second, "r2", family.right, 2)
			link(first, second, "m", family.right, 4)
			link(a, b, "direct", family.right, 6)
			on(b, "route add %s via %s", family.a, at(family.right, 1))
			on(first, "route add %s via %s", family.a, at(family.left, 0))
			on(first, "route add %s via %s", family.b, at(family.right, 0))
			on(second, "route add %s via %s", family.a, at(family.left, 2))
			on(second, "route add %s via %s", family.b, at(family.right, 2))
			on(a, "route add %s via %s src %s", family.b, at(family.left, 1), family.a)

			told := startRoutes(t, a, b)
			firstRouter, secondRouter := at(family.left, 1), at(family.left, 3)
			told.want(t, firstRouter, 0)
			// As far away: that is seen when the route is looked for again.
			on(a, "route replace %s via %s src %s", family.b, secondRouter, family.a)
			told.want(t, secondRouter, 1)
			// One router more.
			on(second, "route replace %s via %s", family.b, at(family.right, 4))
			told.want(t, secondRouter+" "+at(family.right, 4), 2)
			// A router that does not answer is one that answered before.
			set(second, "net.ipv4.icmp_ratelimit=1000000 net.ipv4.icmp_ratemask=6168")
			second.run(t, "iptables -A OUTPUT -p icmp -j DROP")
			second.run(t, "ip6tables -A OUTPUT -p ipv6-icmp --icmpv6-type time-exceeded -j DROP")
			told.stays(t, secondRouter+" "+at(family.right, 4), 2)
			on(a, "route replace %s via %s src %s", family.b, at(family.right, 7), family.a)
			told.want(t, "direct", 3)
			on(a, "route replace %s via %s src %s", family.b, secondRouter, family.a)
			told.want(t, "* "+at(family.right, 4), 4)
		})
	}
}

// TestRouterAnswers: a router is known by its answer to one packet, and one that does not answer is the zero Addr.
func TestRouterAnswers(t *testing.T) {
	t.Parallel()
	a, router, b := routed(t)
	for i, want := range []string{"192.0.2.1", "2001:db8:1::1"} {
		to := netip.AddrPortFrom(b.Addresses[i], 862)
		any := netip.IPv4Unspecified()
		if to.Addr().Is6() {
			any = netip.IPv6Unspecified()
		}
		conn, err := a.listenUDP(netip.AddrPortFrom(any, 0))
		if err != nil {
			t.Fatal(err)
		}
		f, err := newRouteFinder(conn, to)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if got, err := f.ask(t.Context(), 1); err != nil || got.String() != want {
			t.Errorf("the router is %v, %v, want %s", got, err, want)
		}
		router.run(t, "iptables -A OUTPUT -p icmp -j DROP")
		router.run(t, "ip6tables -A OUTPUT -p ipv6-icmp --icmpv6-type time-exceeded -j DROP")
		if got, err := f.ask(t.Context(), 1); err != nil || got.IsValid() {
			t.Errorf("a silent router is %v, %v", got, err)
		}
		router.run(t, "iptables -F OUTPUT")
		router.run(t, "ip6tables -F OUTPUT")
	}
}

// routes are what the process that measures tells.
type routes struct {
	mu    sync.Mutex
	lines []string
}

// startRoutes starts a reflector at b, and a process at a that measures it.
func startRoutes(t *testing.T, a, b *space) *routes {
	t.Helper()
	conn, err := b.listenUDP(netip.AddrPortFrom(b.Addresses[0], 862))
	if err != nil {
		t.Fatal(err)
	}
	reflector, err := stamp.NewReflector(conn, stamp.ReflectorOptions{
		Peer: func(netip.Addr, uint16) (stamp.Key, bool) { return stamp.Key(routeKey), true }, Clock: stamp.KernelClock})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = reflector.Run(ctx) })
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(ctx, "nsenter", "-t", fmt.Sprint(a.pid), "-n", self, "-test.run", "^TestRoute$", "-test.v")
	c.Env = append(os.Environ(), routeChild+"="+netip.AddrPortFrom(b.Addresses[0], 862).String())
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.Stderr = os.Stderr
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	told := &routes{}
	running.Go(func() {
		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			told.mu.Lock()
			told.lines = append(told.lines, scanner.Text())
			told.mu.Unlock()
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
		_ = c.Wait()
		if t.Failed() {
			t.Log(strings.Join(told.lines, "\n"))
		}
	})
	return told
}

// since are the lines after the first n.
func (r *routes) since(n int) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lines[n:]
}

// want waits for a route that is the given one, after so many changes.
func (r *routes) want(t *testing.T, route string, changes int) {
	t.Helper()
	want := fmt.Sprintf("route %s changes %d", route, changes)
	for began := time.Now(); time.Since(began) < 60*time.Second; time.Sleep(50 * time.Millisecond) {
		if all := r.since(0); len(all) > 0 && all[len(all)-1] == want {
			return
		}
	}
	t.Fatalf("still not: %s", want)
}

// stays wants the route as it is in all that is told in the next looks.
func (r *routes) stays(t *testing.T, route string, changes int) {
	t.Helper()
	before := len(r.since(0))
	for len(r.since(before)) < 40 {
		time.Sleep(50 * time.Millisecond)
	}
	want := fmt.Sprintf("route %s changes %d", route, changes)
	for _, line := range r.since(before) {
		if line != want {
			t.Fatalf("told is %s, want %s", line, want)
		}
	}
}

// tellRoutes measures, and prints the route again and again, until it is killed.
func tellRoutes(t *testing.T, to netip.AddrPort) {
	state := control.State{Sessions: []control.Session{{Peer: "b", Reflector: to, Key: stamp.Key(routeKey),
		IntervalSeconds: 0.1}}}
	s, err := OpenSessions(SessionOptions{Listen: "[::]:0", Static: state, RouteInterval: 500 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = s.Run(context.Background(), nil) }()
	for {
		time.Sleep(100 * time.Millisecond)
		if all := s.Sample().Sessions; len(all) == 1 && all[0].Route != nil {
			fmt.Printf("route %v changes %d\n", all[0].Route, all[0].RouteChanges)
		}
	}
}
