package region

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/bits"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"outsight/internal/kernel/kerneltest"
	"outsight/internal/region/readwire"
)

// socket is a UDP socket of a namespace, connected to the responder.
func (p *pair) socket(from, to string) (conn *net.UDPConn) {
	p.t.Helper()
	p.within("client", func() (err error) {
		conn, err = net.DialUDP("udp", &net.UDPAddr{IP: net.ParseIP(from)}, &net.UDPAddr{IP: net.ParseIP(to), Port: port})
		return err
	})
	p.t.Cleanup(func() { conn.Close() })
	return conn
}

func addressOf(conn *net.UDPConn) netip.AddrPort {
	local := conn.LocalAddr().(*net.UDPAddr).AddrPort()
	return netip.AddrPortFrom(local.Addr().Unmap(), local.Port())
}

// total is how many packets were counted.
func total(c Counters) uint64 {
	return c.Reads + c.NotAllowed + c.Truncated + c.Malformed + c.UnknownKey + c.WrongMAC + c.OverRate + c.Misaligned +
		c.Oversized + c.Faults + c.UnknownRegion + c.OutOfBounds
}

// counted are the counters once that many packets were.
func counted(t *testing.T, r *Responder, packets uint64) (c Counters) {
	t.Helper()
	kerneltest.Eventually(t, fmt.Sprintf("counting %d packets", packets), func() bool {
		var err error
		if c, err = r.Counters(); err != nil {
			t.Fatal(err)
		}
		return total(c) >= packets
	})
	return c
}

// Each kind of packet that must not be answered, or not with data, is in its counter and in no other.
func TestHostilePacketsAreCounted(t *testing.T) {
	for _, hook := range allHooks {
		for i := range hostAddresses {
			t.Run(fmt.Sprint(hook, " ", hostAddresses[i]), func(t *testing.T) { testHostilePackets(t, hook, i) })
		}
	}
}

func testHostilePackets(t *testing.T, hook Hook, family int) {
	p := newPair(t)
	second := []string{"10.216.1.3", "fd16:1::3"}[family]
	third := []string{"10.216.1.9", "fd16:1::9"}[family]
	p.within("client", func() error {
		for _, address := range []string{second, third} {
			p.command("ip", "address", "add", address+[]string{"/24", "/64"}[family], "dev", "e0",
				[]string{"noprefixroute", "nodad"}[family])
		}
		return nil
	})
	p.within("host", func() error {
		for _, address := range []string{second, third} {
			p.command("ip", "neighbour", "replace", address, "lladdr", "02:00:00:00:00:01", "dev", "e0", "nud", "permanent")
		}
		return nil
	})
	key, stranger := readwire.NewKey(7), readwire.NewKey(7)
	r := p.open(Options{Hook: hook, Keys: []readwire.Key{key}, Allow: []netip.Prefix{
		netip.MustParsePrefix([]string{"10.216.1.0/29", "fd16:1::/125"}[family])}})
	m := newRegion(t, 8, 512) // 4 KiB
	if err := m.Put(uint32(0), uint64(0x1111)); err != nil {
		t.Fatal(err)
	}
	if err := r.Add(2, m); err != nil {
		t.Fatal(err)
	}
	conn := p.socket(clientAddresses[family], hostAddresses[family])
	otherPort := p.socket(clientAddresses[family], hostAddresses[family])
	otherAddress, outside := p.socket(second, hostAddresses[family]), p.socket(third, hostAddresses[family])
	good := readwire.Request{Region: 2, Length: 1024, Nonce: 1}
	made := func(change func(*readwire.Request)) []byte {
		q := good
		change(&q)
		return readwire.AppendRequest(nil, q, addressOf(conn), key)
	}
	same := made(func(*readwire.Request) {})
	changed := func(at int, to byte) []byte {
		packet := made(func(*readwire.Request) {})
		packet[at] = to
		return packet
	}
	const silence = readwire.Status(0xffff)
	var want Counters
	var sent uint64
	f := func(what string, from *net.UDPConn, packet []byte, counter *uint64, status readwire.Status) {
		t.Helper()
		if _, err := from.Write(packet); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		sent++
		*counter++
		if counter == &want.Reads {
			want.Bytes += uint64(good.Length)
		}
		if got := counted(t, r, sent); got != want {
			t.Fatalf("%s: counted %+v, want %+v", what, got, want)
		}
		// What is answered at all is answered before it is seen in the counters, but on the way.
		if status != silence {
			answer := make([]byte, 2048)
			from.SetReadDeadline(time.Now().Add(kerneltest.Patience()))
			n, err := from.Read(answer)
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			reply, err := readwire.DecodeReply(answer[:n])
			if err != nil || reply.Status != status || n != len(packet) {
				t.Fatalf("%s: the answer is %d bytes, %+v, %v, want %d and status %v", what, n, reply, err, len(packet), status)
			}
			if first := binary.LittleEndian.Uint64(reply.Data); first != 0x1111 && status == readwire.Done ||
				first != 0 && status != readwire.Done {
				t.Errorf("%s: the data begin with %#x", what, first)
			}
		}
	}
	f("a right request", conn, same, &want.Reads, readwire.Done)
	f("the same again", conn, same, &want.Reads, readwire.Done)
	f("replayed from another port", otherPort, same, &want.WrongMAC, silence)
	f("replayed from another address", otherAddress, same, &want.WrongMAC, silence)
	f("from an address that is not allowed", outside, readwire.AppendRequest(nil, good, addressOf(outside), key),
		&want.NotAllowed, silence)
	f("nothing", conn, nil, &want.Truncated, silence)
	f("a piece of a header", conn, same[:39], &want.Truncated, silence)
	f("no data", conn, same[:40], &want.Truncated, silence)
	f("less data than it says", conn, same[:len(same)-1], &want.Truncated, silence)
	f("more data than it says", conn, append(made(func(*readwire.Request) {}), 0), &want.Oversized, silence)
	f("more than is allowed", conn, made(func(q *readwire.Request) { q.Length = 1152 }), &want.Oversized, silence)
	f("much more than is allowed", conn, made(func(q *readwire.Request) { q.Length = 65408 })[:1064], &want.Oversized,
		silence)
	f("no length", conn, made(func(q *readwire.Request) { q.Length = 0 }), &want.Misaligned, silence)
	f("no whole blocks", conn, made(func(q *readwire.Request) { q.Length = 64 }), &want.Misaligned, silence)
	f("an offset within a block", conn, made(func(q *readwire.Request) { q.Offset = 8 }), &want.Misaligned, silence)
	f("another magic", conn, changed(0, 'X'), &want.Malformed, silence)
	f("a later version", conn, changed(4, 2), &want.Malformed, silence)
	f("a reply", conn, changed(5, 2), &want.Malformed, silence)
	f("a status", conn, changed(14, 1), &want.Malformed, silence)
	f("another key's id", conn, changed(6, 8), &want.UnknownKey, silence)
	f("another secret", conn, readwire.AppendRequest(nil, good, addressOf(conn), stranger), &want.WrongMAC, silence)
	for _, at := range []int{8, 9, 10, 11, 12, 13, 16, 23, 24, 31, 32, 39} {
		f(fmt.Sprintf("byte %d of the header changed", at), conn, changed(at, same[at]^0x80), &want.WrongMAC, silence)
	}
	for _, region := range []uint32{0, 3, 255, 256, 1 << 31, 1<<32 - 1} {
		f(fmt.Sprintf("region %d", region), conn, made(func(q *readwire.Request) { q.Region = region }),
			&want.UnknownRegion, readwire.UnknownRegion)
	}
	for _, offset := range []uint64{4096, 4096 - 896, 1 << 31, 1 << 32, 1 << 63, 1<<64 - 128, 1<<64 - 1024} {
		f(fmt.Sprintf("offset %d", offset), conn, made(func(q *readwire.Request) { q.Offset = offset }),
			&want.OutOfBounds, readwire.OutOfBounds)
	}
	f("a right request after all of it", conn, same, &want.Reads, readwire.Done)
}

// frameTo is an IPv4 packet of a datagram with its Ethernet header, whose fields a test may spoil.
func frameTo(payload []byte, from netip.AddrPort, headerBytes int) []byte {
	b := []byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0}
	ip := make([]byte, headerBytes)
	ip[0], ip[8], ip[9] = 0x40|byte(headerBytes/4), 64, unix.IPPROTO_UDP
	for i := 20; i < headerBytes; i++ {
		ip[i] = 1 // an option that does nothing
	}
	binary.BigEndian.PutUint16(ip[2:], uint16(headerBytes+8+len(payload)))
	copy(ip[12:], from.Addr().AsSlice())
	copy(ip[16:], netip.MustParseAddr(hostAddresses[0]).AsSlice())
	b = append(b, ip...)
	b = binary.BigEndian.AppendUint16(b, from.Port())
	b = binary.BigEndian.AppendUint16(b, port)
	b = binary.BigEndian.AppendUint16(b, uint16(8+len(payload)))
	return append(append(b, 0, 0), payload...)
}

// frames sends frames at the client's interface, as they are: no kernel fills anything in.
func (p *pair) frames() (send func(frame []byte)) {
	p.t.Helper()
	var fd int
	to := &unix.SockaddrLinklayer{Protocol: bits.ReverseBytes16(unix.ETH_P_IP), Halen: 6}
	p.within("client", func() error {
		e0, err := net.InterfaceByName("e0")
		if err != nil {
			return err
		}
		to.Ifindex = e0.Index
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		return err
	})
	p.t.Cleanup(func() { unix.Close(fd) })
	return func(frame []byte) {
		p.t.Helper()
		if err := unix.Sendto(fd, frame, 0, to); err != nil {
			p.t.Fatal(err)
		}
	}
}

// Packets that no kernel sends: lengths that disagree are refused, and what is no whole datagram is not looked at.
func TestLyingHeaders(t *testing.T) {
	for _, hook := range allHooks {
		t.Run(string(hook), func(t *testing.T) {
			p := newPair(t)
			key := readwire.NewKey(7)
			r := p.open(Options{Hook: hook, Keys: []readwire.Key{key}})
			if err := r.Add(0, newRegion(t, 8, 512)); err != nil {
				t.Fatal(err)
			}
			send := p.frames()
			conn := p.socket(clientAddresses[0], hostAddresses[0])
			same := readwire.AppendRequest(nil, readwire.Request{Length: 128, Nonce: 1}, addressOf(conn), key)
			var want Counters
			var sent uint64
			answer := make([]byte, 2048)
			f := func(what string, frame []byte, counter *uint64) {
				t.Helper()
				send(frame)
				if counter != nil {
					*counter++
					sent++
				}
				// Packets stay in their order: the one after it tells that this was seen.
				send(frameTo(same, addressOf(conn), 20))
				sent++
				want.Reads++
				want.Bytes += 128
				if got := counted(t, r, sent); got != want {
					t.Fatalf("%s: counted %+v, want %+v", what, got, want)
				}
				// Here the sender's kernel left no checksum to hardware: the answer's is checked by the receiver's.
				conn.SetReadDeadline(time.Now().Add(kerneltest.Patience()))
				if n, err := conn.Read(answer); err != nil || n != len(same) {
					t.Fatalf("%s: the answer after it is %d bytes, %v", what, n, err)
				}
			}
			spoiled := func(spoil func([]byte)) []byte {
				frame := frameTo(same, addressOf(conn), 20)
				spoil(frame)
				return frame
			}
			const ip, udp = 14, 34
			f("UDP's length ends beyond the packet", spoiled(func(b []byte) { b[udp+4] = 0xff }), &want.Truncated)
			f("UDP's length is less than its header", spoiled(func(b []byte) { b[udp+4], b[udp+5] = 0, 7 }),
				&want.Truncated)
			f("IP's length is another", spoiled(func(b []byte) { b[ip+3]-- }), &want.Malformed)
			f("the first fragment", spoiled(func(b []byte) { b[ip+6] = 0x20 }), nil)
			f("a later fragment", spoiled(func(b []byte) { b[ip+7] = 1 }), nil)
			f("IP options", frameTo(same, addressOf(conn), 24), nil)
			f("TCP", spoiled(func(b []byte) { b[ip+9] = unix.IPPROTO_TCP }), nil)
			f("another address", spoiled(func(b []byte) { b[ip+19]++ }), nil)
			f("another port", spoiled(func(b []byte) { b[udp+3]++ }), nil)
			f("half of IP's header", spoiled(func([]byte) {})[:24], nil)
			f("half of UDP's header", spoiled(func([]byte) {})[:38], nil)
		})
	}
}

// Above the rate there is no answer, and what is answered is what the rate allows.
func TestRateIsBounded(t *testing.T) {
	for _, hook := range allHooks {
		t.Run(string(hook), func(t *testing.T) {
			const perSecond, atOnce, requests = 10, 64, 1000
			p := newPair(t)
			key, stranger := readwire.NewKey(7), readwire.NewKey(7)
			r := p.open(Options{Hook: hook, Keys: []readwire.Key{key}, MaxReads: perSecond})
			if err := r.Add(0, newRegion(t, 8, 512)); err != nil {
				t.Fatal(err)
			}
			conn := p.socket(clientAddresses[0], hostAddresses[0])
			write := func(key readwire.Key) {
				packet := readwire.AppendRequest(nil, readwire.Request{Length: 128}, addressOf(conn), key)
				if _, err := conn.Write(packet); err != nil {
					t.Fatal(err)
				}
			}
			begin := time.Now()
			for range requests { // forged ones take nothing of the rate
				write(stranger)
			}
			if got := counted(t, r, requests); got.WrongMAC != requests || got.OverRate != 0 {
				t.Fatalf("counted %+v of %d forged requests", got, requests)
			}
			for range requests {
				write(key)
			}
			got := counted(t, r, 2*requests)
			most := atOnce + uint64(time.Since(begin).Seconds()*perSecond) + 1
			if got.Reads < atOnce || got.Reads > most || got.Reads+got.OverRate != requests {
				t.Errorf("counted %+v of %d requests, want %d to %d reads", got, requests, atOnce, most)
			}
			// With time, it answers again.
			c := p.dial(hostAddresses[0], key, readwire.Options{})
			ctx, cancel := context.WithTimeout(t.Context(), kerneltest.Patience())
			defer cancel()
			if err := c.Read(ctx, 0, 0, make([]byte, 128)); err != nil {
				t.Error(err)
			}
		})
	}
}
