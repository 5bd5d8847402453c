package network

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"outsight/internal/model"
)

// testHost is a simulated host.
type testHost struct{ model.Snapshot }

func newTestHost(name string, addresses ...string) *testHost {
	m := &testHost{model.Snapshot{Host: model.Host{Name: name}}}
	m.runs(model.HostContainerID, nil, addresses...).Runtime = model.HostRuntime
	return m
}

func (m *testHost) runs(name string, listeners []string, addresses ...string) *model.Container {
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

func (m *testHost) dials(c *model.Container, service string) *model.Edge {
	at := netip.MustParseAddrPort(service)
	m.Edges = append(m.Edges, model.Edge{Side: model.RoleClient, Client: model.Peer{Container: c},
		Server: model.Peer{Address: at.Addr()}, Service: at})
	return &m.Edges[len(m.Edges)-1]
}

func (m *testHost) serves(c *model.Container, service, client string) *model.Edge {
	at := netip.MustParseAddrPort(service)
	m.Edges = append(m.Edges, model.Edge{Side: model.RoleServer, Server: model.Peer{Container: c, Address: at.Addr()},
		Client: model.Peer{Address: netip.MustParseAddr(client)}, Service: at})
	return &m.Edges[len(m.Edges)-1]
}

func (m *testHost) translates(client, dialled, reached string) {
	m.Translations = append(m.Translations, model.Translation{Client: netip.MustParseAddr(client),
		Dialled: netip.MustParseAddrPort(dialled), Reached: netip.MustParseAddrPort(reached)})
}

func TestPairHosts(t *testing.T) {
	check := func(name string, hosts []*testHost, want ...string) {
		t.Helper()
		for range 2 {
			var snapshots []*model.Snapshot
			for _, m := range hosts {
				snapshots = append(snapshots, &m.Snapshot)
			}
			var got []string
			for _, e := range PairHosts(snapshots) {
				line := fmt.Sprintf("%s %s@%s -> %s@%s %s %s", e.Side, e.Client.Name(), e.ClientHost, e.Server.Name(), e.ServerHost,
					e.Service, e.Confidence)
				if e.Paired {
					line += " *"
				}
				got = append(got, line)
			}
			slices.Sort(got)
			if strings.Join(got, "\n") != strings.Join(want, "\n") {
				t.Errorf("%s: got\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			slices.Reverse(hosts) // the order of the hosts means nothing
		}
	}

	a, b := newTestHost("a", "192.0.2.1"), newTestHost("b", "192.0.2.2")
	web, db := a.runs("web", nil, "10.0.1.2"), b.runs("db", []string{"0.0.0.0:5432"}, "10.0.2.2")
	a.dials(web, "10.0.2.2:5432")
	a.dials(web, "10.0.2.2:6000")
	a.dials(web, "198.51.100.7:443")
	b.serves(db, "10.0.2.2:5432", "10.0.1.2").Server.Process = "postgres"
	b.serves(db, "10.0.2.2:5432", "198.51.100.9")
	check("routed addresses", []*testHost{a, b},
		"client web@a -> 198.51.100.7@ 198.51.100.7:443 none",
		"client web@a -> db@b 10.0.2.2:5432 listener *",
		"client web@a -> db@b 10.0.2.2:6000 address",
		"server 198.51.100.9@ -> db@b 10.0.2.2:5432 none",
		"server web@a -> db@b 10.0.2.2:5432 address *")
	if e := PairHosts([]*model.Snapshot{&a.Snapshot, &b.Snapshot})[0]; e.Server.Process != "postgres" {
		t.Errorf("the server's process is %q", e.Server.Process)
	}

	a, b = newTestHost("a", "192.0.2.1", "172.17.0.1"), newTestHost("b", "192.0.2.2", "172.17.0.1")
	web, db = a.runs("web", nil, "172.17.0.2"), b.runs("db", nil, "172.17.0.2")
	a.runs("idle", nil, "172.17.0.3")
	a.dials(web, "192.0.2.2:5432")
	b.serves(db, "172.17.0.2:5432", "192.0.2.1")
	b.translates("192.0.2.1", "192.0.2.2:5432", "172.17.0.2:5432")
	check("published port and masquerading, with equal private addresses on both hosts", []*testHost{a, b},
		"client web@a -> db@b 192.0.2.2:5432 listener *",
		"server web@a -> db@b 172.17.0.2:5432 address *")
	other := a.runs("other", nil, "172.17.0.4")
	a.dials(other, "192.0.2.2:5432")
	check("two masqueraded clients: which of them, the server cannot tell", []*testHost{a, b},
		"client other@a -> db@b 192.0.2.2:5432 listener",
		"client web@a -> db@b 192.0.2.2:5432 listener",
		"server 192.0.2.1@ -> db@b 172.17.0.2:5432 none")

	a, b = newTestHost("a", "192.0.2.1"), newTestHost("b", "192.0.2.2")
	c := newTestHost("c", "192.0.2.3")
	web, db = a.runs("web", nil, "10.0.1.2"), b.runs("db", []string{"[::]:5432"}, "10.0.2.2")
	replica := c.runs("replica", []string{"10.0.3.2:5432"}, "10.0.3.2")
	a.dials(web, "10.96.0.1:5432")
	a.translates("10.0.1.2", "10.96.0.1:5432", "10.0.2.2:5432")
	check("a virtual address that the client's host translates", []*testHost{a, b, c},
		"client web@a -> db@b 10.96.0.1:5432 listener")
	b.serves(db, "10.0.2.2:5432", "10.0.1.2")
	c.serves(replica, "10.0.3.2:5432", "10.0.1.2")
	check("and both of its servers", []*testHost{a, b, c},
		"client web@a -> db@b 10.96.0.1:5432 listener *",
		"server web@a -> db@b 10.0.2.2:5432 address *",
		"server web@a -> replica@c 10.0.3.2:5432 address")
	a.translates("10.0.1.2", "10.96.0.1:5432", "10.0.3.2:5432")
	check("of two servers behind it nobody says which", []*testHost{a, b, c},
		"client web@a -> 10.96.0.1@ 10.96.0.1:5432 none",
		"server web@a -> db@b 10.0.2.2:5432 address",
		"server web@a -> replica@c 10.0.3.2:5432 address")

	a, b = newTestHost("a", "192.0.2.1", "172.17.0.1"), newTestHost("b", "192.0.2.2", "172.17.0.1")
	c = newTestHost("c", "192.0.2.3", "172.17.0.1")
	web = a.runs("web", nil, "172.17.0.9")
	b.runs("db", []string{"0.0.0.0:5432"}, "172.17.0.2")
	c.runs("db", []string{"0.0.0.0:5432"}, "172.17.0.2")
	a.dials(web, "172.17.0.2:5432")
	a.dials(web, "127.0.0.1:5432")
	check("private addresses that two hosts have, and loopback", []*testHost{a, b, c},
		"client web@a -> 127.0.0.1@ 127.0.0.1:5432 none",
		"client web@a -> 172.17.0.2@ 172.17.0.2:5432 none")

	a, b = newTestHost("a", "192.0.2.1"), newTestHost("b", "192.0.2.2")
	proxy := b.runs("proxy", []string{"0.0.0.0:80"}, "192.0.2.2")
	ended := b.runs("ended", []string{"192.0.2.2:80"}, "192.0.2.2")
	ended.Ended = time.Unix(1, 0)
	a.dials(a.Containers[0].Container, "192.0.2.2:80")
	b.serves(proxy, "192.0.2.2:80", "192.0.2.1")
	udp := b.serves(proxy, "192.0.2.2:80", "192.0.2.1")
	udp.Transport = model.UDP
	check("host networks, a container that ended, and UDP at the same port", []*testHost{a, b},
		"client host@a -> proxy@b 192.0.2.2:80 listener *",
		"server 192.0.2.1@ -> proxy@b 192.0.2.2:80 none",
		"server host@a -> proxy@b 192.0.2.2:80 address *")

	a = newTestHost("a", "192.0.2.1")
	web, db = a.runs("web", nil, "10.0.1.2"), a.runs("db", nil, "10.0.1.3")
	e := a.dials(web, "10.0.1.3:1")
	e.Server.Container, e.Confidence, e.Paired = db, model.Exact, true
	check("what a host knows by itself stays", []*testHost{a}, "client web@a -> db@a 10.0.1.3:1 exact *")
}

func TestTranslatedServerOnThisHost(t *testing.T) {
	w := newWorld()
	w.docker("web", 10, 100, "172.17.0.2")
	w.docker("a", 20, 200, "172.17.0.3")
	w.docker("b", 30, 300, "172.17.0.4")
	w.listens(20, 200, "0.0.0.0:8080")
	w.dials(10, 100, "10.96.0.1:80", 5) // older than the programs, and never idle
	v := w.view()
	of := func(client, dialled, reached string) model.Translation {
		return model.Translation{Client: netip.MustParseAddr(client), Dialled: netip.MustParseAddrPort(dialled),
			Reached: netip.MustParseAddrPort(reached)}
	}
	v.Translations = []model.Translation{
		of("172.17.0.2", "10.96.0.1:80", "172.17.0.3:8080"), of("172.17.0.2", "10.96.0.1:80", "172.17.0.3:8080"),
		of("172.17.0.9", "10.96.0.1:80", "172.17.0.4:8080"), // another client's
		of("172.17.0.2", "10.96.0.2:80", "172.17.0.4:8080"),
	}
	edges := New(Options{}).Resolve(v)
	expectDescribed(t, edges, "client web() -> a() 10.96.0.1:80 is 172.17.0.3:8080 listener 5")
	if _, need := NeedTranslations(edges); need || len(OfEdges(v.Translations, edges)) != 0 {
		t.Errorf("more translations are asked for: %v", OfEdges(v.Translations, edges))
	}
	v.Translations = append(v.Translations, of("172.17.0.2", "10.96.0.1:80", "172.17.0.4:8080"))
	edges = New(Options{}).Resolve(v)
	expectDescribed(t, edges, "client web() -> 10.96.0.1() 10.96.0.1:80 none 5")
	about := OfEdges(v.Translations, edges)
	if _, need := NeedTranslations(edges); !need || len(about) != 3 {
		t.Errorf("got %v", about)
	}
}
