package network

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"outsight/internal/frame"
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

	// Another container gets the address: each keeps what was counted in its time, and has no edge before.
	w.docker("new", 30, 300, "172.17.0.2")
	w.edges[0].Counters = counted(9)
	expect(t, r.Resolve(w.view()), "server web -> db 172.17.0.3:1 9/9")
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

// The most requests in flight of an edge are those since the last view: of several of the kernel's edges their sum.
func TestMostInFlight(t *testing.T) {
	w := newWorld()
	w.docker("web", 20, 200)
	r := New(Options{})
	f := func(name string, want uint64, all ...uint64) {
		t.Helper()
		for i, n := range all {
			w.edges[i].MostInFlight, w.edges[i].KnowsMost = n, true
		}
		if edges := r.Resolve(w.view()); len(edges) != 1 || edges[0].MostInFlight != want || !edges[0].KnowsMost {
			t.Errorf("%s: %+v, want %d in flight", name, edges, want)
		}
	}
	w.dials(20, 200, "198.51.100.7:443", 10)
	f("one", 4, 4)
	w.dials(20, 200, "198.51.100.7:443", 3)
	w.edges[1].Instance = 1
	f("another one", 6, 4, 2)
	f("fewer, while nothing is counted", 3, 1, 2)
	w.edges = w.edges[1:]
	f("the first is gone", 2, 2)
	f("none", 0, 0)
	w.edges = nil
	f("it is idle", 0)
}

func TestIdleEdgesAreBounded(t *testing.T) {
	w := newWorld()
	w.docker("web", 20, 200, "172.17.0.2")
	r, framed := New(Options{MaxEdges: 3}), newFrames()
	var total uint64
	for i := range 10 {
		w.edges = nil
		w.serves(20, 200, "172.17.0.2:80", fmt.Sprintf("198.51.100.%d", i), 0, uint64(i+1))
		total += uint64(i + 1)
		framed.transactions(r.Resolve(w.view()))
	}
	w.edges = nil
	framed.transactions(r.Resolve(w.view()))
	edges := r.Resolve(w.view())
	// Entries 0 to 6 left before their time, which loses nothing: frames have them.
	expect(t, edges, "server 198.51.100.7 -> web 172.17.0.2:80 8/8", "server 198.51.100.8 -> web 172.17.0.2:80 9/9",
		"server 198.51.100.9 -> web 172.17.0.2:80 10/10")
	if got := framed.transactions(edges); got != total {
		t.Errorf("the frame has %d transactions, want all %d", got, total)
	}
	if got, want := r.Drops()[0], (model.Drop{Name: "network idle edges", Count: 7, Capacity: 3, Used: 3}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// frames are those of the edges of a resolver.
type frames struct {
	builder *frame.Builder
	at      time.Time
}

func newFrames() *frames {
	at := time.Unix(1_800_000_000, 0)
	return &frames{frame.NewBuilder(at), at}
}

// transactions are all that the frame of these edges has.
func (f *frames) transactions(edges []model.Edge) (sum uint64) {
	f.at = f.at.Add(time.Second)
	table := &f.builder.Build(&model.Snapshot{Time: f.at, Edges: edges}).Tables[frame.Edges]
	for row := range table.IDs {
		if h := table.Histograms[frame.Histogram(frame.Edges, "latency")].At(row); h != nil {
			sum += h.Count
		}
	}
	return sum
}

// TestFramesHaveWhatWasCounted: whatever becomes known of ends, is forgotten or comes back, frames have each transaction
// once.
func TestFramesHaveWhatWasCounted(t *testing.T) {
	const clients = 8
	random := rand.New(rand.NewPCG(1, 2))
	w, r, framed := newWorld(), New(Options{MaxEdges: 4, MaxContainerEdges: 12}), newFrames()
	anew := New(r.options)
	w.docker("db", 20, 200, "172.17.0.3")
	w.add(&model.Container{ID: "id-api", Name: "api", Runtime: model.Docker}, 21, 201, "172.17.0.4")
	counted := func(n uint64) model.EdgeCounters { return model.EdgeCounters{SentBytes: n, Latency: histogram(n)} }
	var total uint64
	lives := 0
	for second := range 3000 {
		switch client := random.IntN(clients); random.IntN(8) {
		case 0: // a client container begins, and its address is not known yet
			name := fmt.Sprintf("job-%d", lives)
			lives++
			w.docker(name, model.CgroupID(100+lives), uint32(1000+lives))
		case 1: // what is known of one becomes more
			for i, c := range w.containers {
				if len(c.Addresses) == 0 {
					known := *c
					known.Addresses = []netip.Addr{netip.AddrFrom4([4]byte{172, 17, 1, byte(client)})}
					w.containers = slices.Clone(w.containers)
					w.containers[i] = &known
					break
				}
			}
		case 2: // one ends
			if c := w.containers[random.IntN(len(w.containers))]; strings.HasPrefix(c.Name, "job-") {
				w.remove(c.Name)
			}
		case 3: // the kernel forgets an edge
			if n := len(w.edges); n > 0 {
				w.edges = slices.Delete(slices.Clone(w.edges), n-1, n)
			}
		case 4: // or counts it under another process from now on
			if n := len(w.edges); n > 0 {
				w.edges = slices.Clone(w.edges)
				e := &w.edges[random.IntN(n)]
				e.Key.PeerProcess, e.Counters = fmt.Sprintf("process-%d", random.IntN(3)), model.EdgeCounters{}
			}
		default: // a client asks
			address := netip.AddrFrom4([4]byte{172, 17, 1, byte(client)}).String()
			w.edges = slices.Clone(w.edges)
			i := slices.IndexFunc(w.edges, func(e model.KernelEdge) bool { return e.Key.Client.String() == address })
			n := uint64(random.IntN(9) + 1)
			total += n
			if i < 0 {
				w.serves(20, 200, "172.17.0.3:5432", address, 0, n)
				break
			}
			w.edges[i].Counters = counted(w.edges[i].Counters.SentBytes + n)
		}
		v := w.view()
		edges := r.Resolve(v)
		if got := framed.transactions(edges); got != total {
			t.Fatalf("second %d: the frame has %d transactions, %d were counted", second, got, total)
		}
		// What did not change need not be added up anew.
		for _, t := range anew.ledger.totals {
			t.stale = true
		}
		anew.ledger.ordered = nil
		if want := anew.Resolve(v); !reflect.DeepEqual(edges, want) {
			t.Fatalf("second %d: %+v, added up anew %+v", second, edges, want)
		}
	}
	if lives < 100 || total < 5000 {
		t.Errorf("%d containers and %d transactions: the test tests nothing", lives, total)
	}
}

// TestInstance: an edge stays what it is when more becomes known of its ends, and is another one when it comes back.
func TestInstance(t *testing.T) {
	w, r := newWorld(), New(Options{})
	w.docker("db", 20, 200, "172.17.0.3")
	web := w.docker("web", 10, 100)
	w.serves(20, 200, "172.17.0.3:1", "172.17.0.2", 0, 5)
	first := r.Resolve(w.view())[0]
	known := *web
	known.Addresses = []netip.Addr{netip.MustParseAddr("172.17.0.2")}
	w.containers[slices.Index(w.containers, web)] = &known
	second := r.Resolve(w.view())[0]
	if first.Instance == 0 || second.Instance != first.Instance || second.Client.Name() != "web" {
		t.Errorf("instance %d of %s became %d of %s", first.Instance, first.Client.Name(), second.Instance,
			second.Client.Name())
	}
	// Another one whose ends turn out to be the same stays apart, with what it counted.
	w.serves(20, 200, "172.17.0.3:1", "172.17.0.9", 0, 3)
	r.Resolve(w.view())
	more := known
	more.Addresses = append(slices.Clone(known.Addresses), netip.MustParseAddr("172.17.0.9"))
	w.containers[slices.Index(w.containers, &known)] = &more
	expect(t, r.Resolve(w.view()), "server 172.17.0.9 -> db 172.17.0.3:1 3/3", "server web -> db 172.17.0.3:1 5/5")
	w.edges = slices.Clone(w.edges)
	w.edges[1].Counters = counted(4)
	edges := r.Resolve(w.view())
	expect(t, edges, "server 172.17.0.9 -> db 172.17.0.3:1 3/3", "server web -> db 172.17.0.3:1 6/6")
	if edges[0].Instance == edges[1].Instance || edges[1].Instance != first.Instance {
		t.Errorf("instances %d and %d, the first was %d", edges[0].Instance, edges[1].Instance, first.Instance)
	}
}

func TestIdleEdgesLeaveTheAnswer(t *testing.T) {
	w := newWorld()
	w.docker("web", 20, 200)
	r := New(Options{})
	w.dials(20, 200, "198.51.100.7:443", 5)
	first := r.Resolve(w.view())[0].Instance
	w.edges = nil
	for i := range lingerViews {
		if n := len(r.Resolve(w.view())); n != 1 {
			t.Fatalf("%d edges %d views after the kernel forgot it, want 1", n, i+1)
		}
	}
	r.Resolve(w.view())
	expect(t, r.Resolve(w.view()))
	w.dials(20, 200, "198.51.100.7:443", 1)
	edges := r.Resolve(w.view())
	expect(t, edges, "client web -> 198.51.100.7 198.51.100.7:443 1/1")
	if edges[0].Instance == first {
		t.Error("what came back is the instance that was forgotten")
	}
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
