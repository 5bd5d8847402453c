package otlp

import (
	"runtime"
	"runtime/debug"
	"sync"

	"outsight/internal/model"
)

var hostMetrics = append([]Metric{
	{HostCPUIdle, "outsight.host.cpu.idle", "s", model.Counter,
		"Time in which the CPUs of the host ran nothing, summed over all CPUs",
		nil, nil, func(s *model.Snapshot, to *collector) { to.value(seconds(s.Self.IdleNS)) }},
	{HostCPUOther, "outsight.host.cpu.other", "s", model.Counter,
		"CPU time of control groups for which the table had no room",
		nil, nil, func(s *model.Snapshot, to *collector) { to.value(seconds(s.Self.OtherNS)) }},
	{HostCPUSteal, "outsight.host.cpu.steal", "s", model.Counter,
		"Time for which a hypervisor kept the CPUs of this virtual machine from running, summed over all CPUs; kernel programs count it for whoever was on the CPU, too",
		nil, nil, func(s *model.Snapshot, to *collector) { to.value(seconds(s.Self.StealNS)) }},
	{HostCores, "outsight.host.cores", "{cpu}", model.Gauge,
		"CPUs of the host",
		nil, nil, func(s *model.Snapshot, to *collector) { to.value(float64(s.Host.Cores)) }},
	{HostMemory, "outsight.host.memory", "By", model.Gauge,
		"Memory of the host",
		nil, nil, func(s *model.Snapshot, to *collector) { to.value(float64(s.Host.MemoryBytes)) }},
	{AgentCPU, "outsight.agent.cpu", "s", model.Counter,
		"CPU time of the agent's own process",
		nil, nil, func(s *model.Snapshot, to *collector) { to.value(seconds(s.Self.CPUNS)) }},
	{AgentResidentMemory, "outsight.agent.resident_memory", "By", model.Gauge,
		"Resident memory of the agent's own process",
		nil, nil, func(s *model.Snapshot, to *collector) { to.value(float64(s.Self.RSSBytes)) }},
	{AgentSent, "outsight.agent.sent", "By", model.Counter,
		"Bytes that the agent's own process wrote to connections, as its sockets took them (compressed, and encrypted): to a server (otlp), to a remote store (store), to who asked for /metrics (metrics) or for the page and its API (api), and to the command line of the same host (socket)",
		nil, nil, func(s *model.Snapshot, to *collector) {
			for _, sent := range s.Self.Sent {
				to.value(float64(sent.Bytes), label(LabelTo, sent.To))
			}
		}},
	{AgentRead, "outsight.agent.read", "s", model.Gauge,
		"Time that the last reading of all counters took",
		nil, nil, func(s *model.Snapshot, to *collector) { to.value(seconds(s.Self.ReadNS)) }},
	{ProgramRuns, "outsight.program.runs", "{run}", model.Counter,
		"Runs of a kernel program, estimated from moments in which the kernel's program statistics are on: 50 ms in each second or ten",
		nil, nil, programRuns},
	{ProgramRunTime, "outsight.program.run", "s", model.Counter,
		"Time spent in a kernel program, estimated as its runs are",
		nil, nil, programRunTime},
	{ProgramMissed, "outsight.program.missed_events", "{event}", model.Counter,
		"Events at which the kernel did not run a program, because it was already running on that CPU",
		nil, nil, programMissed},
	{Drops, "outsight.drops", "{update}", model.Counter,
		"Updates that found no room in a bounded table or queue",
		nil, nil, drops},
	{Entries, "outsight.entries", "{entry}", model.Gauge,
		"Entries in use of a bounded table or queue",
		nil, nil, entries},
	{Capacity, "outsight.capacity", "{entry}", model.Gauge,
		"Entries for which a bounded table or queue has room",
		nil, nil, capacity},
	{CostRatio, "outsight.cost", "1", model.Gauge,
		"Share of the CPU time of the host, all its CPUs together, that Outsight took of late: its own process, or its kernel programs (without what the kernel spends on calling them)",
		nil, nil, costs},
	{BudgetRatio, "outsight.budget", "1", model.Gauge,
		"Share of the CPU time of the host that Outsight may take; absent where there is no limit",
		nil, nil, func(s *model.Snapshot, to *collector) {
			if b := s.Self.Budget; b != nil && b.Limit > 0 {
				to.value(b.Limit)
			}
		}},
	{FeatureCost, "outsight.feature.cost", "1", model.Gauge,
		"Share of the CPU time of the host that a part of Outsight took of late: its kernel programs, and its work in the own process; all parts together, rest among them, are the sum of outsight_cost_ratio; basis is estimate where the division between parts that share programs is assumed",
		nil, nil, partCosts},
	{FeatureShed, "outsight.feature.shed", "", model.Gauge,
		"1 while a part of Outsight is given up to keep the budget: what it counts stands still or is absent",
		nil, nil, parts(func(p *model.PartSample) float64 { return boolean(p.Shed) })},
	{FeatureChanges, "outsight.feature.changes", "{change}", model.Counter,
		"Times that a part of Outsight was given up or taken up again to keep the budget",
		nil, nil, parts(func(p *model.PartSample) float64 { return float64(p.Changes) })},
	{FeatureAvailable, "outsight.feature.available", "", model.Gauge,
		"1 where a hook, counter or runtime works on this host, 0 where it does not",
		nil, nil, features},
	{EdgesCompleteness, "outsight.edges.completeness", "1", model.Gauge,
		"Share of the bytes received on the host that were seen and found room on an edge of their own",
		nil, nil, func(s *model.Snapshot, to *collector) { to.value(model.CountedShare(s.Edges)) }},
	{EdgesUnmatched, "outsight.edges.unmatched", "1", model.Gauge,
		"Share of edges whose other end is not known to be in any container",
		nil, nil, func(s *model.Snapshot, to *collector) { to.value(model.UnmatchedShare(s.Edges)) }},
	{BuildInfo, "outsight.build.info", "", model.Gauge,
		"1, with the version of Outsight and of Go as labels",
		nil, nil, buildInfo},
}, hostPowerMetrics...)

func programMissed(s *model.Snapshot, to *collector) {
	for _, p := range s.Self.Programs {
		to.value(float64(p.Missed), label(LabelProgram, p.Name))
	}
}

func programRuns(s *model.Snapshot, to *collector) {
	for _, p := range s.Self.Programs {
		if p.Runs != 0 {
			to.value(float64(p.Runs), label(LabelProgram, p.Name))
		}
	}
}

func programRunTime(s *model.Snapshot, to *collector) {
	for _, p := range s.Self.Programs {
		if p.RunTimeNS != 0 {
			to.value(seconds(p.RunTimeNS), label(LabelProgram, p.Name))
		}
	}
}

func drops(s *model.Snapshot, to *collector) {
	for _, d := range s.Self.Drops {
		to.value(float64(d.Count), label(LabelName, d.Name))
	}
}

func entries(s *model.Snapshot, to *collector) {
	for _, d := range s.Self.Drops {
		if d.Capacity != 0 {
			to.value(float64(d.Used), label(LabelName, d.Name))
		}
	}
}

func capacity(s *model.Snapshot, to *collector) {
	for _, d := range s.Self.Drops {
		if d.Capacity != 0 {
			to.value(float64(d.Capacity), label(LabelName, d.Name))
		}
	}
}

func costs(s *model.Snapshot, to *collector) {
	if b := s.Self.Budget; b != nil {
		to.value(b.Own, label(LabelPlane, "own"))
		to.value(b.Kernel, label(LabelPlane, "kernel"))
	}
}

// parts collects a number of each part that can be given up.
func parts(number func(*model.PartSample) float64) func(*model.Snapshot, *collector) {
	return func(s *model.Snapshot, to *collector) {
		if s.Self.Budget == nil {
			return
		}
		for i := range s.Self.Budget.Parts {
			p := &s.Self.Budget.Parts[i]
			if p.Fixed {
				continue
			}
			to.value(number(p), label(LabelName, p.Name), label(LabelPurpose, p.Purpose))
		}
	}
}

func partCosts(s *model.Snapshot, to *collector) {
	if s.Self.Budget == nil {
		return
	}
	for i := range s.Self.Budget.Parts {
		p := &s.Self.Budget.Parts[i]
		labels := []model.Label{label(LabelName, p.Name), label(LabelPurpose, p.Purpose)}
		if p.Estimated {
			labels = append(labels, label(LabelBasis, "estimate"))
		}
		to.value(p.Spent, labels...)
	}
}

func features(s *model.Snapshot, to *collector) {
	for _, f := range s.Self.Features {
		if f.State == model.FeatureOff {
			continue
		}
		to.value(boolean(f.State == model.FeatureWorks), label(LabelName, f.Name), label(LabelPurpose, f.Purpose))
	}
}

var version = sync.OnceValue(func() string {
	build, ok := debug.ReadBuildInfo()
	if !ok || build.Main.Version == "" {
		return "(devel)"
	}
	return build.Main.Version
})

func buildInfo(_ *model.Snapshot, to *collector) {
	to.value(1, label(LabelVersion, version()), label(LabelGoVersion, runtime.Version()))
}
