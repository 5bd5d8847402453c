package net

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"testing"
	"time"

	"outsight/internal/kernel/kerneltest"
	"outsight/internal/model"
)

// manyListeners reads how many loopback addresses to listen at, and asks each of them once over a connection that
// stays open, until its input ends.
func manyListeners() int {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		n, err := strconv.Atoi(lines.Text())
		if err == nil {
			err = listenAndAsk(n)
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
	cmd := g.Workload("listen")
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
			t.Fatalf("who listens said %q: %v", line, err)
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
		answer := make([]byte, len(request))
		for _, step := range []func() (int, error){
			func() (int, error) { return client.Write(request) }, func() (int, error) { return server.Read(answer) },
			func() (int, error) { return server.Write(answer) }, func() (int, error) { return client.Read(answer) },
		} {
			if _, err := step(); err != nil {
				return err
			}
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
		t.Errorf("%d and %d listeners are known, want a quota of 128 and %d", listening[flooder.ID(t)], listening[quiet.ID(t)], few)
	}
	told := map[string]bool{}
	for _, o := range p.ReadOverQuota() {
		if o.Owner == quiet.ID(t) {
			t.Errorf("the other is said to be over its quota of %s", o.Of)
		}
		told[o.Of] = told[o.Of] || o.Owner == flooder.ID(t)
	}
	if !told["edges"] || !told["listeners"] {
		t.Errorf("over its quotas the flood is said to be: %v, want edges and listeners", told)
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
		t.Errorf("%d edges of a group whose container has its quota, and %d of another; want 4 and 22", n[two.ID(t)], n[other.ID(t)])
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
		p.edges.endpoints.release(later, false, p.edges.quotas.crowded[quotaEndpoints])
	}
	if _, err := p.ReadEdges(); err != nil {
		t.Fatal(err)
	}
	send("late")
	if named := send("later"); !named["GET /late"] {
		t.Errorf("after the flood the names are %v, want GET /late among them", named)
	}
}
