package energy

import (
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"outsight/internal/model"
)

// coefficients are what a hardware thread's share of a whole server draws, idle and busy.
type coefficients struct {
	family                       string
	minMicroWatts, maxMicroWatts uint64
	// err is the relative error.
	err float64
}

// The coefficients of Cloud Carbon Footprint (github.com/cloud-carbon-footprint/ccf-coefficients,
// output/coefficients-aws-use.csv of March 2026): means, over the published results of SPECpower_ssj2008,
// of the watts of a whole server, idle and at full load, per hardware thread. Single results are up to
// 41 % off the mean of their family (an EPYC 9754 at 1.34 W of 2.28 W).
const familyError = 0.45

// Where a family has no mean of its own, or one that is of other machines (that of EPYC 5 is 9 W, and
// the result of an EPYC 9965 is 1.04 W), families are up to 80 % apart.
const foreignError = 0.8

var families = []struct {
	vendor string
	family int
	// from and to are the models, steppingBelow the steppings; 0 is all.
	from, to, steppingFrom, steppingBelow int
	coefficients
}{
	{"GenuineIntel", 6, 0x2a, 0x2a, 0, 0, coefficients{"Sandy Bridge", 2212243, 8630871, familyError}},
	{"GenuineIntel", 6, 0x2d, 0x2d, 0, 0, coefficients{"Sandy Bridge", 2212243, 8630871, familyError}},
	{"GenuineIntel", 6, 0x3a, 0x3a, 0, 0, coefficients{"Ivy Bridge", 1707431, 5556944, familyError}},
	{"GenuineIntel", 6, 0x3e, 0x3e, 0, 0, coefficients{"Ivy Bridge", 1707431, 5556944, familyError}},
	{"GenuineIntel", 6, 0x3c, 0x3c, 0, 0, coefficients{"Haswell", 1857353, 5595384, familyError}},
	{"GenuineIntel", 6, 0x3f, 0x3f, 0, 0, coefficients{"Haswell", 1857353, 5595384, familyError}},
	{"GenuineIntel", 6, 0x45, 0x46, 0, 0, coefficients{"Haswell", 1857353, 5595384, familyError}},
	{"GenuineIntel", 6, 0x3d, 0x3d, 0, 0, coefficients{"Broadwell", 712834, 3685328, familyError}},
	{"GenuineIntel", 6, 0x47, 0x47, 0, 0, coefficients{"Broadwell", 712834, 3685328, familyError}},
	{"GenuineIntel", 6, 0x4f, 0x4f, 0, 0, coefficients{"Broadwell", 712834, 3685328, familyError}},
	{"GenuineIntel", 6, 0x56, 0x56, 0, 0, coefficients{"Broadwell", 712834, 3685328, familyError}},
	{"GenuineIntel", 6, 0x55, 0x55, 0, 5, coefficients{"Skylake", 612989, 4104170, familyError}},
	{"GenuineIntel", 6, 0x55, 0x55, 5, 0, coefficients{"Cascade Lake", 690298, 4063194, familyError}},
	{"GenuineIntel", 6, 0x8e, 0x8e, 0, 0, coefficients{"Coffee Lake", 1138426, 5421759, familyError}},
	{"GenuineIntel", 6, 0x9e, 0x9e, 0, 0, coefficients{"Coffee Lake", 1138426, 5421759, familyError}},
	{"GenuineIntel", 6, 0x6a, 0x6a, 0, 0, coefficients{"Ice Lake", 766797, 3758203, familyError}},
	{"GenuineIntel", 6, 0x6c, 0x6c, 0, 0, coefficients{"Ice Lake", 766797, 3758203, familyError}},
	{"GenuineIntel", 6, 0x8f, 0x8f, 0, 0, coefficients{"Sapphire Rapids", 1036286, 4160476, familyError}},
	{"GenuineIntel", 6, 0xcf, 0xcf, 0, 0, coefficients{"Emerald Rapids", 814010, 4482031, familyError}},
	{"GenuineIntel", 6, 0xad, 0xae, 0, 0, coefficients{"Granite Rapids", 581588, 2527471, familyError}},
	{"AuthenticAMD", 0x17, 0x00, 0x0f, 0, 0, coefficients{"EPYC 1st Gen", 846788, 2604167, familyError}},
	{"AuthenticAMD", 0x17, 0x30, 0x3f, 0, 0, coefficients{"EPYC 2nd Gen", 474262, 1692962, familyError}},
	{"AuthenticAMD", 0x19, 0x00, 0x0f, 0, 0, coefficients{"EPYC 3rd Gen", 455625, 1957334, familyError}},
	{"AuthenticAMD", 0x19, 0x10, 0x1f, 0, 0, coefficients{"EPYC 4th Gen", 739148, 2282155, familyError}},
	{"AuthenticAMD", 0x19, 0xa0, 0xaf, 0, 0, coefficients{"EPYC 4th Gen", 739148, 2282155, familyError}},
	{"AuthenticAMD", 0x1a, 0x00, 0x1f, 0, 0, coefficients{"EPYC 5th Gen, as 4th", 739148, 2282155, foreignError}},
}

// unknownFamily has the medians of the same project.
var unknownFamily = coefficients{"a CPU that is not known, as the median", 680000, 4110000, foreignError}

func findCoefficients(o Options) coefficients {
	text, err := o.readFile(filepath.Join(o.ProcFS, "cpuinfo"))
	if err != nil {
		return unknownFamily
	}
	return coefficientsOf(parseCPU(string(text)))
}

// cpu is what /proc/cpuinfo says of the first CPU.
type cpu struct {
	vendor, name            string
	family, model, stepping int
}

func coefficientsOf(c cpu) coefficients {
	for _, f := range families {
		if f.vendor == c.vendor && f.family == c.family && c.model >= f.from && c.model <= f.to &&
			c.stepping >= f.steppingFrom && (f.steppingBelow == 0 || c.stepping < f.steppingBelow) {
			return f.coefficients
		}
	}
	return unknownFamily
}

// parseCPU parses the first CPU of /proc/cpuinfo. What is missing is -1 or empty.
func parseCPU(text string) cpu {
	c := cpu{family: -1, model: -1, stepping: -1}
	for line := range strings.Lines(text) {
		key, value, found := strings.Cut(line, ":")
		if !found {
			if strings.TrimSpace(line) == "" && c.vendor != "" {
				break
			}
			continue
		}
		value = strings.TrimSpace(value)
		switch strings.TrimSpace(key) {
		case "vendor_id":
			c.vendor = value
		case "model name":
			c.name = value
		case "cpu family":
			c.family = number(value)
		case "model":
			c.model = number(value)
		case "stepping":
			c.stepping = number(value)
		}
	}
	return c
}

func number(text string) int {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return -1
	}
	return int(n)
}

// modelMeter estimates what the machine draws from how busy its CPUs are. Each hardware thread draws
// the minimum all the time, and the rest while it is busy. What it says is of the whole machine, its
// power supply included, so the domain is psys.
type modelMeter struct {
	coefficients coefficients
	before       []model.PackageTime
	started      bool
	// remainder is what is left of a microjoule, by package, in microseconds times microwatts.
	remainder []uint64
}

func (m *modelMeter) read(_ time.Time, packages []model.PackageTime) ([]gain, error) {
	before := m.before
	m.before = append([]model.PackageTime(nil), packages...)
	for len(m.remainder) < len(packages) {
		m.remainder = append(m.remainder, 0)
	}
	if !m.started {
		m.started = true
		return nil, nil
	}
	var all []gain
	for i, p := range packages {
		var b model.PackageTime
		if i < len(before) {
			b = before[i]
		}
		busyNS, idleNS := less(p.BusyNS, b.BusyNS), less(p.IdleNS, b.IdleNS)
		// In microseconds: in nanoseconds, an hour of a thousand CPUs is over 64 bits.
		busy, whole := busyNS/1000, (busyNS+idleNS)/1000
		drawn := m.coefficients.minMicroWatts*whole + (m.coefficients.maxMicroWatts-m.coefficients.minMicroWatts)*busy +
			m.remainder[i]
		m.remainder[i] = drawn % 1e6
		all = append(all, gain{p.ID, PSys, Model, drawn / 1e6})
	}
	return all, nil
}

func (m *modelMeter) describe() model.EnergyMeter {
	return model.EnergyMeter{Source: string(Model), Detail: m.coefficients.family, Error: m.coefficients.err,
		Domains: []string{string(PSys)}}
}

func (m *modelMeter) gaps() uint64 { return 0 }
func (m *modelMeter) close() error { return nil }
