package pull

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"time"
)

// Bounds of Host.Interval.
const (
	LeastInterval = 10 * time.Millisecond
	MostInterval  = time.Minute
)

// Host is one that is read.
type Host struct {
	// Address is HOST:PORT where its regions are offered (--region-listen of its agent).
	Address string
	// Interval between two readings.
	Interval time.Duration
	// Tenant whose host it is; empty where there are none.
	Tenant string
}

// ParseHosts reads hosts, one a line: HOST:PORT, and after spaces interval=100ms and tenant=NAME where they are not those
// of all. Empty lines and those that begin with # are none.
func ParseHosts(text string, interval time.Duration) (hosts []Host, err error) {
	lines := bufio.NewScanner(strings.NewReader(text))
	for number := 1; lines.Scan(); number++ {
		words := strings.Fields(lines.Text())
		if len(words) == 0 || words[0][0] == '#' {
			continue
		}
		h := Host{Address: words[0], Interval: interval}
		for _, word := range words[1:] {
			switch name, value, _ := strings.Cut(word, "="); name {
			case "interval":
				if h.Interval, err = time.ParseDuration(value); err != nil {
					return nil, fmt.Errorf("line %d: %w", number, err)
				}
			case "tenant":
				h.Tenant = value
			default:
				return nil, fmt.Errorf("line %d: %q, want interval= or tenant=", number, word)
			}
		}
		hosts = append(hosts, h)
	}
	return hosts, lines.Err()
}

// CheckHosts says what is wrong with hosts.
func CheckHosts(hosts []Host) error {
	known := map[string]bool{}
	for _, h := range hosts {
		if host, port, err := net.SplitHostPort(h.Address); err != nil || host == "" || port == "" {
			return fmt.Errorf("%q, want HOST:PORT", h.Address)
		}
		if h.Interval < LeastInterval || h.Interval > MostInterval {
			return fmt.Errorf("%s: an interval of %v, want %v to %v", h.Address, h.Interval, LeastInterval, MostInterval)
		}
		if known[h.Address] {
			return fmt.Errorf("%s is there twice", h.Address)
		}
		known[h.Address] = true
	}
	return nil
}
