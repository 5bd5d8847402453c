package probe

import (
	"time"

	"outsight/internal/hostclock"
	"outsight/internal/stamp"
)

// HostClock tells how far this host's clock may be off, as STAMP does: by the device, or else by the kernel's estimate,
// which alone counts where c is nil.
func HostClock(c *hostclock.Clock) func() stamp.ErrorEstimate {
	if c == nil {
		return stamp.KernelClock
	}
	return func() stamp.ErrorEstimate {
		if bound, ok := c.ByDevice(time.Now()); ok {
			return stamp.ErrorEstimate{Synchronized: true, Error: bound, Source: stamp.ClockPTP}
		}
		return stamp.KernelClock()
	}
}

// ClockSource is who says how far a clock is off.
type ClockSource string

// Of this host it is the PTP device of --clock-device or the kernel; of another one what its reflector says that keeps the
// clock (RFC 8972 section 4.3), where it does. NotKept: nothing keeps the clock, so that nobody says how far it is off.
const (
	ByDevice  ClockSource = "device"
	ByKernel  ClockSource = "kernel"
	ByNTP     ClockSource = "ntp"
	ByPTP     ClockSource = "ptp"
	ByBITS    ClockSource = "bits"
	ByGNSS    ClockSource = "gnss"
	ByUnknown ClockSource = "unknown"
	NotKept   ClockSource = "none"
)

// ClockBound is how far a clock is off at most.
type ClockBound struct {
	// Error is in seconds; 0 with NotKept.
	Error  float64     `json:"error_seconds"`
	Source ClockSource `json:"source"`
}

var otherClocks = map[uint8]ClockSource{stamp.ClockNTP: ByNTP, stamp.ClockPTP: ByPTP, stamp.ClockBITS: ByBITS,
	stamp.ClockGNSS: ByGNSS}

// BoundHere is that of this host's clock, as HostClock tells it.
func BoundHere(e stamp.ErrorEstimate) ClockBound {
	switch {
	case !e.Synchronized:
		return ClockBound{Source: NotKept}
	case e.Source == stamp.ClockPTP:
		return ClockBound{e.Error.Seconds(), ByDevice}
	}
	return ClockBound{e.Error.Seconds(), ByKernel}
}

// boundOf is that of a reflector's clock; clocks is what it says of it, and may be nil.
func boundOf(e stamp.ErrorEstimate, clocks *stamp.Clocks) ClockBound {
	if !e.Synchronized {
		return ClockBound{Source: NotKept}
	}
	b := ClockBound{e.Error.Seconds(), ByUnknown}
	if clocks != nil {
		if source, ok := otherClocks[clocks.ReceivedSource]; ok {
			b.Source = source
		}
	}
	return b
}

// worse is the one of two bounds that says less.
func worse(a, b ClockBound) ClockBound {
	if a.Source != NotKept && (b.Source == NotKept || b.Error > a.Error) {
		return b
	}
	return a
}
