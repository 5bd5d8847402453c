package incast

import "time"

// instant is simulated time in picoseconds: a byte takes 40 of them on 200 Gbit/s.
type instant int64

func since(d time.Duration) instant       { return instant(d) * 1000 }
func (t instant) duration() time.Duration { return time.Duration((t + 500) / 1000) }

// kind of an event.
type kind uint8

const (
	// threadWakes: the controller's thread may do its next work.
	threadWakes kind = iota
	// posted: the thread has handed requests of a flow to its card.
	posted
	// requested: a request is at its host.
	requested
	// cardSent: a host's card has sent a packet.
	cardSent
	// switched: a packet is at the switch.
	switched
	// forwarded: the switch's port has sent a packet.
	forwarded
	// received: a packet is at the controller.
	received
	// paused and resumed: a frame of PFC is at a host's card.
	paused
	resumed
	// overdue: a fragment should have been there.
	overdue
	// background: a packet of others is at the switch.
	background
)

// event is what happens at a time. Which of the other fields count depends on its kind.
type event struct {
	at    instant
	order uint64 // of events at the same time, the one that was scheduled first
	kind  kind
	// machine whose card it is about; count of requests.
	machine, count int32
	packet         packet
}

// packet is a part of a fragment of a flow, or of others where flow is others.
type packet struct {
	flow, fragment int32
	// bytes on the wire.
	bytes   int32
	attempt uint8
	marked  bool
	at      instant // when it was queued
}

// others is the flow of packets that are not the controller's.
const others = -1

// agenda is a heap of events with four children a node, so that fewer cache lines are touched than with two.
type agenda struct {
	events []event
	order  uint64
}

func (a *agenda) before(i, j int) bool {
	x, y := &a.events[i], &a.events[j]
	return x.at < y.at || x.at == y.at && x.order < y.order
}

func (a *agenda) add(e event) {
	a.order++
	e.order = a.order
	a.events = append(a.events, e)
	for i := len(a.events) - 1; i > 0; {
		parent := (i - 1) / 4
		if !a.before(i, parent) {
			return
		}
		a.events[i], a.events[parent] = a.events[parent], a.events[i]
		i = parent
	}
}

// next takes the earliest event; there must be one.
func (a *agenda) next() event {
	first := a.events[0]
	last := len(a.events) - 1
	a.events[0] = a.events[last]
	a.events = a.events[:last]
	for i := 0; ; {
		least := i
		for child := 4*i + 1; child <= 4*i+4 && child < last; child++ {
			if a.before(child, least) {
				least = child
			}
		}
		if least == i {
			return first
		}
		a.events[i], a.events[least] = a.events[least], a.events[i]
		i = least
	}
}

// queue is first in, first out, in a ring that grows.
type queue[T any] struct {
	ring        []T
	first, size int
}

func (q *queue[T]) push(v T) {
	if q.size == len(q.ring) {
		grown := make([]T, max(8, 2*len(q.ring)))
		for i := range q.size {
			grown[i] = q.ring[(q.first+i)%len(q.ring)]
		}
		q.ring, q.first = grown, 0
	}
	q.ring[(q.first+q.size)%len(q.ring)] = v
	q.size++
}

// pop takes the first one; there must be one.
func (q *queue[T]) pop() T {
	v := q.ring[q.first]
	q.first = (q.first + 1) % len(q.ring)
	q.size--
	return v
}

// pushFirst puts one before the others.
func (q *queue[T]) pushFirst(v T) {
	q.push(v)
	q.first = (q.first + len(q.ring) - 1) % len(q.ring)
	q.ring[(q.first+q.size)%len(q.ring)], q.ring[q.first] = *new(T), v
}
