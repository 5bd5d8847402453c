package graph

import (
	"slices"

	"outsight/internal/clocks"
)

// StacksThere is the way of packets to the server between two hosts in its three parts: in the stack of the host that
// sends, from the socket to the interface by which they leave it; on the wire; and in the stack of the host that receives.
// A stack is measured by one clock, so that it is exact. The wire is known as the delay of the whole way is,
// Network.DelayThereError either way, and told where it is more than that. By how much it is above the least wire needs no
// clock. All are of the packets that were seen at both interfaces, AtCards of them.
type StacksThere struct {
	AtCards      float64  `json:"at_cards_there"`
	SenderP50    *Seconds `json:"sender_stack_there_p50"`
	SenderP99    *Seconds `json:"sender_stack_there_p99"`
	WireP50      *Seconds `json:"wire_there_p50,omitempty"`
	WireP99      *Seconds `json:"wire_there_p99,omitempty"`
	WireAboveP50 *Seconds `json:"wire_above_minimum_there_p50"`
	WireAboveP99 *Seconds `json:"wire_above_minimum_there_p99"`
	ReceiverP50  *Seconds `json:"receiver_stack_there_p50"`
	ReceiverP99  *Seconds `json:"receiver_stack_there_p99"`
}

// StacksBack is that of the packets to the client: its host receives.
type StacksBack struct {
	AtCards      float64  `json:"at_cards_back"`
	SenderP50    *Seconds `json:"sender_stack_back_p50"`
	SenderP99    *Seconds `json:"sender_stack_back_p99"`
	WireP50      *Seconds `json:"wire_back_p50,omitempty"`
	WireP99      *Seconds `json:"wire_back_p99,omitempty"`
	WireAboveP50 *Seconds `json:"wire_above_minimum_back_p50"`
	WireAboveP99 *Seconds `json:"wire_above_minimum_back_p99"`
	ReceiverP50  *Seconds `json:"receiver_stack_back_p50"`
	ReceiverP99  *Seconds `json:"receiver_stack_back_p99"`
}

// wayStacks are the parts of packets one way, in seconds and in order.
type wayStacks struct{ sender, wire, wireAbove, receiver []float64 }

// add adds a packet whose whole way took so long by the clocks as they are known.
func (w *wayStacks) add(p *crossed, took float64) {
	w.sender = append(w.sender, p.sender)
	w.wire = append(w.wire, p.onWire(took))
	w.receiver = append(w.receiver, p.receiver)
}

func (w *wayStacks) sort() {
	for _, part := range [][]float64{w.sender, w.wire, w.wireAbove, w.receiver} {
		slices.Sort(part)
	}
}

// there tells them; nil of fewer packets than something is told of.
func (w *wayStacks) there(bound float64) *StacksThere {
	if len(w.sender) < minCrossed {
		return nil
	}
	s := &StacksThere{AtCards: float64(len(w.sender)),
		SenderP50: quantileOf(w.sender, 0.5), SenderP99: quantileOf(w.sender, 0.99),
		WireAboveP50: quantileOf(w.wireAbove, 0.5), WireAboveP99: quantileOf(w.wireAbove, 0.99),
		ReceiverP50: quantileOf(w.receiver, 0.5), ReceiverP99: quantileOf(w.receiver, 0.99)}
	if p50 := quantileOf(w.wire, 0.5); float64(*p50) > bound {
		s.WireP50, s.WireP99 = p50, quantileOf(w.wire, 0.99)
	}
	return s
}

// seenAtCards reports whether the packet was seen leaving its sender's host and coming to its receiver's.
func (p *crossed) seenAtCards() bool { return p.sender > 0 && p.receiver > 0 }

// onWire is what is left without the stacks of a time that the whole way took.
func (p *crossed) onWire(took float64) float64 { return took - p.sender - p.receiver }

// wirePoint is the packet as what compares clocks: without the stacks, whose times are of one clock, it bounds them more
// tightly.
func (p *crossed) wirePoint() clocks.Point {
	if !p.seenAtCards() {
		return p.Point
	}
	return clocks.Point{At: p.At, Took: p.onWire(p.Took)}
}
