package container

import (
	"testing"
	"time"
)

// TestLocateIsRespected: a container is looked at often while it starts, and then every Options.Locate.
func TestLocateIsRespected(t *testing.T) {
	f := func(o Options, want time.Duration) {
		t.Helper()
		r := &Registry{o: o.withDefaults()}
		m := &member{}
		begin := time.Unix(1000, 0)
		now := begin
		for range probeDelays[1:] {
			now = r.nextProbe(m, now)
		}
		if now.Sub(begin) >= 2*time.Second {
			t.Errorf("the looks at the start end after %v", now.Sub(begin))
		}
		for range 3 {
			next := r.nextProbe(m, now)
			if got := next.Sub(now.Truncate(time.Second)); got != want {
				t.Errorf("the next look is %v later, want %v", got, want)
			}
			now = next
		}
	}
	f(Options{}, 15*time.Second)
	f(Options{Locate: time.Minute}, time.Minute)
}
