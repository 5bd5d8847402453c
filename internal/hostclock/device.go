package hostclock

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// leapSeconds is by how much TAI is ahead of UTC since 2017, for where the kernel was not told.
const leapSeconds = 37

// device is a PTP clock that is open.
type device struct {
	Device
	fd int
	// way is the first of ways that may work.
	way int
}

// reading is by how much the host's clock is ahead of the device's, give or take the uncertainty.
type reading struct{ ahead, uncertainty time.Duration }

// ways are how both clocks are read at once, the most exact first.
var ways = [...]func(fd int) (reading, error){precise, extended, between}

func openDevice(d Device) (*device, error) {
	fd, err := unix.Open(d.Path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("opening the clock %s: %w", d.Path, err)
	}
	if _, err := unix.IoctlPtpClockGetcaps(fd); err != nil {
		return nil, errors.Join(fmt.Errorf("%s is no PTP clock: %w", d.Path, err), unix.Close(fd))
	}
	return &device{Device: d, fd: fd}, nil
}

func (d *device) close() error { return unix.Close(d.fd) }

// read compares both clocks. tai is by how much the kernel says that TAI is ahead of UTC; 0 where it was not told.
func (d *device) read(tai int32) (reading, error) {
	var errs []error
	for i := d.way; i < len(ways); i++ {
		r, err := ways[i](d.fd)
		if err == nil {
			d.way = i
			return r.inUTC(tai)
		}
		errs = append(errs, err)
	}
	return reading{}, fmt.Errorf("reading the clock %s: %w", d.Path, errors.Join(errs...))
}

// inUTC takes TAI's seconds out, where the device counts TAI, as those of ptp4l do. What is further off than half a second
// keeps no time that could be compared.
func (r reading) inUTC(tai int32) (reading, error) {
	for _, seconds := range [...]int32{0, cmp.Or(tai, leapSeconds)} {
		ahead := r.ahead + time.Duration(seconds)*time.Second
		if ahead.Abs() < time.Second/2 {
			return reading{ahead, r.uncertainty}, nil
		}
	}
	return reading{}, fmt.Errorf("the host's clock is %v ahead of the device's, which has neither UTC nor TAI", r.ahead)
}

// precise is by hardware that reads both at the same instant (PTP_SYS_OFFSET_PRECISE).
func precise(fd int) (reading, error) {
	at, err := unix.IoctlPtpSysOffsetPrecise(fd)
	if err != nil {
		return reading{}, err
	}
	return reading{ahead: timeOf(at.Realtime).Sub(timeOf(at.Device))}, nil
}

// brackets is how often the host's clock is read before and after the device's, of which the shortest counts.
const brackets = 10

// extended has the driver read the host's clock just before and after the device's (PTP_SYS_OFFSET_EXTENDED).
func extended(fd int) (reading, error) {
	all, err := unix.IoctlPtpSysOffsetExtended(fd, brackets)
	if err != nil {
		return reading{}, err
	}
	return shortest(all.Ts[:brackets])
}

// between reads the host's clock before and after the call that reads the device's.
func between(fd int) (reading, error) {
	var all [brackets][3]unix.PtpClockTime
	clocks := [...]int32{unix.CLOCK_REALTIME, unix.FdToClockID(fd), unix.CLOCK_REALTIME}
	for i := range all {
		for j, clock := range clocks {
			var t unix.Timespec
			if err := unix.ClockGettime(clock, &t); err != nil {
				return reading{}, err
			}
			all[i][j] = unix.PtpClockTime{Sec: int64(t.Sec), Nsec: uint32(t.Nsec)}
		}
	}
	return shortest(all[:])
}

// shortest is by the host's times before and after the device's that are least apart: the device was read at some instant
// between them.
func shortest(all [][3]unix.PtpClockTime) (reading, error) {
	least, found := reading{}, false
	for _, one := range all {
		before, at, after := timeOf(one[0]), timeOf(one[1]), timeOf(one[2])
		half := after.Sub(before) / 2
		if after.Before(before) || found && half >= least.uncertainty {
			continue
		}
		least, found = reading{before.Add(half).Sub(at), half + 1}, true // what is halved was rounded
	}
	if !found {
		return reading{}, errors.New("the host's clock was set back meanwhile")
	}
	return least, nil
}

func timeOf(t unix.PtpClockTime) time.Time { return time.Unix(t.Sec, int64(t.Nsec)) }
