package graph

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"outsight/internal/frame"
	"outsight/internal/model"
)

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
	hosts := []*pairedHost{c, a, b}
	builders := map[*pairedHost]*frame.Builder{}
	last := map[*pairedHost]*frame.Frame{}
	n := 0
	window := func() *frame.Window {
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
	f := func(ignore string, want ...HostPair) {
		t.Helper()
		of := func(service netip.AddrPort) bool { return service.String() == ignore }
		if got := HostPairs(window(), of); !slices.Equal(got, want) {
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
