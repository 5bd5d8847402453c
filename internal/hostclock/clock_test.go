package hostclock

import (
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"outsight/internal/model"
)

func TestKernelError(t *testing.T) {
	f := func(state int, status int32, maxerror int64, want time.Duration) {
		t.Helper()
		if got := kernelError(state, &unix.Timex{Status: status, Maxerror: maxerror}); got != want {
			t.Errorf("state %d, status %#x, %d us: got %v, want %v", state, status, maxerror, got, want)
		}
	}
	f(unix.TIME_OK, unix.STA_PLL, 1500, 1500*time.Microsecond)
	f(unix.TIME_OK, unix.STA_UNSYNC, 16_000_000, 0)
	f(unix.TIME_ERROR, unix.STA_PLL, 16_000_000, 0)
	c, err := Open(Device{})
	if err != nil {
		t.Fatal(err)
	}
	if e, err := c.Read(time.Now()); err != nil || e.ByDevice || e.Device != nil {
		t.Errorf("without a device: %+v, %v", e, err)
	}
	if err := c.Close(); err != nil || c.Features() != nil {
		t.Errorf("without a device: %v, %v", err, c.Features())
	}
}

func TestDeviceFlag(t *testing.T) {
	var d Device
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.Var(&d, "clock-device", "")
	if d.String() != "" {
		t.Errorf("none is %q", d.String())
	}
	if err := flags.Parse([]string{"--clock-device", "/dev/ptp0=1500ns"}); err != nil || d != (Device{"/dev/ptp0", 1500}) ||
		d.String() != "/dev/ptp0=1.5µs" {
		t.Errorf("got %v, %v", d, err)
	}
	for _, bad := range []string{"", "/dev/ptp0", "/dev/ptp0=", "/dev/ptp0=0", "/dev/ptp0=-1us", "=1us", "/dev/ptp0=1"} {
		if err := new(Device).Set(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

func at(seconds int64, ns uint32) unix.PtpClockTime { return unix.PtpClockTime{Sec: seconds, Nsec: ns} }

// The device was read at some instant between the host's two times, so that the shortest time between them says most.
func TestShortest(t *testing.T) {
	got, err := shortest([][3]unix.PtpClockTime{
		{at(100, 0), at(90, 5000), at(100, 9000)},
		{at(100, 20_000), at(90, 20_500), at(100, 21_001)},
		{at(100, 30_000), at(90, 20_500), at(100, 29_000)}, // the clock was set back
	})
	if want := (reading{10 * time.Second, 501}); err != nil || got != want {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	if _, err := shortest([][3]unix.PtpClockTime{{at(1, 1), at(1, 0), at(1, 0)}}); err == nil {
		t.Error("times that go backwards were taken")
	}
}

// A device counts UTC or TAI, by the kernel's seconds between them, or those of today. What is neither is refused.
func TestInUTC(t *testing.T) {
	f := func(ahead time.Duration, tai int32, want time.Duration, ok bool) {
		t.Helper()
		got, err := reading{ahead, 3}.inUTC(tai)
		if (err == nil) != ok || ok && got != (reading{want, 3}) {
			t.Errorf("%v with %d: got %v, %v, want %v", ahead, tai, got, err, want)
		}
	}
	f(-2*time.Microsecond, 0, -2*time.Microsecond, true)
	f(-37*time.Second+5, 0, 5, true)
	f(-37*time.Second+5, 37, 5, true)
	f(-38*time.Second-5, 38, -5, true)
	f(-38*time.Second, 0, 0, false)
	f(37*time.Second, 0, 0, false)
	f(time.Since(time.Unix(0, 0)), 37, 0, false) // it began at 1970
}

// The worst reading of the last 10 s counts; none does once one failed, or after a while without one.
func TestReadingsHold(t *testing.T) {
	c := &Clock{device: &device{}}
	begun := time.Unix(1_800_000_000, 0)
	f := func(second int, want time.Duration) {
		t.Helper()
		got, ok := c.ByDevice(begun.Add(time.Duration(second) * time.Second))
		if got != want || ok != (want != 0) {
			t.Errorf("in second %d: got %v (%v), want %v", second, got, ok, want)
		}
	}
	f(0, 0)
	for second, bound := range []time.Duration{20, 90, 30} {
		c.note(begun.Add(time.Duration(second)*time.Second), bound, nil)
	}
	f(2, 90)
	f(2+int(stale/time.Second), 90)
	f(3+int(stale/time.Second), 0)
	for second := 3; second <= 12; second++ {
		c.note(begun.Add(time.Duration(second)*time.Second), 10, nil)
	}
	f(11, 30)
	if state := c.Features()[0].State; state != model.FeatureWorks {
		t.Errorf("the device is %v", state)
	}
	c.note(begun.Add(13*time.Second), 0, errors.New("it is gone"))
	f(13, 0)
	if got := c.Features()[0]; got.State != model.FeatureAbsent || got.Reason != "it is gone" {
		t.Errorf("the device is %+v", got)
	}
}

// What is no clock is not opened.
func TestNoClock(t *testing.T) {
	for _, path := range []string{"/dev/null", filepath.Join(t.TempDir(), "none")} {
		if _, err := Open(Device{path, 1}); err == nil {
			t.Errorf("%s was opened", path)
		}
	}
}

// A clock of the kernel is set to the host's time, in UTC and in TAI. At most it may have stood still since. It runs where
// there is such a clock whose time may be set: test/kernels has one, in a machine of its own.
func TestClockOfTheKernel(t *testing.T) {
	path := os.Getenv("OUTSIGHT_PTP_DEVICE")
	if path == "" {
		t.Skip("OUTSIGHT_PTP_DEVICE names no PTP clock whose time may be set")
	}
	const within = time.Microsecond
	c, err := Open(Device{path, within})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	writable, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(writable)
	// setAnd sets the clock to a time ahead of the host's, does something, and tells how long both took: again where this
	// machine stood still meanwhile.
	setAnd := func(ahead time.Duration, do func()) (took time.Duration) {
		for took = time.Minute; took > time.Second/4; {
			set := time.Now()
			to := unix.NsecToTimespec(set.Add(ahead).UnixNano())
			if err := unix.ClockSettime(unix.FdToClockID(writable), &to); err != nil {
				t.Fatal(err)
			}
			do()
			took = time.Since(set)
		}
		return took
	}
	for name, ahead := range map[string]time.Duration{"UTC": 0, "TAI": leapSeconds * time.Second} {
		for i, way := range ways {
			var r reading
			var err error
			took := setAnd(ahead, func() { r, err = way(c.device.fd) })
			if errors.Is(err, unix.EOPNOTSUPP) && i == 0 {
				continue // the hardware cannot read both at once
			}
			if err != nil {
				t.Errorf("%s, way %d: %v", name, i, err)
				continue
			}
			if r, err = r.inUTC(0); err != nil {
				t.Errorf("%s, way %d: %v", name, i, err)
			}
			if r.ahead.Abs() > took+r.uncertainty {
				t.Errorf("%s, way %d: the host's clock is %v ± %v ahead, want %v at most", name, i, r.ahead, r.uncertainty, took)
			}
			if r.uncertainty <= 0 || r.uncertainty > took {
				t.Errorf("%s, way %d: ± %v of a reading that took %v", name, i, r.uncertainty, took)
			}
			t.Logf("%s, way %d: %v ± %v after %v", name, i, r.ahead, r.uncertainty, took)
		}
		var e Estimate
		setAnd(ahead, func() { e, err = c.Read(time.Now()) })
		if err != nil || !e.ByDevice || e.Device == nil || e.Error < within+e.Device.Ahead.Abs() {
			t.Errorf("%s: %+v, %+v, %v", name, e, e.Device, err)
		}
	}
	var e Estimate
	setAnd(-time.Hour, func() { e, err = c.Read(time.Now()) })
	if err == nil || e.ByDevice || e.Device != nil {
		t.Errorf("an hour behind: %+v, %v", e, err)
	}
}
