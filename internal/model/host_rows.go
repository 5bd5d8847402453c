package model

import (
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"
)

// Metrics of the filesystems of a host.
const (
	FileSystemUsed = "outsight_host_filesystem_used_bytes"
	FileSystemSize = "outsight_host_filesystem_bytes"
)

// HostRows are the metrics of a host and of the agent on it, in the order in which they are written.
var HostRows = slices.Concat([]Row[Snapshot]{
	{Name: "outsight_host_cpu_idle_seconds_total", OTel: "outsight.host.cpu.idle", Unit: "s", Kind: Counter,
		Help: "Time in which the CPUs of the host ran nothing, summed over all CPUs",
		Columns: []Column[Snapshot]{{Name: "cpu_idle", Per: Nanoseconds,
			Count: ofHost(func(s *Snapshot) uint64 { return s.Self.IdleNS })}}},
	{Name: "outsight_host_cpu_other_seconds_total", OTel: "outsight.host.cpu.other", Unit: "s", Kind: Counter,
		Help: "CPU time of control groups for which the table had no room",
		Columns: []Column[Snapshot]{{Name: "cpu_other", Per: Nanoseconds,
			Count: ofHost(func(s *Snapshot) uint64 { return s.Self.OtherNS })}}},
	{Name: "outsight_host_cpu_steal_seconds_total", OTel: "outsight.host.cpu.steal", Unit: "s", Kind: Counter,
		Help: "Time for which a hypervisor kept the CPUs of this virtual machine from running, summed over all CPUs; kernel programs " +
			"count it for whoever was on the CPU, too",
		Columns: []Column[Snapshot]{{Name: "cpu_steal", Per: Nanoseconds, File: true,
			Count: ofHost(func(s *Snapshot) uint64 { return s.Self.StealNS })}}},
	{Name: "outsight_host_cores", OTel: "outsight.host.cores", Unit: "{cpu}", Kind: Gauge,
		Help: "CPUs of the host",
		Columns: []Column[Snapshot]{{Name: "cores",
			Value: func(s *Snapshot) (float64, bool) { return float64(s.Host.Cores), true }}}},
	{Name: "outsight_host_memory_bytes", OTel: "outsight.host.memory", Unit: "By", Kind: Gauge,
		Help: "Memory of the host",
		Columns: []Column[Snapshot]{{Name: "memory",
			Count: ofHost(func(s *Snapshot) uint64 { return s.Host.MemoryBytes })}}},
	{Name: "outsight_host_memory_available_bytes", OTel: "outsight.host.memory.available", Unit: "By", Kind: Gauge,
		Help: "Memory of the host that programs could get without swapping, as the kernel estimates it; not there on a host " +
			"where it cannot be read",
		Columns: []Column[Snapshot]{{Name: "memory_available", Mean: true,
			Count: func(s *Snapshot) (uint64, bool) { return s.Self.AvailableBytes, s.Self.AvailableBytes > 0 },
			Shown: []Number{{Key: "memory_available_bytes", Title: "Memory available", Unit: "B", Group: GroupHost, Order: 1,
				Formula: Level,
				Meaning: "What programs could get without swapping: memory that is free, and caches that can be reclaimed"}}}}},
	{Name: FileSystemUsed, OTel: "outsight.host.filesystem.used", Unit: "By", Kind: Gauge,
		Help: "Bytes in use of a local filesystem of the host that can be written to, by where it is mounted: volumes that are " +
			"filesystems of their own are among them. Asked for every 30 readings",
		Labels: []string{"mount"}, Each: func(s *Snapshot, to *Sink) {
			for _, f := range s.Self.FileSystems {
				to.Add(float64(f.UsedBytes), NewLabel("mount", f.Mount))
			}
		}},
	{Name: FileSystemSize, OTel: "outsight.host.filesystem", Unit: "By", Kind: Gauge,
		Help:   "Bytes of it that may be in use, without what is reserved for root",
		Labels: []string{"mount"}, Each: func(s *Snapshot, to *Sink) {
			for _, f := range s.Self.FileSystems {
				to.Add(float64(f.SizeBytes), NewLabel("mount", f.Mount))
			}
		}},
	{Name: "outsight_agent_cpu_seconds_total", OTel: "outsight.agent.cpu", Unit: "s", Kind: Counter,
		Help: "CPU time of the agent's own process",
		Columns: []Column[Snapshot]{{Name: "agent_cpu", Per: Nanoseconds,
			Count: ofHost(func(s *Snapshot) uint64 { return s.Self.CPUNS })}}},
	{Name: "outsight_agent_resident_memory_bytes", OTel: "outsight.agent.resident_memory", Unit: "By", Kind: Gauge,
		Help: "Resident memory of the agent's own process",
		Columns: []Column[Snapshot]{{Name: "agent_memory",
			Count: ofHost(func(s *Snapshot) uint64 { return s.Self.RSSBytes })}}},
	{Name: "outsight_agent_sent_bytes_total", OTel: "outsight.agent.sent", Unit: "By", Kind: Counter,
		Help: "Bytes that the agent's own process sent over the network, as its sockets took them (compressed, and encrypted): to a " +
			"server (server), to another backend (otlp), to a remote store (store), and to those who asked for /metrics, the page or " +
			"its API (http)",
		Labels: []string{"to"}, Each: func(s *Snapshot, to *Sink) {
			for _, sent := range s.Self.Sent {
				to.Add(float64(sent.Bytes), NewLabel("to", sent.To))
			}
		}},
	{Name: "outsight_agent_read_seconds", OTel: "outsight.agent.read", Unit: "s", Kind: Gauge,
		Help: "Time that the last reading of all counters took",
		Columns: []Column[Snapshot]{{Name: "agent_read", Per: Nanoseconds,
			Count: ofHost(func(s *Snapshot) uint64 { return s.Self.ReadNS }),
			Shown: []Number{{Key: "agent_read_seconds", Title: "Reading takes", Unit: "s", Group: GroupHost,
				Formula: Level, Meaning: "Time that the agent’s last reading of all counters took"}}}}},
	{Name: "outsight_program_runs_total", OTel: "outsight.program.runs", Unit: "{run}", Kind: Counter,
		Help: "Runs of a kernel program, estimated from moments in which the kernel's program statistics are on: 50 ms in each " +
			"second, or in twenty",
		Labels: []string{"program"}, Each: func(s *Snapshot, to *Sink) {
			for _, p := range s.Self.Programs {
				if p.Runs != 0 {
					to.Add(float64(p.Runs), NewLabel("program", p.Name))
				}
			}
		}},
	{Name: "outsight_program_run_seconds_total", OTel: "outsight.program.run", Unit: "s", Kind: Counter,
		Help:   "Time spent in a kernel program, estimated as its runs are",
		Labels: []string{"program"}, Each: func(s *Snapshot, to *Sink) {
			for _, p := range s.Self.Programs {
				if p.RunTimeNS != 0 {
					to.Add(seconds(p.RunTimeNS), NewLabel("program", p.Name))
				}
			}
		}},
	{Name: "outsight_program_missed_events_total", OTel: "outsight.program.missed_events", Unit: "{event}",
		Kind:   Counter,
		Help:   "Events at which the kernel did not run a program, because it was already running on that CPU",
		Labels: []string{"program"}, Each: func(s *Snapshot, to *Sink) {
			for _, p := range s.Self.Programs {
				to.Add(float64(p.Missed), NewLabel("program", p.Name))
			}
		}},
	{Name: "outsight_drops_total", OTel: "outsight.drops", Unit: "{update}", Kind: Counter,
		Help:   "Updates that found no room in a bounded table or queue",
		Labels: []string{"name"}, Each: func(s *Snapshot, to *Sink) {
			for _, d := range s.Self.Drops {
				to.Add(float64(d.Count), NewLabel("name", d.Name))
			}
		}},
	{Name: "outsight_entries", OTel: "outsight.entries", Unit: "{entry}", Kind: Gauge,
		Help:   "Entries in use of a bounded table or queue",
		Labels: []string{"name"}, Each: bounded(func(d *Drop) uint64 { return d.Used })},
	{Name: "outsight_capacity", OTel: "outsight.capacity", Unit: "{entry}", Kind: Gauge,
		Help:   "Entries for which a bounded table or queue has room",
		Labels: []string{"name"}, Each: bounded(func(d *Drop) uint64 { return d.Capacity })},
	{Name: "outsight_cost_ratio", OTel: "outsight.cost", Unit: "1", Kind: Gauge,
		Help: "Share of the CPU time of the host, all its CPUs together, that Outsight took of late: its own process, or its kernel " +
			"programs (without what the kernel spends on calling them)",
		Labels: []string{"plane"}, Each: func(s *Snapshot, to *Sink) {
			if b := s.Self.Budget; b != nil {
				to.Add(b.Own, NewLabel("plane", "own"))
				to.Add(b.Kernel, NewLabel("plane", "kernel"))
			}
		}},
	{Name: "outsight_budget_ratio", OTel: "outsight.budget", Unit: "1", Kind: Gauge,
		Help:    "Share of the CPU time of the host that Outsight may take; absent where there is no limit",
		Columns: []Column[Snapshot]{{Name: "budget", Value: budgetLimit}}},
	{Name: "outsight_feature_cost_ratio", OTel: "outsight.feature.cost", Unit: "1", Kind: Gauge,
		Help: "Share of the CPU time of the host that a part of Outsight took of late: its kernel programs, and its work in the own " +
			"process; all parts together, rest among them, are the sum of outsight_cost_ratio; basis is estimate where the division " +
			"between parts that share programs is assumed",
		Labels: []string{"name", "purpose", "basis"}, Each: partCosts},
	{Name: "outsight_feature_shed", OTel: "outsight.feature.shed", Kind: Gauge,
		Help:   "1 while a part of Outsight is shed to keep the budget: what it counts stands still or is absent",
		Labels: []string{"name", "purpose"},
		Each:   parts(func(p *PartSample) float64 { return boolean(p.Shed) })},
	{Name: "outsight_feature_changes_total", OTel: "outsight.feature.changes", Unit: "{change}", Kind: Counter,
		Help:   "Times that a part of Outsight was shed or taken up again to keep the budget",
		Labels: []string{"name", "purpose"},
		Each:   parts(func(p *PartSample) float64 { return float64(p.Changes) })},
	{Name: "outsight_feature_available", OTel: "outsight.feature.available", Kind: Gauge,
		Help:   "1 where a hook, counter or runtime works on this host, 0 where it does not",
		Labels: []string{"name", "purpose"}, Each: features},
	{Name: "outsight_edges_completeness_ratio", OTel: "outsight.edges.completeness", Unit: "1", Kind: Gauge,
		Help: "Share of the bytes received on the host that were seen and found room on an edge of their own",
		Columns: []Column[Snapshot]{{Name: "edges_completeness",
			Value: func(s *Snapshot) (float64, bool) { return CountedShare(s.Edges), true }}}},
	{Name: "outsight_edges_unmatched_ratio", OTel: "outsight.edges.unmatched", Unit: "1", Kind: Gauge,
		Help: "Share of edges whose other end is not known to be in any container",
		Columns: []Column[Snapshot]{{Name: "edges_unmatched",
			Value: func(s *Snapshot) (float64, bool) { return UnmatchedShare(s.Edges), true }}}},
	{Name: "outsight_host_clock_error_seconds", OTel: "outsight.host.clock.error", Unit: "s", Kind: Gauge,
		Help: "How far the host’s clock is off at most, by the PTP device of --clock-device, or else by its kernel’s estimate " +
			"(adjtimex); absent where nothing keeps it",
		Labels: []string{"source"}, Each: clockError},
	{Name: "outsight_host_clock_device_offset_seconds", OTel: "outsight.host.clock.device.offset", Unit: "s", Kind: Gauge,
		Help:   "By how much the host’s clock is ahead of the PTP device that it is compared with; absent where that cannot be read",
		Labels: []string{"device"}, Real: true, // it may be behind
		Each: clockDevice(func(d *ClockDevice) time.Duration { return d.Ahead })},
	{Name: "outsight_host_clock_device_uncertainty_seconds", OTel: "outsight.host.clock.device.uncertainty", Unit: "s",
		Kind:   Gauge,
		Help:   "By how much that offset may be wrong, since both clocks are not read at the same instant",
		Labels: []string{"device"}, Each: clockDevice(func(d *ClockDevice) time.Duration { return d.Uncertainty })},
	{Name: "outsight_build_info", OTel: "outsight.build.info", Kind: Gauge,
		Help:   "1, with the version of Outsight and of Go as labels",
		Labels: []string{"version", "goversion"}, Each: func(_ *Snapshot, to *Sink) {
			to.Add(1, NewLabel("version", version()), NewLabel("goversion", runtime.Version()))
		}},

	{Name: "outsight_host_energy_joules_total", OTel: "outsight.host.energy", Unit: "J", Kind: Counter,
		Help: "Energy of the host: the part of containers, that of the system outside of them, and what an idle host would have " +
			"drawn; together what was measured",
		Labels: []string{"domain", "source", "part"}, Each: hostEnergy},
	{Name: "outsight_energy_meter", OTel: "outsight.energy.meter", Kind: Gauge,
		Help:   "1, with what measures energy, and why no better meter does, as labels",
		Labels: []string{"source", "detail", "domain", "others"}, Each: energyMeter},
	{Name: "outsight_energy_meter_error_ratio", OTel: "outsight.energy.meter.error", Unit: "1", Kind: Gauge,
		Help:   "Greatest relative error of the host's energy that is known; absent for meters that measure",
		Labels: []string{"source"}, Each: func(s *Snapshot, to *Sink) {
			if s.Energy != nil && s.Energy.Meter.Error > 0 {
				to.Add(s.Energy.Meter.Error, NewLabel("source", s.Energy.Meter.Source))
			}
		}},
}, hostPacketDropRows, probeRows, capacityRows)

func ofHost(read func(*Snapshot) uint64) func(*Snapshot) (uint64, bool) {
	return func(s *Snapshot) (uint64, bool) { return read(s), true }
}

func bounded(read func(*Drop) uint64) func(*Snapshot, *Sink) {
	return func(s *Snapshot, to *Sink) {
		for i := range s.Self.Drops {
			if d := &s.Self.Drops[i]; d.Capacity != 0 {
				to.Add(float64(read(d)), NewLabel("name", d.Name))
			}
		}
	}
}

func budgetLimit(s *Snapshot) (float64, bool) {
	if b := s.Self.Budget; b != nil {
		return b.Limit, b.Limit > 0
	}
	return 0, false
}

func clockError(s *Snapshot, to *Sink) {
	if s.ClockError == 0 {
		return
	}
	source := "kernel"
	if s.ClockByDevice {
		source = "device"
	}
	to.Add(s.ClockError.Seconds(), NewLabel("source", source))
}

func clockDevice(number func(*ClockDevice) time.Duration) func(*Snapshot, *Sink) {
	return func(s *Snapshot, to *Sink) {
		if d := s.ClockDevice; d != nil {
			to.Add(number(d).Seconds(), NewLabel("device", d.Device))
		}
	}
}

func partCosts(s *Snapshot, to *Sink) {
	if s.Self.Budget == nil {
		return
	}
	for i := range s.Self.Budget.Parts {
		p := &s.Self.Budget.Parts[i]
		basis := ""
		if p.Estimated {
			basis = "estimate"
		}
		to.Add(p.Spent, NewLabel("name", p.Name), NewLabel("purpose", p.Purpose), NewLabel("basis", basis))
	}
}

// parts adds a number of each part that can be shed.
func parts(number func(*PartSample) float64) func(*Snapshot, *Sink) {
	return func(s *Snapshot, to *Sink) {
		if s.Self.Budget == nil {
			return
		}
		for i := range s.Self.Budget.Parts {
			p := &s.Self.Budget.Parts[i]
			if p.Fixed {
				continue
			}
			to.Add(number(p), NewLabel("name", p.Name), NewLabel("purpose", p.Purpose))
		}
	}
}

func features(s *Snapshot, to *Sink) {
	for _, f := range s.Self.Features {
		if f.State == FeatureOff {
			continue
		}
		to.Add(boolean(f.State == FeatureWorks), NewLabel("name", f.Name), NewLabel("purpose", f.Purpose))
	}
}

var version = sync.OnceValue(func() string {
	build, ok := debug.ReadBuildInfo()
	if !ok || build.Main.Version == "" {
		return "(devel)"
	}
	return build.Main.Version
})

func hostEnergy(s *Snapshot, to *Sink) {
	if s.Energy == nil {
		return
	}
	for _, p := range s.Energy.Parts {
		of := func(part string, microJoules uint64) {
			to.Add(joules(microJoules), NewLabel("domain", p.Domain), NewLabel("source", p.Source), NewLabel("part", part))
		}
		of("containers", p.Containers)
		of("idle", p.Idle)
		of("system", p.System)
	}
}

func energyMeter(s *Snapshot, to *Sink) {
	if s.Energy != nil {
		m := &s.Energy.Meter
		to.Add(1, NewLabel("source", m.Source), NewLabel("detail", m.Detail),
			NewLabel("domain", strings.Join(m.Domains, ",")),
			NewLabel("others", strings.Join(m.Others, "; ")))
	}
}
