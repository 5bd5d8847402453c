package net

import (
	"encoding/binary"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"outsight/internal/kernel/host"
	"outsight/internal/kernel/kerneltest"
	"outsight/internal/model"
)

func TestNextSlice(t *testing.T) {
	f := func(runs uint64, took, want time.Duration) {
		t.Helper()
		if got := nextSlice(runs, took); got != want {
			t.Errorf("after %d packets in %v the next slice is %v, want %v", runs, took, got, want)
		}
	}
	f(0, shortestSlice, slicePeriod)
	f(1, shortestSlice, slicePeriod)
	f(observedPerPeriod, 30*time.Millisecond, 30*time.Millisecond)
	f(2*observedPerPeriod, 100*time.Millisecond, 50*time.Millisecond)
	f(observedPerPeriod, slicePeriod, slicePeriod)
	f(1_000_000, slicePeriod, shortestSlice)
	f(1_000_000, shortestSlice, shortestSlice)
}

// udpPair is a connected socket and another one that it is connected to.
func udpPair(t *testing.T) (client, server *net.UDPConn) {
	t.Helper()
	server, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	if client, err = net.DialUDP("udp", nil, server.LocalAddr().(*net.UDPAddr)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client, server
}

// send sends so many datagrams and receives each of them.
func send(t *testing.T, client, server *net.UDPConn, datagrams int) {
	t.Helper()
	data := make([]byte, 100)
	for range datagrams {
		if _, err := client.Write(data); err != nil {
			t.Fatal(err)
		}
		if _, _, err := server.ReadFromUDP(data); err != nil {
			t.Fatal(err)
		}
	}
}

// All packets are counted, and no more are observed than may be; with few packets, all are. What is shed is no longer
// observed, and its packets are counted as before.
func TestPacketsInSlices(t *testing.T) {
	p := open(t, Options{Packets: PacketsInSlices, WithoutEndpoints: true})
	client, server := udpPair(t)
	kerneltest.Eventually(t, "a slice lasts for the whole period", func() bool { return p.slices.periods.Load() > 1 })
	const many = 50_000
	before := p.slices.periods.Load()
	send(t, client, server, many)
	sent, received := packetsOf(t, p, model.UDP, port(server))
	periods := p.slices.periods.Load() - before + 1
	if sent.SentPackets != many || received.ReceivedPackets != many {
		t.Errorf("%d packets sent and %d received, want %d", sent.SentPackets, received.ReceivedPackets, many)
	}
	if most := uint64(periods) * observedPerPeriod * uint64(len(p.slices.perCPU()[0])); received.Observed > most ||
		received.Observed == 0 {
		t.Errorf("%d packets were observed in %d periods, want %d at most", received.Observed, periods, most)
	}
	if received.Delay == nil || received.Delay.Count > received.Observed {
		t.Errorf("delays of %d packets observed: %v", received.Observed, received.Delay)
	}
	observed := func() uint64 {
		_, n := packetsOf(t, p, model.UDP, port(server))
		return n.Observed
	}
	kerneltest.Eventually(t, "all of few packets are observed", func() bool {
		before := observed()
		send(t, client, server, 10)
		return observed() == before+10
	})
	kerneltest.Shed(t, p, "packets")
	at, counted := observed(), func() uint64 {
		_, n := packetsOf(t, p, model.UDP, port(server))
		return n.ReceivedPackets
	}
	before10 := counted()
	begun := p.slices.periods.Load()
	kerneltest.Eventually(t, "another period begins", func() bool {
		send(t, client, server, 10)
		before10 += 10
		return p.slices.periods.Load() > begun+1
	})
	if got := observed(); got != at {
		t.Errorf("%d packets were observed while they were shed", got-at)
	}
	if got := counted(); got != before10 {
		t.Errorf("%d packets received, want %d", got, before10)
	}
	if err := host.NewParts(p).Restore("packets"); err != nil {
		t.Fatal(err)
	}
	kerneltest.Eventually(t, "packets are observed again", func() bool {
		send(t, client, server, 10)
		return observed() > at
	})
}

// Where many packets are too many for the budget, fewer are observed on each CPU, whoever's they are; all are counted.
func TestManyPacketsAreShed(t *testing.T) {
	p := open(t, Options{Packets: PacketsInSlices, WithoutEndpoints: true})
	client, server := udpPair(t)
	var sent uint64
	// mostObserved is that of a CPU in a direction in a period after this one, while packets are sent.
	mostObserved := func(since uint32) (most uint32) {
		send(t, client, server, 10*fewPerPeriod)
		sent += 10 * fewPerPeriod
		for _, cpus := range p.slices.perCPU() {
			for _, cpu := range cpus {
				if cpu.Period > since {
					most = max(most, cpu.Observed)
				}
			}
		}
		return most
	}
	many := func() bool { return mostObserved(0) > fewPerPeriod }
	kerneltest.Eventually(t, "many are observed", many)
	kerneltest.Shed(t, p, "many-packets")
	shed := p.slices.periods.Load()
	kerneltest.Eventually(t, "a few are observed", func() bool { return mostObserved(shed) > 0 })
	for p.slices.periods.Load() < shed+4 {
		if most := mostObserved(shed); most > fewPerPeriod {
			t.Fatalf("one CPU observed %d packets, want %d at most", most, fewPerPeriod)
		}
	}
	kerneltest.Restore(t, p, "many-packets")
	kerneltest.Eventually(t, "many are observed again", many)
	if to, from := packetsOf(t, p, model.UDP, port(server)); to.SentPackets != sent || from.ReceivedPackets != sent {
		t.Errorf("%d packets were counted as sent and %d as received, want %d", to.SentPackets, from.ReceivedPackets, sent)
	}
}

// A call may send several datagrams, as the socket or the call says, and receive several that were put together.
func TestDatagramsOfOneCall(t *testing.T) {
	const size, calls, whole, last = 100, 5, 7, 30
	for _, c := range []struct {
		name           string
		bySocket, puts bool
	}{{"by the socket", true, false}, {"by the call", false, false}, {"by the call, put together", false, true}} {
		t.Run(c.name, func(t *testing.T) {
			p := openShared(t)
			client, server := udpPair(t)
			option := func(conn *net.UDPConn, which, value int) {
				t.Helper()
				raw, err := conn.SyscallConn()
				if err == nil {
					raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_UDP, which, value) })
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			var control []byte
			if c.bySocket {
				option(client, unix.UDP_SEGMENT, size)
			} else {
				control = make([]byte, unix.CmsgSpace(2))
				binary.NativeEndian.PutUint64(control, uint64(unix.CmsgLen(2)))
				binary.NativeEndian.PutUint32(control[8:], unix.IPPROTO_UDP)
				binary.NativeEndian.PutUint32(control[12:], unix.UDP_SEGMENT)
				binary.NativeEndian.PutUint16(control[16:], size)
				// Of several control messages it is the second.
				first := make([]byte, unix.CmsgSpace(4))
				binary.NativeEndian.PutUint64(first, uint64(unix.CmsgLen(4)))
				binary.NativeEndian.PutUint32(first[8:], unix.IPPROTO_IP)
				binary.NativeEndian.PutUint32(first[12:], unix.IP_TOS)
				control = append(first, control...)
			}
			if c.puts {
				option(server, unix.UDP_GRO, 1)
			}
			data, in, oob := make([]byte, whole*size+last), make([]byte, 65536), make([]byte, 256)
			received := 0
			for range calls {
				if _, _, err := client.WriteMsgUDP(data, control, nil); err != nil {
					t.Fatal(err)
				}
				for got := 0; got < len(data); received++ {
					n, _, _, _, err := server.ReadMsgUDP(in, oob)
					if err != nil {
						t.Fatal(err)
					}
					got += n
				}
			}
			if want := calls * (whole + 1); c.puts == (received == want) {
				t.Fatalf("%d calls received %d datagrams", received, want)
			}
			sent, read := packetsOf(t, p, model.UDP, port(server))
			if want := uint64(calls * (whole + 1)); sent.SentPackets != want || read.ReceivedPackets != want {
				t.Errorf("%d datagrams sent and %d received, want %d", sent.SentPackets, read.ReceivedPackets, want)
			}
			if want := uint64(calls * len(data)); sent.SentBytes != want || read.ReceivedBytes != want {
				t.Errorf("%d bytes sent and %d received, want %d", sent.SentBytes, read.ReceivedBytes, want)
			}
		})
	}
}
