package container

import (
	"strings"

	"outsight/internal/model"
)

const (
	// checkOften and checkRarely are how many turns apart a group's figures are compared with its files: until all
	// figures have agreed once, and then.
	checkOften, checkRarely = 4, 64
)

// checkFigures compares figures with files, of a group whose turn it is. Only what was the same before and after
// the reading of the file is compared.
func (f *Files) checkFigures(c *model.Container, g *groupFiles) {
	k := &g.kernel
	if !k.fresh || f.turn < k.checkAt {
		return
	}
	k.checkAt = f.turn + checkOften
	if f.allAgreed() {
		k.checkAt = f.turn + checkRarely
	}
	f.checkNumber(c, g, memoryFigure, memoryUsage, func(of *model.GroupFigures) uint64 { return of.MemoryBytes })
	f.checkNumber(c, g, threadsFigure, pidsCurrent, func(of *model.GroupFigures) uint64 { return of.Threads })
	f.checkKills(c, g)
	f.checkThrottle(c, g)
	f.checkStat(c, g)
}

func (f *Files) allAgreed() bool {
	for i := range f.trusts {
		if !f.trusts[i].agreed {
			return false
		}
	}
	return true
}

// around runs read between two readings of the group's figures.
func (f *Files) around(g *groupFiles, read func() error) (before, after model.GroupFigures, ok bool) {
	slot := g.kernel.slot
	if f.kernel.ReadGroup(slot) != nil || !f.kernel.Figures(slot, &before) || read() != nil ||
		f.kernel.ReadGroup(slot) != nil || !f.kernel.Figures(slot, &after) {
		return before, after, false
	}
	return before, after, true
}

func (f *Files) checkNumber(c *model.Container, g *groupFiles, which figure, file fileKind,
	of func(*model.GroupFigures) uint64) {
	var n uint64
	before, after, ok := f.around(g, func() (err error) { n, err = f.value(c, g, file); return err })
	if ok && hasFigure(&before, which) && hasFigure(&after, which) && of(&before) == of(&after) {
		f.note(which, n == of(&after))
	}
}

func (f *Files) checkKills(c *model.Container, g *groupFiles) {
	var kills uint64
	var found bool
	before, after, ok := f.around(g, func() error {
		text, err := f.text(c, g, memoryEvents)
		if err == nil {
			kills, found, err = parseKey(text, "oom_kill")
		}
		return err
	})
	if ok && found && before.HasKills && after.HasKills && before.Kills == after.Kills {
		f.note(killsFigure, kills == after.Kills)
	}
}

func (f *Files) checkThrottle(c *model.Container, g *groupFiles) {
	var t model.ThrottleCounters
	var found bool
	before, after, ok := f.around(g, func() error {
		text, err := f.text(c, g, cpuStat)
		if err == nil {
			t, found, err = parseThrottle(text)
		}
		return err
	})
	if ok && found && before.HasThrottle && after.HasThrottle && before.Throttle == after.Throttle {
		f.note(throttleFigure, t == f.throttle(&after))
	}
}

// checkStat finds out which of the kernel's counters are which lines of memory.stat, and whether they still are. The
// file shows the flushed ones.
func (f *Files) checkStat(c *model.Container, g *groupFiles) {
	before, ok := f.kernel.FlushedStat(g.kernel.slot)
	if !ok {
		return
	}
	text, err := f.text(c, g, memoryStatFile)
	if err != nil {
		return
	}
	stat, err := parseMemoryStat(text, f.sources[memoryStatFile].v2)
	if err != nil {
		return
	}
	if after, ok := f.kernel.FlushedStat(g.kernel.slot); ok && before == after {
		f.note(statFigure, f.stats.narrow(&after, &stat))
	}
}

func (f *Files) note(which figure, equal bool) {
	if f.trusts[which].note(equal) {
		f.disagreed.Or(1 << which)
	}
}

// kernelFeature tells whether the kernel program's figures are used; at any time.
func (f *Files) kernelFeature() model.Feature {
	feature := model.Feature{Name: "cgroup/figures", State: model.FeatureWorks,
		Purpose: "control group files need not be read where a kernel program says the same"}
	var names []string
	for which, name := range figureNames {
		if f.disagreed.Load()&(1<<which) != 0 {
			names = append(names, name)
		}
	}
	if names != nil {
		feature.State = model.FeatureAbsent
		feature.Reason = "the kernel program and the files disagreed, so files are read: " + strings.Join(names, ", ")
		feature.Remedy = "report the kernel's version; no number is wrong, reading costs more"
	}
	return feature
}
