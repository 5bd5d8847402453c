package energy

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"outsight/internal/model"
)

// Domain is a part of the machine whose energy is measured.
type Domain string

// The domains: the cores of a package, all of a package, its memory, and the whole machine.
const (
	Core    Domain = "core"
	Package Domain = "package"
	DRAM    Domain = "dram"
	PSys    Domain = "psys"
)

// Source is a kind of meter.
type Source string

// The meters, in the order in which they are tried.
const (
	Powercap Source = "powercap"
	Perf     Source = "perf"
	HWMon    Source = "hwmon"
	Model    Source = "model"
)

// gain is the energy that a zone used between two readings.
type gain struct {
	// packageID is the kernel's number of the package, -1 for the whole machine.
	packageID   int
	domain      Domain
	source      Source
	microJoules uint64
}

// meter measures since it was opened, or read last. A meter that answers with an error is given up.
type meter interface {
	read(now time.Time, packages []model.PackageTime) ([]gain, error)
	describe() model.EnergyMeter
	// gaps is how many intervals of single zones could not be read.
	gaps() uint64
	close() error
}

const (
	// stuckReadings is after how many readings without any energy a meter counts as stopped. RAPL moves
	// every millisecond, whatever the machine does.
	stuckReadings = 10
	// retryEvery is how often a better meter than the one at work is looked for.
	retryEvery = time.Minute
)

// monitor reads the best meter that works.
type monitor struct {
	options      Options
	coefficients coefficients
	openers      []opener
	// at is the index of the meter at work among the openers.
	at    int
	meter meter
	// why has, for each opener, the reason why it is not at work.
	why   []error
	still int
	// candidate, at index better, was opened again and must show that it moves.
	candidate meter
	better    int
	waited    int
	retried   time.Time

	// past are the gaps of meters that are gone, gaps those of all.
	past  uint64
	gaps  atomic.Uint64
	state atomic.Pointer[model.EnergyMeter]
}

type opener struct {
	source Source
	open   func(Options) (meter, error)
}

func newMonitor(o Options) *monitor {
	m := &monitor{options: o, coefficients: findCoefficients(o)}
	m.openers = []opener{
		{Powercap, openPowercap},
		{Perf, openPerf},
		{HWMon, openHWMon},
		{Model, func(Options) (meter, error) { return &modelMeter{coefficients: m.coefficients}, nil }},
	}
	m.why = make([]error, len(m.openers))
	m.openFrom(0)
	return m
}

// openFrom opens the first meter that works, from an index on. The last one always does.
func (m *monitor) openFrom(first int) {
	for m.at = first; ; m.at++ {
		opened, err := m.openers[m.at].open(m.options)
		if err == nil {
			m.meter, m.still = opened, 0
			break
		}
		m.why[m.at] = err
	}
	m.publish()
}

// publish stores the state for readers.
func (m *monitor) publish() {
	d := m.meter.describe()
	for i := range m.at {
		d.Others = append(d.Others, fmt.Sprintf("%s: %v", m.openers[i].source, m.why[i]))
	}
	m.state.Store(&d)
}

func (m *monitor) describe() model.EnergyMeter { return *m.state.Load() }

func (m *monitor) feature() model.Feature {
	d := m.describe()
	f := model.Feature{Name: "energy/" + d.Source, Purpose: "energy per container", State: model.FeatureWorks}
	if d.Source == string(Model) {
		f.Reason = fmt.Sprintf("estimated from utilisation (%s), off by up to %.0f %%", d.Detail, 100*d.Error)
		f.Remedy = "a machine with RAPL (intel_rapl_common, /sys/class/powercap), or sensors of hwmon"
	}
	for _, other := range d.Others {
		f.Reason += "; " + other
	}
	return f
}

// read is what each zone used since the last reading. A meter that fails is replaced by the next; the
// interval in which it failed is not measured.
func (m *monitor) read(now time.Time, packages []model.PackageTime) []gain {
	defer func() { m.gaps.Store(m.past + m.meter.gaps()) }()
	gained, err := m.meter.read(now, packages)
	if err == nil && m.at < len(m.openers)-1 {
		if energyOf(gained) > 0 {
			m.still = 0
		} else if m.still++; m.still >= stuckReadings {
			err = fmt.Errorf("it has not moved for %d readings", m.still)
			m.past += uint64(m.still) - 1
		}
	}
	if err != nil {
		m.past += m.meter.gaps() + 1
		m.replace(err)
		// So that it knows where its first interval begins.
		if _, err := m.meter.read(now, packages); err != nil {
			m.replace(err)
		}
		m.retried = now
		return nil
	}
	if better := m.tryBetter(now, packages); better != nil {
		return better
	}
	return gained
}

// replace gives the meter up for the next one.
func (m *monitor) replace(why error) {
	err := errors.Join(why, m.meter.close())
	m.options.Logger.Warn("an energy meter fails, the next one is taken", "meter", m.openers[m.at].source, "error", err)
	m.why[m.at] = why
	m.dropCandidate()
	m.openFrom(m.at + 1)
	m.options.Logger.Info("energy is measured by another meter", "meter", m.openers[m.at].source)
}

// tryBetter looks whether a meter that failed, or was not there, works by now. It takes over with the
// first energy that it tells, of the same interval.
func (m *monitor) tryBetter(now time.Time, packages []model.PackageTime) []gain {
	if m.candidate == nil {
		if m.retried.IsZero() {
			m.retried = now
		}
		if m.at == 0 || now.Sub(m.retried) < retryEvery {
			return nil
		}
		m.retried = now
		for i := range m.at {
			opened, err := m.openers[i].open(m.options)
			if err != nil {
				continue
			}
			if _, err := opened.read(now, packages); err != nil {
				opened.close()
				continue
			}
			m.candidate, m.better, m.waited = opened, i, 0
			return nil
		}
		return nil
	}
	gained, err := m.candidate.read(now, packages)
	m.waited++
	switch {
	case err != nil || energyOf(gained) == 0 && m.waited >= stuckReadings:
		m.dropCandidate()
		return nil
	case energyOf(gained) == 0:
		return nil
	case m.waited > 1:
		// What it measured is of more than this interval.
		for i := range gained {
			gained[i].microJoules /= uint64(m.waited)
		}
	}
	m.past += m.meter.gaps()
	if err := m.meter.close(); err != nil {
		m.options.Logger.Warn("closing an energy meter", "error", err)
	}
	m.meter, m.at, m.still, m.candidate = m.candidate, m.better, 0, nil
	m.publish()
	m.options.Logger.Info("a better energy meter works again", "meter", m.openers[m.at].source)
	return gained
}

func (m *monitor) dropCandidate() {
	if m.candidate != nil {
		if err := m.candidate.close(); err != nil {
			m.options.Logger.Warn("closing an energy meter", "error", err)
		}
		m.candidate = nil
	}
}

func (m *monitor) close() error {
	m.dropCandidate()
	return m.meter.close()
}

func energyOf(gained []gain) (sum uint64) {
	for _, g := range gained {
		sum += g.microJoules
	}
	return sum
}
