package forward

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os/exec"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"outsight/internal/kernel/kerneltest"
	"outsight/internal/model"
)

func open(t *testing.T, o Options) *Forward {
	t.Helper()
	p := New(o)
	kerneltest.Open(t, p)
	return p
}

// exchange sends datagrams one after another, each after the one before has arrived, and tells how long each took from
// before it was sent until after it was received.
func exchange(t *testing.T, client, server *net.UDPConn, datagrams, size int) (most []time.Duration) {
	t.Helper()
	data := make([]byte, size)
	server.SetReadDeadline(time.Now().Add(kerneltest.Patience()))
	for i := range datagrams {
		binary.BigEndian.PutUint64(data, uint64(i))
		begin := time.Now()
		if _, err := client.Write(data); err != nil {
			t.Fatal(err)
		}
		if _, _, err := server.ReadFromUDP(data); err != nil {
			t.Fatalf("datagram %d: %v", i, err)
		}
		most = append(most, time.Since(begin))
	}
	return most
}

// talk sends requests over a connection, each after the answer to the one before.
func talk(t *testing.T, client, server net.Conn, requests, size int) {
	t.Helper()
	go io.Copy(server, server)
	client.SetDeadline(time.Now().Add(kerneltest.Patience()))
	data := make([]byte, size)
	for i := range requests {
		if _, err := client.Write(data); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(client, data); err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
	}
}

func median(of []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(of))
	return sorted[len(sorted)/2]
}

func measuredMedian(of model.KernelForward) time.Duration {
	return time.Duration(of.Took.Quantile(0.5) * float64(time.Second))
}

// Each datagram and each segment with data is timed once, in both directions, also where addresses are translated.
func TestEachForwardedPacketIsTimed(t *testing.T) {
	const packets = 1000
	for _, c := range []struct {
		name, address string
		translated    bool
	}{
		{"IPv4", "10.215.2.1", false},
		{"IPv4 translated", "10.215.2.1", true},
		{"IPv6", "fd15:2::1", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := open(t, Options{})
			r := newRouter(t)
			if c.translated {
				r.within("router", func() {
					r.command("iptables", "-t", "nat", "-A", "POSTROUTING", "-o", "r1", "-j", "MASQUERADE")
				})
			}
			r.followed(p)
			client, server := r.udpPair(net.JoinHostPort(c.address, "7001"))
			exchange(t, client, server, packets, 100)
			if got := r.counted(p); got.Took.Count != packets || got.Unmatched != 0 {
				t.Errorf("%d of %d datagrams were timed, %d not", got.Took.Count, packets, got.Unmatched)
			}
			there, back := r.tcpPair(c.address)
			talk(t, there, back, packets/2, 100)
			if got := r.counted(p); got.Took.Count != 2*packets || got.Unmatched != 0 {
				t.Errorf("%d of %d packets were timed, %d not", got.Took.Count, 2*packets, got.Unmatched)
			} else {
				t.Logf("p50 %v", measuredMedian(got))
			}
			if stamped := p.stamped(r.of.NetNS); stamped != 2*packets {
				t.Errorf("%d packets were noted, want %d", stamped, 2*packets)
			}
		})
	}
}

// What is handed on whole, or is put together on the way, is timed by its first part: each that was noted has left.
func TestLargeSegmentsAreTimed(t *testing.T) {
	p := open(t, Options{})
	r := newRouter(t)
	r.followed(p)
	client, server := r.tcpPair("10.215.2.1")
	const total = 8 << 20
	go client.Write(make([]byte, total))
	if n, err := io.CopyN(io.Discard, server, total); err != nil {
		t.Fatalf("%d bytes: %v", n, err)
	}
	got, stamped := r.counted(p), p.stamped(r.of.NetNS)
	if stamped == 0 || got.Took.Count != stamped || got.Unmatched != 0 {
		t.Errorf("%d of %d packets were timed, %d not", got.Took.Count, stamped, got.Unmatched)
	}
	t.Logf("%d packets, p50 %v", stamped, measuredMedian(got))
}

// A program in the container takes its time, and packets wait for it: what is measured is what the kernel's own stamps at
// both interfaces say, to 5 % of what the program adds. It is at least what the program's log says, and at most what it
// took from one end to the other.
func TestTimeOfAProgramThatForwards(t *testing.T) {
	const packets, size = 300, 100
	for _, delay := range []time.Duration{0, 300 * time.Microsecond, 3 * time.Millisecond} {
		t.Run(delay.String(), func(t *testing.T) {
			p := open(t, Options{})
			r := newRouter(t)
			w := r.newWire(delay, size)
			in, out := r.newTap("r0"), r.newTap("r1")
			client, server := r.udpPair("10.215.2.1:7001")
			kerneltest.Eventually(t, "the kernel stamps packets where they come in, since there are taps", func() bool {
				most := exchange(t, client, server, 1, size)
				took := timesOf(t, out, unix.PACKET_OUTGOING, size)[0].Sub(timesOf(t, in, unix.PACKET_HOST, size)[0])
				return took > 0 && took < most[0]
			})
			w.mu.Lock()
			w.least = nil
			w.mu.Unlock()
			r.followed(p)
			most := exchange(t, client, server, packets, size)
			got := r.counted(p)
			if got.Took.Count != packets || got.Unmatched != 0 {
				t.Fatalf("%d of %d datagrams were timed, %d not", got.Took.Count, packets, got.Unmatched)
			}
			came, went := timesOf(t, in, unix.PACKET_HOST, size), timesOf(t, out, unix.PACKET_OUTGOING, size)
			w.mu.Lock()
			defer w.mu.Unlock()
			if len(w.least) != packets || len(came) != packets || len(went) != packets {
				t.Fatalf("%d packets came, the program passed %d on, and %d went, want %d", len(came), len(w.least), len(went),
					packets)
			}
			var least, whole time.Duration
			var took []time.Duration
			for i := range packets {
				least += w.least[i]
				whole += most[i]
				took = append(took, went[uint64(i)].Sub(came[uint64(i)]))
			}
			if sum := time.Duration(got.Took.SumNS); sum < least || sum > whole {
				t.Errorf("%v was measured, want from %v to %v", sum, least, whole)
			}
			measured, want := measuredMedian(got), median(took)
			if delay > 0 && (measured-want).Abs() > want/20 {
				t.Errorf("p50 is %v, want %v", measured, want)
			}
			t.Logf("p50: measured %v, by the kernel's stamps %v, in the program %v, from end to end %v", measured, want,
				median(w.least), median(most))
		})
	}
}

// Connections through a program too: each segment with data is timed once.
func TestConnectionsThroughAProgram(t *testing.T) {
	p := open(t, Options{})
	r := newRouter(t)
	r.newWire(300*time.Microsecond, 100)
	r.followed(p)
	client, server := r.tcpPair("10.215.2.1")
	talk(t, client, server, 200, 100)
	if got := r.counted(p); got.Took.Count != 400 || got.Unmatched != 0 {
		t.Errorf("%d of 400 segments were timed, %d not", got.Took.Count, got.Unmatched)
	}
}

// What the router drops, or takes for itself, is noted, and is in no histogram; what it answers is not what was asked.
func TestWhatIsNotForwardedIsNotTimed(t *testing.T) {
	p := open(t, Options{})
	r := newRouter(t)
	r.within("router", func() {
		r.command("iptables", "-A", "FORWARD", "-p", "udp", "--dport", "7009", "-j", "DROP")
	})
	r.followed(p)
	dropped, _ := r.udpPair("10.215.2.1:7009")
	for i := range 100 {
		if _, err := dropped.Write(fmt.Appendf(nil, "number %d", i)); err != nil {
			t.Fatal(err)
		}
	}
	var echo *net.UDPConn
	var err error
	r.within("router", func() { echo, err = net.ListenUDP("udp", &net.UDPAddr{Port: 7010}) })
	if err != nil {
		t.Fatal(err)
	}
	defer echo.Close()
	var asking *net.UDPConn
	r.within("client", func() {
		asking, err = net.DialUDP("udp", nil, &net.UDPAddr{IP: net.IPv4(10, 215, 1, 2), Port: 7010})
	})
	if err != nil {
		t.Fatal(err)
	}
	defer asking.Close()
	data := make([]byte, 100)
	for i := range 100 {
		binary.BigEndian.PutUint64(data, uint64(i))
		if _, err := asking.Write(data); err != nil {
			t.Fatal(err)
		}
		n, from, err := echo.ReadFromUDP(data)
		if err == nil {
			_, err = echo.WriteToUDP(data[:n], from)
		}
		if err == nil {
			_, err = asking.Read(data)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if got := r.counted(p); got.Took.Count != 0 {
		t.Errorf("%d packets were timed", got.Took.Count)
	}
	if stamped := p.stamped(r.of.NetNS); stamped != 200 {
		t.Errorf("%d packets were noted, want 200", stamped)
	}
}

// An interface that comes later gets programs, one that goes loses them; nothing is attached where nothing is forwarded.
func TestInterfacesComeAndGo(t *testing.T) {
	p := open(t, Options{})
	r := newRouter(t)
	if p.wake != nil {
		t.Error("something runs although nobody forwards")
	}
	r.followed(p)
	scan := func() {
		p.reconciling.Lock()
		p.namespaces[r.of.NetNS].scanned = time.Time{}
		p.reconciling.Unlock()
		p.FollowForwarding([]model.ForwardingNamespace{r.of})
	}
	r.within("router", func() {
		r.command("ip", "link", "add", "r2", "type", "veth", "peer", "name", "e2", "netns", r.prefix+"client")
		r.command("ip", "link", "add", "inside", "type", "veth", "peer", "name", "inside2") // no edge
		r.command("ip", "link", "add", "bridge", "type", "bridge")
	})
	scan()
	kerneltest.Eventually(t, "the third interface has programs", func() bool { return p.interfaces(r.of.NetNS) == 3 })
	r.within("router", func() { r.command("ip", "link", "del", "r2") })
	scan()
	kerneltest.Eventually(t, "it has gone", func() bool { return p.interfaces(r.of.NetNS) == 2 })
	client, server := r.udpPair("10.215.2.1:7001")
	exchange(t, client, server, 10, 100)
	idle := r.of
	idle.Idle = true
	p.FollowForwarding([]model.ForwardingNamespace{idle})
	kerneltest.Eventually(t, "nothing is attached", func() bool { return p.interfaces(r.of.NetNS) == 0 })
	exchange(t, client, server, 10, 100)
	if got := r.counted(p); got.Took.Count != 10 {
		t.Errorf("%d datagrams were timed, want the 10 of before", got.Took.Count)
	}
	r.followed(p)
	exchange(t, client, server, 10, 100)
	if got := r.counted(p); got.Took.Count != 20 {
		t.Errorf("%d datagrams were timed, want 20", got.Took.Count)
	}
	kerneltest.Shed(t, p, "forwarding")
	if n := p.interfaces(r.of.NetNS); n != 0 {
		t.Errorf("%d interfaces have programs of a part that was given up", n)
	}
	kerneltest.Restore(t, p, "forwarding")
	if n := p.interfaces(r.of.NetNS); n != 2 {
		t.Errorf("%d interfaces have programs, want 2", n)
	}
}

// A namespace that vanishes while it is timed leaves nothing, and another with its inode is not taken for it.
func TestNamespaceVanishes(t *testing.T) {
	p := open(t, Options{Max: 1})
	r := newRouter(t)
	r.followed(p)
	before := kerneltest.OpenFiles()
	client, server := r.udpPair("10.215.2.1:7001")
	exchange(t, client, server, 10, 100)
	r.stop()
	for _, name := range []string{"client", "router", "server"} {
		if out, err := exec.Command("ip", "netns", "del", r.prefix+name).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	client.Close()
	server.Close()
	// It is wanted for a while yet.
	p.FollowForwarding([]model.ForwardingNamespace{r.of})
	if err := p.reconcile(); err != nil {
		t.Error(err)
	}
	second := newRouter(t)
	again := second.of
	// As if its inode were that of the first.
	p.mu.Lock()
	n := p.namespaces[r.of.NetNS]
	delete(p.namespaces, r.of.NetNS)
	p.namespaces[again.NetNS] = n
	p.mu.Unlock()
	if err := p.maps.Forwarders.Delete(r.of.NetNS); err != nil {
		t.Fatal(err)
	}
	p.FollowForwarding([]model.ForwardingNamespace{again})
	for _, n := range p.ReadForwarding() {
		if n.Took != nil {
			t.Error("it was taken for another one")
		}
	}
	if err := p.reconcile(); err != nil {
		t.Error(err)
	}
	if n := p.interfaces(again.NetNS); n != 2 {
		t.Errorf("%d interfaces have programs, want 2", n)
	}
	if got := second.counted(p); got.Took.Count != 0 {
		t.Errorf("%d packets of another namespace were counted", got.Took.Count)
	}
	// There is room for one.
	p.FollowForwarding([]model.ForwardingNamespace{again, {NetNS: 1, PID: 1}})
	if err := p.reconcile(); err != nil {
		t.Error(err)
	}
	if d := p.Drops()[0]; d.Count != 1 || d.Used != 1 || d.Capacity != 1 {
		t.Errorf("%+v, want one refused", d)
	}
	p.FollowForwarding(nil)
	if err := p.reconcile(); err != nil {
		t.Error(err)
	}
	if n := len(p.namespaces); n != 0 {
		t.Errorf("%d namespaces are kept", n)
	}
	second.stop()
	if after := kerneltest.OpenFiles(); after > before {
		t.Errorf("%d files are open, %d were", after, before)
	}
}

func TestLevels(t *testing.T) {
	for _, c := range []struct {
		rate float64
		want uint32
	}{{0, 0}, {4000, 0}, {4001, 1}, {8001, 2}, {1e6, 8}, {1e12, maxLevel}} {
		if got := levelOf(c.rate); got != c.want {
			t.Errorf("%v packets a second: level %d, want %d", c.rate, got, c.want)
		}
		if noted := c.rate / float64(uint64(1)<<levelOf(c.rate)); noted > mostTimed && c.rate < 1e9 {
			t.Errorf("%v of %v packets a second are timed", noted, c.rate)
		}
	}
	for _, c := range []struct {
		level uint32
		noted float64
		want  uint32
	}{{0, 100, 0}, {3, 2000, 3}, {3, 500, 2}, {3, 8500, 5}, {0, 1e6, 8}} {
		if got := nextLevel(c.level, c.noted); got != c.want {
			t.Errorf("%v noted at level %d: level %d next, want %d", c.noted, c.level, got, c.want)
		}
	}
}
