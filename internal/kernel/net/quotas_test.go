package net

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"outsight/internal/kernel/kerneltest"
	"outsight/internal/model"
)

// manyListeners reads how many loopback addresses to listen at, and asks each of them once over a connection that
// stays open, until its input ends.
func manyListeners() int { return untilInputEnds(listenAndAsk) }

// untilInputEnds does as many of something as each line of its input says, and says when it is done.
func untilInputEnds(do func(n int) error) int {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		n, err := strconv.Atoi(lines.Text())
		if err == nil {
			err = do(n)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		fmt.Println("ready")
	}
	return 0
}

// listenIn starts a program in a group; what is returned makes it listen at more addresses.
func listenIn(t *testing.T, g *kerneltest.Group) (listen func(n int)) {
	t.Helper()
	return tellToDo(t, g, "listen")
}

// tellToDo starts a workload in a group; what is returned makes it do that many of what it does.
func tellToDo(t *testing.T, g *kerneltest.Group, work string) (do func(n int)) {
	t.Helper()
	cmd := g.Workload(work)
	in, out := kerneltest.StartTalking(t, cmd)
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	return func(n int) {
		t.Helper()
		fmt.Fprintln(in, n)
		if line, err := out.ReadString('\n'); err != nil {
			t.Fatalf("the workload said %q: %v", line, err)
		}
	}
}

var request = []byte("0123456789")

func listenAndAsk(n int) error {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		client, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			return err
		}
		server, err := l.Accept()
		if err != nil {
			return err
		}
		if err := exchange(client, server); err != nil {
			return err
		}
	}
	return nil
}

// exchange sends one request and its answer over the two ends of a connection.
func exchange(client, server net.Conn) error {
	answer := make([]byte, len(request))
	for _, step := range []func() (int, error){
		func() (int, error) { return client.Write(request) }, func() (int, error) { return server.Read(answer) },
		func() (int, error) { return server.Write(answer) }, func() (int, error) { return client.Read(answer) },
	} {
		if _, err := step(); err != nil {
			return err
		}
	}
	return nil
}

// TestQuotaOfEdges: a group with more addresses than the table has room for leaves room for the others, and all
// that it did is in its sum.
func TestQuotaOfEdges(t *testing.T) {
	const many, few = 500, 5
	p := open(t, Options{MaxEdges: 256, MaxListeners: 1024})
	flooder := kerneltest.NewGroup(t, "flood")
	listenIn(t, flooder)(many)
	if _, err := p.ReadEdges(); err != nil {
		t.Fatal(err)
	}
	quiet := kerneltest.NewGroup(t, "quiet")
	listenIn(t, quiet)(few)

	edges, err := p.ReadEdges()
	if err != nil {
		t.Fatal(err)
	}
	listeners, err := p.ReadListeners()
	if err != nil {
		t.Fatal(err)
	}
	type sum struct{ edges, bytes, requests, opens int }
	sums := map[model.CgroupID]map[model.Role]sum{flooder.ID(t): {}, quiet.ID(t): {}}
	for _, e := range edges {
		if of := sums[e.Key.Owner]; of != nil {
			s := of[e.Key.Role]
			c := &e.Counters
			of[e.Key.Role] = sum{s.edges + 1, s.bytes + int(c.SentBytes), s.requests + int(c.Requests), s.opens + int(c.Opens)}
		}
	}
	for _, role := range []model.Role{model.RoleClient, model.RoleServer} {
		s := sums[flooder.ID(t)][role]
		if s.bytes != many*len(request) || s.requests != many || s.opens != many {
			t.Errorf("the flood's %vs counted %+v, want %d connections of %d bytes", role, s, many, len(request))
		}
		if want := (sum{few, few * len(request), few, few}); sums[quiet.ID(t)][role] != want {
			t.Errorf("the other's %vs counted %+v, want %+v", role, sums[quiet.ID(t)][role], want)
		}
	}
	if n := sums[flooder.ID(t)][model.RoleClient].edges + sums[flooder.ID(t)][model.RoleServer].edges; n > 64+64/8+2 {
		t.Errorf("the flood has %d edges, want at most its quota of 64, an eighth of it, and two sums", n)
	}
	listening := map[model.CgroupID]int{}
	for _, l := range listeners {
		listening[l.Owner]++
	}
	if listening[flooder.ID(t)] != 128 || listening[quiet.ID(t)] != few {
		t.Errorf("%d and %d listeners are known, want a quota of 128 and %d", listening[flooder.ID(t)],
			listening[quiet.ID(t)], few)
	}
	over := map[string]bool{}
	for _, o := range p.ReadOverQuota() {
		if o.Owner == quiet.ID(t) {
			t.Errorf("the other is said to be over its quota of %s", o.Of)
		}
		over[o.Of] = over[o.Of] || o.Owner == flooder.ID(t)
	}
	if !over["edges"] || !over["listeners"] {
		t.Errorf("over its quotas the flood is said to be: %v, want edges and listeners", over)
	}
}

// TestEdgesOfAFloodAreGivenUp: when a flood has ended, its edges go soon; those of others stay, however silent they
// are.
func TestEdgesOfAFloodAreGivenUp(t *testing.T) {
	p := open(t, Options{MaxEdges: 256})
	flooder, quiet := kerneltest.NewGroup(t, "flood"), kerneltest.NewGroup(t, "quiet")
	edgesOf := func() (flood, other int) {
		t.Helper()
		all, err := p.ReadEdges()
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range all {
			switch e.Key.Owner {
			case flooder.ID(t):
				flood++
			case quiet.ID(t):
				other++
			}
		}
		return flood, other
	}
	t.Run("flood", func(t *testing.T) { listenIn(t, flooder)(100) }) // it ends with this
	t.Run("quiet", func(t *testing.T) { listenIn(t, quiet)(2) })
	if flood, other := edgesOf(); flood < 64 || other != 4 {
		t.Fatalf("%d edges of the flood and %d of the other, want its quota and 4", flood, other)
	}
	later := time.Now().Add(crowdedIdleTime + time.Second)
	for range 2 {
		p.edges.release(later, 0)
	}
	if flood, other := edgesOf(); flood != 0 || other != 4 {
		t.Errorf("%d edges of the flood and %d of the other are left, want none and 4", flood, other)
	}
}

// TestQuotasAreShared: groups of one container have one quota, from the reading on that has found them.
func TestQuotasAreShared(t *testing.T) {
	p := open(t, Options{MaxEdges: 256})
	one, two, other := kerneltest.NewGroup(t, "one"), kerneltest.NewGroup(t, "two"), kerneltest.NewGroup(t, "other")
	p.ShareQuotas(func(id model.CgroupID) model.CgroupID {
		if id == two.ID(t) {
			return one.ID(t)
		}
		return id
	})
	edgesOf := func() map[model.CgroupID]int {
		t.Helper()
		all, err := p.ReadEdges()
		if err != nil {
			t.Fatal(err)
		}
		n := map[model.CgroupID]int{}
		for _, e := range all {
			n[e.Key.Owner]++
		}
		return n
	}
	listenIn(t, one)(100)
	inTwo, inOther := listenIn(t, two), listenIn(t, other)
	inTwo(1)
	inOther(1)
	edgesOf()
	inTwo(10)
	inOther(10)
	n := edgesOf()
	// Clients and servers at one address, and then one sum of each.
	if n[two.ID(t)] != 2+2 || n[other.ID(t)] != 2+20 {
		t.Errorf("%d edges of a group whose container has its quota, and %d of another; want 4 and 22", n[two.ID(t)],
			n[other.ID(t)])
	}
}

// TestEndpointsOfAFloodAreGivenUp: an owner that has used up its quota of endpoints has names for others soon, though
// most of the table is free, and though its connection is in use.
func TestEndpointsOfAFloodAreGivenUp(t *testing.T) {
	p := open(t, Options{MaxEndpoints: 256, MaxEdgeEndpoints: 200})
	service := pong(t, okay)
	conn := kerneltest.Dial(t, service.String())
	defer conn.Close()
	port := service.(*net.TCPAddr).AddrPort().Port()
	sent := uint64(0)
	send := func(route string) (named map[string]bool) {
		t.Helper()
		fmt.Fprintf(conn, "GET /%s HTTP/1.1\r\n\r\n", route)
		if _, err := io.ReadFull(conn, make([]byte, len(okay))); err != nil {
			t.Fatal(err)
		}
		sent++
		named = map[string]bool{}
		// The last reply counts when the next request comes or the connection ends.
		for _, e := range endpointsOf(t, p, port, model.RoleClient) {
			named[e.Name] = true
		}
		return named
	}
	route := func(i int) string { return fmt.Sprintf("%c%c/page", 'a'+i%26, 'a'+i/26) }
	for i := range 60 { // at both ends, twice as many
		send(route(i))
	}
	if named := send("late"); named["GET /late"] || !named[model.OtherEndpoint] {
		t.Fatalf("beyond the quota the names are %v", named)
	}
	later := time.Now().Add(crowdedIdleTime + time.Second)
	for range 2 {
		p.edges.endpoints.release(later, false, p.edges.quotas.crowded[edgesQuotaQUOTA_ENDPOINTS])
	}
	if _, err := p.ReadEdges(); err != nil {
		t.Fatal(err)
	}
	send("late")
	if named := send("later"); !named["GET /late"] {
		t.Errorf("after the flood the names are %v, want GET /late among them", named)
	}
}

// kept are connections that stay open until the program ends.
var kept []net.Conn

// holdStreams opens a connection of HTTP/2, and that many streams on it that never end.
func holdStreams(n int) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer l.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return err
	}
	server, err := l.Accept()
	if err != nil {
		return err
	}
	kept = append(kept, client, server)
	sender := newHTTP2Sender()
	sender.greetAsClient()
	for i := range n {
		sender.request(uint32(2*i+1), true, "/held")
		if _, err := io.WriteString(client, sender.take()); err != nil {
			return err
		}
		if _, err := server.Read(make([]byte, 1<<16)); err != nil {
			return err
		}
	}
	return nil
}

// TestQuotaOfStreams: a group that holds streams open leaves room for those of others.
func TestQuotaOfStreams(t *testing.T) {
	const room, many, times = 256, 1000, 100
	p := openReading(t, Options{MaxStreams: room})
	flooder := kerneltest.NewGroup(t, "flood")
	tellToDo(t, flooder, "streams")(many)
	at := serveEchoes(t)
	conn := callEchoes(t, at)
	for range times {
		call(t.Context(), conn, "Sleep", 0)
	}
	for _, role := range []model.Role{model.RoleClient, model.RoleServer} {
		counted(t, p, at, role, times, 0)
	}
	expect(t, p, portOf(at), map[string]uint64{"POST /test.Echoes/Sleep ok": times})
	if _, err := p.ReadEdges(); err != nil {
		t.Fatal(err)
	}
	over := uint64(0)
	for _, o := range p.ReadOverQuota() {
		if o.Of == "http2_streams" && o.Owner == flooder.ID(t) {
			over = o.Count
		}
	}
	// Two ends, which have a quarter of the table together.
	if want := uint64(2*many - room/4); over != want {
		t.Errorf("%d streams of the flood are over its quota, want %d", over, want)
	}
}

// TestStreamsAreGivenBack: streams that end, in whatever way, leave a group's quota as it was.
func TestStreamsAreGivenBack(t *testing.T) {
	const room = 256 // and a quota of 64
	p := openReading(t, Options{MaxStreams: room})
	own := map[model.CgroupID]bool{} // others on this host may be over their quotas
	for range 4 {
		t.Run("holding", func(t *testing.T) {
			g := kerneltest.NewGroup(t, "holding")
			own[g.ID(t)] = true
			tellToDo(t, g, "streams")(30)
		})
		if _, err := p.ReadEdges(); err != nil {
			t.Fatal(err)
		}
	}
	g := kerneltest.NewGroup(t, "again")
	own[g.ID(t)] = true
	for range 4 {
		t.Run("again", func(t *testing.T) { tellToDo(t, g, "streams")(30) })
		kerneltest.Eventually(t, "the streams are given back", func() bool {
			if _, err := p.ReadEdges(); err != nil {
				t.Fatal(err)
			}
			var has uint32
			return p.edges.quotas.streams.Lookup(uint64(g.ID(t)), &has) == nil && has == 0
		})
	}
	for _, o := range p.ReadOverQuota() {
		if o.Of == "http2_streams" && own[o.Owner] {
			t.Errorf("%d streams are over a quota", o.Count)
		}
	}
}

// manyPeers are loopback addresses where nobody listens.
func manyPeers(i int, port uint16) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 9, byte(i / 250), byte(i%250 + 1)}), port)
}

// sendToMany sends a datagram and a query to that many addresses.
func sendToMany(n int) error {
	client, err := net.ListenUDP("udp4", nil)
	if err != nil {
		return err
	}
	kept = append(kept, client)
	name := dnsmessage.MustNewName("flood.test.")
	for i := range n {
		m := dnsmessage.Message{Header: dnsmessage.Header{ID: uint16(i)}, Questions: []dnsmessage.Question{
			{Name: name, Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}}}
		query, err := m.Pack()
		if err != nil {
			return err
		}
		client.WriteToUDPAddrPort([]byte("-"), manyPeers(i, 9)) // errors are those of the address before
		client.WriteToUDPAddrPort(query, manyPeers(i, 53))
	}
	return nil
}

// TestQuotaOfFlows: a group that sends to thousands of addresses, or asks queries that nobody answers, evicts no
// flow and no query of others.
func TestQuotaOfFlows(t *testing.T) {
	const room, many, few = 256, 3000, 20
	p := open(t, Options{MaxFlows: room})
	flood := tellToDo(t, kerneltest.NewGroup(t, "flood"), "datagrams")
	flood(many)
	if _, err := p.ReadEdges(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		port    int
		message func(i int) []byte
	}{
		{"requests", 0, func(int) []byte { return request }},
		{"queries", 53, func(i int) []byte { return query(t, uint16(i), "quiet.test.", dnsmessage.TypeA) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			server, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 53, 12), Port: c.port})
			if err != nil {
				t.Fatal(err)
			}
			defer server.Close()
			at := server.LocalAddr().(*net.UDPAddr).AddrPort()
			var from []netip.AddrPort
			var clients []*net.UDPConn
			buffer := make([]byte, 1000)
			for i := range few {
				client, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(at))
				if err != nil {
					t.Fatal(err)
				}
				defer client.Close()
				clients = append(clients, client)
				if _, err := client.Write(c.message(i)); err != nil {
					t.Fatal(err)
				}
				_, address, err := server.ReadFromUDPAddrPort(buffer)
				if err != nil {
					t.Fatal(err)
				}
				from = append(from, address)
			}
			flood(many)
			for i, address := range from {
				reply := c.message(i)
				reply[2] |= 0x80
				if _, err := server.WriteToUDPAddrPort(reply, address); err != nil {
					t.Fatal(err)
				}
				if _, err := clients[i].Read(buffer); err != nil {
					t.Fatal(err)
				}
			}
			for _, role := range []model.Role{model.RoleClient, model.RoleServer} {
				replies, latencies := uint64(0), uint64(0)
				for _, e := range udpEdgesAt(t, p, at, role) {
					replies += e.Counters.Replies
					latencies += e.Counters.Latency.Count
				}
				if replies != few || latencies != few {
					t.Errorf("the %v counted %d replies and %d latencies, want %d", role, replies, latencies, few)
				}
			}
		})
	}
	for _, name := range []string{"datagram_flows", "dns_queries"} {
		if d := dropOf(t, p, name); d.Count+d.Used < many || d.Used > room {
			t.Errorf("of the flood's %d: %+v", many, d)
		}
	}
}
