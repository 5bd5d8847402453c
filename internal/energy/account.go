// Package energy measures what a host draws and divides it among those who ran.
//
// Meters are tried in order: RAPL by powercap, RAPL by the perf PMU "power", sensors of hwmon, and
// last a model from utilisation. What a meter says of an interval is divided by equation 2 of
// Brondolin and Santambrogio 2020: for each package (socket), in the proportion of weighted cycles, or
// of CPU time where there are no counters. All is in whole microjoules, and the parts of an interval
// always add up to what was measured.
package energy

import (
	"cmp"
	"log/slog"
	"maps"
	"slices"
	"time"

	"outsight/internal/model"
)

// Consumer is who used CPUs: a container, or all that is in none (System).
type Consumer struct {
	ID     string
	System bool
	// Work and WorkNS are weighted cycles and CPU time by package, cumulative; see
	// model.CgroupCounters.
	Work, WorkNS []uint64
}

// Account puts energy to consumers. It is for one goroutine.
type Account struct {
	monitor *monitor
	// last are the consumers and packages of the update before; nil before the first.
	last     map[string]Consumer
	packages []model.PackageTime
	of       map[string][]model.EnergyCounter
	parts    []model.EnergyPart
}

// Options of New. The zero value works.
type Options struct {
	// SysFS and ProcFS are where these are mounted (default /sys and /proc).
	SysFS, ProcFS string
	Logger        *slog.Logger

	// readFile and openEvent are the kernel's; tests give others.
	readFile  func(string) ([]byte, error)
	openEvent eventOpener
}

// New opens the best meter that works here. It never fails: the model needs nothing.
func New(o Options) *Account {
	o.SysFS, o.ProcFS = cmp.Or(o.SysFS, "/sys"), cmp.Or(o.ProcFS, "/proc")
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.readFile == nil {
		o.readFile = readSmall
	}
	if o.openEvent == nil {
		o.openEvent = openEvent
	}
	return &Account{monitor: newMonitor(o), of: map[string][]model.EnergyCounter{}}
}

// Close gives the meter up.
func (a *Account) Close() error { return a.monitor.close() }

// Update divides what was used since the update before among who ran since then. What consumers did
// before the first update is left out, as is what nobody measured.
func (a *Account) Update(now time.Time, packages []model.PackageTime, consumers []Consumer) {
	gained := a.monitor.read(now, packages)
	before, packagesBefore := a.last, a.packages
	a.last, a.packages = make(map[string]Consumer, len(consumers)), slices.Clone(packages)
	for _, c := range consumers {
		a.last[c.ID] = c
	}
	if before == nil {
		return
	}
	for _, g := range gained {
		a.divide(g, packagesBefore, before, consumers)
	}
}

// divide puts the energy of one zone to the consumers.
func (a *Account) divide(g gain, packagesBefore []model.PackageTime, before map[string]Consumer, consumers []Consumer) {
	in := interval{g.packageID, packagesBefore, a.packages}
	weights := in.weights(before, consumers)
	var sum uint64
	for _, w := range weights {
		sum += w
	}
	idle := g.microJoules
	if sum > 0 {
		idle = in.idle(g, a.monitor.coefficients)
	} else if whole := (interval{-1, packagesBefore, a.packages}); g.microJoules > 0 && len(a.packages) > 0 &&
		whole.still() {
		a.monitor.gaps.Add(1) // nobody counted who ran, or that nobody did
		return
	}
	part := a.part(g.domain, g.source)
	part.Idle += idle
	for i, share := range apportion(g.microJoules-idle, weights) {
		if share == 0 {
			continue
		}
		if consumers[i].System {
			part.System += share
		} else {
			part.Containers += share
		}
		a.add(consumers[i].ID, g, share)
	}
}

func (a *Account) part(domain Domain, source Source) *model.EnergyPart {
	i := slices.IndexFunc(a.parts, func(p model.EnergyPart) bool {
		return p.Domain == string(domain) &&
			p.Source == string(source)
	})
	if i < 0 {
		i = len(a.parts)
		a.parts = append(a.parts, model.EnergyPart{Domain: string(domain), Source: string(source)})
	}
	return &a.parts[i]
}

func (a *Account) add(id string, g gain, microJoules uint64) {
	all := a.of[id]
	i := slices.IndexFunc(all, func(c model.EnergyCounter) bool {
		return c.Domain == string(g.domain) &&
			c.Source == string(g.source)
	})
	if i < 0 {
		i = len(all)
		all = append(all, model.EnergyCounter{Domain: string(g.domain), Source: string(g.source)})
		a.of[id] = all
	}
	all[i].MicroJoules += microJoules
}

// Of is what was put to a consumer since it was first seen, a copy.
func (a *Account) Of(id string) []model.EnergyCounter { return slices.Clone(a.of[id]) }

// Keep forgets all consumers but those that keep answers true for.
func (a *Account) Keep(keep func(id string) bool) {
	maps.DeleteFunc(a.of, func(id string, _ []model.EnergyCounter) bool { return !keep(id) })
}

// Sample is the host's energy and what measures it, a copy.
func (a *Account) Sample() *model.EnergySample {
	return &model.EnergySample{Meter: a.monitor.describe(), Parts: slices.Clone(a.parts)}
}

// Feature reports what measures, and why what would be better does not.
func (a *Account) Feature() model.Feature { return a.monitor.feature() }

// Drops counts intervals that were not measured.
func (a *Account) Drops() []model.Drop {
	return []model.Drop{{Name: "energy_gaps", Count: a.monitor.gaps.Load()}}
}
