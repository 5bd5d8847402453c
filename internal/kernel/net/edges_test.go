package net

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"outsight/internal/kernel/kerneltest"
	"outsight/internal/model"
)

const (
	requestBytes = 100
	replyBytes   = 4000
)

// echoServer answers each request of requestBytes with a reply of replyBytes, in two writes with
// a pause between them, until its listener is closed.
func echoServer(t *testing.T, address string, pause time.Duration) *net.TCPListener {
	t.Helper()
	listener := kerneltest.Listen(t, address)
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				request, reply := make([]byte, requestBytes), make([]byte, replyBytes)
				for {
					if _, err := io.ReadFull(conn, request); err != nil {
						return
					}
					conn.Write(reply[:replyBytes/2])
					time.Sleep(pause)
					conn.Write(reply[replyBytes/2:])
				}
			}()
		}
	}()
	return listener.(*net.TCPListener)
}

// ask makes n requests, one after another, each in two writes.
func ask(conn net.Conn, n int) error {
	request, reply := make([]byte, requestBytes), make([]byte, replyBytes)
	for range n {
		conn.Write(request[:1])
		conn.Write(request[1:])
		if _, err := io.ReadFull(conn, reply); err != nil {
			return err
		}
	}
	return nil
}

// edge returns the one edge of a service at one end, nil if there is none. Attempts that failed
// are an edge without a peer; they are added to the one that has it.
func edge(t *testing.T, p *Net, service net.Addr, role model.Role) *model.KernelEdge {
	t.Helper()
	all, err := p.ReadEdges()
	if err != nil {
		t.Fatal(err)
	}
	want := service.(*net.TCPAddr).AddrPort()
	var found *model.KernelEdge
	for i, e := range all {
		if e.Key.Service.Port() == want.Port() && e.Key.Role == role {
			switch {
			case found == nil:
				found = &all[i]
			case e.Key.Peer == 0:
				found.Counters.Add(&all[i].Counters)
			case found.Key.Peer == 0:
				all[i].Counters.Add(&found.Counters)
				found = &all[i]
			default:
				t.Fatalf("two edges: %+v and %+v", found.Key, e.Key)
			}
		}
	}
	return found
}

// counters are those of a service's one edge at one end; all are zero if there is none.
func counters(t *testing.T, p *Net, service net.Addr, role model.Role) (c model.EdgeCounters) {
	t.Helper()
	if e := edge(t, p, service, role); e != nil {
		c = e.Counters
	}
	return c
}

// counts waits until the counters of a service's edge at one end are as they should be, and fails with what they are
// as soon as they do not change any more.
func counts(t *testing.T, p *Net, service net.Addr, role model.Role, what string,
	so func(c model.EdgeCounters) bool) {
	t.Helper()
	c := kerneltest.ReadUntil(func() model.EdgeCounters { return counters(t, p, service, role) }, so)
	if !so(c) {
		t.Fatalf("%s: the %v's counters stay at %s", what, role, described(c))
	}
}

// described are the counters that are not zero.
func described(c model.EdgeCounters) string {
	text := fmt.Sprintf("%d transactions", c.Transactions())
	v := reflect.ValueOf(c)
	for i := range v.NumField() {
		if f := v.Field(i); !f.IsZero() {
			if f.Kind() == reflect.Pointer {
				f = f.Elem()
			}
			text += fmt.Sprintf(", %s %+v", v.Type().Field(i).Name, f)
		}
	}
	return text
}

func TestCountsAreExact(t *testing.T) {
	for _, c := range []struct {
		name, address         string
		connections, requests int
	}{
		{"kept alive", "127.0.0.1", 20, 250},
		{"one request each", "127.0.0.1", 500, 1},
		{"IPv6", "::1", 20, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := openShared(t)
			server := echoServer(t, c.address, 0)
			address := server.Addr().String()
			var clients sync.WaitGroup
			for range c.connections {
				clients.Go(func() {
					conn, err := net.Dial("tcp", address)
					if err != nil {
						t.Error(err)
						return
					}
					defer conn.Close()
					if err := ask(conn, c.requests); err != nil {
						t.Error(err)
					}
				})
			}
			clients.Wait()
			for _, role := range []model.Role{model.RoleServer, model.RoleClient} {
				counts(t, p, server.Addr(), role, "all connections are closed", func(got model.EdgeCounters) bool {
					return got.Closes >= uint64(c.connections)
				})
			}
			n := uint64(c.connections * c.requests)
			for _, role := range []model.Role{model.RoleClient, model.RoleServer} {
				e := edge(t, p, server.Addr(), role)
				want := model.EdgeCounters{
					SentBytes: n * requestBytes, ReceivedBytes: n * replyBytes,
					Opens: uint64(c.connections), Closes: uint64(c.connections),
					Requests: n, Replies: n,
				}
				if role == model.RoleServer {
					want.SentBytes, want.ReceivedBytes = want.ReceivedBytes, want.SentBytes
				}
				if got := e.Counters.Transactions(); got != n {
					t.Errorf("%v: %d transactions, want %d", role, got, n)
				}
				got := e.Counters
				if h := got.TimeToFirstByte; h == nil || h.Count != n {
					t.Errorf("%v: the times to the first byte are %+v, want %d entries", role, h, n)
				}
				// At least one of each connection, and no more than one in ten milliseconds.
				if h := got.RTT; h == nil || h.Count < uint64(c.connections) || h.Count > n {
					t.Errorf("%v: the round trips are %+v, want %d to %d entries", role, h, c.connections, n)
				}
				if got.Duration == nil || got.Duration.Count != uint64(c.connections) {
					t.Errorf("%v: durations are %+v, want %d", role, got.Duration, c.connections)
				}
				if got.RTTMinNS == 0 || got.RTTMinNS > uint64(kerneltest.Patience()) {
					t.Errorf("%v: the least round trip took %v", role, time.Duration(got.RTTMinNS))
				}
				if n := got.Packets; n.SentBytes < got.SentBytes || n.ReceivedBytes != got.ReceivedBytes {
					t.Errorf("%v: other data in packets than in calls: %+v", role, got)
				}
				got.Latency, got.TimeToFirstByte, got.RTT, got.Duration = nil, nil, nil, nil
				got.Packets = model.PacketCounters{} // TestPacketsOfConnectionsAreExact
				got.Retransmits, got.JitterSumNS, got.RTTMinNS, got.WindowLimitedNS, got.SendLimitedNS = 0, 0, 0, 0, 0
				if kerneltest.Emulated() { // may take its time over a reply
					want.Held, want.Transfers, want.Continued = got.Held, got.Transfers, got.Continued
				}
				if got != want {
					t.Errorf("%v: counted %+v, want %+v", role, got, want)
				}
				if e.Key.Owner != kerneltest.OwnCgroup(t) {
					t.Errorf("%v: owner %d, want %d", role, e.Key.Owner, kerneltest.OwnCgroup(t))
				}
				if role == model.RoleServer && e.Key.Peer != kerneltest.OwnCgroup(t) {
					t.Errorf("the server's peer is %d, want %d", e.Key.Peer, kerneltest.OwnCgroup(t))
				}
			}
		})
	}
}

// The reply's second half comes 50 ms after its first; both ends must wait for the last byte.
func TestLatencyReachesToTheLastByte(t *testing.T) {
	p := openShared(t)
	server := echoServer(t, "127.0.0.1", 50*time.Millisecond)
	conn := kerneltest.Dial(t, server.Addr().String())
	start := time.Now()
	if err := ask(conn, 10); err != nil {
		t.Fatal(err)
	}
	whole := time.Since(start)
	conn.Close()
	counts(t, p, server.Addr(), model.RoleServer, "the connection is closed", func(c model.EdgeCounters) bool {
		return c.Closes == 1
	})
	for _, role := range []model.Role{model.RoleClient, model.RoleServer} {
		latency := edge(t, p, server.Addr(), role).Counters.Latency
		if latency.Quantile(0) < 0.050*(1-model.RelativeError) {
			t.Errorf("%v: a transaction of %v s, each took at least 50 ms", role, latency.Quantile(0))
		}
		if latency.SumNS > uint64(whole) {
			t.Errorf("%v: transactions of %v in %v", role, time.Duration(latency.SumNS), whole)
		}
	}
}

func TestLastReplyIsCountedWithoutAnotherRequest(t *testing.T) {
	p := openShared(t)
	server := echoServer(t, "127.0.0.1", 0)
	conn := kerneltest.Dial(t, server.Addr().String())
	for round := uint64(1); round <= 2; round++ {
		if err := ask(conn, 1); err != nil {
			t.Fatal(err)
		}
		for _, role := range []model.Role{model.RoleServer, model.RoleClient} {
			counts(t, p, server.Addr(), role, "the silent reply is counted", func(c model.EdgeCounters) bool {
				return c.Transactions() == round
			})
		}
	}
	if latency := edge(t, p, server.Addr(), model.RoleClient).Counters.Latency; latency.Quantile(1) > 0.5 {
		t.Errorf("the silence is part of a transaction of %v s", latency.Quantile(1))
	}
}

func TestUnansweredAndRefused(t *testing.T) {
	p := openShared(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	conn := kerneltest.Dial(t, silent.Addr().String())
	conn.Write([]byte("hello?"))
	conn.Close()
	counts(t, p, silent.Addr(), model.RoleClient, "the unanswered request shows", func(c model.EdgeCounters) bool {
		return c.Aborts == 1 && c.Transactions() == 0
	})
	silent.Close()
	for range 3 {
		if conn, err := net.Dial("tcp", silent.Addr().String()); err == nil {
			conn.Close()
			t.Fatal("connected to a closed port")
		}
	}
	counts(t, p, silent.Addr(), model.RoleClient, "the refused connections show", func(c model.EdgeCounters) bool {
		return c.Failures == 3 && c.FailuresRefused == 3
	})
}

// A download that flows for over a second is a transfer, and no slow request.
func TestLongDownloadIsATransfer(t *testing.T) {
	p := openShared(t)
	service := kerneltest.Serve(t, func(conn *net.TCPConn) {
		defer conn.Close()
		conn.Read(make([]byte, requestBytes))
		for range 6 {
			conn.Write(make([]byte, 1<<16))
			time.Sleep(250 * time.Millisecond) // slow, and never silent for a second
		}
	})
	conn := kerneltest.Dial(t, service.String())
	conn.Write(make([]byte, requestBytes))
	if n, err := io.Copy(io.Discard, conn); err != nil || n != 6<<16 {
		t.Fatalf("read %d bytes: %v", n, err)
	}
	conn.Close()
	for _, role := range []model.Role{model.RoleClient, model.RoleServer} {
		counts(t, p, service, role, "the transfer is counted", func(c model.EdgeCounters) bool {
			return c.Transfers == 1 && c.Transactions() == 1 && c.Latency.Count == 0 && c.TimeToFirstByte.Count == 1
		})
	}
}

// A server that speaks without being asked makes a stream: its messages are no replies, and what
// the client sends is no request.
func TestPushesMakeAStream(t *testing.T) {
	p := openShared(t)
	service := kerneltest.Serve(t, func(conn *net.TCPConn) {
		defer conn.Close()
		for range 5 {
			conn.Write([]byte("news"))
			conn.Read(make([]byte, 64)) // so that the messages are not joined
		}
	})
	conn := kerneltest.Dial(t, service.String())
	for range 5 {
		conn.Read(make([]byte, 64))
		conn.Write([]byte("ok"))
	}
	conn.Close()
	// The greeting is a push; each answer to a message then is the request for the next one.
	counts(t, p, service, model.RoleServer, "the connection is closed", func(c model.EdgeCounters) bool {
		return c.Closes == 1
	})
	if c := edge(t, p, service, model.RoleServer).Counters; c.Pushes != 1 {
		t.Errorf("a greeting and four replies: %d pushes, want 1", c.Pushes)
	}

	service = kerneltest.Serve(t, func(conn *net.TCPConn) {
		defer conn.Close()
		for range 5 {
			conn.Write([]byte("news"))
			time.Sleep(20 * time.Millisecond)
		}
		conn.Read(make([]byte, 64))
		time.Sleep(200 * time.Millisecond)
		conn.Write([]byte("bye"))
	})
	conn = kerneltest.Dial(t, service.String())
	conn.Read(make([]byte, 4))
	io.ReadFull(conn, make([]byte, 16))
	conn.Write([]byte("quit"))
	io.Copy(io.Discard, conn)
	conn.Close()
	counts(t, p, service, model.RoleServer, "the stream is counted and is no transaction",
		func(c model.EdgeCounters) bool {
			return c.Closes == 1 && c.Pushes == 6 && c.Requests == 0 && c.Transactions() == 0
		})
}

func TestRequestsInFlight(t *testing.T) {
	p := openShared(t)
	answer := make(chan struct{})
	service := kerneltest.Serve(t, func(conn *net.TCPConn) {
		defer conn.Close()
		conn.Read(make([]byte, requestBytes))
		<-answer
		conn.Write([]byte("at last"))
	})
	for range 3 {
		kerneltest.Dial(t, service.String()).Write(make([]byte, requestBytes))
	}
	for _, role := range []model.Role{model.RoleClient, model.RoleServer} {
		counts(t, p, service, role, "three requests wait", func(c model.EdgeCounters) bool { return c.InFlight() == 3 })
	}
	close(answer)
	counts(t, p, service, model.RoleServer, "none waits", func(c model.EdgeCounters) bool { return c.InFlight() == 0 })
}

// The most that were in flight are known, although none are at either of the readings; and only those since the reading before.
func TestMostInFlight(t *testing.T) {
	p := openShared(t)
	const most = 5
	received, answer := make(chan struct{}), make(chan struct{})
	service := kerneltest.Serve(t, func(conn *net.TCPConn) {
		defer conn.Close()
		for {
			if _, err := conn.Read(make([]byte, requestBytes)); err != nil {
				return
			}
			received <- struct{}{}
			<-answer
			conn.Write([]byte("at last"))
		}
	})
	conns := make([]net.Conn, most)
	for i := range conns {
		conns[i] = kerneltest.Dial(t, service.String())
	}
	for _, n := range []int{most, 2, 3} {
		for _, conn := range conns[:n] {
			conn.Write(make([]byte, requestBytes))
		}
		for range n {
			<-received
		}
		for range n {
			answer <- struct{}{}
		}
		for _, conn := range conns[:n] {
			if _, err := conn.Read(make([]byte, requestBytes)); err != nil {
				t.Fatal(err)
			}
		}
		all, err := p.ReadEdges()
		if err != nil {
			t.Fatal(err)
		}
		ends := 0
		for i := range all {
			if e := &all[i]; e.Key.Service.Port() == service.(*net.TCPAddr).AddrPort().Port() && e.Counters.Requests > 0 {
				if ends++; e.MostInFlight != uint64(n) || e.Counters.InFlight() != 0 {
					t.Errorf("%v: the most in flight were %d, now %d are; want %d, 0", e.Key.Role, e.MostInFlight, e.Counters.InFlight(), n)
				}
			}
		}
		if ends != 2 {
			t.Fatalf("%d ends", ends)
		}
	}
}

func TestResetShows(t *testing.T) {
	p := openShared(t)
	service := kerneltest.Serve(t, func(conn *net.TCPConn) {
		conn.Read(make([]byte, requestBytes))
		conn.SetLinger(0)
		conn.Close()
	})
	conn := kerneltest.Dial(t, service.String())
	conn.Write(make([]byte, requestBytes))
	io.Copy(io.Discard, conn)
	conn.Close()
	counts(t, p, service, model.RoleClient, "the reset and the lost request show", func(c model.EdgeCounters) bool {
		return c.Resets == 1 && c.Aborts == 1
	})
}

// The reset comes while the client's one call still sends: its request begins after the close.
func TestResetWithinASend(t *testing.T) {
	p := openShared(t)
	service := kerneltest.Serve(t, func(conn *net.TCPConn) {
		conn.Read(make([]byte, requestBytes))
		conn.SetLinger(0)
		conn.Close()
	})
	conn := kerneltest.Dial(t, service.String()).(*net.TCPConn)
	file, err := conn.File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	const moreThanBuffers = 64 << 20
	// Fd makes the socket block.
	if n, err := syscall.Write(int(file.Fd()), make([]byte, moreThanBuffers)); err != nil || n == moreThanBuffers {
		t.Fatalf("sent %d bytes: %v, want a part of them", n, err)
	}
	counts(t, p, service, model.RoleClient, "the request is counted, and as lost", func(c model.EdgeCounters) bool {
		return c.Requests == 1 && c.Aborts == 1 && c.Resets == 1 && c.Opens == 1 && c.Closes == 1
	})
}

// What a program moves from a socket to a pipe inside of the kernel is not seen, and is missed.
func TestUnseenBytesAreMissed(t *testing.T) {
	p := openShared(t)
	const size = 100_000
	service := kerneltest.Serve(t, func(conn *net.TCPConn) {
		defer conn.Close()
		conn.Write(make([]byte, size))
	})
	conn := kerneltest.Dial(t, service.String())
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	go func() {
		defer w.Close()
		w.ReadFrom(conn) // splice
	}()
	if n, err := io.Copy(io.Discard, r); err != nil || n != size {
		t.Fatalf("moved %d bytes: %v", n, err)
	}
	conn.Close()
	counts(t, p, service, model.RoleClient, "the unseen bytes show", func(c model.EdgeCounters) bool {
		return c.Closes == 1 && c.UnseenBytes+c.ReceivedBytes == size && c.Completeness() < 1
	})
}

func TestConnectionsOlderThanTheProbes(t *testing.T) {
	server := echoServer(t, "127.0.0.1", 0)
	conn := kerneltest.Dial(t, server.Addr().String())
	idle := kerneltest.Dial(t, server.Addr().String())
	for _, c := range []net.Conn{conn, idle} {
		if err := ask(c, 7); err != nil {
			t.Fatal(err)
		}
	}
	p := open(t, Options{})
	for _, role := range []model.Role{model.RoleClient, model.RoleServer} {
		e := edge(t, p, server.Addr(), role)
		if e == nil || e.Counters.Opens != 2 || e.Counters.Transactions() != 0 || e.Key.Owner != kerneltest.OwnCgroup(t) {
			t.Fatalf("%v: two idle connections are %+v", role, e)
		}
	}
	if e := edge(t, p, server.Addr(), model.RoleServer); e.Key.Peer != kerneltest.OwnCgroup(t) {
		t.Errorf("the server's peer is %d, want %d", e.Key.Peer, kerneltest.OwnCgroup(t))
	}
	if err := ask(conn, 5); err != nil {
		t.Fatal(err)
	}
	conn.Close()
	for _, role := range []model.Role{model.RoleServer, model.RoleClient} {
		counts(t, p, server.Addr(), role, "five transactions are counted", func(c model.EdgeCounters) bool {
			return c.Transactions() == 5
		})
	}
}

// The hooks of the two directions are attached one after the other, and requests go on meanwhile.
func TestBusyConnectionsOlderThanTheProbes(t *testing.T) {
	const connections = 4
	server := echoServer(t, "127.0.0.1", 0)
	var stop atomic.Bool
	var running sync.WaitGroup
	t.Cleanup(func() {
		stop.Store(true)
		running.Wait()
	})
	for range connections {
		conn := kerneltest.Dial(t, server.Addr().String())
		running.Go(func() {
			for !stop.Load() {
				if err := ask(conn, 1); err != nil {
					t.Error(err)
					return
				}
			}
			conn.Close()
		})
	}
	p := open(t, Options{})
	both := []model.Role{model.RoleClient, model.RoleServer}
	for _, role := range both {
		counts(t, p, server.Addr(), role, "it counts", func(c model.EdgeCounters) bool {
			return c.Transactions() > 1000
		})
	}
	stop.Store(true)
	running.Wait()
	for _, role := range both {
		counts(t, p, server.Addr(), role, "all are closed", func(c model.EdgeCounters) bool {
			return c.Closes == connections
		})
	}
	client, served := counters(t, p, server.Addr(), model.RoleClient), counters(t, p, server.Addr(), model.RoleServer)
	if client.Pushes != 0 || served.Pushes != 0 {
		t.Errorf("%d and %d pushes, want none", client.Pushes, served.Pushes)
	}
	// Of each connection, one transaction may be under way when counting begins.
	if apart := int64(client.Transactions() - served.Transactions()); apart < -connections || apart > connections {
		t.Errorf("the client counts %d transactions, the server %d", client.Transactions(), served.Transactions())
	}
}

func TestListeners(t *testing.T) {
	before, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := open(t, Options{})
	after, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Fatal(err)
	}
	listens := func(address net.Addr) bool {
		all, err := p.ReadListeners()
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range all {
			if l.Address == address.(*net.TCPAddr).AddrPort() && l.Owner == kerneltest.OwnCgroup(t) {
				return true
			}
		}
		return false
	}
	for _, l := range []net.Listener{before, after} {
		if !listens(l.Addr()) {
			t.Errorf("%v is not listed", l.Addr())
		}
		l.Close()
		if listens(l.Addr()) {
			t.Errorf("%v is closed and still listed", l.Addr())
		}
	}
}

// TestFullTableKeepsTheCounts: clients at more addresses than the table has room for. The counts stay whole, the clients
// of the last are put together, and the overflow shows.
//
// Whatever other programs of the host do meanwhile, they get no more than the quota of their group. With it the table
// is full before the group under test has its own quota, and of the reserve there is left.
func TestFullTableKeepsTheCounts(t *testing.T) {
	const clients, room, quota, others, listenersEach = 120, 512, 128, 3, 60
	p := open(t, Options{MaxEdges: room, MaxGroupEdges: quota, MaxListeners: 1024})
	for n := range others {
		listenIn(t, kerneltest.NewGroup(t, fmt.Sprint("other", n)))(listenersEach)
	}
	g := kerneltest.NewGroup(t, "clients")
	tellToDo(t, g, "clients")(clients)
	var masked uint64
	served := kerneltest.ReadUntil(func() (served uint64) {
		all, err := p.ReadEdges()
		if err != nil {
			t.Fatal(err)
		}
		masked = 0
		for _, e := range all {
			if e.Key.Role == model.RoleServer && e.Key.Owner == g.ID(t) && !e.Key.Others {
				served += e.Counters.Transactions()
				if !e.Key.Client.IsValid() {
					masked += e.Counters.Transactions()
				}
			}
		}
		return served
	}, func(served uint64) bool { return served >= clients })
	if served != clients {
		t.Errorf("%d transactions are counted, want %d", served, clients)
	}
	if masked == 0 {
		t.Error("no client was masked in a table that is too small")
	}
	overflow := slices.IndexFunc(p.Drops(), func(d model.Drop) bool { return d.Name == "edge_clients" })
	if overflow < 0 || p.Drops()[overflow].Count == 0 {
		t.Error("the overflow does not show")
	}
}

// askFromManyAddresses lets a server answer as many clients, one after the other, each at an address of its own.
func askFromManyAddresses(clients int) error {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer server.Close()
	for i := range clients {
		dialer := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(
			netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 1, byte(i + 1)}), 0))}
		client, err := dialer.Dial("tcp", server.Addr().String())
		if err != nil {
			return err
		}
		accepted, err := server.Accept()
		if err != nil {
			return err
		}
		err = exchange(client, accepted)
		client.Close()
		accepted.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// TestMissedClose: a connection that is counted as open and is not there is found out, and
// one that is there stays open.
func TestMissedClose(t *testing.T) {
	p := openShared(t)
	listener := echoServer(t, "127.0.0.1", 0)
	conn := kerneltest.Dial(t, listener.Addr().String())
	defer conn.Close()
	if err := ask(conn, 1); err != nil {
		t.Fatal(err)
	}
	e := edge(t, p, listener.Addr(), model.RoleClient)
	if e.Counters.Opens != 1 || e.Counters.Closes != 0 {
		t.Fatalf("opened %d, closed %d, want 1 and 0", e.Counters.Opens, e.Counters.Closes)
	}
	p.edges.edges.Entries[e.Instance].Opens += 2 // as if two connections had gone without a word
	counts(t, p, listener.Addr(), model.RoleClient, "the two are counted as closed", func(c model.EdgeCounters) bool {
		return c.Closes == 2
	})
	for range 3 {
		if e := edge(t, p, listener.Addr(), model.RoleClient); e.Counters.Closes != 2 {
			t.Fatalf("closed %d, want 2: one is open", e.Counters.Closes)
		}
	}
}

// pairsAt are the pairs of connections to a server's port, by their keys.
func pairsAt(t *testing.T, p *Net, port uint16) map[string][]byte {
	t.Helper()
	found, pairs := make(map[string][]byte), p.edges.objects.Pairs
	key, value := make([]byte, pairs.KeySize()), make([]byte, pairs.ValueSize())
	all := pairs.Iterate()
	for all.Next(&key, &value) {
		// pair.dialled_port follows two groups, three addresses and two names.
		if binary.NativeEndian.Uint16(value[2*8+3*16+2*16:]) == port {
			found[string(key)] = bytes.Clone(value)
		}
	}
	if err := all.Err(); err != nil {
		t.Fatal(err)
	}
	return found
}

// The pairs of connections whose close no program saw are removed, and those of open connections stay:
// of one that is older than the programs, and of new ones.
func TestPairsOfMissedClosesAreRemoved(t *testing.T) {
	const left = 50
	listener := echoServer(t, "127.0.0.1", 0)
	older := kerneltest.Dial(t, listener.Addr().String())
	if err := ask(older, 1); err != nil {
		t.Fatal(err)
	}
	p := open(t, Options{})
	for range 2 {
		conn := kerneltest.Dial(t, listener.Addr().String())
		if err := ask(conn, 1); err != nil {
			t.Fatal(err)
		}
	}
	port := listener.Addr().(*net.TCPAddr).AddrPort().Port()
	there := pairsAt(t, p, port)
	if len(there) != 4 { // the older one's has two names
		t.Fatalf("%d pairs of three connections, want 4", len(there))
	}
	for key, value := range there {
		for i := range left {
			other := []byte(key)
			binary.NativeEndian.PutUint32(other, uint32(i+1))
			if err := p.edges.objects.Pairs.Put(other, value); err != nil {
				t.Fatal(err)
			}
		}
		break
	}
	if n := len(pairsAt(t, p, port)); n != 4+left {
		t.Fatalf("%d pairs, want %d", n, 4+left)
	}
	for range 2 {
		p.edges.pairs.at = time.Time{}
		if _, err := p.ReadEdges(); err != nil {
			t.Fatal(err)
		}
		now := pairsAt(t, p, port)
		for key := range there {
			if now[key] == nil {
				t.Errorf("the pair %x of an open connection was removed", key)
			}
		}
		if len(now) != len(there) {
			t.Errorf("%d pairs are left, want %d", len(now), len(there))
		}
	}
	d := dropOf(t, p, "connection_pairs")
	if d.Used < 4 || d.Used > d.Capacity || d.Capacity != 65536 || d.Count != 0 {
		t.Errorf("%+v", d)
	}
}

// A socket whose attempt to connect has failed may be kept by its program. It is none that is open.
func TestFailedSocketIsNotOpen(t *testing.T) {
	p := openShared(t)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	to := &syscall.SockaddrInet4{Port: closed.Addr().(*net.TCPAddr).Port, Addr: [4]byte{127, 0, 0, 1}}
	if err := syscall.Connect(fd, to); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Fatalf("connecting to a closed port: %v", err)
	}
	e := edge(t, p, closed.Addr(), model.RoleClient)
	if e == nil || e.Counters.Failures != 1 {
		t.Fatalf("the attempt does not show: %+v", e)
	}
	if open := p.edges.edges.Entries[e.Instance].Open; open != 0 {
		t.Errorf("%d connections are open, want 0", open)
	}
}

// TestDataAfterItsEdgeIsGone: a program may read what it was sent long after its connection's end, when the edge was
// given up and its index is another's: it counts where it belongs.
func TestDataAfterItsEdgeIsGone(t *testing.T) {
	const size = 1000
	// Few, so that indexes come again; other groups have no more than their quota of them.
	p := open(t, Options{MaxEdges: 256, MaxGroupEdges: 96})
	service := kerneltest.Serve(t, func(conn *net.TCPConn) {
		conn.Write(make([]byte, size))
		conn.Close()
	})
	conn := kerneltest.Dial(t, service.String()).(*net.TCPConn)
	conn.CloseWrite()
	counts(t, p, service, model.RoleClient, "the connection has ended",
		func(c model.EdgeCounters) bool { return c.Closes == 1 })
	index := edge(t, p, service, model.RoleClient).Instance
	heir := func() *model.KernelEdge {
		t.Helper()
		all, err := p.ReadEdges()
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range all {
			if e.Instance == index {
				return &e
			}
		}
		return nil
	}
	release := func() {
		for range 2 {
			p.edges.release(time.Now().Add(idleTime+time.Second), p.edges.capacity)
			heir()
		}
	}
	release()
	kerneltest.Eventually(t, "another edge has the index", func() bool {
		hold := make(chan struct{})
		other := kerneltest.Serve(t, func(conn *net.TCPConn) {
			defer conn.Close()
			<-hold
		})
		again := kerneltest.Dial(t, other.String())
		again.Write(request)
		if heir() != nil {
			t.Cleanup(func() { close(hold) })
			return true
		}
		again.Close()
		close(hold)
		release()
		return false
	})
	before := heir().Counters.ReceivedBytes
	if n, err := io.ReadFull(conn, make([]byte, size)); err != nil {
		t.Fatalf("read %d bytes: %v", n, err)
	}
	if after := heir().Counters.ReceivedBytes; after > before+uint64(len(request)) {
		t.Errorf("the edge with the index has received %d bytes more", after-before)
	}
	if c := counters(t, p, service, model.RoleClient); c.ReceivedBytes != size || c.Requests != 0 || c.Pushes != 0 {
		t.Errorf("its own edge counted %s, want %d bytes received", described(c), size)
	}
}
