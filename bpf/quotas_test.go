package bpf

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"strconv"
	"testing"

	"outsight/internal/model"
)

// manyListeners listens at as many loopback addresses as its environment says, and asks each of them once over a
// connection that stays open.
func manyListeners() int {
	n, _ := strconv.Atoi(os.Getenv(listenersVariable))
	if err := listenAndAsk(n); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println("ready")
	bufio.NewReader(os.Stdin).ReadByte()
	return 0
}

const listenersVariable = "OUTSIGHT_TEST_LISTENERS"

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
	flooder := newGroup(t, "flood")
	cmd := flooder.workload("listen", listenersVariable+"="+strconv.Itoa(many))
	in, out := startTalking(t, cmd)
	defer cmd.Wait()
	defer in.Close()
	if line, err := out.ReadString('\n'); err != nil {
		t.Fatalf("the flood said %q: %v", line, err)
	}
	if err := errorOf(p.ReadEdges()); err != nil {
		t.Fatal(err)
	}
	quiet := newGroup(t, "quiet")
	other := quiet.workload("listen", listenersVariable+"="+strconv.Itoa(few))
	otherIn, otherOut := startTalking(t, other)
	defer other.Wait()
	defer otherIn.Close()
	if line, err := otherOut.ReadString('\n'); err != nil {
		t.Fatalf("the other said %q: %v", line, err)
	}

	edges, err := p.ReadEdges()
	if err != nil {
		t.Fatal(err)
	}
	listeners, err := p.ReadListeners()
	if err != nil {
		t.Fatal(err)
	}
	type sum struct{ edges, bytes, requests, opens int }
	sums := map[model.CgroupID]map[model.Role]sum{flooder.id(t): {}, quiet.id(t): {}}
	for _, e := range edges {
		if of := sums[e.Key.Owner]; of != nil {
			s := of[e.Key.Role]
			of[e.Key.Role] = sum{s.edges + 1, s.bytes + int(e.Counters.SentBytes), s.requests + int(e.Counters.Requests), s.opens + int(e.Counters.Opens)}
		}
	}
	for _, role := range []model.Role{model.RoleClient, model.RoleServer} {
		s := sums[flooder.id(t)][role]
		if s.bytes != many*len(request) || s.requests != many || s.opens != many {
			t.Errorf("the flood's %vs counted %+v, want %d connections of %d bytes", role, s, many, len(request))
		}
		if want := (sum{few, few * len(request), few, few}); sums[quiet.id(t)][role] != want {
			t.Errorf("the other's %vs counted %+v, want %+v", role, sums[quiet.id(t)][role], want)
		}
	}
	if n := sums[flooder.id(t)][model.RoleClient].edges + sums[flooder.id(t)][model.RoleServer].edges; n > 64+64/8+2 {
		t.Errorf("the flood has %d edges, want at most its quota of 64, an eighth of it, and two sums", n)
	}
	listening := map[model.CgroupID]int{}
	for _, l := range listeners {
		listening[l.Owner]++
	}
	if listening[flooder.id(t)] != 128 || listening[quiet.id(t)] != few {
		t.Errorf("%d and %d listeners are known, want a quota of 128 and %d", listening[flooder.id(t)], listening[quiet.id(t)], few)
	}
	told := map[string]bool{}
	for _, o := range p.ReadOverQuota() {
		if o.Owner == quiet.id(t) {
			t.Errorf("the other is said to be over its quota of %s", o.Of)
		}
		told[o.Of] = told[o.Of] || o.Owner == flooder.id(t)
	}
	if !told["edges"] || !told["listeners"] {
		t.Errorf("over its quotas the flood is said to be: %v, want edges and listeners", told)
	}
}

func errorOf(_ []model.KernelEdge, err error) error { return err }
