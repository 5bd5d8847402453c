package energy

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"outsight/internal/model"
)

const (
	// maxFileBytes is more than any file has that is read here; cpuinfo is read up to it.
	maxFileBytes = 64 << 10
	// plausibleWatts bounds what a zone may draw: what seems to be more was no wrap-around but a counter
	// that began anew.
	plausibleWatts = 20_000
	// patience is how many readings of a file may fail before the meter is given up, unless it is gone.
	patience = 3
)

func readSmall(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxFileBytes))
}

// parseCount parses a file with one number.
func parseCount(text []byte) (uint64, error) {
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("got %.40q, want a number", text)
	}
	return n, nil
}

// counter is a file that counts microjoules and wraps around.
type counter struct {
	path      string
	packageID int
	domain    Domain
	source    Source
	// wrapsAt is the greatest value before it is 0 again; 0 where that is not known.
	wrapsAt uint64
	last    uint64
	at      time.Time
	failed  int
	gaps    uint64
}

func (c *counter) open(read func(string) ([]byte, error)) error {
	n, err := readCount(read, c.path)
	c.last = n
	return err
}

func readCount(read func(string) ([]byte, error), path string) (uint64, error) {
	text, err := read(path)
	if err != nil {
		return 0, fmt.Errorf("reading energy: %w", err)
	}
	n, err := parseCount(text)
	if err != nil {
		return 0, fmt.Errorf("reading energy of %s: %w", path, err)
	}
	return n, nil
}

// gained is what it counted since the last reading. A reading that fails is made up for by the next one.
func (c *counter) gained(read func(string) ([]byte, error), now time.Time) (gain, error) {
	g := gain{packageID: c.packageID, domain: c.domain, source: c.source}
	n, err := readCount(read, c.path)
	if err != nil {
		if c.failed++; c.failed >= patience || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
			return g, err
		}
		return g, nil
	}
	passed := now.Sub(c.at)
	g.microJoules = c.since(n, passed)
	c.last, c.at, c.failed = n, now, 0
	return g, nil
}

// since is what was counted between the last value and n.
func (c *counter) since(n uint64, passed time.Duration) uint64 {
	most := uint64(max(passed, time.Second).Seconds() * plausibleWatts * 1e6)
	if c.at.IsZero() {
		return 0
	}
	if n >= c.last && n-c.last <= most {
		return n - c.last
	}
	if n < c.last && c.last <= c.wrapsAt {
		if wrapped := c.wrapsAt - c.last + n + 1; wrapped <= most {
			return wrapped
		}
	}
	c.gaps++
	return 0
}

// counters is a meter of such files.
type counters struct {
	source   Source
	detail   string
	readFile func(string) ([]byte, error)
	zones    []*counter
}

func (m *counters) read(now time.Time, _ []model.PackageTime) ([]gain, error) {
	var all []gain
	for _, z := range m.zones {
		g, err := z.gained(m.readFile, now)
		if err != nil {
			return nil, err
		}
		all = append(all, g)
	}
	return all, nil
}

func (m *counters) describe() model.EnergyMeter {
	d := model.EnergyMeter{Source: string(m.source), Detail: m.detail}
	for _, z := range m.zones {
		if !slices.Contains(d.Domains, string(z.domain)) {
			d.Domains = append(d.Domains, string(z.domain))
		}
	}
	slices.Sort(d.Domains)
	return d
}

func (m *counters) gaps() (sum uint64) {
	for _, z := range m.zones {
		sum += z.gaps
	}
	return sum
}

func (m *counters) close() error { return nil }

// openPowercap finds the zones of RAPL, which Intel's and AMD's CPUs have: intel-rapl:0 is a package,
// intel-rapl:0:1 a part of it. Zones of intel-rapl-mmio are the same packages by another way.
func openPowercap(o Options) (meter, error) {
	root := filepath.Join(o.SysFS, "class/powercap")
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil, fmt.Errorf("no RAPL: %w", err)
	}
	m := &counters{source: Powercap, detail: "RAPL", readFile: o.readFile}
	var errs []error
	packages := map[string]int{}
	names := map[string]string{}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "intel-rapl:") {
			continue
		}
		name, err := o.readFile(filepath.Join(root, e.Name(), "name"))
		if err != nil {
			errs = append(errs, fmt.Errorf("reading the name of a zone: %w", err))
			continue
		}
		names[e.Name()] = strings.TrimSpace(string(name))
		if _, id, ok := parseZone(names[e.Name()]); ok && strings.Count(e.Name(), ":") == 1 {
			packages[e.Name()] = id
		}
	}
	for _, e := range entries {
		name, found := names[e.Name()]
		domain, id, ok := parseZone(name)
		if !found || !ok {
			continue
		}
		parts := strings.Split(e.Name(), ":")
		if within := domain == Core || domain == DRAM; within != (len(parts) > 2) {
			continue
		} else if within {
			if id, ok = packages[strings.Join(parts[:2], ":")]; !ok {
				errs = append(errs, fmt.Errorf("zone %s has no package", e.Name()))
				continue
			}
		}
		z := &counter{path: filepath.Join(root, e.Name(), "energy_uj"), packageID: id, domain: domain, source: Powercap}
		z.wrapsAt, _ = readCount(o.readFile, filepath.Join(root, e.Name(), "max_energy_range_uj"))
		if err := z.open(o.readFile); err != nil {
			errs = append(errs, err)
			continue
		}
		m.zones = append(m.zones, z)
	}
	if len(m.zones) == 0 {
		return nil, errors.Join(append(errs, fmt.Errorf("no RAPL zone in %s can be read", root))...)
	}
	if err := errors.Join(errs...); err != nil {
		o.Logger.Warn("some RAPL zones are left out", "error", err)
	}
	return m, nil
}

// parseZone reports what a zone's name stands for: package-1, package-1-die-0, core, dram, psys. The
// package of a part is that of the zone that it is in. The zone uncore is left out: it is in the package.
func parseZone(name string) (domain Domain, packageID int, ok bool) {
	switch name {
	case "core":
		return Core, 0, true
	case "dram":
		return DRAM, 0, true
	case "psys":
		return PSys, -1, true
	}
	number, found := strings.CutPrefix(name, "package-")
	if !found {
		return "", 0, false
	}
	number, _, _ = strings.Cut(number, "-die-")
	id, err := strconv.ParseUint(number, 10, 16)
	return Package, int(id), err == nil
}
