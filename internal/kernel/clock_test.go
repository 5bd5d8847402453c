package kernel

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A run queue's clock is read at every yield: it goes on, at the rate of the monotonic one.
func TestClockDifference(t *testing.T) {
	p := open(t, Options{})
	c := p.cgroups.clocks
	if c == nil {
		t.Skip("the kernel is older than 5.14 or has no group scheduling; open has checked what it must have")
	}
	read := func() (now cgroupsClocks) {
		unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
		if _, err := c.difference(); err != nil {
			t.Fatal(err)
		}
		if err := c.read.Get(&now); err != nil {
			t.Fatal(err)
		}
		return now
	}
	first := read()
	time.Sleep(time.Second) // the measured interval
	second := read()
	ran, passed := second.RunQueueNs-first.RunQueueNs, second.MonotonicNs-first.MonotonicNs
	if diff := max(ran, passed) - min(ran, passed); ran == 0 || diff > passed/20 {
		t.Errorf("the run queue's clock went on by %v in %v", time.Duration(ran), time.Duration(passed))
	}
	t.Logf("the run queue's clock is %v ahead", time.Duration(second.RunQueueNs-second.MonotonicNs))
	now, err := p.cgroups.now()
	if err != nil {
		t.Fatal(err)
	}
	if exact := read().RunQueueNs; now > exact+uint64(20*time.Millisecond) || exact > now+uint64(time.Second) {
		t.Errorf("now is %d, the run queue's clock %d", now, exact)
	}
}
