package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
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

// clockOfAgent has an agent compare the host's clock with the card's, which is set by it again and again.
func clockOfAgent() (string, error) {
	device, err := unix.Open(clockDevice, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(device)
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
	agent, ended, err := startAgent("/outsight-agent", "--times-only", "--packets=false", "--flight", "0", "--clock-device",
		clockDevice+"=1us")
	if err != nil {
		return "", err
	}
	var figures []float64
	err = within(startLimit, ended, func() error {
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
	close(done)
	agent.Kill()
	<-ended
	if err = errors.Join(err, <-kept); err != nil {
		return "", err
	}
	bound, offset, uncertainty := figures[0], figures[1], figures[2]
	// The worst of some readings counts.
	if least := max(offset, -offset) + uncertainty + 1e-6; bound < least*0.999 || bound > 0.6 || uncertainty <= 0 {
		err = fmt.Errorf("the clock is off by %v at most, with %v ± %v by the device", bound, offset, uncertainty)
	}
	return fmt.Sprintf("off by %.9f s at most; %.9f ± %.9f", bound, offset, uncertainty), err
}
