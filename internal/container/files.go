package container

import (
	"errors"
	"fmt"
	"os"

	"outsight/internal/model"
)

// Usage is what the control group files of a container say. Groups of numbers that cannot be
// read are nil. The pointers lead into the Usage itself: it must not be copied, and needs no
// other memory.
type Usage struct {
	Memory   *model.MemorySample
	Throttle *model.ThrottleCounters
	Disk     *model.DiskCounters
	Network  *model.NetworkCounters
	// Threads is the number of tasks now.
	Threads *uint64
	// Err tells why a file that is there could not be read or parsed; a group that has
	// vanished is no error.
	Err error

	numbers numbers
}

// numbers are the last numbers of a container, and which of them there are.
type numbers struct {
	memory   model.MemorySample
	throttle model.ThrottleCounters
	disk     model.DiskCounters
	network  model.NetworkCounters
	threads  uint64
	has      [kinds]bool
}

// kind is a group of numbers.
type kind int

const (
	memoryNumbers kind = iota
	throttleNumbers
	diskNumbers
	networkNumbers
	threadNumbers
	kinds
)

func (u *Usage) set(n *numbers) {
	u.numbers = *n
	u.Memory, u.Throttle, u.Disk, u.Network, u.Threads = nil, nil, nil, nil, nil
	if n.has[memoryNumbers] {
		u.Memory = &u.numbers.memory
	}
	if n.has[throttleNumbers] {
		u.Throttle = &u.numbers.throttle
	}
	if n.has[diskNumbers] {
		u.Disk = &u.numbers.disk
	}
	if n.has[networkNumbers] {
		u.Network = &u.numbers.network
	}
	if n.has[threadNumbers] {
		u.Threads = &u.numbers.threads
	}
}

// Files reads the control group files and interface counters of containers. It keeps the files
// open between two readings, and must not be used by two goroutines at a time.
type Files struct {
	layout   Layout
	proc     processes
	sources  [fileKinds]source
	groups   map[string]*groupFiles
	networks map[uint32]network
	buffer   []byte
	turn     uint64
	// open descriptors of maxOpen; reopened counts the readings for which there was none to keep.
	open, maxOpen int
	reopened      uint64
	// counted is true once the kernel is known to count block I/O of v1 groups.
	counted bool
}

// network is one reading of a namespace's interfaces.
type network struct {
	counters model.NetworkCounters
	turn     uint64
}

// groupFiles are the open files of one container.
type groupFiles struct {
	cgroup model.CgroupID
	// turn of the last reading, and of the first: rare readings are spread by it.
	turn, first uint64
	fds         [fileKinds]int
	process     process
	stat        memoryStat
	last        numbers
}

// NewFiles makes a reader for the hierarchies of l.
func NewFiles(l Layout, o Options) *Files {
	o = o.withDefaults()
	return &Files{
		layout:   l,
		proc:     newProcesses(o.ProcRoot, l.Subsystem),
		sources:  sourcesOf(&l),
		groups:   make(map[string]*groupFiles),
		networks: make(map[uint32]network),
		buffer:   make([]byte, 16<<10),
		maxOpen:  openLimit(),
	}
}

// Read reads all containers into usages, which is as long. Of a container that has ended it
// returns the last numbers. Files of containers that are not in the list are closed.
func (f *Files) Read(containers []*model.Container, usages []Usage) {
	f.turn++
	if !f.counted && f.turn%16 == 1 {
		f.counted = f.rootCountsDisk()
	}
	for i, c := range containers {
		f.read(c, &usages[i])
	}
	for id, g := range f.groups {
		if g.turn != f.turn {
			f.closeGroup(g)
			delete(f.groups, id)
		}
	}
	for id, n := range f.networks {
		if n.turn != f.turn {
			delete(f.networks, id)
		}
	}
}

func (f *Files) read(c *model.Container, u *Usage) {
	u.Err = nil
	if c.ID == model.HostContainerID {
		u.set(&numbers{})
		return
	}
	g := f.groups[c.ID]
	if g == nil || g.cgroup != c.Cgroup {
		if g != nil {
			f.closeGroup(g)
		}
		g = &groupFiles{cgroup: c.Cgroup, first: f.turn}
		g.reset()
		f.groups[c.ID] = g
	}
	g.turn = f.turn
	if c.Ended.IsZero() {
		u.Err = errors.Join(f.readMemory(c, g), f.readThrottle(c, g), f.readDisk(c, g), f.readThreads(c, g), f.readNetwork(c, g))
	}
	u.set(&g.last)
}

// Close closes all files.
func (f *Files) Close() {
	for id, g := range f.groups {
		f.closeGroup(g)
		delete(f.groups, id)
	}
}

// Features reports which groups of numbers this host's control groups have. It may be called
// at any time.
func (f *Files) Features() []model.Feature {
	var features []model.Feature
	add := func(name, purpose string, k fileKind, remedy string) {
		feature := model.Feature{Name: name, Purpose: purpose, State: model.FeatureWorks}
		if f.sources[k].mount == "" {
			feature.State, feature.Remedy = model.FeatureAbsent, remedy
			feature.Reason = "no cgroup hierarchy has the controller " + f.sources[k].controller
		}
		features = append(features, feature)
	}
	const boot = "enable the controller when the host boots"
	add("cgroup/memory", "memory and page faults of containers", memoryStatFile, boot+" (cgroup_enable=memory)")
	add("cgroup/cpu", "throttling of containers with a CPU quota", cpuStat, boot)
	add("cgroup/pids", "threads of containers", pidsCurrent, boot)
	add("cgroup/disk", "block I/O of containers", diskBytes, boot)
	if disk := &features[len(features)-1]; disk.State == model.FeatureWorks && !f.sources[diskBytes].v2 && !f.rootCountsDisk() {
		disk.State = model.FeatureAbsent
		disk.Reason = "this kernel counts block I/O of cgroup v1 only on devices with a throttling rule, and there is none"
		disk.Remedy = "boot with cgroup v2 (systemd.unified_cgroup_hierarchy=1)"
	}
	return features
}

// Drops tells how many descriptors are open, and how many readings had to open a file of their
// own because no more may be kept: they cost more, and nothing is lost.
func (f *Files) Drops() []model.Drop {
	return []model.Drop{{Name: "container/open-files", Count: f.reopened, Capacity: uint64(f.maxOpen), Used: uint64(f.open)}}
}

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

// limitEvery is how many readings apart the limit of a v2 group is read.
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
	if m.UsageBytes, err = f.value(c, g, memoryUsage); err != nil {
		return err
	}
	text, err := f.text(c, g, memoryStatFile)
	if err != nil {
		return err
	}
	if g.stat, err = parseMemoryStat(text, v2); err != nil {
		return f.failed(c, memoryStatFile, err)
	}
	m.RSSBytes, m.CacheBytes = g.stat.rss, g.stat.cache
	m.PageFaults, m.MajorPageFaults = g.stat.faults, g.stat.majorFaults
	m.WorkingSetBytes = m.UsageBytes - min(m.UsageBytes, g.stat.inactiveFile)
	if !v2 {
		m.LimitBytes = g.stat.limit
	} else if (f.turn-g.first)%limitEvery == 0 {
		if m.LimitBytes, err = f.value(c, g, memoryLimit); err != nil && !errors.Is(err, errAbsent) {
			return err
		}
	}
	if text, err = f.text(c, g, memoryEvents); err != nil {
		if errors.Is(err, errAbsent) {
			return nil
		}
		return err
	}
	if m.OOMKills, _, err = parseKey(text, "oom_kill"); err != nil {
		return f.failed(c, memoryEvents, err)
	}
	return nil
}

func (f *Files) readThrottle(c *model.Container, g *groupFiles) error {
	text, err := f.text(c, g, cpuStat)
	if err == nil {
		var found bool
		var t model.ThrottleCounters
		t, found, err = parseThrottle(text)
		switch {
		case err != nil:
			err = f.failed(c, cpuStat, err)
		case !found:
			err = errAbsent
		default:
			g.last.throttle = t
		}
	}
	return g.keep(throttleNumbers, err)
}

func (f *Files) readThreads(c *model.Container, g *groupFiles) error {
	n, err := f.value(c, g, pidsCurrent)
	if err == nil {
		g.last.threads = n
	}
	return g.keep(threadNumbers, err)
}

func (f *Files) readDisk(c *model.Container, g *groupFiles) error {
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
	if err == nil {
		g.last.disk = d
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
	f.counted = f.counted || devices > 0
	if !f.counted {
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
		text, err := os.ReadFile(s.mount + "/" + name)
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

// CPUUsage is the CPU time in ns that the control group files tell of a container, the groups
// below included: cpuacct.usage of v1, to the nanosecond, or cpu.stat of v2, to the microsecond.
func (f *Files) CPUUsage(c *model.Container) (uint64, error) {
	if mount := f.layout.v1["cpuacct"]; mount != "" {
		text, err := readLimited(mount+c.CgroupPath+"/cpuacct.usage", procLimit)
		if err != nil {
			return 0, fmt.Errorf("reading the cpu time of %q: %w", c.CgroupPath, err)
		}
		return parseValue(text)
	}
	text, err := readLimited(f.layout.unified+c.CgroupPath+"/cpu.stat", procLimit)
	if err != nil {
		return 0, fmt.Errorf("reading the cpu time of %q: %w", c.CgroupPath, err)
	}
	usec, found, err := parseKey(text, "usage_usec")
	if err == nil && !found {
		err = errAbsent
	}
	if err != nil {
		return 0, fmt.Errorf("reading the cpu time of %q: %w", c.CgroupPath, err)
	}
	return usec * 1000, nil
}
