package net

import (
	"io"
	"net"
	"testing"

	"outsight/internal/kernel/kerneltest"
	"outsight/internal/model"
	"outsight/internal/monotonic"
)

// What happens on a connection while transfers are shed is not guessed afterwards.
func TestShedTransfers(t *testing.T) {
	p := openReading(t, Options{LogTransactions: 1024})
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
	kerneltest.Shed(t, p, "transfers")
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
	again := monotonic.Now()
	kerneltest.Restore(t, p, "transfers")
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

// A program that the kernel refuses costs its feature and no other.
func TestRefusedProgram(t *testing.T) {
	p := open(t, Options{})
	spec, err := loadEdges()
	if err != nil {
		t.Fatal(err)
	}
	for name, m := range p.edges.objects.collection.Maps {
		spec.Maps[name].MaxEntries = m.MaxEntries()
	}
	spec.Programs[retransmitHook.Program].AttachTo = "no_such_tracepoint"
	if err := p.Attach(kerneltest.Kernel(t), spec, p.edges.objects.collection, retransmitHook); err == nil {
		t.Error("attached to a tracepoint that does not exist")
	}
	features := p.Features()
	last := features[len(features)-1]
	if last.State != model.FeatureAbsent || last.Reason == "" || last.Remedy != retransmitHook.Remedy {
		t.Errorf("got %+v, want it absent, with reason and remedy", last)
	}
	if _, err := p.ReadEdges(); err != nil {
		t.Errorf("the rest: %v", err)
	}
}
