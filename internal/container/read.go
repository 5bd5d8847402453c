package container

import (
	"errors"
	"fmt"
	"math"

	"outsight/internal/model"
)

// keep takes over a group of numbers that was read. A group that is gone keeps its last
// numbers; other failures take the numbers away.
func (g *groupFiles) keep(k kind, err error) error {
	switch {
	case err == nil:
		g.last.has[k] = true
	case errors.Is(err, errAbsent):
		g.last.has[k] = false
	case gone(err):
	default:
		g.last.has[k] = false
		return err
	}
	return nil
}

// limitEvery is how many readings apart a group's limits are read: they change when a user sets
// them.
const limitEvery = 8

func (f *Files) readMemory(c *model.Container, g *groupFiles) error {
	m := g.last.memory
	err := f.memory(c, g, &m)
	if err == nil {
		g.last.memory = m
	}
	return g.keep(memoryNumbers, err)
}

func (f *Files) memory(c *model.Container, g *groupFiles, m *model.MemorySample) error {
	v2 := f.sources[memoryUsage].v2
	var err error
	if f.use(g, memoryFigure) {
		m.UsageBytes = g.kernel.figures.MemoryBytes
	} else if m.UsageBytes, err = f.value(c, g, memoryUsage); err != nil {
		return err
	}
	stat, err := f.memoryStat(c, g)
	if err != nil {
		return err
	}
	m.RSSBytes, m.CacheBytes = stat.rss, stat.cache
	// The file may be older than what the kernel program reads, and each may follow the other.
	m.PageFaults, m.MajorPageFaults = max(m.PageFaults, stat.faults), max(m.MajorPageFaults, stat.majorFaults)
	m.AnonRefaults, m.FileRefaults = max(m.AnonRefaults, stat.anonRefaults), max(m.FileRefaults, stat.fileRefaults)
	m.HasRefaults = stat.hasRefaults
	m.WorkingSetBytes = m.UsageBytes - min(m.UsageBytes, stat.inactiveFile)
	switch {
	case f.use(g, memoryLimitFigure):
		m.LimitBytes = g.kernel.figures.MemoryLimit
	case !v2:
		m.LimitBytes = stat.limit
	case g.readsLimits(f.turn):
		if m.LimitBytes, err = f.value(c, g, memoryLimit); err != nil && !errors.Is(err, errAbsent) {
			return err
		}
	}
	return f.readKills(c, g, m)
}

// memoryStat is what memory.stat says. The limit in it, of v1, is up to limitEvery turns old where the file need not
// be read.
func (f *Files) memoryStat(c *model.Container, g *groupFiles) (memoryStat, error) {
	v2 := f.sources[memoryStatFile].v2
	limit, inKernel := g.stat.limit, false
	limitKnown := v2 || !g.readsLimits(f.turn) || f.use(g, memoryLimitFigure)
	var stat memoryStat
	if f.use(g, statFigure) {
		if stat, inKernel = f.stats.stat(&g.kernel.figures.Stat); inKernel && limitKnown {
			stat.limit = limit
			g.stat = stat
			return stat, nil
		}
		if !inKernel { // more comparisons tell the counters apart
			g.kernel.checkAt = min(g.kernel.checkAt, f.turn+checkOften)
		}
	}
	text, err := f.text(c, g, memoryStatFile)
	if err != nil {
		return stat, err
	}
	file, err := parseMemoryStat(text, v2)
	if err != nil {
		return stat, f.failed(c, memoryStatFile, err)
	}
	if inKernel {
		stat.limit = file.limit
	} else {
		stat = file
	}
	g.stat = stat
	return stat, nil
}

func (f *Files) readKills(c *model.Container, g *groupFiles, m *model.MemorySample) error {
	if f.use(g, killsFigure) {
		m.OOMKills = g.kernel.figures.Kills
		return nil
	}
	if g.kills.skips(f.turn, g.first) {
		return nil
	}
	kills, err := f.killsInFile(c, g)
	switch {
	case errors.Is(err, errAbsent):
		g.kills.note(true)
		return nil
	case err != nil:
		g.kills = 0
		return err
	}
	g.kills.note(kills == m.OOMKills)
	m.OOMKills = kills
	return nil
}

// memoryLimitInFile is what the kernel program's limit is compared with.
func (f *Files) memoryLimitInFile(c *model.Container, g *groupFiles) (uint64, error) {
	if f.sources[memoryStatFile].v2 {
		return f.value(c, g, memoryLimit)
	}
	text, err := f.text(c, g, memoryStatFile)
	if err != nil {
		return 0, err
	}
	stat, err := parseMemoryStat(text, false)
	return stat.limit, err
}

// killsInFile is errAbsent where the kernel does not tell.
func (f *Files) killsInFile(c *model.Container, g *groupFiles) (uint64, error) {
	text, err := f.text(c, g, memoryEvents)
	if err != nil {
		return 0, err
	}
	kills, found, err := parseKey(text, "oom_kill")
	switch {
	case err != nil:
		return 0, f.failed(c, memoryEvents, err)
	case !found:
		return 0, errAbsent
	}
	return kills, nil
}

func (f *Files) readThrottle(c *model.Container, g *groupFiles) error {
	inKernel := f.use(g, throttleFigure)
	if !inKernel && g.throttle.skips(f.turn, g.first) && !g.readsLimits(f.turn) {
		return nil
	}
	var t model.ThrottleCounters
	var err error
	if inKernel {
		t = g.kernel.figures.Throttle
	} else {
		t, err = f.throttlingInFile(c, g)
	}
	if err == nil {
		t.QuotaCores = g.last.throttle.QuotaCores
		g.throttle.note(t == g.last.throttle)
		g.last.throttle = t
		switch {
		case f.use(g, quotaFigure):
			g.last.throttle.QuotaCores = g.kernel.figures.QuotaCores
		case g.readsLimits(f.turn):
			g.last.throttle.QuotaCores, err = f.quota(c, g)
		}
	}
	return g.keep(throttleNumbers, err)
}

// throttlingInFile is errAbsent where the group has no CPU controller.
func (f *Files) throttlingInFile(c *model.Container, g *groupFiles) (model.ThrottleCounters, error) {
	text, err := f.text(c, g, cpuStat)
	if err != nil {
		return model.ThrottleCounters{}, err
	}
	t, found, err := parseThrottle(text)
	switch {
	case err != nil:
		return t, f.failed(c, cpuStat, err)
	case !found:
		return t, errAbsent
	}
	return t, nil
}

// quota is the container's own limit in cores, in whole model.Microcores as the kernel program has it; 0 where it has none.
func (f *Files) quota(c *model.Container, g *groupFiles) (float64, error) {
	text, err := f.text(c, g, cpuQuota)
	if errors.Is(err, errAbsent) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	quota, period, err := parseQuota(text)
	if err != nil {
		return 0, f.failed(c, cpuQuota, err)
	}
	if period == 0 && quota != 0 {
		if period, err = f.value(c, g, cpuPeriod); err != nil {
			return 0, err
		}
	}
	if period == 0 {
		return 0, nil
	}
	return math.Round(float64(quota)*model.Microcores/float64(period)) / model.Microcores, nil
}

func (f *Files) readThreads(c *model.Container, g *groupFiles) error {
	switch {
	case f.use(g, threadsLimitFigure):
		g.last.threadsLimit = g.kernel.figures.ThreadsLimit
	case g.readsLimits(f.turn):
		limit, err := f.value(c, g, pidsMax)
		if err == nil || errors.Is(err, errAbsent) {
			g.last.threadsLimit = limit
		} else if !gone(err) {
			return err
		}
	}
	if f.use(g, threadsFigure) {
		g.last.threads = g.kernel.figures.Threads
		return g.keep(threadNumbers, nil)
	}
	n, err := f.value(c, g, pidsCurrent)
	if err == nil {
		g.last.threads = n
	}
	return g.keep(threadNumbers, err)
}

func (f *Files) readDisk(c *model.Container, g *groupFiles) error {
	every := uint64(backoffEvery)
	if f.disks != nil {
		every = quietEvery
		if now := f.disks(c.ID); now != g.operations {
			g.operations, g.disk = now, 0
		}
	}
	if g.disk.skipsBut(f.turn, g.first, every) {
		return nil
	}
	var d model.DiskCounters
	var err error
	if f.sources[diskBytes].v2 {
		var text []byte
		if text, err = f.text(c, g, diskBytes); err == nil {
			if d, err = parseIOStat(text); err != nil {
				err = f.failed(c, diskBytes, err)
			}
		}
	} else {
		d, err = f.blkio(c, g)
	}
	switch {
	case err == nil:
		g.disk.note(d == g.last.disk)
		g.last.disk = d
	case errors.Is(err, errAbsent):
		g.disk.note(true)
	}
	return g.keep(diskNumbers, err)
}

func (f *Files) blkio(c *model.Container, g *groupFiles) (d model.DiskCounters, err error) {
	text, err := f.text(c, g, diskBytes)
	if err != nil {
		return d, err
	}
	devices := 0
	if d.ReadBytes, d.WriteBytes, devices, err = parseBlkio(text); err != nil {
		return d, f.failed(c, diskBytes, err)
	}
	if devices > 0 {
		f.counted.Store(true)
	}
	if !f.counted.Load() {
		return d, errAbsent
	}
	if text, err = f.text(c, g, diskOperations); err != nil {
		return d, err
	}
	if d.Reads, d.Writes, _, err = parseBlkio(text); err != nil {
		return d, f.failed(c, diskOperations, err)
	}
	return d, nil
}

// rootCountsDisk reports whether the kernel counts block I/O of v1 groups on any device.
func (f *Files) rootCountsDisk() bool {
	s := f.sources[diskBytes]
	if s.mount == "" || s.v2 {
		return false
	}
	for _, name := range s.names {
		text, err := readLimited(s.mount+"/"+name, bufferLimit)
		if err != nil {
			continue
		}
		_, _, devices, err := parseBlkio(text)
		return err == nil && devices > 0
	}
	return false
}

// failed says what could not be parsed.
func (f *Files) failed(c *model.Container, k fileKind, err error) error {
	return fmt.Errorf("parsing %s of %q: %w", f.sources[k].names[0], c.CgroupPath, err)
}

// Usage is what the control group files of a container say. Groups of numbers that cannot be
// read are nil. The pointers lead into the Usage itself: it must not be copied, and needs no
// other memory.
type Usage struct {
	Memory   *model.MemorySample
	Throttle *model.ThrottleCounters
	Pressure *model.PressureCounters
	Disk     *model.DiskCounters
	Network  *model.NetworkCounters
	// TCP is of the network namespace, as Network is.
	TCP *model.TCPCounters
	// Threads is the number of tasks now.
	Threads *uint64
	// ThreadsLimit is how many tasks there may be, 0 for any number.
	ThreadsLimit uint64
	// OpenFiles are those of the process that is nearest to its limit, OpenFilesLimit; both are 0 where that is not known.
	OpenFiles, OpenFilesLimit uint64
	// BusyThreads is over how many threads CPU time is spread, 0 where that is not known.
	BusyThreads float64
	// Forwarded are packets that the network namespace forwarded, 0 where it has no two interfaces that are used.
	Forwarded uint64
	// Err reports why a file that is there could not be read or parsed; a group that has
	// vanished is no error.
	Err error

	numbers numbers
}

// numbers are the last numbers of a container, and which of them there are.
type numbers struct {
	memory   model.MemorySample
	throttle model.ThrottleCounters
	pressure model.PressureCounters
	disk     model.DiskCounters
	network  model.NetworkCounters
	stack    model.TCPCounters
	threads  uint64
	busy     float64
	// threadsLimit is 0 where there is none.
	threadsLimit uint64
	files        fileUse
	// forwarded is of the network namespace, as network is.
	forwarded uint64
	has       [kinds]bool
}

// kind is a group of numbers.
type kind int

const (
	memoryNumbers kind = iota
	throttleNumbers
	pressureNumbers
	diskNumbers
	networkNumbers
	stackNumbers
	threadNumbers
	fileNumbers
	kinds
)

func (u *Usage) set(n *numbers) {
	u.numbers = *n
	u.BusyThreads, u.Forwarded, u.ThreadsLimit = n.busy, n.forwarded, n.threadsLimit
	u.OpenFiles, u.OpenFilesLimit = n.files.count, n.files.limit
	u.Memory, u.Throttle, u.Pressure, u.Disk, u.Network, u.TCP, u.Threads = nil, nil, nil, nil, nil, nil, nil
	if n.has[memoryNumbers] {
		u.Memory = &u.numbers.memory
	}
	if n.has[throttleNumbers] {
		u.Throttle = &u.numbers.throttle
	}
	if n.has[pressureNumbers] {
		u.Pressure = &u.numbers.pressure
	}
	if n.has[diskNumbers] {
		u.Disk = &u.numbers.disk
	}
	if n.has[networkNumbers] {
		u.Network = &u.numbers.network
	}
	if n.has[stackNumbers] {
		u.TCP = &u.numbers.stack
	}
	if n.has[threadNumbers] {
		u.Threads = &u.numbers.threads
	}
}
