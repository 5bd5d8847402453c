package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"outsight/internal/appmetrics"
	"outsight/internal/container"
	"outsight/internal/energy"
	"outsight/internal/hostclock"
	"outsight/internal/kernel"
	"outsight/internal/model"
	"outsight/internal/network"
	"outsight/internal/recorder"
)

// Bounds of the kernel's tables where HostOptions.Kernel has none, and the least and the most that there can be:
// a million edges take 7 GiB.
const (
	DefaultMaxGroups = kernel.DefaultMaxCgroups
	DefaultMaxEdges  = kernel.DefaultMaxEdges
	LeastMax         = 16
	MostMax          = 1 << 20
)

// HostOptions of Open. The zero value works on an ordinary host.
type HostOptions struct {
	Options
	// All makes systemd services containers.
	All bool
	// CgroupRoot, DockerSocket: see container.Options.
	CgroupRoot, DockerSocket string
	// Kernel bounds the kernel's tables; see kernel.Options. Its Controller, ProcFS and Logger are
	// set by Open.
	Kernel kernel.Options
	// Kubernetes knows what the containers are called there; nil without a cluster.
	Kubernetes Kubernetes
	// Probes measure the network to other hosts; nil for none.
	Probes Probes
	// Clock is the host's, with the device that it is compared with; nil for none. Close closes it.
	Clock *hostclock.Clock
	// Reporters beside those of the agent's own parts. Snapshots wait for their answers.
	Reporters []Reporter
	// Senders report what they wrote to connections, and Answers what the servers of this process did; nil where
	// there are none.
	Senders []Sender
	Answers *Answers
	// Flight is how long ticks of FlightInterval are kept in memory; 0 is not at all. FlightBytes
	// bounds the memory; see recorder.FlightOptions.
	Flight, FlightInterval time.Duration
	FlightBytes            int
	// HTRatios are those of CPU models; the one of this host's is put into Kernel.
	HTRatios energy.Ratios
	// Regions say how the counters are read from outside; the zero value is not at all.
	Regions RegionOptions
	// Anomalies in these ticks are kept longer; see recorder.AnomalyOptions.
	Anomalies recorder.AnomalyOptions
}

// Exporter sends what is seen to a server: as frames, or as series.
type Exporter interface {
	Sink
	Reporter
	Sender
	// OTLP reports whether it sends series.
	OTLP() bool
}

// AddExporter makes the agent hand what it sees to e.
func (o *HostOptions) AddExporter(e Exporter) {
	if o.Sinks == nil {
		o.Sinks = map[string]Sink{}
	}
	name := "server"
	if e.OTLP() {
		name = "otlp"
	}
	o.Sinks[name] = e
	o.Reporters, o.Senders = append(slices.Clip(o.Reporters), e), append(slices.Clip(o.Senders), e)
}

// Kubernetes knows a cluster, or this node of it. Run follows it until its context ends; Synced is
// closed once it has answered for the first time, or refused to.
type Kubernetes interface {
	container.Pods
	Reporter
	Run(context.Context)
	Synced() <-chan struct{}
}

// DefaultFlight is how long an agent keeps ticks, and DefaultFlightInterval the time between two.
const (
	DefaultFlight         = 10 * time.Minute
	DefaultFlightInterval = 50 * time.Millisecond
)

// rarely is Options.Rarely of an agent that is there for readers of regions alone.
const rarely = time.Minute

// Host is an agent with everything that it reads on this host.
type Host struct {
	*Agent
	// Machine that is watched.
	Machine model.Host
	// Layout of the control groups.
	Layout container.Layout

	privileges   Privileges
	probes       *kernel.Probes
	registry     *container.Registry
	kubernetes   Kubernetes
	clock        *hostclock.Clock
	files        *container.Files
	paths        container.Options
	energy       *energy.Account
	applications *appmetrics.Collector
	// ticks are those that flight keeps; nil if it keeps none.
	ticks  *kernel.Recorder
	flight *recorder.Flight
	// regions is nil where nobody reads them from outside.
	regions *regions
}

// Open loads the kernel programs, finds the containers, and makes an agent of both. It fails
// without the privilege for it (ErrPrivilege), and where there are no control groups. Where the
// kernel takes none of the programs, what is in files goes on; Features and snapshots have the reasons.
func Open(o HostOptions) (*Host, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	keys, allow, err := o.Regions.check()
	if err != nil {
		return nil, err
	}
	if o.Regions.Only {
		if o.Budget > 0 {
			return nil, errors.New("--region-only measures no costs: --budget cannot be kept with it")
		}
		// What would wake it up: samples are taken over, and packets observed in slices of each second.
		o.Rarely, o.Flight, o.Kernel.Packets = rarely, 0, kernel.PacketsOff
	}
	privileges, err := ReadPrivileges(o.ProcRoot)
	if err != nil {
		return nil, err
	}
	if err := privileges.Check(); err != nil {
		return nil, err
	}
	paths := container.Options{
		ProcRoot: o.ProcRoot, CgroupRoot: o.CgroupRoot, DockerSocket: o.DockerSocket, All: o.All, Logger: o.Logger,
		Locate: o.Rarely, // what is found is told in a snapshot
	}
	if o.Kubernetes != nil {
		paths.Pods = o.Kubernetes
	}
	layout, err := container.Detect(paths)
	if err != nil {
		return nil, fmt.Errorf("finding the control groups: %w", err)
	}
	if o.Host.Name == "" {
		if o.Host, err = ReadHost(o.ProcRoot, layout.Name); err != nil {
			return nil, err
		}
	}
	o.Kernel.MaxCgroups = cmp.Or(o.Kernel.MaxCgroups, DefaultMaxGroups)
	o.Kernel.MaxEdges = cmp.Or(o.Kernel.MaxEdges, DefaultMaxEdges)
	o.Kernel.Controller, o.Kernel.ProcFS, o.Kernel.Logger = layout.Subsystem, o.ProcRoot, o.Logger
	o.Kernel.GroupMount, o.Kernel.BlockMount = layout.MountPoint, layout.BlockMount()
	o.Kernel.HTRatio = cmp.Or(o.Kernel.HTRatio, o.HTRatios.Of(energy.CPUName(o.ProcRoot)))
	if o.Epoch.IsZero() {
		o.Epoch = time.Now()
	}
	// The programs first: what happens while the groups are walked is in their events.
	probes, err := kernel.Open(o.Kernel)
	if errors.Is(err, fs.ErrPermission) {
		// The capabilities are there, but not in the namespace that the kernel asks about.
		return nil, fmt.Errorf("%w: the kernel refuses this process to load programs: %w", ErrPrivilege, err)
	}
	if err != nil {
		return nil, err
	}
	if hooks := probes.Features(); !works(hooks, "tp_btf/cgroup_mkdir") || !works(hooks, "tp_btf/cgroup_rmdir") {
		paths.Resync = unannounced
	}
	registry, err := container.New(layout, paths)
	if err != nil {
		return nil, errors.Join(err, probes.Close())
	}
	h := &Host{Machine: o.Host, Layout: layout, privileges: privileges, probes: probes, registry: registry,
		files: container.NewFiles(layout, paths), paths: paths, kubernetes: o.Kubernetes, clock: o.Clock}
	h.files.UseKernel(probes)
	h.energy = energy.New(energy.Options{ProcFS: o.ProcRoot, SysFS: o.Kernel.SysFS, Logger: o.Logger})
	h.applications = appmetrics.New(appmetrics.Options{ProcRoot: o.ProcRoot, Logger: o.Logger, Share: o.Regions.on(),
		Announced: works(probes.Features(), kernel.MetricsFileFeature),
		GroupOf:   func(pid int) (model.CgroupID, error) { return layout.GroupOf(cmp.Or(o.ProcRoot, "/proc"), pid) }})
	reporters := append([]Reporter{privileges, probes, registry, h.files, account{h.energy}, h.applications}, o.Reporters...)
	if h.kubernetes != nil {
		reporters = append(reporters, h.kubernetes)
	}
	if o.Clock != nil {
		reporters = append(reporters, o.Clock)
	}
	if o.Flight > 0 {
		if err := h.openFlight(&o); err != nil {
			// A feature that Features lists; the others go on.
			o.Logger.Warn("the flight recorder is off", "error", err)
		} else {
			reporters = append(reporters, h.flight)
		}
	}
	probes.ShareQuotas(func(id model.CgroupID) model.CgroupID {
		if c := registry.Lookup(id); c != nil && c.Runtime != model.HostRuntime && c.Cgroup != 0 {
			return c.Cgroup
		}
		return id
	})
	o.Network.MaxContainerEdges = cmp.Or(o.Network.MaxContainerEdges, max(o.Kernel.MaxEdges/8, 256))
	o.Network.MaxNewEdges = cmp.Or(o.Network.MaxNewEdges, max(2*o.Kernel.MaxEdges, 4096))
	sources := Sources{
		Counters: probes, Quotas: probes, Disks: probes, Forwarding: probes, Proxies: probes, Lifecycle: probes, Programs: probes,
		Registry: registry, Files: h.files, Processes: container.NewPrograms(container.ProgramOptions{ProcRoot: o.ProcRoot}),
		Translations: network.ReadTranslations,
		Work:         probes, Energy: h.energy,
		Reporters: reporters, Senders: o.Senders, Answers: o.Answers, Probes: o.Probes, OpenProcess: registry.Open,
		Applications: h.applications, Clock: o.Clock,
		Parts: h, Statistics: kernel.EnableStatistics,
	}
	if privileges.enters() {
		sources.OpenProcess = registry.Open
	}
	if o.Regions.Only {
		sources.Parts, sources.Statistics = nil, nil
	}
	if works(probes.Features(), kernel.ContentionFeature) {
		sources.Contention = probes
	}
	if o.Kernel.Counters == kernel.CountersProcesses || o.Kernel.CounterProcesses > 0 {
		sources.ProcessWork = probes
	}
	if works(probes.Features(), kernel.DropFeature) {
		sources.PacketDrops = probes
	}
	if o.Regions.on() {
		if h.regions, err = openRegions(&o, h, keys, allow); err != nil {
			return nil, errors.Join(err, h.Close())
		}
		o.Sinks = maps.Clone(o.Sinks)
		if o.Sinks == nil {
			o.Sinks = map[string]Sink{}
		}
		o.Sinks["regions"] = h.regions
		// Readers get figures that are a second old, also when this process has no CPU time.
		if err := probes.ReadGroupsEvery(cmp.Or(o.Interval, time.Second)); err != nil {
			o.Logger.Debug("this process has to call for the figures of groups", "error", err)
		} else {
			o.Refreshed = true
		}
		sources.Reporters = append(sources.Reporters, h.regions)
	}
	sources.CountsReclaim = works(probes.Features(), kernel.ReclaimFeature)
	h.Agent = New(sources, o.Options)
	return h, nil
}

func (h *Host) openFlight(o *HostOptions) (err error) {
	if h.ticks, err = h.probes.Record(kernel.RecorderOptions{Interval: cmp.Or(o.FlightInterval,
		DefaultFlightInterval)}); err != nil {
		return err
	}
	h.flight = recorder.NewFlight(h.ticks, h, recorder.FlightOptions{
		Keep: o.Flight, MaxBytes: o.FlightBytes, CgroupVersion: container.NewLane(h.Layout, h.paths).Version(),
		Anomalies: o.Anomalies})
	return nil
}

// unannounced is the time between two walks of the control groups where the kernel does not report
// those that begin and end.
const unannounced = 2 * time.Second

func works(features []model.Feature, hook string) bool {
	return slices.ContainsFunc(features, func(f model.Feature) bool {
		return f.Name == hook &&
			f.State == model.FeatureWorks
	})
}

// patience is how long the first snapshot waits for Docker and Kubernetes to name the containers.
const patience = 500 * time.Millisecond

// Run keeps the containers' names up to date and takes snapshots until ctx ends.
func (h *Host) Run(ctx context.Context) error {
	var registry sync.WaitGroup
	defer registry.Wait()
	registry.Go(func() { h.registry.Run(ctx) })
	if h.flight != nil {
		registry.Go(func() { h.flight.Run(ctx) })
	}
	if h.kubernetes != nil {
		registry.Go(func() { h.kubernetes.Run(ctx) })
	}
	if h.regions != nil {
		registry.Go(func() { h.regions.run(ctx) })
	}
	h.awaitNames()
	return h.Agent.Run(ctx)
}

// awaitNames waits for names, but not for long: a series that begins under an id and goes on under a
// name is two.
func (h *Host) awaitNames() {
	limit := time.After(patience)
	select {
	case <-h.registry.Named():
	case <-limit:
		return
	}
	if h.kubernetes == nil {
		return
	}
	select {
	case <-h.kubernetes.Synced():
	case <-limit:
	}
}

// Features reports what works on this host and what does not.
func (h *Host) Features() []model.Feature {
	all := slices.Concat(h.privileges.Features(), h.probes.Features(), h.registry.Features(), h.files.Features(),
		account{h.energy}.Features())
	if h.kubernetes != nil {
		all = append(all, h.kubernetes.Features()...)
	}
	return all
}

// Containers are those that run.
func (h *Host) Containers() []*model.Container { return h.registry.Containers() }

// Lookup finds the container of a control group; the host's where it is in none.
func (h *Host) Lookup(id model.CgroupID) *model.Container { return h.registry.Lookup(id) }

// Record starts a recorder of this host's control groups. It must be closed before the Host is.
func (h *Host) Record(o kernel.RecorderOptions) (*kernel.Recorder, error) { return h.probes.Record(o) }

// NewLane makes a reader of all numbers in the containers' files.
func (h *Host) NewLane() *container.Lane { return container.NewLane(h.Layout, h.paths) }

// Flight is what the flight recorder has kept of the last while; nil where there is none.
func (h *Host) Flight(last time.Duration) *recorder.FlightData {
	if h.flight == nil {
		return nil
	}
	return h.flight.Data(last)
}

// Anomalies are those whose surroundings are kept; nil without a detector.
func (h *Host) Anomalies() *recorder.Anomalies {
	if h.flight == nil {
		return nil
	}
	return h.flight.Anomalies()
}

// Anomaly is what is kept around the anomaly with that number; nil if there is none.
func (h *Host) Anomaly(number uint64) *recorder.FlightData {
	if h.flight == nil {
		return nil
	}
	return h.flight.Anomaly(number)
}

// recorderPart is the flight recorder, the first that is shed.
const recorderPart = "recorder"

// Parts are what can be shed to keep the budget, in that order, and then what cannot.
func (h *Host) Parts() []model.Part {
	var parts []model.Part
	if h.flight != nil {
		parts = append(parts, model.Part{Name: recorderPart, Purpose: "samples of the last minutes, and anomalies in them"})
	}
	return append(append(parts, h.probes.Parts()...), ownParts...)
}

// Shed gives one of Parts up. It is for the goroutine that takes snapshots.
func (h *Host) Shed(part string) error {
	if part == recorderPart {
		h.flight.Pause(h.ticks.Pause)
		return nil
	}
	return h.probes.Shed(part)
}

// Restore takes one of Parts up again.
func (h *Host) Restore(part string) error {
	if part == recorderPart {
		return h.flight.Resume(h.ticks.Resume)
	}
	return h.probes.Restore(part)
}

// Spent is what parts cost beside their kernel programs.
func (h *Host) Spent() (own, kernel map[string]uint64) {
	_, figures := h.probes.TimerReadings()
	own, kernel = map[string]uint64{}, map[string]uint64{partGroups: uint64(figures)}
	if h.flight != nil {
		own[recorderPart], kernel[recorderPart] = h.flight.Spent(), h.ticks.Cost()
	}
	return own, kernel
}

// Close unloads the programs and closes all files. Run must have returned.
func (h *Host) Close() error {
	h.files.Close()
	var err error
	if h.ticks != nil {
		err = h.ticks.Close()
	}
	if h.regions != nil {
		err = errors.Join(err, h.regions.close())
	}
	if h.clock != nil {
		err = errors.Join(err, h.clock.Close())
	}
	return errors.Join(err, h.energy.Close(), h.probes.Close())
}
