package energy

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"outsight/internal/model"
)

var began = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// host is a simulated machine: its sysfs, and how long its CPUs and consumers ran.
type host struct {
	t         *testing.T
	root      string
	now       time.Time
	packages  []model.PackageTime
	consumers []Consumer
	account   *Account
	// deny makes readings of paths that contain a key fail.
	deny map[string]error
}

func newHost(t *testing.T, packages int) *host {
	h := &host{t: t, root: t.TempDir(), now: began, deny: map[string]error{}}
	for id := range packages {
		h.packages = append(h.packages, model.PackageTime{ID: id})
	}
	h.write("proc/cpuinfo", "vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 79\nmodel name\t: Xeon E5-2697 "+
		"v4\nstepping\t: 1\n\n")
	return h
}

func (h *host) write(name, text string) {
	h.t.Helper()
	path := filepath.Join(h.root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		h.t.Fatal(err)
	}
}

const wraps = 262143328850

// zone writes a RAPL zone.
func (h *host) zone(zone, name string, microJoules uint64) {
	h.write("class/powercap/"+zone+"/name", name+"\n")
	h.write("class/powercap/"+zone+"/max_energy_range_uj", fmt.Sprintln(uint64(wraps)))
	h.energy(zone, microJoules)
}

func (h *host) energy(zone string, microJoules uint64) {
	h.write("class/powercap/"+zone+"/energy_uj", fmt.Sprintln(microJoules))
}

func (h *host) options() Options {
	return Options{SysFS: h.root, ProcFS: filepath.Join(h.root, "proc"), readFile: func(path string) ([]byte, error) {
		for part, err := range h.deny {
			if strings.Contains(path, part) {
				return nil, &fs.PathError{Op: "open", Path: path, Err: err}
			}
		}
		return readSmall(path)
	}}
}

func (h *host) open() {
	h.account = New(h.options())
	h.t.Cleanup(func() {
		if err := h.account.Close(); err != nil {
			h.t.Errorf("closing: %v", err)
		}
	})
	h.update()
}

// update lets a second pass and accounts for it.
func (h *host) update() {
	h.now = h.now.Add(time.Second)
	h.account.Update(h.now, h.packages, h.consumers)
}

// run adds to what a consumer did in a package: weighted cycles and CPU time.
func (h *host) run(id string, packageIndex int, cycles, ns uint64) {
	i := slices.IndexFunc(h.consumers, func(c Consumer) bool { return c.ID == id })
	if i < 0 {
		i = len(h.consumers)
		h.consumers = append(h.consumers, Consumer{ID: id, System: id == "host"})
	}
	c := &h.consumers[i]
	c.Work, c.WorkNS = slices.Clone(c.Work), slices.Clone(c.WorkNS)
	for len(c.Work) < len(h.packages) {
		c.Work, c.WorkNS = append(c.Work, 0), append(c.WorkNS, 0)
	}
	c.Work[packageIndex] += cycles
	c.WorkNS[packageIndex] += ns
	h.packages[packageIndex].BusyNS += ns
}

// want holds what each consumer has against a text: "package powercap 100".
func (h *host) want(id string, counters ...string) {
	h.t.Helper()
	var got []string
	for _, c := range h.account.Of(id) {
		got = append(got, fmt.Sprintf("%s %s %d", c.Domain, c.Source, c.MicroJoules))
	}
	slices.Sort(got)
	slices.Sort(counters)
	if !slices.Equal(got, counters) {
		h.t.Errorf("%s has %q, want %q", id, got, counters)
	}
}

// part is what a domain has by a source, over all meters' lives.
func (h *host) part(domain Domain, source Source) model.EnergyPart {
	for _, p := range h.account.Sample().Parts {
		if p.Domain == string(domain) && p.Source == string(source) {
			return p
		}
	}
	return model.EnergyPart{}
}

func whole(p model.EnergyPart) uint64 { return p.Containers + p.Idle + p.System }

func (h *host) source() Source { return Source(h.account.Sample().Meter.Source) }

// addsUp holds the parts against what each consumer has and against the whole.
func (h *host) addsUp(domain Domain, source Source, microJoules uint64) {
	h.t.Helper()
	p := h.part(domain, source)
	if whole(p) != microJoules {
		h.t.Errorf("%s by %s: parts %+v are %d, want %d", domain, source, p, whole(p), microJoules)
	}
	var containers, system uint64
	for _, c := range h.consumers {
		for _, e := range h.account.Of(c.ID) {
			if e.Domain != string(domain) || e.Source != string(source) {
				continue
			}
			if c.System {
				system += e.MicroJoules
			} else {
				containers += e.MicroJoules
			}
		}
	}
	if containers != p.Containers || system != p.System {
		h.t.Errorf("%s by %s: consumers have %d and %d, the parts say %+v", domain, source, containers, system, p)
	}
}

func TestOneSocket(t *testing.T) {
	h := newHost(t, 1)
	h.zone("intel-rapl:0", "package-0", 1_000_000)
	h.zone("intel-rapl:0:0", "core", 500_000)
	h.zone("intel-rapl:0:1", "uncore", 7)
	h.zone("intel-rapl:0:2", "dram", 300_000)
	h.zone("intel-rapl-mmio:0", "package-0", 1_000_000)
	h.run("a", 0, 1e9, 1e9) // before the first update: nobody's
	h.open()
	if m := h.account.Sample().Meter; m.Source != "powercap" ||
		!slices.Equal(m.Domains, []string{"core", "dram", "package"}) || len(m.Others) != 0 {
		t.Fatalf("meter %+v, want powercap with core, dram and package", m)
	}
	h.packages[0].Counted = true
	h.run("a", 0, 3e9, 1e9)
	h.run("b", 0, 1e9, 2e9)
	h.run("host", 0, 1e9, 1e9)
	h.packages[0].IdleNS += 4e9
	h.energy("intel-rapl:0:0", 600_001)
	h.energy("intel-rapl:0", 3_000_000)
	h.update()
	// By cycles; all of a core's energy is of who ran. 100001 * 3/5 = 60000.6.
	h.addsUp(Core, Powercap, 100_001)
	h.addsUp(Package, Powercap, 2_000_000)
	h.addsUp(DRAM, Powercap, 0)
	p := h.part(Package, Powercap)
	// Half busy: by the coefficients of Broadwell, 0.712834 W each of 8 CPU seconds, 2.972494 W of 4.
	const idle = 648_301 // 2e6 * 0.712834 * 8 / (0.712834 * 8 + 2.972494 * 4)
	if p.Idle != idle || p.System == 0 {
		t.Errorf("idle part %d, want %d: %+v", p.Idle, idle, p)
	}
	if core := h.part(Core, Powercap); core.Idle != 0 || core.Containers != 80001 || core.System != 20000 {
		t.Errorf("core parts %+v, want four fifths of 100001 for containers", core)
	}
	if got := h.account.Of("a"); !slices.Contains(got,
		model.EnergyCounter{Domain: "core", Source: "powercap", MicroJoules: 60001}) {
		t.Errorf("a has %+v, want 60001 of the cores", got)
	}
}

func TestTwoSockets(t *testing.T) {
	h := newHost(t, 2)
	for _, zone := range []string{"0", "1"} {
		h.zone("intel-rapl:"+zone, "package-"+zone+"-die-0", 0)
		h.zone("intel-rapl:"+zone+":0", "core", 0)
	}
	h.zone("intel-rapl:2", "psys", 0)
	h.run("a", 0, 0, 0)
	h.run("b", 0, 0, 0)
	h.open()
	h.packages[0].Counted, h.packages[1].Counted = true, true
	h.run("a", 0, 10, 1e9)
	h.run("b", 0, 30, 1e9)
	h.run("b", 1, 5, 1e9)
	h.energy("intel-rapl:0:0", 1000)
	h.energy("intel-rapl:1:0", 70)
	h.energy("intel-rapl:2", 9000)
	h.update()
	h.addsUp(Core, Powercap, 1070)
	h.addsUp(PSys, Powercap, 9000)
	core := func(id string) uint64 {
		for _, c := range h.account.Of(id) {
			if c.Domain == "core" {
				return c.MicroJoules
			}
		}
		return 0
	}
	if got := core("a"); got != 250 {
		t.Errorf("a has %d, want a quarter of socket 0 alone", got)
	}
	if got := core("b"); got != 750+70 {
		t.Errorf("b has %d, want the rest", got)
	}
	// Not every CPU of socket 1 counts: there it is CPU time, on socket 0 still cycles.
	h.packages[1].Counted = false
	h.run("a", 0, 10, 1e9)
	h.run("b", 0, 30, 1e9)
	h.run("a", 1, 0, 3e9)
	h.run("b", 1, 5, 1e9)
	h.energy("intel-rapl:0:0", 2000)
	h.energy("intel-rapl:1:0", 1070)
	h.update()
	h.addsUp(Core, Powercap, 3070)
	if got := core("a"); got != 500+750 {
		t.Errorf("a has %d, want a quarter of socket 0 and three of socket 1", got)
	}
	// Nobody counts who runs: it is nobody's.
	gaps := h.account.Drops()[0].Count
	h.energy("intel-rapl:0:0", 2050)
	h.update()
	h.addsUp(Core, Powercap, 3070)
	if got := h.account.Drops()[0].Count; got != gaps+1 {
		t.Errorf("%d gaps, want %d", got, gaps+1)
	}
	// Nobody ran: all of it is idle.
	h.packages[0].IdleNS += 1e9
	h.energy("intel-rapl:0:0", 2150)
	h.update()
	if p := h.part(Core, Powercap); p.Idle != 100 {
		t.Errorf("parts %+v, want 100 idle", p)
	}
}

func TestCountersThatWrap(t *testing.T) {
	h := newHost(t, 1)
	h.zone("intel-rapl:0", "core", 0) // a zone of cores at the top has no package
	h.zone("intel-rapl:1", "package-0", wraps-10)
	h.zone("intel-rapl:1:0", "core", 5_000_000_000)
	h.run("a", 0, 1, 1e9)
	h.open()
	h.run("a", 0, 1, 1e9)
	h.energy("intel-rapl:1", 89)
	h.energy("intel-rapl:1:0", 5_000_000_700)
	h.update()
	h.addsUp(Package, Powercap, 100)
	h.addsUp(Core, Powercap, 700)
	// A counter that begins anew in the middle is no wrap-around of 257 kJ.
	h.run("a", 0, 1, 1e9)
	h.energy("intel-rapl:1:0", 40)
	h.update()
	h.addsUp(Core, Powercap, 700)
	if d := h.account.Drops(); d[0].Count != 1 {
		t.Errorf("drops %+v, want one gap", d)
	}
	h.run("a", 0, 1, 1e9)
	h.energy("intel-rapl:1:0", 140)
	h.energy("intel-rapl:1", 90)
	h.update()
	h.addsUp(Core, Powercap, 800)
	h.addsUp(Package, Powercap, 101)
}

// What works is taken where something is missing, and what comes after it where nothing is left.
func TestMetersThatAreMissing(t *testing.T) {
	check := func(name string, want Source, says string, set func(h *host)) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			h := newHost(t, 1)
			set(h)
			h.open()
			if h.source() != want {
				t.Errorf("the meter is %s, want %s", h.source(), want)
			}
			f := h.account.Feature()
			if f.State != model.FeatureWorks || f.Name != "energy/"+string(want) || !strings.Contains(f.Reason, says) {
				t.Errorf("got %+v, want it to say %q", f, says)
			}
		})
	}
	check("nothing", Model, "estimated from utilisation (Broadwell), off by up to 45 %; powercap: no RAPL", func(*host) {})
	check("dram cannot be read", Powercap, "", func(h *host) {
		h.zone("intel-rapl:0", "package-0", 1)
		h.zone("intel-rapl:0:0", "dram", 1)
		h.deny["intel-rapl:0:0/energy_uj"] = fs.ErrPermission
	})
	check("permission denied", Model, "permission denied", func(h *host) {
		h.zone("intel-rapl:0", "package-0", 1)
		h.deny["energy_uj"] = fs.ErrPermission
	})
	check("nonsense in the file", Model, `got "lots\n", want a number`, func(h *host) {
		h.zone("intel-rapl:0", "package-0", 1)
		h.write("class/powercap/intel-rapl:0/energy_uj", "lots\n")
	})
	check("no zones", Model, "no RAPL zone", func(h *host) { h.write("class/powercap/dtpm/name", "x") })
	check("sensors that measure something else", Model, "no sensor", func(h *host) {
		h.write("class/hwmon/hwmon0/name", "nvme\n")
		h.write("class/hwmon/hwmon0/power1_input", "5000000\n")
	})
	check("the machine's power", HWMon, "powercap: no RAPL", func(h *host) {
		h.write("class/hwmon/hwmon1/name", "power_meter\n")
		h.write("class/hwmon/hwmon1/power1_average", "5000000\n")
	})
}

// A file that goes away: the next meter goes on, and the counters do, too.
func TestMeterThatGoesAway(t *testing.T) {
	h := newHost(t, 1)
	h.zone("intel-rapl:0", "package-0", 0)
	h.run("a", 0, 0, 0)
	h.open()
	h.run("a", 0, 0, 1e9)
	h.energy("intel-rapl:0", 1000)
	h.update()
	h.want("a", fmt.Sprintf("package powercap %d", h.part(Package, Powercap).Containers))
	if err := os.RemoveAll(filepath.Join(h.root, "class/powercap")); err != nil {
		t.Fatal(err)
	}
	before := h.account.Of("a")
	h.run("a", 0, 0, 1e9)
	h.update() // not measured, and said so
	if d := h.account.Drops(); d[0].Count != 1 || h.source() != Model {
		t.Errorf("drops %+v, meter %s, want one gap and the model", d, h.source())
	}
	if f := h.account.Feature(); !strings.Contains(f.Reason, "no such file") {
		t.Errorf("got %+v, want it to say what is gone", f)
	}
	h.run("a", 0, 0, 2e9)
	h.packages[0].IdleNS += 1e9
	h.update()
	// 3 s of 0.712834 W, and 2 s of what a busy thread draws more.
	h.addsUp(PSys, Model, 3*712834+2*(3685328-712834))
	if p := h.part(PSys, Model); p.Idle != 3*712834 && p.Idle != 3*712834-1 {
		t.Errorf("parts %+v, want the idle part %d", p, 3*712834)
	}
	if after := h.account.Of("a"); len(after) != 2 || after[0] != before[0] {
		t.Errorf("a has %+v, want %+v to stay, and the model's beside it", after, before)
	}
	h.addsUp(Package, Powercap, 1000)
	// It comes back, and takes over with the first energy that it tells.
	h.zone("intel-rapl:0", "package-0", 50_000)
	h.now = h.now.Add(2 * retryEvery)
	h.update()
	if h.source() != Model {
		t.Errorf("the meter is %s before it has shown that it works", h.source())
	}
	h.run("a", 0, 0, 1e9)
	h.energy("intel-rapl:0", 50_400)
	h.update()
	if h.source() != Powercap {
		t.Errorf("the meter is %s, want the better one", h.source())
	}
	h.addsUp(Package, Powercap, 1400)
}

// A meter that stops is given up after ten readings, and not taken again while it stands still.
func TestMeterThatStops(t *testing.T) {
	h := newHost(t, 1)
	h.zone("intel-rapl:0", "package-0", 0)
	h.run("a", 0, 0, 0)
	h.open()
	for i := range uint64(5) {
		h.run("a", 0, 0, 1e9)
		h.energy("intel-rapl:0", 100*(i+1))
		h.update()
	}
	for range stuckReadings {
		h.run("a", 0, 0, 1e9)
		h.update()
	}
	if h.source() != Model || !strings.Contains(h.account.Feature().Reason, "not moved for 10 readings") {
		t.Errorf("the meter is %s: %+v", h.source(), h.account.Feature())
	}
	if d := h.account.Drops(); d[0].Count != stuckReadings {
		t.Errorf("%d gaps, want the %d intervals", d[0].Count, stuckReadings)
	}
	h.addsUp(Package, Powercap, 500)
	for range 200 {
		h.run("a", 0, 0, 1e9)
		h.update()
		if h.source() != Model {
			t.Fatal("a meter that stands still was taken again")
		}
	}
	h.addsUp(PSys, Model, 200*3685328)
}

// A reading that fails once or twice is made up for.
func TestReadingThatFailsForAWhile(t *testing.T) {
	h := newHost(t, 1)
	h.zone("intel-rapl:0", "package-0", 0)
	h.run("a", 0, 0, 0)
	h.open()
	h.deny["energy_uj"] = errors.New("input/output error")
	h.update()
	h.update()
	delete(h.deny, "energy_uj")
	h.run("a", 0, 0, 1e9)
	h.energy("intel-rapl:0", 600)
	h.update()
	h.addsUp(Package, Powercap, 600)
	h.deny["energy_uj"] = errors.New("input/output error")
	for range patience {
		h.update()
	}
	if h.source() != Model {
		t.Errorf("the meter is %s after %d failures", h.source(), patience)
	}
}

func TestSensors(t *testing.T) {
	h := newHost(t, 2)
	h.write("class/hwmon/hwmon0/name", "amd_energy\n")
	for i, label := range []string{"Ecore000", "Esocket0", "Esocket1"} {
		h.write(fmt.Sprintf("class/hwmon/hwmon0/energy%d_label", i+1), label+"\n")
		h.write(fmt.Sprintf("class/hwmon/hwmon0/energy%d_input", i+1), "1000\n")
	}
	h.write("class/hwmon/hwmon1/name", "power_meter\n")
	h.write("class/hwmon/hwmon1/power1_average", "100000000\n")
	h.run("a", 0, 0, 0)
	h.open()
	h.run("a", 0, 0, 1e9)
	h.write("class/hwmon/hwmon0/energy2_input", "1500\n")
	h.write("class/hwmon/hwmon0/energy3_input", "1007\n")
	h.write("class/hwmon/hwmon1/power1_average", "300000000\n")
	h.update()
	h.addsUp(Package, HWMon, 507)
	h.addsUp(PSys, HWMon, 200_000_000) // the mean of both ends, for a second
}

func TestConsumersAreForgotten(t *testing.T) {
	h := newHost(t, 1)
	h.run("a", 0, 0, 0)
	h.open()
	h.run("a", 0, 0, 1e9)
	h.update()
	if len(h.account.Of("a")) == 0 {
		t.Fatal("a has nothing")
	}
	h.account.Keep(func(id string) bool { return id != "a" })
	if got := h.account.Of("a"); len(got) != 0 {
		t.Errorf("a has %+v, want nothing", got)
	}
}
