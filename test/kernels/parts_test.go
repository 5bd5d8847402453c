package kernels

import (
	"strings"
	"testing"
	"time"

	"outsight/internal/frame"
	"outsight/internal/graph"
	"outsight/internal/model"
)

// timed is a packet that both hosts have: how long it took by the clocks of both, which differ, and how much of that was in
// the stacks of the sender's and the receiver's host, by one clock each; 0 where it was not seen at the uplink.
type timed struct{ took, sender, receiver time.Duration }

// ways are the packets of an edge to the server, and back.
type ways [2][]timed

// waysOf joins the samples of packets of the edges at a port by themselves, as the hosts' frames have them.
func waysOf(w *frame.Window, port string) (all ways) {
	var samples [2][2]map[uint64]model.PacketSample // of the server's host and the client's, received and sent
	for side := range samples {
		samples[side] = [2]map[uint64]model.PacketSample{{}, {}}
	}
	for _, h := range w.Hosts {
		f := h.Spans[0].After
		edges := &f.Tables[frame.Edges]
		for edge, s := range f.PacketSamples() {
			row, ok := edges.Find(edge)
			if !ok || !strings.HasSuffix(f.Text(frame.Edges, frame.EdgeService, row), port) {
				continue
			}
			side, sent := 0, 0
			if h.Host == "client" {
				side = 1
			}
			if s.Sent {
				sent = 1
			}
			samples[side][sent][s.Packet] = s
		}
	}
	for way := range all {
		for packet, s := range samples[1-way][1] {
			if r, ok := samples[way][0][packet]; ok {
				all[way] = append(all[way], timed{r.Time.Sub(s.Time), s.Stack, r.Stack})
			}
		}
	}
	return all
}

// expectParts holds what must be true of the parts of the time of packets, and of requests, whatever the hosts' clocks are.
func expectParts(t *testing.T, w *frame.Window) {
	t.Helper()
	for _, e := range graph.FromFrames(w, graph.Options{}).Edges {
		port, name := ":5432", e.Client[:1]+" > "+e.Server[:1]
		if e.Client == containerID("b") {
			port = ":6379"
		}
		all := waysOf(w, port)
		var least, mean [2]time.Duration
		for way, packets := range all {
			seen := 0
			for _, p := range packets {
				mean[way] += p.took / time.Duration(len(packets))
				if p.sender == 0 || p.receiver == 0 {
					continue
				}
				if wire := p.took - p.sender - p.receiver; seen == 0 || wire < least[way] {
					least[way] = wire
				}
				seen++
			}
			if seen < 10 || 10*seen < 9*len(packets) {
				t.Errorf("%s, way %d: of %d packets %d were seen at both uplinks", name, way, len(packets), seen)
			}
		}
		// By how much the clocks differ is in the wire there, and as much, with the other sign, in the wire back. So no packet
		// was in the two stacks for longer than it took if the fastest there and back together are no less than 0.
		if least[0]+least[1] <= 0 {
			t.Errorf("%s: the fastest packets were on the wire for %v there and %v back", name, least[0], least[1])
		}
		expectStacks(t, name, e)
		expectSplit(t, name, e, mean[0]+mean[1])
	}
}

// expectStacks holds that both ways have their parts, of which none is more than the whole where that is told.
func expectStacks(t *testing.T, name string, e *graph.Edge) {
	t.Helper()
	for _, way := range []string{"there", "back"} {
		number := func(key string) float64 {
			n, _ := e.EndsNumber(key + "_" + way + "_p50")
			return n
		}
		cards, _ := e.EndsNumber("at_cards_" + way)
		matched, _ := e.EndsNumber("matched_" + way)
		bound, told := e.EndsNumber("delay_" + way + "_error")
		whole := number("delay") + bound
		for _, part := range []string{"sender_stack", "wire", "receiver_stack"} {
			if n := number(part); n > whole && told || n <= 0 && part != "wire" {
				t.Errorf("%s: half of the packets %s were in the part %s for %v s, of %v and %v", name, way, part, n, number("delay"), bound)
			}
		}
		if cards < 10 || cards > matched || number("wire_above_minimum") < 0 {
			t.Errorf("%s: of %v packets %s %v were at both uplinks, above the least by %v s", name, matched, way, cards,
				number("wire_above_minimum"))
		}
	}
}

// expectSplit holds that the four parts of a request's time are there, that those in the network are as long as packets took
// both ways, and that together, where something is left for the client, they are no longer than the whole request.
func expectSplit(t *testing.T, name string, e *graph.Edge, both time.Duration) {
	t.Helper()
	s := e.Split
	if s == nil || (s.Both == nil) != (s.There != nil && s.Back != nil) {
		t.Errorf("%s: where the time goes is %+v", name, s)
		return
	}
	network := 0.0
	for _, part := range []*float64{s.There, s.Back, s.Both} {
		if part != nil {
			network += *part
		}
	}
	// Clocks drift by 50 us in 10 s, at most.
	const drift = 100e-6
	if network < both.Seconds()-drift || network > both.Seconds()+drift {
		t.Errorf("%s: %v s are in the network, and packets took %v both ways", name, network, both)
	}
	if sum := s.Client + s.Server + network; s.Client < 0 || s.Server <= 0 || s.Client > 0 && sum > float64(*e.ClientSide.Mean) {
		t.Errorf("%s: %+v add up to %v s, and the client waited for %v s for the whole reply", name, s, sum, *e.ClientSide.Mean)
	}
}
