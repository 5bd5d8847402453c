package graph

import (
	"slices"

	"outsight/internal/model"
)

// Network is what the packets between the two ends of an edge tell; what was not measured is nil.
type Network struct {
	// DelayThere is of packets on their way to the server, DelayBack to the client. Jitter is the mean difference from one
	// delay to the next.
	DelayThereP50 *Seconds `json:"delay_there_p50,omitempty"`
	DelayThereP99 *Seconds `json:"delay_there_p99,omitempty"`
	DelayBackP50  *Seconds `json:"delay_back_p50,omitempty"`
	DelayBackP99  *Seconds `json:"delay_back_p99,omitempty"`
	JitterThere   *Seconds `json:"jitter_there,omitempty"`
	JitterBack    *Seconds `json:"jitter_back,omitempty"`
	// ObservedThere and ObservedBack are the shares of the packets that arrived of which the delays within a host are.
	ObservedThere *float64 `json:"observed_there,omitempty"`
	ObservedBack  *float64 `json:"observed_back,omitempty"`
	// LostThere and LostBack are packets that were sent and did not arrive, in the window; what is on its way at its end
	// may be among them. LossRatio is their share of those that were sent both ways. They are known where both ends are on
	// one host and counted the same connections.
	LostThere *float64 `json:"lost_there,omitempty"`
	LostBack  *float64 `json:"lost_back,omitempty"`
	LossRatio *float64 `json:"loss_ratio,omitempty"`
	// MatchedThere and MatchedBack are how many packets between two hosts were sampled on both. AboveThere and AboveBack are
	// by how much their delays are above the least of those that took the same way, which needs no clock of either host.
	// The delays themselves are known as well as both clocks are, DelayThereError and DelayBackError either way; where
	// that is as much as their median, they are not told.
	MatchedThere    *float64 `json:"matched_there,omitempty"`
	MatchedBack     *float64 `json:"matched_back,omitempty"`
	AboveThereP50   *Seconds `json:"above_minimum_there_p50,omitempty"`
	AboveThereP99   *Seconds `json:"above_minimum_there_p99,omitempty"`
	AboveBackP50    *Seconds `json:"above_minimum_back_p50,omitempty"`
	AboveBackP99    *Seconds `json:"above_minimum_back_p99,omitempty"`
	DelayThereError *Seconds `json:"delay_there_error,omitempty"`
	DelayBackError  *Seconds `json:"delay_back_error,omitempty"`
	*StacksThere
	*StacksBack
}

// networkOf is the network between two sides, which may be nil, on which so much was lost. It is nil where nothing is
// known.
func networkOf(client, server *Side, lost loss) *Network {
	var n Network
	if server != nil {
		n.DelayThereP50, n.DelayThereP99, n.JitterThere = server.NetworkDelayP50, server.NetworkDelayP99, server.NetworkJitter
		n.ObservedThere = server.observed(networkRequestPackets)
	}
	if client != nil {
		n.DelayBackP50, n.DelayBackP99, n.JitterBack = client.NetworkDelayP50, client.NetworkDelayP99, client.NetworkJitter
		n.ObservedBack = client.observed(networkResponsePackets)
	}
	if lost.sent > 0 {
		n.LostThere, n.LostBack, n.LossRatio = ptrTo(lost.there), ptrTo(lost.back), ptrTo((lost.there+lost.back)/lost.sent)
	}
	if n == (Network{}) {
		return nil
	}
	known := n // in memory only where something is
	return &known
}

// observed is the share of the packets that arrived at this end whose delays were looked at; nil where none was timed. The
// kernel's count may be behind that of the packets.
func (s *Side) observed(arrived Field) *float64 {
	all := s.Of(arrived)
	if s.NetworkDelaySamples == nil || all == 0 {
		return nil
	}
	return ptrTo(min(s.Of(networkObserved)/all, 1))
}

// loss is how many packets were lost on their way there and back, of those sent both ways. Where that is not known, sent
// is 0.
type loss struct{ there, back, sent float64 }

// lossOf is that of two sides that counted the same on one host.
func lossOf(client, server *Side, tcp bool) loss {
	return loss{there: lost(networkRequestPackets, client, server, tcp),
		back: lost(networkResponsePackets, server, client, tcp),
		sent: client.Of(networkRequestPackets) + server.Of(networkResponsePackets)}
}

// EndsNumber is a number of both ends of an edge together.
type EndsNumber struct {
	model.Shown
	of func(*Edge) (v float64, ok bool)
}

// EndsNumbers are those of the registry, in its order.
var EndsNumbers = func() (all []EndsNumber) {
	network := func(of func(n *Network) *float64) func(*Edge) (float64, bool) {
		return func(e *Edge) (float64, bool) {
			if e.Network == nil {
				return 0, false
			}
			return valueOf(of(e.Network))
		}
	}
	there := func(of func(s *StacksThere) *float64) func(*Edge) (float64, bool) {
		return network(func(n *Network) *float64 {
			if n.StacksThere == nil {
				return nil
			}
			return of(n.StacksThere)
		})
	}
	back := func(of func(s *StacksBack) *float64) func(*Edge) (float64, bool) {
		return network(func(n *Network) *float64 {
			if n.StacksBack == nil {
				return nil
			}
			return of(n.StacksBack)
		})
	}
	split := func(of func(s *Split) *float64) func(*Edge) (float64, bool) {
		return func(e *Edge) (float64, bool) {
			if e.Split == nil {
				return 0, false
			}
			return valueOf(of(e.Split))
		}
	}
	known := map[string]func(*Edge) (float64, bool){
		"network_seconds":         func(e *Edge) (float64, bool) { return valueOf(e.NetworkSeconds) },
		"delay_there_p50":         network(func(n *Network) *float64 { return (*float64)(n.DelayThereP50) }),
		"delay_there_p99":         network(func(n *Network) *float64 { return (*float64)(n.DelayThereP99) }),
		"delay_back_p50":          network(func(n *Network) *float64 { return (*float64)(n.DelayBackP50) }),
		"delay_back_p99":          network(func(n *Network) *float64 { return (*float64)(n.DelayBackP99) }),
		"jitter_there":            network(func(n *Network) *float64 { return (*float64)(n.JitterThere) }),
		"jitter_back":             network(func(n *Network) *float64 { return (*float64)(n.JitterBack) }),
		"observed_there":          network(func(n *Network) *float64 { return n.ObservedThere }),
		"observed_back":           network(func(n *Network) *float64 { return n.ObservedBack }),
		"matched_there":           network(func(n *Network) *float64 { return n.MatchedThere }),
		"matched_back":            network(func(n *Network) *float64 { return n.MatchedBack }),
		"above_minimum_there_p50": network(func(n *Network) *float64 { return (*float64)(n.AboveThereP50) }),
		"above_minimum_there_p99": network(func(n *Network) *float64 { return (*float64)(n.AboveThereP99) }),
		"above_minimum_back_p50":  network(func(n *Network) *float64 { return (*float64)(n.AboveBackP50) }),
		"above_minimum_back_p99":  network(func(n *Network) *float64 { return (*float64)(n.AboveBackP99) }),
		"delay_there_error":       network(func(n *Network) *float64 { return (*float64)(n.DelayThereError) }),
		"delay_back_error":        network(func(n *Network) *float64 { return (*float64)(n.DelayBackError) }),

		"at_cards_there":               there(func(s *StacksThere) *float64 { return &s.AtCards }),
		"sender_stack_there_p50":       there(func(s *StacksThere) *float64 { return (*float64)(s.SenderP50) }),
		"sender_stack_there_p99":       there(func(s *StacksThere) *float64 { return (*float64)(s.SenderP99) }),
		"wire_there_p50":               there(func(s *StacksThere) *float64 { return (*float64)(s.WireP50) }),
		"wire_there_p99":               there(func(s *StacksThere) *float64 { return (*float64)(s.WireP99) }),
		"wire_above_minimum_there_p50": there(func(s *StacksThere) *float64 { return (*float64)(s.WireAboveP50) }),
		"wire_above_minimum_there_p99": there(func(s *StacksThere) *float64 { return (*float64)(s.WireAboveP99) }),
		"receiver_stack_there_p50":     there(func(s *StacksThere) *float64 { return (*float64)(s.ReceiverP50) }),
		"receiver_stack_there_p99":     there(func(s *StacksThere) *float64 { return (*float64)(s.ReceiverP99) }),
		"at_cards_back":                back(func(s *StacksBack) *float64 { return &s.AtCards }),
		"sender_stack_back_p50":        back(func(s *StacksBack) *float64 { return (*float64)(s.SenderP50) }),
		"sender_stack_back_p99":        back(func(s *StacksBack) *float64 { return (*float64)(s.SenderP99) }),
		"wire_back_p50":                back(func(s *StacksBack) *float64 { return (*float64)(s.WireP50) }),
		"wire_back_p99":                back(func(s *StacksBack) *float64 { return (*float64)(s.WireP99) }),
		"wire_above_minimum_back_p50":  back(func(s *StacksBack) *float64 { return (*float64)(s.WireAboveP50) }),
		"wire_above_minimum_back_p99":  back(func(s *StacksBack) *float64 { return (*float64)(s.WireAboveP99) }),
		"receiver_stack_back_p50":      back(func(s *StacksBack) *float64 { return (*float64)(s.ReceiverP50) }),
		"receiver_stack_back_p99":      back(func(s *StacksBack) *float64 { return (*float64)(s.ReceiverP99) }),

		"lost_there": network(func(n *Network) *float64 { return n.LostThere }),
		"lost_back":  network(func(n *Network) *float64 { return n.LostBack }),
		"loss_ratio": network(func(n *Network) *float64 { return n.LossRatio }),

		"client_seconds":        split(func(s *Split) *float64 { return &s.Client }),
		"network_there_seconds": split(func(s *Split) *float64 { return s.There }),
		"server_seconds":        split(func(s *Split) *float64 { return &s.Server }),
		"network_back_seconds":  split(func(s *Split) *float64 { return s.Back }),
		"network_both_seconds":  split(func(s *Split) *float64 { return s.Both }),
	}
	for _, n := range model.EndsNumbers() {
		if known[n.Key] == nil {
			panic("BUG: nothing computes " + n.Key + " of both ends of an edge")
		}
		all = append(all, EndsNumber{n, known[n.Key]})
	}
	return all
}()

func valueOf(v *float64) (float64, bool) {
	if v == nil {
		return 0, false
	}
	return *v, true
}

// EndsNumber is one of the registry's numbers of both ends together, by its key.
func (e *Edge) EndsNumber(key string) (v float64, ok bool) {
	for i := range EndsNumbers {
		if EndsNumbers[i].Key == key {
			return EndsNumbers[i].of(e)
		}
	}
	return 0, false
}

// pairedAs says whether the two ends of a relation counted the same connections, and whether on one host.
type pairedAs uint8

const (
	notPaired pairedAs = iota
	pairedAcross
	pairedLocally
)

// pairedRelations says it of each relation.
func (m *frameMap) pairedRelations() []pairedAs {
	all := make([]pairedAs, len(m.relations))
	rows := listsOf(len(m.relations), func(f func(relation, row int32)) {
		for i := range m.rows {
			if r := m.rows[i].relation; r >= 0 && m.relations[r].settled {
				f(r, int32(i))
			}
		}
	})
	for i := range m.relations {
		r := &m.relations[i]
		if !r.certain || r.unpaired || r.clients == 0 || r.servers == 0 {
			continue
		}
		if r.settled {
			sides := m.sidesOf(rows.of(int32(i)))
			if !agree(sides[0], sides[1]) {
				continue
			}
		}
		if all[i] = pairedLocally; r.across {
			all[i] = pairedAcross
		}
	}
	return all
}

// sidesOf are those of the clients and of the servers among rows; nil where there is none.
func (m *frameMap) sidesOf(rows []int32) (sides [2]*Side) {
	var of [2][]int32
	for _, i := range rows {
		end := 0
		if m.rows[i].side == model.RoleServer {
			end = 1
		}
		of[end] = append(of[end], i)
	}
	return [2]*Side{m.sideOf(of[0]), m.sideOf(of[1])}
}

// endsOf are both ends of the edges of rows, as of one edge. The packets that were lost and the split are of those of
// its relations alone that are paired on one host, the split also where all are between hosts; what is lost of TCP and of
// UDP is known apart.
func (m *frameMap) endsOf(rows []int32, paired []pairedAs) *Edge {
	least, local := pairedLocally, make([]int32, 0, len(rows))
	for _, i := range rows {
		as := paired[m.rows[i].relation]
		if least = min(least, as); as == pairedLocally {
			local = append(local, i)
		}
	}
	sides := m.sidesOf(rows)
	e := &Edge{ClientSide: sides[0], ServerSide: sides[1], Paired: least != notPaired}
	e.NetworkSeconds = e.networkSeconds()
	var lost loss
	if len(local) > 0 {
		both := sides
		if least != pairedLocally {
			both = m.sidesOf(local)
		}
		e.Split = splitOf(both[0], both[1])
		lost = m.lossOf(local, both)
	}
	e.Network = networkOf(sides[0], sides[1], lost)
	if len(m.crossings.of) > 0 {
		relations := make([]int32, 0, len(rows))
		for _, i := range rows {
			relations = append(relations, m.rows[i].relation)
		}
		slices.Sort(relations)
		e.addCrossings(&m.crossings, slices.Compact(relations), least == pairedAcross && len(local) == 0)
	}
	return e
}

// lossOf is that of rows of which these are both sides.
func (m *frameMap) lossOf(rows []int32, both [2]*Side) (sum loss) {
	isTCP := func(row int32) bool { return m.rows[row].transport == model.TCP }
	udp := slices.DeleteFunc(slices.Clone(rows), isTCP)
	if len(udp) == 0 || len(udp) == len(rows) {
		return lossOf(both[0], both[1], len(udp) == 0)
	}
	for _, tcp := range []bool{true, false} {
		sides := m.sidesOf(slices.DeleteFunc(slices.Clone(rows), func(row int32) bool { return isTCP(row) != tcp }))
		of := lossOf(sides[0], sides[1], tcp)
		sum = loss{sum.there + of.there, sum.back + of.back, sum.sent + of.sent}
	}
	return sum
}
