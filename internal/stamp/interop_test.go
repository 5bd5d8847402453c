//go:build interop

package stamp

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// stampSuite is another implementation, in Rust, that scripts/install stamp builds.
func stampSuite(t *testing.T) string {
	t.Helper()
	path := os.Getenv("STAMP_SUITE")
	if path == "" {
		var err error
		if path, err = exec.LookPath("stamp-suite"); err != nil {
			t.Fatal("stamp-suite is not installed; make test-stamp installs it")
		}
	}
	return path
}

// suiteReflector runs stamp-suite's reflector for the test.
func suiteReflector(t *testing.T, arguments ...string) netip.AddrPort {
	t.Helper()
	free := listen(t)
	at := free.LocalAddr().(*net.UDPAddr).AddrPort()
	free.Close()
	c := exec.Command(stampSuite(t), append([]string{"-i", "-S", "127.0.0.1", "-o", fmt.Sprint(at.Port())}, arguments...)...)
	var out strings.Builder
	c.Stdout, c.Stderr = &out, &out
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Process.Kill(); _ = c.Wait(); t.Log(out.String()) })
	return at
}

// awaitReflector waits until a reflector answers.
func awaitReflector(t *testing.T, at netip.AddrPort, key Key) {
	t.Helper()
	for range 100 {
		samples, _ := send(t, at, SenderOptions{Count: 1, Timeout: 100 * time.Millisecond, Key: key, Session: 1})
		if len(samples) == 1 && !samples[0].Lost {
			return
		}
	}
	t.Fatal("the reflector does not answer")
}

func TestStampSuiteReflects(t *testing.T) {
	for _, c := range []struct {
		name      string
		key       Key
		arguments []string
		format    ClockFormat
	}{
		{"open", nil, []string{"--tlv-mode", "echo", "--stateful-reflector"}, NTP},
		{"open with PTP times", nil, []string{"--tlv-mode", "echo", "--stateful-reflector", "-K", "PTP"}, PTP},
		{"authenticated", testKey, []string{"-A", "A", "--hmac-key", hex.EncodeToString(testKey), "--tlv-mode", "echo",
			"--stateful-reflector", "--verify-tlv-hmac"}, NTP},
	} {
		t.Run(c.name, func(t *testing.T) {
			at := suiteReflector(t, c.arguments...)
			awaitReflector(t, at, c.key)
			samples, stats := send(t, at, SenderOptions{Interval: 5 * time.Millisecond, Count: 20, Key: c.key, Session: 77,
				Format: c.format, Direct: true, Clocks: true, DSCP: 10})
			if stats != (SenderStats{}) || len(samples) != 20 {
				t.Fatalf("%d samples, %+v", len(samples), stats)
			}
			for i, s := range samples {
				if s.Lost || s.ReflectorNumber != uint32(i) || s.TTL != 64 || s.Counters == nil || s.Service == nil ||
					s.Clocks == nil {
					t.Fatalf("sample %d: %+v", i, s)
				}
				if s.Counters.SenderSent != uint32(i+1) || s.Counters.ReflectorReceived != uint32(i+1) ||
					s.Service.Received != 10 {
					t.Errorf("sample %d: counters %+v, service %+v", i, *s.Counters, *s.Service)
				}
				if d := s.ReflectorReceived.Sub(s.Sent); d < -time.Millisecond || d > time.Second {
					t.Errorf("sample %d: the way there took %v", i, d)
				}
			}
		})
	}
	t.Run("another key", func(t *testing.T) {
		at := suiteReflector(t, "-A", "A", "--hmac-key", hex.EncodeToString([]byte("another key of 16")), "--require-hmac")
		time.Sleep(time.Second)
		samples, _ := send(t, at, SenderOptions{Interval: 10 * time.Millisecond, Timeout: 300 * time.Millisecond, Count: 5,
			Key: testKey})
		for _, s := range samples {
			if !s.Lost {
				t.Errorf("a request with a wrong key is answered: %+v", s)
			}
		}
	})
}

func TestStampSuiteSends(t *testing.T) {
	for _, c := range []struct {
		name      string
		key       Key
		arguments []string
	}{
		{"open", nil, []string{"--direct-measurement", "--timestamp-info", "--cos", "--dscp", "10"}},
		{"open with PTP times", nil, []string{"-K", "PTP"}},
		{"authenticated", testKey, []string{"-A", "A", "--hmac-key", hex.EncodeToString(testKey), "--direct-measurement",
			"--timestamp-info", "--verify-tlv-hmac"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, at := runReflector(t, ReflectorOptions{Peer: anybody(c.key)})
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			out, err := exec.CommandContext(ctx, stampSuite(t), append([]string{"-r", "127.0.0.1", "-S", "127.0.0.1", "-p",
				fmt.Sprint(at.Port()), "-c", "20", "-d", "20ms", "--ssid", "5", "--output-format", "json"},
				c.arguments...)...).Output()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			var report struct {
				Measurements struct {
					Validation struct {
						Rejected int            `json:"rejected_replies"`
						HMAC     map[string]int `json:"hmac"`
						Flags    map[string]int `json:"flags"`
					} `json:"tlv_validation"`
				} `json:"measurements"`
			}
			if err := json.Unmarshal(out, &report); err != nil {
				t.Fatalf("its report is no JSON: %v: %s", err, out)
			}
			v := report.Measurements.Validation
			wrong := v.Rejected + v.HMAC["missing"] + v.HMAC["unverified"] + v.HMAC["failed"]
			for _, n := range v.Flags {
				wrong += n
			}
			if wrong != 0 || c.key != nil && v.HMAC["verified"] != 20 {
				t.Errorf("it found fault with our replies: %+v", v)
			}
			if s := r.Stats(); s != (ReflectorStats{Answered: 20}) {
				t.Errorf("the reflector counted %+v, want 20 answers", s)
			}
		})
	}
}
