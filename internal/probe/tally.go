package probe

import (
	"sync"
	"time"

	"outsight/internal/model"
	"outsight/internal/stamp"
)

// unanswered is after how many packets without an answer a session is lost.
const unanswered = 3

// tally counts what a session's packets became. Its counters go on when the session's sender begins anew.
type tally struct {
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

func newTally() *tally { return &tally{hopsChanged: make(chan struct{}, 1)} }

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
	answered bool
	// inRow counts lost packets since the last answer.
	inRow int
	// last is the round trip of the packet before, stamped that a packet had the kernel's times.
	last    time.Duration
	hasLast bool
	stamped bool
	// next are the least numbers that are not behind, of packets there and of answers back.
	nextThere, nextBack uint32
	// arrived is how many packets the reflector had received by its last count, before is how many were sent by then.
	arrived, before uint64
	// resolved lost packets of those, by where.
	lost                []uint32
	lostBefore          uint64
	lostThere, lostBack uint64
	duplicates          uint64
}

// begin makes the tally ready for another sender.
func (t *tally) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.base.lostThere += t.run.lostThere
	t.base.lostBack += t.run.lostBack
	t.base.duplicates += t.run.duplicates
	t.run = run{answered: t.run.answered, inRow: t.run.inRow}
}

// add counts a packet.
func (t *tally) add(s *stamp.Sample) {
	t.mu.Lock()
	defer t.mu.Unlock()
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
	t.order(s)
	if hops := hopsOf(s.TTL); hops != t.hopCount {
		t.hopCount = hops
		select {
		case t.hopsChanged <- struct{}{}:
		default: // one that waits is enough
		}
	}
	t.before = max(t.before, uint64(s.Number)+1)
	if s.Counters != nil {
		t.arrived = max(t.arrived, uint64(s.Counters.ReflectorReceived))
	} else {
		t.arrived = max(t.arrived, uint64(s.ReflectorNumber)+1)
	}
	t.split()
	t.time(s)
}

// order counts what came after what was sent later. An answer that did says nothing about the way there.
func (t *tally) order(s *stamp.Sample) {
	if s.ReflectorNumber < t.nextBack {
		t.counts.ReorderedBack++
		return
	}
	t.nextBack = s.ReflectorNumber + 1
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
		if uint64(number) < t.before {
			t.lostBefore++
		} else {
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
	own, its := stamp.KernelClock(), s.Error
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
