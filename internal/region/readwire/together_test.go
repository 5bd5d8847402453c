package readwire

import (
	"bytes"
	"sync/atomic"
	"testing"
	"time"
)

// A host that does not answer what comes together (an older one, at some hooks) is asked again by single packets, and
// from then on by no others.
func TestHostsThatAnswerSingleRequestsAlone(t *testing.T) {
	memory := counting(16 << 10)
	seen := map[byte]bool{}
	h := newHost(t, memory, func(request, right []byte) [][]byte {
		if at := request[17]; !seen[at] { // the offset's second byte, of which there are 16 by 4
			seen[at] = true
			return nil
		}
		return [][]byte{right}
	})
	c := dial(t, h, Options{Window: 16, Timeout: 50 * time.Millisecond})
	for round := range 2 {
		got := make([]byte, len(memory))
		if err := c.Read(t.Context(), 0, 0, got); err != nil || !bytes.Equal(got, memory) {
			t.Fatalf("round %d: %v, or it is not the memory", round, err)
		}
		if n := c.Counters(); n.Batches != 1 || n.Unanswered != 1 || n.Resent != 16 {
			t.Errorf("round %d: it counted %+v, want one batch that was not answered", round, n)
		}
	}
}

// Where batches were answered, one that is lost is a loss as any other; three in a row are not.
func TestLostBatches(t *testing.T) {
	memory := counting(16 << 10)
	var lose atomic.Int64 // of the next requests
	h := newHost(t, memory, func(request, right []byte) [][]byte {
		if lose.Add(-1) >= 0 {
			return nil
		}
		return [][]byte{right}
	})
	c := dial(t, h, Options{Window: 16, Timeout: 50 * time.Millisecond})
	f := func(lost int64, batches, unanswered uint64) {
		t.Helper()
		lose.Store(lost)
		got := make([]byte, len(memory))
		if err := c.Read(t.Context(), 0, 0, got); err != nil || !bytes.Equal(got, memory) {
			t.Fatalf("%v, or it is not the memory", err)
		}
		if n := c.Counters(); n.Batches != batches || n.Unanswered != unanswered || n.Lost != 0 {
			t.Errorf("%d lost: it counted %+v, want %d batches and %d unanswered", lost, n, batches, unanswered)
		}
	}
	f(0, 1, 0)
	f(16, 2, 1)
	f(16, 3, 2)
	f(15, 4, 2) // one was answered
	f(16, 5, 3)
	f(16, 6, 4)
	f(16, 7, 5)
	f(0, 7, 5) // by single packets
}

// What is sent alone is never a batch.
func TestAlone(t *testing.T) {
	memory := counting(16 << 10)
	h := newHost(t, memory, func(_, right []byte) [][]byte { return [][]byte{right} })
	c := dial(t, h, Options{Alone: true, Timeout: time.Minute}) // nothing is sent again where the machine is slow
	got := make([]byte, len(memory))
	if err := c.Read(t.Context(), 0, 0, got); err != nil || !bytes.Equal(got, memory) {
		t.Fatalf("%v, or it is not the memory", err)
	}
	if n := c.Counters(); n.Batches != 0 || n.Sent != 16 {
		t.Errorf("it counted %+v", n)
	}
}
