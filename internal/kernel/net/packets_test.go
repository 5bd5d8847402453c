package net

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"outsight/internal/kernel/kerneltest"
	"outsight/internal/model"
)

// packetsOf are what both ends of the edges of a service saw of its packets.
func packetsOf(t *testing.T, p *Net, transport model.Transport, port uint16) (client, server model.PacketCounters) {
	t.Helper()
	all, err := p.ReadEdges()
	if err != nil {
		t.Fatal(err)
	}
	var sums [3]model.EdgeCounters
	for i := range all {
		if k := &all[i].Key; k.Transport == transport && k.Service.Port() == port {
			sums[k.Role].Add(&all[i].Counters)
		}
	}
	return sums[model.RoleClient].Packets, sums[model.RoleServer].Packets
}

// expectPackets compares what the ends counted with the wire's log.
func expectPackets(t *testing.T, p *Net, w *wire, transport model.Transport, port uint16) (client,
	server model.PacketCounters) {
	t.Helper()
	line := func(sent, bytes, received, receivedBytes, lost, copied, reordered uint64) string {
		return fmt.Sprintf("%d packets and %d bytes sent, %d and %d received, %d lost, %d copied, %d reordered", sent, bytes,
			received, receivedBytes, lost, copied, reordered)
	}
	givenBytes := func(log *wireLog) uint64 {
		if transport == model.TCP {
			return uint64(log.distinctBytes)
		}
		return uint64(log.givenBytes)
	}
	var got, want string
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("counted %s\nlogged  %s", got, want)
		}
	})
	kerneltest.Eventually(t, "what is counted is what the wire logged", func() bool {
		client, server = packetsOf(t, p, transport, port)
		log := w.logged()
		got = line(client.SentPackets, client.SentBytes, server.ReceivedPackets, server.ReceivedBytes,
			client.SentPackets+server.Duplicated-server.ReceivedPackets, server.Duplicated, server.Reordered)
		want = line(uint64(log.taken), uint64(log.takenBytes), uint64(log.given), givenBytes(&log), uint64(log.lost),
			uint64(log.duplicated), uint64(log.reordered))
		return got == want
	})
	t.Log(got)
	return client, server
}

// sendOver sends bytes over a connection through the wire, in calls of size, and waits until they have arrived.
func sendOver(t *testing.T, w *wire, server string, total, size int) (port uint16) {
	t.Helper()
	var listener net.Listener
	var conn net.Conn
	w.within("server", func() { listener = kerneltest.Listen(t, server) })
	received := make(chan error, 1)
	go func() {
		conn, err := listener.Accept()
		if err == nil {
			_, err = io.CopyN(io.Discard, conn, int64(total))
			conn.Write([]byte{1})
			t.Cleanup(func() { conn.Close() }) // what comes late is not seen after the end
		}
		received <- err
	}()
	w.within("client", func() {
		var err error
		if conn, err = net.Dial("tcp", listener.Addr().String()); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { conn.Close() })
	for sent := 0; sent < total; sent += size {
		if _, err := conn.Write(make([]byte, size)); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-received; err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return uint16(listener.Addr().(*net.TCPAddr).Port)
}

// What is sent, lost, copied and reordered on the way is counted to the packet, of calls large and small: large ones
// are segmented on the way. IPv6 does not number packets: there the order of what was sent in one millisecond is not
// known.
func TestPacketsOfConnectionsAreExact(t *testing.T) {
	for _, c := range []struct {
		name                  string
		lose, duplicate, hold int
		size                  int
		server                string
	}{
		{"nothing lost", 0, 0, 0, 32768, "10.214.0.2"},
		{"one in 100 lost", 100, 0, 0, 32768, "10.214.0.2"},
		{"one in 20 lost", 20, 0, 0, 32768, "10.214.0.2"},
		{"copied", 0, 37, 0, 32768, "10.214.0.2"},
		{"reordered", 0, 0, 53, 32768, "10.214.0.2"},
		{"all of it", 101, 37, 53, 32768, "10.214.0.2"},
		{"all of it, small", 101, 37, 53, 128, "10.214.0.2"},
		{"IPv6, lost", 100, 0, 0, 32768, "fd14::2"},
		{"VXLAN, nothing lost", 0, 0, 0, 32768, "10.230.0.2"},
		{"VXLAN, all of it", 101, 37, 53, 32768, "10.230.0.2"},
		{"VXLAN and IPv6, lost", 100, 0, 0, 32768, "fd30::2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := openShared(t)
			w := newWire(t)
			w.lose, w.duplicate, w.hold = c.lose, c.duplicate, c.hold
			w.overlay(vxlan)
			w.start()
			port := sendOver(t, w, c.server, max(2<<20/32768, 100000/c.size)*c.size, c.size)
			sent, received := expectPackets(t, p, w, model.TCP, port)
			if received.Delay == nil {
				t.Error("no delay was measured")
			}
			if received.Observed != received.ReceivedPackets {
				t.Errorf("%d packets were observed of %d", received.Observed, received.ReceivedPackets)
			}
			// What is lost is sent again. Where nothing is, what was sent again, because the machine was slow, had arrived.
			lost := sent.SentPackets + received.Duplicated - received.ReceivedPackets
			if again := sent.Retransmitted; again < lost || c.lose+c.duplicate+c.hold == 0 && again != received.Repeated {
				t.Errorf("%d packets sent again, %d of them needlessly, and %d lost", again, received.Repeated, lost)
			}
			if (received.OutOfOrder != 0) != (c.lose+c.hold != 0) {
				t.Errorf("%d packets out of order", received.OutOfOrder)
			}
		})
	}
}

// The same of datagrams, connected or not; those of an unconnected socket have no identification, so that their order
// is not known.
func TestPacketsOfDatagramsAreExact(t *testing.T) {
	const datagrams = 1000
	for _, c := range []struct {
		name                  string
		lose, duplicate, hold int
		address               string
	}{
		{"nothing lost", 0, 0, 0, "10.214.0.2:7001"},
		{"one in 1000 lost", 1000, 0, 0, "10.214.0.2:7002"},
		{"one in 20 lost", 20, 0, 0, "10.214.0.2:7003"},
		{"all of it", 101, 37, 53, "10.214.0.2:7004"},
		{"IPv6, lost", 100, 0, 0, "[fd14::2]:7005"},
		{"VXLAN, all of it", 101, 37, 53, "10.230.0.2:7006"},
		{"VXLAN and IPv6, lost", 100, 0, 0, "[fd30::2]:7007"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := openShared(t)
			w := newWire(t)
			w.lose, w.duplicate, w.hold = c.lose, c.duplicate, c.hold
			w.overlay(vxlan)
			w.start()
			to, err := net.ResolveUDPAddr("udp", c.address)
			if err != nil {
				t.Fatal(err)
			}
			var server, client *net.UDPConn
			w.within("server", func() {
				if server, err = net.ListenUDP("udp", to); err != nil {
					t.Error(err)
				}
			})
			defer server.Close()
			w.within("client", func() {
				if client, err = net.DialUDP("udp", nil, to); err != nil {
					t.Error(err)
				}
			})
			defer client.Close()
			server.SetReadBuffer(8 << 20)
			data := make([]byte, 200)
			var received sync.WaitGroup
			received.Go(func() {
				in := make([]byte, 300)
				for {
					if _, _, err := server.ReadFromUDP(in); err != nil {
						return
					}
				}
			})
			defer received.Wait()
			defer server.Close()
			for i := range uint64(datagrams) {
				binary.BigEndian.PutUint64(data, i)
				if _, err := client.Write(data); err != nil {
					t.Fatal(err)
				}
				if i == 0 {
					kerneltest.Eventually(t, "the first datagram is received", func() bool {
						_, server := packetsOf(t, p, model.UDP, uint16(to.Port))
						return server.ReceivedPackets == 1
					})
				}
				if i%50 == 0 {
					time.Sleep(time.Millisecond) // the wire has room for 500
				}
			}
			sent, read := expectPackets(t, p, w, model.UDP, uint16(to.Port))
			if sent.SentPackets != datagrams {
				t.Errorf("%d packets sent, want %d", sent.SentPackets, datagrams)
			}
			// The first call that receives finds who the packets are of.
			if read.Observed == 0 || read.Observed >= read.ReceivedPackets {
				t.Errorf("of %d packets received %d were observed", read.ReceivedPackets, read.Observed)
			}
		})
	}
}

// Each packet of a conversation is timed while there are few, and no delay is less than what the wire took, with the time
// in which packets wait for the wire: taps at both ends tell it of each packet.
func TestDelaysAreThoseOfTheWire(t *testing.T) {
	for _, delay := range []time.Duration{0, 200 * time.Microsecond, time.Millisecond} {
		t.Run(delay.String(), func(t *testing.T) { delaysOfTheWire(t, delay, "10.214.0.2") })
	}
	t.Run("VXLAN", func(t *testing.T) { delaysOfTheWire(t, time.Millisecond, "10.230.0.2") })
}

func delaysOfTheWire(t *testing.T, delay time.Duration, address string) {
	const exchanges = 200
	p := openShared(t)
	w := newWire(t)
	w.delay = delay
	w.overlay(vxlan)
	sent, arrived := w.tap("client"), w.tap("server")
	w.start()
	port := converse(t, w, address, exchanges)
	client, server := expectPackets(t, p, w, model.TCP, port)
	if server.Delay == nil || client.Delay == nil {
		t.Fatalf("no delays: there %v, back %v", server.Delay, client.Delay)
	}
	// Where the machine stands still, TCP sends something again.
	if n := server.Delay.Count; n != client.SentPackets || n < exchanges {
		t.Errorf("%d delays there, want %d", n, client.SentPackets)
	}
	// Of what the client receives before its edge is known, the delay is not measured.
	if n := client.Delay.Count; n+1 < server.SentPackets || n > server.SentPackets {
		t.Errorf("%d delays back, want %d or one less", n, server.SentPackets)
	}
	leave, arrive := segmentsOf(t, sent, unix.PACKET_OUTGOING), segmentsOf(t, arrived, unix.PACKET_HOST)
	var sum time.Duration
	var took []time.Duration
	for s, at := range leave {
		to, ok := arrive[s]
		if !ok {
			t.Errorf("the segment %v did not arrive", s)
		}
		took = append(took, to.Sub(at))
		sum += to.Sub(at)
	}
	slices.Sort(took)
	if uint64(len(took)) != client.SentPackets {
		t.Fatalf("%d segments in the tap, want %d", len(took), client.SentPackets)
	}
	if got := time.Duration(server.Delay.SumNS); got < sum {
		t.Errorf("the delays sum up to %v, and by the taps packets took %v", got, sum)
	}
	t.Logf("there: p50 %v, by the taps %v; mean %v, by the taps %v", time.Duration(1e9*server.Delay.Quantile(0.5)),
		took[len(took)/2], time.Duration(server.Delay.SumNS)/time.Duration(len(took)), sum/time.Duration(len(took)))
}

// segment is one of TCP, by its sequence number, and how often that had been sent before.
type segment struct {
	sequence uint32
	again    int
}

// segmentsOf are when the segments of TCP with data that passed a tap did so.
func segmentsOf(t *testing.T, tap kerneltest.Tap, direction uint8) map[segment]time.Time {
	t.Helper()
	found, times := map[segment]time.Time{}, map[uint32]int{}
	if err := tap.Each(direction, func(packet []byte, at time.Time) {
		f := wireFrame{frame: slices.Concat(make([]byte, 14), packet)}
		if f.parse(); f.number == 0 {
			found[segment{f.sequence, times[f.sequence]}] = at
			times[f.sequence]++
		}
	}); err != nil {
		t.Fatal(err)
	}
	return found
}

// converse exchanges messages over a connection through the wire, one after another.
func converse(t *testing.T, w *wire, address string, exchanges int) (port uint16) {
	t.Helper()
	var listener net.Listener
	w.within("server", func() { listener = kerneltest.Listen(t, address) })
	accepted := make(chan net.Conn, 1)
	go func() {
		defer close(accepted)
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		accepted <- conn
		io.Copy(conn, conn)
	}()
	t.Cleanup(func() {
		listener.Close()
		if conn := <-accepted; conn != nil {
			conn.Close() // its end may not come through the wire any more
		}
	})
	var conn net.Conn
	var err error
	w.within("client", func() {
		if conn, err = net.Dial("tcp", listener.Addr().String()); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { conn.Close() })
	message := make([]byte, 100)
	for range exchanges {
		if _, err := conn.Write(message); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(conn, message); err != nil {
			t.Fatal(err)
		}
	}
	return uint16(listener.Addr().(*net.TCPAddr).Port)
}

// What lies in the server's socket until it reads it is the server's time.
func TestUnreadRequests(t *testing.T) {
	const requests, pause = 5, 20 * time.Millisecond
	p := openShared(t)
	sent := make(chan struct{}, requests)
	defer close(sent) // the server goes on in any case
	service := kerneltest.Serve(t, func(conn *net.TCPConn) {
		defer conn.Close()
		for range requests {
			<-sent
			time.Sleep(pause)
			// The second half is no request of its own.
			for range 2 {
				if _, err := io.ReadFull(conn, make([]byte, 50)); err != nil {
					return
				}
			}
			conn.Write([]byte("reply"))
		}
		conn.Read(make([]byte, 1))
	})
	conn := kerneltest.Dial(t, service.String())
	for range requests {
		if _, err := conn.Write(make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
		sent <- struct{}{}
		if _, err := io.ReadFull(conn, make([]byte, 5)); err != nil {
			t.Fatal(err)
		}
	}
	client, server := packetsOf(t, p, model.TCP, service.(*net.TCPAddr).AddrPort().Port())
	if server.UnreadRequests != requests || server.UnreadNS < uint64(requests*pause) {
		t.Errorf("%d requests lay unread for %v, want %d for at least %v", server.UnreadRequests,
			time.Duration(server.UnreadNS), requests, requests*pause)
	}
	if client.UnreadRequests != 0 {
		t.Errorf("the client's end has %d unread requests", client.UnreadRequests)
	}
}
