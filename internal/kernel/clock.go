package kernel

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// clockDifference is by how much the run queues' clock is ahead of the monotonic one. Both run at
// the rate of one counter, but only the monotonic clock is disciplined.
type clockDifference struct {
	ns int64
	// at is when ns was last taken, exact when it was last taken after a yield.
	at, exact time.Time
}

const (
	// The run queue's clock is read by the scheduler, and is a little old at any other time. A
	// yield makes it new; it costs the reader a turn of the CPU, so it is not done at each reading.
	exactInterval = 10 * time.Second
	// driftPPM bounds how far the clocks drift apart meanwhile.
	driftPPM = 20
)

// clocks is the program that reads both clocks, and the variable that it writes them to.
type clocks struct {
	program *ebpf.Program
	read    *ebpf.Variable
}

// difference runs the program once.
func (c *clocks) difference() (int64, error) {
	if _, err := c.program.Run(&ebpf.RunOptions{}); err != nil {
		return 0, fmt.Errorf("reading the run queue's clock: %w", err)
	}
	var now cgroupsClocks
	if err := c.read.Get(&now); err != nil {
		return 0, fmt.Errorf("reading the run queue's clock: %w", err)
	}
	if now.RunQueueNs == 0 || now.MonotonicNs == 0 {
		return 0, errors.New("BUG: the program read no clock")
	}
	return int64(now.RunQueueNs - now.MonotonicNs), nil
}

// read compares the clocks. The run queue's is old or right, never ahead: of several comparisons
// the one with the greatest difference is nearest to the truth.
func (d *clockDifference) read(c *clocks) (int64, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	now := time.Now()
	tries, yield := 1, now.Sub(d.exact) > exactInterval
	if yield {
		tries = 3
	}
	best := d.ns - now.Sub(d.at).Nanoseconds()*driftPPM/1_000_000
	for try := range tries {
		if yield {
			if _, _, err := unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0); err != 0 {
				return 0, fmt.Errorf("yielding: %w", err)
			}
		}
		difference, err := c.difference()
		if err != nil {
			return 0, err
		}
		if yield && try == 0 || difference > best {
			best = difference
		}
	}
	if d.ns, d.at = best, now; yield {
		d.exact = now
	}
	return best, nil
}
