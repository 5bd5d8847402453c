package agent

import (
	"slices"
	"strconv"
	"time"

	"outsight/internal/budget"
	"outsight/internal/model"
)

// Parts is what is done, and what of it can be shed to keep a budget. Its methods are called by the goroutine that
// reads the Counters.
type Parts interface {
	// Parts in the order in which they are shed, and those that are not.
	Parts() []model.Part
	Shed(name string) error
	Restore(name string) error
	// Spent is CPU time in ns so far of what parts do beside their kernel programs, by part: that of
	// the own process, and of the kernel.
	Spent() (own, kernel map[string]uint64)
}

// shared are parts that run in the programs of another one, with the share of these that is assumed to be theirs. The
// kernel times whole programs, so the split is an estimate: of the programs that count transfers benchmarks with and
// without parsing differ by about half (docs/overhead.md); of 1,000 packets 900 are not observed without
// many-packets, and one of these takes a sixth (docs/netprobe.md).
var shared = [...]struct {
	part, of string
	share    float64
}{{"names", "transfers", 0.5}, {"many-packets", "packets", 0.7}}

// keeping is what an agent needs to keep its budget.
type keeping struct {
	parts Parts
	meter *programMeter
	// spent is the CPU time in ns so far of this process by part, beside that of Parts.
	spent  func(map[string]uint64) map[string]uint64
	keeper *budget.Keeper // nil without a limit
	cores  int
	// last measurement that was looked at, when, and what had been spent by then.
	number      uint64
	at          time.Time
	ownCPU      uint64
	own, kernel map[string]uint64
	sample      model.BudgetSample
}

func newKeeping(parts Parts, meter *programMeter, spent func(map[string]uint64) map[string]uint64, limit float64,
	cores int) *keeping {
	k := &keeping{parts: parts, meter: meter, spent: spent, cores: cores}
	var names []string
	for _, p := range parts.Parts() {
		k.sample.Parts = append(k.sample.Parts, model.PartSample{Part: p})
		if !p.Fixed {
			names = append(names, p.Name)
		}
	}
	k.sample.Parts = append(k.sample.Parts, model.PartSample{Part: restOfAll})
	for _, s := range shared {
		if part, of := k.index(s.part), k.index(s.of); part >= 0 && of >= 0 {
			k.sample.Parts[part].Estimated, k.sample.Parts[of].Estimated = true, true
		}
	}
	if limit > 0 {
		k.sample.Limit = limit
		k.keeper = budget.New(limit, names)
	}
	return k
}

// step looks at the newest measurement, if there is one, and sheds or takes up what is to be.
func (k *keeping) step(now time.Time, ownCPU uint64) (changes []budget.Change, err error) {
	shares, number := k.meter.last()
	if number == k.number {
		return nil, nil
	}
	own, kernel := k.parts.Spent()
	own = k.spent(own)
	first := k.number == 0
	elapsed := now.Sub(k.at)
	before, ownBefore, kernelBefore := k.ownCPU, k.own, k.kernel
	k.number, k.at, k.ownCPU, k.own, k.kernel = number, now, ownCPU, own, kernel
	if first || elapsed <= 0 {
		return nil, nil
	}
	share := func(after, before uint64) float64 {
		return float64(after-min(before, after)) / float64(elapsed) / float64(k.cores)
	}
	s := &k.sample
	s.Own, s.Kernel = share(ownCPU, before), 0
	for _, programs := range shares {
		s.Kernel += programs / float64(k.cores)
	}
	cost := budget.Cost{Parts: make(map[string]float64)}
	ownParts := 0.0
	for i := range s.Parts {
		p := &s.Parts[i]
		beside := share(kernel[p.Name], kernelBefore[p.Name])
		s.Kernel += beside
		mine := share(own[p.Name], ownBefore[p.Name])
		ownParts += mine
		p.Spent = beside + mine
		for _, program := range p.Programs {
			p.Spent += shares[program] / float64(k.cores)
		}
	}
	// The process's clock was read a little before those of its parts.
	s.Own = max(s.Own, ownParts)
	k.divideShared()
	k.takeRest()
	for _, p := range s.Parts {
		cost.Parts[p.Name] = p.Spent
	}
	cost.Total = s.Own + s.Kernel
	if k.keeper == nil {
		return nil, nil
	}
	changes = k.keeper.Observe(now, cost)
	for _, c := range changes {
		do := k.parts.Restore
		if c.Shed {
			do = k.parts.Shed
		}
		if failed := do(c.Part); failed != nil {
			err = failed
		}
		p := &s.Parts[k.index(c.Part)]
		p.Shed = c.Shed
		p.Changes++
	}
	return changes, err
}

// divideShared splits the cost of programs that two parts run in.
func (k *keeping) divideShared() {
	for _, s := range shared {
		part, of := k.index(s.part), k.index(s.of)
		if part < 0 || of < 0 || k.sample.Parts[part].Shed {
			continue
		}
		whole := &k.sample.Parts[of].Spent
		k.sample.Parts[part].Spent = s.share * *whole
		*whole -= s.share * *whole
	}
}

// takeRest makes the parts together what was spent.
func (k *keeping) takeRest() {
	left, of := k.sample.Own+k.sample.Kernel, k.index(partRest)
	for i, p := range k.sample.Parts {
		if i != of {
			left -= p.Spent
		}
	}
	k.sample.Parts[of].Spent = max(0, left)
}

func (k *keeping) index(part string) int {
	return slices.IndexFunc(k.sample.Parts, func(p model.PartSample) bool { return p.Name == part })
}

// shed reports whether a part is off to keep the budget.
func (k *keeping) shed(part string) bool {
	i := k.index(part)
	return i >= 0 && k.sample.Parts[i].Shed
}

// published is a copy for a snapshot.
func (k *keeping) published() *model.BudgetSample {
	sample := k.sample
	sample.Parts = slices.Clone(sample.Parts)
	for i := range sample.Parts {
		// What goes with another part is not shed by itself.
		sample.Parts[i].Shed = sample.Parts[i].Shed || k.shed(sample.Parts[i].Under)
	}
	return &sample
}

// ownSpending is the CPU time of this process by part: what others report, and what is measured here.
func (a *Agent) ownSpending(others map[string]uint64) map[string]uint64 {
	own := a.spent.with(others)
	if a.sources.Answers != nil {
		own = a.sources.Answers.spent.with(own)
	}
	return own
}

// keepBudget looks at what was measured, sheds what costs too much, and logs it.
func (a *Agent) keepBudget(s *model.Snapshot) {
	k := a.keeping
	if k == nil {
		return
	}
	a.failures.note("what the kernel programs cost", k.meter.estimate(s.Self.Programs))
	changes, err := k.step(time.Now(), s.Self.CPUNS)
	a.failures.note("keeping the budget", err)
	for _, c := range changes {
		said, part := "taken up again: there is room in the budget", &k.sample.Parts[k.index(c.Part)]
		if c.Shed {
			said = "shed to keep the budget"
		}
		a.options.Logger.Warn(said, "part", c.Part, "missing", part.Purpose, "cost", percent(k.sample.Own+k.sample.Kernel),
			"budget", percent(k.sample.Limit))
	}
	a.cpu.turn(k.shed("switches"), s.Containers)
	if k.at.IsZero() {
		return
	}
	s.Self.Budget = k.published()
}

func percent(share float64) string { return strconv.FormatFloat(100*share, 'f', 2, 64) + " %" }
