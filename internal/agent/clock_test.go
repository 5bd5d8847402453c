package agent

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestClockError(t *testing.T) {
	f := func(state int, status int32, maxerror int64, want time.Duration) {
		t.Helper()
		if got := clockError(state, &unix.Timex{Status: status, Maxerror: maxerror}); got != want {
			t.Errorf("state %d, status %#x, %d us: got %v, want %v", state, status, maxerror, got, want)
		}
	}
	f(unix.TIME_OK, unix.STA_PLL, 1500, 1500*time.Microsecond)
	f(unix.TIME_OK, unix.STA_UNSYNC, 16_000_000, 0)
	f(unix.TIME_ERROR, unix.STA_PLL, 16_000_000, 0)
	if _, err := readClockError(); err != nil {
		t.Error(err)
	}
}
