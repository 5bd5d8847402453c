package region

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"outsight/internal/kernel/kerneltest"
	"outsight/internal/region/readwire"
)

// What one system call sends is answered at each hook, whether the kernel hands it over as one packet or as several.
func TestRequestsOfOneSystemCall(t *testing.T) {
	for _, hook := range allHooks {
		t.Run(string(hook), func(t *testing.T) {
			p := newPair(t)
			key := readwire.NewKey(3)
			r := p.open(Options{Hook: hook, Keys: []readwire.Key{key}})
			var want Counters
			var reads []readwire.Read
			var memories [][]byte
			for region := range uint32(5) {
				length := 24_000 + 8*int(region)
				m := newRegion(t, uint32(length), 1)
				memory := make([]byte, length)
				for i := range memory {
					memory[i] = byte(rand.Uint32())
				}
				if err := m.Put(uint32(0), memory); err != nil {
					t.Fatal(err)
				}
				if err := r.Add(region, m); err != nil {
					t.Fatal(err)
				}
				memories = append(memories, memory)
			}
			for _, address := range hostAddresses {
				c := p.dial(address, key, readwire.Options{Window: 16})
				reads = reads[:0]
				got := make([][]byte, len(memories))
				for region, memory := range memories {
					got[region] = make([]byte, len(memory))
					for at := 0; at < len(memory); at += readwire.MaxBytes {
						piece := got[region][at:min(at+readwire.MaxBytes, len(memory))]
						reads = append(reads, readwire.Read{Region: uint32(region), Offset: uint64(at), Data: piece})
						want.Reads++
						want.Bytes += uint64(len(piece)+readwire.BlockBytes-1) / readwire.BlockBytes * readwire.BlockBytes
					}
				}
				rand.Shuffle(len(reads), func(i, j int) { reads[i], reads[j] = reads[j], reads[i] })
				if err := c.ReadAll(t.Context(), reads); err != nil {
					t.Fatalf("%s: %v", address, err)
				}
				for region := range memories {
					if !bytes.Equal(got[region], memories[region]) {
						t.Errorf("%s: region %d is not the map's memory", address, region)
					}
				}
				n := c.Counters()
				if n.Batches < uint64(len(reads))/16 || n.Batches > uint64(len(reads))/4 || n.Unanswered != 0 || n.Resent != 0 ||
					n.Strays != 0 {
					t.Errorf("%s: the client had %+v for %d reads, want some of each system call, and each answered at once", address,
						n, len(reads))
				}
				if n, err := r.Counters(); err != nil || n != want {
					t.Errorf("%s: it counted %+v, %v, want %+v", address, n, err, want)
				}
			}
		})
	}
}

// A packet with several requests is answered by one, each of its own region, or not at all.
func TestRequestsOfOnePacket(t *testing.T) {
	for _, hook := range allHooks {
		t.Run(string(hook), func(t *testing.T) {
			p := newPair(t)
			for _, side := range []string{"client", "host"} {
				p.within(side, func() error {
					p.command("ip", "link", "set", "e0", "mtu", "3000") // native XDP on veth has room for no more
					return nil
				})
			}
			key, stranger := readwire.NewKey(7), readwire.NewKey(7)
			r := p.open(Options{Hook: hook, Keys: []readwire.Key{key}, MaxReads: 10}) // 64 at once
			for region := range uint32(2) {
				m := newRegion(t, 8, 128)
				if err := m.Put(uint32(0), uint64(region+1)); err != nil {
					t.Fatal(err)
				}
				if err := r.Add(region, m); err != nil {
					t.Fatal(err)
				}
			}
			conn := p.socket(clientAddresses[0], hostAddresses[0])
			nonce := uint64(0)
			asked := func(region uint32, offset uint64, length uint16) readwire.Request {
				nonce++
				return readwire.Request{Region: region, Offset: offset, Length: length, Nonce: nonce}
			}
			packetOf := func(key readwire.Key, all ...readwire.Request) (packet []byte) {
				for _, q := range all {
					packet = readwire.AppendRequest(packet, q, addressOf(conn), key)
				}
				return packet
			}
			var want Counters
			// answered sends a packet, also as a frame without a checksum, and compares the answers.
			answered := func(what string, send func([]byte), statuses []readwire.Status, all ...readwire.Request) {
				t.Helper()
				send(packetOf(key, all...))
				got := make([]byte, 4096)
				conn.SetReadDeadline(time.Now().Add(kerneltest.Patience()))
				n, err := conn.Read(got)
				if err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				for rest, i := got[:n], 0; i < len(all); i++ {
					size := readwire.HeaderBytes + int(all[i].Length)
					if len(rest) < size {
						t.Fatalf("%s: the answer has %d bytes, want one more of %d", what, n, size)
					}
					reply, err := readwire.DecodeReply(rest[:size])
					if err != nil || reply.Request != all[i] || reply.Status != statuses[i] {
						t.Errorf("%s: answer %d is %+v, %v, want of %+v the status %v", what, i, reply, err, all[i], statuses[i])
					}
					first := uint64(all[i].Region + 1)
					if statuses[i] != readwire.Done || all[i].Offset != 0 {
						first = 0
					}
					if word := binary.LittleEndian.Uint64(reply.Data); word != first {
						t.Errorf("%s: answer %d begins with %#x, want %#x", what, i, word, first)
					}
					switch statuses[i] {
					case readwire.Done:
						want.Reads++
						want.Bytes += uint64(all[i].Length)
					case readwire.UnknownRegion:
						want.UnknownRegion++
					default:
						want.OutOfBounds++
					}
					rest = rest[size:]
					if i == len(all)-1 && len(rest) > 0 {
						t.Errorf("%s: %d bytes follow the answers", what, len(rest))
					}
				}
			}
			write := func(packet []byte) {
				if _, err := conn.Write(packet); err != nil {
					t.Fatal(err)
				}
			}
			// Here the sender's kernel leaves no checksum to hardware: that of the answer is checked by the receiver's.
			sendFrame := p.frames()
			frame := func(packet []byte) { sendFrame(frameTo(packet, addressOf(conn), 20)) }
			const done, unknown, outside = readwire.Done, readwire.UnknownRegion, readwire.OutOfBounds
			for i, send := range []func([]byte){write, frame} {
				way := []string{"as a datagram", "as a frame"}[i]
				answered("two of one region, "+way, send, []readwire.Status{done, done}, asked(0, 0, 128), asked(0, 128, 256))
				answered("of all kinds, "+way, send, []readwire.Status{unknown, done, unknown, done, outside, done, unknown},
					asked(9, 0, 128), asked(1, 0, 256), asked(1<<31, 0, 128), asked(0, 0, 128), asked(1, 1024, 128), asked(0, 128, 128),
					asked(256, 0, 128))
			}
			var sixteen []readwire.Request // of as many regions, none of which is there
			var statuses []readwire.Status
			for i := range uint32(16) {
				sixteen, statuses = append(sixteen, asked(100+i, 0, 128)), append(statuses, unknown)
			}
			answered("sixteen", write, statuses, sixteen...)
			silent := func(what string, packet []byte, counter *uint64, by uint64) {
				t.Helper()
				write(packet)
				*counter += by
				if got := counted(t, r, total(want)); got != want {
					t.Fatalf("%s: counted %+v, want %+v", what, got, want)
				}
			}
			good := asked(0, 0, 128)
			silent("seventeen", packetOf(key, append(sixteen, good)...), &want.Oversized, 1)
			silent("the last one forged", append(packetOf(key, good, good), packetOf(stranger, good)...), &want.WrongMAC, 1)
			silent("the first one forged", append(packetOf(stranger, good), packetOf(key, good, good)...), &want.WrongMAC, 1)
			silent("a piece of one behind", append(packetOf(key, good), packetOf(key, good)[:60]...), &want.Truncated, 1)
			silent("something behind", append(packetOf(key, good), make([]byte, 41)...), &want.Malformed, 1)
			// Of 64 at once 34 have been answered; forged ones took nothing.
			answered("sixteen more", write, statuses, sixteen...)
			silent("too many", packetOf(key, sixteen...), &want.OverRate, 16)
			answered("fewer", write, []readwire.Status{done, done}, asked(0, 0, 128), asked(1, 0, 128))
			conn.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
			if n, err := conn.Read(make([]byte, 4096)); err == nil {
				t.Errorf("an answer of %d bytes came that nobody was to have", n)
			}
		})
	}
}

// While a writer changes all bytes of each word, those of packets with several requests are whole.
func TestWordsOfSeveralRequestsAreNotTorn(t *testing.T) {
	for _, hook := range allHooks {
		t.Run(string(hook), func(t *testing.T) { testWords(t, hook, 16, readwire.Options{Window: 16}) })
	}
}
