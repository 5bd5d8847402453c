package network

import (
	"net/netip"
	"testing"

	"outsight/internal/model"
)

// udp makes the last n edges of a world edges of UDP.
func (w *world) udp(n int) {
	for i := range n {
		w.edges[len(w.edges)-1-i].Key.Transport = model.UDP
	}
}

func TestUDP(t *testing.T) {
	check := func(name string, build func(*world), want ...string) {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.docker("web", 10, 100, "172.17.0.2", "fd00::2")
			w.docker("dns", 20, 200, "172.17.0.3", "10.0.0.3", "fd00::3")
			build(w)
			expect(t, New(Options{}).Resolve(w.view()), want...)
		})
	}
	check("bound to one address", func(w *world) {
		w.dials(10, 100, "172.17.0.3:53", 3)
		w.serves(20, 200, "172.17.0.3:53", "172.17.0.2", 0, 3)
		w.udp(2)
	}, "client web -> dns 172.17.0.3:53 3/3 *", "server web -> dns 172.17.0.3:53 3/3 *")
	check("bound to all addresses: the one that was asked", func(w *world) {
		w.dials(10, 100, "172.17.0.3:53", 3)
		w.dials(10, 100, "[fd00::3]:53", 4)
		w.serves(20, 200, "[::]:53", "172.17.0.2", 0, 3)
		w.serves(20, 200, "[::]:53", "fd00::2", 0, 4)
		w.udp(4)
	}, "client web -> dns 172.17.0.3:53 3/3 *", "server web -> dns 172.17.0.3:53 3/3 *",
		"client web -> dns [fd00::3]:53 4/4 *", "server web -> dns [fd00::3]:53 4/4 *")
	check("bound to all addresses: two were asked", func(w *world) {
		w.dials(10, 100, "172.17.0.3:53", 3)
		w.dials(10, 100, "10.0.0.3:53", 4)
		w.serves(20, 200, "0.0.0.0:53", "172.17.0.2", 0, 7)
		w.udp(3)
	}, "server web -> dns 0.0.0.0:53 7/7", "client web -> dns 10.0.0.3:53 4/4", "client web -> dns 172.17.0.3:53 3/3")
	check("bound to all addresses: the only one", func(w *world) {
		w.serves(10, 100, "0.0.0.0:9", "198.51.100.7", 0, 5)
		w.serves(20, 200, "0.0.0.0:9", "198.51.100.7", 0, 6)
		w.udp(2)
	}, "server 198.51.100.7 -> dns 0.0.0.0:9 6/6", "server 198.51.100.7 -> web 172.17.0.2:9 5/5")
	check("loopback", func(w *world) {
		w.dials(20, 200, "127.0.0.1:8125", 5)
		w.serves(20, 200, "0.0.0.0:8125", "127.0.0.1", 0, 5)
		w.dials(10, 100, "127.0.0.1:8125", 7)
		w.udp(3)
	}, "client dns -> dns 127.0.0.1:8125 5/5 *", "server dns -> dns 127.0.0.1:8125 5/5 *",
		"client web -> 127.0.0.1 127.0.0.1:8125 7/7")
	check("Docker's resolver: another port than was dialled", func(w *world) {
		w.add(&model.Container{ID: "host", Name: "host", Runtime: model.HostRuntime}, 1, 1)
		w.dials(10, 100, "127.0.0.11:53", 5)
		w.serves(1, 100, "127.0.0.11:41234", "127.0.0.1", 0, 5)
		w.dials(20, 200, "127.0.0.11:53", 2)
		w.dials(20, 200, "127.0.0.11:54", 2)
		w.serves(1, 200, "127.0.0.11:35000", "127.0.0.1", 0, 4)
		w.udp(5)
	}, "client dns -> 127.0.0.11 127.0.0.11:53 2/2", "client dns -> 127.0.0.11 127.0.0.11:54 2/2",
		"server dns -> dns 127.0.0.11:35000 4/4",
		"client web -> web 127.0.0.11:53 5/5 *", "server web -> web 127.0.0.11:53 5/5 *")
	check("TCP on the same port is another relation", func(w *world) {
		w.dials(10, 100, "172.17.0.3:53", 3)
		w.serves(20, 200, "172.17.0.3:53", "172.17.0.2", 0, 3)
		w.udp(1)
		w.listens(20, 200, "172.17.0.3:53")
	}, "client web -> dns 172.17.0.3:53 3/3", "server web -> dns 172.17.0.3:53 3/3")
	check("a peer that nobody asked for", func(w *world) {
		w.dials(10, 100, "[::]:0", 3)
		w.udp(1)
	}, "client web -> others invalid AddrPort 3/3")
}

// The server's edge is read a moment before its client's: what it counted goes with its name.
func TestUDPServiceIsLearntLater(t *testing.T) {
	w := newWorld()
	w.docker("web", 10, 100, "172.17.0.2")
	w.docker("dns", 20, 200, "172.17.0.3", "10.0.0.3")
	w.serves(20, 200, "0.0.0.0:53", "172.17.0.2", 0, 2)
	w.udp(1)
	r := New(Options{})
	expect(t, r.Resolve(w.view()), "server web -> dns 0.0.0.0:53 2/2")
	w.edges[0].Counters = counted(5)
	w.dials(10, 100, "10.0.0.3:53", 5)
	w.udp(1)
	expect(t, r.Resolve(w.view()), "client web -> dns 10.0.0.3:53 5/5 *", "server web -> dns 10.0.0.3:53 5/5 *")
	// What is known is not unlearnt when the kernel forgets the client's edge.
	w.edges = w.edges[:1]
	w.edges[0].Counters = counted(6)
	edges := r.Resolve(w.view())
	if at := edges[len(edges)-1].Service; at != netip.MustParseAddrPort("10.0.0.3:53") ||
		edges[len(edges)-1].Transport != model.UDP {
		t.Errorf("the last edge is %+v", edges[len(edges)-1])
	}
}

// TestSocketsOnBehalfOfAContainer: what a process of the host holds in a container's namespace is the container's.
func TestSocketsOnBehalfOfAContainer(t *testing.T) {
	w := newWorld()
	w.add(&model.Container{ID: "host", Name: "host", Runtime: model.HostRuntime}, 1, 1)
	w.add(&model.Container{ID: "/docker.service", Name: "docker.service", Runtime: model.Systemd}, 2, 1)
	w.docker("web", 10, 100, "172.17.0.2")
	// Asked by UDP and by TCP; it asks another resolver by itself, from there and from the host.
	w.dials(10, 100, "127.0.0.11:53", 5)
	w.by("curl", "")
	w.serves(1, 100, "127.0.0.11:41234", "127.0.0.1", 0, 5)
	w.by("dockerd", "")
	w.dials(2, 100, "198.51.100.53:53", 3)
	w.by("dockerd", "")
	w.dials(1, 1, "198.51.100.53:53", 4)
	w.by("dockerd", "")
	w.udp(4)
	w.dials(10, 100, "127.0.0.11:53", 7)
	w.meets(1, "127.0.0.11:40000")
	w.by("curl", "dockerd")
	w.serves(1, 100, "127.0.0.11:40000", "127.0.0.1", 10, 7)
	w.meets(10, "127.0.0.11:53")
	w.by("dockerd", "curl")
	expectDescribed(t, New(Options{}).Resolve(w.view()),
		"client host(dockerd) -> 198.51.100.53() 198.51.100.53:53 none 4",
		"client web(dockerd) -> 198.51.100.53() 198.51.100.53:53 via dockerd none 3",
		"client web(curl) -> web(dockerd) 127.0.0.11:53 is 127.0.0.11:40000 via dockerd exact * 7",
		"server web(curl) -> web(dockerd) 127.0.0.11:53 is 127.0.0.11:40000 via dockerd exact * 7",
		"client web(curl) -> web(dockerd) 127.0.0.11:53 via dockerd listener * 5",
		"server web() -> web(dockerd) 127.0.0.11:53 via dockerd address * 5")
}

// TestNamespaceNumberIsUsedAgain: the kernel gives the number of a namespace that is gone to the next one. What was
// counted in the first is not of the container in the second, which has an edge once something is counted there.
func TestNamespaceNumberIsUsedAgain(t *testing.T) {
	w := newWorld()
	w.add(&model.Container{ID: "host", Name: "host", Runtime: model.HostRuntime}, 1, 1)
	w.docker("web", 10, 100, "172.17.0.2")
	w.dials(10, 100, "127.0.0.11:53", 5)
	w.by("curl", "")
	w.serves(1, 100, "127.0.0.11:53", "127.0.0.1", 0, 5)
	w.by("dockerd", "")
	w.udp(2)
	r := New(Options{})
	before := []string{
		"client web(curl) -> web(dockerd) 127.0.0.11:53 via dockerd listener * 5",
		"server web() -> web(dockerd) 127.0.0.11:53 via dockerd address * 5",
	}
	expectDescribed(t, r.Resolve(w.view()), before...)
	w.end("web")
	expectDescribed(t, r.Resolve(w.view()), before...)
	w.remove("web")
	w.docker("redis", 20, 100, "172.17.0.2")
	expectDescribed(t, r.Resolve(w.view()))
	w.edges[1].Counters = counted(7)
	edges := r.Resolve(w.view())
	if len(edges) != 1 || edges[0].Server.Container.Name != "redis" || edges[0].Counters.SentBytes != 2 {
		t.Errorf("got %+v", edges)
	}
}

// TestNamespaceNumbersComeAgain: what Docker's resolver answered in the namespace of a container that is gone is not in the
// way of the next container whose namespace has the same number.
func TestNamespaceNumbersComeAgain(t *testing.T) {
	w := newWorld()
	ask := func(name string, group model.CgroupID, resolver string, n uint64) {
		w.docker(name, group, 100, "172.17.0.2")
		w.dials(group, 100, "127.0.0.11:53", n)
		w.last().Transport = model.UDP
		w.serves(1, 100, resolver, "127.0.0.1", 0, n)
		w.last().Transport = model.UDP
	}
	r := New(Options{})
	ask("web", 10, "127.0.0.11:41234", 5)
	expect(t, r.Resolve(w.view()), "client web -> web 127.0.0.11:53 5/5 *", "server web -> web 127.0.0.11:53 5/5 *")
	w.remove("web")
	r.Resolve(w.view())
	ask("job", 20, "127.0.0.11:35000", 2)
	for range 2 {
		expect(t, r.Resolve(w.view()), "client job -> job 127.0.0.11:53 2/2 *", "server job -> job 127.0.0.11:53 2/2 *")
	}
}
