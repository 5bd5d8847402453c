package probe

import (
	"sync"
	"time"

	"outsight/internal/model"
	"outsight/internal/stamp"
)

const (
	// unanswered is after how many packets without an answer a session is lost.
	unanswered = 3
	// opening is for how long the reflector of a sender that begins may not be there yet: both ends are told of a session at
	// the same time, and each does its part when it can.
	opening = 2 * time.Second
)

// tally counts what a session's packets became. Its counters go on when the session's sender begins anew.
type tally struct {
	// clock tells how far this host's clock may be off.
	clock func() stamp.ErrorEstimate

	// mu guards the rest.
	mu sync.Mutex
	// model.ProbeSession has what is told; of the histograms there are copies.
	counts                            model.ProbeSession
	roundTrip, variation, there, back model.Histogram
	// base is what senders before this one counted.
	base run
	run
	// hopCount is how many hops the last packet took; 0 where that is not known. hopsChanged gets a value when it changes.
	hopCount    int
	hopsChanged chan struct{}
	above       aboveLeast
}

func newTally(clock func() stamp.ErrorEstimate) *tally {
	return &tally{clock: clock, hopsChanged: make(chan struct{}, 1)}
}

// hops is how many hops the packets take, the reflector being the last; 0 where that is not known.
func (t *tally) hops() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.hopCount
}

// route is what was found last.
func (t *tally) route() model.Route {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.counts.Route
}

// found takes in a route. Routers that answered before are still known where the rest is the same.
func (t *tally) found(r model.Route) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch known := t.counts.Route; {
	case known == nil:
	case known.Same(r):
		r = r.Merge(known)
	default:
		t.counts.RouteChanges++
	}
	t.counts.Route = r
}

// run is what is known of the packets of one sender.
type run struct {
	// begun is when the sender began, heard that it has had an answer, the first one to the packet opened.
	begun    time.Time
	heard    bool
	opened   uint32
	answered bool
	// inRow counts lost packets since the last answer.
	inRow int
	// last is the round trip of the packet before, stamped that a packet had the kernel's times.
	last    time.Duration
	hasLast bool
	stamped bool
	// next are the least numbers that are not behind, of packets there and of answers back.
	nextThere, nextBack uint32
	// newest is when the reflector sent the answer before nextBack, by its clock.
	newest time.Time
	// first is the packet from which on the reflector's counts are used, counted what it had counted before.
	first   uint32
	counted uint64
	// arrived is how many packets the reflector had received by its last count, before is how many were sent by then; both
	// from first on.
	arrived, before uint64
	// resolved lost packets of those, by where.
	lost                []uint32
	lostBefore          uint64
	lostThere, lostBack uint64
	duplicates          uint64
}

// begin makes the tally ready for another sender, which begins now.
func (t *tally) begin(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.base.lostThere += t.run.lostThere
	t.base.lostBack += t.run.lostBack
	t.base.duplicates += t.run.duplicates
	t.run = run{begun: now, answered: t.run.answered, inRow: t.run.inRow}
}

// countFrom uses the reflector's counts from a packet on, of which it had received so many with that one. Where packets before
// it were lost is not known.
func (t *tally) countFrom(number uint32, received uint64) {
	t.base.lostThere += t.run.lostThere
	t.base.lostBack += t.run.lostBack
	t.run.lostThere, t.run.lostBack, t.lostBefore, t.arrived, t.before, t.nextBack = 0, 0, 0, 0, 0, 0
	t.first, t.counted = number, received-1
}

// early reports whether a lost packet was sent when the reflector may not have been there yet: it is none of the session.
func (t *tally) early(s *stamp.Sample) bool {
	return s.Sent.Sub(t.begun) < opening && (!t.heard || s.Number < t.opened)
}

// anew reports whether the reflector numbers its answers from 0 again, as one does that began anew: this one has a lesser
// number than one that was sent before it. One that came late was sent earlier, and not longer ago than packets are waited
// for.
func (t *tally) anew(s *stamp.Sample) bool {
	late := t.newest.Sub(s.ReflectorSent)
	return s.ReflectorNumber < t.nextBack && (late < 0 || late > tripTimeout)
}

// add counts a packet.
func (t *tally) add(s *stamp.Sample) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.Lost && t.early(s) {
		return
	}
	t.counts.Sent++
	if s.Lost {
		t.counts.Lost++
		if t.inRow++; t.inRow >= unanswered {
			t.answered = false
		}
		t.lost = append(t.lost, s.Number)
		t.split()
		return
	}
	t.counts.Received++
	t.inRow, t.answered = 0, true
	received := uint64(s.ReflectorNumber) + 1
	if s.Counters != nil {
		received = max(uint64(s.Counters.ReflectorReceived), 1)
	}
	if !t.heard {
		t.heard, t.opened = true, s.Number
		t.countFrom(s.Number, received)
	} else if t.anew(s) {
		t.countFrom(s.Number, received)
	}
	t.order(s)
	if hops := hopsOf(s.TTL); hops != t.hopCount {
		t.hopCount = hops
		select {
		case t.hopsChanged <- struct{}{}:
		default: // one that waits is enough
		}
	}
	if s.Number >= t.first {
		t.before = max(t.before, uint64(s.Number-t.first)+1)
	}
	t.arrived = max(t.arrived, received-min(t.counted, received))
	t.split()
	t.time(s)
}

// order counts what came after what was sent later. An answer that did says nothing about the way there.
func (t *tally) order(s *stamp.Sample) {
	if s.ReflectorNumber < t.nextBack {
		t.counts.ReorderedBack++
		return
	}
	t.nextBack, t.newest = s.ReflectorNumber+1, s.ReflectorSent
	if s.Number < t.nextThere {
		t.counts.ReorderedThere++
		return
	}
	t.nextThere = s.Number + 1
}

// split says of lost packets, up to the last that was answered, in which direction they were lost: those that the
// reflector did not count were lost there. It never takes back what it said.
func (t *tally) split() {
	kept := t.lost[:0]
	for _, number := range t.lost {
		switch {
		case number < t.first:
		case uint64(number-t.first) < t.before:
			t.lostBefore++
		default:
			kept = append(kept, number)
		}
	}
	if len(kept) > maxLost {
		kept = kept[:copy(kept, kept[len(kept)-maxLost:])]
	}
	t.lost = kept
	missed := t.before - min(t.arrived, t.before)
	// Packets of which it is not known yet what becomes of them may be among those that were missed.
	t.run.lostThere = max(t.run.lostThere, min(missed, t.lostBefore-t.run.lostBack))
	t.run.lostBack = max(t.run.lostBack, t.lostBefore-min(t.lostBefore, max(missed, t.run.lostThere)))
}

// maxLost bounds the lost packets of which it is not known where they were: those of a session that is lost for long.
const maxLost = 1024

// time adds the delays of a packet that was answered.
func (t *tally) time(s *stamp.Sample) {
	kernel := s.KernelSent && s.KernelReceived
	if t.stamped = t.stamped || kernel; t.stamped && !kernel {
		return // the kernel begins to take times a moment after it is asked to
	}
	trip := s.RoundTrip()
	if trip < 0 || trip > tripTimeout {
		t.hasLast = false
		return // a clock was set meanwhile
	}
	t.roundTrip.Add(trip)
	if t.hasLast {
		t.variation.Add(max(trip-t.last, t.last-trip))
	}
	t.last, t.hasLast = trip, true
	t.above.add(s)
	own, its := t.clock(), s.Error
	if !own.Synchronized || !its.Synchronized {
		t.counts.ClockError = 0
		return
	}
	t.counts.ClockError = own.Error + its.Error
	t.there.Add(s.ReflectorReceived.Sub(s.Sent))
	t.back.Add(s.Received.Sub(s.ReflectorSent))
}

// sender takes over what a sender counted of answers that were none.
func (t *tally) sender(s stamp.SenderStats) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.run.duplicates = s.Duplicate
}

// sample is what was counted, with copies of the histograms.
func (t *tally) sample() model.ProbeSession {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.counts
	s.Answered = t.answered
	s.LostThere, s.LostBack = t.base.lostThere+t.run.lostThere, t.base.lostBack+t.run.lostBack
	s.Duplicates = t.base.duplicates + t.run.duplicates
	for _, h := range []struct {
		of *model.Histogram
		to **model.Histogram
	}{{&t.roundTrip, &s.RoundTrip}, {&t.variation, &s.Variation}, {&t.there, &s.There}, {&t.back, &s.Back},
		{&t.above.there, &s.AboveThere}, {&t.above.back, &s.AboveBack}} {
		if h.of.Count > 0 {
			*h.to = h.of.Clone()
		}
	}
	return s
}

// isLost reports whether the last packets were not answered.
func (t *tally) isLost() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.inRow >= unanswered
}
