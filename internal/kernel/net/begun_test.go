package net

import (
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"outsight/internal/kernel/host"
	"outsight/internal/kernel/kerneltest"
	"outsight/internal/model"
)

func readBegun(t *testing.T, m *ebpf.Map) (b edgesBegun) {
	t.Helper()
	if err := m.Lookup(uint32(0), &b); err != nil {
		t.Fatal(err)
	}
	return b
}

// since are the numbers of the entries that have begun after so many, by their indexes.
func (b *edgesBegun) since(t *testing.T, count uint64) map[uint32]uint64 {
	t.Helper()
	all := map[uint32]uint64{}
	for n := count + 1; n <= b.Count; n++ {
		w := b.Entries[n%uint64(len(b.Entries))]
		if w>>32 != n {
			t.Fatalf("at the place of number %d is %d", n, w>>32)
		}
		all[uint32(w)] = n
	}
	return all
}

// TestWhatHasBegunIsListed: both ends of an edge and their endpoints are listed when they begin, each once, with the number
// that an endpoint has; an endpoint that was given up has none, and its place gets another one.
func TestWhatHasBegunIsListed(t *testing.T) {
	p := open(t, Options{})
	o := p.edges.objects
	edgesBefore, endpointsBefore := readBegun(t, o.EdgesBegun), readBegun(t, o.EndpointsBegun)
	service := pong(t, okay)
	port := service.(*net.TCPAddr).AddrPort().Port()
	conn := kerneltest.Dial(t, service.String())
	defer conn.Close()
	for range 3 {
		fmt.Fprint(conn, "GET /begun HTTP/1.1\r\n\r\n")
		if _, err := io.ReadFull(conn, make([]byte, len(okay))); err != nil {
			t.Fatal(err)
		}
	}
	endpointsOf(t, p, port, model.RoleServer)
	begun := readBegun(t, o.EdgesBegun)
	roles := map[uint8]uint32{}
	for index := range begun.since(t, edgesBefore.Count) {
		var e edgesEdge
		if err := o.Edges.Lookup(index, &e); err != nil {
			t.Fatal(err)
		}
		if e.Key.Port == port && e.Used != 0 {
			roles[e.Key.Role] = index
		}
	}
	if len(roles) != 2 {
		t.Fatalf("of the two ends %v have begun", roles)
	}
	begun = readBegun(t, o.EndpointsBegun)
	listed := begun.since(t, endpointsBefore.Count)
	var mine []int
	for index := range p.edges.endpoints.endpoints.Entries {
		e := &p.edges.endpoints.endpoints.Entries[index]
		if e.Used == 0 || e.Key.Edge != roles[1] && e.Key.Edge != roles[2] {
			continue
		}
		mine = append(mine, index)
		var of edgesEdge
		if err := o.Edges.Lookup(e.Key.Edge, &of); err != nil {
			t.Fatal(err)
		}
		if number := listed[uint32(index)]; number == 0 || number != e.Begun || e.EdgeGeneration != of.Generation {
			t.Errorf("endpoint %d has number %d of an edge of generation %d, listed is %d, and the edge's is %d", index, e.Begun,
				e.EdgeGeneration, number, of.Generation)
		}
	}
	if len(mine) != 2 {
		t.Fatalf("%d endpoints, want one at each end", len(mine))
	}
	later := time.Now().Add(idleTime + time.Second)
	for range 2 {
		p.edges.endpoints.release(later, true, nil)
	}
	for _, index := range mine {
		if n := host.Load(&p.edges.endpoints.endpoints.Entries[index].Begun); n != 0 {
			t.Errorf("endpoint %d was given up and has number %d", index, n)
		}
	}
}
