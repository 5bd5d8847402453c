package control

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
)

// DefaultContainers is how many pairs of containers of two hosts are measured.
const DefaultContainers = 4

// ContainerPair are two containers on two hosts, by their names there.
type ContainerPair struct{ ClientHost, Client, ServerHost, Server string }

// ContainerTalk is a pair of containers with network namespaces of their own, of which the client reaches the server at an
// address of the server's.
type ContainerTalk struct {
	ClientHost, ServerHost string
	Client, Server         Container
	// ClientAddresses are the client's own, At is where it reaches the server.
	ClientAddresses []netip.Addr
	At              netip.Addr
	Bytes           uint64
}

func (t *ContainerTalk) pair() ContainerPair {
	return ContainerPair{t.ClientHost, t.Client.Name, t.ServerHost, t.Server.Name}
}

// hosts are those of a pair, whoever is the client.
func (t *ContainerTalk) hosts() Pair {
	return Pair{min(t.ClientHost, t.ServerHost), max(t.ClientHost, t.ServerHost)}
}

func (p ContainerPair) compare(other ContainerPair) int {
	return cmp.Or(cmp.Compare(p.ClientHost, other.ClientHost), cmp.Compare(p.ServerHost, other.ServerHost),
		cmp.Compare(p.Client, other.Client), cmp.Compare(p.Server, other.Server))
}

const (
	// maxContainerInterval is the longest time between two packets of a host's sessions that those of containers bring about.
	maxContainerInterval = 8 * MinInterval
	// heldWeight is how many times as much another pair must talk to take the place of one that is measured.
	heldWeight = 2
)

// containerLink is a pair of containers that is measured.
type containerLink struct {
	ContainerTalk
	from, to *Agent
}

// chooseContainers finds the pairs of containers that are measured, in order of their names, and adds their sessions to the
// degrees of their hosts: of two hosts those that talk most. What is reached at the same address from the same client, as
// containers of one pod are, is measured once.
func (d *Decision) chooseContainers(agents map[string]*Agent, talks []ContainerTalk, held map[ContainerPair]bool,
	limits Limits, degree map[string]int) (chosen []containerLink) {
	weight := func(t *ContainerTalk) uint64 {
		if held[t.pair()] {
			return heldWeight * t.Bytes
		}
		return t.Bytes
	}
	talks = slices.Clone(talks)
	slices.SortFunc(talks, func(x, y ContainerTalk) int {
		return cmp.Or(cmp.Compare(weight(&y), weight(&x)), x.pair().compare(y.pair()), x.At.Compare(y.At))
	})
	type way struct {
		clientHost, serverHost string
		client, server         netip.Addr
	}
	ways, ofHosts := map[way]bool{}, map[Pair]int{}
	most := min(int(packetsPerSecond(limits.Rate)*maxContainerInterval.Seconds()), MaxSessions)
	for i := range talks {
		t := &talks[i]
		from, to := agents[t.ClientHost], agents[t.ServerHost]
		if from == nil || to == nil || t.ClientHost == t.ServerHost || !from.Containers || !to.Containers || !t.valid(to) {
			continue
		}
		by := way{t.ClientHost, t.ServerHost, t.ClientAddresses[0], t.At}
		switch {
		case d.Held.Containers[t.pair()] || ways[by] || ofHosts[t.hosts()] >= limits.Containers:
		case degree[t.ClientHost] >= most || degree[t.ServerHost] >= most:
			d.RefusedContainers++
		default:
			degree[t.ClientHost]++
			degree[t.ServerHost]++
			ofHosts[t.hosts()]++
			ways[by], d.Held.Containers[t.pair()] = true, true
			chosen = append(chosen, containerLink{*t, from, to})
		}
	}
	slices.SortFunc(chosen, func(x, y containerLink) int { return x.pair().compare(y.pair()) })
	return chosen
}

// valid reports whether an agent takes what is said of the pair; to is that of the server's host.
func (t *ContainerTalk) valid(to *Agent) bool {
	return t.Client.check() == nil && t.Server.check() == nil && len(t.ClientAddresses) > 0 &&
		checkReflector(netip.AddrPortFrom(t.At, to.Port)) == nil
}

// addContainers tells both agents of a session. The reflector has the port of the server's agent, in the namespace of its
// container; the client may be seen by an address of its host.
func (d *Decision) addContainers(c containerLink, interval time.Duration, key []byte, number uint16) {
	at := netip.AddrPortFrom(c.At, c.to.Port)
	addresses := slices.Concat(c.ClientAddresses, sources(c.from))
	addresses = addresses[:min(len(addresses), maxAddresses)]
	from, to := d.States[c.ClientHost], d.States[c.ServerHost]
	from.ContainerSessions = append(from.ContainerSessions, ContainerSession{
		Session{Peer: c.ServerHost, Reflector: at, Number: number, Key: key, IntervalSeconds: interval.Seconds()}, c.Client, c.Server})
	to.ContainerPeers = append(to.ContainerPeers, ContainerPeer{
		Peer{Name: c.ClientHost, Addresses: addresses, Number: number, Key: key}, c.Server, at})
}
