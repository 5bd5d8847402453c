package container

import (
	"syscall"

	"outsight/internal/model"
)

// KernelFigures reads what files of control groups say by a kernel program.
type KernelFigures interface {
	WatchesGroups() bool
	WatchGroup(pid int, ids [model.FigureControllers]uint64) (slot uint32, found bool, err error)
	UnwatchGroup(slot uint32) error
	// ReadGroups reads the figures of all groups that are watched, ReadGroup those of one.
	ReadGroups() error
	ReadGroup(slot uint32) error
	Figures(slot uint32, to *model.GroupFigures) (ok bool)
	// FlushedStat are the counters behind memory.stat that the file shows if it need not flush.
	FlushedStat(slot uint32) (words model.StatWords, ok bool)
}

// UseKernel takes figures from the kernel program where they equal the files. It is for before the first reading.
func (f *Files) UseKernel(k KernelFigures) {
	if k != nil && k.WatchesGroups() {
		f.kernel = k
		f.stats = newStatMeanings()
	}
}

// figure is one that may be taken from the kernel program. Each falls back to its file by itself.
type figure int

const (
	memoryFigure figure = iota
	killsFigure
	statFigure
	throttleFigure
	threadsFigure
	pressureFigure
	memoryLimitFigure
	quotaFigure
	threadsLimitFigure
	figureKinds
)

// figureNames are what users know them by: the files that say the same.
var figureNames = [figureKinds]string{"memory usage", "processes killed", "memory.stat", "throttling", "threads", "pressure",
	"memory limit", "CPU quota", "limit of threads"}

// maxDisagreements is how many comparisons in a row with the files of one group may fail: a figure may change and change
// back while its file is read, and again.
const maxDisagreements = 3

// returnAfter and returnAfterMost are how many comparisons in a row must agree before a lost trust comes back: the first
// time, and at most.
const returnAfter, returnAfterMost = 8, 1024

// trust tells whether a figure may be taken from the kernel program. It holds once they agreed, and is lost where a group
// disagreed maxDisagreements times in a row. It comes back after so many agreements in a row as it takes, which is twice
// as many each time that it was lost.
type trust struct {
	holds bool
	// row is how many comparisons agreed since the last that did not; more than needed make it hold.
	row, needed int
}

func (t *trust) lose() {
	t.holds, t.row = false, 0
	t.needed = min(max(2*t.needed, returnAfter), returnAfterMost)
}

// groupSlot is a group that the kernel program watches.
type groupSlot struct {
	slot    uint32
	watched bool
	// of is the ID of its container.
	of string
	// fresh: figures are of this reading.
	fresh bool
	// checkAt is the turn in which they are compared with the files, checkEvery how many turns later they will be again.
	checkAt, checkEvery uint64
	figures             model.GroupFigures
	// disagreements of each figure with the group's file, in a row.
	disagreements [figureKinds]int
}

// readFigures reads the figures of all groups that are watched already.
func (f *Files) readFigures() {
	f.figuresRead = f.kernel != nil && f.kernel.ReadGroups() == nil
}

// Refresh has the kernel program write the figures of all groups that are watched anew, for those who read them where they
// lie. Nothing else is read.
func (f *Files) Refresh() { f.readFigures() }

// follow gets the figures of a group, and begins to watch it. What cannot be watched is read from files.
func (f *Files) follow(c *model.Container, g *groupFiles) {
	k := &g.kernel
	k.fresh = k.watched && f.figuresRead && f.kernel.Figures(k.slot, &k.figures)
	if f.kernel == nil || k.fresh || c.PID == 0 || !g.readsLimits(f.turn) {
		return
	}
	f.unwatch(g) // its process may be another
	slot, found, err := f.kernel.WatchGroup(c.PID, f.controllerIDs(c))
	if err != nil || !found {
		return
	}
	k.slot, k.watched, k.checkEvery = slot, true, checkOften
	k.checkLater(f.turn)
	k.of = c.ID
	f.slots.Store(c.ID, slot)
	k.fresh = f.kernel.Figures(slot, &k.figures)
}

func (f *Files) unwatch(g *groupFiles) {
	if g.kernel.watched {
		f.slots.CompareAndDelete(g.kernel.of, g.kernel.slot)
		g.kernel.watched = f.kernel.UnwatchGroup(g.kernel.slot) != nil
	}
}

// FigureSlot is where the kernel program writes the figures of a container; false where it does not. It may be called by
// anybody.
func (f *Files) FigureSlot(container string) (slot uint32, watched bool) {
	found, watched := f.slots.Load(container)
	if !watched {
		return 0, false
	}
	return found.(uint32), true
}

// figureBits are those of enum group_figure of bpf/groups/groups.h.
var figureBits = [figureKinds]uint32{memoryFigure: 1, killsFigure: 2, statFigure: 4, throttleFigure: 8, threadsFigure: 16,
	pressureFigure: 32, memoryLimitFigure: 64, quotaFigure: 128, threadsLimitFigure: 256}

// TrustedFigures are the bits (enum group_figure of bpf/groups/groups.h) of the figures that were found to equal the
// files. It may be called by anybody.
func (f *Files) TrustedFigures() uint32 { return f.trusted.Load() }

func (f *Files) noteTrusted() {
	var bits uint32
	for which := range figureKinds {
		if f.trusts[which].holds {
			bits |= figureBits[which]
		}
	}
	f.trusted.Store(bits)
}

// controllerIDs are the inodes of the group's directories, 0 where the path is not that of the container there.
func (f *Files) controllerIDs(c *model.Container) (ids [model.FigureControllers]uint64) {
	for controller, k := range map[int]fileKind{model.MemoryController: memoryUsage, model.CPUController: cpuStat,
		model.PIDsController: pidsCurrent, model.UnifiedController: cpuPressure} {
		var stat syscall.Stat_t
		if mount := f.sources[k].mount; mount != "" && syscall.Stat(mount+c.CgroupPath, &stat) == nil {
			ids[controller] = stat.Ino
		}
	}
	return ids
}

// readsLimits reports whether the group's limits are read in this turn.
func (g *groupFiles) readsLimits(turn uint64) bool { return (turn-g.first)%limitEvery == 0 }

// use reports whether a figure is taken from the kernel program: not while the group's file said something else last.
func (f *Files) use(g *groupFiles, which figure) bool {
	k := &g.kernel
	return k.fresh && hasFigure(&k.figures, which) && f.trusts[which].holds && k.disagreements[which] == 0
}

func hasFigure(of *model.GroupFigures, which figure) bool {
	switch which {
	case memoryFigure:
		return of.HasMemory
	case killsFigure:
		return of.HasKills
	case statFigure:
		return of.HasStat
	case throttleFigure:
		return of.HasThrottle
	case pressureFigure:
		return of.HasPressure
	case memoryLimitFigure:
		return of.HasMemoryLimit
	case quotaFigure:
		return of.HasQuota
	case threadsLimitFigure:
		return of.HasThreadsLimit
	}
	return of.HasThreads
}
