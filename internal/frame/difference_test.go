package frame

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"outsight/internal/model"
)

// TestDifferencesAreWhatWasCounted: of any two frames of a history in which rows come and go, the gains of all rows are
// what was counted in between.
func TestDifferencesAreWhatWasCounted(t *testing.T) {
	start := time.Unix(1_800_000_000, 0)
	random := rand.New(rand.NewPCG(1, 2))
	b := NewBuilder(start)
	type live struct {
		c *model.Container
		n uint64
		h *model.Histogram
	}
	var alive []*live
	var frames []*Frame
	var bytes, durations []uint64
	counted, timed := uint64(0), uint64(0)
	for minute := range 300 {
		now := start.Add(time.Duration(minute) * 20 * time.Second)
		for range random.IntN(4) {
			alive = append(alive, &live{c: &model.Container{ID: strconv.Itoa(minute) + "/" + strconv.Itoa(len(alive)),
				Name: "job-" + strconv.Itoa(random.IntN(5))}, h: &model.Histogram{}})
		}
		s := &model.Snapshot{Time: now, Host: model.Host{Name: "h"}}
		kept := alive[:0]
		for _, l := range alive {
			n := uint64(random.IntN(1000))
			l.n, counted, timed = l.n+n, counted+n, timed+1
			l.h.Merge(&model.Histogram{Count: 1, SumNS: 7, Offset: int32(random.IntN(40)), Buckets: []uint64{1}})
			c := *l.c
			if random.IntN(12) == 0 {
				c.Ended = now
			} else {
				kept = append(kept, l)
			}
			s.Containers = append(s.Containers, model.ContainerSample{Container: &c,
				CPU: &model.CPUCounters{UsageNS: l.n, RunQueue: l.h.Clone()}})
		}
		alive = kept
		frames = append(frames, b.Build(s))
		bytes, durations = append(bytes, counted), append(durations, timed)
	}
	cpu, queue := Column(Containers, "cpu"), Histogram(Containers, "run_queue")
	for range 500 {
		from := random.IntN(len(frames) - 1)
		to := from + 1 + random.IntN(len(frames)-from-1)
		d := Since(Containers, frames[from], frames[to])
		gained, of := uint64(0), Durations{}
		for row := range d.After.IDs {
			n, _ := d.Gain(cpu, row)
			before := of.Count
			d.AddHistogram(&of, queue, row)
			if gained += n; d.Gained(queue, row) != (of.Count > before) {
				t.Fatalf("row %d gained %d durations, and Gained says the opposite", row, of.Count-before)
			}
		}
		if want := bytes[to] - bytes[from]; gained != want {
			t.Fatalf("from %d to %d the rows gained %d, want %d", from, to, gained, want)
		}
		if want := durations[to] - durations[from]; of.Count != want || of.SumNS != 7*want {
			t.Fatalf("from %d to %d the rows gained %d durations of %d ns, want %d", from, to, of.Count, of.SumNS, want)
		}
	}
}
