package control

import (
	"bytes"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"
)

func agentAt(host string, addresses ...string) *Agent {
	a := &Agent{Question: Question{Host: host, Epoch: 7, Port: 862}}
	for _, text := range addresses {
		a.Addresses = append(a.Addresses, netip.MustParseAddr(text))
	}
	return a
}

func agentsOf(all ...*Agent) map[string]*Agent {
	agents := map[string]*Agent{}
	for _, a := range all {
		agents[a.Host] = a
	}
	return agents
}

func talkOf(a, b string, bytes uint64) Talk { return Talk{Pair{a, b}, bytes} }

var secret = bytes.Repeat([]byte{1}, secretBytes)

// TestDecide: of a pair the lesser name sends, to an address that is the other's alone and of a family that it has; the
// other answers with the same key and number, and everybody else has nothing to do.
func TestDecide(t *testing.T) {
	agents := agentsOf(agentAt("a", "172.17.0.1", "192.0.2.1"), agentAt("b", "172.17.0.1", "2001:db8::2", "192.0.2.2"),
		agentAt("c", "192.0.2.3"), agentAt("v6", "2001:db8::6"))
	agents["b"].Port = 9000
	agents["a"].Seen = netip.MustParseAddr("198.51.100.1")
	talks := []Talk{talkOf("a", "b", 5), talkOf("a", "b", 5), talkOf("a", "nobody", 9), talkOf("b", "a", 9),
		talkOf("c", "v6", 1)}
	d := Decide(secret, "", agents, Talks{Hosts: talks}, Held{}, Limits{Rate: DefaultRate})
	if !reflect.DeepEqual(d.Held.Hosts, map[Pair]bool{{"a", "b"}: true}) || d.Unreachable != 1 || d.Refused != 0 {
		t.Fatalf("held %v, %d unreachable, %d refused", d.Held, d.Unreachable, d.Refused)
	}
	from, to := d.States["a"], d.States["b"]
	if len(from.Sessions) != 1 || len(from.Peers) != 0 || len(to.Peers) != 1 || len(to.Sessions) != 0 {
		t.Fatalf("a has %+v, b has %+v", from, to)
	}
	s, p := from.Sessions[0], to.Peers[0]
	if s.Peer != "b" || s.Reflector != netip.MustParseAddrPort("192.0.2.2:9000") || s.Interval() != MinInterval {
		t.Errorf("the session is %+v", s)
	}
	if p.Name != "a" || p.Number != s.Number || s.Number == 0 || !bytes.Equal(p.Key, s.Key) || len(s.Key) != 32 ||
		!slices.Equal(p.Addresses, append(agents["a"].Addresses, agents["a"].Seen)) {
		t.Errorf("the peer is %+v, the session %+v", p, s)
	}
	for _, host := range []string{"c", "v6"} {
		if state := d.States[host]; len(state.Sessions)+len(state.Peers) > 0 || state.Version == "" {
			t.Errorf("%s has %+v", host, state)
		}
	}
	// The same again is the same state; another secret, tenant or life of an agent is another key.
	if again := Decide(secret, "", agents, Talks{Hosts: talks}, d.Held, Limits{Rate: DefaultRate}); !reflect.DeepEqual(again.States, d.States) {
		t.Errorf("the second time %+v, the first %+v", again.States["a"], d.States["a"])
	}
	keys := map[string]bool{string(s.Key): true}
	other := Decide(bytes.Repeat([]byte{2}, secretBytes), "", agents, Talks{Hosts: talks}, Held{}, Limits{Rate: DefaultRate})
	keys[string(other.States["a"].Sessions[0].Key)] = true
	keys[string(Decide(secret, "shop", agents, Talks{Hosts: talks}, Held{}, Limits{Rate: DefaultRate}).States["a"].Sessions[0].Key)] = true
	agents["b"].Epoch++
	keys[string(Decide(secret, "", agents, Talks{Hosts: talks}, Held{}, Limits{Rate: DefaultRate}).States["a"].Sessions[0].Key)] = true
	if len(keys) != 4 {
		t.Errorf("%d different keys, want 4", len(keys))
	}
	// States can be read by agents.
	from.LeaseSeconds = 60
	if text := string(encoded(t, from)); text == "" {
		t.Error("no text")
	} else if read, err := ParseState([]byte(text)); err != nil || !reflect.DeepEqual(&read, from) {
		t.Errorf("read %+v, %v; want %+v", read, err, from)
	}
}

// TestClasses: of a pair there is a session of each class of service, with the same key and a number of its own; all of them
// are within the rate of the hosts, and the pair has all or none.
func TestClasses(t *testing.T) {
	classes := []uint8{0, 10, 46}
	agents := agentsOf(agentAt("hub", "10.0.0.1"))
	var talks []Talk
	for i := range 200 {
		host := fmt.Sprintf("x%03d", i)
		agents[host] = agentAt(host, fmt.Sprintf("10.0.1.%d", 1+i))
		talks = append(talks, talkOf("hub", host, uint64(i)))
	}
	limits := Limits{Rate: DefaultRate, Classes: classes}
	one := Decide(secret, "", agents, Talks{Hosts: talks[:1]}, Held{}, limits)
	usual := Decide(secret, "", agents, Talks{Hosts: talks[:1]}, Held{}, Limits{Rate: DefaultRate}).States["hub"].Sessions[0]
	sessions, peers := one.States["hub"].Sessions, one.States["x000"].Peers
	if len(sessions) != len(classes) || len(peers) != len(classes) {
		t.Fatalf("the sessions are %+v, the peers %+v", sessions, peers)
	}
	for host, state := range one.States {
		state.LeaseSeconds = 60
		if _, err := ParseState(encoded(t, state)); err != nil {
			t.Errorf("the state of %s is refused: %v", host, err)
		}
	}
	numbers := map[uint16]bool{}
	for i, s := range sessions {
		numbers[s.Number] = true
		if s.DSCP != classes[i] || s.Peer != "x000" || s.Number != peers[i].Number || !bytes.Equal(s.Key, peers[i].Key) {
			t.Errorf("class %d has %+v, and the peer %+v", classes[i], s, peers[i])
		}
	}
	if len(numbers) != len(classes) || sessions[0].Number != usual.Number || !bytes.Equal(sessions[0].Key, usual.Key) {
		t.Errorf("the usual session is %+v, without other classes %+v", sessions[0], usual)
	}
	d := Decide(secret, "", agents, Talks{Hosts: talks}, Held{}, limits)
	bits := 0.0
	for _, s := range d.States["hub"].Sessions {
		bits += 8 * PacketBytes / s.IntervalSeconds
	}
	if held := len(d.Held.Hosts); bits > DefaultRate || d.Refused == 0 || held+d.Refused != len(talks) ||
		len(d.States["hub"].Sessions) != len(classes)*held {
		t.Errorf("%d sessions of %d pairs send %.0f bit/s, %d pairs are refused", len(d.States["hub"].Sessions), held, bits, d.Refused)
	}
}

// TestRate: whatever the number of pairs, no host sends more than the rate, counting requests and answers; what finds no
// room is counted, and pairs that are held stay.
func TestRate(t *testing.T) {
	const hosts, rate = 600, DefaultRate
	agents := map[string]*Agent{}
	for i := range hosts {
		agents[fmt.Sprintf("h%03d", i)] = agentAt(fmt.Sprintf("h%03d", i), fmt.Sprintf("10.0.%d.%d", i/250, 1+i%250))
	}
	for _, degree := range []int{1, 3, 4, 39, hosts - 1} {
		var talks []Talk
		for i := 1; i <= degree; i++ {
			talks = append(talks, talkOf("h000", fmt.Sprintf("h%03d", i), uint64(i)))
		}
		d := Decide(secret, "", agents, Talks{Hosts: talks}, Held{}, Limits{Rate: rate})
		sent := map[string]float64{}
		for host, s := range d.States {
			for _, one := range s.Sessions {
				sent[host] += 8 * PacketBytes / one.IntervalSeconds
				sent[one.Peer] += 8 * PacketBytes / one.IntervalSeconds
			}
		}
		for host, bits := range sent {
			if bits > rate {
				t.Errorf("%d pairs: %s sends %.0f bit/s, want %d at most", degree, host, bits, rate)
			}
		}
		if len(d.Held.Hosts)+d.Refused != degree || degree < 400 && d.Refused > 0 || degree == hosts-1 && d.Refused == 0 {
			t.Errorf("%d pairs: %d held, %d refused", degree, len(d.Held.Hosts), d.Refused)
		}
		numbers := map[string]map[uint16]bool{}
		for host, s := range d.States {
			numbers[host] = map[uint16]bool{0: true}
			for _, p := range s.Peers {
				if numbers[host][p.Number] {
					t.Errorf("two sessions have the number %d at %s", p.Number, host)
				}
				numbers[host][p.Number] = true
			}
		}
		if d.Refused == 0 {
			continue
		}
		// The one that talks least was refused, but stays where it was held.
		least := Pair{"h000", "h001"}
		if d.Held.Hosts[least] {
			t.Error("the pair that talks least was not refused")
		}
		if again := Decide(secret, "", agents, Talks{Hosts: talks}, Held{Hosts: map[Pair]bool{least: true}}, Limits{Rate: rate}); !again.Held.Hosts[least] {
			t.Error("a pair that was held was refused")
		}
	}
	if got := intervalOf(1, rate); got != 100*time.Millisecond {
		t.Errorf("one session sends each %v", got)
	}
}
