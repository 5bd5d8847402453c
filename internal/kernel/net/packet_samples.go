package net

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"

	"outsight/internal/kernel/host"
	"outsight/internal/model"
	"outsight/internal/monotonic"
)

const (
	// sampledPerSecond is how many packets of an edge are sampled in each direction, at most, once its level is found.
	sampledPerSecond = 12
	// maxRecent bounds what is remembered of an edge in each direction: of the time until its level is found.
	maxRecent = 2 * sampledPerSecond * int(model.PacketSamplesLast/time.Second)
	// maxLevel is how round a packet may be at most.
	maxLevel = 63
)

// sampleReader reads when packets to other hosts were sent and received; see packet_samples.h.
type sampleReader struct {
	ring  *host.Table[edgesPacketSample]
	total *ebpf.Variable
	// read is the number of the last sample that was, readAt when, by CLOCK_MONOTONIC.
	read   uint64
	readAt uint64
	// missed counts those that were overwritten before they were read.
	missed atomic.Uint64
	// edges are by their index, the overflow's first, which has none.
	edges []edgeSamples
	// some edge has recent samples, or a level.
	some bool
}

// edgeSamples are the samples of one edge, by edgesPacketDirection.
type edgeSamples [edgesPacketDirectionPACKET_DIRECTIONS]directionSamples

type directionSamples struct {
	// recent have their times by CLOCK_MONOTONIC; the last fresh of them are those of this reading.
	recent []sampledPacket
	fresh  int
	// total is how many there were.
	total uint64
}

type sampledPacket struct {
	packet, ns uint64
	// card is when it left by an uplink or came by one; 0: that was not seen.
	card  uint64
	level uint8
}

func (p *Net) openPacketSamples(objects *edgeObjects, edges int) (*sampleReader, error) {
	ring, err := host.MapTable[edgesPacketSample](objects.PacketSamples)
	if err != nil {
		return nil, err
	}
	p.OnClose(ring)
	return &sampleReader{ring: ring, total: objects.PacketsSampled, readAt: monotonic.Now(),
		edges: make([]edgeSamples, edges)}, nil
}

// take reads what was sampled since the last time, and sets by it the level from which on packets of an edge are.
func (r *sampleReader) take(packets []edgesEdgePackets) {
	now := monotonic.Now()
	var total uint64
	if r.total.Get(&total) != nil {
		return // of memory that is mapped
	}
	if places := uint64(len(r.ring.Entries)); total-r.read > places {
		r.missed.Add(total - r.read - places)
		r.read = total - places
	}
	sampled := r.read < total
	for r.read < total {
		r.read++
		r.takeOne(r.read)
	}
	elapsed := time.Duration(now - r.readAt)
	r.readAt = now
	if !sampled && !r.some {
		return
	}
	r.some = false
	for index := range r.edges {
		for direction := range r.edges[index] {
			d := &r.edges[index][direction]
			level := &packets[index].SampleLevels[direction]
			if d.fresh == 0 && *level == 0 && len(d.recent) == 0 {
				continue
			}
			*level = nextLevel(*level, d.recent[len(d.recent)-d.fresh:], elapsed)
			d.fresh = 0
			d.forget(now)
			r.some = r.some || *level != 0 || len(d.recent) > 0
		}
	}
}

func (r *sampleReader) takeOne(number uint64) {
	e := &r.ring.Entries[number%uint64(len(r.ring.Entries))]
	if host.Load(&e.Number) != number {
		r.missed.Add(1)
		return
	}
	one := sampledPacket{host.Load(&e.Packet), host.Load(&e.Ns), host.Load(&e.CardNs), uint8(min(e.Level, maxLevel))}
	index, direction := int(e.Edge), int(e.Direction)
	if host.Load(&e.Number) != number {
		r.missed.Add(1)
		return
	}
	if index == edgeOverflow || index >= len(r.edges) || direction >= len(r.edges[index]) {
		return
	}
	d := &r.edges[index][direction]
	d.recent = append(d.recent, one)
	d.fresh++
	d.total++
}

// forget drops what is too old, and what there is no room for: the least round of them, as the other host does.
func (d *directionSamples) forget(now uint64) {
	d.recent = slices.DeleteFunc(d.recent, func(s sampledPacket) bool {
		return time.Duration(now-s.ns) > model.PacketSamplesLast
	})
	for least := uint8(1); len(d.recent) > maxRecent && least <= maxLevel; least++ {
		d.recent = slices.DeleteFunc(d.recent, func(s sampledPacket) bool { return s.level < least })
	}
	if len(d.recent) > maxRecent {
		d.recent = slices.Clone(d.recent[len(d.recent)-maxRecent:])
	}
	if len(d.recent) == 0 {
		d.recent = nil
	}
}

// nextLevel is the least level with which no more would have been sampled than may be. It falls by one where much fewer
// were.
func nextLevel(level uint8, fresh []sampledPacket, elapsed time.Duration) uint8 {
	most := max(int(sampledPerSecond*elapsed.Seconds()), 1)
	if len(fresh) <= most {
		if level > 0 && len(fresh) < most/3 {
			level--
		}
		return level
	}
	var has [maxLevel + 1]int
	for _, s := range fresh {
		has[s.level]++
	}
	left := len(fresh)
	for level < maxLevel && left > most {
		left -= has[level]
		level++
	}
	return level
}

// of are the samples of an edge. ahead is how far the wall clock is ahead of CLOCK_MONOTONIC.
func (r *sampleReader) of(index int, ahead time.Duration) (all []model.PacketSample) {
	for direction := range r.edges[index] {
		for _, s := range r.edges[index][direction].recent {
			sent := direction == int(edgesPacketDirectionPACKET_SENT)
			all = append(all, model.PacketSample{Packet: s.packet >> (64 - model.PacketSampleBits), Level: s.level,
				Sent: sent, Time: time.Unix(0, int64(s.ns)+int64(ahead)), Stack: s.stack(sent)})
		}
	}
	return all
}

// stack is for how long it was between its socket and an uplink, 1 ns at least; 0 where it was seen at none.
func (s *sampledPacket) stack(sent bool) time.Duration {
	from, to := s.card, s.ns
	if sent {
		from, to = s.ns, s.card
	}
	if s.card == 0 || to < from {
		return 0
	}
	return time.Duration(max(to-from, 1))
}

// sampled is how many packets of an edge were.
func (r *sampleReader) sampled(index int) (n uint64) {
	for direction := range r.edges[index] {
		n += r.edges[index][direction].total
	}
	return n
}

// free forgets an edge.
func (r *sampleReader) free(index int) { r.edges[index] = edgeSamples{} }

func (r *sampleReader) drop() model.Drop {
	return model.Drop{Name: "packet_samples", Count: r.missed.Load(), Capacity: uint64(len(r.ring.Entries))}
}
