package control

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"time"
)

// Agent is one that asked.
type Agent struct {
	Question
	// Seen is the address from which its question came; it may be that of a translator.
	Seen netip.Addr
}

// Pair is two hosts of which processes talk. A is before B.
type Pair struct{ A, B string }

// Talk is a pair with how much it talked of late.
type Talk struct {
	Pair
	Bytes uint64
}

// Talks are who talked of late: hosts, and containers of two hosts that reach one another at addresses of their own.
type Talks struct {
	Hosts      []Talk
	Containers []ContainerTalk
}

// Held are pairs that are measured.
type Held struct {
	Hosts      map[Pair]bool
	Containers map[ContainerPair]bool
}

// Limits of Decide.
type Limits struct {
	// Rate is what a host sends at most of packets and answers, in bit/s.
	Rate int64
	// Containers is how many pairs of containers are measured of two hosts.
	Containers int
	// Classes are the classes of service (DSCP) of the sessions between two hosts, each with one of its own; none for 0 alone.
	Classes []uint8
}

// PacketBytes is what a packet of a session takes on the wire at most, with the headers of IPv6 and UDP.
const PacketBytes = 208

// DefaultRate bounds what each host sends of packets and answers, in bit/s.
const DefaultRate = 64_000

// Decision is what all agents of a tenant are to do.
type Decision struct {
	// States are by the agents' hosts: every agent has one.
	States map[string]*State
	// Held are the pairs that are measured. Refused ones found no room within the rate, Unreachable ones have no address of
	// the one that the other can use.
	Held
	Refused, RefusedContainers, Unreachable int
}

// Decide says what agents are to do for the pairs that talk, within the limits of each host. Pairs of hosts that are held
// already come first, then those that talk most, and then containers. Of a pair of hosts, the one of the lesser name sends,
// of containers the client. Keys are derived from the secret, and differ by tenant, pair, and the agents' lives.
func Decide(secret []byte, tenant string, agents map[string]*Agent, wanted Talks, held Held, limits Limits) Decision {
	rate := limits.Rate
	d := Decision{States: make(map[string]*State, len(agents)),
		Held: Held{map[Pair]bool{}, map[ContainerPair]bool{}}}
	for host := range agents {
		d.States[host] = &State{}
	}
	tellers := map[netip.Addr]int{} // how many agents say that an address is theirs
	for _, a := range agents {
		for _, address := range a.Addresses {
			tellers[address]++
		}
	}
	talks := slices.Clone(wanted.Hosts)
	slices.SortFunc(talks, func(x, y Talk) int {
		if hx, hy := held.Hosts[x.Pair], held.Hosts[y.Pair]; hx != hy {
			if hx {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(y.Bytes, x.Bytes), cmp.Compare(x.A, y.A), cmp.Compare(x.B, y.B))
	})
	most := min(int(packetsPerSecond(rate)*MaxInterval.Seconds()), MaxSessions)
	classes := limits.Classes
	if len(classes) == 0 {
		classes = []uint8{0}
	}
	degree := map[string]int{}
	var chosen []link
	for _, talk := range talks {
		from, to := agents[talk.A], agents[talk.B]
		if from == nil || to == nil || talk.A >= talk.B || d.Held.Hosts[talk.Pair] {
			continue
		}
		l, ok := linkOf(talk.Pair, from, to, tellers)
		switch {
		case !ok:
			d.Unreachable++
		case degree[talk.A]+len(classes) > most || degree[talk.B]+len(classes) > most:
			d.Refused++
		default:
			degree[talk.A] += len(classes)
			degree[talk.B] += len(classes)
			d.Held.Hosts[talk.Pair] = true
			chosen = append(chosen, l)
		}
	}
	containers := d.chooseContainers(agents, wanted.Containers, held.Containers, limits, degree)
	slices.SortFunc(chosen, func(x, y link) int { return cmp.Or(cmp.Compare(x.A, y.A), cmp.Compare(x.B, y.B)) })
	numbers := map[string]map[uint16]bool{}
	for _, l := range chosen {
		interval := intervalOf(max(degree[l.A], degree[l.B]), rate)
		key := keyOf(secret, "outsight probe", tenant, l.from, l.to)
		from, to := d.States[l.A], d.States[l.B]
		for _, class := range classes {
			who := []string{l.A}
			if class != 0 {
				who = append(who, "dscp", strconv.Itoa(int(class)))
			}
			number := numberOf(numbers, l.B, who...)
			from.Sessions = append(from.Sessions, Session{Peer: l.B, Reflector: netip.AddrPortFrom(l.at, l.to.Port),
				Number: number, Key: key, IntervalSeconds: interval.Seconds(), DSCP: class})
			to.Peers = append(to.Peers, Peer{Name: l.A, Addresses: sources(l.from), Number: number, Key: key})
		}
	}
	for _, c := range containers {
		interval := intervalOf(max(degree[c.ClientHost], degree[c.ServerHost]), rate)
		d.addContainers(c, interval, keyOf(secret, "outsight probe of containers", tenant, c.from, c.to, c.Client.ID, c.Server.ID),
			numberOf(numbers, c.ServerHost, c.ClientHost, c.Client.ID, c.Server.ID))
	}
	for _, s := range d.States {
		s.name()
	}
	return d
}

// link is a pair that can be measured: from sends to the reflector of to, at one of its addresses.
type link struct {
	Pair
	from, to *Agent
	at       netip.Addr
}

// linkOf finds the address of to that from can use: of a family that from has, and told by no other agent, as the
// addresses of bridges are that every host has.
func linkOf(p Pair, from, to *Agent, tellers map[netip.Addr]int) (l link, ok bool) {
	has4 := slices.ContainsFunc(from.Addresses, netip.Addr.Is4)
	has6 := slices.ContainsFunc(from.Addresses, netip.Addr.Is6)
	if to.Port == 0 {
		return l, false
	}
	for _, a := range to.Addresses {
		if tellers[a] == 1 && (a.Is4() && has4 || a.Is6() && has6) {
			return link{p, from, to, a}, true
		}
	}
	return l, false
}

// sources are the addresses from which an agent's packets may come.
func sources(a *Agent) []netip.Addr {
	all := slices.Clone(a.Addresses)
	if seen := a.Seen.Unmap(); reachable(seen) && !slices.Contains(all, seen) && len(all) < maxAddresses {
		all = append(all, seen)
	}
	return all
}

func packetsPerSecond(rate int64) float64 { return float64(rate) / (8 * PacketBytes) }

// intervalOf is the time between two packets of a session, where a host has so many of them: of each it sends one packet
// in that time, a request or an answer. It is MinInterval times a power of two, so that it seldom changes.
func intervalOf(sessions int, rate int64) time.Duration {
	least := time.Duration(float64(sessions) / packetsPerSecond(rate) * float64(time.Second))
	interval := MinInterval
	for interval < least && interval < MaxInterval {
		interval *= 2
	}
	return interval
}

// keyOf is the key of a pair's session, of what it is used for and who else it is of.
func keyOf(secret []byte, use, tenant string, from, to *Agent, of ...string) []byte {
	h := hmac.New(sha256.New, secret)
	writeTexts(h, append([]string{use, tenant, from.Host, to.Host}, of...)...)
	h.Write(binary.BigEndian.AppendUint64(nil, from.Epoch))
	h.Write(binary.BigEndian.AppendUint64(nil, to.Epoch))
	return h.Sum(nil)
}

// writeTexts writes texts so that others are other bytes.
func writeTexts(h hash.Hash, texts ...string) {
	for _, text := range texts {
		h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(text))))
		h.Write([]byte(text))
	}
}

// numberOf is a number for a session from somebody that no other one at the reflectors of a host has. It is not 0, which is
// that of senders without numbers.
func numberOf(taken map[string]map[uint16]bool, host string, from ...string) uint16 {
	of := taken[host]
	if of == nil {
		of = map[uint16]bool{0: true}
		taken[host] = of
	}
	h := sha256.New()
	writeTexts(h, from...)
	number := binary.BigEndian.Uint16(h.Sum(nil))
	for of[number] {
		number = uint16((int(number) + 1) % (math.MaxUint16 + 1))
	}
	of[number] = true
	return number
}
