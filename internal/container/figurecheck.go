package container

import (
	"strings"
	"time"

	"outsight/internal/model"
)

const (
	// checkOften and checkRarely are how many turns apart a group's figures are compared with its files: at first and
	// after a disagreement, and after each comparison checkGrowth times as many, up to the latter.
	checkOften, checkRarely, checkGrowth = 4, 64, 4
	// compareAttempts bounds how often a file is read for one comparison.
	compareAttempts = 4
)

// verdict is what a comparison found.
type verdict int

const (
	undecided verdict = iota
	agrees
	differs
)

// compare reads what the kernel program says and what the file says in turns, the former first and last. They agree where
// the program said the same before and after a reading of the file that says so, too. What changes and changes back while
// the file is read looks like a difference, so they differ only where a second reading of both has the same values as the
// first. What changes all the time, or is left undecided by judge, is not judged.
func compare[K, V comparable](kernel func() (K, bool), file func() (V, error), judge func(K, V) verdict) (K, V, verdict) {
	var last V
	still := false // the last reading of the file is between two that are equal, and differs from them
	before, ok := kernel()
	for range compareAttempts {
		if !ok {
			break
		}
		read, err := file()
		if err != nil {
			break
		}
		var after K
		after, ok = kernel()
		found := undecided
		if ok && after == before {
			found = judge(after, read)
		}
		if found == agrees || found == differs && still && read == last {
			return after, read, found
		}
		still = found == differs
		before, last = after, read
	}
	return before, last, undecided
}

// checkFigures compares figures with files, of a group whose turn it is.
func (f *Files) checkFigures(c *model.Container, g *groupFiles) {
	k := &g.kernel
	if !k.fresh || f.turn < k.checkAt {
		return
	}
	k.checkEvery = min(checkGrowth*k.checkEvery, checkRarely)
	k.checkLater(f.turn)
	var before, after model.GroupFigures
	if !f.readAnew(k.slot, &before) {
		return
	}
	comparisons := [...]comparison{
		figureComparison(f, g, memoryFigure, func(of *model.GroupFigures) uint64 { return of.MemoryBytes },
			func() (uint64, error) { return f.value(c, g, memoryUsage) }, equal),
		figureComparison(f, g, threadsFigure, func(of *model.GroupFigures) uint64 { return of.Threads },
			func() (uint64, error) { return f.value(c, g, pidsCurrent) }, equal),
		figureComparison(f, g, killsFigure, func(of *model.GroupFigures) uint64 { return of.Kills },
			func() (uint64, error) { return f.killsInFile(c, g) }, equal),
		figureComparison(f, g, throttleFigure, func(of *model.GroupFigures) model.ThrottleCounters { return of.Throttle },
			func() (model.ThrottleCounters, error) { return f.throttlingInFile(c, g) }, equal),
		figureComparison(f, g, pressureFigure, func(of *model.GroupFigures) model.PressureCounters { return of.Pressure },
			func() (model.PressureCounters, error) { return f.pressureInFiles(c, g) }, equalPressure),
		figureComparison(f, g, memoryLimitFigure, func(of *model.GroupFigures) uint64 { return of.MemoryLimit },
			func() (uint64, error) { return f.memoryLimitInFile(c, g) }, equal),
		figureComparison(f, g, quotaFigure, func(of *model.GroupFigures) float64 { return of.QuotaCores },
			func() (float64, error) { return f.quota(c, g) }, equal),
		figureComparison(f, g, threadsLimitFigure, func(of *model.GroupFigures) uint64 { return of.ThreadsLimit },
			func() (uint64, error) { return f.value(c, g, pidsMax) }, equal),
	}
	// All files between two readings of the program: what stood still meanwhile, as most does, need not be read again.
	for i := range comparisons {
		comparisons[i].readFile()
	}
	known := f.readAnew(k.slot, &after)
	for i := range comparisons {
		if one := &comparisons[i]; known && one.agree(&before, &after) {
			f.note(g, one.which, true)
		} else {
			one.byItself()
		}
	}
	f.checkStat(c, g)
}

// checkLater sets when the next comparison is: in the next of the turns that are checkEvery apart, which are others for other
// slots. Many containers are found in the same turn.
func (k *groupSlot) checkLater(turn uint64) {
	k.checkAt = turn + k.checkEvery - (turn+uint64(k.slot))%k.checkEvery
}

// readAnew has the program read the figures of a group. It answers false where they cannot be had.
func (f *Files) readAnew(slot uint32, to *model.GroupFigures) bool {
	return f.kernel.ReadGroup(slot) == nil && f.kernel.Figures(slot, to)
}

// comparison is of a figure and its file.
type comparison struct {
	which figure
	// readFile reads the file. agree tells whether it said what the program said both before and after; byItself compares them
	// alone, as often as it takes.
	readFile func()
	agree    func(before, after *model.GroupFigures) bool
	byItself func()
}

// equal judges a figure that is what its file says.
func equal[V comparable](kernel, file V) verdict {
	if kernel == file {
		return agrees
	}
	return differs
}

// addUpEvery is how often the kernel adds up what CPUs have counted of a group's pressure (PSI_FREQ of kernel/sched/psi.c).
const addUpEvery = 2 * time.Second

// equalPressure judges pressure: the kernel program keeps the greatest sum, which may be ahead of a later one by what was added
// up then. That says nothing.
func equalPressure(kernel, file model.PressureCounters) verdict {
	if kernel == file {
		return agrees
	}
	for _, resource := range pressureFiles {
		k, f := *resource.of(&kernel), *resource.of(&file)
		if k.Known != f.Known || k != grown(f, k) || k.WaitingNS-f.WaitingNS > uint64(addUpEvery) ||
			k.StalledNS-f.StalledNS > uint64(addUpEvery) {
			return differs
		}
	}
	return undecided
}

func figureComparison[V comparable](f *Files, g *groupFiles, which figure, of func(*model.GroupFigures) V,
	file func() (V, error), judge func(kernel, file V) verdict) comparison {
	var said V
	var err error
	return comparison{which, func() { said, err = file() },
		func(before, after *model.GroupFigures) bool {
			return err == nil && hasFigure(before, which) && hasFigure(after, which) && of(before) == said && of(after) == said
		},
		func() {
			kernel, read, found := compare(func() (v V, ok bool) {
				var figures model.GroupFigures
				if !f.readAnew(g.kernel.slot, &figures) || !hasFigure(&figures, which) {
					return v, false
				}
				return of(&figures), true
			}, file, judge)
			switch {
			case found != undecided:
				f.note(g, which, found == agrees)
			case judge(kernel, read) == undecided:
				g.kernel.disagreements[which] = 0 // it may be right
			}
		}}
}

// checkStat finds out which of the kernel's counters are which lines of memory.stat, and whether they still are. The
// file shows the flushed ones.
func (f *Files) checkStat(c *model.Container, g *groupFiles) {
	words, file, found := compare(
		func() (model.StatWords, bool) { return f.kernel.FlushedStat(g.kernel.slot) },
		func() (memoryStat, error) {
			text, err := f.text(c, g, memoryStatFile)
			if err != nil {
				return memoryStat{}, err
			}
			return parseMemoryStat(text, f.sources[memoryStatFile].v2)
		}, func(words model.StatWords, file memoryStat) verdict {
			if f.stats.fits(words, file) {
				return agrees
			}
			return differs
		})
	if found == undecided {
		return
	}
	equal := found == agrees || f.stats.narrow(&words, &file)
	f.note(g, statFigure, equal)
	if !equal && f.distrusts(statFigure) {
		f.stats = newStatMeanings() // the true counters may have been excluded
	}
}

// note takes note of a comparison. Others that agree say nothing of a group that does not, so a trust that was lost does
// not come back while there is one.
func (f *Files) note(g *groupFiles, which figure, equal bool) {
	t, k := &f.trusts[which], &g.kernel
	if equal {
		k.disagreements[which] = 0
		t.row++
		if !t.holds && t.row > t.needed && !f.doubted(which) {
			t.holds = true
			f.distrusted.And(^(1 << which))
		}
		return
	}
	t.row = 0
	k.disagreements[which]++
	switch k.disagreements[which] {
	case 1:
		k.checkEvery = checkOften
		k.checkLater(f.turn)
	case maxDisagreements:
		if !f.distrusts(which) {
			t.lose()
			f.distrusted.Or(1 << which)
		}
	}
}

// doubted reports whether a group disagreed when it was compared last.
func (f *Files) doubted(which figure) bool {
	for _, g := range f.groups {
		if g.kernel.disagreements[which] > 0 {
			return true
		}
	}
	return false
}

// distrusts reports whether the trust in a figure was lost and has not come back; at any time.
func (f *Files) distrusts(which figure) bool { return f.distrusted.Load()&(1<<which) != 0 }

// kernelFeature tells whether the kernel program's figures are used; at any time.
func (f *Files) kernelFeature() model.Feature {
	feature := model.Feature{Name: "cgroup/figures", State: model.FeatureWorks,
		Purpose: "control group files need not be read where a kernel program says the same"}
	var names []string
	for which, name := range figureNames {
		if f.distrusts(figure(which)) {
			names = append(names, name)
		}
	}
	if names != nil {
		feature.State = model.FeatureAbsent
		feature.Reason = "the kernel program and the files disagreed, so files are read: " + strings.Join(names, ", ")
		feature.Remedy = "no number is wrong, reading costs more, and it ends where they agree again; if it lasts, report the " +
			"kernel's version"
	}
	return feature
}
