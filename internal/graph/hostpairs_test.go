package graph

import (
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"outsight/internal/frame"
	"outsight/internal/model"
)

// windowsOf makes the windows that follow one another, from what the hosts have at the time.
func windowsOf(hosts ...*pairedHost) (next func() *frame.Window) {
	builders := map[*pairedHost]*frame.Builder{}
	last := map[*pairedHost]*frame.Frame{}
	n := 0
	return func() *frame.Window {
		w := &frame.Window{}
		n++
		for _, m := range hosts {
			if builders[m] == nil {
				builders[m] = frame.NewBuilder(time.Unix(1_800_000_000, 0))
				for i := range m.Edges {
					m.Edges[i].Instance = uint64(i + 1)
				}
			}
			m.Time = time.Unix(1_800_000_000+int64(n), 0)
			f := builders[m].Build(&m.Snapshot)
			w.Hosts = append(w.Hosts, frame.HostSpans{Host: m.Host.Name, Spans: []frame.Span{{Before: last[m], After: f}}})
			last[m] = f
		}
		return w
	}
}

// TestHostPairs: hosts talk whose counters of an edge between them grew in the window, not those of which one has an edge
// that stands still, and not by what is ignored.
func TestHostPairs(t *testing.T) {
	a, b, c := newPairedHost("a", "192.0.2.1"), newPairedHost("b", "192.0.2.2"), newPairedHost("c", "192.0.2.3")
	host := func(m *pairedHost) *model.Container { return m.Containers[0].Container }
	web := a.runs("web", nil, "172.17.0.2")
	db := b.runs("db", []string{"172.17.0.2:5432"}, "172.17.0.2")
	a.dials(web, "192.0.2.2:5432")
	b.serves(db, "172.17.0.2:5432", "192.0.2.1")
	b.translates("192.0.2.1", "192.0.2.2:5432", "172.17.0.2:5432")
	c.dials(host(c), "192.0.2.1:862").Transport = model.UDP
	a.serves(host(a), "192.0.2.1:862", "192.0.2.3").Transport = model.UDP
	c.dials(host(c), "203.0.113.1:443") // somebody outside
	window := windowsOf(c, a, b)
	f := func(ignore string, want ...HostPair) {
		t.Helper()
		of := func(service netip.AddrPort) bool { return service.String() == ignore }
		if got, _ := HostPairs(window(), of); !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	}
	window()
	f("") // nothing has grown
	a.Edges[0].Counters.SentBytes += 70
	b.Edges[0].Counters.SentBytes += 30
	c.Edges[0].Counters.SentBytes += 5
	c.Edges[1].Counters.SentBytes += 9
	f("", HostPair{"a", "b", 100}, HostPair{"a", "c", 5})
	f("")
	b.Edges[0].Counters.ReceivedBytes += 30 // one half is enough
	a.Edges[1].Counters.ReceivedBytes += 5
	c.Edges[0].Counters.SentBytes += 5
	f("192.0.2.1:862", HostPair{"a", "b", 30})
	// What is ignored by UDP is not by TCP.
	a.Edges[0].Counters.SentBytes += 1
	f("192.0.2.2:5432", HostPair{"a", "b", 1})
}

// TestContainerPairs: containers are a pair where the client reaches the server at an address of the server's own: as it
// dials it, or as its own host translates it; not where the server's host translates, where an end is in its host's network
// namespace or outside of all containers, nor after the end of one of them.
func TestContainerPairs(t *testing.T) {
	a, b := newPairedHost("a", "192.0.2.1", "172.17.0.1"), newPairedHost("b", "192.0.2.2", "172.17.0.1")
	web := a.runs("web", nil, "10.1.1.2", "2001:db8:1::2")
	pod := a.runs("app", nil, "10.1.1.3")
	pod.PodName, pod.PodNamespace = "web-1", "shop"
	bridged := a.runs("bridged", nil, "172.17.0.2")
	agent := a.runs("agent", nil, "192.0.2.1", "172.17.0.1")
	db := b.runs("db", []string{"10.1.2.2:5432", "[2001:db8:2::2]:5432"}, "10.1.2.2", "2001:db8:2::2")
	published := b.runs("published", []string{"172.17.0.2:80"}, "172.17.0.2")
	proxy := b.runs("proxy", []string{"192.0.2.2:8080"}, "192.0.2.2", "172.17.0.1")
	host := a.Containers[0].Container

	a.dials(web, "10.1.2.2:5432")
	a.dials(pod, "10.96.0.7:5432") // a service, which a's own host translates
	a.translates("10.1.1.3", "10.96.0.7:5432", "10.1.2.2:5432")
	a.dials(web, "[2001:db8:2::2]:5432")
	a.dials(bridged, "192.0.2.2:80") // a port that b publishes
	b.translates("192.0.2.1", "192.0.2.2:80", "172.17.0.2:80")
	a.dials(web, "192.0.2.2:8080")
	a.dials(agent, "10.1.2.2:5432")
	a.dials(host, "10.1.2.2:5432")
	b.serves(db, "10.1.2.2:5432", "10.1.1.2")
	b.serves(db, "[2001:db8:2::2]:5432", "2001:db8:1::2")
	b.serves(published, "172.17.0.2:80", "192.0.2.1")
	b.serves(proxy, "192.0.2.2:8080", "10.1.1.2")
	next := windowsOf(a, b)
	next()
	for i := range a.Edges {
		a.Edges[i].Counters.SentBytes += 10 * uint64(i+1)
	}
	end := func(host, id, name string, addresses ...string) ContainerEnd {
		e := ContainerEnd{Host: host, ID: id, Name: name}
		for _, one := range addresses {
			e.Addresses = append(e.Addresses, netip.MustParseAddr(one))
		}
		return e
	}
	hosts, got := HostPairs(next(), nil)
	if want := []HostPair{{"a", "b", 280}}; !slices.Equal(hosts, want) {
		t.Errorf("the hosts are %v, want %v", hosts, want)
	}
	fromWeb := end("a", "web", "web", "10.1.1.2", "2001:db8:1::2")
	want := []ContainerPair{
		{end("a", "app", "shop/web-1/app", "10.1.1.3"), end("b", "db", "db", "10.1.2.2"), 20},
		{fromWeb, end("b", "db", "db", "10.1.2.2"), 10},
		{fromWeb, end("b", "db", "db", "2001:db8:2::2"), 30},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	if _, got = HostPairs(next(), nil); len(got) > 0 {
		t.Errorf("pairs that do not talk: %+v", got)
	}
	// An end that is there no more.
	for i := range a.Edges {
		a.Edges[i].Counters.SentBytes++
	}
	b.Containers = slices.DeleteFunc(b.Containers, func(s model.ContainerSample) bool { return s.Container == db })
	b.Edges = b.Edges[2:]
	if _, got = HostPairs(next(), nil); len(got) > 0 {
		t.Errorf("pairs with a container that has ended: %+v", got)
	}
}
