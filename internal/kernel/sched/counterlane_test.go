package sched

import "testing"

func TestExtrapolation(t *testing.T) {
	weights := threadWeights(1.1)
	if weights != [counterEvents]uint64{1000, 550, 400, 325} {
		t.Errorf("weights %v, want a thousand for one thread, 1100, 1200 and 1300 shared by more", weights)
	}
	var s laneSum
	update := func(what string, now countersCounterLane, counts [4]uint64, work, lost uint64) {
		t.Helper()
		s.update(&now, &weights)
		if s.counts != counts || s.work != work || s.lost != lost {
			t.Errorf("%s: counts %v, work %d, %d lost; want %v, %d, %d", what, s.counts, s.work, s.lost, counts, work, lost)
		}
		var shared uint64
		for _, n := range s.shared {
			shared += n
		}
		if shared != s.counts[0] {
			t.Errorf("%s: parts %v are %d, want %d", what, s.shared, shared, s.counts[0])
		}
	}
	update("always counted", countersCounterLane{Values: [4]uint64{1000, 2000, 30, 4}, EnabledNs: 100, RunningNs: 100,
		With: [4]uint64{1000}},
		[4]uint64{1000, 2000, 30, 4}, 1000, 0)
	update("half of the time", countersCounterLane{Values: [4]uint64{1500, 2500, 40, 5}, EnabledNs: 200, RunningNs: 150,
		With: [4]uint64{1000, 500}},
		[4]uint64{2000, 3000, 50, 6}, 1550, 0)
	update("not at all", countersCounterLane{Values: [4]uint64{1500, 2500, 40, 5}, EnabledNs: 300, RunningNs: 150,
		With: [4]uint64{1000, 500}},
		[4]uint64{2000, 3000, 50, 6}, 1550, 0)
	// What was missed is made up for: 50 ns stand for 150.
	update("again", countersCounterLane{Values: [4]uint64{1600, 2600, 50, 6}, EnabledNs: 350, RunningNs: 200,
		With: [4]uint64{1000, 500, 0, 100}},
		[4]uint64{2300, 3300, 80, 9}, 1647, 0)
	// A thousandth of the time says nothing about the rest.
	update("hardly", countersCounterLane{Values: [4]uint64{1700, 2700, 60, 7}, EnabledNs: 2350, RunningNs: 202,
		With: [4]uint64{1100, 500, 0, 100}},
		[4]uint64{2400, 3400, 90, 10}, 1747, 1)
	if got := extrapolate(1<<63, 1<<40, 1<<39); got != 1<<63 {
		t.Errorf("over 64 bits: %d, want the count itself", got)
	}
}
