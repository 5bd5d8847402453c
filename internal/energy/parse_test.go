package energy

import (
	"os"
	"path/filepath"
	"testing"
)

func TestCoefficients(t *testing.T) {
	check := func(vendor string, family, model, stepping int, want string) {
		t.Helper()
		if got := coefficientsOf(cpu{vendor: vendor, family: family, model: model, stepping: stepping}); got.family != want {
			t.Errorf("%s %#x/%#x/%d: %s, want %s", vendor, family, model, stepping, got.family, want)
		}
	}
	check("GenuineIntel", 6, 0x55, 4, "Skylake")
	check("GenuineIntel", 6, 0x55, 7, "Cascade Lake")
	check("GenuineIntel", 6, 0x4f, 1, "Broadwell")
	check("AuthenticAMD", 0x19, 1, 1, "EPYC 3rd Gen")
	check("AuthenticAMD", 0x1a, 2, 1, "EPYC 5th Gen, as 4th")
	check("AuthenticAMD", 6, 0x4f, 1, unknownFamily.family)
	check("", -1, -1, -1, unknownFamily.family)
	for _, f := range families {
		if f.minMicroWatts == 0 || f.minMicroWatts >= f.maxMicroWatts || f.err <= 0 {
			t.Errorf("%s: %+v", f.coefficients.family, f.coefficients)
		}
	}
	if c := parseCPU("processor : 0\nvendor_id : AuthenticAMD\ncpu family: 26\nmodel : 2\nmodel name : AMD " +
		"EPYC\nstepping : 1\n\nvendor_id : other\n"); c != (cpu{"AuthenticAMD", "AMD EPYC", 26, 2, 1}) {
		t.Errorf("got %+v", c)
	}
}

func TestRatios(t *testing.T) {
	r, err := ParseRatios("E5-26=1.05, EPYC=1.25,1.15")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]float64{"Intel(R) Xeon(R) CPU E5-2640": 1.05, "AMD epyc 7763": 1.25, "": 1.15} {
		if got := r.Of(name); got != want {
			t.Errorf("%q: %v, want %v", name, got, want)
		}
	}
	if got := (Ratios)(nil).Of("x"); got != DefaultHTRatio {
		t.Errorf("without any: %v, want %v", got, DefaultHTRatio)
	}
	for _, bad := range []string{"", "0.9", "2.1", "x", "=1.1", "a=", "NaN", "1.1,,"} {
		if r, err := ParseRatios(bad); err == nil {
			t.Errorf("%q: got %v, want an error", bad, r)
		}
	}
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "cpuinfo"), []byte("vendor_id : x\nmodel name : Some CPU\n"),
		0o644); err != nil {
		t.Fatal(err)
	}
	if got := CPUName(root); got != "Some CPU" {
		t.Errorf("got %q", got)
	}
}

// FuzzParsers gives the bytes of any file to each parser: they answer or refuse, within bounds.
func FuzzParsers(f *testing.F) {
	for _, seed := range []string{"1234\n", "package-0", "package-1-die-1", "core", "psys", "event=0x02\n", "E5=1.1,1.2",
		"vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 79\n\n", "18446744073709551616", "package-99999999999"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		parseCount([]byte(text))
		if _, id, ok := parseZone(text); ok && (id < -1 || id > 1<<16) {
			t.Errorf("%q is zone of package %d", text, id)
		}
		parseEvent(text)
		if ratios, err := ParseRatios(text); err == nil {
			for _, r := range ratios {
				if !(r.Value >= 1 && r.Value <= 2) {
					t.Errorf("%q: ratio %v", text, r.Value)
				}
			}
		}
		if c := coefficientsOf(parseCPU(text)); c.minMicroWatts == 0 || c.maxMicroWatts <= c.minMicroWatts {
			t.Errorf("%q: %+v", text, c)
		}
	})
}

// FuzzCounter reads any sequence of values: what is gained is plausible, and nothing is negative.
func FuzzCounter(f *testing.F) {
	f.Add(uint64(wraps-5), uint64(3), uint64(wraps))
	f.Add(uint64(100), uint64(3), uint64(0))
	f.Fuzz(func(t *testing.T, from, to, wrapsAt uint64) {
		c := counter{wrapsAt: wrapsAt, last: from, at: began}
		if n := c.since(to, 0); n > plausibleWatts*1e6 {
			t.Errorf("from %d to %d: %d µJ in no time", from, to, n)
		}
	})
}
