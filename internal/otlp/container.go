package otlp

import "outsight/internal/model"

var containerMetrics = append([]Metric{
	{ContainerInfo, "container.info", "", model.Gauge,
		"1 for each container, with what else is known of it as labels",
		info, nil, nil},
	{ContainerStartTime, "container.start_time", "s", model.Gauge,
		"Time at which the container started, since the Unix epoch",
		startTime, nil, nil},

	{ContainerCPUUsage, "container.cpu.time", "s", model.Counter,
		"CPU time used, by threads that run at the moment of reading too",
		cpu(func(c *model.CPUCounters, to *collector) { to.value(seconds(c.UsageNS)) }), nil, nil},
	{ContainerContextSwitches, "container.context_switches", "{switch}", model.Counter,
		"Context switches away from a thread: voluntary (it went to sleep) or involuntary (it could have run on)",
		cpu(func(c *model.CPUCounters, to *collector) {
			to.value(float64(c.Voluntary), label(LabelType, "voluntary"))
			to.value(float64(c.Involuntary), label(LabelType, "involuntary"))
		}), nil, nil},
	{ContainerRunQueueLatency, "container.run_queue.latency", "s", model.HistogramSeries,
		"Time that runnable threads waited for a CPU",
		cpu(func(c *model.CPUCounters, to *collector) { to.histogram(c.RunQueue) }), nil, nil},

	{ContainerRunQueueWaitBy, "container.run_queue.wait_by", "s", model.Counter,
		"Time that runnable threads waited for a CPU, by who ran on it meanwhile: by_id and by_name of another container, or by_name alone: own (other threads of the same container), idle (nobody: the CPU had to wake up), quota (the container's own CPU quota was used up), migrated (on a CPU that the thread was moved away from) or other (not told apart)",
		waitBy, nil, nil},
	{ContainerPreemptionsBy, "container.preemptions_by", "{preemption}", model.Counter,
		"Times that a thread that could have run on lost its CPU, by who got it: labels as of the waits, without idle and migrated",
		preemptionsBy, nil, nil},

	{ContainerForks, "container.process.forks", "{process}", model.Counter,
		"Processes started by fork",
		processes(func(p *model.ProcessCounters) uint64 { return p.Forks }), nil, nil},
	{ContainerExecs, "container.process.execs", "{process}", model.Counter,
		"Programs started by exec",
		processes(func(p *model.ProcessCounters) uint64 { return p.Execs }), nil, nil},
	{ContainerExits, "container.process.exits", "{process}", model.Counter,
		"Processes that ended",
		processes(func(p *model.ProcessCounters) uint64 { return p.Exits }), nil, nil},
	{ContainerThreads, "container.threads", "{thread}", model.Gauge,
		"Threads that exist now",
		processes(func(p *model.ProcessCounters) uint64 { return p.Threads }), nil, nil},

	{ContainerBusyThreads, "container.threads.busy", "{thread}", model.Gauge,
		"Threads over which the CPU time of ten seconds is spread: the time of all over that of the busiest",
		func(s *model.ContainerSample, to *collector) {
			if s.Processes != nil && s.Processes.BusyThreads > 0 {
				to.value(s.Processes.BusyThreads)
			}
		}, nil, nil},

	{ContainerCPUQuota, "container.cpu.quota", "{cpu}", model.Gauge,
		"CPU quota over its period, in cores; 0 where there is none",
		throttle(func(t *model.ThrottleCounters) float64 { return t.QuotaCores }), nil, nil},
	{ContainerCFSPeriods, "container.cpu.cfs.periods", "{period}", model.Counter,
		"Periods of the CPU quota in which the container was runnable",
		throttle(func(t *model.ThrottleCounters) float64 { return float64(t.Periods) }), nil, nil},
	{ContainerCFSThrottledPeriods, "container.cpu.cfs.throttled_periods", "{period}", model.Counter,
		"Periods of the CPU quota in which the container was held back",
		throttle(func(t *model.ThrottleCounters) float64 { return float64(t.ThrottledPeriods) }), nil, nil},
	{ContainerCFSThrottledTime, "container.cpu.cfs.throttled", "s", model.Counter,
		"Time for which the container was held back by its CPU quota",
		throttle(func(t *model.ThrottleCounters) float64 { return seconds(t.ThrottledNS) }), nil, nil},

	{ContainerMemoryUsage, "container.memory.usage", "By", model.Gauge,
		"Memory in use, page cache included",
		memory(func(m *model.MemorySample) uint64 { return m.UsageBytes }), nil, nil},
	{ContainerMemoryWorkingSet, "container.memory.working_set", "By", model.Gauge,
		"Memory in use less the inactive page cache, in bytes",
		memory(func(m *model.MemorySample) uint64 { return m.WorkingSetBytes }), nil, nil},
	{ContainerMemoryRSS, "container.memory.rss", "By", model.Gauge,
		"Anonymous memory, in bytes",
		memory(func(m *model.MemorySample) uint64 { return m.RSSBytes }), nil, nil},
	{ContainerMemoryCache, "container.memory.cache", "By", model.Gauge,
		"Page cache, in bytes",
		memory(func(m *model.MemorySample) uint64 { return m.CacheBytes }), nil, nil},
	{ContainerMemoryLimit, "container.memory.limit", "By", model.Gauge,
		"Memory limit, 0 where there is none",
		memory(func(m *model.MemorySample) uint64 { return m.LimitBytes }), nil, nil},
	{ContainerPageFaults, "container.memory.paging.faults", "{fault}", model.Counter,
		"Page faults: minor, or major (something had to be read from disk)",
		pageFaults, nil, nil},
	{ContainerOOMKills, "container.oom_kills", "{process}", model.Counter,
		"Processes killed because the container was out of memory",
		memory(func(m *model.MemorySample) uint64 { return m.OOMKills }), nil, nil},

	{ContainerOOMVictims, "container.oom_victims", "{process}", model.Counter,
		"Processes killed because there was no memory, by their name, since the agent's start",
		oomVictims, nil, nil},
	{ContainerRefaults, "container.memory.refaults", "{page}", model.Counter,
		"Pages that were needed again soon after they had been given up for lack of memory: anonymous memory or file",
		refaults, nil, nil},
	{ContainerReclaimStall, "container.memory.reclaim_stall", "s", model.Counter,
		"Time for which threads had to free memory before they got some, because of the container's limit or because the host was short of it",
		reclaim(func(r *model.ReclaimCounters) (float64, float64) { return seconds(r.LimitNS), seconds(r.HostNS) }), nil, nil},
	{ContainerReclaimStalls, "container.memory.reclaim_stalls", "{stall}", model.Counter,
		"Times that a thread had to free memory before it got some, because of the container's limit or because the host was short of it",
		reclaim(func(r *model.ReclaimCounters) (float64, float64) {
			return float64(r.LimitStalls), float64(r.HostStalls)
		}), nil, nil},

	{ContainerCPUWaiting, "container.pressure.cpu.waiting", "s", model.Counter,
		"Time for which at least one thread waited for a CPU (PSI some)",
		pressure(func(p *model.PressureCounters) (model.Pressure, uint64) { return p.CPU, p.CPU.WaitingNS }), nil, nil},
	{ContainerCPUStalled, "container.pressure.cpu.stalled", "s", model.Counter,
		"Time for which all threads that could run waited for a CPU (PSI full)",
		pressure(func(p *model.PressureCounters) (model.Pressure, uint64) { return p.CPU, p.CPU.StalledNS }), nil, nil},
	{ContainerMemoryWaiting, "container.pressure.memory.waiting", "s", model.Counter,
		"Time for which at least one thread waited for memory (PSI some)",
		pressure(func(p *model.PressureCounters) (model.Pressure, uint64) { return p.Memory, p.Memory.WaitingNS }), nil, nil},
	{ContainerMemoryStalled, "container.pressure.memory.stalled", "s", model.Counter,
		"Time for which all threads that had something to do waited for memory (PSI full)",
		pressure(func(p *model.PressureCounters) (model.Pressure, uint64) { return p.Memory, p.Memory.StalledNS }), nil, nil},
	{ContainerIOWaiting, "container.pressure.io.waiting", "s", model.Counter,
		"Time for which at least one thread waited for a disk (PSI some)",
		pressure(func(p *model.PressureCounters) (model.Pressure, uint64) { return p.IO, p.IO.WaitingNS }), nil, nil},
	{ContainerIOStalled, "container.pressure.io.stalled", "s", model.Counter,
		"Time for which all threads that had something to do waited for a disk (PSI full)",
		pressure(func(p *model.PressureCounters) (model.Pressure, uint64) { return p.IO, p.IO.StalledNS }), nil, nil},

	{ContainerDiskReadBytes, "container.disk.io", "By", model.Counter,
		"Bytes read from block devices, as the control group's files tell",
		disk(func(d *model.DiskCounters) uint64 { return d.ReadBytes }), nil, nil},
	{ContainerDiskWriteBytes, "container.disk.io", "By", model.Counter,
		"Bytes written to block devices, as the control group's files tell",
		disk(func(d *model.DiskCounters) uint64 { return d.WriteBytes }), nil, nil},
	{ContainerDiskReads, "container.disk.operations", "{operation}", model.Counter,
		"Reads from block devices, as the control group's files tell",
		disk(func(d *model.DiskCounters) uint64 { return d.Reads }), nil, nil},
	{ContainerDiskWrites, "container.disk.operations", "{operation}", model.Counter,
		"Writes to block devices, as the control group's files tell",
		disk(func(d *model.DiskCounters) uint64 { return d.Writes }), nil, nil},

	{ContainerDeviceBytes, "container.disk.io", "By", model.Counter,
		"Bytes that requests to a block device have moved, as kernel programs counted them",
		devices(moving, func(o *model.DiskOperations) float64 { return float64(o.Bytes) }), nil, nil},
	{ContainerDeviceOperations, "container.disk.operations", "{operation}", model.Counter,
		"Requests to a block device: read, write, discard, or flush alone; what the kernel merged is one",
		devices(always, func(o *model.DiskOperations) float64 { return float64(o.Operations) }), nil, nil},
	{ContainerDeviceLatency, "container.disk.operation.duration", "s", model.HistogramSeries,
		"Time from the issue of a request to a block device to its completion",
		deviceLatency, nil, nil},
	{ContainerDeviceTime, "container.disk.operation_time", "s", model.Counter,
		"Time from the issue of requests to a block device to their completion, summed",
		devices(always, func(o *model.DiskOperations) float64 { return seconds(o.TimeNS) }), nil, nil},
	{ContainerDeviceQueue, "container.disk.queue_time", "s", model.Counter,
		"Time from the making of requests to a block device to their issue, summed",
		devices(always, func(o *model.DiskOperations) float64 { return seconds(o.QueueNS) }), nil, nil},
	{ContainerDeviceErrors, "container.disk.errors", "{operation}", model.Counter,
		"Requests to a block device that failed",
		devices(always, func(o *model.DiskOperations) float64 { return float64(o.Errors) }), nil, nil},
	{ContainerDeviceUntimed, "container.disk.untimed_operations", "{operation}", model.Counter,
		"Requests to a block device whose issue was not seen, and which are in no latency; absent where there were none",
		devices(untimed, func(o *model.DiskOperations) float64 { return float64(o.Untimed) }), nil, nil},
	{ContainerFileBytes, "container.vfs.io", "By", model.Counter,
		"Bytes that read, write and their kin have moved, also out of the page cache, and of pipes and sockets",
		files(func(f *model.FileCounters) (read, write uint64) { return f.ReadBytes, f.WriteBytes }), nil, nil},
	{ContainerFileOperations, "container.vfs.operations", "{operation}", model.Counter,
		"Calls of read, write and their kin",
		files(func(f *model.FileCounters) (read, write uint64) { return f.Reads, f.Writes }), nil, nil},
	{ContainerSyncDuration, "container.fsync.duration", "s", model.HistogramSeries,
		"Time in which a file system wrote a file to the disk because a program asked for it: fdatasync, or fsync and the like",
		syncDuration, nil, nil},

	{ContainerReceiveBytes, "container.network.io", "By", model.Counter,
		"Bytes received by the interfaces of the container's network namespace, loopback not included",
		network(func(n *model.NetworkCounters) uint64 { return n.ReceiveBytes }), nil, nil},
	{ContainerTransmitBytes, "container.network.io", "By", model.Counter,
		"Bytes sent by the interfaces of the container's network namespace, loopback not included",
		network(func(n *model.NetworkCounters) uint64 { return n.TransmitBytes }), nil, nil},
	{ContainerReceivePackets, "container.network.packet.count", "{packet}", model.Counter,
		"Packets received",
		network(func(n *model.NetworkCounters) uint64 { return n.ReceivePackets }), nil, nil},
	{ContainerTransmitPackets, "container.network.packet.count", "{packet}", model.Counter,
		"Packets sent",
		network(func(n *model.NetworkCounters) uint64 { return n.TransmitPackets }), nil, nil},
	{ContainerReceiveErrors, "container.network.errors", "{error}", model.Counter,
		"Errors while receiving",
		network(func(n *model.NetworkCounters) uint64 { return n.ReceiveErrors }), nil, nil},
	{ContainerTransmitErrors, "container.network.errors", "{error}", model.Counter,
		"Errors while sending",
		network(func(n *model.NetworkCounters) uint64 { return n.TransmitErrors }), nil, nil},
	{ContainerReceivePacketsDropped, "container.network.packet.dropped", "{packet}", model.Counter,
		"Packets dropped while receiving",
		network(func(n *model.NetworkCounters) uint64 { return n.ReceiveDropped }), nil, nil},
	{ContainerTransmitPacketsDropped, "container.network.packet.dropped", "{packet}", model.Counter,
		"Packets dropped while sending",
		network(func(n *model.NetworkCounters) uint64 { return n.TransmitDropped }), nil, nil},
	{ContainerZeroWindows, "container.network.tcp.zero_windows", "{window}", model.Counter,
		"Times that a receiver in the container's network namespace closed its window because its buffer was full; read every 30 s",
		tcp(func(t *model.TCPCounters) uint64 { return t.ZeroWindows }), nil, nil},
	{ContainerZeroWindowsEnded, "container.network.tcp.zero_windows.ended", "{window}", model.Counter,
		"Times that a receiver in the container's network namespace opened a closed window again; read every 30 s",
		tcp(func(t *model.TCPCounters) uint64 { return t.ZeroWindowsEnded }), nil, nil},
	{ContainerZeroWindowDrops, "container.network.tcp.zero_window_drops", "{segment}", model.Counter,
		"Segments dropped because they came to a closed window; read every 30 s",
		tcp(func(t *model.TCPCounters) uint64 { return t.ZeroWindowDrops }), nil, nil},
	{ContainerListenOverflows, "container.network.tcp.listen_overflows", "{connection}", model.Counter,
		"Attempts to connect that found the accept queue of a socket in the container's network namespace full; read every 30 s",
		tcp(func(t *model.TCPCounters) uint64 { return t.ListenOverflows }), nil, nil},
	{ContainerListenerDrops, "container.listener.drops", "{connection}", model.Counter,
		"Attempts to connect that were dropped at a listening TCP address, because its accept queue was full",
		listenerDrops, nil, nil},
}, powerMetrics...)

func tcp(read func(*model.TCPCounters) uint64) func(*model.ContainerSample, *collector) {
	return func(s *model.ContainerSample, to *collector) {
		if s.TCP != nil {
			to.value(float64(read(s.TCP)))
		}
	}
}

func listenerDrops(s *model.ContainerSample, to *collector) {
	for _, l := range s.Listeners {
		to.value(float64(l.Drops), label(LabelService, serviceName(l.Address)))
	}
}

func info(s *model.ContainerSample, to *collector) {
	c := s.Container
	to.value(1, label(LabelPodUID, c.PodUID))
}

func startTime(s *model.ContainerSample, to *collector) {
	if started := s.Container.Started; !started.IsZero() {
		to.value(float64(started.UnixMilli()) / 1e3)
	}
}

func cpu(read func(*model.CPUCounters, *collector)) func(*model.ContainerSample, *collector) {
	return func(s *model.ContainerSample, to *collector) {
		if s.CPU != nil {
			read(s.CPU, to)
		}
	}
}

func waitBy(s *model.ContainerSample, to *collector) {
	c := s.Contention
	if c == nil {
		return
	}
	for i := range c.By {
		to.value(seconds(c.By[i].WaitNS), by(&c.By[i])...)
	}
	of(to, ByOwn, seconds(c.OwnNS))
	of(to, ByIdle, seconds(c.IdleNS))
	of(to, ByQuota, seconds(c.QuotaNS))
	of(to, ByMigrated, seconds(c.MigratedNS))
	of(to, ByOther, seconds(c.OtherNS))
}

func preemptionsBy(s *model.ContainerSample, to *collector) {
	c := s.Contention
	if c == nil {
		return
	}
	for i := range c.By {
		to.value(float64(c.By[i].Preemptions), by(&c.By[i])...)
	}
	of(to, ByOwn, float64(c.OwnPreemptions))
	of(to, ByQuota, float64(c.QuotaStops))
	of(to, ByOther, float64(c.OtherPreemptions))
}

func by(c *model.Contender) []model.Label {
	return []model.Label{label(LabelByID, c.ID), label(LabelByName, c.Name)}
}

// of adds what is no container's; most containers never have most of these.
func of(to *collector, name string, value float64) {
	if value > 0 {
		to.value(value, label(LabelByName, name))
	}
}

func processes(read func(*model.ProcessCounters) uint64) func(*model.ContainerSample, *collector) {
	return func(s *model.ContainerSample, to *collector) {
		if s.Processes != nil {
			to.value(float64(read(s.Processes)))
		}
	}
}

func throttle(read func(*model.ThrottleCounters) float64) func(*model.ContainerSample, *collector) {
	return func(s *model.ContainerSample, to *collector) {
		if s.Throttle != nil {
			to.value(read(s.Throttle))
		}
	}
}

func memory(read func(*model.MemorySample) uint64) func(*model.ContainerSample, *collector) {
	return func(s *model.ContainerSample, to *collector) {
		if s.Memory != nil {
			to.value(float64(read(s.Memory)))
		}
	}
}

func oomVictims(s *model.ContainerSample, to *collector) {
	if s.Victims == nil {
		return
	}
	for _, k := range s.Victims.Kills {
		to.value(float64(k.Count), label(LabelProcess, k.Process))
	}
}

func refaults(s *model.ContainerSample, to *collector) {
	if m := s.Memory; m != nil && m.HasRefaults {
		to.value(float64(m.AnonRefaults), label(LabelType, "anon"))
		to.value(float64(m.FileRefaults), label(LabelType, "file"))
	}
}

func reclaim(read func(*model.ReclaimCounters) (limit, host float64)) func(*model.ContainerSample, *collector) {
	return func(s *model.ContainerSample, to *collector) {
		if s.Reclaim != nil {
			limit, host := read(s.Reclaim)
			to.value(limit, label(LabelType, "limit"))
			to.value(host, label(LabelType, "host"))
		}
	}
}

func pressure(read func(*model.PressureCounters) (of model.Pressure, ns uint64)) func(*model.ContainerSample, *collector) {
	return func(s *model.ContainerSample, to *collector) {
		if s.Pressure == nil {
			return
		}
		if of, ns := read(s.Pressure); of.Known {
			to.value(seconds(ns))
		}
	}
}

// pageFaults splits the kernel's total, which includes the major faults.
func pageFaults(s *model.ContainerSample, to *collector) {
	if s.Memory == nil {
		return
	}
	major := s.Memory.MajorPageFaults
	to.value(float64(s.Memory.PageFaults-min(major, s.Memory.PageFaults)), label(LabelType, "minor"))
	to.value(float64(major), label(LabelType, "major"))
}

func disk(read func(*model.DiskCounters) uint64) func(*model.ContainerSample, *collector) {
	return func(s *model.ContainerSample, to *collector) {
		if s.Disk != nil {
			to.value(float64(read(s.Disk)))
		}
	}
}

func network(read func(*model.NetworkCounters) uint64) func(*model.ContainerSample, *collector) {
	return func(s *model.ContainerSample, to *collector) {
		if s.Network != nil {
			to.value(float64(read(s.Network)))
		}
	}
}
