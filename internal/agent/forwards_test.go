package agent

import (
	"slices"
	"testing"
	"time"

	"outsight/internal/container"
	"outsight/internal/model"
)

// forwardScript says what the kernel counted, and keeps what it was told to time.
type forwardScript struct {
	wanted  []model.ForwardingNamespace
	counted []model.KernelForward
}

func (s *forwardScript) FollowForwarding(wanted []model.ForwardingNamespace) { s.wanted = wanted }
func (s *forwardScript) ReadForwarding() []model.KernelForward               { return s.counted }

func tookTimes(n uint64) *model.Histogram {
	return &model.Histogram{Count: n, SumNS: n * 1000, Offset: -500, Buckets: []uint64{n}}
}

// A namespace is timed from when it is seen to forward, and no more when it has not for a while or is gone.
func TestNamespacesThatForwardAreFound(t *testing.T) {
	f := forwards{of: make(map[uint32]*forward)}
	kernel := &forwardScript{}
	containers := []*model.Container{
		{ID: "quiet", NetNS: 1, PID: 10}, {ID: "router", NetNS: 2, PID: 20}, {ID: "beside", NetNS: 2, PID: 21},
	}
	usages := make([]container.Usage, len(containers))
	now := time.Unix(1000, 0)
	step := func(passed time.Duration, forwarded uint64, want ...model.ForwardingNamespace) {
		t.Helper()
		now = now.Add(passed)
		for i := range containers {
			if containers[i].NetNS == 2 {
				usages[i].Forwarded = forwarded
			}
		}
		f.update(now, containers, usages, kernel)
		if !slices.Equal(kernel.wanted, want) {
			t.Errorf("%d forwarded: %+v is to be timed, want %+v", forwarded, kernel.wanted, want)
		}
	}
	timed := model.ForwardingNamespace{NetNS: 2, PID: 20, PacketsPerSecond: 20}
	step(0, 0)
	step(time.Second, 500) // before it was looked at: nobody knows when
	step(5*time.Second, 600, timed)
	step(5*time.Second, 600, timed)
	idle := timed
	idle.Idle = true
	step(forwardsFor, 600, idle)
	step(45*time.Second, 1300, model.ForwardingNamespace{NetNS: 2, PID: 20,
		PacketsPerSecond: 700 / (forwardsFor + 50*time.Second).Seconds()})
	containers[1] = &model.Container{ID: "router", NetNS: 2, PID: 20, Ended: now}
	kernel.wanted = nil
	f.update(now, containers, usages, kernel)
	if len(kernel.wanted) != 1 || kernel.wanted[0].PID != 21 {
		t.Errorf("%+v is to be timed, want the process that is left", kernel.wanted)
	}
	f.update(now, containers[:1], usages[:1], kernel)
	if len(kernel.wanted) != 0 || len(f.of) != 0 {
		t.Errorf("%+v is to be timed of a namespace that is gone", kernel.wanted)
	}
}

// What was counted never becomes less: neither while it cannot be read nor when the kernel's counting begins anew.
func TestForwardCountersOnlyGrow(t *testing.T) {
	f := forwards{of: make(map[uint32]*forward)}
	kernel := &forwardScript{}
	containers := []*model.Container{{ID: "router", NetNS: 2, PID: 20}}
	usages := make([]container.Usage, 1)
	step := func(wantTook, wantUnmatched, wantOneIn uint64, counted ...model.KernelForward) {
		t.Helper()
		kernel.counted = counted
		usages[0].Forwarded++
		f.update(time.Unix(1000, 0), containers, usages, kernel)
		c := f.counters(&usages[0], 2)
		var took uint64
		if c.Took != nil {
			took = c.Took.Count
		}
		if c.Packets != usages[0].Forwarded || took != wantTook || c.Unmatched != wantUnmatched || c.TimedOneIn != wantOneIn {
			t.Errorf("%+v, %d timed; want %d timed, %d not, one in %d", c, took, wantTook, wantUnmatched, wantOneIn)
		}
	}
	step(0, 0, 0)
	step(5, 1, 2, model.KernelForward{NetNS: 2, Instance: 1, Took: tookTimes(5), Unmatched: 1, TimedOneIn: 2})
	step(5, 1, 0)
	step(7, 1, 2, model.KernelForward{NetNS: 2, Instance: 1, Took: tookTimes(7), Unmatched: 1, TimedOneIn: 2})
	step(7, 1, 1, model.KernelForward{NetNS: 2, Instance: 2, TimedOneIn: 1})
	step(10, 3, 1, model.KernelForward{NetNS: 2, Instance: 2, Took: tookTimes(3), Unmatched: 2, TimedOneIn: 1})
	step(11, 3, 1, model.KernelForward{NetNS: 2, Instance: 3, Took: tookTimes(1), TimedOneIn: 1})
	if f.counters(&container.Usage{}, 2) != nil {
		t.Error("a container that forwards nothing has counters")
	}
}
