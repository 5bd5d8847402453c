package hostclock

import (
	"fmt"
	"strings"
	"time"
)

// Help is what the flag is for.
const Help = "PTP clock to compare the host's clock with, and how far it is off at most as ptp4l or a hypervisor keeps it, " +
	"as in /dev/ptp0=1us: one-way delays between hosts are told as exactly, where both clocks are known"

// Device is a PTP clock, and how far it is off at most as something keeps it, which it does not say itself. It is a flag's
// value, as in "/dev/ptp0=1us"; the zero value is none.
type Device struct {
	Path  string
	Error time.Duration
}

// String is as Set takes it.
func (d *Device) String() string {
	if d == nil || d.Path == "" {
		return ""
	}
	return d.Path + "=" + d.Error.String()
}

// Set reads a path and a duration above 0.
func (d *Device) Set(text string) error {
	path, number, _ := strings.Cut(text, "=")
	within, err := time.ParseDuration(number)
	if err != nil || path == "" || within <= 0 {
		return fmt.Errorf("%q is no device with the error of its clock: want both, as in /dev/ptp0=1us", text)
	}
	*d = Device{path, within}
	return nil
}

// Type is what help calls the value.
func (d *Device) Type() string { return "device=error" }
