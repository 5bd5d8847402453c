package incast

import "math"

// pacer is when and how much Paced posts. It knows the rate of the controller's link, posts no faster than that, and has a
// window for all hosts together. Credit-FC divides a total among the flows, so that each has a fragment at least and a
// call of the thread is worth one fragment; here a host that has its turn gets a batch, and the others wait.
//
// The window follows the delay of batches as that of TIMELY and Swift do: what a batch takes longer than the shortest one
// was, is a queue. Below a target the window grows by a batch each round trip, above it shrinks in proportion, by half at
// most and once in a round trip. So it takes what packets of others leave, and needs neither ECN nor counters of switches.
type pacer struct {
	most     int     // fragments in a batch
	window   float64 // bytes of data
	inFlight int
	next     instant // when the link has room again
	base     instant // shortest delay of a whole batch
	target   instant
	shrunk   instant // when the window was made smaller the last time
}

// never is later than all events.
const never = instant(math.MaxInt64)

// batchCalls is how many calls a batch's time on the link is worth: the thread has the rest of the time for completions.
const batchCalls = 3

// paceShare of the link's rate is posted, so that a queue that is there gets shorter.
const paceShare = 0.995

// slack is how many batches may be posted late at once, because the thread was at something else.
const slack = 2

func (p *pacer) init(s *simulation) {
	fragment := s.Network.Link.take(s.wire(s.Load.Fragment))
	call := since(s.Controller.Call) * batchCalls
	p.most = 1
	if each := fragment - 2*since(s.Controller.Each); each > 0 {
		p.most = int((call + each - 1) / each)
	}
	p.most = max(1, min(p.most, 16, s.fragments))
	if s.Controller.Outstanding > 0 {
		p.most = min(p.most, s.Controller.Outstanding)
	}
	// The target is two batches of queue: less cannot be told from the order in which batches of hosts meet.
	p.target = 2 * instant(p.most) * fragment
	p.window = float64(2 * p.most * s.Load.Fragment)
	p.base = never
}

// wait is until when nothing is to be posted; a flow whose batch is done has its turn in any case if it has nothing to
// post any more.
func (p *pacer) wait(s *simulation) instant {
	f := &s.flows[s.thread.ready.ring[s.thread.ready.first]]
	if f.next == s.fragments {
		return 0
	}
	if p.inFlight > 0 && float64(p.inFlight+p.most*s.Load.Fragment) > p.window {
		return never // a completion wakes the thread
	}
	return p.next
}

func (p *pacer) post(s *simulation, f *flow, count int) {
	f.batch, f.batchLeft, f.batchAt = count, count, s.thread.free
	p.inFlight += count * s.Load.Fragment
	took := float64(s.Network.Link.take(count*s.wire(s.Load.Fragment))) / paceShare
	p.next = max(p.next, s.now-slack*instant(took)) + instant(took)
}

// complete counts a fragment; the last one of a batch is a sample of the delay, and gives the flow its turn.
func (p *pacer) complete(s *simulation, of int32) {
	f := &s.flows[of]
	p.inFlight -= s.Load.Fragment
	if f.batchLeft--; f.batchLeft > 0 {
		s.wake(0)
		return
	}
	if f.batch == p.most { // the last one of a host may be smaller, and so quicker
		p.follow(s, s.now-f.batchAt)
	}
	s.makeReady(of)
	s.wake(0)
}

// follow sets the window by the delay of a batch.
func (p *pacer) follow(s *simulation, delay instant) {
	p.base = min(p.base, delay)
	waited := delay - p.base
	batch := float64(p.most * s.Load.Fragment)
	switch {
	case waited <= p.target:
		p.window = min(p.window+batch*batch/p.window, float64(s.Policy.Bytes))
	case s.now-p.shrunk >= delay:
		p.window *= max(0.5, 1-0.8*float64(waited-p.target)/float64(delay))
		p.shrunk = s.now
	}
	p.window = max(p.window, batch)
}
