package container

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"syscall"

	"outsight/internal/model"
)

// Pressure stall information (PSI) is kept for groups of the v2 hierarchy alone, whatever controllers it has; on a
// hybrid host, containers have a group there, too.

// pressureFiles are the files and where their numbers go.
var pressureFiles = [...]struct {
	kind fileKind
	of   func(*model.PressureCounters) *model.Pressure
}{
	{cpuPressure, func(p *model.PressureCounters) *model.Pressure { return &p.CPU }},
	{memoryPressure, func(p *model.PressureCounters) *model.Pressure { return &p.Memory }},
	{ioPressure, func(p *model.PressureCounters) *model.Pressure { return &p.IO }},
}

// noPressure is why this host has no PSI for groups; empty where it has.
func noPressure(l *Layout, procRoot string) string {
	if l.unified == "" {
		return "no cgroup v2 hierarchy is mounted"
	}
	if _, err := os.Stat(procRoot + "/pressure/cpu"); err != nil {
		return "the kernel keeps no pressure stall information"
	}
	return ""
}

func (f *Files) readPressure(c *model.Container, g *groupFiles) error {
	all := &g.last.pressure
	if f.use(g, pressureFigure) {
		read := g.kernel.figures.Pressure
		for _, file := range pressureFiles {
			*file.of(all) = grown(*file.of(all), *file.of(&read))
		}
		return g.keep(pressureNumbers, nil)
	}
	for i, file := range pressureFiles {
		if g.pressure[i].skips(f.turn, g.first) {
			continue
		}
		p, err := f.pressureInFile(c, g, file.kind)
		// It stays unknown where it is switched off for this group.
		if err != nil && !errors.Is(err, errAbsent) {
			g.pressure[i] = 0
			return g.keep(pressureNumbers, err)
		}
		last := file.of(all)
		p = grown(*last, p)
		g.pressure[i].note(p == *last)
		*last = p
	}
	if !all.CPU.Known && !all.Memory.Known && !all.IO.Known {
		return g.keep(pressureNumbers, errAbsent)
	}
	return g.keep(pressureNumbers, nil)
}

// grown is what is told after last: what the kernel program says may be ahead of the file.
func grown(last, now model.Pressure) model.Pressure {
	if now.Known {
		now.WaitingNS, now.StalledNS = max(now.WaitingNS, last.WaitingNS), max(now.StalledNS, last.StalledNS)
	}
	return now
}

// pressureInFile is errAbsent where there is none, or it is switched off for the group.
func (f *Files) pressureInFile(c *model.Container, g *groupFiles, k fileKind) (model.Pressure, error) {
	text, err := f.text(c, g, k)
	if errors.Is(err, syscall.EOPNOTSUPP) {
		return model.Pressure{}, errAbsent
	}
	if err != nil {
		return model.Pressure{}, err
	}
	p, err := parsePressure(text)
	if err != nil {
		return p, f.failed(c, k, err)
	}
	return p, nil
}

// pressureInFiles is what the kernel program's pressure is compared with.
func (f *Files) pressureInFiles(c *model.Container, g *groupFiles) (all model.PressureCounters, err error) {
	for _, file := range pressureFiles {
		if *file.of(&all), err = f.pressureInFile(c, g, file.kind); err != nil {
			return all, err
		}
	}
	return all, nil
}

var (
	someLine  = []byte("some")
	fullLine  = []byte("full")
	totalWord = []byte("total=")
)

// parsePressure reads a pressure file: a line "some avg10=0.00 avg60=0.00 avg300=0.00 total=1234", in microseconds, and
// one that begins with "full", which older kernels (before 5.13) do not have for the CPU.
func parsePressure(text []byte) (p model.Pressure, err error) {
	l, err := newLines(text)
	if err != nil {
		return p, err
	}
	for line, ok := l.next(); ok; line, ok = l.next() {
		var into *uint64
		kind, rest := word(line)
		switch {
		case bytes.Equal(kind, someLine):
			into = &p.WaitingNS
		case bytes.Equal(kind, fullLine):
			into = &p.StalledNS
		default:
			continue
		}
		found := false
		for len(rest) > 0 && !found {
			var pair, number []byte
			pair, rest = word(rest)
			if number, found = bytes.CutPrefix(pair, totalWord); !found {
				continue
			}
			if *into, err = parseUint(number); err != nil {
				return model.Pressure{}, fmt.Errorf("line %q: %w", line, err)
			}
			*into *= 1000
		}
		if !found {
			return model.Pressure{}, fmt.Errorf("line %q has no total", line)
		}
		p.Known = p.Known || into == &p.WaitingNS
	}
	if !p.Known {
		return model.Pressure{}, errors.New("no line begins with some")
	}
	return p, nil
}
