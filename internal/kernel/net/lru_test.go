package net

import (
	"bufio"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"outsight/internal/kernel/kerneltest"
	"outsight/internal/model"
)

func dropOf(t *testing.T, p *Net, name string) model.Drop {
	t.Helper()
	for _, d := range p.Drops() {
		if d.Name == name {
			return d
		}
	}
	t.Fatalf("there is no drop %s", name)
	return model.Drop{}
}

// expectGone wants so many entries of a table to have been evicted, of which the programs that count made more
// than there is room for. Others on this host may make some too.
func expectGone(t *testing.T, p *Net, name string, made uint64, look func()) {
	t.Helper()
	look()
	look()
	d := dropOf(t, p, name)
	if d.Used > d.Capacity || d.Count+d.Used < made || d.Count > made+d.Capacity {
		t.Errorf("%d entries were made: %+v", made, d)
	}
	look()
	if after := dropOf(t, p, name); after.Count < d.Count {
		t.Errorf("of the %d %s that were evicted %d are left", d.Count, name, after.Count)
	}
}

func readTwice(t *testing.T, p *Net) {
	t.Helper()
	for range 2 {
		if _, err := p.ReadEdges(); err != nil {
			t.Fatal(err)
		}
	}
}

// A socket with more peers than there is room for.
func TestEvictedFlowsAreCounted(t *testing.T) {
	const room, peers = 128, 500
	p := open(t, Options{MaxFlows: room})
	client, err := net.ListenUDP("udp", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	send := func(from, to int) {
		for i := from; i < to; i++ {
			client.WriteToUDPAddrPort([]byte("-"),
				netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 9, byte(i / 250), byte(i%250 + 1)}), 9))
		}
	}
	send(0, 20) // the first one's flow is in the socket
	readTwice(t, p)
	if d := dropOf(t, p, "datagram_flows"); d.Count != 0 || d.Used < 19 || d.Capacity != room {
		t.Errorf("with 19 flows: %+v", d)
	}
	send(20, peers)
	expectGone(t, p, "datagram_flows", peers-1, func() { readTwice(t, p) })
}

// Queries that are answered are not evicted.
func TestEvictedQueriesAreCounted(t *testing.T) {
	const room, queries = 128, 300
	p := open(t, Options{MaxFlows: room})
	s := newNameServer(t, "127.0.53.9:53")
	client, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(s.address))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ask := func(id uint16, name string) {
		m := dnsmessage.Message{Header: dnsmessage.Header{ID: id}, Questions: []dnsmessage.Question{
			{Name: dnsmessage.MustNewName(name), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}}}
		query, err := m.Pack()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Write(query); err != nil {
			t.Fatal(err)
		}
	}
	buffer := make([]byte, 1000)
	for id := range uint16(3 * room) {
		ask(id, "answered.test.")
		if _, err := client.Read(buffer); err != nil {
			t.Fatal(err)
		}
	}
	readTwice(t, p)
	if d := dropOf(t, p, "dns_queries"); d.Count != 0 || d.Capacity != room {
		t.Errorf("with a query at a time: %+v", d)
	}
	for id := range uint16(queries) {
		ask(id, "silent.test.")
		if (id+1)%50 == 0 { // the server's end has them too, and room for no more than some hundred that are not read
			kerneltest.Eventually(t, "reading the queries", func() bool { return s.read.Load() == 3*room+int64(id)+1 })
		}
	}
	expectGone(t, p, "dns_queries", 2*queries, func() { readTwice(t, p) })
}

// A client refers to a path that was evicted by those of others.
func TestEvictedPathsAreCounted(t *testing.T) {
	p := openReading(t, Options{Prepare: prepare(t, func(spec *edgesSpecs) { spec.Http2Paths.MaxEntries = 16 })})
	at := serveEchoes(t)
	conn := callEchoes(t, at)
	for range 3 {
		call(t.Context(), conn, "Sleep", 0)
	}
	expect(t, p, portOf(at), map[string]uint64{"POST /test.Echoes/Sleep ok": 3})
	if d := dropOf(t, p, "http2_paths"); d.Count != 0 || d.Capacity != 16 {
		t.Errorf("with one path: %+v", d)
	}
	// Each end keeps the paths of the first round, and refers to them in the second. Which of them are evicted is the
	// kernel's choice, and those that were in use may stay for long.
	const others = 40
	for range 2 {
		for i := range others {
			call(t.Context(), conn, fmt.Sprint("Other", i), 0)
		}
	}
	unnamed := func() uint64 {
		return asked(t, p, portOf(at), model.RoleServer)["unknown unimplemented"] +
			asked(t, p, portOf(at), model.RoleClient)["unknown unimplemented"]
	}
	kerneltest.Eventually(t, "calls of evicted paths have no name", func() bool { return unnamed() >= 2*others-16 })
	kerneltest.Eventually(t, "each call without a name is one evicted path",
		func() bool { return dropOf(t, p, "http2_paths").Count == unnamed() })
}

const pythonPairs = `
import socket, ssl, sys, threading
server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl._create_unverified_context()
server.load_cert_chain(sys.argv[1], sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
kept = []
for _ in range(int(sys.argv[3])):
    a, b = socket.socketpair()
    s, c = (server.wrap_socket(a, server_side=True, do_handshake_on_connect=False),
            client.wrap_socket(b, do_handshake_on_connect=False))
    shaking = threading.Thread(target=s.do_handshake)
    shaking.start()
    c.do_handshake()
    shaking.join()
    c.write(b"x"); s.read(1)
    threading.Thread(target=s.read, args=(1,), daemon=True).start()
    kept.append((s, c))
print("done", flush=True)
sys.stdin.readline()`

// More connections than there is room for, and a call that reads on each of them at once.
func TestEvictedTLSEntriesAreCounted(t *testing.T) {
	const room, connections = 32, 100
	cert, key := certificate(t)
	cmd := exec.Command("python3", "-c", pythonPairs, cert, key, fmt.Sprint(connections))
	in, out := kerneltest.StartTalking(t, cmd)
	defer func() { cmd.Process.Kill(); cmd.Wait() }()
	lines := bufio.NewScanner(out)
	lines.Scan()
	p := open(t, Options{TLS: true, Prepare: prepare(t, func(spec *edgesSpecs) {
		spec.TlsCalls.MaxEntries, spec.TlsConnections.MaxEntries = room, room
	})})
	for _, name := range []string{"tls_calls", "tls_connections"} {
		if d := dropOf(t, p, name); d.Count != 0 || d.Capacity != room {
			t.Errorf("before: %+v", d)
		}
	}
	fmt.Fprintln(in)
	if lines.Scan(); lines.Text() != "done" {
		t.Fatalf("python said %q", lines.Text())
	}
	time.Sleep(100 * time.Millisecond) // the last thread begins to read
	for _, name := range []string{"tls_calls", "tls_connections"} {
		expectGone(t, p, name, connections, p.tls.look)
	}
}
