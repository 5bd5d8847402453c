package otlp

import (
	"strconv"
	"strings"

	"outsight/internal/model"
)

var powerMetrics = []Metric{
	{ContainerPerfEvents, "container.perf.events", "{event}", model.Counter,
		"Hardware events (cycles, instructions, cache_references, cache_misses), extrapolated to the time in which the counters were used by others",
		perf(func(c *model.PerfCounters, to *collector) {
			for place, n := range c.Counts {
				if c.Known>>place&1 != 0 && c.RunningNS > 0 {
					to.value(float64(n), label(LabelEvent, c.Name(place)), label(LabelPMU, c.PMU))
				}
			}
		}), nil, nil},
	{ContainerProcessPerfEvents, "container.process.perf.events", "{event}", model.Counter,
		"The container's hardware events by the process, with --counters processes; other are processes that are not told apart",
		processEvents, nil, nil},
	{ContainerPerfEnabled, "container.perf.enabled", "s", model.Counter,
		"Time in which hardware events should have been counted",
		perf(func(c *model.PerfCounters, to *collector) { to.value(seconds(c.EnabledNS), label(LabelPMU, c.PMU)) }), nil, nil},
	{ContainerPerfRunning, "container.perf.running", "s", model.Counter,
		"Time in which hardware events were counted; in the rest others used the counters",
		perf(func(c *model.PerfCounters, to *collector) { to.value(seconds(c.RunningNS), label(LabelPMU, c.PMU)) }), nil, nil},
	{ContainerSharedCycles, "container.perf.shared_cycles", "{cycle}", model.Counter,
		"Cycles, by how many hardware threads of the core were busy meanwhile (4: four or more)",
		perf(func(c *model.PerfCounters, to *collector) {
			for i, n := range c.Shared {
				if n > 0 {
					to.value(float64(n), label(LabelThreads, strconv.Itoa(i+1)), label(LabelPMU, c.PMU))
				}
			}
		}), nil, nil},
	{ContainerEnergy, "container.energy", "J", model.Counter,
		"Energy that was put to the container; domains contain each other and must not be added up",
		func(s *model.ContainerSample, to *collector) {
			for _, e := range s.Energy {
				to.value(joules(e.MicroJoules), label(LabelDomain, e.Domain), label(LabelSource, e.Source))
			}
		}, nil, nil},
}

var hostPowerMetrics = []Metric{
	{HostEnergy, "outsight.host.energy", "J", model.Counter,
		"Energy of the host: the part of containers, that of the system outside of them, and what an idle host would have drawn; together what was measured",
		nil, nil, hostEnergy},
	{EnergyMeter, "outsight.energy.meter", "", model.Gauge,
		"1, with what measures energy, and why no better meter does, as labels",
		nil, nil, func(s *model.Snapshot, to *collector) {
			if s.Energy != nil {
				m := &s.Energy.Meter
				to.value(1, label(LabelSource, m.Source), label(LabelDetail, m.Detail), label(LabelDomain, strings.Join(m.Domains, ",")),
					label(LabelOthers, strings.Join(m.Others, "; ")))
			}
		}},
	{EnergyMeterError, "outsight.energy.meter.error", "1", model.Gauge,
		"Greatest relative error of the host's energy that is known; absent for meters that measure",
		nil, nil, func(s *model.Snapshot, to *collector) {
			if s.Energy != nil && s.Energy.Meter.Error > 0 {
				to.value(s.Energy.Meter.Error, label(LabelSource, s.Energy.Meter.Source))
			}
		}},
}

func hostEnergy(s *model.Snapshot, to *collector) {
	if s.Energy == nil {
		return
	}
	for _, p := range s.Energy.Parts {
		of := func(part string, microJoules uint64) {
			to.value(joules(microJoules), label(LabelDomain, p.Domain), label(LabelSource, p.Source), label(LabelPart, part))
		}
		of("containers", p.Containers)
		of("idle", p.Idle)
		of("system", p.System)
	}
}

func processEvents(s *model.ContainerSample, to *collector) {
	for i := range s.ProcessPerf {
		p := &s.ProcessPerf[i]
		for _, c := range p.Perf {
			for place, n := range c.Counts {
				if c.Known>>place&1 != 0 && c.RunningNS > 0 {
					to.value(float64(n), label(LabelProcess, p.Process), label(LabelEvent, c.Name(place)), label(LabelPMU, c.PMU))
				}
			}
		}
	}
}

func perf(read func(*model.PerfCounters, *collector)) func(*model.ContainerSample, *collector) {
	return func(s *model.ContainerSample, to *collector) {
		for i := range s.Perf {
			read(&s.Perf[i], to)
		}
	}
}

// joules turns microjoules into joules.
func joules(microJoules uint64) float64 { return float64(microJoules) / 1e6 }
