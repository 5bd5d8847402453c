package container

import (
	"errors"
	"testing"
	"time"
)

// TestLocateIsRespected: a container is looked at often while it starts, and then every Options.Locate, or rarely
// where a runtime tells.
func TestLocateIsRespected(t *testing.T) {
	f := func(o Options, dockerError error, inspected bool, want time.Duration) {
		t.Helper()
		r := &Registry{o: o.withDefaults(), docker: &docker{err: dockerError}}
		m := &member{inspected: inspected}
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
	away := errors.New("away")
	f(Options{}, away, false, 15*time.Second)
	f(Options{Locate: 2 * time.Minute}, away, false, 2*time.Minute)
	// Docker tells when a network of its containers changes.
	f(Options{}, nil, true, time.Minute)
	f(Options{Locate: 2 * time.Minute}, nil, true, 2*time.Minute)
	f(Options{}, nil, false, 15*time.Second)
	f(Options{}, away, true, 15*time.Second)
}
