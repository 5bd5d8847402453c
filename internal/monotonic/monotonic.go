package monotonic

import (
	"math"
	"time"

	"golang.org/x/sys/unix"
)

// Now is CLOCK_MONOTONIC in ns.
func Now() uint64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic("BUG: no monotonic clock: " + err.Error())
	}
	return uint64(t.Nano())
}

// WallAhead is how far the wall clock is ahead of Now; below 0 where it is behind.
func WallAhead() (ahead time.Duration) {
	// What interrupts the reading of the clocks makes it longer: the shortest of some is taken.
	shortest := uint64(math.MaxUint64)
	for range 5 {
		before, wall, after := Now(), time.Now().UnixNano(), Now()
		if took := after - before; took < shortest {
			shortest, ahead = took, time.Duration(wall-int64(before+took/2))
		}
	}
	return ahead
}

// Wall is the time by the wall clock at which Now is ns, by the difference that there is now.
func Wall(ns uint64) time.Time { return time.Unix(0, int64(ns)+int64(WallAhead())) }
