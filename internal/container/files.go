package container

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"outsight/internal/model"
	"outsight/internal/netns"
)

// Files reads the control group files and interface counters of containers. It keeps the files
// open between two readings, and must not be used by two goroutines at a time.
type Files struct {
	layout   Layout
	proc     processes
	sources  [fileKinds]source
	groups   map[string]*groupFiles
	networks map[uint32]network
	// traffic is what was counted of each network namespace for the next reading, nil where that is not known.
	traffic map[uint32]uint64
	// disks has what containers did on disks by now, nil where that is not known.
	disks func(id string) uint64
	// ends are the other ends of the containers' interfaces, nil where they cannot be asked for; endsRead: in this turn.
	ends     *netns.FarEnds
	endsRead bool
	buffer   textBuffer
	// threads of the container that is looked at.
	threads []uint32
	turn    uint64
	// looked are the threads that were looked at in this reading; postponed is how often that of a container had to
	// wait for a later one.
	looked    int
	postponed uint64
	// lookedFiles are the processes whose open files were counted in this reading.
	lookedFiles int
	// open descriptors of maxOpen; reopened counts the readings for which there was none to keep.
	open, maxOpen int
	reopened      uint64
	// pressureless is why there is no pressure stall information; empty where there is.
	pressureless string
	// counted is true once the kernel is known to count block I/O of v1 groups.
	counted atomic.Bool
	// kernel is a program that reads some of the files' figures; nil where there is none.
	kernel KernelFigures
	// figuresRead: those of this turn.
	figuresRead bool
	trusts      [figureKinds]trust
	stats       *statMeanings
	// distrusted has a bit for each figure whose trust was lost and has not come back.
	distrusted atomic.Uint32
	// slots are where the kernel program writes, by the ID of the container; trusted is noteTrusted's.
	slots   sync.Map
	trusted atomic.Uint32
}

// network is one reading of a namespace's network.
type network struct {
	counters model.NetworkCounters
	turn     uint64
	backoff  backoff
	// still is how many looks in a row found what the one before had found, at most stillAfter.
	still int
	// traffic was counted of it by the last reading.
	traffic uint64
	// farEnds: each of its interfaces has its other end in the host's namespace, which has this number for it. farEnd is
	// what those had counted before the last reading. askedEnds: it was asked whether it is so.
	farEnds, askedEnds bool
	number             int32
	farEnd             netns.FarEnd
	// stack is of the namespace's TCP, once it was read.
	stack model.TCPCounters
	read  bool
	// forwarded packets, once it was looked.
	forwarded uint64
	looked    bool
}

// groupFiles are the open files of one container.
type groupFiles struct {
	cgroup model.CgroupID
	// turn of the last reading, and of the first: rare readings are spread by it.
	turn, first uint64
	fds         [fileKinds]int
	process     process
	kernel      groupSlot
	stat        memoryStat
	last        numbers
	// throttle, disk, kills and each file of pressure have a backoff each
	throttle, disk, kills backoff
	// operations on disks by the reading of then.
	operations uint64
	pressure   [len(pressureFiles)]backoff
	// busyDue: its threads were to be looked at, and there was no room.
	busyDue bool
	// filesDue: its open files were to be counted, and there was no room. looks counts when they were.
	filesDue   bool
	looks      uint64
	fileLimits map[uint32]fileLimit
	// ran is how long each thread had run when readBusy looked last, in ns.
	ran map[uint32]uint64
}

// NewFiles makes a reader for the hierarchies of l.
func NewFiles(l Layout, o Options) *Files {
	o = o.withDefaults()
	f := &Files{
		layout:   l,
		proc:     newProcesses(o.ProcRoot, l.Subsystem),
		sources:  sourcesOf(&l),
		groups:   make(map[string]*groupFiles),
		networks: make(map[uint32]network),
		buffer:   make(textBuffer, 16<<10),
		maxOpen:  openLimit(),
	}
	if f.pressureless = noPressure(&l, o.ProcRoot); f.pressureless != "" {
		for _, file := range pressureFiles {
			f.sources[file.kind].mount = ""
		}
	}
	return f
}

// Read reads all containers into usages, which is as long. Of a container that has ended it
// returns the last numbers. Files of containers that are not in the list are closed.
func (f *Files) Read(containers []*model.Container, usages []Usage) {
	f.turn++
	f.looked, f.lookedFiles = 0, 0
	if !f.counted.Load() && f.turn%16 == 1 {
		f.counted.Store(f.rootCountsDisk())
	}
	f.readFigures()
	f.readFarEnds()
	for i, c := range containers {
		f.read(c, &usages[i])
	}
	for id, g := range f.groups {
		if g.turn != f.turn {
			f.closeGroup(g)
			delete(f.groups, id)
		}
	}
	f.noteTrusted()
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
		f.follow(c, g)
		f.checkFigures(c, g)
		u.Err = errors.Join(f.readMemory(c, g), f.readThrottle(c, g), f.readPressure(c, g), f.readDisk(c, g),
			f.readThreads(c, g), f.readBusy(c, g), f.readOpenFiles(c, g), f.readNetwork(c, g))
	}
	u.set(&g.last)
}

// Close closes all files.
func (f *Files) Close() {
	for id, g := range f.groups {
		f.closeGroup(g)
		delete(f.groups, id)
	}
	if f.ends != nil {
		f.ends.Close()
		f.ends = nil
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
	pressure := model.Feature{Name: "cgroup/pressure",
		Purpose: "for how long containers were held up for lack of CPU, memory or disk", State: model.FeatureWorks}
	if f.pressureless != "" {
		pressure.State, pressure.Reason, pressure.Remedy = model.FeatureAbsent, f.pressureless,
			"boot with psi=1, and with cgroup v2 or systemd's hybrid hierarchy (Linux 4.20 or later)"
	}
	features = append(features, pressure)
	add("cgroup/disk", "block I/O of containers", diskBytes, boot)
	if disk := &features[len(features)-1]; disk.State == model.FeatureWorks && !f.sources[diskBytes].v2 &&
		!f.counted.Load() && !f.rootCountsDisk() {
		disk.State = model.FeatureAbsent
		disk.Reason = "this kernel counts block I/O of cgroup v1 only on devices with a throttling rule, and there is none"
		disk.Remedy = "boot with cgroup v2 (systemd.unified_cgroup_hierarchy=1)"
	}
	add("cgroup/write-back", "disk: what the page cache writes later counts for the container that wrote it", diskBytes,
		boot)
	if late := &features[len(features)-1]; late.State == model.FeatureWorks && !f.sources[diskBytes].v2 {
		late.State = model.FeatureAbsent
		late.Reason = "the kernel keeps it with cgroup v2 only: on v1 such writes are the host's"
		late.Remedy = "boot with cgroup v2 (systemd.unified_cgroup_hierarchy=1)"
	}
	if f.kernel != nil {
		features = append(features, f.kernelFeature())
	}
	return features
}

// Drops reports how many descriptors are open, and how many readings had to open a file of their
// own because no more may be kept: they cost more, and nothing is lost. And how often a look at a container's threads
// began later.
func (f *Files) Drops() []model.Drop {
	return []model.Drop{
		{Name: "container/open-files", Count: f.reopened, Capacity: uint64(f.maxOpen), Used: uint64(f.open)},
		{Name: "container/postponed-threads", Count: f.postponed},
	}
}

// CPUUsage is the CPU time in ns that the control group files report of a container, the groups
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

// Unchanged files are polled less often. Reading one costs 15 to 30 µs, and most say the same for hours. What they say
// is cumulative, so a late reading loses nothing, except the last numbers of a container that ends.
const (
	// backoffAfter is the number of equal readings in a row after which a file is polled less often.
	backoffAfter = 8
	// backoffEvery is how many turns apart it is read then, until it changes.
	backoffEvery = 3
	// quietEvery is that where something else tells of most changes.
	quietEvery = 9
	// stillAfter is the number of equal looks in a row after which such a file is read each stackEvery turns alone.
	stillAfter = backoffAfter + 8
)

// Traffic says what kernel programs have counted in each network namespace, by its number: sums that change with most of
// what its interfaces count. It is for the next reading. Where a namespace's sum is another one its interfaces are read,
// and where it stands still they are looked at rarely.
func (f *Files) Traffic(of map[uint32]uint64) { f.traffic = of }

// Disks says what kernel programs have counted of containers' requests to disks, by ID: sums that change with most of what
// the files of block I/O count. It is for the next reading. Where a container's sum stands still they are looked at rarely.
func (f *Files) Disks(of func(id string) uint64) { f.disks = of }

// backoff counts the equal readings in a row of a file.
type backoff uint8

// skips reports whether the reading of this turn is left out. Containers that began at different times are
// read in different turns.
func (b backoff) skips(turn, first uint64) bool { return b.skipsBut(turn, first, backoffEvery) }

// skipsBut is skips of a file that is read so many turns apart.
func (b backoff) skipsBut(turn, first, every uint64) bool {
	return b >= backoffAfter && (turn-first)%every != 0
}

// note takes note of a reading.
func (b *backoff) note(same bool) {
	switch {
	case !same:
		*b = 0
	case *b < backoffAfter:
		*b++
	}
}
