package kernel

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime/debug"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"

	"outsight/internal/kernel/block"
	"outsight/internal/kernel/forward"
	"outsight/internal/kernel/groups"
	"outsight/internal/kernel/host"
	"outsight/internal/kernel/net"
	"outsight/internal/kernel/sched"
	"outsight/internal/kernel/tick"
	"outsight/internal/model"
)

// The bounds of Options where they are 0.
const (
	DefaultMaxCgroups  = sched.DefaultMaxCgroups
	DefaultMaxEdges    = net.DefaultMaxEdges
	DefaultMaxDisks    = block.DefaultMaxDisks
	DefaultMaxRequests = block.DefaultMaxRequests
)

// PacketMode is what is found out about packets.
type PacketMode = net.PacketMode

// The modes of packets.
const (
	PacketsOff      = net.PacketsOff
	PacketsInSlices = net.PacketsInSlices
	PacketsAll      = net.PacketsAll
)

// PacketsIf is the mode of users: PacketsInSlices or PacketsOff.
func PacketsIf(on bool) PacketMode {
	if on {
		return PacketsInSlices
	}
	return PacketsOff
}

// Options of Open. The zero value works.
type Options struct {
	// MaxCgroups bounds the control groups that are counted each by themselves (default DefaultMaxCgroups,
	// 7 KiB of kernel memory each); further ones are counted together.
	MaxCgroups int
	// MaxEdges bounds the edges (default DefaultMaxEdges, 7 KiB of kernel memory each). When three
	// quarters are in use, edges without connections and traffic are evicted.
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
	// MaxEndpoints bounds the things asked for that are counted each by themselves, apart
	// by edge and status (default 1024, 7 KiB of kernel memory each). When three quarters are
	// in use, those that were silent for a minute are evicted.
	MaxEndpoints int
	// MaxEdgeEndpoints bounds those of one edge (default 64); further ones are its "other".
	MaxEdgeEndpoints int
	// WithoutEndpoints leaves requests unread: transactions are only timed.
	WithoutEndpoints bool
	// Packets counts packets on their way, and observes order and delay of a sample of them (default PacketsOff).
	Packets PacketMode
	// TLS reads requests of encrypted connections at the TLS libraries of the programs (OpenSSL, Go),
	// with uprobes. Each call of a library then costs microseconds: it is
	// stopped twice.
	TLS bool
	// MaxListeners bounds the listening sockets (default 16384).
	MaxListeners int
	// MaxDisks bounds the pairs of a control group and a block device (default DefaultMaxDisks, 14 KiB of
	// kernel memory each); further ones are counted together. When three quarters are in use,
	// those that were silent for a minute are evicted. MaxRequests bounds the requests to devices
	// that are timed at a time (default DefaultMaxRequests).
	MaxDisks, MaxRequests int
	// MaxFigures bounds the control groups some of whose files a kernel program reads instead (default 1024, 1 KiB of
	// kernel memory each).
	MaxFigures int
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
	// Types are the kernel's, if they are decoded already, as in tests.
	Types *btf.Cache
	// tests change what no user may.
	tests testOptions
}

// testOptions are for tests of this package.
type testOptions struct {
	threadStates, nearRequests uint32
	dataWay                    int
	singleUprobes              bool
	prepare                    func(*ebpf.CollectionSpec)
	events                     *sched.EventOpener
}

func (o *Options) setDefaults() {
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

// Probes are the loaded kernel programs and their maps, a module for each subject. Its Read methods are for one
// goroutine at a time; the maps themselves may have any number of readers.
type Probes struct {
	*sched.Sched
	*net.Net
	*block.Block
	*tick.Tick
	*forward.Forward
	*groups.Groups
	// modules in the order in which they are opened.
	modules []host.Module
	parts   *host.Parts
}

// newProbes makes all modules. One more is one more line here.
func newProbes(o Options) *Probes {
	p := &Probes{}
	p.Sched = sched.New(sched.Options{MaxCgroups: o.MaxCgroups, WithoutContention: o.WithoutContention,
		Counters:         o.Counters,
		CounterProcesses: o.CounterProcesses, HTRatio: o.HTRatio, SysFS: o.SysFS, ProcFS: o.ProcFS,
		ThreadStates: o.tests.threadStates, Events: o.tests.events})
	p.Net = net.New(net.Options{MaxCgroups: o.MaxCgroups, MaxEdges: o.MaxEdges, MaxGroupEdges: o.MaxGroupEdges,
		MaxConnections: o.MaxConnections,
		MaxFlows:       o.MaxFlows, MaxStreams: o.MaxStreams, MaxEndpoints: o.MaxEndpoints, MaxEdgeEndpoints: o.MaxEdgeEndpoints,
		MaxListeners: o.MaxListeners, WithoutEndpoints: o.WithoutEndpoints, TLS: o.TLS, Packets: o.Packets,
		LogTransactions: o.LogTransactions,
		ProcFS:          o.ProcFS, DataWay: o.tests.dataWay, SingleUprobes: o.tests.singleUprobes, Prepare: o.tests.prepare})
	p.Block = block.New(block.Options{MaxDisks: o.MaxDisks, MaxRequests: o.MaxRequests, Without: o.WithoutDisks,
		LogRequests: o.LogRequests, GroupMount: o.GroupMount, BlockMount: o.BlockMount, ProcFS: o.ProcFS,
		NearRequests: o.tests.nearRequests}, p.Sched)
	p.Tick = tick.New(tick.Options{FirstSlot: sched.FirstSlot, Types: o.Types}, p.Sched, p.Net, p.Block)
	p.Forward = forward.New(forward.Options{ProcFS: o.ProcFS})
	p.Groups = groups.New(groups.Options{Max: o.MaxFigures})
	p.Sched.UseSlots(p.Block)
	p.Sched.Logger, p.Net.Logger, p.Block.Logger, p.Tick.Logger = o.Logger, o.Logger, o.Logger, o.Logger
	p.Forward.Logger, p.Groups.Logger = o.Logger, o.Logger
	p.modules = []host.Module{p.Sched, p.Net, p.Block, p.Tick, p.Forward, p.Groups}
	p.parts = host.NewParts(p.modules...)
	return p
}

// Open loads and attaches the programs that this kernel accepts. Each that it refuses is a
// feature that Features calls absent, and the Read methods answer with an error where none of
// their programs works. Open itself fails only for lack of privilege.
func Open(options Options) (*Probes, error) {
	options.setDefaults()
	if err := rlimit.RemoveMemlock(); err != nil {
		options.Logger.Warn("raising the locked-memory limit failed", "error", err)
	}
	p := newProbes(options)
	kernel, err := host.ReadKernel(host.KernelOptions{Controller: options.Controller, ProcFS: options.ProcFS,
		BTF: options.KernelTypes, Types: options.Types})
	if err != nil {
		for _, m := range p.modules {
			for _, h := range m.Hooks() {
				m.AddFeature(h, err)
			}
		}
	} else {
		var errs []error
		for _, m := range p.modules {
			errs = append(errs, m.Open(kernel))
		}
		err = errors.Join(errs...)
	}
	if len(p.programs()) == 0 && errors.Is(err, unix.EPERM) {
		p.Close()
		return nil, fmt.Errorf("loading the kernel programs: %w", err)
	}
	// Decoding the kernel's types took tens of megabytes that are not needed again.
	debug.FreeOSMemory()
	return p, nil
}

func (p *Probes) programs() (all []host.LoadedProgram) {
	for _, m := range p.modules {
		all = append(all, m.Programs()...)
	}
	return all
}

// Features tells of each program whether it works here.
func (p *Probes) Features() (all []model.Feature) {
	for _, m := range p.modules {
		all = append(all, m.Features()...)
	}
	return all
}

// ProgramCosts tells how often each program ran and for how long. Run times stay 0 unless the
// kernel's statistics are on (EnableStatistics).
func (p *Probes) ProgramCosts() []model.ProgramCost { return host.ProgramCosts(p.modules...) }

// EnableStatistics turns the kernel's program statistics on until the returned Closer is closed.
func EnableStatistics() (io.Closer, error) { return host.EnableStatistics() }

// Drops lists every bounded table with what found no room in it.
func (p *Probes) Drops() (drops []model.Drop) {
	for _, m := range p.modules {
		drops = append(drops, m.Drops()...)
	}
	return drops
}

// ForgetCgroup releases what is kept of a control group that was removed, after its last reading.
func (p *Probes) ForgetCgroup(id model.CgroupID) {
	// The slots are the first module's: they are freed last.
	for i := len(p.modules) - 1; i >= 0; i-- {
		p.modules[i].Forget(id)
	}
}

// Parts are what can be shed, in that order, and then what cannot, with the names of their kernel programs
// as in ProgramCosts. Each program is of one part. What this kernel does not offer is not among them.
func (p *Probes) Parts() []model.Part { return p.parts.List() }

// Shed gives a part up: its programs are detached, and what they have counted stands still. It is for
// the goroutine that reads.
func (p *Probes) Shed(name string) error { return p.parts.Shed(name) }

// Restore takes up a part again that Shed gave up. What happened between is not counted.
func (p *Probes) Restore(name string) error { return p.parts.Restore(name) }

// Pause detaches the programs from their hooks; what they have counted stays. What happens until
// Resume is not seen. It is for benchmarks.
func (p *Probes) Pause() error { return p.parts.Pause() }

// Resume attaches again what Pause has detached.
func (p *Probes) Resume() error { return p.parts.Resume() }

// Close detaches and unloads everything.
func (p *Probes) Close() error {
	var errs []error
	for i := len(p.modules) - 1; i >= 0; i-- {
		errs = append(errs, p.modules[i].Close())
	}
	return errors.Join(errs...)
}
