package pull

import (
	"slices"
	"testing"
	"time"
)

// TestHandingOn: who has been late for a while is left out, as long as another one may be able to read the host.
func TestHandingOn(t *testing.T) {
	members := []string{"a", "b", "c"}
	now := time.Unix(1000, 0)
	h := handing{interval: time.Second}
	able := func(want ...string) {
		t.Helper()
		if got := h.able(members, now); !slices.Equal(got, want) {
			t.Errorf("able are %v, want %v", got, want)
		}
	}
	fail := func(member string, want bool) {
		t.Helper()
		if got := h.fail(member, now, now.Add(time.Second)); got != want {
			t.Errorf("the others are told: %v, want %v", got, want)
		}
		now = now.Add(time.Second)
	}
	fail("a", false)
	fail("a", false)
	able("a", "b", "c")
	fail("a", true)
	able("b", "c")
	if h.tried = now; h.isDue("a", now.Add(tryEvery-1)) || !h.isDue("a", now.Add(tryEvery)) || h.isDue("b", now.Add(tryEvery)) {
		t.Errorf("it is to be tried again each %v by who handed it on, and by nobody else", tryEvery)
	}
	h.note("b", now)
	able("c")
	h.note("c", now)
	able("a", "b", "c") // somebody has to try
	if !h.succeed("b") || h.succeed("b") {
		t.Error("who can read again is told once")
	}
	able("b")
	now = now.Add(cannotTries * tryEvery)
	able("a", "b", "c") // nobody has said so again
	// Quick failures do not hand on what is late for a moment.
	h = handing{interval: 10 * time.Millisecond}
	for range 2 * handOnReadings {
		if h.fail("a", now, now) {
			t.Error("handed on at once")
		}
	}
	if !h.fail("a", now, now.Add(handOnAfter)) {
		t.Error("not handed on")
	}
	// Seldom readings: what was said holds until the next ones.
	h = handing{interval: time.Minute}
	h.note("a", now)
	now = now.Add(2 * time.Minute)
	able("b", "c")
}
