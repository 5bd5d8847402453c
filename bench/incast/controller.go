package incast

// flow is the connection to one host.
type flow struct {
	fragments []fragment // nil before it begins and after it has ended
	begun     instant
	// next fragment to post; done are those that have arrived; completed those of them that the thread has not polled.
	next, done, completed int
	// inFlight is posted and not polled, in bytes of data: what credit is about.
	inFlight int
	// outstanding on the network, and held back by the card.
	outstanding int
	held        queue[int32]
	// ready is that it is in the thread's queue.
	ready bool
	// batch of Paced: how many fragments it had, how many of them are on the way, and when it was posted.
	batch, batchLeft int
	batchAt          instant
}

// fragment of a flow.
type fragment struct {
	left    int32 // packets of it to come
	attempt uint8
}

// thread of the controller: takes turns at the connections that have something to do.
type thread struct {
	ready     queue[int32]
	free      instant // when it has done what it does
	scheduled bool
	busy      instant
}

// wake schedules the thread's next work, not before at.
func (s *simulation) wake(at instant) {
	if !s.thread.scheduled {
		s.thread.scheduled = true
		s.agenda.add(event{at: max(at, s.now, s.thread.free), kind: threadWakes})
	}
}

// makeReady gives the thread something to do.
func (s *simulation) makeReady(of int32) {
	f := &s.flows[of]
	if f.ready {
		return
	}
	f.ready = true
	if s.Policy.Flow == Paced && f.fragments != nil {
		s.thread.ready.pushFirst(of) // a host that was begun is read to its end
	} else {
		s.thread.ready.push(of)
	}
	s.wake(0)
}

// beginGroup makes the hosts from first on ready, as many as are read at a time.
func (s *simulation) beginGroup(first int) {
	for of := first; of < min(first+s.Load.group(), s.Load.Hosts); of++ {
		s.makeReady(int32(of))
	}
}

// work is the thread's visit to one connection: it polls completions, and posts what the policy allows.
func (s *simulation) work() {
	t := &s.thread
	t.scheduled = false
	if t.ready.size == 0 {
		return
	}
	if s.Policy.Flow == Paced {
		if wait := s.pacer.wait(s); wait > s.now {
			if wait != never {
				s.wake(wait)
			}
			return
		}
	}
	of := t.ready.pop()
	f := &s.flows[of]
	f.ready = false
	cost := since(s.Controller.Call)
	if f.fragments == nil {
		cost += since(s.Controller.Begin)
		f.begun = s.now
		f.fragments = make([]fragment, s.fragments)
	}
	polled := f.completed
	f.completed = 0
	cost += instant(polled) * since(s.Controller.Each)
	f.inFlight -= min(f.inFlight, polled*s.Load.Fragment)
	count := s.allowed(f)
	cost += instant(count) * since(s.Controller.Each)
	t.free = s.now + cost
	t.busy += cost
	if count > 0 {
		s.agenda.add(event{at: t.free, kind: posted, count: int32(count),
			packet: packet{flow: of, fragment: int32(f.next)}})
		f.next += count
		f.inFlight += count * s.Load.Fragment
		if s.Policy.Flow == Paced {
			s.pacer.post(s, f, count)
		}
	}
	if f.done == s.fragments {
		s.finish(of, t.free)
	}
	if t.ready.size > 0 {
		s.wake(0)
	}
}

// allowed is how many fragments may be posted to a flow now.
func (s *simulation) allowed(f *flow) int {
	left := s.fragments - f.next
	credit := 0
	switch s.Policy.Flow {
	case Unlimited:
		return left
	case BDP:
		credit = s.Policy.Bytes
	case Credit:
		credit = s.Policy.Bytes / s.Load.group()
	case Paced:
		return min(left, s.pacer.most)
	}
	return min(left, (max(credit, s.Load.Fragment)-f.inFlight)/s.Load.Fragment)
}

// finish ends a host at a time, and begins what comes after it.
func (s *simulation) finish(of int32, at instant) {
	f := &s.flows[of]
	s.latencies = append(s.latencies, at-f.begun)
	f.fragments = nil
	s.finished++
	s.result.Elapsed = at.duration()
	group := s.Load.group()
	next := int(of) + group
	if next < s.Load.Hosts {
		s.card.warm(s, int32(next))
	}
	switch {
	case s.Policy.Flow == Paced:
		if next < s.Load.Hosts {
			s.makeReady(int32(next))
		}
	case s.finished%group == 0:
		s.beginGroup(s.finished)
	}
}

// card of the controller: it knows the last Connections connections by heart.
type card struct {
	free  instant
	known []bool
	ring  []int32
	at    int
}

func (c *card) init(s *simulation) {
	if s.Controller.Connections > 0 {
		c.known = make([]bool, s.Load.Hosts)
		c.ring = make([]int32, 0, s.Controller.Connections)
	}
}

// fetch takes Miss where a connection is not known, in place of the one that was fetched first.
func (c *card) fetch(s *simulation, of int32) {
	if c.known == nil || c.known[of] {
		return
	}
	c.free = max(c.free, s.now) + since(s.Controller.Miss)
	c.known[of] = true
	if len(c.ring) < cap(c.ring) {
		c.ring = append(c.ring, of)
		return
	}
	c.known[c.ring[c.at]] = false
	c.ring[c.at] = of
	c.at = (c.at + 1) % len(c.ring)
}

// warm fetches a connection before it is used, where hosts are read in groups.
func (c *card) warm(s *simulation, of int32) {
	if s.Load.Group > 0 {
		c.fetch(s, of)
	}
}

// issue hands count requests of a flow from a fragment on to the card.
func (s *simulation) issue(of int32, first, count int) {
	f := &s.flows[of]
	for i := first; i < first+count; i++ {
		f.fragments[i].left = int32(s.packets(int32(i)))
		if most := s.Controller.Outstanding; most > 0 && f.outstanding == most {
			f.held.push(int32(i))
			continue
		}
		f.outstanding++
		s.request(of, int32(i))
	}
}

// request sends the request of a fragment.
func (s *simulation) request(of, i int32) {
	s.card.fetch(s, of)
	s.result.Requests++
	s.card.free = max(s.card.free, s.now)
	at := s.card.free + since(s.Network.Delay)
	if s.Network.Jitter > 0 {
		at += instant(s.random.Int64N(int64(since(s.Network.Jitter))))
	}
	p := packet{flow: of, fragment: i, attempt: s.flows[of].fragments[i].attempt}
	s.agenda.add(event{at: at, kind: requested, packet: p})
	if s.Controller.Timeout > 0 {
		s.agenda.add(event{at: s.card.free + since(s.Controller.Timeout), kind: overdue, packet: p})
	}
}

// repeat asks for a fragment again that has not come whole.
func (s *simulation) repeat(p packet) {
	f := &s.flows[p.flow]
	if f.fragments == nil {
		return
	}
	one := &f.fragments[p.fragment]
	if one.left == 0 || one.attempt != p.attempt {
		return
	}
	one.attempt++
	one.left = int32(s.packets(p.fragment))
	s.result.Repeated++
	s.request(p.flow, p.fragment)
}

// complete is that a fragment is there: the card sends a request that it held back, and the thread has something to poll.
func (s *simulation) complete(of int32) {
	f := &s.flows[of]
	f.done++
	f.completed++
	f.outstanding--
	if f.held.size > 0 {
		f.outstanding++
		s.request(of, f.held.pop())
	}
	if s.Policy.Flow == Paced {
		s.pacer.complete(s, of)
		return
	}
	s.makeReady(of)
}
