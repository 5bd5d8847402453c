package kernel

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"

	"outsight/internal/model"
)

// The bounds of Options where they are 0.
const (
	DefaultMaxCgroups = 1024
	DefaultMaxEdges   = 2048
)

// Options of Open. The zero value works.
type Options struct {
	// MaxCgroups bounds the control groups that are counted each by themselves (default DefaultMaxCgroups,
	// 7 KiB of kernel memory each); further ones are counted together.
	MaxCgroups int
	// MaxEdges bounds the edges (default DefaultMaxEdges, 7 KiB of kernel memory each). When three
	// quarters are in use, edges without connections and traffic are given up.
	MaxEdges int
	// MaxGroupEdges bounds the edges of one control group, or one container (see ShareQuotas; default an eighth of
	// MaxEdges, at least 64): what it has beyond them is counted under few. Of listeners one may have an eighth, of
	// endpoints and connections a quarter.
	MaxGroupEdges int
	// MaxConnections bounds the open connections whose server learns its client's control
	// group from the kernel (default 65536, about 0.2 KiB each while open).
	MaxConnections int
	// MaxFlows bounds the pairs of a UDP socket and one of its peers, where it has several, that
	// are followed at a time (default 16384, 0.2 KiB each), and the DNS queries without a reply; the least
	// recently used are evicted. A quarter is for control groups that have more than a quarter.
	MaxFlows int
	// MaxStreams bounds the streams of HTTP/2 that are open at a time (default 65536, 0.2 KiB
	// each while open). One control group may have a quarter.
	MaxStreams int
	// MaxEndpoints bounds the things asked for that are counted each by themselves, told apart
	// by edge and status (default 1024, 7 KiB of kernel memory each). When three quarters are
	// in use, those that were silent for a minute are given up.
	MaxEndpoints int
	// MaxEdgeEndpoints bounds those of one edge (default 64); further ones are its "other".
	MaxEdgeEndpoints int
	// WithoutEndpoints leaves requests unread: transactions are only timed.
	WithoutEndpoints bool
	// TLS reads requests of encrypted connections at the TLS libraries of the programs (OpenSSL, Go),
	// with uprobes. Each call of a library then costs microseconds: it is
	// stopped twice.
	TLS bool
	// MaxListeners bounds the listening sockets (default 16384).
	MaxListeners int
	// MaxDisks bounds the pairs of a control group and a block device (default DefaultMaxDisks, 14 KiB of
	// kernel memory each); further ones are counted together. When three quarters are in use,
	// those that were silent for a minute are given up. MaxRequests bounds the requests to devices
	// that are timed at a time (default DefaultMaxRequests).
	MaxDisks, MaxRequests int
	// WithoutDisks counts nothing of devices and files.
	WithoutDisks bool
	// GroupMount is where the hierarchy that identifies containers is mounted, BlockMount where that is
	// which accounts block I/O. They are needed where these are two.
	GroupMount, BlockMount string
	// LogRequests makes DiskRequests work, as LogTransactions does for Transactions.
	LogRequests int
	// WithoutContention does not count who ran while whom waited for a CPU.
	WithoutContention bool
	// Counters chooses the hardware counters per control group (default off), which are read when a
	// CPU goes to another group.
	Counters CounterMode
	// CounterProcesses bounds the processes whose counters are read each by itself (default 1024 with
	// CountersProcesses, none otherwise; 88 bytes of kernel memory each on each CPU); what further ones count is
	// their group's alone. They are read when a CPU goes to another process.
	CounterProcesses int
	// HTRatio is the power of a core with two busy hardware threads over that with one (default
	// DefaultHTRatio).
	HTRatio float64
	// SysFS is where sysfs is mounted (default /sys).
	SysFS string
	// LogTransactions makes Transactions work: single transactions are logged too, with room
	// for so many between two calls (48 bytes of kernel memory each). 0 is off. It is for the
	// tests and benchmarks of this project alone.
	LogTransactions int
	// Controller names the cgroup v1 controller whose hierarchy identifies containers
	// ("memory" or "cpu"); empty is the default hierarchy, cgroup v2.
	Controller string
	// ProcFS is where procfs is mounted (default /proc).
	ProcFS string
	// KernelTypes is the kernel's description of its own types (default
	// /sys/kernel/btf/vmlinux).
	KernelTypes string
	Logger      *slog.Logger
	// dataWay is the only one of dataWays to be tried, counted from one.
	dataWay int
	// threadStates is for how many threads' states there is room in a hash, as on kernels where tasks have no
	// storage; 0 is what the kernel has.
	threadStates uint32
	// nearRequests is a power of two, see disk.h.
	nearRequests uint32
	// singleUprobes attaches them one by one, as on kernels before Linux 6.6.
	singleUprobes bool
	// prepare changes the object that counts edges before it is loaded.
	prepare func(*ebpf.CollectionSpec)
	// events opens perf events; nil is the kernel's.
	events *eventOpener
	// types are the kernel's, if somebody has decoded them already.
	types *btf.Cache
}

func (o *Options) setDefaults() {
	o.MaxCgroups = max(defaultTo(o.MaxCgroups, DefaultMaxCgroups), 16)
	o.MaxEdges = max(defaultTo(o.MaxEdges, DefaultMaxEdges), 16)
	o.MaxGroupEdges = defaultTo(o.MaxGroupEdges, max(o.MaxEdges/8, 64))
	o.MaxConnections = defaultTo(o.MaxConnections, 65536)
	o.MaxFlows = defaultTo(o.MaxFlows, 16384)
	o.MaxStreams = defaultTo(o.MaxStreams, 65536)
	o.MaxEndpoints = max(defaultTo(o.MaxEndpoints, 1024), 16)
	o.MaxEdgeEndpoints = defaultTo(o.MaxEdgeEndpoints, 64)
	o.MaxListeners = defaultTo(o.MaxListeners, 16384)
	if o.Counters == CountersProcesses {
		o.Counters, o.CounterProcesses = CountersAuto, defaultTo(o.CounterProcesses, 1024)
	}
	o.MaxDisks = max(defaultTo(o.MaxDisks, DefaultMaxDisks), 16)
	o.MaxRequests = defaultTo(o.MaxRequests, DefaultMaxRequests)
	if o.ProcFS == "" {
		o.ProcFS = "/proc"
	}
	if o.KernelTypes == "" {
		o.KernelTypes = "/sys/kernel/btf/vmlinux"
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

func defaultTo(n, d int) int {
	if n <= 0 {
		return d
	}
	return n
}

// Probes are the loaded kernel programs and their maps. Its Read methods are for one goroutine
// at a time; the maps themselves may have any number of readers.
type Probes struct {
	options  Options
	features []model.Feature
	programs []loadedProgram
	// loading is the part whose programs are being loaded.
	loading  string
	cgroups  *cgroupReader
	edges    *edgeReader
	tls      *tlsWatcher
	disks    *diskReader
	files    *filesReader
	counters *counterReader
	log      *transactionLog
	// contention is nil where nobody counts who disturbs whom.
	contention *contentionReader
	// reclaim is nil where nobody counts it; victims are the drops of who tells of killed processes.
	reclaim *reclaimReader
	victims *ebpf.Map
	// kernel is what was loaded for, without its types, which are large; nil where there are none.
	kernel *kernel
	events chan model.CgroupEvent
	// done is closed by Close; reading tells whether somebody then closes events.
	done      chan struct{}
	reading   bool
	closeOnce sync.Once
	closers   []io.Closer
	// shed are the names of the parts that are given up.
	shed []string
	// attachments are those that Pause ends and Resume makes again.
	attachments []*attachment
}

type loadedProgram struct {
	// part is whose it is, unless it is one of those that can be given up.
	name, part string
	program    *ebpf.Program
}

// Open loads and attaches the programs that this kernel accepts. Each that it refuses is a
// feature that Features calls absent, and the Read methods answer with an error where none of
// their programs works. Open itself fails only for lack of privilege.
func Open(options Options) (*Probes, error) {
	options.setDefaults()
	if err := rlimit.RemoveMemlock(); err != nil {
		options.Logger.Warn("raising the locked-memory limit failed", "error", err)
	}
	p := &Probes{options: options, events: make(chan model.CgroupEvent, 1024), done: make(chan struct{})}
	kernel, err := readKernel(options)
	if err != nil {
		for _, h := range slices.Concat(cgroupHooks, edgeHooks, diskHooks, []hook{forkHook, tasksHook, filesExitHook, filesHook, contentionHook, reclaimHook, victimHook, recorderHook}) {
			p.addFeature(h, err)
		}
	} else {
		err = p.openParts(kernel)
		p.addFeature(recorderHook, canRecord())
		kernel.types = nil
		p.kernel = kernel
	}
	if len(p.programs) == 0 && errors.Is(err, unix.EPERM) {
		p.Close()
		return nil, fmt.Errorf("loading the kernel programs: %w", err)
	}
	// Decoding the kernel's types took tens of megabytes that are not needed again.
	debug.FreeOSMemory()
	return p, nil
}

// openParts loads and attaches all programs. Those at one hook run in the order in which they come here.
func (p *Probes) openParts(k *kernel) error {
	var errs []error
	for _, part := range []struct {
		name string
		open func(*kernel) error
	}{
		{"groups", p.openCgroups}, {"contention", p.openContention}, {"memory", p.openReclaim}, {"connections", p.openEdges},
		{"disks", p.openDisk}, {"files", p.openFiles},
	} {
		if part.name == "contention" && p.options.WithoutContention {
			continue
		}
		p.loading = part.name
		errs = append(errs, part.open(k))
	}
	p.loading = "counters"
	p.openCounters(k)
	return errors.Join(errs...)
}

// Features tells of each program whether it works here.
func (p *Probes) Features() []model.Feature {
	return append(append([]model.Feature(nil), p.features...), p.counters.features(p.options.Counters)...)
}

// Events delivers the lifecycle of control groups. The channel is closed by Close. A reader that
// lags by more than 1024 events makes the kernel's ring fill, which Drops counts.
func (p *Probes) Events() <-chan model.CgroupEvent { return p.events }

// ProgramCosts tells how often each program ran and for how long. Run times stay 0 unless the
// kernel's statistics are on (EnableStatistics).
func (p *Probes) ProgramCosts() []model.ProgramCost {
	var costs []model.ProgramCost
	for _, l := range p.programs {
		stats, err := l.program.Stats()
		if err != nil {
			continue
		}
		costs = append(costs, model.ProgramCost{
			Name: l.name, Runs: stats.RunCount, Missed: stats.RecursionMisses, RunTimeNS: uint64(stats.Runtime),
		})
	}
	return costs
}

// EnableStatistics turns the kernel's program statistics on until the returned Closer is closed.
// They cost about 40 ns for each run of any program on the host.
func EnableStatistics() (io.Closer, error) {
	closer, err := ebpf.EnableStats(uint32(0)) // BPF_STATS_RUN_TIME
	if err != nil {
		return nil, fmt.Errorf("enabling bpf statistics: %w", err)
	}
	return closer, nil
}

// Drops lists every bounded table with what found no room in it.
func (p *Probes) Drops() []model.Drop {
	var drops []model.Drop
	if p.cgroups != nil {
		drops = append(drops, p.cgroups.drops()...)
	}
	if p.contention != nil {
		drops = append(drops, p.contention.drops()...)
	}
	drops = append(drops, p.reclaimDrops()...)
	if p.edges != nil {
		drops = append(drops, p.edges.drops()...)
	}
	if p.tls != nil {
		drops = append(drops, p.tls.drops()...)
	}
	if p.disks != nil {
		drops = append(drops, p.disks.drops()...)
	}
	if p.files != nil {
		drops = append(drops, p.files.drops()...)
	}
	drops = append(drops, p.counters.drops()...)
	if p.log != nil {
		drops = append(drops, p.log.drop())
	}
	return drops
}

// Close detaches and unloads everything.
func (p *Probes) Close() error {
	var errs []error
	for i := len(p.closers) - 1; i >= 0; i-- {
		errs = append(errs, p.closers[i].Close())
	}
	p.closers = nil
	p.closeOnce.Do(func() {
		close(p.done)
		if !p.reading {
			close(p.events)
		}
	})
	return errors.Join(errs...)
}

// onClose closes c with the probes, which also keeps it from being collected before.
func (p *Probes) onClose(c io.Closer) { p.closers = append(p.closers, c) }

// kernel is what loading depends on.
type kernel struct {
	types *btf.Cache
	cpus  int
	// subsys is the controller's index in css_set.subsys, -1 for the default hierarchy.
	subsys int32
	// memory and cpu are the indices of these controllers, -1 where the kernel has none.
	memory, cpu int32
	// io is that of block I/O, also on v1, where people call it blkio.
	io int32
	// hierarchy is the id of the hierarchy in /proc/self/cgroup, 0 for the default one.
	hierarchy uint32
	// switchHasState: sched_switch has the previous task's state as an argument (5.18).
	switchHasState bool
	// requestIsSecond: block_rq_issue has the queue before the request (until 5.11).
	requestIsSecond bool
	// runQueueClock: a task leads to its run queue's clock (CONFIG_FAIR_GROUP_SCHED), and a
	// program can be run to compare it with the monotonic clock (5.14).
	runQueueClock bool
	jiffyNS       uint64
}

func readKernel(o Options) (*kernel, error) {
	if _, err := os.Stat(o.KernelTypes); err != nil {
		return nil, fmt.Errorf("reading the kernel's types: %w (the kernel needs CONFIG_DEBUG_INFO_BTF=y)", err)
	}
	types := o.types
	if types == nil {
		types = btf.NewCache()
	}
	spec, err := types.Kernel()
	if err != nil {
		return nil, fmt.Errorf("reading the kernel's types: %w", err)
	}
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return nil, fmt.Errorf("counting the possible CPUs: %w", err)
	}
	k := &kernel{types: types, cpus: cpus, subsys: -1, jiffyNS: jiffyNS(o.ProcFS),
		switchHasState: switchHasState(spec), requestIsSecond: requestIsSecond(spec),
		runQueueClock: hasMember(spec, "sched_entity", "cfs_rq") && features.HaveProgramType(ebpf.Syscall) == nil}
	for controller, index := range map[string]*int32{"memory": &k.memory, "cpu": &k.cpu, "io": &k.io} {
		if *index, err = subsysIndex(spec, controller); err != nil {
			*index = -1
		}
	}
	if o.Controller == "" {
		return k, nil
	}
	if k.subsys, err = subsysIndex(spec, o.Controller); err != nil {
		return nil, err
	}
	k.hierarchy, err = hierarchyID(o.ProcFS, o.Controller)
	return k, err
}

// switchHasState looks the arguments of sched_switch up: context, preempt, prev, next and, since
// kernel commit fa2c3254d7cf, prev_state.
func switchHasState(spec *btf.Spec) bool { return tracepointArguments(spec, "sched_switch") >= 5 }

// tracepointArguments is how many arguments a tracepoint has, the context included; 0 if there is none.
func tracepointArguments(spec *btf.Spec, name string) int {
	var proto *btf.Typedef
	if err := spec.TypeByName("btf_trace_"+name, &proto); err != nil {
		return 0
	}
	pointer, ok := proto.Type.(*btf.Pointer)
	if !ok {
		return 0
	}
	function, ok := pointer.Target.(*btf.FuncProto)
	if !ok {
		return 0
	}
	return len(function.Params)
}

func hasMember(spec *btf.Spec, structure, member string) bool {
	var s *btf.Struct
	if err := spec.TypeByName(structure, &s); err != nil {
		return false
	}
	return slices.ContainsFunc(s.Members, func(m btf.Member) bool { return m.Name == member })
}

func subsysIndex(spec *btf.Spec, controller string) (int32, error) {
	var ids *btf.Enum
	if err := spec.TypeByName("cgroup_subsys_id", &ids); err != nil {
		return 0, fmt.Errorf("looking up the kernel's cgroup controllers: %w", err)
	}
	for _, v := range ids.Values {
		if v.Name == controller+"_cgrp_id" {
			return int32(v.Value), nil
		}
	}
	return 0, fmt.Errorf("the kernel has no cgroup controller %q", controller)
}

// eventTime turns the kernel's monotonic nanoseconds into wall-clock time.
func eventTime(ns uint64) time.Time {
	return time.Now().Add(-time.Duration(monotonicNS() - ns))
}
