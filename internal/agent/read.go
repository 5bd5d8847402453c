package agent

import (
	"errors"
	"time"

	"outsight/internal/container"
	"outsight/internal/model"
	"outsight/internal/network"
)

// read makes a snapshot. It is for one goroutine.
func (a *Agent) read() *model.Snapshot {
	begin := time.Now()
	s := &model.Snapshot{Time: begin, Host: a.options.Host}
	clock, clockErr := a.sources.Clock.Read(begin)
	s.ClockError, s.ClockByDevice, s.ClockDevice = clock.Error, clock.ByDevice, clock.Device
	a.failures.note("the clock's error", clockErr)
	if !a.last.IsZero() {
		s.Window = begin.Sub(a.last)
	}
	a.last = begin
	// Containers first: one that ends after this has its last numbers in the next snapshot, and
	// one that begins after this is not in this one at all.
	end := a.spent.on(partContainers)
	collection := a.sources.Registry.Collect()
	containers, err := a.network.complete(collection.Containers)
	end()
	a.failures.note("the host's addresses", err)
	end = a.spent.on(partGroups)
	kernel, cgroupsErr := a.sources.Counters.ReadCgroups()
	end()
	a.failures.note("kernel counters of control groups", cgroupsErr)
	counted := kernel != nil
	packages, counting := a.readWork(kernel)
	if counted {
		end = a.spent.on(partGroups)
		a.groups.update(kernel, a.sources.Registry.Find, &s.Self)
		end()
	}
	a.readProcesses()
	a.readDisks()
	a.readContention(containers)
	listenersErr := a.readListeners(begin, containers)
	edges, edgesErr := a.readEdges(begin, containers)
	s.Edges = edges
	a.readDrops(begin, s, containers)
	unread := errors.Join(cgroupsErr, listenersErr, edgesErr)
	a.unread.Store(&unread)
	s.Translations = a.readTranslations(begin, s.Edges)
	a.readApplications()
	s.Containers = a.readContainers(containers, s.Edges, counted)
	if counting {
		a.readPower(s, packages)
	}
	if a.sources.Probes != nil {
		s.Probes = a.sources.Probes.Sample()
	}
	s.Capacities = a.capacities.of(containers)
	a.forget(begin, collection)
	a.readSelf(&s.Self)
	a.keepBudget(s)
	s.Self.ReadNS = uint64(time.Since(begin))
	return s
}

// readDisks is no part of what must be there: a host may have no hook for it.
func (a *Agent) readDisks() {
	a.operations = nil
	if a.sources.Disks == nil {
		return
	}
	defer a.spent.on(partDisks)()
	read, err := a.sources.Disks.ReadDisks()
	a.failures.note("kernel counters of disks", err)
	if read != nil {
		a.disks.Update(read, a.sources.Registry.Lookup)
	}
	if err == nil {
		a.operations = a.disks.Operations
	}
}

// readDrops is no part of what must be there. What cannot be read is there at the next reading.
func (a *Agent) readDrops(now time.Time, s *model.Snapshot, containers []*model.Container) {
	if a.sources.PacketDrops == nil {
		return
	}
	defer a.spent.on(partConnections)()
	read, err := a.sources.PacketDrops.ReadPacketDrops()
	a.failures.note("dropped packets", err)
	if err == nil {
		a.drops.update(now, read, a.sources.Registry.Lookup, a.resolver.Holders(containers))
	}
	s.Drops = a.drops.host.counters()
}

func (a *Agent) readListeners(now time.Time, containers []*model.Container) error {
	defer a.spent.on(partConnections)()
	found, err := a.sources.Counters.ReadListeners()
	a.failures.note("listening sockets", err)
	if err == nil {
		a.listening = found
	}
	a.listeners.update(now, a.listening, a.sources.Registry.Lookup, a.resolver.Holders(containers))
	return err
}

// readEdges answers no edges where the kernel's could not be read: the resolver would take it
// for the end of all of them.
func (a *Agent) readEdges(now time.Time, containers []*model.Container) ([]model.Edge, error) {
	defer a.spent.on(partConnections)()
	edges, err := a.sources.Counters.ReadEdges()
	a.failures.note("kernel counters of connections", err)
	if edges == nil && err != nil {
		return nil, err
	}
	v := network.View{
		Time: now, Edges: edges, Listeners: a.listening, Containers: containers, Container: a.sources.Registry.Lookup,
		Translations: a.translations,
	}
	if a.sources.Processes != nil {
		v.Process = a.sources.Processes.Name
	}
	if a.sources.Proxies != nil {
		a.proxies.update(a.sources.Proxies.ReadProxies(), a.sources.Registry.Lookup)
	}
	return a.resolver.Resolve(v), err
}

const (
	// translationsEvery is how often at most the host's table of translated connections is looked at, translationsRarely
	// how often while no connection is opened, and maxTranslations how much of it. A look takes the kernel some
	// milliseconds: it goes through all slots of the table, often 262144.
	translationsEvery  = 10 * time.Second
	translationsRarely = time.Minute
	maxTranslations    = 16384
)

// readTranslations looks at the host's translated connections while there are edges that they
// could complete. The next reading of edges uses them.
func (a *Agent) readTranslations(now time.Time, edges []model.Edge) []model.Translation {
	if a.sources.Translations == nil {
		return nil
	}
	attempts, need := network.NeedTranslations(edges)
	if !need {
		return nil
	}
	defer a.spent.on(partConnections)()
	// A connection keeps the translation that it began with. After a look that failed, those of the one before hold.
	since := now.Sub(a.translationsRead)
	if since >= translationsRarely || since >= translationsEvery && attempts != a.translationsOf {
		found, err := a.sources.Translations(maxTranslations)
		a.failures.note("translated connections", err)
		a.translationsRead = now
		if err == nil {
			a.translations, a.translationsOf = found, attempts
		}
	}
	return network.OfEdges(a.translations, edges)
}

// trafficOf is for TrafficTaker. Nothing is known where transfers are not counted.
func (a *Agent) trafficOf(edges []model.Edge) map[uint32]uint64 {
	if edges == nil || a.keeping == nil || a.keeping.index("transfers") < 0 || a.keeping.shed("transfers") {
		return nil
	}
	traffic := make(map[uint32]uint64)
	for i := range edges {
		e, sum := &edges[i], uint64(0)
		for _, n := range e.Counters.Plain() {
			sum += *n
		}
		for _, end := range []*model.Container{e.Client.Container, e.Server.Container} {
			if end != nil {
				traffic[end.NetNS] += sum
			}
		}
	}
	return traffic
}

func (a *Agent) readContainers(containers []*model.Container, edges []model.Edge, counted bool) []model.ContainerSample {
	// The samples point into the usages, which are of this snapshot alone.
	usages := make([]container.Usage, len(containers))
	if a.sources.Files != nil {
		end := a.spent.on(partFiles)
		if t, ok := a.sources.Files.(TrafficTaker); ok {
			t.Traffic(a.trafficOf(edges))
			t.Disks(a.operations)
		}
		a.sources.Files.Read(containers, usages)
		end()
	}
	if a.sources.Forwarding != nil {
		end := a.spent.on(partFiles)
		a.forwards.update(time.Now(), containers, usages, a.sources.Forwarding)
		end()
	}
	samples := make([]model.ContainerSample, len(containers))
	a.cpu.keep(containers)
	var errs []error
	for i, c := range containers {
		s, u := &samples[i], &usages[i]
		s.Container, s.Listeners = a.listeners.attach(c), a.listeners.counters(c.ID)
		s.Memory, s.Throttle, s.Disk, s.Network, s.TCP = u.Memory, u.Throttle, u.Disk, u.Network, u.TCP
		s.Devices, s.Syncs = a.disks.Of(c.ID)
		if a.sources.PacketDrops != nil {
			s.Drops = a.drops.counters(c.ID)
		}
		s.Proxy = a.proxies.counters(c.ID)
		if a.sources.Applications != nil {
			s.Applications = a.sources.Applications.Of(c.ID)
		}
		s.Forward = a.forwards.counters(u, c.NetNS)
		s.Pressure, s.Victims = u.Pressure, a.victims.last(c.ID)
		if counted {
			cpu, processes := a.groups.of(c.ID)
			filled, err := a.cpu.fill(c, cpu)
			errs = append(errs, err)
			s.CPU, s.Processes = filled, processes
			s.Files = a.groups.files(c.ID)
			if u.Threads != nil {
				s.Processes.Threads = *u.Threads
				s.Processes.BusyThreads, s.Processes.ThreadsLimit = u.BusyThreads, u.ThreadsLimit
				s.Processes.OpenFiles, s.Processes.OpenFilesLimit = u.OpenFiles, u.OpenFilesLimit
			}
		}
		if counted && a.sources.CountsReclaim {
			s.Reclaim = a.groups.reclaim(c.ID)
		}
		if a.contention.known {
			s.Contention = a.contention.of(c.ID)
		}
		errs = append(errs, u.Err)
	}
	a.failures.note("control group files", errors.Join(errs...))
	a.failures.note("threads of the host", a.hostThreads(samples))
	return samples
}

// hostThreads gives the host container the threads that no container has.
func (a *Agent) hostThreads(samples []model.ContainerSample) error {
	threads, err := a.proc.readThreads(a.options.ProcRoot)
	if err != nil {
		return err
	}
	var host *model.ProcessCounters
	for _, s := range samples {
		switch {
		case s.Processes == nil:
		case s.Container.Runtime == model.HostRuntime:
			host = s.Processes
		default:
			threads -= min(threads, s.Processes.Threads)
		}
	}
	if host != nil {
		host.Threads = threads
	}
	return nil
}

// forget gives removed control groups back to the kernel, one snapshot after their removal: a
// thread that ends is switched out for the last time when its group may already be gone.
func (a *Agent) forget(now time.Time, c container.Collection) {
	for _, id := range a.removed {
		a.groups.retire(id)
		if a.sources.Lifecycle != nil {
			a.sources.Lifecycle.ForgetCgroup(id)
		}
		if a.sources.Processes != nil {
			a.sources.Processes.Forget(id)
		}
	}
	a.removed = c.Removed
	a.groups.keep(c.Containers)
	a.disks.Keep(c.Containers)
	a.listeners.keep(now, c.Containers)
	a.drops.keep(now, c.Containers)
	a.proxies.keep(c.Containers)
	a.victims.keep(c.Containers)
	a.processes.keep(c.Containers)
	if a.sources.Applications != nil {
		a.sources.Applications.Keep(c.Containers)
	}
}
