package energy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"outsight/internal/model"
	"outsight/internal/topology"
)

// event is an open perf event.
type event interface {
	Read([]byte) (int, error)
	Close() error
}

// eventOpener opens an event of a PMU on a CPU.
type eventOpener func(pmu uint32, config uint64, cpu int) (event, error)

type eventFile int

func (e eventFile) Read(b []byte) (int, error) { return unix.Read(int(e), b) }
func (e eventFile) Close() error               { return unix.Close(int(e)) }

func openEvent(pmu uint32, config uint64, cpu int) (event, error) {
	a := unix.PerfEventAttr{Type: pmu, Config: config, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{}))}
	fd, err := unix.PerfEventOpen(&a, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
	return eventFile(fd), err
}

// perfMeter reads RAPL by the PMU "power".
type perfMeter struct{ zones []*perfZone }

type perfZone struct {
	event     event
	packageID int
	domain    Domain
	// scale is joules per count.
	scale float64
	last  uint64
}

var perfEvents = map[string]Domain{"energy-cores": Core, "energy-pkg": Package, "energy-ram": DRAM, "energy-psys": PSys}

// openPerf opens each event that there is on one CPU of each package, as the PMU's cpumask says.
func openPerf(o Options) (meter, error) {
	root := filepath.Join(o.SysFS, "bus/event_source/devices/power")
	pmu, err := readCount(o.readFile, filepath.Join(root, "type"))
	if err != nil {
		return nil, fmt.Errorf("no PMU power: %w", err)
	}
	mask, err := o.readFile(filepath.Join(root, "cpumask"))
	if err != nil {
		return nil, fmt.Errorf("reading the CPUs of the PMU power: %w", err)
	}
	cpus, err := topology.ParseList(string(mask))
	if err != nil {
		return nil, fmt.Errorf("reading the CPUs of the PMU power: %w", err)
	}
	m := &perfMeter{}
	var errs []error
	for name, domain := range perfEvents {
		text, err := o.readFile(filepath.Join(root, "events", name))
		if err != nil {
			continue // this CPU does not measure it
		}
		config, err := parseEvent(string(text))
		if err != nil {
			errs = append(errs, fmt.Errorf("reading event %s: %w", name, err))
			continue
		}
		scale, err := parseScale(o, filepath.Join(root, "events", name))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for i, cpu := range cpus {
			z := &perfZone{domain: domain, scale: scale, packageID: packageOf(o, cpu)}
			if domain == PSys {
				if z.packageID = -1; i > 0 {
					break // all of them count the same
				}
			}
			if z.event, err = o.openEvent(uint32(pmu), config, cpu); err != nil {
				errs = append(errs, fmt.Errorf("opening %s on CPU %d: %w", name, cpu, err))
				continue
			}
			if _, err := z.gained(); err != nil {
				errs = append(errs, err, z.event.Close())
				continue
			}
			m.zones = append(m.zones, z)
		}
	}
	if len(m.zones) == 0 {
		return nil, errors.Join(append(errs, errors.New("the PMU power has no event that can be opened"))...)
	}
	if err := errors.Join(errs...); err != nil {
		o.Logger.Warn("some events of RAPL are left out", "error", err)
	}
	slices.SortFunc(m.zones, func(a, b *perfZone) int {
		return strings.Compare(string(a.domain)+strconv.Itoa(a.packageID), string(b.domain)+strconv.Itoa(b.packageID))
	})
	return m, nil
}

// packageOf is the package of a CPU, 0 where it is not known.
func packageOf(o Options, cpu int) int {
	n, err := readCount(o.readFile, filepath.Join(o.SysFS, "devices/system/cpu/cpu"+strconv.Itoa(cpu),
		"topology/physical_package_id"))
	if err != nil || n > topology.MaxCPUs {
		return 0
	}
	return int(n)
}

// parseEvent parses what a PMU says of an event: "event=0x02".
func parseEvent(text string) (uint64, error) {
	number, found := strings.CutPrefix(strings.TrimSpace(text), "event=")
	n, err := strconv.ParseUint(number, 0, 64)
	if !found || err != nil {
		return 0, fmt.Errorf("got %.40q, want event= and a number", text)
	}
	return n, nil
}

// parseScale reads how many joules a count is.
func parseScale(o Options, event string) (float64, error) {
	unit, err := o.readFile(event + ".unit")
	if err != nil || strings.TrimSpace(string(unit)) != "Joules" {
		return 0, fmt.Errorf("reading the unit of %s: got %.40q (%v), want Joules", filepath.Base(event), unit, err)
	}
	text, err := o.readFile(event + ".scale")
	if err != nil {
		return 0, fmt.Errorf("reading the scale of %s: %w", filepath.Base(event), err)
	}
	scale, err := strconv.ParseFloat(strings.TrimSpace(string(text)), 64)
	if err != nil || !(scale > 0 && scale <= 1e-6) {
		return 0, fmt.Errorf("reading the scale of %s: got %.40q, want a number up to 1e-6", filepath.Base(event), text)
	}
	return scale, nil
}

// gained is in microjoules.
func (z *perfZone) gained() (uint64, error) {
	var b [8]byte
	n, err := z.event.Read(b[:])
	if err != nil || n != len(b) {
		return 0, fmt.Errorf("reading the event of %s in package %d: got %d bytes: %w", z.domain, z.packageID, n,
			cmpError(err))
	}
	total := uint64(float64(binary.LittleEndian.Uint64(b[:])) * z.scale * 1e6)
	gained := less(total, z.last)
	z.last = total
	return gained, nil
}

// cmpError is err, or what a read of too few bytes means.
func cmpError(err error) error {
	if err == nil {
		return errors.New("the event has ended")
	}
	return err
}

func (m *perfMeter) read(time.Time, []model.PackageTime) ([]gain, error) {
	var all []gain
	for _, z := range m.zones {
		n, err := z.gained()
		if err != nil {
			return nil, err
		}
		all = append(all, gain{z.packageID, z.domain, Perf, n})
	}
	return all, nil
}

func (m *perfMeter) describe() model.EnergyMeter {
	d := model.EnergyMeter{Source: string(Perf), Detail: "RAPL"}
	for _, z := range m.zones {
		if !slices.Contains(d.Domains, string(z.domain)) {
			d.Domains = append(d.Domains, string(z.domain))
		}
	}
	return d
}

func (m *perfMeter) gaps() uint64 { return 0 }

func (m *perfMeter) close() error {
	var errs []error
	for _, z := range m.zones {
		errs = append(errs, z.event.Close())
	}
	return errors.Join(errs...)
}
