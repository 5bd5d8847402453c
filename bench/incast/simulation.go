package incast

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// simulation is the state of one run.
type simulation struct {
	Setup
	now    instant
	agenda agenda
	random *rand.Rand
	result Result

	fragments int // of a host
	toSwitch  instant
	machines  []machine
	port      port
	thread    thread
	card      card
	flows     []flow
	finished  int
	pacer     pacer

	latencies []instant
}

// machine has a card that its hosts share: first in, first out, by requests.
type machine struct {
	waiting queue[packet]
	sending bool
	paused  bool
	since   instant // when it was paused
	total   instant // how long it was, all in all
	// buffered is what of it is in the switch, and stopped that the switch has sent a pause.
	buffered int
	stopped  bool
}

// Run simulates. The error says what of the setup makes no sense, or that it did not end within the bound.
func Run(setup Setup) (Result, error) {
	if setup.Bound == 0 {
		setup.Bound = 100 * time.Second
	}
	if err := setup.check(); err != nil {
		return Result{}, err
	}
	s := &simulation{Setup: setup, random: rand.New(rand.NewPCG(setup.Seed, 0))}
	s.fragments = (s.Load.Bytes + s.Load.Fragment - 1) / s.Load.Fragment
	s.toSwitch = since(s.Network.Delay) / 2
	machines := s.Network.Machines
	if machines == 0 || machines > s.Load.Hosts {
		machines = s.Load.Hosts
	}
	s.machines = make([]machine, machines)
	s.flows = make([]flow, s.Load.Hosts)
	s.card.init(s)
	s.pacer.init(s)
	s.beginGroup(0)
	if s.Load.Others > 0 {
		s.scheduleOthers()
	}
	bound := since(s.Bound)
	for len(s.agenda.events) > 0 {
		e := s.agenda.next()
		if e.at > bound {
			return Result{}, fmt.Errorf("%d of %d hosts were read when the bound of %v was reached", s.finished,
				s.Load.Hosts, s.Bound)
		}
		s.now = e.at
		s.handle(&e)
	}
	if s.finished != s.Load.Hosts {
		panic(fmt.Sprintf("BUG: nothing is left to do, and %d of %d hosts were read", s.finished, s.Load.Hosts))
	}
	return s.report(), nil
}

func (s *simulation) handle(e *event) {
	switch e.kind {
	case threadWakes:
		s.work()
	case posted:
		s.issue(e.packet.flow, int(e.packet.fragment), int(e.count))
	case requested:
		s.answer(e.packet)
	case cardSent:
		s.machines[e.machine].sending = false
		s.send(e.machine)
	case switched:
		s.enqueue(e.machine, e.packet)
	case forwarded:
		s.forward()
	case received:
		s.receive(e.packet)
	case paused:
		s.pause(e.machine)
	case resumed:
		s.resume(e.machine)
	case overdue:
		s.repeat(e.packet)
	case background:
		s.result.OthersSent++
		s.enqueue(others, e.packet)
		if s.finished < s.Load.Hosts {
			s.scheduleOthers()
		}
	}
}

func (s *simulation) machineOf(flow int32) int32 { return flow % int32(len(s.machines)) }

// answer puts the packets of a fragment into the queue of its host's card.
func (s *simulation) answer(p packet) {
	m := s.machineOf(p.flow)
	for left := s.fragmentBytes(p.fragment); left > 0; left -= s.Network.MTU {
		p.bytes = int32(min(left, s.Network.MTU) + s.Network.Header)
		s.machines[m].waiting.push(p)
	}
	s.send(m)
}

// fragmentBytes is the data of a fragment: the last one of a host may have less.
func (s *simulation) fragmentBytes(fragment int32) int {
	return min(s.Load.Fragment, s.Load.Bytes-int(fragment)*s.Load.Fragment)
}

func (s *simulation) packets(fragment int32) int {
	return (s.fragmentBytes(fragment) + s.Network.MTU - 1) / s.Network.MTU
}

// send begins the next packet of a card that may.
func (s *simulation) send(of int32) {
	m := &s.machines[of]
	if m.sending || m.paused || m.waiting.size == 0 {
		return
	}
	m.sending = true
	p := m.waiting.pop()
	took := s.Network.HostLink.take(int(p.bytes))
	s.result.Sent++
	s.result.SentBytes += int64(p.bytes)
	s.agenda.add(event{at: s.now + took, kind: cardSent, machine: of})
	s.agenda.add(event{at: s.now + took + s.toSwitch, kind: switched, machine: of, packet: p})
}

func (s *simulation) pause(of int32) {
	if m := &s.machines[of]; !m.paused {
		m.paused, m.since = true, s.now
	}
}

func (s *simulation) resume(of int32) {
	if m := &s.machines[of]; m.paused {
		m.paused = false
		m.total += s.now - m.since
		s.send(of)
	}
}

// scheduleOthers schedules the next packet of others.
func (s *simulation) scheduleOthers() {
	bytes := s.Network.MTU + s.Network.Header
	mean := float64(s.Network.Link.take(bytes)) / s.Load.Others
	s.agenda.add(event{at: s.now + instant(s.random.ExpFloat64()*mean), kind: background,
		packet: packet{flow: others, bytes: int32(bytes)}})
}

// receive takes a packet off the link.
func (s *simulation) receive(p packet) {
	s.result.Received++
	s.result.ReceivedBytes += int64(p.bytes)
	f := &s.flows[p.flow]
	if f.fragments == nil {
		s.result.Useless++
		return
	}
	one := &f.fragments[p.fragment]
	if one.attempt != p.attempt || one.left == 0 {
		s.result.Useless++
		return
	}
	if one.left--; one.left == 0 {
		s.complete(p.flow)
	}
}

// report finishes the result.
func (s *simulation) report() Result {
	r := s.result
	slices.Sort(s.latencies)
	r.Latency = r.latencies(s.latencies)
	r.WireBytes = s.WireBytes()
	end := since(r.Elapsed)
	r.Utilisation = float64(r.WireBytes) * 8 / float64(s.Network.Link) / r.Elapsed.Seconds()
	r.QueueMean = s.port.area / float64(max(s.port.changed, 1))
	for i := range s.machines {
		r.Paused += float64(s.machines[i].total) / float64(end) / float64(len(s.machines))
	}
	r.Thread = float64(s.thread.busy) / float64(end)
	r.OthersUsed = float64(s.port.othersBytes) * 8 / float64(s.Network.Link) / r.Elapsed.Seconds()
	r.OthersDelay = (s.port.othersWaited / instant(max(s.port.others, 1))).duration()
	return r
}
