package budget

import (
	"fmt"
	"strconv"
	"strings"
)

// Limit is a share of the CPU time of a host, all its CPUs together being 1; 0 is no limit. It is a
// flag's value, as in "1%".
type Limit float64

// String is a percentage; empty if there is no limit.
func (l *Limit) String() string {
	if l == nil || *l == 0 {
		return ""
	}
	return strconv.FormatFloat(100*float64(*l), 'g', 6, 64) + "%"
}

// Set reads a percentage above 0 and up to 100.
func (l *Limit) Set(text string) error {
	number, percent := strings.CutSuffix(strings.TrimSpace(text), "%")
	share, err := strconv.ParseFloat(number, 64)
	if err != nil || !percent || !(share > 0 && share <= 100) {
		return fmt.Errorf("%q is no share of the host's CPU time: want a percentage, as in 1%%", text)
	}
	*l = Limit(share / 100)
	return nil
}

// Type is what help calls the value.
func (l *Limit) Type() string { return "percentage" }
