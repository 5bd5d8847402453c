// Package agent watches one host: it reads the kernel's counters once a second, puts names to
// them, makes a frame of it, and hands that to its sinks.
//
// What fails is left out and logged once; the others go on. Counters of a container only grow
// while it runs: those of its control groups that began and ended meanwhile are kept.
package agent

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"outsight/internal/container"
	"outsight/internal/disks"
	"outsight/internal/energy"
	"outsight/internal/frame"
	"outsight/internal/hostclock"
	"outsight/internal/model"
	"outsight/internal/network"
)

// Counters are what the kernel counted. The three are called by one goroutine.
type Counters interface {
	ReadCgroups() ([]model.CgroupCounters, error)
	ReadEdges() ([]model.KernelEdge, error)
	ReadListeners() ([]model.Listener, error)
}

// Disks are what the kernel counted on block devices. It is called by the goroutine that reads the Counters.
type Disks interface {
	ReadDisks() ([]model.KernelDisk, error)
}

// Contention reports who disturbs whom. It is called by the goroutine that reads the Counters.
type Contention interface {
	ReadContention() (*model.KernelContention, error)
}

// Quotas reports which control groups would have had more of the kernel's tables than their quotas. It is called by the
// goroutine that reads the Counters.
type Quotas interface {
	ReadOverQuota() []model.OverQuota
}

// Lifecycle reports the begin and the end of control groups, and frees what is kept of them.
type Lifecycle interface {
	// Events is closed when no more will come.
	Events() <-chan model.CgroupEvent
	// ForgetCgroup is called by the goroutine that reads the Counters.
	ForgetCgroup(model.CgroupID)
}

// Registry knows the containers.
type Registry interface {
	Collect() container.Collection
	// Lookup finds the container of a control group; the host's where it is in none.
	Lookup(model.CgroupID) *model.Container
	// Find does as Lookup does, and reports whether the answer stays.
	Find(model.CgroupID) (c *model.Container, known bool)
	HandleEvent(model.CgroupEvent)
}

// Files reads what the kernel says in files about containers.
type Files interface {
	// Read reads all containers into usages, which is as long.
	Read(containers []*model.Container, usages []container.Usage)
}

// Refresher is implemented by Files whose figures others read where they lie: Refresh brings them up to date. It is called by
// the goroutine that reads the Counters.
type Refresher interface {
	Refresh()
}

// TrafficTaker is implemented by Files that want to know before a reading in which network namespaces and on which
// containers' disks something went on. It is called by the goroutine that reads the Counters.
type TrafficTaker interface {
	// Traffic has by the number of a namespace a sum that changes with the counters of its edges; nil where they could not be
	// read.
	Traffic(map[uint32]uint64)
	// Disks has for the ID of a container a sum that changes with its requests to disks; it is nil where they could not be
	// read.
	Disks(of func(id string) uint64)
}

// Processes knows what to call a process. It is called by the goroutine that reads the Counters.
type Processes interface {
	// Name is what to call process pid, or where pid is 0 any process, of a control group of which
	// the kernel knows the name comm.
	Name(group model.CgroupID, comm string, pid int) string
	Forget(group model.CgroupID)
	Drops() []model.Drop
}

// Reporter reports what works, and of bounded things how full they are.
type Reporter interface {
	Features() []model.Feature
	Drops() []model.Drop
}

// Probes measure the network to other hosts.
type Probes interface {
	// Run measures until ctx ends. newest is the agent's newest frame, nil before the first; process opens a process of the
	// container with an ID as a pidfd, and is nil where that is not possible.
	Run(ctx context.Context, newest func() *frame.Frame, process func(container string) (*os.File, error)) error
	// Sample is what was counted, for one snapshot.
	Sample() *model.ProbeSample
}

// Applications reads metrics that processes define themselves.
type Applications interface {
	// Run looks for processes with metrics until ctx ends.
	Run(ctx context.Context)
	// Offer takes an event of kind model.MetricsFile, and tells whether it is of a new file that is read.
	Offer(model.CgroupEvent) (taken bool)
	// Read reads them all; owner is the container's ID of a control group.
	Read(owner func(model.CgroupID) string)
	// Of are those of a container, in order of the name.
	Of(container string) []model.ApplicationMetric
	// Keep forgets containers that are gone.
	Keep(containers []*model.Container)
}

// Programs reports what the kernel programs cost.
type Programs interface {
	ProgramCosts() []model.ProgramCost
}

// Sources are what a snapshot is made of. Counters and Registry are required.
type Sources struct {
	Counters Counters
	Registry Registry
	// Quotas is nil where there are none.
	Quotas Quotas
	// Contention is nil where it is not counted.
	Contention Contention
	// CountsReclaim reports whether the Counters count how long threads had to free memory.
	CountsReclaim bool
	Lifecycle     Lifecycle
	Files         Files
	Programs      Programs
	// Disks is nil where they are not counted.
	Disks Disks
	// Forwarding is nil where packets that containers forward are not timed.
	Forwarding Forwarding
	// Proxies is nil where requests are not timed on their way through proxies.
	Proxies Proxies
	// PacketDrops is nil where they are not counted.
	PacketDrops PacketDrops
	// Applications is nil where applications' own metrics are not read.
	Applications Applications
	// Probes is nil where the network to other hosts is not measured.
	Probes Probes
	// Clock is the host's (default: one without a device).
	Clock *hostclock.Clock
	// OpenProcess opens a process of a container, for Probes; nil where that is not possible.
	OpenProcess func(container string) (*os.File, error)
	// Processes is nil where the kernel's names are to be shown.
	Processes Processes
	// Translations reads at most limit connections whose server's address the host translates;
	// nil where that is not possible.
	Translations func(limit int) ([]model.Translation, error)
	// ProcessWork is nil where processes are not counted.
	ProcessWork ProcessWork
	// Work adds hardware counters to what Counters read, and Energy divides the host's energy among
	// containers; nil without one.
	Work      Work
	Energy    *energy.Account
	Reporters []Reporter
	// Senders and Answers report what this process wrote to connections; Answers is nil without a listener.
	Senders []Sender
	Answers *Answers
	// Parts are what things cost, and what can be shed; and Statistics turns the kernel's statistics of programs on
	// until they are closed; without both, and Programs, costs are not measured and no budget is kept.
	Parts      Parts
	Statistics func() (io.Closer, error)
}

// Sink takes frames, which are not to be changed. A sink that is slow or fails loses frames, which Snapshot.Self counts,
// and does not delay the others. One that implements KeyWanter, too, is asked before each frame.
type Sink interface {
	Consume(context.Context, *frame.Frame) error
}

// KeyWanter says that the next frame is to be a key frame, once for each time that it wants one.
type KeyWanter interface {
	WantsKey() bool
}

// Options of an Agent. The zero value works.
type Options struct {
	// Interval between two snapshots, aligned to the wall clock (default 1 s).
	Interval time.Duration
	// Rarely, if it is not 0, is the time between two snapshots from the tenth on, where no container begins or ends. In
	// the Intervals between, nothing is done but Refresh of Files.
	Rarely time.Duration
	// Refreshed says that the kernel does by itself what Refresh of Files does: an agent that reads rarely need not wake up
	// for it.
	Refreshed bool
	// Host as ReadHost finds it.
	Host    model.Host
	Network network.Options
	// Epoch is when the kernel programs began to count (default: when the agent is made).
	Epoch time.Time
	// Sinks by name. The name is part of messages and of the drop counters.
	Sinks map[string]Sink
	// ProcRoot is where procfs is mounted (default /proc).
	ProcRoot string
	// Budget is what everything may cost together, as a share of the host's CPU time; 0 is no limit.
	Budget float64
	Logger *slog.Logger

	// whenRead is told what was read before it is a frame, for tests of the reading; nil tells none.
	whenRead func(*model.Snapshot)
}

// Agent watches one host.
type Agent struct {
	sources    Sources
	options    Options
	capacities capacities
	resolver   *network.Resolver
	// fileSystems are those of the host.
	fileSystems fileSystems
	groups      *groups
	contention  *contention
	victims     *victims
	processes   *processWork
	sinks       []*queue
	failures    *failures
	// last is when the kernel was read for the newest frame. containersChanged: a control group of a container has begun
	// or ended since, or a process with metrics begun; changed has a value when it has become true.
	last              time.Time
	containersChanged atomic.Bool
	changed           chan struct{}
	builder           *frame.Builder
	frame             atomic.Pointer[frame.Frame]
	// edges are the last that could be read.
	edges []model.Edge
	disks *disks.Disks
	// operations are those of containers on disks, nil where they are not counted at present.
	operations func(id string) uint64
	// forwards are the namespaces that forward.
	forwards forwards
	proxies  proxies
	drops    *packetDrops
	// unread is why some of the kernel's counters could not be read for the newest frame.
	unread atomic.Pointer[error]

	// removed control groups whose counters may still move for a moment.
	removed   []model.CgroupID
	proc      procFiles
	listening []model.Listener
	listeners *listeners
	over      overQuotas
	network   hostNetwork
	// translations as they were found at the last look that did not fail; translationsOf stands for the attempts of then,
	// see network.NeedTranslations. translationsRead is when the last look was.
	translations     []model.Translation
	translationsRead time.Time
	translationsOf   uint64
	// keeping is nil where costs are not measured.
	keeping *keeping
	// programs are as they were when the measurement with that number was the newest.
	programs   []model.ProgramCost
	programsOf uint64
	spent      spending
	cpu        cpuFromFiles
}

// New makes an agent that reads sources. Nothing is read before Run.
func New(sources Sources, o Options) *Agent {
	o.Interval = cmp.Or(o.Interval, time.Second)
	o.ProcRoot = cmp.Or(o.ProcRoot, "/proc")
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Host.Cores == 0 {
		o.Host.Cores = runtime.NumCPU()
	}
	if o.Epoch.IsZero() {
		o.Epoch = time.Now()
	}
	if sources.Clock == nil {
		sources.Clock = &hostclock.Clock{}
	}
	a := &Agent{
		sources: sources, options: o,
		resolver:    network.New(o.Network),
		groups:      newGroups(),
		contention:  newContention(),
		victims:     newVictims(),
		processes:   newProcessWork(),
		failures:    newFailures(o.Logger),
		listeners:   newListeners(),
		over:        overQuotas{sums: make(map[string]uint64)},
		network:     hostNetwork{procRoot: o.ProcRoot},
		fileSystems: fileSystems{procRoot: o.ProcRoot},
		disks:       disks.New(),
		forwards:    forwards{of: make(map[uint32]*forward)},
		proxies:     proxies{of: make(map[string]*proxySums)},
		drops:       newPacketDrops(),
		builder:     frame.NewBuilder(o.Epoch),
		changed:     make(chan struct{}, 1),
	}
	for name, sink := range o.Sinks {
		a.sinks = append(a.sinks, newQueue(name, sink.Consume, &a.spent, o.Logger))
	}
	slices.SortFunc(a.sinks, func(x, y *queue) int { return strings.Compare(x.name, y.name) })
	a.cpu.files, _ = sources.Files.(cpuFiles)
	if sources.Parts != nil && sources.Programs != nil && sources.Statistics != nil {
		meter := &programMeter{programs: sources.Programs, enable: sources.Statistics, every: costEvery}
		if o.Budget > 0 {
			meter.every = budgetEvery
		}
		a.keeping = newKeeping(sources.Parts, meter, a.ownSpending, o.Budget, o.Host.Cores)
	}
	return a
}

// Frame is the newest frame, nil before the first. It may be called by anybody.
func (a *Agent) Frame() *frame.Frame { return a.frame.Load() }

// CountersError is why some of the kernel's counters could not be read for the newest frame,
// nil where all could. It may be called by anybody.
func (a *Agent) CountersError() error {
	if err := a.unread.Load(); err != nil {
		return *err
	}
	return nil
}

// Run makes a frame at once and then at every whole Interval of the wall clock, until ctx
// ends. It returns when the sinks have had the time to take what was waiting for them.
func (a *Agent) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	if a.sources.Lifecycle != nil {
		running.Go(func() { a.follow(ctx) })
	}
	if a.sources.Applications != nil {
		running.Go(func() { a.sources.Applications.Run(ctx) })
	}
	for _, q := range a.sinks {
		running.Go(func() { q.run(ctx) })
	}
	if a.keeping != nil {
		running.Go(func() { a.keeping.meter.run(ctx) })
	}
	if a.sources.Probes != nil {
		running.Go(func() {
			if err := a.sources.Probes.Run(ctx, a.Frame, a.sources.OpenProcess); err != nil {
				a.options.Logger.Error("the network to other hosts is measured no more", "error", err)
			}
		})
	}
	defer func() {
		for _, q := range a.sinks {
			q.close()
		}
	}()
	defer a.proc.close()
	timer := time.NewTimer(0)
	defer timer.Stop()
	refresher, _ := a.sources.Files.(Refresher)
	if a.options.Refreshed {
		refresher = nil
	}
	for steps := 0; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-a.changed:
			timer.Reset(a.pause(time.Now(), steps))
			continue
		case <-timer.C:
		}
		if a.due(time.Now(), steps) {
			a.step()
			steps++
		} else if refresher != nil {
			refresher.Refresh()
		}
		timer.Reset(a.pause(time.Now(), steps))
	}
}

// pause is how long there is nothing to do, after so many snapshots.
func (a *Agent) pause(now time.Time, steps int) time.Duration {
	pause := untilNext(now, a.options.Interval)
	if !a.options.Refreshed || steps < awakeSteps || a.containersChanged.Load() {
		return pause
	}
	for !a.rested(now.Add(pause)) {
		pause += a.options.Interval
	}
	return pause
}

// awakeSteps are made before an agent begins to read rarely: by then figures were compared with their files.
const awakeSteps = 10

// due says whether it is time for a snapshot, of which there were steps.
func (a *Agent) due(now time.Time, steps int) bool {
	changed := a.containersChanged.Swap(false)
	return steps < awakeSteps || changed || a.rested(now)
}

// rested says whether the last snapshot is as long ago as it may be.
func (a *Agent) rested(now time.Time) bool {
	return now.Sub(a.last) > a.options.Rarely-a.options.Interval/2
}

// step makes a frame and hands it on.
func (a *Agent) step() {
	f := a.build(a.read())
	a.frame.Store(f)
	for _, q := range a.sinks {
		q.put(f)
	}
}

func (a *Agent) build(s *model.Snapshot) *frame.Frame {
	if a.options.whenRead != nil {
		a.options.whenRead(s)
	}
	defer a.spent.on(partExport)()
	for _, sink := range a.options.Sinks {
		if k, ok := sink.(KeyWanter); ok && k.WantsKey() {
			a.builder.ForceKey()
		}
	}
	if s.Edges != nil {
		a.edges = s.Edges
		return a.builder.Build(s)
	}
	// They could not be read. Their rows go on: they must not have ended when the same counters come again.
	whole := *s
	whole.Edges = a.edges
	return a.builder.Build(&whole)
}

// follow hands lifecycle events to the registry.
func (a *Agent) follow(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case e, ok := <-a.sources.Lifecycle.Events():
			if !ok {
				return
			}
			switch e.Kind {
			case model.OOMKill:
				a.killed(e)
				continue
			case model.MetricsFile:
				a.offerMetrics(e)
				continue
			}
			end := a.spent.on(partContainers)
			a.sources.Registry.HandleEvent(e)
			if c := a.sources.Registry.Lookup(e.ID); e.Kind != model.TaskAttached && c != nil && c.ID != model.HostContainerID {
				a.wake()
			}
			end()
		}
	}
}

// wake has an agent that reads rarely make a snapshot in the next interval.
func (a *Agent) wake() {
	a.containersChanged.Store(true)
	if a.options.Rarely > 0 {
		select {
		case a.changed <- struct{}{}:
		default: // it knows
		}
	}
}

// untilNext is the time to the next whole interval. Half an interval is the least: a timer that
// fires just before its time must not make two readings, and one reading that takes long is
// followed by a pause.
func untilNext(now time.Time, interval time.Duration) time.Duration {
	return now.Add(interval / 2).Truncate(interval).Add(interval).Sub(now)
}
