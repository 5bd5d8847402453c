package stamp

import (
	"encoding/binary"
	"math"
	"time"

	"golang.org/x/sys/unix"
)

// ClockFormat is how a time is written (bit Z of the error estimate, RFC 8762 section 4.2.1).
type ClockFormat uint8

// The formats: seconds since 1900 and 2^-32 of a second; seconds since 1970 and nanoseconds.
const (
	NTP ClockFormat = iota
	PTP
)

// ntpEpoch is 1970 in seconds since 1900.
const ntpEpoch = 2_208_988_800

// putTime writes t in 8 bytes.
func putTime(b []byte, t time.Time, format ClockFormat) {
	seconds, nanoseconds := t.Unix(), int64(t.Nanosecond())
	if format == PTP {
		binary.BigEndian.PutUint32(b, uint32(seconds))
		binary.BigEndian.PutUint32(b[4:], uint32(nanoseconds))
		return
	}
	binary.BigEndian.PutUint32(b, uint32(seconds+ntpEpoch))
	// Rounded up, so that the time that is read is that which was written.
	binary.BigEndian.PutUint32(b[4:], uint32((uint64(nanoseconds)<<32+999_999_999)/1_000_000_000))
}

// readTime reads 8 bytes. Of the times that the 32 bits of seconds may stand for it is the one nearest to now.
func readTime(b []byte, format ClockFormat, now time.Time) time.Time {
	seconds, fraction := int64(binary.BigEndian.Uint32(b)), uint64(binary.BigEndian.Uint32(b[4:]))
	if format == PTP {
		fraction = min(fraction, 999_999_999)
	} else {
		seconds -= ntpEpoch
		fraction = fraction * 1_000_000_000 >> 32
	}
	const era = int64(1) << 32
	eras := math.Round(float64(now.Unix()-seconds) / float64(era))
	return time.Unix(seconds+int64(eras)*era, int64(fraction))
}

// ErrorEstimate says how far a clock may be off (RFC 4656 section 4.1.2).
type ErrorEstimate struct {
	// Synchronized is true where the clock is kept by an outside source.
	Synchronized bool
	Format       ClockFormat
	// Error is an upper bound; it is written rounded up, in steps of less than 1 %.
	Error time.Duration
	// Source keeps the clock: ClockNTP and so on, 0 where that is not told. It is in the extension Clocks alone.
	Source uint8
}

// KernelClock is how far this host's clock may be off by the kernel's own estimate, which a time daemon keeps; a second
// where none does.
func KernelClock() ErrorEstimate {
	var t unix.Timex
	state, err := unix.Adjtimex(&t)
	if err != nil || state == unix.TIME_ERROR || t.Status&unix.STA_UNSYNC != 0 {
		return ErrorEstimate{Error: time.Second, Source: ClockFree}
	}
	return ErrorEstimate{Synchronized: true, Error: time.Duration(t.Maxerror) * time.Microsecond, Source: ClockNTP}
}

// put writes the estimate in 2 bytes: S, Z, six bits of scale, eight of multiplier; the error is multiplier * 2^(scale-32)
// seconds, and the multiplier is not 0.
func (e ErrorEstimate) put(b []byte) {
	units := math.Ceil(max(e.Error, 0).Seconds() * (1 << 32))
	scale := 0
	for units > 255 && scale < 63 {
		units = math.Ceil(units / 2)
		scale++
	}
	b[0], b[1] = byte(scale), byte(max(min(units, 255), 1))
	if e.Synchronized {
		b[0] |= 1 << 7
	}
	if e.Format == PTP {
		b[0] |= 1 << 6
	}
}

func readErrorEstimate(b []byte) ErrorEstimate {
	e := ErrorEstimate{Synchronized: b[0]>>7 == 1, Format: ClockFormat(b[0] >> 6 & 1)}
	seconds := math.Ldexp(float64(b[1]), int(b[0]&63)-32)
	e.Error = time.Duration(min(seconds*1e9, math.MaxInt64/2))
	return e
}
