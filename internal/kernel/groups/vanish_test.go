package groups

import (
	"fmt"
	"slices"
	"testing"

	"github.com/cilium/ebpf"

	"outsight/internal/kernel/kerneltest"
	"outsight/internal/model"
)

// watchedStates are the addresses in a slot.
func watchedStates(t *testing.T, p *Groups, slot uint32) [model.FigureControllers]uint64 {
	t.Helper()
	info, err := p.watch.Info()
	if err != nil {
		t.Fatal(err)
	}
	ids, _ := info.MapIDs()
	for _, id := range ids {
		m, err := ebpf.NewMapFromID(id)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		if about, err := m.Info(); err != nil || about.Name != groupsMapWatchedGroups {
			continue
		}
		var watched groupsWatchedGroup
		if err := m.Lookup(slot, &watched); err != nil {
			t.Fatal(err)
		}
		return watched.States
	}
	t.Fatal("the program has no table of groups")
	return [model.FigureControllers]uint64{}
}

// The memory of a removed group's states becomes that of other groups. Their figures are not the removed one's.
func TestReusedAddressIsNobodysFigure(t *testing.T) {
	p := open(t)
	group, directories := newGroup(t, "gone")
	pid, stop := group.Start(t, "idle")
	gone := watch(t, p, pid, idsOf(t, directories))
	if f, ok := figures(t, p, gone); !ok || f.Threads == 0 {
		t.Fatalf("%v %+v", ok, f)
	}
	states := watchedStates(t, p, gone)
	stop()
	group.Remove(t)
	kerneltest.Eventually(t, "the removed group has no figures", func() bool {
		_, ok := figures(t, p, gone)
		return !ok
	})
	reused := false
	for i := 0; i < 400 && !reused; i++ {
		group, directories := newGroup(t, fmt.Sprint("next", i))
		pid, stop := group.Start(t, "idle")
		slot := watch(t, p, pid, idsOf(t, directories))
		for controller, state := range watchedStates(t, p, slot) {
			reused = reused || state == states[controller]
		}
		if f, ok := figures(t, p, gone); ok {
			t.Errorf("a removed group has figures: %+v", f)
		}
		if f, ok := figures(t, p, slot); !ok || f.Threads == 0 {
			t.Errorf("%v %+v", ok, f)
		}
		stop()
		group.Remove(t)
		if err := p.UnwatchGroup(slot); err != nil {
			t.Fatal(err)
		}
	}
	if !reused {
		t.Error("no address was used again: nothing was tested")
	}
	if err := p.UnwatchGroup(gone); err != nil {
		t.Fatal(err)
	}
}

// A process that is in none of the groups finds none, and a slot that is freed is given again.
func TestSlotsAreGivenAgain(t *testing.T) {
	needTasks(t)
	p := New(Options{Max: 2})
	kerneltest.Open(t, p)
	group, directories := newGroup(t, "slots")
	pid, stop := group.Start(t, "idle")
	defer stop()
	ids := idsOf(t, directories)
	for _, other := range []int{1, 1 << 22} {
		if _, found, err := p.WatchGroup(other, ids); found || err != nil {
			t.Errorf("process %d: found %v: %v", other, found, err)
		}
	}
	slots := []uint32{watch(t, p, pid, ids), watch(t, p, pid, ids)}
	if _, _, err := p.WatchGroup(pid, ids); err != ErrFull {
		t.Errorf("the third of two: %v", err)
	}
	if d := p.Drops()[0]; d.Count != 1 || d.Used != 2 {
		t.Errorf("%+v", d)
	}
	if err := p.UnwatchGroup(slots[0]); err != nil {
		t.Fatal(err)
	}
	if err := p.ReadGroups(); err != nil {
		t.Fatal(err)
	}
	var f model.GroupFigures
	if p.Figures(slots[0], &f) || !p.Figures(slots[1], &f) || f.Threads == 0 {
		t.Errorf("after the first was freed: %+v", f)
	}
	if again := watch(t, p, pid, ids); !slices.Equal([]uint32{again}, slots[:1]) {
		t.Errorf("slot %d is given, want %d", again, slots[0])
	}
}
