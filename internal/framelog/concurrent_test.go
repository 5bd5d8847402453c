package framelog

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestReadersAndWriters appends, thins and asks at once: what is acknowledged is in the next answer, exactly.
func TestReadersAndWriters(t *testing.T) {
	fleet := newFleet(8 * time.Minute)
	var now atomic.Int64
	now.Store(start.UnixNano())
	o := Options{Now: func() time.Time { return time.Unix(0, now.Load()) }, TidyEvery: time.Millisecond,
		SegmentBytes: 60_000, Fine: 2 * time.Minute, Middle: 4 * time.Minute, MaxAge: time.Hour}
	log := open(t, t.TempDir(), o)
	counted := map[string]map[[2]uint64]uint64{}
	for host, all := range fleet.truth {
		counted[host] = map[[2]uint64]uint64{}
		for _, one := range all {
			counted[host][[2]uint64{one.epoch, one.number}] = one.counted
		}
	}
	done := make(chan struct{})
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for stopped := false; !stopped; {
				select {
				case <-done:
					stopped = true
				default:
				}
				to := time.Unix(0, max(now.Load(), start.Add(time.Minute).UnixNano()))
				for w, err := range log.Windows(context.Background(), Query{Tenant: "t",
					Times: []time.Time{start, to.Add(-time.Minute), to}}) {
					if err != nil {
						t.Error(err)
						return
					}
					for _, h := range w.Hosts {
						for _, s := range h.Spans {
							want := counted[h.Host][[2]uint64{s.After.Epoch, s.After.Number}]
							if s.Before != nil {
								want -= counted[h.Host][[2]uint64{s.Before.Epoch, s.Before.Number}]
							}
							if got := total(s.After) - total(s.Before); got != want {
								t.Errorf("%s gained %d, want %d", h.Host, got, want)
								return
							}
							if h.Host == "host-0" && s.After.Time.Before(w.To.Add(-time.Minute)) && len(h.Spans) == 1 {
								t.Errorf("at %v the newest frame is of %v", w.To, s.After.Time)
								return
							}
						}
					}
				}
				log.Stats()
			}
		})
	}
	for i := 0; i < len(fleet.frames); i += 10 {
		batch := fleet.frames[i:min(i+10, len(fleet.frames))]
		mustAppend(t, log, batch...)
		now.Store(max(now.Load(), batch[len(batch)-1].Time.UnixNano()))
	}
	close(done)
	readers.Wait()
	if s := log.Stats(); s.Frames+int(s.Thinned) != len(fleet.frames) || s.Damaged > 0 || s.Thinned == 0 {
		t.Errorf("stats: %+v", s)
	}
}
