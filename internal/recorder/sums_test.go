package recorder

import (
	"math/rand/v2"
	"testing"

	"outsight/internal/model"
)

// TestSumsOfWhatChanged: sums are those that are made of all groups anew at each tick, whichever groups count, stand
// still, come, go, or get another owner.
func TestSumsOfWhatChanged(t *testing.T) {
	const groups, ticks = 12, 3000
	random := rand.New(rand.NewPCG(1, 2))
	s := newScript()
	for i := range 4 {
		s.add(&model.Container{ID: string(rune('a' + i)), Name: "c", Cgroup: model.CgroupID(10 + i)})
	}
	some, all := newSums(s, nil, s.Ignore, now()), newSums(s, nil, s.Ignore, now())
	var values [groups]model.TickSample
	left, changed := 0, 0
	for n := range ticks {
		if random.IntN(10) == 0 {
			if random.IntN(2) == 0 {
				s.owners[model.CgroupID(10+random.IntN(groups))] = s.running[random.IntN(len(s.running))]
			}
			some.refresh()
			all.refresh()
		}
		var tick model.Tick
		for i := range values {
			g := &values[i]
			switch random.IntN(12) {
			case 0:
				*g = sample(model.CgroupID(10+i), g.CPUNS+uint64(random.IntN(5)))
			case 1:
				*g = model.TickSample{} // is gone, and counts anew
			case 2:
				g.Serving, g.HasMemory, g.MemoryBytes = uint32(random.IntN(3)), true, uint64(random.IntN(3))
			}
			if g.Group != 0 {
				tick.Samples = append(tick.Samples, *g)
			}
		}
		before := map[string]model.TickSample{}
		for _, x := range some.list {
			before[x.container.ID] = x.sum
		}
		for _, x := range all.list {
			x.stale = true
		}
		some.add(&tick)
		all.add(&tick)
		for i, x := range some.list {
			y := all.list[i]
			if x.container != y.container || x.sum != y.sum {
				t.Fatalf("tick %d, %s:\n%+v, want\n%+v", n, x.container.ID, x.sum, y.sum)
			}
			if x.changed {
				changed++
				continue
			}
			left++
			if x.sum != before[x.container.ID] {
				t.Fatalf("tick %d, %s: it has changed without notice", n, x.container.ID)
			}
		}
	}
	if left < ticks/10 || changed < ticks/10 {
		t.Errorf("%d sums were left as they were, %d made anew: the test shows nothing", left, changed)
	}
}
