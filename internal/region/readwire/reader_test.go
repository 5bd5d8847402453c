package readwire

import (
	"context"
	"errors"
	"net"
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
