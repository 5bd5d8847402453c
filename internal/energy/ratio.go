package energy

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
)

// DefaultHTRatio is the power of a core with two busy hardware threads over that with one, where
// nothing else is said: that of Sandy Bridge and Ivy Bridge.
const DefaultHTRatio = 1.1

// Ratios are HT ratios by CPU model.
type Ratios []Ratio

// Ratio is that of CPUs whose name contains Model; an empty Model is all others.
type Ratio struct {
	Model string
	Value float64
}

// ParseRatios parses "1.1" or "E5-26=1.1,EPYC=1.25,1.15": parts of CPU model names with the ratio of
// each, and one for all others. A ratio is from 1 to 2.
func ParseRatios(text string) (Ratios, error) {
	var all Ratios
	for part := range strings.SplitSeq(text, ",") {
		name, value, named := strings.Cut(part, "=")
		if !named {
			name, value = "", name
		}
		ratio, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		if err != nil || !(ratio >= 1 && ratio <= 2) || named && strings.TrimSpace(name) == "" {
			return nil, fmt.Errorf("HT ratio %q: want a number from 1 to 2, or MODEL=number", part)
		}
		all = append(all, Ratio{strings.TrimSpace(name), ratio})
	}
	return all, nil
}

// Of is the ratio of a CPU model, by its name: the first that fits, then the one for all others.
func (r Ratios) Of(name string) float64 {
	others := DefaultHTRatio
	for _, ratio := range r {
		switch {
		case ratio.Model == "":
			others = ratio.Value
		case strings.Contains(strings.ToLower(name), strings.ToLower(ratio.Model)):
			return ratio.Value
		}
	}
	return others
}

// CPUName is what the first CPU calls itself, in procfs at root (default /proc); empty if it does not.
func CPUName(root string) string {
	text, err := readSmall(filepath.Join(cmp.Or(root, "/proc"), "cpuinfo"))
	if err != nil {
		return ""
	}
	return parseCPU(string(text)).name
}
