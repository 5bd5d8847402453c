package probe

import (
	"testing"
	"time"

	"outsight/internal/stamp"
)

func TestBoundOfAClock(t *testing.T) {
	kept := func(source uint8) stamp.ErrorEstimate {
		return stamp.ErrorEstimate{Synchronized: true, Error: 3 * time.Microsecond, Source: source}
	}
	f := func(got ClockBound, error float64, source ClockSource) {
		t.Helper()
		if want := (ClockBound{error, source}); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	f(BoundHere(kept(stamp.ClockPTP)), 3e-6, ByDevice)
	f(BoundHere(kept(stamp.ClockNTP)), 3e-6, ByKernel)
	f(BoundHere(stamp.ErrorEstimate{Error: time.Second}), 0, NotKept)
	f(boundOf(kept(0), &stamp.Clocks{ReceivedSource: stamp.ClockPTP}), 3e-6, ByPTP)
	f(boundOf(kept(0), &stamp.Clocks{ReceivedSource: stamp.ClockGNSS}), 3e-6, ByGNSS)
	f(boundOf(kept(0), &stamp.Clocks{ReceivedSource: stamp.ClockFree}), 3e-6, ByUnknown)
	f(boundOf(kept(0), nil), 3e-6, ByUnknown)
	f(boundOf(stamp.ErrorEstimate{Error: time.Second}, &stamp.Clocks{ReceivedSource: stamp.ClockNTP}), 0, NotKept)
	little, much, none := ClockBound{1e-6, ByDevice}, ClockBound{1e-3, ByKernel}, ClockBound{Source: NotKept}
	f(worse(little, much), 1e-3, ByKernel)
	f(worse(much, little), 1e-3, ByKernel)
	f(worse(little, none), 0, NotKept)
	f(worse(none, much), 0, NotKept)
}
