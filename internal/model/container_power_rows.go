package model

import "strconv"

var containerPowerRows = []Row[ContainerSample]{
	{Name: "container_perf_events_total", OTel: "container.perf.events", Unit: "{event}", Kind: Counter,
		Help: "Hardware events (cycles, instructions, cache_references, cache_misses), extrapolated to the time in which the " +
			"counters were used by others",
		Labels: []string{"event", "pmu"}, Each: perf(func(c *PerfCounters, to *Sink) { c.events(to) })},
	{Name: "container_process_perf_events_total", OTel: "container.process.perf.events", Unit: "{event}", Kind: Counter,
		Help: "The container's hardware events by the process, with --counters processes; other are processes that are not " +
			"distinguished",
		Labels: []string{"process", "event", "pmu"}, Each: processEvents},
	{Name: "container_perf_enabled_seconds_total", OTel: "container.perf.enabled", Unit: "s", Kind: Counter,
		Help:   "Time in which hardware events should have been counted",
		Labels: []string{"pmu"},
		Each:   perf(func(c *PerfCounters, to *Sink) { to.Add(seconds(c.EnabledNS), NewLabel("pmu", c.PMU)) })},
	{Name: "container_perf_running_seconds_total", OTel: "container.perf.running", Unit: "s", Kind: Counter,
		Help:   "Time in which hardware events were counted; else others used the counters",
		Labels: []string{"pmu"},
		Each:   perf(func(c *PerfCounters, to *Sink) { to.Add(seconds(c.RunningNS), NewLabel("pmu", c.PMU)) })},
	{Name: "container_perf_shared_cycles_total", OTel: "container.perf.shared_cycles", Unit: "{cycle}", Kind: Counter,
		Help:   "Cycles, by how many hardware threads of the core were busy meanwhile (4: four or more)",
		Labels: []string{"threads", "pmu"}, Each: perf(sharedCycles)},
	{Name: "container_energy_joules_total", OTel: "container.energy", Unit: "J", Kind: Counter,
		Help:   "Energy that is attributed to the container; domains contain each other and must not be added up",
		Labels: []string{"domain", "source"}, Each: containerEnergy},
}

func perf(read func(*PerfCounters, *Sink)) func(*ContainerSample, *Sink) {
	return func(s *ContainerSample, to *Sink) {
		for i := range s.Perf {
			read(&s.Perf[i], to)
		}
	}
}

// events adds the events that were counted, of a process where more says which.
func (c *PerfCounters) events(to *Sink, more ...Label) {
	for i, n := range c.Counts {
		if c.Known>>i&1 != 0 && c.RunningNS > 0 {
			to.Add(float64(n), append([]Label{NewLabel("event", c.Name(i)), NewLabel("pmu", c.PMU)}, more...)...)
		}
	}
}

func processEvents(s *ContainerSample, to *Sink) {
	for i := range s.ProcessPerf {
		p := &s.ProcessPerf[i]
		for j := range p.Perf {
			p.Perf[j].events(to, NewLabel("process", p.Process))
		}
	}
}

func sharedCycles(c *PerfCounters, to *Sink) {
	for i, n := range c.Shared {
		if n > 0 {
			to.Add(float64(n), NewLabel("threads", strconv.Itoa(i+1)), NewLabel("pmu", c.PMU))
		}
	}
}

func containerEnergy(s *ContainerSample, to *Sink) {
	for _, e := range s.Energy {
		to.Add(joules(e.MicroJoules), NewLabel("domain", e.Domain), NewLabel("source", e.Source))
	}
}

// joules turns microjoules into joules.
func joules(microJoules uint64) float64 { return float64(microJoules) / 1e6 }
