package network

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"outsight/internal/model"
)

// describe writes what is known of edges besides their numbers.
func describe(edges []model.Edge) string {
	var lines []string
	for _, e := range edges {
		line := fmt.Sprintf("%s %s(%s) -> %s(%s) %s", e.Side, e.Client.Name(), e.Client.Process, e.Server.Name(),
			e.Server.Process, e.Service)
		if e.Backend.IsValid() {
			line += " is " + e.Backend.String()
		}
		if e.Via != "" {
			line += " via " + e.Via
		}
		line += " " + e.Confidence.String()
		if e.Paired {
			line += " *"
		}
		lines = append(lines, fmt.Sprintf("%s %d", line, e.Counters.SentBytes))
	}
	return strings.Join(lines, "\n")
}

func TestResolveTranslated(t *testing.T) {
	check := func(name string, build func(*world), want ...string) {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			build(w)
			for range 2 {
				if got := describe(New(Options{}).Resolve(w.view())); got != strings.Join(want, "\n") {
					t.Errorf("got edges\n%s\nwant\n%s", got, strings.Join(want, "\n"))
				}
				slices.Reverse(w.edges)
			}
		})
	}
	check("two servers behind a virtual address, and masquerading", func(w *world) {
		w.docker("web", 10, 100, "172.17.0.2")
		w.docker("a", 20, 200, "172.17.0.3")
		w.docker("b", 30, 300, "172.17.0.4")
		w.dials(10, 100, "10.96.0.1:80", 3)
		w.meets(20, "172.17.0.3:8080")
		w.by("curl", "nginx")
		w.dials(10, 100, "10.96.0.1:80", 4)
		w.meets(30, "172.17.0.4:8080")
		w.by("curl", "nginx")
		w.serves(20, 200, "172.17.0.3:8080", "172.17.0.1", 10, 3)
		w.meets(10, "10.96.0.1:80")
		w.by("nginx", "curl")
		w.serves(30, 300, "172.17.0.4:8080", "172.17.0.1", 10, 4)
		w.meets(10, "10.96.0.1:80")
		w.by("nginx", "curl")
		// Attempts that failed have no server: it is one of two, so nobody says which.
		w.dials(10, 100, "10.96.0.1:80", 1)
		w.by("curl", "")
	},
		"client web(curl) -> 10.96.0.1() 10.96.0.1:80 none 1",
		"client web(curl) -> a(nginx) 10.96.0.1:80 is 172.17.0.3:8080 exact * 3",
		"server web(curl) -> a(nginx) 10.96.0.1:80 is 172.17.0.3:8080 exact * 3",
		"client web(curl) -> b(nginx) 10.96.0.1:80 is 172.17.0.4:8080 exact * 4",
		"server web(curl) -> b(nginx) 10.96.0.1:80 is 172.17.0.4:8080 exact * 4")
	check("attempts that failed go to the one server that was reached", func(w *world) {
		w.docker("web", 10, 100, "172.17.0.2")
		w.docker("a", 20, 200, "172.17.0.3")
		w.dials(10, 100, "10.96.0.1:80", 3)
		w.meets(20, "172.17.0.3:8080")
		w.by("curl", "nginx")
		w.dials(10, 100, "10.96.0.1:80", 1)
		w.by("curl", "")
	}, "client web(curl) -> a(nginx) 10.96.0.1:80 is 172.17.0.3:8080 exact 4")
	check("the userland proxy is no end", func(w *world) {
		const proxy = 2
		w.groups[proxy] = w.containers[0] // the daemon's group is in no container
		w.docker("web", 10, 100, "172.17.0.2")
		w.docker("db", 20, 200, "172.17.0.3")
		// Two clients: a container, and a process of the host.
		w.dials(10, 100, "172.17.0.1:5432", 3)
		w.meets(proxy, "")
		w.by("psql", "docker-proxy")
		w.dials(1, hostNS, "127.0.0.1:5432", 4)
		w.meets(proxy, "")
		w.by("psql", "docker-proxy")
		// The proxy's own ends: one per address at which it was dialled.
		for _, at := range []string{"172.17.0.1:5432", "127.0.0.1:5432"} {
			w.serves(proxy, hostNS, at, "172.17.0.2", 10, 9)
			w.last().Forwarder = true
			w.dials(proxy, hostNS, "172.17.0.3:5432", 9)
			w.meets(20, at)
			w.by("docker-proxy", "postgres")
			w.last().Forwarder = true
		}
		w.serves(20, 200, "172.17.0.3:5432", "172.17.0.2", 10, 3)
		w.meets(10, "172.17.0.1:5432")
		w.by("postgres", "psql")
		w.last().Forwarded = true
		w.serves(20, 200, "172.17.0.3:5432", "127.0.0.1", 1, 4)
		w.meets(1, "127.0.0.1:5432")
		w.by("postgres", "psql")
		w.last().Forwarded = true
		// And one from outside, whose address the proxy saw.
		w.serves(20, 200, "172.17.0.3:5432", "198.51.100.7", 0, 5)
		w.meets(0, "192.0.2.1:5432")
		w.by("postgres", "")
		w.last().Forwarded = true
	},
		"server 198.51.100.7() -> db(postgres) 192.0.2.1:5432 is 172.17.0.3:5432 via docker-proxy none 5",
		"client host(psql) -> db(postgres) 127.0.0.1:5432 is 172.17.0.3:5432 via docker-proxy exact * 4",
		"server host(psql) -> db(postgres) 127.0.0.1:5432 is 172.17.0.3:5432 via docker-proxy exact * 4",
		"client web(psql) -> db(postgres) 172.17.0.1:5432 is 172.17.0.3:5432 via docker-proxy exact * 3",
		"server web(psql) -> db(postgres) 172.17.0.1:5432 is 172.17.0.3:5432 via docker-proxy exact * 3")
	check("names of processes that the kernel leaves out are those of what listens there", func(w *world) {
		const proxy = 2
		w.groups[proxy] = w.containers[0]
		w.docker("web", 10, 100, "172.17.0.2")
		w.docker("db", 20, 200, "172.17.0.3")
		w.docker("sidecar", 30, 200, "172.17.0.3")
		listens := func(owner model.CgroupID, address, process string) {
			w.listens(owner, 200, address)
			w.listeners[len(w.listeners)-1].Process = process
		}
		listens(20, "172.17.0.3:5432", "postgres")
		listens(30, "127.0.0.1:5432", "pgbouncer")
		listens(20, "0.0.0.0:80", "nginx")
		listens(20, "172.17.0.3:443", "nginx")
		listens(20, "0.0.0.0:443", "haproxy")
		w.dials(10, 100, "172.17.0.1:5432", 3)
		w.meets(proxy, "")
		w.by("psql", "")
		w.dials(proxy, hostNS, "172.17.0.3:5432", 9)
		w.meets(20, "172.17.0.1:5432")
		w.by("docker-proxy", "")
		w.last().Forwarder = true
		for i, port := range []string{"80", "443", "81"} {
			w.dials(10, 100, "172.17.0.3:"+port, uint64(i+4))
			w.meets(20, "")
			w.by("curl", "")
		}
	},
		"client web(psql) -> db(postgres) 172.17.0.1:5432 is 172.17.0.3:5432 via docker-proxy exact 3",
		"client web(curl) -> db(nginx) 172.17.0.3:80 exact 4",
		"client web(curl) -> db() 172.17.0.3:81 exact 6",
		"client web(curl) -> db() 172.17.0.3:443 exact 5")
	check("a client of the proxy that is one of several stays the proxy", func(w *world) {
		const proxy = 2
		w.groups[proxy] = w.containers[0]
		w.docker("db", 20, 200, "172.17.0.3")
		w.serves(20, 200, "172.17.0.3:5432", "172.17.0.1", proxy, 3)
		w.by("postgres", "docker-proxy")
	}, "server host(docker-proxy) -> db(postgres) 172.17.0.3:5432 exact 3")
	check("confidence", func(w *world) {
		w.docker("web", 10, 100, "172.17.0.2")
		w.docker("db", 20, 200, "172.17.0.3")
		w.listens(20, 200, "0.0.0.0:1")
		w.listeners[0].Process = "redis-server"
		w.dials(10, 100, "172.17.0.3:1", 1)
		w.dials(10, 100, "172.17.0.3:2", 2)
		w.dials(10, 100, "198.51.100.7:3", 3)
		w.serves(20, 200, "172.17.0.3:4", "172.17.0.2", 0, 4)
	},
		"client web() -> 198.51.100.7() 198.51.100.7:3 none 3",
		"client web() -> db(redis-server) 172.17.0.3:1 listener 1",
		"client web() -> db() 172.17.0.3:2 address 2",
		"server web() -> db() 172.17.0.3:4 address 4")
	check("ends that know more processes than the other are paired all the same", func(w *world) {
		w.docker("web", 10, 100, "172.17.0.2")
		w.docker("db", 20, 200, "172.17.0.3")
		w.dials(10, 100, "172.17.0.3:1", 7)
		w.by("php", "")
		w.serves(20, 200, "172.17.0.3:1", "172.17.0.2", 0, 7)
		w.by("redis-server", "")
	},
		"client web(php) -> db(redis-server) 172.17.0.3:1 listener * 7",
		"server web() -> db(redis-server) 172.17.0.3:1 address * 7")
	check("two processes of one container are two edges", func(w *world) {
		w.docker("web", 10, 100, "172.17.0.2")
		w.docker("db", 20, 200, "172.17.0.3")
		for i, process := range []string{"php", "cron"} {
			w.dials(10, 100, "172.17.0.3:1", uint64(i+1))
			w.meets(20, "")
			w.by(process, "redis-server")
		}
	},
		"client web(cron) -> db(redis-server) 172.17.0.3:1 exact 2",
		"client web(php) -> db(redis-server) 172.17.0.3:1 exact 1")
	check("UDP and TCP at one address", func(w *world) {
		w.docker("web", 10, 100, "172.17.0.2")
		w.docker("dns", 20, 200, "172.17.0.3")
		w.docker("other", 21, 200, "172.17.0.3")
		w.listens(21, 200, "0.0.0.0:53")
		w.dials(10, 100, "172.17.0.3:53", 1)
		w.dials(10, 100, "172.17.0.3:53", 2)
		w.last().Transport = model.UDP
		w.serves(20, 200, "172.17.0.3:53", "172.17.0.2", 10, 2)
		w.last().Transport = model.UDP
	},
		"client web() -> dns() 172.17.0.3:53 listener * 2",
		"server web() -> dns() 172.17.0.3:53 exact * 2",
		"client web() -> other() 172.17.0.3:53 listener 1")
}

// A forwarder's backend may be known only after its first client.
func TestForwarderLearntLate(t *testing.T) {
	w := newWorld()
	w.groups[2] = w.containers[0]
	w.docker("web", 10, 100, "172.17.0.2")
	w.docker("db", 20, 200, "172.17.0.3")
	w.dials(10, 100, "172.17.0.1:5432", 3)
	w.meets(2, "")
	w.by("psql", "docker-proxy")
	r := New(Options{})
	expectDescribed(t, r.Resolve(w.view()), "client web(psql) -> host(docker-proxy) 172.17.0.1:5432 exact 3")
	w.edges[0].Counters = counted(5)
	w.dials(2, hostNS, "172.17.0.3:5432", 9)
	w.meets(20, "172.17.0.1:5432")
	w.by("docker-proxy", "postgres")
	w.last().Forwarder = true
	expectDescribed(t, r.Resolve(w.view()), "client web(psql) -> db(postgres) 172.17.0.1:5432 is 172.17.0.3:5432 via "+
		"docker-proxy exact 5")
}

func expectDescribed(t *testing.T, edges []model.Edge, want ...string) {
	t.Helper()
	if got := describe(edges); got != strings.Join(want, "\n") {
		t.Errorf("got edges\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
}

func TestProcessNamesThatAreLearntMoveTheCounts(t *testing.T) {
	w := newWorld()
	w.docker("web", 10, 100, "172.17.0.2")
	w.docker("db", 20, 200, "172.17.0.3")
	w.listens(20, 200, "0.0.0.0:1")
	w.dials(10, 100, "172.17.0.3:1", 5)
	r := New(Options{})
	expectDescribed(t, r.Resolve(w.view()), "client web() -> db() 172.17.0.3:1 listener 5")
	w.listeners[0].Process = "redis-server"
	w.edges[0].Counters = counted(6)
	expectDescribed(t, r.Resolve(w.view()), "client web() -> db(redis-server) 172.17.0.3:1 listener 6")
	w.listeners = nil
	w.edges[0].Counters = counted(7)
	expectDescribed(t, r.Resolve(w.view()), "client web() -> db(redis-server) 172.17.0.3:1 listener 7")
}

func TestProcessNamesComeFromTheView(t *testing.T) {
	w := newWorld()
	w.docker("web", 10, 100, "172.17.0.2")
	w.docker("db", 20, 200, "172.17.0.3")
	w.dials(10, 100, "172.17.0.3:1", 5)
	w.meets(20, "")
	w.by("java", "node")
	w.edges[0].PID = 77
	v := w.view()
	v.Process = func(id model.CgroupID, name string, pid int) string { return fmt.Sprint(id, name, pid) }
	expectDescribed(t, New(Options{}).Resolve(v), "client web(10java77) -> db(20node0) 172.17.0.3:1 exact 5")
}

func TestUnmatchedShare(t *testing.T) {
	if got := model.UnmatchedShare(nil); got != 0 {
		t.Errorf("no edges: got %v", got)
	}
	edges := []model.Edge{{Confidence: model.Exact}, {}, {Confidence: model.ByAddress}, {Confidence: model.ByListener}}
	if got := model.UnmatchedShare(edges); got != 0.25 {
		t.Errorf("got %v, want 0.25", got)
	}
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
