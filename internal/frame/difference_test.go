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
			sample := model.ContainerSample{Container: &c, CPU: &model.CPUCounters{UsageNS: l.n, RunQueue: l.h.Clone()}}
			if random.IntN(2) == 0 { // a level that is not always known, of which there is an integral
				sample.Memory = &model.MemorySample{UsageBytes: l.n + 1}
			}
			s.Containers = append(s.Containers, sample)
		}
		alive = kept
		frames = append(frames, b.Build(s))
		bytes, durations = append(bytes, counted), append(durations, timed)
	}
	var memory Memory
	defer memory.Release()
	told := tell(t, &memory, frames)
	cpu, queue := Column(Containers, "cpu"), Histogram(Containers, "run_queue")
	for i := range 1500 {
		from := random.IntN(len(frames) - 1)
		to := from + 1 + random.IntN(len(frames)-from-1)
		d := Since(Containers, frames[from], frames[to])
		if i%3 > 0 {
			d = Since(Containers, told[from], told[to])
		}
		if i%3 > 1 {
			addUp(d, 1)
		}
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

// tell encodes frames, each told as changes of the newest key frame, and decodes them as those of windows.
func tell(t *testing.T, memory *Memory, frames []*Frame) (all []*Frame) {
	t.Helper()
	var key, keyTold *Frame
	for _, f := range frames {
		if f.IsKey() {
			key, keyTold = f, nil
		}
		one, err := DecodeInto(memory, Encode(nil, f, key), keyTold, nil)
		if err != nil {
			t.Fatal(err)
		}
		if f.IsKey() {
			keyTold = one
		}
		all = append(all, one)
	}
	return all
}

// TestWindowsAreAsDecoded: histograms that are added up out of what was told are those of decoded frames.
func TestWindowsAreAsDecoded(t *testing.T) {
	gained := 0
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 2))
		key := randomFrame(r, nil)
		frames := []*Frame{key, randomFrame(r, key), randomFrame(r, key)}
		var memory Memory
		read := tell(t, &memory, frames)
		for i := range frames {
			if d := difference(frames[i], read[i]); d != "" {
				t.Fatalf("seed %d, frame %d: %s", seed, i, d)
			}
		}
		for table := range Schema {
			for _, from := range []int{0, 1} {
				want, told := Since(TableID(table), frames[from], frames[2]), []*Difference{}
				for every := range 3 {
					told = append(told, Since(TableID(table), read[from], read[2]))
					addUp(told[every], every)
				}
				for column := range Schema[table].Histograms {
					for row := range want.After.IDs {
						var a Durations
						want.AddHistogram(&a, column, row)
						for _, d := range told {
							var b Durations
							d.AddHistogram(&b, column, row)
							if a.Count != b.Count || a.SumNS != b.SumNS || a.Zero != b.Zero || a.Overflow != b.Overflow || a.buckets != b.buckets {
								t.Fatalf("seed %d: row %d of %s: %d durations, want %d", seed, row, Schema[table].Name, b.Count, a.Count)
							}
							if d.Gained(column, row) != (b.Count > 0) {
								t.Fatalf("seed %d: row %d of %s gained %d durations, and Gained says the opposite", seed, row,
									Schema[table].Name, b.Count)
							}
						}
						gained += int(min(a.Count, 1))
					}
				}
			}
		}
		memory.Release()
	}
	if gained < 10000 {
		t.Errorf("%d rows gained something: too few to tell", gained)
	}
}

// addUp adds up the histograms of every row, every second row, and so on; 0 is none.
func addUp(d *Difference, every int) {
	var rows []int32
	for row := 0; every > 0 && row < len(d.After.IDs); row += every {
		rows = append(rows, int32(row))
	}
	for column := range d.After.Histograms {
		d.AddUp(column, rows)
	}
}

// TestTooFewBuckets: a frame that says that it has fewer buckets than it has is added up all the same.
func TestTooFewBuckets(t *testing.T) {
	key, f := sampleFrames(10, 100, 1)
	var memory Memory
	defer memory.Release()
	told := tell(t, &memory, []*Frame{key, f})
	latency := Histogram(Edges, "latency")
	says := &told[1].Tables[Edges].Histograms[latency].told[0].total
	for _, total := range []int{*says, 0} {
		*says = total
		want, got := Since(Edges, nil, f), Since(Edges, nil, told[1])
		addUp(got, 1)
		if total == 0 && len(got.gains[latency].words) <= 1+rowHead*len(want.After.IDs)+allBuckets {
			t.Fatal("there was room from the begin on: the test has too few buckets")
		}
		for row := range want.After.IDs {
			var a, b Durations
			want.AddHistogram(&a, latency, row)
			got.AddHistogram(&b, latency, row)
			if a.Count == 0 || a.Count != b.Count || a.buckets != b.buckets {
				t.Errorf("row %d, %d buckets: %d durations, want %d", row, total, b.Count, a.Count)
			}
		}
	}
}
