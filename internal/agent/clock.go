package agent

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// readClockError bounds how far the host's clock is off, as the kernel reckons it from what the clock's daemon told it;
// 0 where nobody keeps the clock.
func readClockError() (time.Duration, error) {
	var t unix.Timex
	state, err := unix.Adjtimex(&t)
	if err != nil {
		return 0, fmt.Errorf("reading the state of the clock: %w", err)
	}
	return clockError(state, &t), nil
}

func clockError(state int, t *unix.Timex) time.Duration {
	if state == unix.TIME_ERROR || t.Status&unix.STA_UNSYNC != 0 {
		return 0
	}
	return time.Duration(t.Maxerror) * time.Microsecond
}
