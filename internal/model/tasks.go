package model

// TaskCounters count what became of processes and threads.
type TaskCounters struct {
	// Forks, Execs and Exits count processes, not threads.
	Forks, Execs, Exits uint64
	// ThreadStarts counts threads, without the first ones of processes.
	ThreadStarts uint64
}

func (c *TaskCounters) plain() []*uint64 {
	return []*uint64{&c.Forks, &c.Execs, &c.Exits, &c.ThreadStarts}
}

// Add adds what was counted between two states of the same counters.
func (c *TaskCounters) Add(to, from *TaskCounters) {
	later, earlier := to.plain(), from.plain()
	for i, sum := range c.plain() {
		*sum += *later[i] - *earlier[i]
	}
}

// ProcessCounters count processes and threads of a container.
type ProcessCounters struct {
	TaskCounters
	// Threads is the number of tasks now, ThreadsLimit how many there may be (pids.max of the container's own control
	// group); 0 where there is no limit.
	Threads, ThreadsLimit uint64
	// OpenFiles are the files that the process has open that is nearest to its limit, OpenFilesLimit (the soft
	// RLIMIT_NOFILE); both are 0 where that is not known.
	OpenFiles, OpenFilesLimit uint64
	// BusyThreads is over how many threads the CPU time of some ten seconds is spread: the sum of what
	// all threads ran over what the busiest one ran. It is 1 for one busy thread, however many others
	// sleep, and n for n equally busy ones: as many cores are in use when the busiest has no more time.
	// 0 where it is not known.
	BusyThreads float64
}

var taskRows = []Row[ContainerSample]{
	{Name: "container_process_forks_total", OTel: "container.process.forks", Unit: "{process}", Kind: Counter,
		Help: "Processes started by fork",
		Columns: []Column[ContainerSample]{{Name: "forks",
			Count: ofProcesses(func(p *ProcessCounters) uint64 { return p.Forks }),
			Shown: []Number{{Key: "forks", Title: "Forks", Unit: "/s", Group: GroupCPU, Order: 11, Formula: Rate}}}}},
	{Name: "container_process_execs_total", OTel: "container.process.execs", Unit: "{process}", Kind: Counter,
		Help: "Programs started by exec",
		Columns: []Column[ContainerSample]{{Name: "execs",
			Count: ofProcesses(func(p *ProcessCounters) uint64 { return p.Execs }),
			Shown: []Number{{Key: "execs", Title: "Execs", Unit: "/s", Group: GroupCPU, Order: 12, Formula: Rate}}}}},
	{Name: "container_process_exits_total", OTel: "container.process.exits", Unit: "{process}", Kind: Counter,
		Help: "Processes that ended",
		Columns: []Column[ContainerSample]{{Name: "exits",
			Count: ofProcesses(func(p *ProcessCounters) uint64 { return p.Exits }),
			Shown: []Number{{Key: "exits", Title: "Exits", Unit: "/s", Group: GroupCPU, Order: 13, Formula: Rate}}}}},
	{Name: "container_thread_starts_total", OTel: "container.thread.starts", Unit: "{thread}", Kind: Counter,
		Help: "Threads started, without the first threads of processes",
		Columns: []Column[ContainerSample]{{Name: "thread_starts",
			Count: ofProcesses(func(p *ProcessCounters) uint64 { return p.ThreadStarts }),
			Shown: []Number{{Key: "thread_starts", Title: "Threads started", Unit: "/s", Group: GroupCPU, Formula: Rate,
				Meaning: "Threads started beside the first of each process: many per second, and a pool of them would pay"}}}}},
	{Name: "container_threads", OTel: "container.threads", Unit: "{thread}", Kind: Gauge,
		Help: "Threads that exist now",
		Columns: []Column[ContainerSample]{{Name: "threads", Mean: true,
			Count: ofProcesses(func(p *ProcessCounters) uint64 { return p.Threads }),
			Shown: withMean(Number{Key: "threads", Title: "Threads", Group: GroupCPU, Order: 8, Formula: Level})}}},
	{Name: "container_threads_limit", OTel: "container.threads.limit", Unit: "{thread}", Kind: Gauge,
		Help: "Threads that there may be by the container's own control group (pids.max), 0 where there is no limit",
		Columns: []Column[ContainerSample]{{Name: "threads_limit",
			Count: ofProcesses(func(p *ProcessCounters) uint64 { return p.ThreadsLimit }),
			Shown: []Number{{Key: "threads_limit", Title: "Threads limit", Group: GroupCPU, Formula: Limit,
				Meaning: "Threads that there may be by the container’s own control group"}}}}},
	{Name: "container_open_files", OTel: "container.open_files", Unit: "{file}", Kind: Gauge,
		Help: "Files that one process of the container has open: of the process that is nearest to its limit. Counted every twenty " +
			"readings, from Linux 6.2 on",
		Columns: []Column[ContainerSample]{{Name: "open_files", Count: openFiles,
			Shown: []Number{{Key: "open_files", Title: "Open files", Group: GroupCPU, Formula: Level,
				Meaning: "Files that the process has open that is nearest to its limit"}}}}},
	{Name: "container_open_files_limit", OTel: "container.open_files.limit", Unit: "{file}", Kind: Gauge,
		Help: "Files that this process may have open (soft RLIMIT_NOFILE)",
		Columns: []Column[ContainerSample]{{Name: "open_files_limit",
			Count: func(s *ContainerSample) (uint64, bool) {
				_, known := openFiles(s)
				return s.openFilesLimit(), known
			},
			Shown: []Number{{Key: "open_files_limit", Title: "Open files limit", Group: GroupCPU, Formula: Limit,
				Meaning: "Files that this process may have open"}}}}},
	{Name: "container_busy_threads", OTel: "container.threads.busy", Unit: "{thread}", Kind: Gauge,
		Help: "Threads over which the CPU time of ten seconds is spread: the time of all over that of the busiest",
		Columns: []Column[ContainerSample]{{Name: "busy_threads", Mean: true, Value: busyThreads,
			Shown: withMean(Number{Key: "busy_threads", Title: "Busy threads", Group: GroupCPU, Order: 9, Formula: Level,
				Meaning: "Over how many threads the CPU time is spread: that of all over that of the busiest"})}}},
}

var ofProcesses = in(func(s *ContainerSample) *ProcessCounters { return s.Processes })

func busyThreads(s *ContainerSample) (float64, bool) {
	if s.Processes == nil {
		return 0, false
	}
	return s.Processes.BusyThreads, s.Processes.BusyThreads > 0
}

func openFiles(s *ContainerSample) (uint64, bool) {
	if s.openFilesLimit() == 0 {
		return 0, false
	}
	return s.Processes.OpenFiles, true
}

func (s *ContainerSample) openFilesLimit() uint64 {
	if s.Processes == nil {
		return 0
	}
	return s.Processes.OpenFilesLimit
}
