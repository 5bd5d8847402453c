package probe

import (
	"math/rand/v2"
	"testing"
	"time"

	"outsight/internal/model"
	"outsight/internal/stamp"
)

// TestTally: of packets that a plan loses, swaps and delays, it says in the end what the plan did, and no counter ever
// falls.
func TestTally(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	tally := newTally(stamp.KernelClock)
	begun := time.Unix(1_800_000_000, 0)
	tally.begin(begun)
	var sent, lost, lostThere, lostBack, last uint64
	arrived, answered := uint32(0), uint32(0)
	check := func() {
		s := tally.sample()
		if s.Sent < sent || s.Lost < lost || s.LostThere < lostThere || s.LostBack < lostBack ||
			s.LostThere+s.LostBack > s.Lost || s.Sent != s.Received+s.Lost {
			t.Fatalf("got %+v after %d %d %d %d", s, sent, lost, lostThere, lostBack)
		}
		sent, lost, lostThere, lostBack = s.Sent, s.Lost, s.LostThere, s.LostBack
	}
	// What is lost is told ten packets later.
	type pending struct {
		due    int
		sample stamp.Sample
	}
	var waiting []pending
	const packets = 5000
	wantThere, wantBack := uint64(0), uint64(0)
	for n := range packets {
		s := stamp.Sample{Number: uint32(n), Sent: begun.Add(time.Duration(n) * 100 * time.Millisecond)}
		there, back := rnd.IntN(50) == 0, rnd.IntN(20) == 0
		if n == packets-1 {
			there, back = false, false
		}
		if !there {
			arrived++
			s.ReflectorNumber, s.Counters = arrived-1, &stamp.Counters{ReflectorReceived: arrived}
		}
		switch {
		case there || back:
			if there {
				wantThere++
			} else {
				wantBack++
			}
			waiting = append(waiting, pending{n + 10, stamp.Sample{Number: uint32(n), Sent: s.Sent, Lost: true}})
		default:
			answered++
			trip := time.Duration(1+n%3) * time.Millisecond
			s.ReflectorReceived = s.Sent.Add(time.Hour) // another clock
			s.ReflectorSent = s.ReflectorReceived.Add(time.Second)
			s.Received = s.Sent.Add(trip + time.Second)
			s.KernelSent, s.KernelReceived = true, true
			tally.add(&s)
			last++
		}
		for len(waiting) > 0 && (waiting[0].due <= n || n == packets-1) {
			tally.add(&waiting[0].sample)
			waiting = waiting[1:]
		}
		check()
	}
	s := tally.sample()
	if s.Sent != packets || s.Lost != wantThere+wantBack || s.LostThere != wantThere || s.LostBack != wantBack {
		t.Errorf("got %d sent, %d lost, %d there, %d back, want %d, %d, %d, %d", s.Sent, s.Lost, s.LostThere, s.LostBack,
			packets, wantThere+wantBack, wantThere, wantBack)
	}
	if s.RoundTrip.Count != last || s.Variation.Count != last-1 || s.There != nil || s.ReorderedThere+s.ReorderedBack > 0 {
		t.Errorf("%d round trips, %d variations, %d reordered, one-way %v; %d answers", s.RoundTrip.Count, s.Variation.Count,
			s.ReorderedThere+s.ReorderedBack, s.There, last)
	}
	if q := s.RoundTrip.Quantile(0.5); q < 1.95e-3 || q > 2.05e-3 {
		t.Errorf("the median is %v s, want 2 ms", q)
	}
	// A sender that begins anew goes on with the counts.
	tally.begin(begun)
	answer := func(number, received uint32, after time.Duration) {
		at := begun.Add(after)
		tally.add(&stamp.Sample{Number: number, ReflectorNumber: received - 1, Sent: at, Received: at.Add(time.Millisecond),
			ReflectorReceived: at, ReflectorSent: at, Counters: &stamp.Counters{ReflectorReceived: received}})
		check()
	}
	lose := func(number uint32, after time.Duration) {
		tally.add(&stamp.Sample{Number: number, Sent: begun.Add(after), Lost: true})
		check()
	}
	answer(0, 1, 0)
	lose(1, 0)
	answer(2, 2, 200*time.Millisecond)
	want := model.ProbeSession{Sent: packets + 3, Lost: wantThere + wantBack + 1, LostThere: wantThere + 1, LostBack: wantBack}
	same := func(what string) {
		t.Helper()
		got := tally.sample()
		if got.Sent != want.Sent || got.Lost != want.Lost || got.LostThere != want.LostThere || got.LostBack != want.LostBack ||
			got.ReorderedThere != want.ReorderedThere || got.ReorderedBack != want.ReorderedBack {
			t.Errorf("%s: got %+v, want %+v", what, got, want)
		}
	}
	same("the second sender")

	// A reflector that begins anew, and so counts from 0, has reordered nothing; what is lost meanwhile may be so anywhere.
	answer(3, 3, 300*time.Millisecond)
	answer(6, 1, 600*time.Millisecond)
	answer(7, 2, 700*time.Millisecond)
	lose(4, 400*time.Millisecond)
	lose(5, 500*time.Millisecond)
	lose(8, 800*time.Millisecond) // there
	lose(9, 900*time.Millisecond) // back
	answer(10, 4, time.Second)
	want.Sent, want.Lost, want.LostThere, want.LostBack = want.Sent+8, want.Lost+4, want.LostThere+1, want.LostBack+1
	same("a reflector that began anew")
	// Its clock may have been set back meanwhile.
	answer(11, 1, -time.Hour)
	answer(12, 2, -time.Hour+100*time.Millisecond)
	want.Sent += 2
	same("a reflector that began anew with another clock")
	answer(14, 4, -time.Hour+300*time.Millisecond)
	answer(13, 3, -time.Hour+200*time.Millisecond)
	want.Sent, want.ReorderedBack = want.Sent+2, want.ReorderedBack+1
	same("an answer that came late")

	// While a session begins the other end may not be there yet. What is lost after its first answer is lost, and so is what
	// is not answered for longer.
	tally.begin(begun)
	lose(0, 0)
	answer(2, 1, 200*time.Millisecond)
	lose(1, 100*time.Millisecond)
	lose(3, 300*time.Millisecond)
	answer(4, 2, 400*time.Millisecond)
	want.Sent, want.Lost, want.LostThere = want.Sent+3, want.Lost+1, want.LostThere+1
	same("a reflector that was there later")
	tally.begin(begun)
	for n := range uint32(30) {
		lose(n, time.Duration(n)*100*time.Millisecond)
	}
	want.Sent, want.Lost = want.Sent+10, want.Lost+10
	if same("a reflector that is not there"); !tally.isLost() {
		t.Error("it is not told that nobody answers")
	}
}

// TestReordered: each packet that comes after what was sent later counts once, in its direction.
func TestReordered(t *testing.T) {
	f := func(there, back uint64, numbers ...[2]uint32) {
		t.Helper()
		tally := newTally(stamp.KernelClock)
		at := time.Unix(1_800_000_000, 0)
		for _, n := range numbers {
			tally.add(&stamp.Sample{Number: n[0], ReflectorNumber: n[1], Sent: at, Received: at, ReflectorSent: at,
				ReflectorReceived: at})
		}
		if s := tally.sample(); s.ReorderedThere != there || s.ReorderedBack != back {
			t.Errorf("%v: got %d there and %d back, want %d and %d", numbers, s.ReorderedThere, s.ReorderedBack, there, back)
		}
	}
	f(0, 0, [2]uint32{0, 0}, [2]uint32{1, 1}, [2]uint32{2, 2})
	f(1, 0, [2]uint32{0, 0}, [2]uint32{2, 1}, [2]uint32{1, 2}, [2]uint32{3, 3})
	f(0, 1, [2]uint32{0, 0}, [2]uint32{2, 2}, [2]uint32{1, 1}, [2]uint32{3, 3})
}

// TestClockThatJumps: a packet during which a clock was set is no round trip.
func TestClockThatJumps(t *testing.T) {
	tally := newTally(stamp.KernelClock)
	at := time.Unix(1_800_000_000, 0)
	for n, trip := range []time.Duration{time.Millisecond, -time.Hour, time.Hour, time.Millisecond} {
		tally.add(&stamp.Sample{Number: uint32(n), ReflectorNumber: uint32(n), Sent: at, Received: at.Add(trip),
			ReflectorReceived: at, ReflectorSent: at})
	}
	if s := tally.sample(); s.RoundTrip.Count != 2 || s.Variation != nil || s.Received != 4 {
		t.Errorf("%d round trips, variations %v, %d received", s.RoundTrip.Count, s.Variation, s.Received)
	}
}
