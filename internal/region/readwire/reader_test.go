package readwire

import (
	"bytes"
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"outsight/internal/region"
)

// TestKeyOf: the key of docs/format/region-read.md, as Python's hmac makes it of the secret 00 01 02 ... 0f.
func TestKeyOf(t *testing.T) {
	secret := sequence(0).Secret
	k, err := KeyOf(region.Key{ID: 7, Secret: secret[:]})
	want := [16]byte{0x8e, 0xf2, 0xf5, 0x0c, 0x7e, 0x51, 0x99, 0x2a, 0xde, 0x77, 0xa7, 0x77, 0xa7, 0xe1, 0xcd, 0x15}
	if err != nil || k.ID != 7 || k.Secret != want {
		t.Errorf("got %d %x, %v", k.ID, k.Secret, err)
	}
	if _, err := KeyOf(region.Key{ID: 1 << 16, Secret: secret[:]}); err == nil {
		t.Error("the id of a packet's key has 16 bits")
	}
}

// TestOrderedReads: where answers are lost, the pieces of an ordered read are answered upwards all the same, and those of
// others are not.
func TestOrderedReads(t *testing.T) {
	memory := counting(16 << 10)
	for _, ordered := range []bool{true, false} {
		seen := 0
		var lock sync.Mutex // guards served
		var served []uint64
		h := newHost(t, memory, func(request, right []byte) [][]byte {
			if seen++; seen%3 == 1 {
				return nil // lost
			}
			r, err := DecodeReply(right)
			if err != nil {
				t.Error(err)
			}
			lock.Lock()
			defer lock.Unlock()
			served = append(served, r.Offset)
			return [][]byte{right}
		})
		r := Reader{dial(t, h, Options{Window: 4, Timeout: 20 * time.Millisecond, Attempts: 10})}
		into := make([]byte, len(memory))
		if err := r.ReadAll(t.Context(), []region.Read{{Into: into, Ordered: ordered}}); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(into, memory) {
			t.Error("other bytes were read")
		}
		lock.Lock()
		defer lock.Unlock()
		if slices.IsSorted(served) != ordered {
			t.Errorf("ordered %v: answered at %v", ordered, served)
		}
	}
}

// TestReaderWithoutAnswer: a host that says nothing is late for the deadline.
func TestReaderWithoutAnswer(t *testing.T) {
	silent, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	c, err := Dial(silent.LocalAddr().String(), NewKey(1), Options{Timeout: time.Millisecond, Attempts: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	err = Reader{c}.Read(t.Context(), region.ControlID, 0, make([]byte, 4096))
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, ErrNoAnswer) {
		t.Errorf("got %v", err)
	}
}
