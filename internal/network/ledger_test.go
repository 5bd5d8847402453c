package network

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"outsight/internal/model"
)

func TestSumsSurviveWhatTheKernelForgets(t *testing.T) {
	w := newWorld()
	w.docker("web", 10, 100, "172.17.0.2")
	r := New(Options{})
	w.dials(10, 100, "198.51.100.7:443", 5)
	expect(t, r.Resolve(w.view()), "client web -> 198.51.100.7 198.51.100.7:443 5/5")
	w.edges = nil
	expect(t, r.Resolve(w.view()), "client web -> 198.51.100.7 198.51.100.7:443 5/5")
	w.dials(10, 100, "198.51.100.7:443", 2)
	expect(t, r.Resolve(w.view()), "client web -> 198.51.100.7 198.51.100.7:443 7/7")
	w.edges = nil
	w.dials(10, 100, "198.51.100.7:443", 1) // forgotten and counted anew between two views
	expect(t, r.Resolve(w.view()), "client web -> 198.51.100.7 198.51.100.7:443 8/8")
}

func TestLateIdentityMovesAllThatWasCounted(t *testing.T) {
	w := newWorld()
	web := w.docker("web", 10, 100)
	w.docker("db", 20, 200, "172.17.0.3")
	w.serves(20, 200, "172.17.0.3:1", "172.17.0.2", 0, 5)
	r := New(Options{})
	expect(t, r.Resolve(w.view()), "server 172.17.0.2 -> db 172.17.0.3:1 5/5")
	known := *web
	known.Addresses = []netip.Addr{netip.MustParseAddr("172.17.0.2")}
	w.containers[slices.Index(w.containers, web)] = &known
	expect(t, r.Resolve(w.view()), "server web -> db 172.17.0.3:1 5/5")

	w.edges[0].Counters = counted(9)
	w.end("web")
	expect(t, r.Resolve(w.view()), "server web -> db 172.17.0.3:1 9/9")
	w.remove("web")
	expect(t, r.Resolve(w.view()), "server web -> db 172.17.0.3:1 9/9")

	// Another container gets the address: each keeps what was counted in its time.
	w.docker("new", 30, 300, "172.17.0.2")
	w.edges[0].Counters = counted(9)
	expect(t, r.Resolve(w.view()), "server new -> db 172.17.0.3:1 0/0", "server web -> db 172.17.0.3:1 9/9")
	w.edges[0].Counters = counted(13)
	expect(t, r.Resolve(w.view()), "server new -> db 172.17.0.3:1 4/4", "server web -> db 172.17.0.3:1 9/9")
}

func TestLateIdentityOfAGroup(t *testing.T) {
	w := newWorld()
	w.dials(10, 100, "198.51.100.7:443", 5)
	r := New(Options{})
	expect(t, r.Resolve(w.view()), "client host -> 198.51.100.7 198.51.100.7:443 5/5")
	w.docker("web", 10, 100)
	expect(t, r.Resolve(w.view()), "client web -> 198.51.100.7 198.51.100.7:443 5/5")
}

// An identity that comes late takes what was counted with it only where nothing else is in the
// sum: the sum would go down.
func TestLateIdentityLeavesSharedSums(t *testing.T) {
	w := newWorld()
	w.dials(1, hostNS, "198.51.100.7:443", 3)
	w.dials(10, hostNS, "198.51.100.7:443", 5)
	r := New(Options{})
	expect(t, r.Resolve(w.view()), "client host -> 198.51.100.7 198.51.100.7:443 8/8")
	w.docker("web", 10, hostNS)
	w.edges[1].Counters = counted(6)
	expect(t, r.Resolve(w.view()),
		"client host -> 198.51.100.7 198.51.100.7:443 8/8", "client web -> 198.51.100.7 198.51.100.7:443 1/1")
}

func TestEndedContainersEdges(t *testing.T) {
	w := newWorld()
	w.docker("job", 10, 100, "172.17.0.2")
	w.docker("db", 20, 200, "172.17.0.3")
	w.dials(10, 100, "172.17.0.3:1", 5)
	w.serves(20, 200, "172.17.0.3:1", "172.17.0.2", 10, 5)
	w.end("job")
	r := New(Options{})
	expect(t, r.Resolve(w.view()), "client job -> db 172.17.0.3:1 5/5 *", "server job -> db 172.17.0.3:1 5/5 *")
	w.remove("job")
	// The kernel may keep its edge for a while; the server's edge keeps the client's name.
	expect(t, r.Resolve(w.view()), "server job -> db 172.17.0.3:1 5/5")
	w.edges = w.edges[1:]
	expect(t, r.Resolve(w.view()), "server job -> db 172.17.0.3:1 5/5")
	if n := len(r.ledger.totals); n != 1 {
		t.Errorf("%d edges are remembered, want 1", n)
	}
}

func TestAnEndedContainersAddressIsNotTakenFromItsHeir(t *testing.T) {
	w := newWorld()
	w.docker("old", 10, 100, "172.17.0.2")
	w.end("old")
	w.docker("new", 11, 101, "172.17.0.2")
	w.docker("db", 20, 200, "172.17.0.3")
	w.serves(20, 200, "172.17.0.3:1", "172.17.0.2", 0, 5)
	expect(t, New(Options{}).Resolve(w.view()), "server new -> db 172.17.0.3:1 5/5")
}

// Once the registry has forgotten a group too, it looks like the host's.
func TestForgottenGroupIsNotTheHosts(t *testing.T) {
	w := newWorld()
	w.docker("job", 10, 100, "172.17.0.2")
	w.docker("db", 20, 200, "172.17.0.3")
	w.serves(20, 200, "172.17.0.3:1", "172.17.0.2", 10, 5)
	r := New(Options{})
	r.Resolve(w.view())
	w.remove("job")
	w.groups[10] = w.containers[0]
	w.serves(20, 200, "172.17.0.3:2", "172.17.0.2", 10, 7)
	expect(t, r.Resolve(w.view()), "server job -> db 172.17.0.3:1 5/5", "server job -> db 172.17.0.3:2 7/7")
}

func TestTwoInstancesOfAnEdge(t *testing.T) {
	w := newWorld()
	w.docker("web", 20, 200)
	r := New(Options{})
	w.dials(20, 200, "198.51.100.7:443", 10)
	r.Resolve(w.view())
	w.dials(20, 200, "198.51.100.7:443", 3)
	w.edges[1].Instance = 1
	expect(t, r.Resolve(w.view()), "client web -> 198.51.100.7 198.51.100.7:443 13/13")
	w.edges = w.edges[1:]
	w.edges[0].Counters = counted(5)
	expect(t, r.Resolve(w.view()), "client web -> 198.51.100.7 198.51.100.7:443 15/15")
}

func TestIdleEdgesAreBounded(t *testing.T) {
	w := newWorld()
	w.docker("web", 20, 200, "172.17.0.2")
	r := New(Options{MaxEdges: 3})
	var total uint64
	for i := range 10 {
		w.edges = nil
		w.serves(20, 200, "172.17.0.2:80", fmt.Sprintf("198.51.100.%d", i), 0, uint64(i+1))
		total += uint64(i + 1)
		r.Resolve(w.view())
	}
	w.edges = nil
	r.Resolve(w.view())
	// Entry 0 to 6 went to the others; the last three are within the bound.
	edges := r.Resolve(w.view())
	expect(t, edges, "server 198.51.100.7 -> web 172.17.0.2:80 8/8", "server 198.51.100.8 -> web 172.17.0.2:80 9/9",
		"server 198.51.100.9 -> web 172.17.0.2:80 10/10", "server others -> web invalid AddrPort 28/28")
	var sum uint64
	for _, e := range edges {
		sum += e.Counters.SentBytes
	}
	if sum != total {
		t.Errorf("the edges sum up to %d bytes, want all %d", sum, total)
	}
	if got, want := r.Drops()[0], (model.Drop{Name: "network idle edges", Count: 7, Capacity: 3, Used: 3}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestOthersAreOneEdgeWhateverTheProcesses(t *testing.T) {
	w := newWorld()
	w.docker("web", 20, 200, "172.17.0.2")
	r := New(Options{MaxEdges: 3})
	for range lingerViews + 1 {
		r.Resolve(w.view())
	}
	for i := range 10 {
		w.edges = nil
		w.serves(20, 200, "172.17.0.2:80", "198.51.100.1", 0, uint64(i+1))
		w.last().Process = fmt.Sprint("job-", i)
		r.Resolve(w.view())
	}
	w.edges = nil
	r.Resolve(w.view())
	if n := len(r.ledger.totals); n != 4 {
		t.Errorf("%d edges are kept, want 3 and the others", n)
	}
	var others uint64
	for _, e := range r.Resolve(w.view()) {
		if !e.Service.IsValid() {
			others += e.Counters.SentBytes
		}
	}
	if others != 28 {
		t.Errorf("others have %d bytes, want the 28 of the first seven", others)
	}
}

func TestIdleEdgesLeaveTheAnswer(t *testing.T) {
	w := newWorld()
	w.docker("web", 20, 200)
	r := New(Options{})
	w.dials(20, 200, "198.51.100.7:443", 5)
	r.Resolve(w.view())
	w.edges = nil
	for i := range lingerViews {
		if n := len(r.Resolve(w.view())); n != 1 {
			t.Fatalf("%d edges %d views after the kernel forgot it, want 1", n, i+1)
		}
	}
	r.Resolve(w.view())
	expect(t, r.Resolve(w.view()))
	w.dials(20, 200, "198.51.100.7:443", 1)
	expect(t, r.Resolve(w.view()), "client web -> 198.51.100.7 198.51.100.7:443 6/6")
}

func TestPublishedEdgesDoNotChange(t *testing.T) {
	w := newWorld()
	web := w.docker("web", 10, 100)
	w.groups[11] = web
	r := New(Options{})
	var published []model.Edge
	var copies []*model.Histogram
	for n := range uint64(6) {
		w.edges = nil
		w.dials(10, 100, "198.51.100.7:443", 10+n)
		if n%3 != 2 {
			w.dials(11, 100, "198.51.100.7:443", 20+n)
		}
		for _, e := range r.Resolve(w.view()) {
			published = append(published, e)
			copies = append(copies, e.Counters.Latency.Clone())
		}
	}
	for i, e := range published {
		if !reflect.DeepEqual(e.Counters.Latency, copies[i]) {
			t.Errorf("the histogram of edge %d changed after it was handed out: %+v, was %+v", i, e.Counters.Latency, copies[i])
		}
	}
}
