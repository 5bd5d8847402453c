package net

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"

	"outsight/internal/kernel/kerneltest"
	"outsight/internal/model"
)

// answerer answers each datagram with one of twice its length, until its socket is closed. It
// says nothing to those that begin with '-'.
func answerer(t *testing.T, address string) *net.UDPConn {
	t.Helper()
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(address)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	go func() {
		buffer := make([]byte, 65536)
		for {
			n, from, err := conn.ReadFromUDPAddrPort(buffer)
			if err != nil {
				return
			}
			if n == 0 || buffer[0] != '-' {
				conn.WriteToUDPAddrPort(buffer[:2*n], from)
			}
		}
	}()
	return conn
}

func port(c net.PacketConn) uint16 { return c.LocalAddr().(*net.UDPAddr).AddrPort().Port() }

// udpEdges lists the edges of a service at one end.
func udpEdges(t *testing.T, p *Net, service uint16, role model.Role) []model.KernelEdge {
	t.Helper()
	all, err := p.ReadEdges()
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(e model.KernelEdge) bool {
		return e.Key.Transport != model.UDP || e.Key.Service.Port() != service || e.Key.Role != role
	})
}

// wantUDP compares plain counters and the number of transactions.
func wantUDP(t *testing.T, e model.KernelEdge, want model.EdgeCounters) {
	t.Helper()
	got := e.Counters
	if got.Latency == nil || got.Latency.Count != want.Replies {
		t.Errorf("%v: latencies %+v, want %d", e.Key, got.Latency, want.Replies)
	}
	got.Latency, got.Packets = nil, model.PacketCounters{}
	if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
		t.Errorf("%v:\ncounted %+v\nwant    %+v", e.Key, got, want)
	}
	if e.Key.Owner != kerneltest.OwnCgroup(t) {
		t.Errorf("%v: owner %d, want %d", e.Key, e.Key.Owner, kerneltest.OwnCgroup(t))
	}
}

func exchanged(n, request uint64) model.EdgeCounters {
	return model.EdgeCounters{
		SentBytes: n * request, ReceivedBytes: 2 * n * request, SentPackets: n, ReceivedPackets: n, Requests: n, Replies: n,
	}
}

// turned is the other end's view of the same.
func turned(c model.EdgeCounters) model.EdgeCounters {
	c.SentBytes, c.ReceivedBytes = c.ReceivedBytes, c.SentBytes
	c.SentPackets, c.ReceivedPackets = c.ReceivedPackets, c.SentPackets
	n := &c.Packets
	n.SentPackets, n.ReceivedPackets = n.ReceivedPackets, n.SentPackets
	n.SentBytes, n.ReceivedBytes = n.ReceivedBytes, n.SentBytes
	return c
}

// One client, connected or not, to a server that is bound to one address or to all.
func TestDatagramCountsAreExact(t *testing.T) {
	const n, size = 500, 100
	for _, c := range []struct {
		name, bind, server string
		connected          bool
		local              string // as the server sees its own address
		client             string
	}{
		{"connected", "127.0.0.1:0", "127.0.0.1", true, "127.0.0.1", "127.0.0.1"},
		{"unconnected", "127.0.0.1:0", "127.0.0.1", false, "127.0.0.1", "127.0.0.1"},
		{"IPv6", "[::1]:0", "::1", true, "::1", "::1"},
		{"IPv6, unconnected, all addresses", "[::]:0", "::1", false, "::", "::1"},
		{"IPv4 to a socket of both families", "[::]:0", "127.0.0.1", false, "::", "127.0.0.1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := openShared(t)
			server := answerer(t, c.bind)
			to := netip.AddrPortFrom(netip.MustParseAddr(c.server), port(server))
			var client *net.UDPConn
			var err error
			if c.connected {
				client, err = net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
			} else {
				client, err = net.ListenUDP("udp", nil)
			}
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			request, reply := make([]byte, size), make([]byte, 4*size)
			for range n {
				if c.connected {
					client.Write(request)
					_, err = client.Read(reply)
				} else {
					client.WriteToUDPAddrPort(request, to)
					_, _, err = client.ReadFromUDPAddrPort(reply)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			for _, role := range []model.Role{model.RoleClient, model.RoleServer} {
				edges := udpEdges(t, p, to.Port(), role)
				if len(edges) != 1 {
					t.Fatalf("%v: edges %+v, want one", role, edges)
				}
				want, service := exchanged(n, size), to.Addr()
				if role == model.RoleServer {
					want, service = turned(want), netip.MustParseAddr(c.local)
					if edges[0].Key.Client != netip.MustParseAddr(c.client) {
						t.Errorf("client %v, want %v", edges[0].Key.Client, c.client)
					}
				}
				wantUDP(t, edges[0], want)
				if edges[0].Key.Service.Addr() != service {
					t.Errorf("%v: service %v, want %v", role, edges[0].Key.Service, service)
				}
			}
		})
	}
}

// One socket asks five servers in turn, and a server answers clients of three addresses that ask
// at the same time. Each pair is an edge of its own.
func TestDatagramsOfSeveralPeers(t *testing.T) {
	const n = 50
	p := openShared(t)
	client, err := net.ListenUDP("udp", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	buffer := make([]byte, 1000)
	var servers []*net.UDPConn
	for range 5 {
		servers = append(servers, answerer(t, "127.0.0.1:0"))
	}
	for round := range n {
		// All are asked before any is read.
		for i, s := range servers {
			client.WriteToUDPAddrPort(buffer[:10*(i+1)], s.LocalAddr().(*net.UDPAddr).AddrPort())
		}
		for range servers {
			if _, _, err := client.ReadFromUDPAddrPort(buffer); err != nil {
				t.Fatal(round, err)
			}
		}
	}
	for i, s := range servers {
		edges := udpEdges(t, p, port(s), model.RoleClient)
		if len(edges) != 1 {
			t.Fatalf("server %d: edges %+v, want one", i, edges)
		}
		wantUDP(t, edges[0], exchanged(n, uint64(10*(i+1))))
	}

	for i := range 3 {
		from := net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 2, byte(i + 1)}), 0))
		conn, err := net.DialUDP("udp", from, servers[0].LocalAddr().(*net.UDPAddr))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		for range n {
			conn.Write(buffer[:20+i])
			conn.Read(buffer)
		}
	}
	edges := udpEdges(t, p, port(servers[0]), model.RoleServer)
	if len(edges) != 4 {
		t.Fatalf("the first server has %d edges, want one for each client's address: %+v", len(edges), edges)
	}
	for i := range 3 {
		address := netip.AddrFrom4([4]byte{127, 0, 2, byte(i + 1)})
		j := slices.IndexFunc(edges, func(e model.KernelEdge) bool { return e.Key.Client == address })
		if j < 0 {
			t.Fatalf("no edge of %v", address)
		}
		wantUDP(t, edges[j], turned(exchanged(n, uint64(20+i))))
	}
}

// A thousand datagrams that nobody answers are a stream, at both ends, and no request is lost.
func TestOneWayStream(t *testing.T) {
	const n = 1000
	p := openShared(t)
	server := answerer(t, "127.0.0.1:0")
	client, err := net.DialUDP("udp", nil, server.LocalAddr().(*net.UDPAddr))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for i := range n {
		client.Write([]byte("-requests:1|c"))
		if i%50 == 49 {
			kerneltest.Eventually(t, "the server has made room for more", func() bool {
				e := udpEdges(t, p, port(server), model.RoleServer)
				return len(e) == 1 && e[0].Counters.ReceivedPackets == uint64(i+1)
			})
		}
	}
	want := model.EdgeCounters{SentBytes: 13 * n, SentPackets: n, OneWay: n}
	kerneltest.Eventually(t, "all have arrived", func() bool {
		e := udpEdges(t, p, port(server), model.RoleServer)
		return len(e) == 1 && e[0].Counters.ReceivedPackets == n
	})
	want.Packets = model.PacketCounters{SentPackets: n, SentBytes: 13 * n}
	got := udpEdges(t, p, port(server), model.RoleClient)[0].Counters
	got.Latency, got.Requests = nil, 0
	expectSampled(t, &got.Packets, n)
	if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
		t.Errorf("client: counted %+v, want %+v", got, want)
	}
	got = udpEdges(t, p, port(server), model.RoleServer)[0].Counters
	got.Latency, got.Requests = nil, 0
	got.Packets.Delay, got.Packets.DelayVariationNS, got.Packets.Observed = nil, 0, 0
	expectSampled(t, &got.Packets, n)
	if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", turned(want)) {
		t.Errorf("server: counted %+v, want %+v", got, turned(want))
	}
}

// expectSampled holds that some of so many packets were sampled, and takes them out.
func expectSampled(t *testing.T, p *model.PacketCounters, packets uint64) {
	t.Helper()
	if p.Sampled == 0 || p.Sampled > packets {
		t.Errorf("%d packets of %d were sampled", p.Sampled, packets)
	}
	p.Sampled = 0
}

// A request without a reply shows as waiting, and as unanswered when its socket is closed or five
// seconds are over.
func TestLostReplies(t *testing.T) {
	p := openShared(t)
	server := answerer(t, "127.0.0.1:0")
	buffer := make([]byte, 100)
	counters := func() model.EdgeCounters {
		e := udpEdges(t, p, port(server), model.RoleClient)
		if len(e) != 1 {
			t.Fatalf("edges %+v, want one", e)
		}
		return e[0].Counters
	}
	check := func(when string, requests, replies, aborts, waiting uint64) {
		t.Helper()
		c := counters()
		if c.Requests != requests || c.Replies != replies || c.Aborts != aborts || c.InFlight() != waiting || c.OneWay != 0 {
			t.Errorf("%s: %d requests, %d replies, %d aborts, %d waiting, %d one-way; want %d %d %d %d 0",
				when, c.Requests, c.Replies, c.Aborts, c.InFlight(), c.OneWay, requests, replies, aborts, waiting)
		}
	}
	first, err := net.DialUDP("udp", nil, server.LocalAddr().(*net.UDPAddr))
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		first.Write([]byte("hello"))
		first.Read(buffer)
	}
	first.Write([]byte("-hello?"))
	check("asked", 4, 3, 0, 1)
	first.Close()
	kerneltest.Eventually(t, "a closed socket waits no more", func() bool { return counters().Aborts == 1 })
	check("closed", 4, 3, 1, 0)

	second, err := net.ListenUDP("udp", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	second.WriteToUDPAddrPort([]byte("-hello?"), server.LocalAddr().(*net.UDPAddr).AddrPort())
	check("asked by another socket", 5, 3, 1, 1)
	kerneltest.Eventually(t, "the request is given up", func() bool { return counters().Aborts == 2 })
	second.WriteToUDPAddrPort([]byte("hello"), server.LocalAddr().(*net.UDPAddr).AddrPort())
	second.ReadFromUDPAddrPort(buffer)
	check("answered again", 6, 4, 2, 0)
}

// Of sockets that were there before the probes, the port tells who is the client, even where the
// first datagram that is seen is a reply.
func TestDatagramSocketsOlderThanTheProbes(t *testing.T) {
	server, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: freeLowPort(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	client, err := net.DialUDP("udp", nil, server.LocalAddr().(*net.UDPAddr))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	buffer := make([]byte, 100)
	client.Write([]byte("before"))
	_, from, err := server.ReadFromUDPAddrPort(buffer)
	if err != nil {
		t.Fatal(err)
	}
	p := open(t, Options{})
	server.WriteToUDPAddrPort([]byte("after"), from)
	client.Read(buffer)
	for _, role := range []model.Role{model.RoleClient, model.RoleServer} {
		edges := udpEdges(t, p, port(server), role)
		if len(edges) != 1 {
			t.Fatalf("%v: edges %+v, want one", role, edges)
		}
		want := model.EdgeCounters{ReceivedBytes: 5, ReceivedPackets: 1}
		if role == model.RoleServer {
			want = turned(want)
		}
		wantUDP(t, edges[0], want)
	}
}

func freeLowPort(t *testing.T) int {
	t.Helper()
	for port := 20000; port < 30000; port++ {
		if conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}); err == nil {
			conn.Close()
			return port
		}
	}
	t.Fatal("no free port below 30000")
	return 0
}
