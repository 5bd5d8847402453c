package net

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"outsight/internal/kernel/kerneltest"
	"outsight/internal/model"
	"outsight/internal/netns"
)

// uplinkedHosts are two hosts: one with a container that is behind a slow way, translates its addresses, and sends by an
// uplink; and another one that is reached there.
//
//	client 10.214.0.1 ── wire ── 10.214.0.2 server up0 10.219.0.1 ── up1 10.219.0.2 peer
func uplinkedHosts(t *testing.T, p *Net) *wire {
	w := newWire(t)
	w.delay = time.Millisecond
	command(t, "ip", "netns", "add", w.prefix+"peer")
	t.Cleanup(func() { exec.Command("ip", "netns", "del", w.prefix+"peer").Run() })
	w.within("client", func() {
		command(t, "ip", "route", "add", "default", "via", "10.214.0.2")
		command(t, "ip", "-6", "route", "add", "default", "via", "fd14::2")
	})
	w.within("server", func() {
		command(t, "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
		command(t, "ip", "link", "add", "up0", "type", "veth", "peer", "name", "up1", "netns", w.prefix+"peer")
		command(t, "ip", "address", "add", "10.219.0.1/24", "dev", "up0")
		command(t, "ip", "address", "add", "fd19::1/64", "dev", "up0", "nodad")
		command(t, "ip", "link", "set", "up0", "up")
		command(t, "iptables", "-t", "nat", "-A", "POSTROUTING", "-p", "tcp", "-o", "up0", "-j", "MASQUERADE",
			"--random")
		command(t, "iptables", "-t", "nat", "-A", "POSTROUTING", "-o", "up0", "-j", "MASQUERADE") // which keeps ports
		useAsUplink(t, p, "up0")
	})
	w.within("peer", func() {
		command(t, "ip", "link", "set", "lo", "up")
		command(t, "ip", "address", "add", "10.219.0.2/24", "dev", "up1")
		command(t, "ip", "address", "add", "fd19::2/64", "dev", "up1", "nodad")
		command(t, "ip", "link", "set", "up1", "up")
		command(t, "ip", "-6", "route", "add", "fd14::/64", "via", "fd19::1")
		useAsUplink(t, p, "up1")
	})
	w.start()
	return w
}

// useAsUplink takes an interface of the present namespace for an uplink.
func useAsUplink(t *testing.T, p *Net, name string) {
	links, err := netns.Links()
	if err != nil {
		t.Error(err)
		return
	}
	at, err := p.uplinks.attach(links[slices.IndexFunc(links, func(l netns.Link) bool { return l.Name == name })])
	if err != nil {
		t.Error(err)
		return
	}
	t.Cleanup(func() { at.close() })
}

// samplesOfPort are the samples of edges at a port, of the client's end or the server's.
func samplesOfPort(t *testing.T, p *Net, port uint16) (of map[model.Role][]model.PacketSample) {
	t.Helper()
	edges, err := p.ReadEdges()
	if err != nil {
		t.Fatal(err)
	}
	of = map[model.Role][]model.PacketSample{}
	for i := range edges {
		if edges[i].Key.Service.Port() == port {
			of[edges[i].Key.Role] = append(of[edges[i].Key.Role], edges[i].PacketSamples...)
		}
	}
	return of
}

// expectStacks holds that packets were seen at the uplinks of both hosts, in order: first at the sender's socket, for at
// least so long in its host, then at both uplinks with at least so long on the wire between, and last in the receiver's host
// for at least so long. It returns how many, and how many were not seen at an uplink.
func expectStacks(t *testing.T, way string, from, to []model.PacketSample, sending, onWire, receiving time.Duration) (both,
	unseen int) {
	t.Helper()
	sent := map[uint64]model.PacketSample{}
	for _, s := range from {
		if s.Sent {
			sent[s.Packet] = s
		}
	}
	for _, r := range to {
		s, ok := sent[r.Packet]
		if r.Sent || !ok {
			continue
		}
		if s.Stack == 0 || r.Stack == 0 {
			unseen++
			continue
		}
		both++
		wire := r.Time.Add(-r.Stack).Sub(s.Time.Add(s.Stack))
		if s.Stack < sending || r.Stack < receiving || wire < onWire {
			t.Errorf("%s, a packet was in the sender's host for %v, at least %v, on the wire for %v, at least %v, in the receiver's "+
				"host for %v, at least %v", way, s.Stack, sending, wire, onWire, r.Stack, receiving)
		}
	}
	return both, unseen
}

// Sampled packets are found again at the uplinks by which they leave and come in, of containers behind a translation of
// addresses too, whole and cut up on the way.
func TestPacketsAtUplinks(t *testing.T) {
	p := openShared(t)
	if p.uplinks == nil {
		t.Fatalf("nothing is attached to uplinks: %+v", p.Features())
	}
	w := uplinkedHosts(t, p)
	expectParts(t, p, w, "peer", "10.219.0.2", "fd19::2", delays{before: w.delay})
}

// delays are those of packets that the client sends: before they leave its host, and on the wire between the hosts. Answers
// have the former behind their wire.
type delays struct{ before, onWire time.Duration }

// expectParts has the client talk to a server in a namespace, at both of its addresses, and holds that the parts of
// packets are there, and that what is slow is in its part.
func expectParts(t *testing.T, p *Net, w *wire, at, four, six string, d delays) {
	t.Helper()
	const exchanges = 50
	for _, c := range []struct {
		network, address string
		size             int
	}{{"tcp4", four, 100}, {"tcp4", four, 20000}, {"tcp6", six, 100}, {"udp4", four, 100}, {"udp6", six, 1},
		{"udp4", four, 1300}, {"tcp6", six, 20000}} {
		if c.address == "" || kerneltest.Emulated() && (c.size == 1300 || c.network == "tcp6" && c.size > 100) {
			continue // an emulated machine is slow
		}
		t.Run(fmt.Sprintf("%s of %d bytes", c.network, c.size), func(t *testing.T) {
			port := w.echo(at, c.network, c.address, exchanges, c.size)
			of := samplesOfPort(t, p, port)
			client, server := of[model.RoleClient], of[model.RoleServer]
			there, unseenThere := expectStacks(t, "there", client, server, d.before, d.onWire, 0)
			back, unseenBack := expectStacks(t, "back", server, client, 0, d.onWire, d.before)
			// Segments that are put together between an uplink and a socket may be other ones.
			if unseen := unseenThere + unseenBack; unseen > 0 && (c.size <= 1400 || 10*unseen > there+back) {
				t.Errorf("%d samples are of packets that were not seen at an uplink, %d and %d of others", unseen, there, back)
			}
			t.Logf("of %d and %d samples %d are the same there, %d back", len(client), len(server), there, back)
			if there < exchanges/2 || back < exchanges/2 {
				t.Errorf("of %d and %d samples %d are the same there, %d back", len(client), len(server), there, back)
			}
		})
	}
}

// echo has the client send messages to a server in a namespace, each after the answer to the one before, which is the same.
func (w *wire) echo(at, network, address string, exchanges, size int) (port uint16) {
	w.t.Helper()
	message := make([]byte, size)
	var conn net.Conn
	dial := func(to string) {
		w.within("client", func() {
			var err error
			if conn, err = net.Dial(network, to); err != nil {
				w.t.Error(err)
			}
		})
		w.t.Cleanup(func() { conn.Close() })
	}
	exchange := func() {
		conn.SetDeadline(time.Now().Add(kerneltest.Patience()))
		for i := range exchanges {
			for at := range message {
				message[at] = byte(i + at)
			}
			if _, err := conn.Write(message); err != nil {
				w.t.Fatal(err)
			}
			if _, err := io.ReadFull(conn, message); err != nil {
				w.t.Fatal(err)
			}
		}
	}
	if network == "tcp4" || network == "tcp6" {
		var listener net.Listener
		w.within(at, func() { listener = kerneltest.Listen(w.t, address) })
		served := make(chan net.Conn, 1)
		go func() {
			conn, _ := listener.Accept()
			served <- conn
			if conn != nil {
				io.Copy(conn, conn)
			}
		}()
		dial(listener.Addr().String())
		conn := <-served
		w.t.Cleanup(func() { conn.Close() })
		exchange()
		return uint16(listener.Addr().(*net.TCPAddr).Port)
	}
	var server *net.UDPConn
	w.within(at, func() {
		var err error
		if server, err = net.ListenUDP(network, &net.UDPAddr{IP: net.ParseIP(address)}); err != nil {
			w.t.Error(err)
		}
	})
	w.t.Cleanup(func() { server.Close() })
	go func() {
		data := make([]byte, 65536)
		for {
			n, from, err := server.ReadFromUDP(data)
			if err != nil {
				return
			}
			server.WriteToUDP(data[:n], from)
		}
	}()
	dial(server.LocalAddr().String())
	exchange()
	return uint16(server.LocalAddr().(*net.UDPAddr).Port)
}

// What leads out of the host is followed, and what leads to containers, or is on top of others, is not.
func TestFindUplinks(t *testing.T) {
	w := newWire(t)
	found := func() (names []string) {
		w.within("client", func() {
			links, err := findUplinks()
			if err != nil {
				t.Error(err)
			}
			for _, l := range links {
				names = append(names, l.Name)
			}
		})
		slices.Sort(names)
		return names
	}
	veth := func(name string) {
		command(t, "ip", "link", "add", name, "type", "veth", "peer", "name", name+"peer", "netns", w.prefix+"server")
		command(t, "ip", "link", "set", name, "up")
	}
	w.within("client", func() {
		veth("container")
		veth("port")
		veth("uplink")
		veth("off")
		command(t, "ip", "link", "set", "off", "down")
		command(t, "ip", "link", "add", "bridge", "type", "bridge")
		command(t, "ip", "link", "set", "bridge", "up")
		command(t, "ip", "link", "set", "port", "master", "bridge")
		command(t, "ip", "address", "add", "10.220.0.1/24", "dev", "uplink")
		command(t, "ip", "route", "add", "10.221.0.1/32", "dev", "container")
	})
	if names := found(); len(names) != 0 {
		t.Errorf("without a default route %v are uplinks", names)
	}
	w.within("client", func() {
		command(t, "ip", "route", "add", "unreachable", "default", "metric", "9")
		command(t, "ip", "route", "add", "default", "via", "10.220.0.2")
	})
	if names := found(); !slices.Equal(names, []string{"uplink"}) {
		t.Errorf("the uplinks are %v, want the veth of the default route", names)
	}
	w.within("client", func() {
		command(t, "ip", "route", "replace", "default", "nexthop", "via", "10.220.0.2", "nexthop", "via", "10.214.0.2")
	})
	if names := found(); !slices.Equal(names, []string{"uplink"}) {
		t.Errorf("with two ways the uplinks are %v, want the veth among them", names)
	}
}

// Uplinks that come are attached to, those that go are forgotten, and none is while packets are shed. Where there is none,
// Health says so.
func TestUplinksAreFollowed(t *testing.T) {
	p := openShared(t)
	w := newWire(t)
	t.Cleanup(func() {
		p.uplinks.detach()
		p.uplinks.reason = ""
	})
	expect := func(when string, attached int, state model.FeatureState) {
		t.Helper()
		w.within("client", func() {
			if err := p.uplinks.reconcile(); err != nil {
				t.Errorf("%s: %v", when, err)
			}
		})
		if n := len(p.uplinks.links); n != attached {
			t.Errorf("%s, %d uplinks are attached to, want %d", when, n, attached)
		}
		for _, f := range p.Features() {
			if strings.HasSuffix(f.Name, "(uplinks)") && f.State != state {
				t.Errorf("%s, %+v", when, f)
			}
		}
	}
	expect("without any", 0, model.FeatureAbsent)
	w.within("client", func() {
		command(t, "ip", "link", "add", "uplink", "type", "veth", "peer", "name", "peer", "netns", w.prefix+"server")
		command(t, "ip", "address", "add", "10.220.0.1/24", "dev", "uplink")
		command(t, "ip", "link", "set", "uplink", "up")
		command(t, "ip", "route", "add", "default", "via", "10.220.0.2")
	})
	expect("with one", 1, model.FeatureWorks)
	expect("with the same", 1, model.FeatureWorks)
	kerneltest.Shed(t, p, "packets")
	expect("while packets are shed", 0, model.FeatureWorks)
	kerneltest.Restore(t, p, "packets")
	expect("afterwards", 1, model.FeatureWorks)
	w.within("client", func() { command(t, "ip", "link", "del", "uplink") })
	expect("when it is gone", 0, model.FeatureAbsent)
}

// BenchmarkUplinks tells what a datagram takes at an uplink, each way: where it is observed, by itself or encapsulated by
// VXLAN, where as many as may be have been, and between slices of time.
func BenchmarkUplinks(b *testing.B) {
	p := New(Options{Packets: PacketsAll})
	if err := p.Open(kerneltest.Kernel(b)); err != nil || p.uplinks == nil {
		b.Fatal(err, p.Features())
	}
	defer p.Close()
	left, right := fmt.Sprintf("osup%da", os.Getpid()), fmt.Sprintf("osup%db", os.Getpid())
	ip := func(words ...string) {
		if out, err := exec.Command("ip", words...).CombinedOutput(); err != nil {
			b.Fatalf("ip %v: %v: %s", words, err, out)
		}
	}
	ip("netns", "add", right)
	defer exec.Command("ip", "netns", "del", right).Run()
	ip("link", "add", left, "type", "veth", "peer", "name", right, "netns", right)
	ip("address", "add", "10.222.0.1/24", "dev", left)
	ip("link", "set", left, "up")
	ip("-n", right, "address", "add", "10.222.0.2/24", "dev", right)
	ip("-n", right, "link", "set", right, "up")
	ip("-n", right, "link", "set", "lo", "up")
	for i, in := range [][]string{nil, {"-n", right}} {
		address := func(of string, n int) string { return of + strconv.Itoa(n+1) }
		device := left[:len(left)-1] + "vx"
		ip(append(in, "link", "add", device, "type", "vxlan", "id", "7", "dstport", "4789", "local", address("10.222.0.", i),
			"remote", address("10.222.0.", 1-i))...)
		if in == nil {
			defer exec.Command("ip", "link", "del", device).Run()
		}
		ip(append(in, "address", "add", address("10.223.0.", i)+"/24", "dev", device)...)
		ip(append(in, "link", "set", device, "up")...)
	}
	links, err := netns.Links()
	if err != nil {
		b.Fatal(err)
	}
	at, err := p.uplinks.attach(links[slices.IndexFunc(links, func(l netns.Link) bool { return l.Name == left })])
	if err != nil {
		b.Fatal(err)
	}
	defer at.close()
	file, err := os.Open("/run/netns/" + right)
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	for _, c := range []struct {
		name         string
		network      byte
		slice, limit uint32
	}{{"observed", 222, 1, ^uint32(0)}, {"observed, encapsulated", 223, 1, ^uint32(0)}, {"over the limit", 222, 1, 0},
		{"between slices", 222, 0, ^uint32(0)}} {
		var server *net.UDPConn
		if err := netns.Inside(file, func() error {
			server, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(10, c.network, 0, 2)})
			return err
		}); err != nil {
			b.Fatal(err)
		}
		defer server.Close()
		client, err := net.DialUDP("udp4", nil, server.LocalAddr().(*net.UDPAddr))
		if err != nil {
			b.Fatal(err)
		}
		defer client.Close()
		b.Run(c.name, func(b *testing.B) {
			if err := errors.Join(p.slices.slice.Set(c.slice), p.slices.limit.Set(c.limit)); err != nil {
				b.Fatal(err)
			}
			data := make([]byte, 100)
			for _, cost := range kerneltest.CostsOf(b, p, func() {
				for i := 0; b.Loop(); i++ {
					data[i%len(data)]++
					if _, err := client.Write(data); err != nil {
						b.Fatal(err)
					}
					_, from, err := server.ReadFromUDP(data)
					if err == nil {
						_, err = server.WriteToUDP(data, from)
					}
					if err == nil {
						_, err = client.Read(data)
					}
					if err != nil {
						b.Fatal(err)
					}
				}
			}) {
				if cost.Runs > 0 && strings.HasSuffix(cost.Name, "(uplinks)") {
					b.ReportMetric(float64(cost.RunTimeNS)/float64(cost.Runs), strings.Fields(cost.Name)[0]+"-ns")
				}
			}
		})
	}
}
