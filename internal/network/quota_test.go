package network

import (
	"fmt"
	"testing"
	"time"

	"outsight/internal/model"
)

// flooded is a world in which container flood talks to itself at many addresses, and container quiet asks it once.
func flooded(addresses int) *world {
	w := newWorld()
	w.docker("flood", 10, 100, "172.17.0.2")
	w.docker("quiet", 20, 200, "172.17.0.3")
	for i := range addresses {
		at := fmt.Sprintf("127.0.%d.%d:80", i/250, i%250+1)
		w.dials(10, 100, at, 3)
		w.by(fmt.Sprintf("client-%d", i), fmt.Sprintf("server-%d", i))
		w.serves(10, 100, at, "127.0.0.1", 10, 3)
		w.by(fmt.Sprintf("server-%d", i), fmt.Sprintf("client-%d", i))
	}
	w.dials(20, 200, "172.17.0.2:80", 7)
	w.serves(10, 100, "172.17.0.2:80", "172.17.0.3", 20, 7)
	return w
}

func sums(edges []model.Edge) (edgesOf map[string]int, bytesOf map[string]uint64) {
	edgesOf, bytesOf = map[string]int{}, map[string]uint64{}
	for _, e := range edges {
		of := e.Client
		if e.Side == model.RoleServer {
			of = e.Server
		}
		edgesOf[of.Name()]++
		bytesOf[of.Name()] += e.Counters.SentBytes
	}
	return edgesOf, bytesOf
}

// TestQuotaOfContainerEdges: however many edges a container makes, it shows its quota of them, all that it counted
// is in the sum, and the edges of others are there.
func TestQuotaOfContainerEdges(t *testing.T) {
	const addresses, most = 1000, 64
	w := flooded(addresses)
	r := New(Options{MaxContainerEdges: most})
	v := w.view()
	v.Time = time.Unix(1000, 0)
	for range 3 {
		edgesOf, bytesOf := sums(r.Resolve(v))
		// The first, the quota, a quarter without processes, and one of others for each role.
		if n := edgesOf["flood"]; n > 1+most+most/reservedShare+2 {
			t.Errorf("the flood has %d edges", n)
		}
		if want := uint64(2*3*addresses + 7); bytesOf["flood"] != want {
			t.Errorf("the flood counted %d bytes, want %d", bytesOf["flood"], want)
		}
		if edgesOf["quiet"] != 1 || bytesOf["quiet"] != 7 {
			t.Errorf("the other has %d edges of %d bytes, want 1 of 7", edgesOf["quiet"], bytesOf["quiet"])
		}
		v.Time = v.Time.Add(time.Second)
	}
	var told uint64
	for _, d := range r.Drops() {
		if d.Name == "container-new-edges/flood" {
			told = d.Count
		}
	}
	if told == 0 {
		t.Error("no drop names the container")
	}

	// What comes and goes is new each time.
	known := map[string]bool{}
	for i := range 600 {
		w := flooded(0)
		w.dials(10, 100, fmt.Sprintf("198.51.100.%d:%d", i%250, 1000+i), 1)
		v := w.view()
		v.Time = time.Unix(2000+int64(i), 0)
		for _, e := range r.Resolve(v) {
			if e.Side == model.RoleClient && e.Client.Name() == "flood" {
				known[e.Service.String()] = true
			}
		}
	}
	if len(known) > 2*most {
		t.Errorf("%d edges were made in ten minutes", len(known))
	}
}

// TestNamesOfTheOtherEnd: a client that changes the name of its process all the time does not use up what its server
// may have: another client of it has an edge of its own.
func TestNamesOfTheOtherEnd(t *testing.T) {
	const names, most = 1000, 64
	w := flooded(0)
	w.edges = nil
	w.docker("victim", 30, 300, "172.17.0.4")
	serve := func(client model.CgroupID, address, process string, n uint64) {
		w.serves(30, 300, "172.17.0.4:80", address, client, n)
		w.by("nginx", process)
	}
	for i := range names {
		serve(10, "172.17.0.2", fmt.Sprintf("name-%d", i), 3)
	}
	serve(20, "172.17.0.3", "curl", 7)
	bytes := map[string]uint64{}
	for _, e := range New(Options{MaxContainerEdges: most}).Resolve(w.view()) {
		bytes[e.Client.Name()] += e.Counters.SentBytes
	}
	if bytes["flood"] != 3*names || bytes["quiet"] != 7 || len(bytes) != 2 {
		t.Errorf("by clients the server counted %v, want %d and 7", bytes, 3*names)
	}
}

// TestFirstEdgeHasRoom: where all containers together have made as many edges as there may be in an hour, one that
// comes has its first edge.
func TestFirstEdgeHasRoom(t *testing.T) {
	w := flooded(200)
	r := New(Options{MaxNewEdges: 10})
	v := w.view()
	r.Resolve(v)
	w.docker("late", 30, 300, "172.17.0.4")
	w.dials(30, 300, "198.51.100.1:443", 5)
	edges, _ := sums(r.Resolve(w.view()))
	for _, d := range r.Drops() {
		if d.Name == "network new edges" && (d.Count == 0 || d.Used != 10) {
			t.Errorf("%+v, want all ten used and more refused", d)
		}
	}
	if edges["late"] != 1 || edges["quiet"] != 1 {
		t.Errorf("edges %v, want one of each who came", edges)
	}
	for _, e := range r.Resolve(w.view()) {
		if e.Client.Name() == "late" && e.Service.String() != "198.51.100.1:443" {
			t.Errorf("the first edge is of %s", e.Service)
		}
	}
}

// TestOthersOfTheKernel: what the kernel counted beyond a quota is the counting end's edge with others.
func TestOthersOfTheKernel(t *testing.T) {
	w := flooded(0)
	for _, role := range []model.Role{model.RoleClient, model.RoleServer} {
		w.edges = append(w.edges, model.KernelEdge{
			Key: model.KernelEdgeKey{Owner: 10, Role: role, Others: true}, Instance: uint32(role), Counters: counted(9)})
	}
	expect(t, New(Options{}).Resolve(w.view()),
		"client flood -> others invalid AddrPort 9/9",
		"client quiet -> flood 172.17.0.2:80 7/7 *",
		"server quiet -> flood 172.17.0.2:80 7/7 *",
		"server others -> flood invalid AddrPort 9/9")
}

// TestQuotaOfContainerEndpoints: routes that differ by request are "other" once a container has had its quota of
// them, on whatever edge; their number is kept.
func TestQuotaOfContainerEndpoints(t *testing.T) {
	const edges, routes, most = 30, 50, 100
	w := newWorld()
	w.docker("flood", 10, 100, "172.17.0.2")
	for i := range edges {
		w.dials(10, 100, fmt.Sprintf("198.51.100.%d:80", i), 0)
		for k := range routes {
			w.edges[i].Endpoints = append(w.edges[i].Endpoints, endpoint(fmt.Sprintf("GET /%d", k), 2))
		}
	}
	names, requests := 0, uint64(0)
	for _, e := range New(Options{MaxContainerEdges: most}).Resolve(w.view()) {
		names += len(e.Endpoints)
		for _, p := range e.Endpoints {
			requests += p.Transactions()
		}
	}
	if names > 2*most+edges || requests != 2*edges*routes {
		t.Errorf("%d endpoints with %d requests, want at most %d with %d", names, requests, 2*most+edges, 2*edges*routes)
	}
}
