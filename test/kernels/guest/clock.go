package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"outsight/internal/probe"
)

// clockDevice is the PTP clock of the guest's network card.
const clockDevice = "/dev/ptp0"

// clockTests runs the tests of the package with the card's clock.
func clockTests() (string, error) {
	if _, err := loadModules("/modules"); err != nil {
		return "", err
	}
	command := exec.Command("/hostclock.test", "-test.v")
	command.Env = append(os.Environ(), "OUTSIGHT_PTP_DEVICE="+clockDevice)
	note, _, err := runAllTests(command)
	return note, err
}

// keepClock sets the card's clock by the host's again and again.
func keepClock() (stop func() error, err error) {
	device, err := unix.Open(clockDevice, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	done, kept := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			now := unix.NsecToTimespec(time.Now().UnixNano())
			if err := unix.ClockSettime(unix.FdToClockID(device), &now); err != nil {
				kept <- err
				return
			}
			select {
			case <-done:
				kept <- nil
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	return func() error {
		close(done)
		return errors.Join(<-kept, unix.Close(device))
	}, nil
}

// clockOfAgent has an agent compare the host's clock with the card's, which is set by it again and again.
func clockOfAgent() (string, error) {
	stop, err := keepClock()
	if err != nil {
		return "", err
	}
	agent, ended, err := startAgent("/outsight-agent", "--times-only", "--packets=false", "--flight", "0", "--clock-device",
		clockDevice+"=1us")
	if err != nil {
		return "", err
	}
	var figures []float64
	err = eventually(ended, func() error {
		text, err := metrics()
		if err != nil {
			return err
		}
		figures = nil
		for _, pattern := range []string{`host_clock_error_seconds\{[^}]*source="device"`,
			`host_clock_device_offset_seconds\{[^}]*device="` + clockDevice + `"`,
			`host_clock_device_uncertainty_seconds\{[^}]*device="` + clockDevice + `"`} {
			found := regexp.MustCompile(`(?m)^outsight_` + pattern + `[^}]*\} (\S+)`).FindStringSubmatch(text)
			if found == nil {
				return fmt.Errorf("nothing like %s on /metrics", pattern)
			}
			figure, err := strconv.ParseFloat(found[1], 64)
			if err != nil {
				return err
			}
			figures = append(figures, figure)
		}
		return nil
	})
	agent.Kill()
	<-ended
	if err = errors.Join(err, stop()); err != nil {
		return "", err
	}
	bound, offset, uncertainty := figures[0], figures[1], figures[2]
	// The worst of some readings counts.
	if least := max(offset, -offset) + uncertainty + 1e-6; bound < least*0.999 || bound > 0.6 || uncertainty <= 0 {
		err = fmt.Errorf("the clock is off by %v at most, with %v ± %v by the device", bound, offset, uncertainty)
	}
	return fmt.Sprintf("off by %.9f s at most; %.9f ± %.9f", bound, offset, uncertainty), err
}

// clockOfProbe has "outsight probe" and "outsight reflector" measure from one network namespace to another one, with the
// card's clock at both ends, and at one. The two ends have in truth one clock.
func clockOfProbe() (note string, err error) {
	if err := commands(`
		ip netns add far
		ip link add near type veth peer name far netns far
		ip address add 192.0.2.1/24 dev near
		ip link set near up
		ip -n far address add 192.0.2.2/24 dev far
		ip -n far link set far up`); err != nil {
		return "", err
	}
	stop, err := keepClock()
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, stop()) }()
	with := []string{"--clock-device", clockDevice + "=1us"}
	for _, c := range []struct {
		probe, reflector []string
		clocks           probe.Clocks
		// here and there are the sources of the probe, by that of the reflector's own report.
		here, there, reported probe.ClockSource
	}{
		{with, with, probe.KeptClocks, probe.ByDevice, probe.ByPTP, probe.ByDevice},
		{with, nil, probe.FreeClocks, probe.ByDevice, probe.NotKept, probe.NotKept},
	} {
		// Where the machine stands still, the card's clock is not kept for a moment.
		err := eventually(nil, func() error {
			r, reported, err := probeWith(c.probe, c.reflector)
			if err != nil {
				return err
			}
			s := r.STAMP
			if s.RoundTrip == nil || s.Clocks != c.clocks || s.ClockHere.Source != c.here || s.ClockThere.Source != c.there ||
				reported.Source != c.reported {
				return fmt.Errorf("with %q and %q at the reflector clocks are %s, here %+v, there %+v, by the reflector %+v; %+v", c.probe,
					c.reflector, s.Clocks, s.ClockHere, s.ClockThere, reported, r.Missing)
			}
			told, err := expectBounds(s, reported)
			note += told
			return err
		})
		if err != nil {
			return "", err
		}
	}
	return note, nil
}

// expectBounds holds that what is known of both clocks is what a device can say, and true of two that are in truth one.
func expectBounds(s *probe.Session, reported *probe.ClockBound) (note string, err error) {
	for _, b := range []*probe.ClockBound{s.ClockHere, s.ClockThere, reported} {
		if kept := b.Source != probe.NotKept; kept != (b.Error != 0) || kept && (b.Error < 1e-6 || b.Error > 0.6) {
			return "", fmt.Errorf("a clock is off by %+v", b)
		}
	}
	if s.Clocks != probe.KeptClocks {
		return "", nil
	}
	if sum := s.ClockHere.Error + s.ClockThere.Error; s.ClockError != sum {
		return "", fmt.Errorf("delays are off by %v, with clocks that are by %v together", s.ClockError, sum)
	}
	if s.ClockOffset > s.ClockError+s.RoundTrip.Min/2 || s.ClockOffset < -s.ClockError-s.RoundTrip.Min/2 {
		return "", fmt.Errorf("one clock is %v s ahead of itself, by %v at most", s.ClockOffset, s.ClockError)
	}
	return fmt.Sprintf("± %.9f s here, %.9f there", s.ClockHere.Error, s.ClockThere.Error), nil
}

// probeWith probes a reflector in the other namespace once, each with flags of its own. It answers what the reflector says
// of its clock, too.
func probeWith(flags, reflectorFlags []string) (*probe.Result, *probe.ClockBound, error) {
	reflector := exec.Command("/ip", append([]string{"netns", "exec", "far", "/outsight", "reflector", "--allow", "192.0.2.1"},
		reflectorFlags...)...)
	var counted bytes.Buffer
	reflector.Stdout, reflector.Stderr = &counted, os.Stderr
	if err := reflector.Start(); err != nil {
		return nil, nil, err
	}
	var r probe.Result
	// The reflector may not be there at the first try.
	err := eventually(nil, func() error {
		command := exec.Command("/outsight", append([]string{"probe", "192.0.2.1", "192.0.2.2", "--duration", "1s", "--output", "json"},
			flags...)...)
		command.Stderr = os.Stderr
		output, err := command.Output()
		if err != nil {
			return err
		}
		r = probe.Result{}
		if err := json.Unmarshal(output, &r); err != nil {
			return err
		}
		if r.STAMP == nil {
			return fmt.Errorf("no reflector answered: %s", output)
		}
		return nil
	})
	reflector.Process.Signal(os.Interrupt)
	err = errors.Join(err, reflector.Wait())
	var reported struct {
		Clock probe.ClockBound `json:"clock"`
	}
	if err == nil {
		err = json.Unmarshal(counted.Bytes(), &reported)
	}
	return &r, &reported.Clock, err
}
