package agent

import (
	"fmt"
	"testing"

	"outsight/internal/model"
)

// stage is a host whose groups' owners a test says: the group's number is the container's ID.
type stage struct {
	*contention
	containers []*model.Container
}

func newStage(containers int) *stage {
	s := &stage{contention: newContention()}
	for i := range containers {
		s.containers = append(s.containers, &model.Container{ID: fmt.Sprint(i + 1), Name: fmt.Sprint("name", i+1)})
	}
	return s
}

// read takes in a reading; group 10*n+k is one of container n.
func (s *stage) read(read model.KernelContention) {
	s.update(&read, func(id model.CgroupID) string { return fmt.Sprint(id / 10) }, s.containers)
}

func pair(of, by model.CgroupID, waitNS, preemptions uint64) model.CgroupPair {
	return model.CgroupPair{Victim: of, Culprit: by, WaitNS: waitNS, Preemptions: preemptions}
}

func rest(id model.CgroupID, otherNS uint64) model.CgroupContention {
	return model.CgroupContention{ID: id, ContentionRest: model.ContentionRest{OtherNS: otherNS}}
}

func TestContentionOfContainers(t *testing.T) {
	s := newStage(3)
	s.read(model.KernelContention{Groups: []model.CgroupContention{rest(10, 5)},
		Pairs: []model.CgroupPair{pair(10, 20, 2e6, 3), pair(11, 21, 1e6, 1), pair(10, 11, 500, 2), pair(10, 30, 4e5, 9)}})
	want := model.Contention{ContentionRest: model.ContentionRest{OtherNS: 5 + 4e5, OtherPreemptions: 9, OwnNS: 500,
		OwnPreemptions: 2},
		By: []model.Contender{{ID: "2", Name: "name2", WaitNS: 3e6, Preemptions: 4}}}
	check := func() {
		t.Helper()
		if got := s.of("1"); fmt.Sprint(*got) != fmt.Sprint(want) {
			t.Errorf("got %+v, want %+v", *got, want)
		}
	}
	check()
	// Only what was gained counts. A pair that is small stays among the others; one that is distinguished stays so however
	// little it gains. A pair that the kernel counts anew starts from 0.
	s.read(model.KernelContention{Groups: []model.CgroupContention{rest(10, 7)},
		Pairs: []model.CgroupPair{pair(10, 20, 2e6+1, 3), pair(11, 21, 10, 1), pair(10, 11, 500, 2), pair(10, 30, 5e5, 9)}})
	want.OtherNS += 2 + 1e5
	want.By[0].WaitNS += 11
	want.By[0].Preemptions++
	check()
	// Its culprit is gone: the last that it did counts, and then it is told no more.
	s.containers = []*model.Container{s.containers[0], s.containers[2]}
	s.read(model.KernelContention{Groups: []model.CgroupContention{rest(10, 7)},
		Pairs: []model.CgroupPair{pair(10, 20, 3e6, 3), pair(10, 30, 5e5, 9)}})
	want.By[0].WaitNS += 1e6 - 1
	check()
	s.read(model.KernelContention{Groups: []model.CgroupContention{rest(10, 7)},
		Pairs: []model.CgroupPair{pair(10, 30, 5e6, 9)}})
	want.By = []model.Contender{{ID: "3", Name: "name3", WaitNS: 4.5e6}}
	check()
	if d := s.drop(); d.Used != 1 || d.Count != 0 {
		t.Errorf("got %+v, want one pair", d)
	}
	// The victim is gone with all that it waited.
	s.containers = s.containers[1:]
	s.read(model.KernelContention{})
	if got := s.of("1"); got.WaitNS() != 0 || s.drop().Used != 0 {
		t.Errorf("got %+v of what is gone, %+v", got, s.drop())
	}
}

// What finds no room is among the others, and the sum stays right.
func TestContendersAreBounded(t *testing.T) {
	const containers = 80
	s := newStage(containers)
	var all []model.CgroupPair
	for of := range model.CgroupID(containers) {
		for by := range model.CgroupID(containers) {
			if of != by {
				all = append(all, pair((of+1)*10, (by+1)*10, 2e6+uint64(by), 1))
			}
		}
	}
	s.read(model.KernelContention{Pairs: all})
	told := 0
	for _, c := range s.containers {
		got := s.of(c.ID)
		if len(got.By) > maxContendersOf {
			t.Errorf("%d contenders of one container", len(got.By))
		}
		told += len(got.By)
		var want uint64
		for by := range uint64(containers) {
			if fmt.Sprint(by+1) != c.ID {
				want += 2e6 + by
			}
		}
		if got.WaitNS() != want {
			t.Errorf("%s waited %d in sum, want %d", c.ID, got.WaitNS(), want)
		}
	}
	if d := s.drop(); told != maxContenders || d.Used != maxContenders || d.Count != uint64(len(all)-maxContenders) {
		t.Errorf("%d pairs are distinguished, and %+v", told, d)
	}
}
