package main

import (
	"math"
	"net/netip"
	"time"

	"outsight/internal/model"
)

// stand is a container of the shop: on which host, as a number from 1, with how many millicores and MiB.
type stand struct {
	name           string
	host           int
	millicores, mb uint64
}

var stands = []stand{
	{"shop-web", 1, 500, 300}, {"shop-search", 1, 700, 900}, {"shop-cart", 2, 400, 200}, {"shop-db", 2, 600, 1200},
	{"shop-cache", 3, 150, 700}, {"shop-mail", 3, 50, 120}, {"shop-stats", 3, 250, 400},
}

// calls are of the shop: who asks whom, how many requests in 10 ms, and bytes back for each.
var calls = []struct {
	client, server string
	requests       uint64
	reply          uint64
}{
	{"shop-web", "shop-cart", 2, 1500}, {"shop-web", "shop-search", 1, 4000}, {"shop-cart", "shop-cache", 6, 1800},
	{"shop-cart", "shop-db", 1, 900}, {"shop-search", "shop-db", 1, 2500}, {"shop-web", "shop-mail", 1, 60},
	{"shop-db", "shop-stats", 1, 300},
}

// container is that of a stand, with an address of its own, as Docker on several hosts with an overlay gives.
func (s stand) container() *model.Container {
	at := byte(0)
	for i := range stands {
		if stands[i].name == s.name {
			at = byte(i)
		}
	}
	address := netip.AddrFrom4([4]byte{10, 99, byte(s.host), 10 + at})
	return &model.Container{ID: "id-of-" + s.name, Name: s.name, Image: s.name + ":1", Runtime: model.Docker,
		Addresses: []netip.Addr{address}, Listeners: []netip.AddrPort{netip.AddrPortFrom(address, port)}}
}

func standOf(name string) stand {
	for _, s := range stands {
		if s.name == name {
			return s
		}
	}
	panic("BUG: no stand " + name)
}

// addShop adds the containers of this host and its ends of the calls, after n times 10 ms.
func (h *host) addShop(s *model.Snapshot, n uint64) {
	came := waves(n)
	for _, one := range stands {
		if one.host == h.shop {
			memory := one.mb << 20
			s.Containers = append(s.Containers, model.ContainerSample{Container: one.container(),
				CPU: &model.CPUCounters{UsageNS: (n + 4*came) * one.millicores * 2000}, Memory: &model.MemorySample{UsageBytes: memory, WorkingSetBytes: memory}})
		}
	}
	s.Host.Cores = 4
	if web := stands[0]; web.host == h.shop {
		c, counts := web.container(), shopCounters(came, 5000)
		counts.SentBytes, counts.ReceivedBytes = counts.ReceivedBytes, counts.SentBytes
		s.Edges = append(s.Edges, model.Edge{Instance: 1, Service: c.Listeners[0], Side: model.RoleServer,
			Client: model.Peer{Address: user}, Server: model.Peer{Container: c, Address: c.Addresses[0]}, Counters: counts})
	}
	for _, c := range calls {
		client, server := standOf(c.client), standOf(c.server)
		from, to := client.container(), server.container()
		e := model.Edge{Instance: 1, Service: to.Listeners[0], Client: model.Peer{Address: from.Addresses[0]},
			Server: model.Peer{Address: to.Addresses[0]}, Counters: shopCounters(came*c.requests, c.reply)}
		if client.host == h.shop {
			e.Side, e.Client.Container = model.RoleClient, from
			if server.host == h.shop {
				e.Server.Container = to
			}
			s.Edges = append(s.Edges, e)
		}
		if server.host == h.shop {
			e.Side, e.Server.Container = model.RoleServer, to
			e.Client.Container = nil
			if client.host == h.shop {
				e.Client.Container = from
			}
			e.Counters.SentBytes, e.Counters.ReceivedBytes = e.Counters.ReceivedBytes, e.Counters.SentBytes
			s.Edges = append(s.Edges, e)
		}
	}
}

// waves is how many times 10 ms of requests came in n of them: more and fewer in turn, so that it can be told what CPU time
// depends on them. A fifth of it does not.
func waves(n uint64) uint64 {
	const angle = 2 * math.Pi / 2000 // once in 20 s
	return uint64(float64(n) + 0.5*(1-math.Cos(angle*float64(n)))/angle)
}

// user asks the shop from outside.
var user = netip.MustParseAddr("203.0.113.9")

// shopCounters are those of n requests of 200 bytes, as their client counts them.
func shopCounters(n, reply uint64) model.EdgeCounters {
	h := counters(n, 2*time.Millisecond)
	h.SentBytes, h.ReceivedBytes = 200*n, reply*n
	return h
}
