package net

import (
	"encoding/binary"
	"net"
	"slices"
	"testing"
	"time"

	"outsight/internal/model"
)

// samplesOfPackets are the times of the samples of edges at a port, by packet: of the client's end or the server's, those
// received and those sent.
func samplesOfPackets(t *testing.T, p *Net, port uint16) (times map[model.Role][2]map[uint64]time.Time) {
	t.Helper()
	edges, err := p.ReadEdges()
	if err != nil {
		t.Fatal(err)
	}
	times = map[model.Role][2]map[uint64]time.Time{model.RoleClient: {{}, {}}, model.RoleServer: {{}, {}}}
	for i := range edges {
		if edges[i].Key.Service.Port() != port {
			continue
		}
		for _, s := range edges[i].PacketSamples {
			which := 0
			if s.Sent {
				which = 1
			}
			of := times[edges[i].Key.Role][which]
			if _, twice := of[s.Packet]; twice {
				t.Errorf("the packet %x was sampled twice", s.Packet)
			}
			of[s.Packet] = s.Time
		}
	}
	return times
}

// expectSame holds that packets were sampled at both ends, and took at least so long; it returns how many. Of what is
// received before an edge is known there may be no sample.
func expectSame(t *testing.T, way string, sent, received map[uint64]time.Time, least time.Duration) (same int) {
	t.Helper()
	for packet, at := range sent {
		arrived, ok := received[packet]
		if !ok {
			continue
		}
		same++
		if took := arrived.Sub(at); took < least || took > 10*time.Second {
			t.Errorf("%s, a packet took %v, want %v at least", way, took, least)
		}
	}
	return same
}

// While there are few packets each is sampled at both ends, in a conversation and in a stream of segments that are put
// together in other ways when they arrive.
func TestPacketSamplesOfBothEnds(t *testing.T) {
	const exchanges = 100
	p := openShared(t)
	w := newWire(t)
	w.delay = time.Millisecond
	w.start()
	begun := time.Now()
	port := converse(t, w, "10.214.0.2", exchanges)
	times := samplesOfPackets(t, p, port)
	client, server := times[model.RoleClient], times[model.RoleServer]
	there := expectSame(t, "there", client[1], server[0], w.delay)
	back := expectSame(t, "back", server[1], client[0], w.delay)
	// The client's first packets may come before its edge is known.
	if there < exchanges-1 || there != len(client[1]) || len(server[0]) != exchanges || back < exchanges-1 ||
		back != len(client[0]) || len(server[1]) != exchanges {
		t.Errorf("there %d of %d sent and %d received, back %d of %d and %d, want %d, the client's one less", there,
			len(client[1]), len(server[0]), back, len(server[1]), len(client[0]), exchanges)
	}
	sampledThere, sampledBack := packetsOf(t, p, model.TCP, port)
	if want := len(client[0]) + len(client[1]); sampledThere.Sampled != uint64(want) {
		t.Errorf("the client's end tells of %d samples, want %d", sampledThere.Sampled, want)
	}
	if sampledBack.Sampled != 2*exchanges {
		t.Errorf("the server's end tells of %d samples, want %d", sampledBack.Sampled, 2*exchanges)
	}
	for _, at := range client[1] {
		if at.Before(begun) || at.After(time.Now()) {
			t.Errorf("a packet was sent at %v, the conversation began at %v", at, begun)
		}
	}
}

// Of large segments that are sent whole, each has the identity of a part of it.
func TestPacketSamplesOfLargeSegments(t *testing.T) {
	p := openShared(t)
	w := newWire(t)
	w.start()
	port := sendOver(t, w, "10.214.0.2", 7*32768, 32768) // of no more packets than are remembered
	times := samplesOfPackets(t, p, port)
	sent, received := times[model.RoleClient][1], times[model.RoleServer][0]
	if same := expectSame(t, "there", sent, received, 0); same == 0 || same != len(sent) {
		t.Errorf("%d of %d sent and %d received are the same", same, len(sent), len(received))
	}
	again := samplesOfPackets(t, p, port)
	if len(again[model.RoleClient][1]) != len(sent) {
		t.Errorf("%d samples at the next reading, want the same %d", len(again[model.RoleClient][1]), len(sent))
	}
}

// With more packets in a second than are sampled, the level rises until both ends have the same few.
func TestPacketSamplesAreBounded(t *testing.T) {
	p := openShared(t)
	client, server := udpPair(t)
	port := uint16(server.LocalAddr().(*net.UDPAddr).Port)
	samplesOfPackets(t, p, port)
	r := p.edges.packets.samples
	missed, read := r.missed.Load(), r.read
	sendNumbered(t, client, server, 0, 3000)
	samplesOfPackets(t, p, port)
	missed, sampled := r.missed.Load()-missed, r.read-read
	// Of a socket's first datagram the flow is made by the call that sends or receives it. Others on this host send, too.
	if sampled < 2*3000-2 {
		t.Errorf("%d packets were sampled, want 6000 or two less", sampled)
	}
	if least := sampled - uint64(len(r.ring.Entries)); missed < least || missed > sampled {
		t.Errorf("%d samples were missed of %d, want all but those there is room for: %d", missed, sampled, least)
	}
	there, back := packetsOf(t, p, model.UDP, port)
	if own := there.Sampled + back.Sampled; own+missed < 2*3000-2 || own > uint64(len(r.ring.Entries)) {
		t.Errorf("%d samples are of this conversation and %d were missed, want 6000 together or two less", own, missed)
	}
	sendNumbered(t, client, server, 3000, 3000)
	kept := samplesOfPackets(t, p, port)
	sent, received := kept[model.RoleClient][1], kept[model.RoleServer][0]
	if same := expectSame(t, "there", sent, received, 0); same == 0 || len(sent) > maxRecent || len(received) > maxRecent {
		t.Errorf("%d of %d sent and %d received are the same, of %d at most", same, len(sent), len(received), maxRecent)
	}
	theirs, ours := packetsOf(t, p, model.UDP, port)
	if again := theirs.Sampled + ours.Sampled - there.Sampled - back.Sampled; again > 3000 {
		t.Errorf("%d packets of 3000 were sampled both ways after the level was raised", again)
	}
}

// sendNumbered sends datagrams that differ, and receives each of them.
func sendNumbered(t *testing.T, client, server *net.UDPConn, first, datagrams int) {
	t.Helper()
	data := make([]byte, 100)
	for n := range datagrams {
		binary.LittleEndian.PutUint64(data, uint64(first+n))
		if _, err := client.Write(data); err != nil {
			t.Fatal(err)
		}
		if _, _, err := server.ReadFromUDP(data); err != nil {
			t.Fatal(err)
		}
	}
}

func TestNextLevel(t *testing.T) {
	of := func(levels ...uint8) (all []sampledPacket) {
		for _, level := range levels {
			all = append(all, sampledPacket{level: level})
		}
		return all
	}
	many := func(n int, level uint8) []sampledPacket { return of(slices.Repeat([]uint8{level}, n)...) }
	f := func(level uint8, fresh []sampledPacket, elapsed time.Duration, want uint8) {
		t.Helper()
		if got := nextLevel(level, fresh, elapsed); got != want {
			t.Errorf("after level %d with %d samples in %v comes %d, want %d", level, len(fresh), elapsed, got, want)
		}
	}
	f(0, nil, time.Second, 0)
	f(5, nil, time.Second, 4)
	f(5, many(3, 7), time.Second, 4)
	f(5, many(4, 7), time.Second, 5)
	f(5, many(12, 7), time.Second, 5)
	f(5, many(13, 7), time.Second, 8)
	f(0, slices.Concat(many(50, 10), many(8, 11), many(4, 12)), time.Second, 11)
	f(0, slices.Concat(many(50, 10), many(8, 11), many(4, 12)), time.Second/2, 12)
	f(0, many(100, 63), time.Second, 63)
	f(9, many(1, 9), time.Microsecond, 9)
}

func TestUntilPeriod(t *testing.T) {
	at := time.Unix(1000, 300e6)
	f := func(begun, now time.Time, want time.Duration) {
		t.Helper()
		if got := untilPeriod(begun, now); got != want {
			t.Errorf("the next period after %v is %v after %v, want %v", begun, got, now, want)
		}
	}
	f(at, at.Add(20*time.Millisecond), 680*time.Millisecond)
	f(at, at.Add(time.Second), -300*time.Millisecond)
	f(time.Unix(1000, 0), time.Unix(1000, 20e6), 980*time.Millisecond)
	f(at, at.Add(-time.Hour), time.Second) // the clock was set
}
