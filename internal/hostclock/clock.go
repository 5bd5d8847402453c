package hostclock

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"outsight/internal/model"
)

const (
	// holds is for how long a reading of the device counts: what a frame has of packets is as old. Of the readings in that
	// time the worst counts.
	holds = model.PacketSamplesLast
	// stale is how old the newest reading may be.
	stale = 5 * time.Second
)

// Clock is that of this host. The zero value has no device. But for Read, it may be used by anybody.
type Clock struct {
	device *device

	// mu guards what follows.
	mu       sync.Mutex
	readings []bounded
	// reason is why the last reading failed.
	reason error
}

// bounded is how far the host's clock was off at most, by the device.
type bounded struct {
	at    time.Time
	error time.Duration
}

// Open opens the device, if there is one.
func Open(d Device) (*Clock, error) {
	if d.Path == "" {
		return &Clock{}, nil
	}
	opened, err := openDevice(d)
	if err != nil {
		return nil, err
	}
	return &Clock{device: opened}, nil
}

// Close closes the device.
func (c *Clock) Close() error {
	if c.device == nil {
		return nil
	}
	return c.device.close()
}

// Estimate is what is known at one time.
type Estimate struct {
	// Error bounds how far the clock is off; 0 where nobody keeps it.
	Error time.Duration
	// ByDevice is true where the bound is by the device.
	ByDevice bool
	// Device is what was read from it; nil where there is none, or it could not be read.
	Device *model.ClockDevice
}

// Read reads the device; where there is none, or it fails, the kernel's estimate counts. It is for one goroutine, which
// calls it once a second.
func (c *Clock) Read(now time.Time) (Estimate, error) {
	var e Estimate
	var t unix.Timex
	state, err := unix.Adjtimex(&t)
	if err != nil {
		err = fmt.Errorf("reading the state of the clock: %w", err)
	} else {
		e.Error = kernelError(state, &t)
	}
	if c.device == nil {
		return e, err
	}
	r, failed := c.device.read(t.Tai)
	c.note(now, r.ahead.Abs()+r.uncertainty+c.device.Error, failed)
	if failed == nil {
		e.Device = &model.ClockDevice{Device: c.device.Path, Ahead: r.ahead, Uncertainty: r.uncertainty}
	}
	if bound, ok := c.ByDevice(now); ok {
		// Whatever the kernel says: phc2sys, which sets the host's clock by the device, tells it that there is no error.
		e.Error, e.ByDevice = bound, true
	}
	return e, errors.Join(err, failed)
}

// readEvery is the time between two readings.
const readEvery = time.Second

// Follow reads the device now and once a second, for programs that are no agent. What stop answers is why it could not be
// read, if it could not at some time. Without a device there is nothing to follow.
func (c *Clock) Follow() (stop func() error) {
	if c.device == nil {
		return func() error { return nil }
	}
	_, failed := c.Read(time.Now())
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		ticks := time.NewTicker(readEvery)
		defer ticks.Stop()
		for {
			select {
			case <-ended:
				return
			case now := <-ticks.C:
				if _, err := c.Read(now); err != nil {
					failed = err
				}
			}
		}
	}()
	return func() error {
		close(ended)
		<-done
		return failed
	}
}

// kernelError is what the kernel estimates of what the clock's daemon told it; 0 where nobody keeps the clock.
func kernelError(state int, t *unix.Timex) time.Duration {
	if state == unix.TIME_ERROR || t.Status&unix.STA_UNSYNC != 0 {
		return 0
	}
	return time.Duration(t.Maxerror) * time.Microsecond
}

// note takes a reading in, or that it failed: then those before it no longer count.
func (c *Clock) note(now time.Time, bound time.Duration, failed error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reason = failed
	if failed != nil {
		c.readings = nil
		return
	}
	c.readings = slices.DeleteFunc(c.readings, func(b bounded) bool { return now.Sub(b.at) > holds })
	c.readings = append(c.readings, bounded{now, bound})
}

// ByDevice bounds how far the clock is off, and was in the last 10 s, by the device; false where that is not known now.
func (c *Clock) ByDevice(now time.Time) (bound time.Duration, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.readings) == 0 || now.Sub(c.readings[len(c.readings)-1].at) > stale {
		return 0, false
	}
	return slices.MaxFunc(c.readings, func(a, b bounded) int { return cmp.Compare(a.error, b.error) }).error, true
}

// Features tells whether the device can be read.
func (c *Clock) Features() []model.Feature {
	if c.device == nil {
		return nil
	}
	f := model.Feature{Name: "clock device", Purpose: "one-way delays between hosts, as exact as a PTP clock",
		State: model.FeatureWorks}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reason != nil {
		f.State, f.Reason = model.FeatureAbsent, c.reason.Error()
		f.Remedy = "a PTP clock (/sys/class/ptp) that ptp4l or a hypervisor keeps, and a system's clock that follows it"
	}
	return []model.Feature{f}
}

// Drops are none.
func (c *Clock) Drops() []model.Drop { return nil }
