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
	var found uint64
	for _, d := range r.Drops() {
		if d.Name == "container-new-edges/flood" {
			found = d.Count
		}
	}
	if found == 0 {
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

// TestNamesComeBack: what counted with others when the quota was used up has an edge and endpoints of its own when
// there is room again, also while its connections are in use; no sum goes down, and none counts twice.
func TestNamesComeBack(t *testing.T) {
	const addresses, most = 100, 32
	w := newWorld()
	w.docker("busy", 10, 100, "172.17.0.2")
	for i := range addresses {
		w.dials(10, 100, fmt.Sprintf("198.51.100.%d:80", i), 3)
		w.by(fmt.Sprintf("client-%d", i), "")
	}
	for i := range 2 * most {
		w.edges[0].Endpoints = append(w.edges[0].Endpoints, endpoint(fmt.Sprintf("GET /%d", i), 2))
	}
	w.edges[addresses-1].Endpoints = []model.Endpoint{endpoint("POST /late", 2)}
	r := New(Options{MaxContainerEdges: most})
	v := w.view()
	v.Time = time.Unix(1000, 0)
	before := map[string]uint64{}
	var services, processes map[string]bool
	var late, over uint64
	for round := range 250 {
		services, processes = map[string]bool{}, map[string]bool{}
		bytes, requests := uint64(0), uint64(0)
		for _, e := range r.Resolve(v) {
			key := fmt.Sprint(e.Service, e.Client.Process)
			if e.Counters.SentBytes < before[key] {
				t.Fatalf("round %d: %s went back from %d to %d", round, key, before[key], e.Counters.SentBytes)
			}
			before[key] = e.Counters.SentBytes
			bytes += e.Counters.SentBytes
			if e.Service.IsValid() {
				services[e.Service.String()] = true
				if e.Client.Process != "" {
					processes[e.Client.Process] = true
				}
			}
			for _, p := range e.Endpoints {
				requests += p.Transactions()
				if p.Name == "POST /late" {
					late = p.Transactions()
				}
			}
		}
		if want := uint64(addresses * (3 + round)); bytes != want {
			t.Fatalf("round %d: %d bytes, want %d", round, bytes, want)
		}
		if want := uint64(4*most + 2 + round); requests != want {
			t.Fatalf("round %d: %d requests, want %d", round, requests, want)
		}
		for _, d := range r.Drops() {
			if d.Name == "container-new-edges/busy" {
				if round > 0 && d.Count != over {
					t.Fatalf("round %d: an edge that waits is refused again", round)
				}
				over = d.Count
			}
		}
		if round == 0 && (len(services) > 1+most+most/reservedShare || late != 0) {
			t.Fatalf("%d services have names at first, and %d requests of a late route", len(services), late)
		}
		w.edges = append([]model.KernelEdge(nil), w.edges...)
		for i := range w.edges {
			w.edges[i].Counters = counted(uint64(4 + round))
		}
		w.edges[addresses-1].Endpoints = []model.Endpoint{endpoint("POST /late", uint64(3+round))}
		v = w.view()
		v.Time = time.Unix(1000+120*int64(round+1), 0)
	}
	if len(services) != addresses || len(processes) != addresses {
		t.Errorf("%d services and %d processes have names at last, want %d of each", len(services), len(processes), addresses)
	}
	if late == 0 {
		t.Error("the late route has no name at last")
	}
}

// TestRestartsHaveOneQuota: a container that is gone and comes again, under another id, has what was left of its
// quota; what it would have had more does not go down.
func TestRestartsHaveOneQuota(t *testing.T) {
	const most = 32
	r := New(Options{MaxContainerEdges: most})
	named := map[string]bool{}
	over := uint64(0)
	for i := range 50 {
		w := newWorld()
		w.docker("flood", 10, 100, "172.17.0.2").ID = fmt.Sprintf("id-%d", i)
		for k := range 2 * most {
			w.dials(10, 100, fmt.Sprintf("198.51.%d.%d:80", i, k), 1)
		}
		v := w.view()
		v.Time = time.Unix(1000+2*int64(i), 0)
		for _, e := range r.Resolve(v) {
			named[e.Service.String()] = true
		}
		found := 0
		for _, d := range r.Drops() {
			if d.Name == "container-new-edges/flood" {
				if found++; d.Count < over {
					t.Fatalf("what is over went back from %d to %d", over, d.Count)
				}
				over = d.Count
			}
		}
		if found != 1 {
			t.Fatalf("%d drops have one name", found)
		}
		w = newWorld()
		v = w.view()
		v.Time = time.Unix(1001+2*int64(i), 0)
		r.Resolve(v)
	}
	if len(named) > 2*most {
		t.Errorf("%d edges had names in two minutes, want at most %d", len(named), 2*most)
	}
	v := newWorld().view()
	v.Time = time.Unix(1000+2*3600, 0)
	r.Resolve(v)
	if n := len(r.ledger.leftQuotas) + len(r.ledger.over); n != 0 {
		t.Errorf("%d quotas are kept for ever", n)
	}
}

// TestLeftQuotasAreBounded: containers that come and go leave a bounded number of quotas.
func TestLeftQuotasAreBounded(t *testing.T) {
	r := New(Options{MaxContainerEdges: 32, MaxNewEdges: 100_000})
	for i := range maxLeftQuotas + 100 {
		w := newWorld()
		group := model.CgroupID(10 + i)
		w.docker(fmt.Sprintf("job-%d", i), group, 100, "172.17.0.2")
		for k := range 3 {
			w.dials(group, 100, fmt.Sprintf("198.51.100.%d:80", k), 1)
		}
		v := w.view()
		v.Time = time.Unix(1000, 0)
		r.Resolve(v)
	}
	if n := len(r.ledger.leftQuotas); n > maxLeftQuotas || n < maxLeftQuotas/2 {
		t.Errorf("%d quotas are kept, want at most %d", n, maxLeftQuotas)
	}
}

// TestContainersOfOneName: two containers of one name are one drop, which is the sum of both.
func TestContainersOfOneName(t *testing.T) {
	const most = 32
	w := newWorld()
	for i := range 2 {
		group, netns := model.CgroupID(10*(i+1)), uint32(100*(i+1))
		w.docker("twin", group, netns, fmt.Sprintf("172.17.0.%d", i+2)).ID = fmt.Sprintf("id-%d", i)
		for k := range 100 {
			w.dials(group, netns, fmt.Sprintf("198.51.100.%d:80", k), 1)
		}
	}
	r := New(Options{MaxContainerEdges: most})
	r.Resolve(w.view())
	var found []uint64
	for _, d := range r.Drops() {
		if d.Name == "container-new-edges/twin" {
			found = append(found, d.Count)
		}
	}
	if len(found) != 1 || found[0] != 2*(100-most) {
		t.Errorf("the twins are over their quotas by %v, want once %d", found, 2*(100-most))
	}
}
