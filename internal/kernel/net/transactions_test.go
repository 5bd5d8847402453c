package net

import (
	"net"
	"slices"
	"sync"
	"testing"

	"github.com/cilium/ebpf"

	"outsight/internal/kernel/host"
	"outsight/internal/kernel/kerneltest"
	"outsight/internal/model"
)

// Every logged transaction lies in the bucket in which it was counted, at both ends, and the log
// has no other.
func TestLogAgreesWithTheHistograms(t *testing.T) {
	const connections, requests = 20, 250
	p := open(t, Options{LogTransactions: 1 << 16})
	server := echoServer(t, "127.0.0.1", 0)
	var clients sync.WaitGroup
	for range connections {
		conn := kerneltest.Dial(t, server.Addr().String())
		clients.Go(func() {
			if err := ask(conn, requests); err != nil {
				t.Error(err)
			}
			conn.Close()
		})
	}
	clients.Wait()
	counts(t, p, server.Addr(), model.RoleServer, "the server has closed its ends", func(c model.EdgeCounters) bool {
		return c.Closes == connections
	})
	logged := map[model.KernelEdgeKey]*model.Histogram{}
	all, err := p.Transactions()
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range all {
		h := logged[one.Edge]
		if h == nil {
			h = &model.Histogram{}
			logged[one.Edge] = h
		}
		i := model.BucketOf(one.Latency())
		h.Merge(&model.Histogram{Count: 1, SumNS: uint64(one.Latency()), Offset: i, Buckets: []uint64{1}})
		if one.ReplyNS < one.FirstNS || one.LastNS < one.ReplyNS {
			t.Fatalf("a transaction's times go backwards: %+v", one)
		}
	}
	for _, role := range []model.Role{model.RoleClient, model.RoleServer} {
		e := edge(t, p, server.Addr(), role)
		counted, log := e.Counters.Latency, logged[e.Key]
		if log == nil || log.Count != connections*requests {
			t.Fatalf("%v: the log has %+v, want %d transactions", role, log, connections*requests)
		}
		if counted.ZeroCount != 0 {
			t.Errorf("%v: a round trip within %v", role, model.ZeroThreshold)
		}
		if rest := counted.Since(log); rest.Count != 0 || len(rest.Buckets) != 0 || rest.SumNS != 0 {
			t.Errorf("%v: counted and not logged: %+v", role, rest)
		}
	}
	if dropped := logDrop(t, p); dropped != 0 {
		t.Errorf("%d transactions found no room in the log", dropped)
	}
	again, err := p.Transactions()
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range again {
		if one.Edge.Service == server.Addr().(*net.TCPAddr).AddrPort() {
			t.Fatalf("handed out twice: %+v", one)
		}
	}
}

// A log that overflows says so, and the counts stay whole.
func TestLogOverflowShows(t *testing.T) {
	const requests = 200
	p := open(t, Options{LogTransactions: 1})
	server := echoServer(t, "127.0.0.1", 0)
	conn := kerneltest.Dial(t, server.Addr().String())
	if err := ask(conn, requests); err != nil {
		t.Fatal(err)
	}
	conn.Close()
	for _, role := range []model.Role{model.RoleServer, model.RoleClient} {
		counts(t, p, server.Addr(), role, "all transactions are counted", func(c model.EdgeCounters) bool {
			return c.Transactions() == requests
		})
	}
	all, err := p.Transactions()
	if err != nil {
		t.Fatal(err)
	}
	if dropped := logDrop(t, p); dropped == 0 || uint64(len(all))+dropped < 2*requests {
		t.Errorf("%d transactions logged and %d dropped, want %d together", len(all), dropped, 2*requests)
	}
}

func logDrop(t *testing.T, p *Net) uint64 {
	t.Helper()
	for _, d := range p.Drops() {
		if d.Name == "transaction_log" {
			return d.Count
		}
	}
	t.Fatal("the log has no drop counter")
	return 0
}

// Where the log is off, its code is not in the loaded program.
func TestLogIsDeadCodeWhenOff(t *testing.T) {
	size := func(o Options) int {
		p := open(t, o)
		for _, l := range p.Programs() {
			if slices.ContainsFunc(dataWays, func(w host.Way) bool { return w[0].Name == l.Name }) {
				return programSize(t, l.Program)
			}
		}
		t.Fatal("no such program")
		return 0
	}
	off, on := size(Options{}), size(Options{LogTransactions: 1 << 16})
	if off >= on {
		t.Errorf("%d bytes of instructions without the log, %d with it", off, on)
	}
}

func programSize(t *testing.T, program *ebpf.Program) int {
	t.Helper()
	info, err := program.Info()
	if err != nil {
		t.Fatal(err)
	}
	size, err := info.TranslatedSize()
	if err != nil {
		t.Fatal(err)
	}
	return size
}
