package readwire

import (
	"bytes"
	"encoding/hex"
	"errors"
	"net/netip"
	"os"
	"strings"
	"testing"
)

// sequence is a key that counts.
func sequence(id uint16) Key {
	k := Key{ID: id}
	for i := range k.Secret {
		k.Secret[i] = byte(i)
	}
	return k
}

// The vectors of the paper's reference implementation: messages 00 01 02 ... of each length, with the key 00 ... 0f.
func TestSipHash(t *testing.T) {
	f := func(length int, want uint64) {
		t.Helper()
		message := make([]byte, length)
		for i := range message {
			message[i] = byte(i)
		}
		if got := sipHash(sequence(0).Secret, message); got != want {
			t.Errorf("%d bytes: got %#x, want %#x", length, got, want)
		}
	}
	f(0, 0x726fdb47dd0e0e31)
	f(1, 0x74f839c593dc67fd)
	f(8, 0x93f5f5799a932462)
	f(15, 0xa129ca6149be45e5)
}

var (
	example     = Request{Region: 3, Length: 128, Offset: 256, Nonce: 0x1122334455667788}
	exampleFrom = netip.MustParseAddrPort("192.0.2.1:49152")
)

// The page's example is what the code makes.
func TestReadPage(t *testing.T) {
	page, err := os.ReadFile("../../../docs/format/region-read.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(page), "128 zeros follow.\n\n```\n")
	text, _, ended := strings.Cut(rest, "```")
	if !found || !ended {
		t.Fatal("the page has no example")
	}
	want, err := hex.DecodeString(strings.Join(strings.Fields(text), ""))
	if err != nil {
		t.Fatal(err)
	}
	got := AppendRequest(nil, example, exampleFrom, sequence(7))
	if !bytes.Equal(got[:HeaderBytes], want) {
		t.Errorf("the code makes\n% x\nthe page has\n% x", got[:HeaderBytes], want)
	}
	if rest := got[HeaderBytes:]; !bytes.Equal(rest, make([]byte, example.Length)) {
		t.Errorf("%d bytes follow: % x", len(rest), rest)
	}
}

// The MAC changes with all that it is of.
func TestMACIsOfEverything(t *testing.T) {
	key := sequence(7)
	packet := AppendRequest(nil, example, exampleFrom, key)
	original := mac(packet, exampleFrom, key)
	f := func(what string, packet []byte, from netip.AddrPort, key Key, want bool) {
		t.Helper()
		if got := mac(packet, from, key) == original; got != want {
			t.Errorf("%s: the same MAC: %v, want %v", what, got, want)
		}
	}
	f("the same", packet, exampleFrom, key, true)
	f("as IPv6 has the address", packet, netip.MustParseAddrPort("[::ffff:192.0.2.1]:49152"), key, true)
	f("another port", packet, netip.AddrPortFrom(exampleFrom.Addr(), 49153), key, false)
	f("another address", packet, netip.AddrPortFrom(exampleFrom.Addr().Next(), 49152), key, false)
	for i := range key.Secret {
		other := key
		other.Secret[i] ^= 1
		f("another secret", packet, exampleFrom, other, false)
	}
	for i := range 32 {
		changed := bytes.Clone(packet)
		changed[i] ^= 1
		f("another header", changed, exampleFrom, key, false)
	}
}

// reply makes a reply of a request.
func reply(request []byte, status Status, data []byte) []byte {
	packet := append(bytes.Clone(request[:HeaderBytes]), data...)
	packet[5], packet[14], packet[15] = kindReply, byte(status), byte(status>>8)
	return packet
}

func TestDecodeReply(t *testing.T) {
	request := AppendRequest(nil, example, exampleFrom, sequence(7))
	data := bytes.Repeat([]byte{1, 2, 3, 4}, 32)
	got, err := DecodeReply(reply(request, OutOfBounds, data))
	if err != nil || got.Request != example || got.Status != OutOfBounds || !bytes.Equal(got.Data, data) {
		t.Errorf("got %+v, %v", got, err)
	}
	f := func(what string, packet []byte) {
		t.Helper()
		if _, err := DecodeReply(packet); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: got %v, want %v", what, err, ErrMalformed)
		}
	}
	f("nothing", nil)
	f("a piece of a header", request[:39])
	f("a request", request)
	f("less data than it says", reply(request, Done, data[:127]))
	f("more data than it says", reply(request, Done, append(data, 0)))
	for _, i := range []int{0, 1, 2, 3, 4} {
		changed := reply(request, Done, data)
		changed[i]++
		f("another magic or version", changed)
	}
}

func FuzzDecodeReply(f *testing.F) {
	request := AppendRequest(nil, example, exampleFrom, sequence(7))
	f.Add(reply(request, Done, make([]byte, 128)))
	f.Add(reply(request, UnknownRegion, make([]byte, 128)))
	f.Add(request)
	f.Add([]byte("OSRD"))
	f.Fuzz(func(t *testing.T, packet []byte) {
		r, err := DecodeReply(packet)
		if err != nil {
			return
		}
		// What is decoded says all of the packet but its key and MAC.
		again := AppendRequest(nil, r.Request, exampleFrom, Key{})
		again = reply(again, r.Status, r.Data)
		copy(again[6:8], packet[6:8])
		copy(again[32:HeaderBytes], packet[32:HeaderBytes])
		if !bytes.Equal(again, packet) {
			t.Errorf("% x\nbecomes\n% x", packet, again)
		}
	})
}
