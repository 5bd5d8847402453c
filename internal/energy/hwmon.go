package energy

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"outsight/internal/model"
)

// maxSensors bounds the files of a chip that are looked at.
const maxSensors = 64

// powerSensor is a file with microwatts, which are summed up over time.
type powerSensor struct {
	path      string
	packageID int
	domain    Domain
	at        time.Time
	microwatt uint64
	failed    int
	// remainder is what is left of a microjoule, in microseconds times microwatts.
	remainder uint64
}

// hwmonMeter reads sensors: energy counters of AMD's CPUs, power of AMD's older ones, and the meters of
// power supplies of ACPI. Other chips (disks, graphics) say nothing about CPUs.
type hwmonMeter struct {
	counters counters
	sensors  []*powerSensor
	readFile func(string) ([]byte, error)
	chips    []string
}

func openHWMon(o Options) (meter, error) {
	root := filepath.Join(o.SysFS, "class/hwmon")
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil, fmt.Errorf("no sensors: %w", err)
	}
	m := &hwmonMeter{counters: counters{source: HWMon, readFile: o.readFile}, readFile: o.readFile}
	var errs []error
	older := 0
	for _, e := range entries {
		chip := filepath.Join(root, e.Name())
		text, err := o.readFile(filepath.Join(chip, "name"))
		if err != nil {
			continue
		}
		before := len(m.counters.zones) + len(m.sensors)
		switch name := strings.TrimSpace(string(text)); name {
		case "amd_energy":
			errs = append(errs, m.addSockets(o, chip))
		case "fam15h_power":
			errs = append(errs, m.addPower(o, chip, "power1_input", older, Package))
			older++
		case "power_meter":
			errs = append(errs, m.addPower(o, chip, "power1_average", -1, PSys))
		}
		if len(m.counters.zones)+len(m.sensors) > before {
			m.chips = append(m.chips, strings.TrimSpace(string(text)))
		}
	}
	if len(m.counters.zones)+len(m.sensors) == 0 {
		return nil, errors.Join(append(errs, fmt.Errorf("no sensor in %s measures CPUs or the machine", root))...)
	}
	return m, nil
}

// addSockets adds the counters that amd_energy labels Esocket0, Esocket1 and so on.
func (m *hwmonMeter) addSockets(o Options, chip string) error {
	var errs []error
	for i := 1; i <= maxSensors; i++ {
		label, err := o.readFile(filepath.Join(chip, fmt.Sprintf("energy%d_label", i)))
		if err != nil {
			break
		}
		number, found := strings.CutPrefix(strings.TrimSpace(string(label)), "Esocket")
		id, err := strconv.ParseUint(number, 10, 16)
		if !found || err != nil {
			continue
		}
		z := &counter{path: filepath.Join(chip, fmt.Sprintf("energy%d_input", i)), packageID: int(id), domain: Package,
			source: HWMon}
		if err := z.open(o.readFile); err != nil {
			errs = append(errs, err)
			continue
		}
		m.counters.zones = append(m.counters.zones, z)
	}
	return errors.Join(errs...)
}

func (m *hwmonMeter) addPower(o Options, chip, file string, packageID int, domain Domain) error {
	s := &powerSensor{path: filepath.Join(chip, file), packageID: packageID, domain: domain}
	n, err := readCount(o.readFile, s.path)
	if err != nil {
		return err
	}
	s.microwatt = n
	m.sensors = append(m.sensors, s)
	return nil
}

// gained is the mean of the power at both ends of the interval, over its length.
func (s *powerSensor) gained(read func(string) ([]byte, error), now time.Time) (uint64, error) {
	n, err := readCount(read, s.path)
	if err != nil {
		if s.failed++; s.failed >= patience || errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) {
			return 0, err
		}
		return 0, nil
	}
	n = min(n, plausibleWatts*1e6)
	var microJoules uint64
	if !s.at.IsZero() {
		passed := min(max(now.Sub(s.at), 0), 10*time.Minute)
		// Ten minutes of 20 kW are just within 64 bits in these units.
		drawn := (s.microwatt+n)/2*uint64(passed.Microseconds()) + s.remainder
		microJoules, s.remainder = drawn/1e6, drawn%1e6
	}
	s.microwatt, s.at, s.failed = n, now, 0
	return microJoules, nil
}

func (m *hwmonMeter) read(now time.Time, packages []model.PackageTime) ([]gain, error) {
	all, err := m.counters.read(now, packages)
	if err != nil {
		return nil, err
	}
	for _, s := range m.sensors {
		n, err := s.gained(m.readFile, now)
		if err != nil {
			return nil, err
		}
		all = append(all, gain{s.packageID, s.domain, HWMon, n})
	}
	return all, nil
}

func (m *hwmonMeter) describe() model.EnergyMeter {
	d := m.counters.describe()
	d.Detail = strings.Join(m.chips, ", ")
	for _, s := range m.sensors {
		d.Domains = append(d.Domains, string(s.domain))
	}
	return d
}

func (m *hwmonMeter) gaps() uint64 { return m.counters.gaps() }
func (m *hwmonMeter) close() error { return nil }
