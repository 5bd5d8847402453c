package predict

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// What runs longer than the quota of 20 ms in 100 goes on in the next period; a CPU without work keeps a millisecond of its slice,
// and what ran over its slice is owed.
func TestBandwidth(t *testing.T) {
	f := func(name string, cpus int, comes []float64, work float64, want ...float64) {
		t.Helper()
		b := bandwidth{cores: 0.2, cpus: make([]bandwidthCPU, cpus)}
		for i, end := range b.ends(comes, work, 1) {
			if math.Abs(end-want[i]) > 1e-6 {
				t.Errorf("%s: request %d ends at %v, want %v", name, i, end, want[i])
			}
		}
	}
	f("less than the quota", 1, []float64{0}, 0.15, 0.15)
	f("all of the quota, and half as much", 1, []float64{0}, 0.3, 1.1)
	f("two periods and a half", 1, []float64{0}, 0.5, 2.1)
	f("one after the other", 1, []float64{0, 0.01}, 0.1, 0.1, 0.2)
	// Each gets a slice of 5 ms. At 8 the first gets one more, and what it owes; the second is left 2 of the 3 that it owes. The
	// first gives 4 back at its end, which is too late.
	f("on two CPUs", 2, []float64{0, 0}, 0.1, 0.1, 1.02)
	// The third slice of 5 ms ends at 15, is looked at at 16, and so on: 20 are used up at 20.
	f("held in the middle", 1, []float64{0, 0}, 0.15, 0.15, 1.1)
	// One of 1 ms leaves 1 ms on its CPU: in the next period there are 21, of which the last is looked at at 124 ms.
	f("what is kept", 1, []float64{0, 1}, 0.01, 0.01, 1.01)
}

// No more than the quota runs in the long run, but for what CPUs have and owe.
func TestBandwidthIsKept(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		cores, cpus := 0.1+2*r.Float64(), 1+r.IntN(4)
		work := cores / (1 + 20*r.Float64())
		b := bandwidth{cores: cores, cpus: make([]bandwidthCPU, cpus)}
		comes := make([]float64, 2000)
		for i := range comes {
			comes[i] = float64(i) * work / cores / 2 // twice as much as there is
		}
		ends := b.ends(comes, work, 1)
		last := 0.0
		for i, end := range ends {
			if end < comes[i]+work-1e-6 {
				t.Fatalf("request %d comes at %v, takes %v and ends at %v", i, comes[i], work, end)
			}
			last = max(last, end)
		}
		used, most := work*float64(len(comes)), cores*math.Ceil(last)+float64(cpus)*(bandwidthSlice+bandwidthTick)
		if parallel := float64(cpus) * last; used > min(most, parallel)+1e-6 {
			t.Errorf("%v cores, %d CPUs: %v periods of CPU time in %v periods", cores, cpus, used, last)
		}
		if least := min(cores, float64(cpus)) * (math.Floor(last) - 1) * 0.9; used < least {
			t.Errorf("%v cores, %d CPUs: %v periods of CPU time in %v periods, want %v", cores, cpus, used, last, least)
		}
	}
}

// BenchmarkHeldByQuota is of one load that is simulated.
func BenchmarkHeldByQuota(b *testing.B) {
	c := heldCase{holder{size: 3 * quotaSteps, cpus: 2, cores: -2 * coresSteps, idle: idleSteps / 4}, heldLoads * 3 / 4}
	for b.Loop() {
		c.simulate()
	}
}

// stepped is what bandwidth.ends is, in whole quarters of a millisecond and one after the other: 400 are a period, 20 a slice, of
// which 4 are kept, and 16 a tick.
func stepped(comes []int, work, alone, quota, cpus int) (ends []int) {
	const period, slice, kept, tick = 400, 20, 4, 16
	type cpu struct {
		request, work, local int
		held                 bool
	}
	all := make([]cpu, cpus)
	for i := range all {
		all[i].request = -1
	}
	ends = make([]int, len(comes))
	left, next, done := quota, 0, 0
	var queue []int
	give := func(c *cpu) {
		if c.local <= 0 {
			got := min(left, slice-c.local)
			left, c.local = left-got, c.local+got
		}
		c.held = c.local <= 0
	}
	for now := 0; done < len(comes); now++ {
		if now%period == 0 {
			left = quota
			for i := range all {
				if all[i].held {
					give(&all[i])
				}
			}
		}
		for i := range all {
			c := &all[i]
			if c.request < 0 || c.held {
				continue
			}
			if c.work > 0 {
				if c.local <= 0 && now%tick == 0 {
					give(c)
				}
				continue
			}
			ends[c.request], done = now, done+1
			if len(queue) > 0 {
				c.request, c.work, queue = queue[0], work, queue[1:]
				give(c)
				continue
			}
			c.request = -1
			if c.local > kept {
				left, c.local = left+c.local-kept, kept
			}
		}
		for ; next < len(comes) && comes[next] == now; next++ {
			i := slices.IndexFunc(all, func(c cpu) bool { return c.request < 0 })
			if i < 0 {
				queue = append(queue, next)
				continue
			}
			all[i].request, all[i].work = next, alone
			give(&all[i])
		}
		for i := range all {
			if all[i].request >= 0 && !all[i].held {
				all[i].work, all[i].local = all[i].work-1, all[i].local-1
			}
		}
	}
	return ends
}

// TestBandwidthInSteps: whatever comes, whatever the quota and how many the CPUs, each request is done when it is if time is gone
// through in small steps.
func TestBandwidthInSteps(t *testing.T) {
	const period = 400
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 31))
		cpus, work := 1+r.IntN(4), 1+r.IntN(120)
		quota, alone := 10+r.IntN(cpus*period), work+r.IntN(work+1)
		mean := float64(work) * period / float64(quota) / (0.3 + 0.8*r.Float64()) // time between requests
		comes, times, at := make([]int, 200), make([]float64, 200), 0.0
		for i := range comes {
			at += mean * r.ExpFloat64()
			comes[i] = int(at)
			times[i] = float64(comes[i]) / period
		}
		b := bandwidth{cores: float64(quota) / period, cpus: make([]bandwidthCPU, cpus)}
		ends := b.ends(times, float64(work)/period, float64(alone)/float64(work))
		for i, want := range stepped(comes, work, alone, quota, cpus) {
			if got := ends[i] * period; math.Abs(got-float64(want)) > 1e-3 {
				t.Fatalf("seed %d: %d CPUs, quota %d, work %d, alone %d: request %d at %d is done at %.3f, want %d", seed, cpus, quota,
					work, alone, i, comes[i], got, want)
			}
		}
	}
}
