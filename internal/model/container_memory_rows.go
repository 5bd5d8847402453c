package model

var containerMemoryRows = []Row[ContainerSample]{
	{Name: "container_memory_usage_bytes", OTel: "container.memory.usage", Unit: "By", Kind: Gauge,
		Help: "Memory in use, page cache included",
		Columns: []Column[ContainerSample]{{Name: "memory_usage", Mean: true,
			Count: ofMemory(func(m *MemorySample) uint64 { return m.UsageBytes }),
			Shown: withMean(Number{Key: "memory_bytes", Title: "Memory", Unit: "B", Group: GroupMemory, Formula: Level,
				Meaning: "Memory in use, page cache included"})}}},
	{Name: "container_memory_working_set_bytes", OTel: "container.memory.working_set", Unit: "By", Kind: Gauge,
		Help: "Memory in use less the inactive page cache, in bytes",
		Columns: []Column[ContainerSample]{{Name: "memory_working_set", Mean: true,
			Count: ofMemory(func(m *MemorySample) uint64 { return m.WorkingSetBytes }),
			Shown: withMean(Number{Key: "working_set_bytes", Title: "Working set", Unit: "B", Group: GroupMemory,
				Formula: Level,
				Meaning: "Memory in use less the inactive page cache"})}}},
	{Name: "container_memory_rss", OTel: "container.memory.rss", Unit: "By", Kind: Gauge,
		Help: "Anonymous memory, in bytes",
		Columns: []Column[ContainerSample]{{Name: "memory_rss", Mean: true,
			Count: ofMemory(func(m *MemorySample) uint64 { return m.RSSBytes }),
			Shown: withMean(Number{Key: "rss_bytes", Title: "Anonymous memory", Unit: "B", Group: GroupMemory,
				Formula: Level})}}},
	{Name: "container_memory_cache", OTel: "container.memory.cache", Unit: "By", Kind: Gauge,
		Help: "Page cache, in bytes",
		Columns: []Column[ContainerSample]{{Name: "memory_cache", Mean: true,
			Count: ofMemory(func(m *MemorySample) uint64 { return m.CacheBytes }),
			Shown: withMean(Number{Key: "cache_bytes", Title: "Page cache", Unit: "B", Group: GroupMemory,
				Formula: Level})}}},
	{Name: "container_spec_memory_limit_bytes", OTel: "container.memory.limit", Unit: "By", Kind: Gauge,
		Help: "Memory limit, 0 where there is none",
		Columns: []Column[ContainerSample]{{Name: "memory_limit",
			Count: ofMemory(func(m *MemorySample) uint64 { return m.LimitBytes }),
			Shown: []Number{{Key: "memory_limit_bytes", Title: "Memory limit", Unit: "B", Group: GroupMemory,
				Formula: Limit}}}}},
	{Name: "container_memory_page_faults_total", OTel: "container.memory.paging.faults", Unit: "{fault}", Kind: Counter,
		Help: "Page faults: minor, or major (something had to be read from disk)",
		Columns: []Column[ContainerSample]{
			// The kernel's total includes the major faults.
			{Name: "minor_faults", File: true, Label: typed("minor"),
				Count: ofMemory(func(m *MemorySample) uint64 { return m.PageFaults - min(m.PageFaults, m.MajorPageFaults) }),
				Shown: []Number{{Key: "minor_page_faults", Title: "Minor page faults", Unit: "/s", Group: GroupMemory,
					Formula: Rate}}},
			{Name: "major_faults", File: true, Label: typed("major"),
				Count: ofMemory(func(m *MemorySample) uint64 { return m.MajorPageFaults }),
				Shown: []Number{{Key: "major_page_faults", Title: "Major page faults", Unit: "/s", Group: GroupMemory,
					Formula: Rate}}}}},
	{Name: "container_oom_kills_total", OTel: "container.oom_kills", Unit: "{process}", Kind: Counter,
		Help: "Processes killed because the container was out of memory",
		Columns: []Column[ContainerSample]{{Name: "oom_kills", File: true,
			Count: ofMemory(func(m *MemorySample) uint64 { return m.OOMKills }),
			Shown: []Number{{Key: "oom_kills", Title: "Out-of-memory kills", Group: GroupMemory}}}}},
	{Name: "container_oom_victims_total", OTel: "container.oom_victims", Unit: "{process}", Kind: Counter,
		Help:   "Processes killed because there was no memory, by their name, since the agent's start",
		Labels: []string{"process"}, Each: oomVictims},
	{Name: "container_memory_refaults_total", OTel: "container.memory.refaults", Unit: "{page}", Kind: Counter,
		Help: "Pages that were needed again soon after they had been reclaimed for lack of memory: anonymous memory or file",
		Columns: []Column[ContainerSample]{
			{Name: "refaults_anon", File: true, Label: typed("anon"),
				Count: refaults(func(m *MemorySample) uint64 { return m.AnonRefaults })},
			{Name: "refaults_file", File: true, Label: typed("file"),
				Count: refaults(func(m *MemorySample) uint64 { return m.FileRefaults })}}},
	{Name: "container_memory_reclaim_stall_seconds_total", OTel: "container.memory.reclaim_stall", Unit: "s",
		Kind: Counter,
		Help: "Time for which threads had to free memory before they got some, because of the container's limit or because " +
			"the host was short of it",
		Columns: []Column[ContainerSample]{
			{Name: "reclaim_stall_limit", Label: typed("limit"), Per: Nanoseconds,
				Count: ofReclaim(func(r *ReclaimCounters) uint64 { return r.LimitNS })},
			{Name: "reclaim_stall_host", Label: typed("host"), Per: Nanoseconds,
				Count: ofReclaim(func(r *ReclaimCounters) uint64 { return r.HostNS })}}},
	{Name: "container_memory_reclaim_stalls_total", OTel: "container.memory.reclaim_stalls", Unit: "{stall}",
		Kind: Counter,
		Help: "Times that a thread had to free memory before it got some, because of the container's limit or because the " +
			"host was short of it",
		Columns: []Column[ContainerSample]{
			{Name: "reclaim_stalls_limit", Label: typed("limit"),
				Count: ofReclaim(func(r *ReclaimCounters) uint64 { return r.LimitStalls })},
			{Name: "reclaim_stalls_host", Label: typed("host"),
				Count: ofReclaim(func(r *ReclaimCounters) uint64 { return r.HostStalls })}}},

	pressureRow("cpu", "waiting", "Time for which at least one thread waited for a CPU (PSI some)",
		func(p *PressureCounters) (Pressure, uint64) { return p.CPU, p.CPU.WaitingNS }),
	pressureRow("cpu", "stalled", "Time for which all threads that could run waited for a CPU (PSI full)",
		func(p *PressureCounters) (Pressure, uint64) { return p.CPU, p.CPU.StalledNS }),
	pressureRow("memory", "waiting", "Time for which at least one thread waited for memory (PSI some)",
		func(p *PressureCounters) (Pressure, uint64) { return p.Memory, p.Memory.WaitingNS }),
	pressureRow("memory", "stalled", "Time for which all threads that had something to do waited for memory (PSI full)",
		func(p *PressureCounters) (Pressure, uint64) { return p.Memory, p.Memory.StalledNS }),
	pressureRow("io", "waiting", "Time for which at least one thread waited for a disk (PSI some)",
		func(p *PressureCounters) (Pressure, uint64) { return p.IO, p.IO.WaitingNS }),
	pressureRow("io", "stalled", "Time for which all threads that had something to do waited for a disk (PSI full)",
		func(p *PressureCounters) (Pressure, uint64) { return p.IO, p.IO.StalledNS }),
}

var (
	ofMemory  = in(func(s *ContainerSample) *MemorySample { return s.Memory })
	ofReclaim = in(func(s *ContainerSample) *ReclaimCounters { return s.Reclaim })
)

func oomVictims(s *ContainerSample, to *Sink) {
	if s.Victims == nil {
		return
	}
	for _, k := range s.Victims.Kills {
		to.Add(float64(k.Count), NewLabel("process", k.Process))
	}
}

func refaults(read func(*MemorySample) uint64) func(*ContainerSample) (uint64, bool) {
	return func(s *ContainerSample) (uint64, bool) {
		if m := s.Memory; m != nil && m.HasRefaults {
			return read(m), true
		}
		return 0, false
	}
}

func pressureRow(of, how, help string, read func(*PressureCounters) (of Pressure, ns uint64)) Row[ContainerSample] {
	return Row[ContainerSample]{Name: "container_pressure_" + of + "_" + how + "_seconds_total",
		OTel: "container.pressure." + of + "." + how, Unit: "s", Kind: Counter, Help: help,
		Columns: []Column[ContainerSample]{{Name: "pressure_" + of + "_" + how, Per: Nanoseconds, File: true,
			Count: func(s *ContainerSample) (uint64, bool) {
				if s.Pressure == nil {
					return 0, false
				}
				of, ns := read(s.Pressure)
				return ns, of.Known
			}}}}
}
