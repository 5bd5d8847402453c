package control

import (
	"bytes"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"testing"
)

// containersOf are containers of two hosts that talk, by their names; the client's address ends with 1, the server's with 2.
func containersOf(clientHost, client, serverHost, server string, bytes uint64) ContainerTalk {
	address := func(host, name string, last byte) netip.Addr {
		return netip.AddrFrom4([4]byte{10, host[len(host)-1], name[len(name)-1], last})
	}
	return ContainerTalk{ClientHost: clientHost, ServerHost: serverHost, Client: Container{"id-" + client, client},
		Server: Container{"id-" + server, server}, ClientAddresses: []netip.Addr{address(clientHost, client, 1)},
		At: address(serverHost, server, 2), Bytes: bytes}
}

// capable are agents that make sockets in containers.
func capable(all ...*Agent) map[string]*Agent {
	for _, a := range all {
		a.Containers = true
	}
	return agentsOf(all...)
}

// TestDecideContainers: the agent of the client's host holds the session, also where it has the greater name, the other one
// answers it at the container's address with the same key and number; hosts that reach one another by no address have
// containers that do.
func TestDecideContainers(t *testing.T) {
	agents := capable(agentAt("a"), agentAt("b", "192.0.2.2"))
	agents["b"].Seen = netip.MustParseAddr("198.51.100.1")
	talks := Talks{Hosts: []Talk{talkOf("a", "b", 5)}, Containers: []ContainerTalk{containersOf("b", "web", "a", "db", 5)}}
	limits := Limits{DefaultRate, DefaultContainers, nil}
	d := Decide(secret, "", agents, talks, Held{}, limits)
	if want := map[ContainerPair]bool{{"b", "web", "a", "db"}: true}; !reflect.DeepEqual(d.Held.Containers, want) ||
		d.Unreachable != 1 || len(d.Held.Hosts) > 0 {
		t.Fatalf("held %+v, %d unreachable", d.Held, d.Unreachable)
	}
	from, to := d.States["b"], d.States["a"]
	if len(from.ContainerSessions) != 1 || len(to.ContainerPeers) != 1 || len(from.ContainerPeers)+len(to.ContainerSessions) > 0 {
		t.Fatalf("b has %+v, a has %+v", from, to)
	}
	s, p := from.ContainerSessions[0], to.ContainerPeers[0]
	at := netip.AddrPortFrom(talks.Containers[0].At, agents["a"].Port)
	if s.Peer != "a" || s.Reflector != at || s.Client != (Container{"id-web", "web"}) || s.Server != (Container{"id-db", "db"}) ||
		s.Interval() != MinInterval {
		t.Errorf("the session is %+v", s)
	}
	addresses := []netip.Addr{talks.Containers[0].ClientAddresses[0], netip.MustParseAddr("192.0.2.2"), agents["b"].Seen}
	if p.Name != "b" || p.At != at || p.Server != s.Server || p.Number != s.Number || s.Number == 0 ||
		!bytes.Equal(p.Key, s.Key) || len(s.Key) != 32 || !slices.Equal(p.Addresses, addresses) {
		t.Errorf("the peer is %+v, the session %+v", p, s)
	}
	for host, state := range d.States {
		state.LeaseSeconds = 60
		if read, err := ParseState(encoded(t, state)); err != nil || !reflect.DeepEqual(&read, state) {
			t.Errorf("of %s read %+v, %v; want %+v", host, read, err, state)
		}
	}
	// Another container of the name has another key; the same again is the same state.
	if again := Decide(secret, "", agents, talks, d.Held, limits); again.States["a"].Version != to.Version {
		t.Error("the second time the state is another one")
	}
	talks.Containers[0].Server.ID = "id-next"
	other := Decide(secret, "", agents, talks, d.Held, limits)
	if next := other.States["b"].ContainerSessions; len(next) != 1 || bytes.Equal(next[0].Key, s.Key) {
		t.Errorf("of the next container there are %+v", next)
	}
	// Nothing else is measured.
	f := func(what string, change func(*ContainerTalk), limits Limits) {
		t.Helper()
		talk := containersOf("b", "web", "a", "db", 5)
		change(&talk)
		if d := Decide(secret, "", agents, Talks{Containers: []ContainerTalk{talk}}, Held{}, limits); len(d.Held.Containers) > 0 ||
			len(d.States["a"].ContainerPeers)+len(d.States["b"].ContainerSessions) > 0 {
			t.Errorf("%s: held %+v", what, d.Held)
		}
	}
	same := func(*ContainerTalk) {}
	f("no containers wanted", same, Limits{DefaultRate, -1, nil})
	f("within a host", func(c *ContainerTalk) { c.ClientHost = "a" }, limits)
	f("an unknown host", func(c *ContainerTalk) { c.ClientHost = "c" }, limits)
	f("no client's address", func(c *ContainerTalk) { c.ClientAddresses = nil }, limits)
	f("a server's address of no use", func(c *ContainerTalk) { c.At = netip.MustParseAddr("127.0.0.1") }, limits)
	f("an ID of no use", func(c *ContainerTalk) { c.Client.ID = string(make([]byte, maxContainerBytes+1)) }, limits)
	agents["a"].Containers = false
	f("an agent that cannot", same, limits)
}

// TestContainersLimits: of two hosts those that talk most are measured, and one that is measured gives way to who talks twice
// as much; one path is measured once, and no host sends more than its rate.
func TestContainersLimits(t *testing.T) {
	agents := capable(agentAt("a", "192.0.2.1"), agentAt("b", "192.0.2.2"))
	limits := Limits{DefaultRate, 2, nil}
	held := Held{}
	f := func(talks []ContainerTalk, want ...string) {
		t.Helper()
		d := Decide(secret, "", agents, Talks{Containers: talks}, held, limits)
		var got []string
		for _, s := range d.States["a"].ContainerSessions {
			got = append(got, s.Client.Name)
		}
		if !slices.Equal(got, want) || len(d.Held.Containers) != len(want) {
			t.Errorf("measured %v, want %v; held %v", got, want, d.Held.Containers)
		}
		held = d.Held
	}
	of := func(client string, bytes uint64) ContainerTalk { return containersOf("a", client, "b", "db", bytes) }
	f([]ContainerTalk{of("w1", 1), of("w2", 9), of("w3", 8)}, "w2", "w3")
	f([]ContainerTalk{of("w1", 15), of("w2", 9), of("w3", 8)}, "w2", "w3")
	f([]ContainerTalk{of("w1", 17), of("w2", 9), of("w3", 8)}, "w1", "w2")
	sidecar := of("w1", 16)
	sidecar.Client = Container{"id-sidecar", "sidecar"}
	f([]ContainerTalk{of("w1", 17), sidecar, of("w2", 9)}, "w1", "w2")
	f(nil)

	const hosts = 30
	for i := range hosts {
		host := fmt.Sprintf("h%c", 'A'+i)
		agents[host] = capable(agentAt(host, fmt.Sprintf("10.0.0.%d", i+1)))[host]
	}
	var talks Talks
	for i := range hosts {
		host := fmt.Sprintf("h%c", 'A'+i)
		talks.Hosts = append(talks.Hosts, talkOf("a", host, 1))
		for j := range 8 {
			talks.Containers = append(talks.Containers, containersOf("a", fmt.Sprintf("w%c", 'A'+j), host, "db", 1))
		}
	}
	for _, wanted := range []int{0, 1, 2, 20} {
		talks := Talks{Hosts: talks.Hosts[:wanted], Containers: talks.Containers}
		limits.Containers = 4
		d := Decide(secret, "", agents, talks, Held{}, limits)
		sent, numbers, sessions := map[string]float64{}, map[string]bool{}, 0
		for host, state := range d.States {
			add := func(s *Session) {
				sessions++
				sent[host] += 8 * PacketBytes / s.IntervalSeconds
				sent[s.Peer] += 8 * PacketBytes / s.IntervalSeconds
				if s.Interval() > maxContainerInterval {
					t.Errorf("%d hosts: %s sends each %v", wanted, host, s.Interval())
				}
				if key := fmt.Sprint(s.Peer, s.Number); numbers[key] {
					t.Errorf("two sessions have the number %d at %s", s.Number, s.Peer)
				} else {
					numbers[key] = true
				}
			}
			for i := range state.Sessions {
				add(&state.Sessions[i])
			}
			for i := range state.ContainerSessions {
				add(&state.ContainerSessions[i].Session)
			}
		}
		for host, bits := range sent {
			if bits > DefaultRate {
				t.Errorf("%d hosts: %s sends %.0f bit/s, want %d at most", wanted, host, bits, DefaultRate)
			}
		}
		if most := int(packetsPerSecond(DefaultRate) * maxContainerInterval.Seconds()); sessions != most ||
			len(d.Held.Hosts) != wanted || len(d.Held.Containers) != most-wanted || d.RefusedContainers == 0 {
			t.Errorf("%d hosts: %d sessions, want %d; %d of hosts; %d refused", wanted, sessions, most, len(d.Held.Hosts),
				d.RefusedContainers)
		}
	}
}
