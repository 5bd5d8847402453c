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

// world is a small host for tests: containers by name, control group ids by number.
type world struct {
	containers []*model.Container
	groups     map[model.CgroupID]*model.Container
	edges      []model.KernelEdge
	listeners  []model.Listener
}

const hostNS = 1

func newWorld() *world {
	w := &world{groups: make(map[model.CgroupID]*model.Container)}
	w.add(&model.Container{ID: model.HostContainerID, Name: "host", Runtime: model.HostRuntime}, 1, hostNS, "192.0.2.1",
		"172.17.0.1")
	return w
}

func (w *world) add(c *model.Container, group model.CgroupID, netns uint32, addrs ...string) *model.Container {
	c.Cgroup, c.NetNS = group, netns
	for _, a := range addrs {
		c.Addresses = append(c.Addresses, netip.MustParseAddr(a))
	}
	w.containers = append(w.containers, c)
	w.groups[group] = c
	return c
}

func (w *world) docker(name string, group model.CgroupID, netns uint32, addrs ...string) *model.Container {
	return w.add(&model.Container{ID: "id-" + name, Name: name, Runtime: model.Docker}, group, netns, addrs...)
}

func (w *world) end(name string) {
	w.containers = slices.Clone(w.containers)
	for i, c := range w.containers {
		if c.Name == name {
			ended := *c
			ended.Ended = time.Unix(1, 0)
			w.containers[i] = &ended
		}
	}
}

func (w *world) remove(name string) {
	w.containers = slices.DeleteFunc(slices.Clone(w.containers), func(c *model.Container) bool { return c.Name == name })
	for id, c := range w.groups {
		if c.Name == name {
			delete(w.groups, id)
		}
	}
}

func (w *world) view() View {
	return View{
		Edges: w.edges, Listeners: w.listeners, Containers: w.containers,
		Container: func(id model.CgroupID) *model.Container { return w.groups[id] },
	}
}

// dials and serves add a kernel edge with n transactions and n bytes sent.
func (w *world) dials(owner model.CgroupID, netns uint32, service string, n uint64) {
	w.edges = append(w.edges, model.KernelEdge{
		Key: model.KernelEdgeKey{Owner: owner, NetNS: netns, Role: model.RoleClient,
			Service: netip.MustParseAddrPort(service)},
		Counters: counted(n),
	})
}

func (w *world) serves(owner model.CgroupID, netns uint32, service, client string, peer model.CgroupID, n uint64) {
	k := model.KernelEdgeKey{Owner: owner, Peer: peer, NetNS: netns, Role: model.RoleServer,
		Service: netip.MustParseAddrPort(service)}
	if client != "" {
		k.Client = netip.MustParseAddr(client)
	}
	w.edges = append(w.edges, model.KernelEdge{Key: k, Counters: counted(n)})
}

// last is the key of the edge added last, to be completed.
func (w *world) last() *model.KernelEdgeKey { return &w.edges[len(w.edges)-1].Key }

// meets makes the last edge one whose other end the kernel has seen, and which sees the service
// at far, "" for the same address.
func (w *world) meets(peer model.CgroupID, far string) {
	w.last().Peer = peer
	if far != "" {
		w.last().Far = netip.MustParseAddrPort(far)
	}
}

// by names the processes at the last edge's own and other end.
func (w *world) by(process, peer string) {
	w.last().Process, w.last().PeerProcess = process, peer
}

func (w *world) listens(owner model.CgroupID, netns uint32, address string) {
	w.listeners = append(w.listeners, model.Listener{Owner: owner, NetNS: netns,
		Address: netip.MustParseAddrPort(address)})
}

func counted(n uint64) model.EdgeCounters {
	return model.EdgeCounters{SentBytes: n, Latency: histogram(n)}
}

func histogram(n uint64) *model.Histogram {
	if n == 0 {
		return nil
	}
	return &model.Histogram{Count: n, SumNS: n * 1e6, Offset: -300, Buckets: []uint64{n}}
}

// render writes edges as one line each: "side client -> server service sent/transactions", with
// a star where the other end is there too.
func render(edges []model.Edge) string {
	var lines []string
	for _, e := range edges {
		star := ""
		if e.Paired {
			star = " *"
		}
		lines = append(lines, fmt.Sprintf("%s %s -> %s %s %d/%d%s", e.Side, e.Client.Name(), e.Server.Name(),
			e.Service, e.Counters.SentBytes, e.Counters.Transactions(), star))
	}
	return strings.Join(lines, "\n")
}

func expect(t *testing.T, edges []model.Edge, want ...string) {
	t.Helper()
	if got := render(edges); got != strings.Join(want, "\n") {
		t.Errorf("got edges\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
}

func TestResolve(t *testing.T) {
	check := func(name string, build func(*world), want ...string) {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			build(w)
			first := New(Options{}).Resolve(w.view())
			expect(t, first, want...)
			// The order in which the kernel lists its edges means nothing.
			slices.Reverse(w.edges)
			slices.Reverse(w.listeners)
			slices.Reverse(w.containers)
			expect(t, New(Options{}).Resolve(w.view()), want...)
		})
	}
	check("both ends", func(w *world) {
		w.docker("web", 10, 100, "172.17.0.2")
		w.docker("db", 20, 200, "172.17.0.3")
		w.dials(10, 100, "172.17.0.3:5432", 7)
		w.serves(20, 200, "172.17.0.3:5432", "172.17.0.2", 10, 7)
	}, "client web -> db 172.17.0.3:5432 7/7 *", "server web -> db 172.17.0.3:5432 7/7 *")
	check("client by its address where the kernel did not see it open", func(w *world) {
		w.docker("web", 10, 100, "172.17.0.2")
		w.docker("db", 20, 200, "172.17.0.3")
		w.serves(20, 200, "172.17.0.3:5432", "172.17.0.2", 0, 7)
	}, "server web -> db 172.17.0.3:5432 7/7")
	check("loopback in two namespaces with equal ports", func(w *world) {
		w.docker("a", 10, 100, "172.17.0.2")
		w.docker("b", 20, 200, "172.17.0.3")
		w.dials(10, 100, "127.0.0.1:80", 1)
		w.dials(20, 200, "127.0.0.1:80", 2)
		w.serves(10, 100, "127.0.0.1:80", "127.0.0.1", 0, 1)
		w.serves(20, 200, "127.0.0.1:80", "127.0.0.1", 0, 2)
	}, "client a -> a 127.0.0.1:80 1/1 *", "server a -> a 127.0.0.1:80 1/1 *",
		"client b -> b 127.0.0.1:80 2/2 *", "server b -> b 127.0.0.1:80 2/2 *")
	check("loopback without a second end", func(w *world) {
		w.docker("a", 10, 100, "172.17.0.2")
		w.docker("b", 20, 200, "172.17.0.3")
		w.serves(20, 200, "127.0.0.1:80", "127.0.0.1", 0, 2)
		w.listens(10, 100, "127.0.0.1:81")
		w.dials(10, 100, "127.0.0.1:81", 3)
		w.dials(20, 200, "127.0.0.1:81", 4)
	}, "client a -> a 127.0.0.1:81 3/3", "client b -> 127.0.0.1 127.0.0.1:81 4/4", "server b -> b 127.0.0.1:80 2/2")
	check("pod: two clients in one namespace", func(w *world) {
		w.docker("app", 10, 100, "10.0.0.2")
		w.docker("sidecar", 11, 100, "10.0.0.2")
		w.docker("db", 20, 200, "10.0.0.3")
		w.dials(10, 100, "10.0.0.3:1", 3)
		w.dials(11, 100, "10.0.0.3:1", 4)
		w.dials(10, 100, "127.0.0.1:2", 5)
		w.serves(20, 200, "10.0.0.3:1", "10.0.0.2", 10, 3)
		w.serves(20, 200, "10.0.0.3:1", "10.0.0.2", 11, 4)
		w.serves(11, 100, "127.0.0.1:2", "127.0.0.1", 10, 5)
	}, "client app -> db 10.0.0.3:1 3/3 *", "server app -> db 10.0.0.3:1 3/3 *",
		"client app -> sidecar 127.0.0.1:2 5/5 *", "server app -> sidecar 127.0.0.1:2 5/5 *",
		"client sidecar -> db 10.0.0.3:1 4/4 *", "server sidecar -> db 10.0.0.3:1 4/4 *")
	check("pod: which of two clients only the client's end tells", func(w *world) {
		w.docker("app", 10, 100, "10.0.0.2")
		w.docker("sidecar", 11, 100, "10.0.0.2")
		w.docker("db", 20, 200, "10.0.0.3")
		w.dials(11, 100, "10.0.0.3:1", 4)
		w.serves(20, 200, "10.0.0.3:1", "10.0.0.2", 0, 4)
		w.serves(20, 200, "10.0.0.3:2", "10.0.0.2", 0, 5)
	}, "server 10.0.0.2 -> db 10.0.0.3:2 5/5",
		"client sidecar -> db 10.0.0.3:1 4/4 *", "server sidecar -> db 10.0.0.3:1 4/4 *")
	check("host network", func(w *world) {
		w.docker("proxy", 10, hostNS, "192.0.2.1", "172.17.0.1")
		w.docker("web", 20, 200, "172.17.0.2")
		w.dials(10, hostNS, "172.17.0.2:80", 3)
		w.dials(1, hostNS, "127.0.0.1:8080", 4)
		w.dials(20, 200, "172.17.0.1:8080", 5)
		w.serves(20, 200, "172.17.0.2:80", "172.17.0.1", 10, 3)
		w.serves(10, hostNS, "127.0.0.1:8080", "127.0.0.1", 1, 4)
		w.listens(10, hostNS, "0.0.0.0:8080")
		w.serves(20, 200, "172.17.0.2:80", "192.0.2.1", 0, 6)
	}, "client host -> proxy 127.0.0.1:8080 4/4 *", "server host -> proxy 127.0.0.1:8080 4/4 *",
		// Both of the server's groups are from the proxy: it alone dials from this namespace.
		"client proxy -> web 172.17.0.2:80 3/3 *", "server proxy -> web 172.17.0.2:80 9/9 *",
		"client web -> proxy 172.17.0.1:8080 5/5")
	check("the host's address alone names nobody", func(w *world) {
		w.docker("web", 20, 200, "172.17.0.2")
		w.serves(20, 200, "172.17.0.2:80", "172.17.0.1", 0, 6)
	}, "server 172.17.0.1 -> web 172.17.0.2:80 6/6")
	check("others", func(w *world) {
		w.docker("web", 20, 200, "172.17.0.2")
		w.serves(20, 200, "172.17.0.2:80", "", 0, 6)
		w.serves(20, 200, "172.17.0.2:80", "198.51.100.7", 0, 1)
	}, "server 198.51.100.7 -> web 172.17.0.2:80 1/1", "server others -> web 172.17.0.2:80 6/6")
	check("outside server, and unknown roles left out", func(w *world) {
		w.docker("web", 20, 200, "172.17.0.2")
		w.dials(20, 200, "198.51.100.7:443", 2)
		w.edges = append(w.edges,
			model.KernelEdge{Key: model.KernelEdgeKey{Owner: 20, NetNS: 200}, Counters: counted(9)})
	}, "client web -> 198.51.100.7 198.51.100.7:443 2/2")
	check("what found no room in the kernel's table", func(w *world) {
		w.docker("web", 20, 200, "172.17.0.2")
		w.serves(20, 200, "172.17.0.2:80", "", 0, 6)
		w.docker("zoo", 30, 300, "172.17.0.3").ID = "zoo"
		w.dials(30, 300, "198.51.100.7:443", 2)
		w.edges = append(w.edges, model.KernelEdge{Key: model.KernelEdgeKey{Overflow: true}, Counters: counted(9)})
	}, "server others -> web 172.17.0.2:80 6/6", "unknown others -> others invalid AddrPort 9/9",
		"client zoo -> 198.51.100.7 198.51.100.7:443 2/2")
	check("IPv6 and IPv4 in IPv6 form", func(w *world) {
		w.docker("web", 10, 100, "172.17.0.2", "fd00::2")
		w.docker("db", 20, 200, "172.17.0.3", "fd00::3")
		w.dials(10, 100, "[fd00::3]:1", 2)
		w.serves(20, 200, "[fd00::3]:1", "fd00::2", 0, 2)
		w.dials(10, 100, "172.17.0.3:1", 3)
		w.serves(20, 200, "[::ffff:172.17.0.3]:1", "::ffff:172.17.0.2", 0, 3)
	}, "client web -> db 172.17.0.3:1 3/3 *", "server web -> db 172.17.0.3:1 3/3 *",
		"client web -> db [fd00::3]:1 2/2 *", "server web -> db [fd00::3]:1 2/2 *")
	check("a server that only listens, and one that never answered", func(w *world) {
		w.docker("web", 10, 100, "172.17.0.2", "fd00::2")
		w.docker("db", 20, 200, "172.17.0.3", "fd00::3")
		w.docker("db-metrics", 21, 200, "172.17.0.3", "fd00::3")
		w.listens(20, 200, "[::]:1")
		w.listens(21, 200, "172.17.0.3:1")
		w.listens(21, 200, "0.0.0.0:2")
		w.dials(10, 100, "172.17.0.3:1", 1)
		w.dials(10, 100, "[fd00::3]:1", 2)
		w.dials(10, 100, "172.17.0.3:2", 3)
		w.dials(10, 100, "[fd00::3]:2", 4)
	}, "client web -> fd00::3 [fd00::3]:2 4/4", "client web -> db [fd00::3]:1 2/2",
		"client web -> db-metrics 172.17.0.3:1 1/1", "client web -> db-metrics 172.17.0.3:2 3/3")
	check("equal addresses in two namespaces", func(w *world) {
		w.docker("a", 10, 100, "10.0.0.1")
		w.docker("b", 20, 200, "10.0.0.1")
		w.docker("c", 30, 300, "10.0.0.2")
		w.dials(30, 300, "10.0.0.1:1", 1)
		w.serves(10, 100, "10.0.0.1:1", "10.0.0.9", 0, 4)
		w.serves(20, 200, "10.0.0.1:1", "10.0.0.2", 30, 1)
		w.serves(30, 300, "10.0.0.2:1", "10.0.0.1", 0, 2)
	}, "server 10.0.0.1 -> c 10.0.0.2:1 2/2", "server 10.0.0.9 -> a 10.0.0.1:1 4/4",
		"client c -> b 10.0.0.1:1 1/1 *", "server c -> b 10.0.0.1:1 1/1 *")
	check("nested groups of a container are one end", func(w *world) {
		web := w.docker("web", 10, 100, "172.17.0.2")
		w.groups[11] = web
		w.dials(10, 100, "198.51.100.7:443", 2)
		w.dials(11, 100, "198.51.100.7:443", 3)
	}, "client web -> 198.51.100.7 198.51.100.7:443 5/5")
	check("unknown groups are the host's", func(w *world) {
		w.dials(99, hostNS, "198.51.100.7:443", 2)
	}, "client host -> 198.51.100.7 198.51.100.7:443 2/2")
}

func TestWithoutHostEdges(t *testing.T) {
	w := newWorld()
	w.dials(1, hostNS, "127.0.0.1:80", 2)
	w.serves(1, hostNS, "127.0.0.1:80", "127.0.0.1", 1, 2)
	w.dials(1, hostNS, "198.51.100.7:80", 2)
	expect(t, New(Options{WithoutHostEdges: true}).Resolve(w.view()), "client host -> 198.51.100.7 198.51.100.7:80 2/2")
	expect(t, New(Options{}).Resolve(w.view()),
		"client host -> 198.51.100.7 198.51.100.7:80 2/2",
		"client host -> host 127.0.0.1:80 2/2 *", "server host -> host 127.0.0.1:80 2/2 *")
}

func TestDropsTellOfBounds(t *testing.T) {
	w := newWorld()
	for i := range 20 {
		w.docker(fmt.Sprint("c", i), model.CgroupID(100+i), uint32(100+i))
		w.serves(model.CgroupID(100+i), uint32(100+i), "10.0.0.1:1", "10.0.0.2", 0, 1)
	}
	r := New(Options{MaxIdentities: 15})
	r.Resolve(w.view())
	i := slices.IndexFunc(r.Drops(), func(d model.Drop) bool { return d.Name == "network identities" })
	got := r.Drops()[i]
	if want := (model.Drop{Name: "network identities", Count: 5, Capacity: 15, Used: 15}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func BenchmarkResolve(b *testing.B) {
	w := newWorld()
	for i := range 50 {
		w.docker(fmt.Sprint("c", i), model.CgroupID(100+i), uint32(100+i), fmt.Sprintf("10.0.0.%d", i+1))
		for j := range 10 {
			to := (i + j) % 50
			service := fmt.Sprintf("10.0.0.%d:80", to+1)
			w.dials(model.CgroupID(100+i), uint32(100+i), service, 10)
			w.serves(model.CgroupID(100+to), uint32(100+to), service, fmt.Sprintf("10.0.0.%d", i+1), model.CgroupID(100+i), 10)
		}
	}
	r := New(Options{})
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		n = len(r.Resolve(w.view()))
	}
	b.ReportMetric(float64(n), "edges")
}
