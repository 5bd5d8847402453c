package incast

// port is the switch's port to the controller, with its queue.
type port struct {
	queue   queue[queued]
	bytes   int
	sending bool
	// area under the queue's length over time until changed.
	area    float64
	changed instant
	// othersWaited is the sum over packets of others that were sent; othersBytes are theirs until all hosts were read.
	othersWaited        instant
	others, othersBytes int
}

// queued is a packet and the machine that it came from.
type queued struct {
	packet
	machine int32
}

// limit is the dynamic threshold: Alpha times what is free.
func (s *simulation) limit() int {
	if s.Switch.Alpha == 0 {
		return s.Switch.Buffer
	}
	return int(s.Switch.Alpha * float64(s.Switch.Buffer-s.port.bytes))
}

// headroom is what may still come after a pause was sent: what is on the way there and back, and a packet at each end
// (IEEE 802.1Qbb, annex O).
func (s *simulation) headroom() int {
	one := float64(2*s.toSwitch) * float64(s.Network.HostLink) / 8e12
	return len(s.machines) * (int(one) + 2*(s.Network.MTU+s.Network.Header))
}

// length sets the queue's length, and keeps what it was over time.
func (s *simulation) length(bytes int) {
	p := &s.port
	p.area += float64(p.bytes) * float64(s.now-p.changed)
	p.bytes, p.changed = bytes, s.now
	s.result.QueueMost = max(s.result.QueueMost, bytes)
}

// enqueue admits a packet, or drops it.
func (s *simulation) enqueue(from int32, p packet) {
	q, size := &s.port, int(p.bytes)
	room := min(s.limit(), s.Switch.Buffer)
	if s.Switch.PFC {
		room = s.Switch.Buffer
		if from != others { // nobody pauses these
			room += s.headroom()
		}
	}
	if q.bytes+size > room {
		if from == others {
			s.result.OthersDropped++
		} else {
			s.result.Dropped++
			s.result.DroppedBytes += int64(size)
		}
		return
	}
	if s.marks(q.bytes) {
		p.marked = true
		if from != others {
			s.result.Marked++
		}
	}
	p.at = s.now
	q.queue.push(queued{p, from})
	s.length(q.bytes + size)
	if from != others {
		m := &s.machines[from]
		m.buffered += size
		if s.Switch.PFC && !m.stopped && (m.buffered > s.limit() || q.bytes > s.Switch.Buffer) {
			m.stopped = true
			s.result.Pauses++
			s.agenda.add(event{at: s.now + s.toSwitch, kind: paused, machine: from})
		}
	}
	s.transmit()
}

// marks decides by the queue's length whether a packet is marked.
func (s *simulation) marks(bytes int) bool {
	w := &s.Switch
	switch {
	case w.ECNMax == 0 || bytes < w.ECNMin:
		return false
	case bytes >= w.ECNMax:
		return true
	}
	return s.random.Float64() < w.ECNShare*float64(bytes-w.ECNMin)/float64(w.ECNMax-w.ECNMin)
}

// transmit begins the next packet where the port is idle.
func (s *simulation) transmit() {
	q := &s.port
	if q.sending || q.queue.size == 0 {
		return
	}
	q.sending = true
	size := int(q.queue.ring[q.queue.first].bytes)
	s.agenda.add(event{at: s.now + s.Network.Link.take(size), kind: forwarded})
}

// forward ends the packet that the port sends: it was in the buffer until now.
func (s *simulation) forward() {
	q := &s.port
	q.sending = false
	p := q.queue.pop()
	full := q.bytes > s.Switch.Buffer
	s.length(q.bytes - int(p.bytes))
	if p.machine == others {
		q.othersWaited += s.now - p.at - s.Network.Link.take(int(p.bytes))
		q.others++
		if s.finished < s.Load.Hosts {
			q.othersBytes += int(p.bytes)
		}
	} else {
		s.machines[p.machine].buffered -= int(p.bytes)
		s.mayResume(p.machine)
		s.agenda.add(event{at: s.now + s.toSwitch, kind: received, packet: p.packet})
	}
	if full && q.bytes <= s.Switch.Buffer {
		for i := range s.machines {
			s.mayResume(int32(i))
		}
	}
	s.transmit()
}

// mayResume lets a stopped machine go on if its part of the buffer and the buffer have room again.
func (s *simulation) mayResume(of int32) {
	m := &s.machines[of]
	if m.stopped && s.port.bytes <= s.Switch.Buffer && (m.buffered == 0 || m.buffered <= s.limit()-s.Switch.Resume) {
		m.stopped = false
		s.agenda.add(event{at: s.now + s.toSwitch, kind: resumed, machine: of})
	}
}
