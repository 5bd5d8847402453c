// Package hostclock says how far the clock of this host is off at most: by the kernel's own estimate, which a time daemon
// keeps, or by a PTP device that the user says is kept.
package hostclock
