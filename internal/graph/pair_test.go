package graph

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"outsight/internal/frame"
	"outsight/internal/model"
)

// pairedHost is a simulated host.
type pairedHost struct{ model.Snapshot }

func newPairedHost(name string, addresses ...string) *pairedHost {
	m := &pairedHost{model.Snapshot{Host: model.Host{Name: name}}}
	m.runs(model.HostContainerID, nil, addresses...).Runtime = model.HostRuntime
	return m
}

func (m *pairedHost) runs(name string, listeners []string, addresses ...string) *model.Container {
	c := &model.Container{ID: name, Name: name, Runtime: model.Docker}
	for _, a := range addresses {
		c.Addresses = append(c.Addresses, netip.MustParseAddr(a))
	}
	for _, l := range listeners {
		c.Listeners = append(c.Listeners, netip.MustParseAddrPort(l))
	}
	m.Containers = append(m.Containers, model.ContainerSample{Container: c})
	return c
}

func (m *pairedHost) dials(c *model.Container, service string) *model.Edge {
	at := netip.MustParseAddrPort(service)
	m.Edges = append(m.Edges, model.Edge{Side: model.RoleClient, Client: model.Peer{Container: c},
		Server: model.Peer{Address: at.Addr()}, Service: at})
	return &m.Edges[len(m.Edges)-1]
}

func (m *pairedHost) serves(c *model.Container, service, client string) *model.Edge {
	at := netip.MustParseAddrPort(service)
	m.Edges = append(m.Edges, model.Edge{Side: model.RoleServer, Server: model.Peer{Container: c, Address: at.Addr()},
		Client: model.Peer{Address: netip.MustParseAddr(client)}, Service: at})
	return &m.Edges[len(m.Edges)-1]
}

func (m *pairedHost) translates(client, dialled, reached string) {
	m.Translations = append(m.Translations, model.Translation{Client: netip.MustParseAddr(client),
		Dialled: netip.MustParseAddrPort(dialled), Reached: netip.MustParseAddrPort(reached)})
}

func windowOf(hosts ...*pairedHost) *frame.Window {
	w := &frame.Window{}
	for _, m := range hosts {
		m.Time = time.Unix(1_800_000_000, 0)
		for i := range m.Edges {
			m.Edges[i].Instance = uint64(i + 1)
		}
		f := frame.NewBuilder(m.Time).Build(&m.Snapshot)
		w.Hosts = append(w.Hosts, frame.HostSpans{Host: m.Host.Name, Spans: []frame.Span{{After: f}}})
	}
	return w
}

// describeHalves tells of each edge who its ends are.
func describeHalves(w *frame.Window) (all []string) {
	p := pairHosts(w)
	defer p.release() // the next window uses its memory
	for h := range w.Hosts {
		f := w.Hosts[h].Spans[0].After
		t := &f.Tables[frame.Edges]
		for row := range t.IDs {
			name := func(reference, address frame.Attribute) string {
				if id := t.Attribute(reference, row); id != 0 {
					at, _ := f.Tables[frame.Containers].Find(uint32(id))
					return f.Text(frame.Containers, frame.ContainerName, at) + "@" + f.Host
				}
				return f.Text(frame.Edges, address, row) + "@"
			}
			client, server := name(frame.EdgeClient, frame.EdgeClientAddress), name(frame.EdgeServer, frame.EdgeServerAddress)
			level := func(name string) float64 {
				n, _ := t.Columns[frame.Column(frame.Edges, name)].At(row)
				return math.Float64frombits(n)
			}
			confidence, paired := level("confidence"), level("paired")
			if end, ok := p.end(h, 0, row); ok {
				there := w.Hosts[end.Host].Spans[end.Span].After
				found := there.Text(frame.Containers, frame.ContainerName, end.Row) + "@" + there.Host
				if model.Role(t.Attribute(frame.EdgeSide, row)) == model.RoleClient {
					server = found
				} else {
					client = found
				}
				confidence = float64(end.Confidence)
				if end.Paired {
					paired = 1
				}
			}
			line := fmt.Sprintf("%s %s -> %s %s %s", model.Role(t.Attribute(frame.EdgeSide, row)), client, server,
				f.Text(frame.Edges, frame.EdgeService, row), model.Confidence(confidence))
			if paired == 1 {
				line += " *"
			}
			all = append(all, line)
		}
	}
	return all
}

func TestPairHosts(t *testing.T) {
	check := func(name string, hosts []*pairedHost, want ...string) {
		t.Helper()
		for range 2 {
			got := describeHalves(windowOf(hosts...))
			slices.Sort(got)
			if strings.Join(got, "\n") != strings.Join(want, "\n") {
				t.Errorf("%s: got\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			slices.Reverse(hosts) // the order of the hosts means nothing
		}
	}

	a, b := newPairedHost("a", "192.0.2.1"), newPairedHost("b", "192.0.2.2")
	web, db := a.runs("web", nil, "10.0.1.2"), b.runs("db", []string{"0.0.0.0:5432"}, "10.0.2.2")
	a.dials(web, "10.0.2.2:5432")
	a.dials(web, "10.0.2.2:6000")
	a.dials(web, "198.51.100.7:443")
	b.serves(db, "10.0.2.2:5432", "10.0.1.2").Server.Process = "postgres"
	b.serves(db, "10.0.2.2:5432", "198.51.100.9")
	check("routed addresses", []*pairedHost{a, b},
		"client web@a -> 198.51.100.7@ 198.51.100.7:443 none",
		"client web@a -> db@b 10.0.2.2:5432 listener *",
		"client web@a -> db@b 10.0.2.2:6000 address",
		"server 198.51.100.9@ -> db@b 10.0.2.2:5432 none",
		"server web@a -> db@b 10.0.2.2:5432 address *")
	if end, ok := pairHosts(windowOf(a, b)).end(0, 0, 0); !ok || end.Process != "postgres" {
		t.Errorf("the server is %+v", end)
	}

	a, b = newPairedHost("a", "192.0.2.1", "172.17.0.1"), newPairedHost("b", "192.0.2.2", "172.17.0.1")
	web, db = a.runs("web", nil, "172.17.0.2"), b.runs("db", nil, "172.17.0.2")
	a.runs("idle", nil, "172.17.0.3")
	a.dials(web, "192.0.2.2:5432")
	b.serves(db, "172.17.0.2:5432", "192.0.2.1")
	b.translates("192.0.2.1", "192.0.2.2:5432", "172.17.0.2:5432")
	check("published port and masquerading, with equal private addresses on both hosts", []*pairedHost{a, b},
		"client web@a -> db@b 192.0.2.2:5432 listener *",
		"server web@a -> db@b 172.17.0.2:5432 address *")
	other := a.runs("other", nil, "172.17.0.4")
	a.dials(other, "192.0.2.2:5432")
	check("two masqueraded clients: which of them, the server cannot tell", []*pairedHost{a, b},
		"client other@a -> db@b 192.0.2.2:5432 listener",
		"client web@a -> db@b 192.0.2.2:5432 listener",
		"server 192.0.2.1@ -> db@b 172.17.0.2:5432 none")

	a, b = newPairedHost("a", "192.0.2.1"), newPairedHost("b", "192.0.2.2")
	c := newPairedHost("c", "192.0.2.3")
	web, db = a.runs("web", nil, "10.0.1.2"), b.runs("db", []string{"[::]:5432"}, "10.0.2.2")
	replica := c.runs("replica", []string{"10.0.3.2:5432"}, "10.0.3.2")
	a.dials(web, "10.96.0.1:5432")
	a.translates("10.0.1.2", "10.96.0.1:5432", "10.0.2.2:5432")
	check("a virtual address that the client's host translates", []*pairedHost{a, b, c},
		"client web@a -> db@b 10.96.0.1:5432 listener")
	b.serves(db, "10.0.2.2:5432", "10.0.1.2")
	c.serves(replica, "10.0.3.2:5432", "10.0.1.2")
	check("and both of its servers", []*pairedHost{a, b, c},
		"client web@a -> db@b 10.96.0.1:5432 listener *",
		"server web@a -> db@b 10.0.2.2:5432 address *",
		"server web@a -> replica@c 10.0.3.2:5432 address")
	a.translates("10.0.1.2", "10.96.0.1:5432", "10.0.3.2:5432")
	check("of two servers behind it nobody says which", []*pairedHost{a, b, c},
		"client web@a -> 10.96.0.1@ 10.96.0.1:5432 none",
		"server web@a -> db@b 10.0.2.2:5432 address",
		"server web@a -> replica@c 10.0.3.2:5432 address")

	a, b = newPairedHost("a", "192.0.2.1", "172.17.0.1"), newPairedHost("b", "192.0.2.2", "172.17.0.1")
	c = newPairedHost("c", "192.0.2.3", "172.17.0.1")
	web = a.runs("web", nil, "172.17.0.9")
	b.runs("db", []string{"0.0.0.0:5432"}, "172.17.0.2")
	c.runs("db", []string{"0.0.0.0:5432"}, "172.17.0.2")
	a.dials(web, "172.17.0.2:5432")
	a.dials(web, "127.0.0.1:5432")
	check("private addresses that two hosts have, and loopback", []*pairedHost{a, b, c},
		"client web@a -> 127.0.0.1@ 127.0.0.1:5432 none",
		"client web@a -> 172.17.0.2@ 172.17.0.2:5432 none")

	a, b = newPairedHost("a", "192.0.2.1"), newPairedHost("b", "192.0.2.2")
	proxy := b.runs("proxy", []string{"0.0.0.0:80"}, "192.0.2.2")
	ended := b.runs("ended", []string{"192.0.2.2:80"}, "192.0.2.2")
	ended.Ended = time.Unix(1, 0)
	a.dials(a.Containers[0].Container, "192.0.2.2:80")
	b.serves(proxy, "192.0.2.2:80", "192.0.2.1")
	udp := b.serves(proxy, "192.0.2.2:80", "192.0.2.1")
	udp.Transport = model.UDP
	check("host networks, a container that ended, and UDP at the same port", []*pairedHost{a, b},
		"client host@a -> proxy@b 192.0.2.2:80 listener *",
		"server 192.0.2.1@ -> proxy@b 192.0.2.2:80 none",
		"server host@a -> proxy@b 192.0.2.2:80 address *")

	a = newPairedHost("a", "192.0.2.1")
	web, db = a.runs("web", nil, "10.0.1.2"), a.runs("db", nil, "10.0.1.3")
	e := a.dials(web, "10.0.1.3:1")
	e.Server.Container, e.Confidence, e.Paired = db, model.Exact, true
	check("what a host knows by itself stays", []*pairedHost{a}, "client web@a -> db@a 10.0.1.3:1 exact *")
}

// TestPairFleet has hosts with equal private addresses, each with a published port: who dials one of them is told apart
// by the host that it dials.
func TestPairFleet(t *testing.T) {
	const count = 40
	var hosts []*pairedHost
	for i := range count {
		m := newPairedHost(fmt.Sprintf("host%02d", i), fmt.Sprintf("192.0.2.%d", i+1), "172.17.0.1")
		web := m.runs(fmt.Sprintf("web%d", i), nil, "172.17.0.2")
		db := m.runs(fmt.Sprintf("db%d", i), []string{"0.0.0.0:5432"}, "172.17.0.3")
		// Each asks the next one.
		m.dials(web, fmt.Sprintf("192.0.2.%d:5432", (i+1)%count+1))
		m.dials(web, "172.17.0.9:80") // whoever has this address elsewhere, it is not meant
		from := fmt.Sprintf("192.0.2.%d", (i+count-1)%count+1)
		m.serves(db, "172.17.0.3:5432", from)
		m.translates(from, fmt.Sprintf("192.0.2.%d:5432", i+1), "172.17.0.3:5432")
		hosts = append(hosts, m)
	}
	hosts[7].runs("other", []string{"0.0.0.0:80"}, "172.17.0.9")
	got := describeHalves(windowOf(hosts...))
	for i := range count {
		server, client := (i+1)%count, (i+count-1)%count
		want := []string{
			fmt.Sprintf("client web%d@host%02d -> db%d@host%02d 192.0.2.%d:5432 listener *", i, i, server, server, server+1),
			fmt.Sprintf("client web%d@host%02d -> 172.17.0.9@ 172.17.0.9:80 none", i, i),
			fmt.Sprintf("server web%d@host%02d -> db%d@host%02d 172.17.0.3:5432 address *", client, client, i, i),
		}
		if !slices.Equal(got[3*i:3*i+3], want) {
			t.Errorf("host %d: got\n%s\nwant\n%s", i, strings.Join(got[3*i:3*i+3], "\n"), strings.Join(want, "\n"))
		}
	}
}

// TestPairByConnections: the kernels of both hosts saw the same connections.
func TestPairByConnections(t *testing.T) {
	check := func(name string, hosts []*pairedHost, want ...string) {
		t.Helper()
		got := describeHalves(windowOf(hosts...))
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: got\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	a, b := newPairedHost("a", "10.1.0.5"), newPairedHost("b", "10.2.0.5")
	web, db := a.runs("web", nil, "172.17.0.2"), b.runs("db", nil, "172.17.0.2")
	a.dials(web, "198.51.100.1:5432").Connections = []uint64{1, 2, 3}
	b.serves(db, "172.17.0.2:5432", "203.0.113.9").Connections = []uint64{2, 3}
	check("addresses that no host has, at both ends", []*pairedHost{a, b},
		"client web@a -> 198.51.100.1@ 198.51.100.1:5432 none",
		"server web@a -> db@b 172.17.0.2:5432 exact")
	a.Edges[0].Connections = []uint64{3, 2}
	check("and no other connections", []*pairedHost{a, b},
		"client web@a -> db@b 198.51.100.1:5432 exact *",
		"server web@a -> db@b 172.17.0.2:5432 exact *")
	// A minute began while they talked, for one of them: its sample is that of two rounds.
	for _, samples := range [][2][]uint64{{{1, 3, 5, 7, 8, 9}, {1, 3, 5, 7}}, {{1, 3, 5, 7}, {1, 3, 5, 7, 8, 9}}} {
		a.Edges[0].Connections, b.Edges[0].Connections = samples[0], samples[1]
		check("samples of one round and of two", []*pairedHost{a, b},
			"client web@a -> db@b 198.51.100.1:5432 exact *",
			"server web@a -> db@b 172.17.0.2:5432 exact *")
	}
	a.Edges[0].Connections, b.Edges[0].Connections = []uint64{1, 2, 3, 5, 7}, []uint64{1, 3, 5, 7}
	check("a connection that one frame alone has", []*pairedHost{a, b},
		"client web@a -> db@b 198.51.100.1:5432 exact *",
		"server web@a -> db@b 172.17.0.2:5432 exact *")
	a.Edges[0].Connections, b.Edges[0].Connections = []uint64{1, 2, 4, 5, 7}, []uint64{1, 5, 7, 8}
	check("a client that reaches somebody else as well", []*pairedHost{a, b},
		"client web@a -> 198.51.100.1@ 198.51.100.1:5432 none",
		"server web@a -> db@b 172.17.0.2:5432 exact")
	a.Edges[0].Connections = []uint64{3, 2}
	other := a.runs("other", nil, "172.17.0.3")
	a.dials(other, "198.51.100.1:5432").Connections = []uint64{4}
	b.Edges[0].Connections = []uint64{2, 3, 4}
	check("two clients behind one address", []*pairedHost{a, b},
		"client other@a -> db@b 198.51.100.1:5432 exact",
		"client web@a -> db@b 198.51.100.1:5432 exact",
		"server 203.0.113.9@ -> db@b 172.17.0.2:5432 none")

	a, b = newPairedHost("a", "192.0.2.1", "172.17.0.1"), newPairedHost("b", "192.0.2.2", "172.17.0.1")
	web, other, db = a.runs("web", nil, "172.17.0.2"), a.runs("other", nil, "172.17.0.3"), b.runs("db", nil, "172.17.0.2")
	a.dials(web, "192.0.2.2:5432").Connections = []uint64{1}
	b.serves(db, "172.17.0.2:5432", "192.0.2.1").Connections = []uint64{1, 5}
	b.translates("192.0.2.1", "192.0.2.2:5432", "172.17.0.2:5432")
	check("one masqueraded client, of which the kernels saw a connection", []*pairedHost{a, b},
		"client web@a -> db@b 192.0.2.2:5432 exact *",
		"server web@a -> db@b 172.17.0.2:5432 exact *")
	a.dials(other, "192.0.2.2:5432")
	check("another one may have other connections", []*pairedHost{a, b},
		"client other@a -> db@b 192.0.2.2:5432 listener",
		"client web@a -> db@b 192.0.2.2:5432 exact",
		"server 192.0.2.1@ -> db@b 172.17.0.2:5432 none")
}

// TestPairSpans: a host whose agent restarted, and a client that has ended.
func TestPairSpans(t *testing.T) {
	a, b := newPairedHost("a", "192.0.2.1"), newPairedHost("b", "192.0.2.2")
	web, db := a.runs("web", nil, "10.0.1.2"), b.runs("db", []string{"0.0.0.0:5432"}, "10.0.2.2")
	a.dials(web, "10.0.2.2:5432")
	b.serves(db, "10.0.2.2:5432", "10.0.1.2")
	w := windowOf(a, b)
	first := w.Hosts[0].Spans[0].After
	started := time.Unix(1_800_000_000, 0)
	builder := frame.NewBuilder(started)
	a.Time = started
	before := builder.Build(&a.Snapshot)
	ended := *web
	ended.Ended = a.Time.Add(time.Second)
	a.Time = ended.Ended
	a.Containers[1].Container = &ended
	a.Edges[0].Client.Container = &ended
	after := builder.Build(&a.Snapshot)
	w.Hosts[0].Spans = []frame.Span{{After: first}, {Before: before, After: after}}
	p := pairHosts(w)
	for span := range w.Hosts[0].Spans {
		if end, ok := p.end(0, span, 0); !ok || end.Host != 1 || end.Confidence != model.ByListener || !end.Paired {
			t.Errorf("span %d: the server is %+v, %v", span, end, ok)
		}
	}
	if end, ok := p.end(1, 0, 0); !ok || end.Host != 0 || end.Span != 1 || !end.Paired ||
		after.Text(frame.Containers, frame.ContainerName, end.Row) != "web" {
		t.Errorf("the client is %+v, %v", end, ok)
	}
}

func BenchmarkPairHosts(b *testing.B) {
	const hosts, containers, edges = 500, 50, 200
	var all []*pairedHost
	at := func(host int) string { return fmt.Sprintf("192.0.%d.%d", host/250, host%250+1) }
	for i := range hosts {
		m := newPairedHost(fmt.Sprintf("host%03d", i), at(i), "172.17.0.1")
		for j := range containers {
			m.runs(fmt.Sprintf("c%d", j), []string{fmt.Sprintf("0.0.0.0:%d", 8000+j)}, fmt.Sprintf("172.17.0.%d", j+2))
		}
		all = append(all, m)
	}
	// Half of an agent's edges are of clients, half of servers; each has its other half on another host.
	for i, m := range all {
		for n := range edges / 2 {
			to, from, port := (i+1+n*7)%hosts, n%containers, 8000+(n*3)%containers
			there := all[to]
			m.dials(m.Containers[1+from].Container, fmt.Sprintf("%s:%d", at(to), port)).Connections = []uint64{
				uint64(i*edges + n), uint64(i*edges+n) << 20}
			inside := fmt.Sprintf("172.17.0.%d:%d", port-8000+2, port)
			there.serves(there.Containers[1+port-8000].Container, inside, at(i)).Connections = []uint64{
				uint64(i*edges + n), uint64(i*edges+n) << 20}
			there.translates(at(i), fmt.Sprintf("%s:%d", at(to), port), inside)
		}
	}
	w := windowOf(all...)
	found, total := 0, 0
	for b.Loop() {
		p := pairHosts(w)
		found, total = 0, 0
		for h := range w.Hosts {
			for row := range w.Hosts[h].Spans[0].After.Tables[frame.Edges].IDs {
				total++
				if end, ok := p.end(h, 0, row); ok && end.Paired {
					found++
				}
			}
		}
	}
	if found != total {
		b.Errorf("%d of %d edges are whole", found, total)
	}
	b.ReportMetric(float64(total), "edges")
}
