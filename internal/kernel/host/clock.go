package host

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// ClockDifference is by how much the run queues' clock is ahead of the monotonic one. Both run at
// the rate of one counter, but only the monotonic clock is disciplined.
type ClockDifference struct {
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

// Clocks is the program that reads both clocks, and the variable that it writes them to.
type Clocks struct {
	Program *ebpf.Program
	Read    *ebpf.Variable
}

// difference runs the program once.
func (c *Clocks) difference() (int64, error) {
	if _, err := c.Program.Run(&ebpf.RunOptions{}); err != nil {
		return 0, fmt.Errorf("reading the run queue's clock: %w", err)
	}
	var now struct{ RunQueueNs, MonotonicNs uint64 } // struct clocks of cgroups.h
	if err := c.Read.Get(&now); err != nil {
		return 0, fmt.Errorf("reading the run queue's clock: %w", err)
	}
	if now.RunQueueNs == 0 || now.MonotonicNs == 0 {
		return 0, errors.New("BUG: the program read no clock")
	}
	return int64(now.RunQueueNs - now.MonotonicNs), nil
}

// Read compares the clocks. The run queue's is old or right, never ahead: of several comparisons
// the one with the greatest difference is nearest to the truth.
func (d *ClockDifference) Read(c *Clocks) (int64, error) {
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

// NS is the difference at the last comparison.
func (d *ClockDifference) NS() int64 { return d.ns }
