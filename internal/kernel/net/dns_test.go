package net

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"outsight/internal/kernel/kerneltest"
	"outsight/internal/model"
)

// nameServer answers on port 53 of a loopback address, and counts them itself: by type, name and
// code, how many replies it sent.
type nameServer struct {
	address netip.AddrPort
	lock    sync.Mutex // guards sent
	sent    map[string]uint64
	// read counts the messages that it has read over UDP.
	read atomic.Int64
}

func newNameServer(t *testing.T, address string) *nameServer {
	t.Helper()
	s := &nameServer{address: netip.MustParseAddrPort(address), sent: make(map[string]uint64)}
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(s.address))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	go func() {
		buffer := make([]byte, 4096)
		for {
			n, from, err := conn.ReadFromUDPAddrPort(buffer)
			if err != nil {
				return
			}
			s.read.Add(1)
			if reply := s.answer(buffer[:n]); reply != nil {
				conn.WriteToUDPAddrPort(reply, from)
			}
		}
	}()
	return s
}

// answer is by the first label: "no" does not exist, "bad" fails, "silent" is not answered, all
// else has an address.
func (s *nameServer) answer(query []byte) []byte {
	var m dnsmessage.Message
	if m.Unpack(query) != nil || len(m.Questions) != 1 {
		return nil
	}
	q := m.Questions[0]
	m.Response, m.Additionals = true, nil
	status := "ok"
	switch first, _, _ := strings.Cut(strings.ToLower(q.Name.String()), "."); first {
	case "no":
		m.RCode, status = dnsmessage.RCodeNameError, "nxdomain"
	case "bad":
		m.RCode, status = dnsmessage.RCodeServerFailure, "servfail"
	case "silent":
		return nil
	default:
		h := dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 1}
		switch q.Type {
		case dnsmessage.TypeA:
			m.Answers = []dnsmessage.Resource{{Header: h, Body: &dnsmessage.AResource{A: [4]byte{10, 1, 2, 3}}}}
		case dnsmessage.TypeAAAA:
			m.Answers = []dnsmessage.Resource{{Header: h, Body: &dnsmessage.AAAAResource{AAAA: [16]byte{0xfd, 15: 1}}}}
		}
	}
	reply, err := m.Pack()
	if err != nil {
		return nil
	}
	name := strings.TrimSuffix(strings.ToLower(q.Name.String()), ".")
	s.lock.Lock()
	defer s.lock.Unlock()
	s.sent[fmt.Sprintf("%s %s %s", strings.TrimPrefix(q.Type.String(), "Type"), name, status)]++
	return reply
}

// counts are those of the server.
func (s *nameServer) counts() (lines map[string]uint64, sum uint64) {
	s.lock.Lock()
	defer s.lock.Unlock()
	lines = make(map[string]uint64)
	for k, n := range s.sent {
		lines[k] = n
		sum += n
	}
	return lines, sum
}

// answered are the endpoints of a DNS edge, as counts are.
func answered(e *model.KernelEdge) map[string]uint64 {
	lines := make(map[string]uint64)
	for _, p := range e.Endpoints {
		if p.Protocol == model.DNS {
			lines[p.Name+" "+p.Status] += p.Transactions()
		}
	}
	return lines
}

func (s *nameServer) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", s.address.String())
	}}
}

// expectBooks compares both ends with the server's own account.
func (s *nameServer) expectBooks(t *testing.T, p *Net) {
	t.Helper()
	want, sum := s.counts()
	for _, role := range []model.Role{model.RoleClient, model.RoleServer} {
		edges := udpEdgesAt(t, p, s.address, role)
		if len(edges) != 1 {
			t.Fatalf("%v: edges %+v, want one", role, edges)
		}
		if got := answered(&edges[0]); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%v: answered\n%v, the server counted\n%v", role, got, want)
		}
		if c := edges[0].Counters; c.Replies != sum || c.Latency.Count != sum {
			t.Errorf("%v: %d replies and %d latencies, want %d", role, c.Replies, c.Latency.Count, sum)
		}
	}
}

func udpEdgesAt(t *testing.T, p *Net, service netip.AddrPort, role model.Role) []model.KernelEdge {
	var found []model.KernelEdge
	for _, e := range udpEdges(t, p, service.Port(), role) {
		if e.Key.Service == service {
			found = append(found, e)
		}
	}
	return found
}

// Go's resolver asks for both address families at once, over one socket each.
func TestDNSNamesAndCodes(t *testing.T) {
	p := openShared(t)
	s := newNameServer(t, "127.0.53.1:53")
	r := s.resolver()
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			for range 25 {
				if _, err := r.LookupNetIP(t.Context(), "ip", "Redis.shop.Example."); err != nil {
					t.Error(err)
				}
				r.LookupNetIP(t.Context(), "ip4", "no.such.example.")
				r.LookupNetIP(t.Context(), "ip6", "bad.luck.example.")
			}
		})
	}
	clients.Wait()
	want, _ := s.counts()
	// The resolver lets equal lookups share their queries; which it sent, the server knows.
	if len(want) != 4 || want["A redis.shop.example ok"] < 25 || want["A no.such.example nxdomain"] < 25 {
		t.Fatalf("the server counted %v", want)
	}
	s.expectBooks(t, p)
}

// The C library sends both queries by one call (sendmmsg) over one socket.
func TestDNSOfTheCLibrary(t *testing.T) {
	p := openShared(t)
	s := newNameServer(t, "127.0.53.2:53")
	resolv := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(resolv, []byte("nameserver "+s.address.Addr().String()+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	script := `mount --bind "$0" "$(readlink -f /etc/resolv.conf)" && for i in 1 2 3 4 5; do getent ahosts db-$i.shop.example.; done`
	if out, err := exec.Command("unshare", "--mount", "sh", "-c", script, resolv).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	want, sum := s.counts()
	if sum != 10 || want["A db-3.shop.example ok"] != 1 || want["AAAA db-3.shop.example ok"] != 1 {
		t.Fatalf("the server counted %v", want)
	}
	s.expectBooks(t, p)
}

func query(t testing.TB, id uint16, name string, kind dnsmessage.Type) []byte {
	t.Helper()
	m := dnsmessage.Message{Header: dnsmessage.Header{ID: id, RecursionDesired: true}, Questions: []dnsmessage.Question{
		{Name: dnsmessage.MustNewName(name), Type: kind, Class: dnsmessage.ClassINET}}}
	packed, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return packed
}

// The names that the kernel makes of long ones and of lookups by address.
func TestDNSNamesAreBounded(t *testing.T) {
	p := open(t, Options{MaxEndpoints: 200, MaxEdgeEndpoints: 100})
	s := newNameServer(t, "127.0.53.3:53")
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(s.address))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	label := strings.Repeat("x", 63)
	want := make(map[string]uint64)
	f := func(name string, kind dnsmessage.Type, shown string) {
		t.Helper()
		conn.Write(query(t, uint16(len(want)), name, kind))
		if _, err := conn.Read(make([]byte, 4096)); err != nil {
			t.Fatal(err)
		}
		want[shown+" ok"]++
	}
	f(".", dnsmessage.TypeNS, "NS .")
	f("a.", dnsmessage.TypeA, "A a")
	f("_https._tcp.example.", dnsmessage.TypeSRV, "SRV _https._tcp.example")
	f("odd name\x01é.example.", dnsmessage.TypeTXT, "TXT odd?name???.example")
	f("x.example.", dnsmessage.Type(77), "? x.example")
	f("4.3.2.10.in-addr.arpa.", dnsmessage.TypePTR, "PTR *.in-addr.arpa")
	f(strings.Repeat("0.", 32)+"ip6.arpa.", dnsmessage.TypePTR, "PTR *.ip6.arpa")
	f("arpa.", dnsmessage.TypePTR, "PTR arpa")
	f("x.arpa.", dnsmessage.TypePTR, "PTR x.arpa")
	f(strings.Repeat("a", 40)+".test.", dnsmessage.TypeA, "A "+strings.Repeat("a", 40)+".test")
	f(strings.Repeat("a", 41)+".test.", dnsmessage.TypeA, "A *.test")
	f("one.two."+label+".namespace.svc.cluster.local.", dnsmessage.TypeAAAA, "AAAA *.namespace.svc.cluster.local")
	f(label+".", dnsmessage.TypeA, "A "+label[:45])
	f(label+"."+label+".test.", dnsmessage.TypeA, "invalid") // longer than what is looked at
	edges := udpEdgesAt(t, p, s.address, model.RoleClient)
	if got := answered(&edges[0]); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("names\n%v, want\n%v", got, want)
	}
}

// Two queries at once on one socket, answered in the other order, a repeated one, and one that is
// never answered.
func TestDNSQueriesAtOnce(t *testing.T) {
	p := openShared(t)
	server, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 53, 4), Port: 53})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	client, err := net.DialUDP("udp", nil, server.LocalAddr().(*net.UDPAddr))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	client.Write(query(t, 1, "first.example.", dnsmessage.TypeA))
	client.Write(query(t, 1, "first.example.", dnsmessage.TypeA))
	client.Write(query(t, 2, "second.example.", dnsmessage.TypeA))
	client.Write(query(t, 3, "silent.example.", dnsmessage.TypeA))
	var queries [][]byte
	var from netip.AddrPort
	for range 4 {
		buffer := make([]byte, 512)
		n, f, err := server.ReadFromUDPAddrPort(buffer)
		if err != nil {
			t.Fatal(err)
		}
		queries, from = append(queries, buffer[:n]), f
	}
	for _, i := range []int{2, 0} {
		queries[i][2] |= 0x80
		server.WriteToUDPAddrPort(queries[i], from)
		client.Read(make([]byte, 512))
	}
	service := server.LocalAddr().(*net.UDPAddr).AddrPort()
	for _, role := range []model.Role{model.RoleClient, model.RoleServer} {
		e := udpEdgesAt(t, p, service, role)[0]
		if got := fmt.Sprint(answered(&e)); got != "map[A first.example ok:1 A second.example ok:1]" {
			t.Errorf("%v: answered %v", role, got)
		}
		// The repeated query was lost once, the silent one still waits.
		if c := e.Counters; c.Requests != 4 || c.Replies != 2 || c.Aborts != 1 || c.InFlight() != 1 {
			t.Errorf("%v: %+v", role, c)
		}
	}
	kerneltest.Eventually(t, "the silent query is given up", func() bool {
		c := udpEdgesAt(t, p, service, model.RoleClient)[0].Counters
		return c.Aborts == 2 && c.InFlight() == 0
	})
}

// Whatever comes to port 53, names stay printable and few, and nothing is counted twice.
func TestDNSOfHostilePackets(t *testing.T) {
	p := openShared(t)
	server, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 53, 5), Port: 53})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	client, err := net.DialUDP("udp", nil, server.LocalAddr().(*net.UDPAddr))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	rnd := rand.New(rand.NewPCG(5, 3))
	buffer := make([]byte, 2048)
	const n = 3000
	bytes := uint64(0)
	for i := range n {
		packet := query(t, uint16(i), fmt.Sprintf("host-%d.example.", rnd.IntN(1000)), dnsmessage.TypeA)
		switch i % 4 {
		case 0: // any bytes
			packet = packet[:rnd.IntN(len(packet)+1)]
			for j := range packet {
				packet[j] = byte(rnd.Uint32())
			}
		case 1: // a lying length, or a pointer
			packet[12+rnd.IntN(len(packet)-12)] = byte(rnd.Uint32())
		case 2: // cut short
			packet = packet[:rnd.IntN(len(packet)+1)]
		case 3:
			packet = append(packet[:12], make([]byte, rnd.IntN(1000))...)
			for j := range packet[12:] {
				packet[12+j] = byte(rnd.IntN(64))
			}
		}
		client.Write(packet)
		bytes += uint64(len(packet))
		got, from, err := server.ReadFromUDPAddrPort(buffer)
		if err != nil {
			t.Fatal(err)
		}
		if got > 2 {
			buffer[2] |= 0x80
		}
		server.WriteToUDPAddrPort(buffer[:got], from)
		client.Read(buffer)
	}
	e := udpEdgesAt(t, p, server.LocalAddr().(*net.UDPAddr).AddrPort(), model.RoleClient)[0]
	if c := e.Counters; c.SentPackets != n || c.ReceivedPackets != n || c.SentBytes != bytes || c.Replies > n {
		t.Errorf("counted %+v, want %d packets of %d bytes", c, n, bytes)
	}
	if len(e.Endpoints) == 0 || len(e.Endpoints) > 64+16 {
		t.Errorf("%d endpoints", len(e.Endpoints))
	}
	for _, p := range e.Endpoints {
		if len(p.Name) > 47 || strings.ContainsFunc(p.Name, func(r rune) bool { return r < ' ' || r > '~' }) || p.Name == "" {
			t.Errorf("name %q", p.Name)
		}
	}
}
