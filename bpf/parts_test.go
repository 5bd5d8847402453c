package bpf

import (
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"outsight/internal/model"
)

func partNames(p *Probes) (names []string) {
	for _, part := range p.Parts() {
		names = append(names, part.Name)
	}
	return names
}

func shed(t *testing.T, p *Probes, part string) {
	t.Helper()
	if err := p.Shed(part); err != nil {
		t.Fatal(err)
	}
}

func restore(t *testing.T, p *Probes, part string) {
	t.Helper()
	if err := p.Restore(part); err != nil {
		t.Fatal(err)
	}
}

// While switches are shed a group's CPU time stands still; afterwards it goes on from there, and
// neither the time between nor the waits in it are counted at once.
func TestShedSwitches(t *testing.T) {
	p := open(t, Options{WithoutEndpoints: true})
	if !slices.Contains(partNames(p), "switches") {
		t.Fatalf("parts: %v", partNames(p))
	}
	g := newGroup(t, "shed")
	g.start(t, "spin8") // more threads than CPUs: they wait for each other
	eventually(t, "waits are counted", func() bool { return readGroup(t, p, g.id(t)).CPU.RunQueue != nil })
	shed(t, p, "switches")
	before := readGroup(t, p, g.id(t)).CPU
	begun := time.Now()
	time.Sleep(time.Second) // in which nothing is counted
	if during := readGroup(t, p, g.id(t)).CPU; during.UsageNS != before.UsageNS || during.Involuntary != before.Involuntary {
		t.Errorf("%d ns in %d switches without a program, before it %d in %d", during.UsageNS, during.Involuntary, before.UsageNS, before.Involuntary)
	}
	hidden := time.Since(begun)
	restore(t, p, "switches")
	back := time.Now()
	eventually(t, "switches are counted again", func() bool {
		c := readGroup(t, p, g.id(t)).CPU
		return c.UsageNS > before.UsageNS && c.Involuntary > before.Involuntary+20
	})
	after := readGroup(t, p, g.id(t)).CPU
	seen := time.Since(back) + 20*time.Millisecond
	if ran, most := time.Duration(after.UsageNS-before.UsageNS), time.Duration(p.kernel.cpus)*seen; ran > most {
		t.Errorf("%v in %v since it is counted again; not counted were %v", ran, seen, hidden)
	}
	// Eight threads could have waited for all of the hidden time; what they wait since is all there may be.
	if waited, most := time.Duration(after.RunQueue.SumNS-before.RunQueue.SumNS), 8*seen; waited > most {
		t.Errorf("%v of waits in %v since they are counted again; not counted were %v", waited, seen, hidden)
	}
}

// What happens on a connection while transfers are shed is not guessed afterwards.
func TestShedTransfers(t *testing.T) {
	p := openWith(t, Options{LogTransactions: 1024})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				buffer := make([]byte, 100)
				for { // io.Copy would splice, which no hook sees
					n, err := c.Read(buffer)
					if err != nil {
						return
					}
					if _, err := c.Write(buffer[:n]); err != nil {
						return
					}
				}
			}()
		}
	}()
	connect := func() net.Conn {
		c, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	ask := func(c net.Conn) {
		t.Helper()
		buffer := make([]byte, 100)
		if _, err := c.Write(buffer); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, buffer); err != nil {
			t.Fatal(err)
		}
	}
	port := uint16(listener.Addr().(*net.TCPAddr).Port)
	sums := func() (clients, servers model.EdgeCounters) {
		all, err := p.ReadEdges()
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range all {
			to := &clients
			if e.Key.Role == model.RoleServer {
				to = &servers
			}
			if e.Key.Service.Port() == port {
				to.Requests += e.Counters.Requests
				to.SentBytes += e.Counters.SentBytes
				to.Pushes += e.Counters.Pushes
			}
		}
		return clients, servers
	}
	whole, waiting := connect(), connect()
	for range 10 {
		ask(whole)
	}
	// A request that is under way when transfers are shed, and answered meanwhile.
	if _, err := waiting.Write(make([]byte, 50)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(waiting, make([]byte, 50)); err != nil {
		t.Fatal(err)
	}
	shed(t, p, "transfers")
	clients, servers := sums()
	if clients.SentBytes != 1050 || servers.SentBytes != 1050 || clients.Requests != 11 {
		t.Fatalf("%+v and %+v", clients, servers)
	}
	for range 7 {
		ask(whole)
		ask(waiting)
	}
	opened := connect()
	ask(opened)
	if now, _ := sums(); now.SentBytes != clients.SentBytes || now.Requests != clients.Requests {
		t.Errorf("counted without a program: %+v", now)
	}
	if _, err := p.Transactions(); err != nil { // what was logged before
		t.Fatal(err)
	}
	again := monotonicNS()
	restore(t, p, "transfers")
	for range 5 {
		ask(whole)
		ask(waiting)
		ask(opened)
	}
	now, served := sums()
	if got := now.SentBytes - clients.SentBytes; got != 1500 {
		t.Errorf("%d bytes of requests, want 1500", got)
	}
	if got := served.SentBytes - servers.SentBytes; got != 1500 {
		t.Errorf("%d bytes of replies, want 1500", got)
	}
	if got := now.Requests - clients.Requests; got != 15 {
		t.Errorf("%d requests, want 15", got)
	}
	logged, err := p.Transactions()
	if err != nil {
		t.Fatal(err)
	}
	timed := 0
	for _, l := range logged {
		switch {
		case l.Edge.Service.Port() != port || l.Edge.Role != model.RoleClient:
		case l.FirstNS >= again:
			timed++
		case l.LastNS >= again:
			t.Errorf("a transaction took %v, over the time in which nothing was counted", l.Latency())
		}
	}
	// The last one on each connection is not ended yet.
	if timed < 12 {
		t.Errorf("%d transactions were timed, want 12 to 15", timed)
	}
	if now.Pushes != 0 || served.Pushes != 0 {
		t.Errorf("%d and %d pushes, want none", now.Pushes, served.Pushes)
	}
}
