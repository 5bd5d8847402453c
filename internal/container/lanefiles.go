package container

import "slices"

// perCPUUsage stands for as many columns as there are CPUs.
const perCPUUsage = "cpu.usage.percpu"

// laneSpec is a file of the lane, as the kernel names it.
type laneSpec struct {
	controller string
	// names in order: the first that exists is read.
	names   []string
	parse   laneParser
	numbers []laneColumn
	// limit is true for files that change with a setting; see limitEvery.
	limit bool
	// unified files are of the v2 hierarchy on all hosts.
	unified bool
}

type laneColumn struct{ key, column string }

// named are numbers whose columns are called as their keys are, after the prefix.
func named(prefix string, keys ...string) (numbers []laneColumn) {
	for _, key := range keys {
		numbers = append(numbers, laneColumn{key, prefix + key})
	}
	return numbers
}

func laneFilesOf(version int) []laneSpec {
	if version == 1 {
		return append(laneFilesV1(), lanePressures...)
	}
	return append(slices.Clone(laneFilesV2), lanePressures...)
}

// refaults are the numbers of memory.stat that rAdvisor does not have. Until 5.9 there were those of files alone.
func refaults(prefix string) []laneColumn {
	return []laneColumn{{prefix + "workingset_refault_anon", "refaults_anon"},
		{prefix + "workingset_refault_file", "refaults_file"},
		{prefix + "workingset_refault", "refaults_file"}}
}

// lanePressures are there where the kernel keeps pressure stall information.
var lanePressures = []laneSpec{pressureOf("cpu"), pressureOf("memory"), pressureOf("io")}

func pressureOf(resource string) laneSpec {
	return laneSpec{names: []string{resource + ".pressure"}, parse: lanePressure, unified: true,
		numbers: []laneColumn{{"some", "pressure_" + resource + "_waiting_ns"},
			{"full", "pressure_" + resource + "_stalled_ns"}}}
}

func oneNumber(controller, file, column string) laneSpec {
	return laneSpec{controller: controller, names: []string{file}, parse: laneNumber, numbers: []laneColumn{{"", column}}}
}

// limit is a file of settings.
func limitOf(f laneSpec) laneSpec {
	f.limit = true
	return f
}

func spec(controller string, names []string, parse laneParser, columns []laneColumn) laneSpec {
	return laneSpec{controller: controller, names: names, parse: parse, numbers: columns}
}

var laneFilesV2 = []laneSpec{
	oneNumber("pids", "pids.current", "pids.current"),
	limitOf(oneNumber("pids", "pids.max", "pids.max")),
	spec("cpu", []string{"cpu.stat"}, laneKeys,
		named("cpu.stat/", "usage_usec", "system_usec", "user_usec", "nr_periods", "nr_throttled", "throttled_usec")),
	limitOf(spec("cpu", []string{"cpu.max"}, laneQuota, []laneColumn{{"", "cpu_quota_ns"}, {"", "cpu_period_ns"}})),
	oneNumber("memory", "memory.current", "memory.current"),
	limitOf(oneNumber("memory", "memory.high", "memory.high")),
	limitOf(oneNumber("memory", "memory.max", "memory.max")),
	spec("memory", []string{"memory.stat"}, laneKeys,
		append(named("memory.stat/", "anon", "file", "kernel_stack", "pagetables", "percpu", "sock", "shmem", "file_mapped",
			"file_dirty",
			"file_writeback", "swapcached", "inactive_anon", "active_anon", "inactive_file", "active_file", "unevictable",
			"pgfault",
			"pgmajfault"), refaults("")...)),
	spec("io", []string{"io.stat"}, laneIOStat, named("io.stat/", "rbytes", "wbytes", "rios", "wios", "dbytes", "dios")),
}

func laneFilesV1() []laneSpec {
	files := []laneSpec{
		oneNumber("pids", "pids.current", "pids.current"),
		limitOf(oneNumber("pids", "pids.max", "pids.max")),
		oneNumber("cpuacct", "cpuacct.usage_sys", "cpu.usage.system"),
		oneNumber("cpuacct", "cpuacct.usage_user", "cpu.usage.user"),
		// cpuacct.usage is the same sum (cpuusage_read in kernel/sched/cpuacct.c).
		spec("cpuacct", []string{"cpuacct.usage_percpu"}, lanePerCPU,
			[]laneColumn{{"", perCPUUsage}, {"", "cpu.usage.total"}}),
		spec("cpuacct", []string{"cpuacct.stat"}, laneKeys, named("cpu.stat.", "user", "system")),
		spec("cpu", []string{"cpu.stat"}, laneKeys, []laneColumn{{"nr_periods", "cpu.throttling.periods"},
			{"nr_throttled", "cpu.throttling.throttled.count"}, {"throttled_time", "cpu.throttling.throttled.time"}}),
		limitOf(spec("cpu", []string{"cpu.cfs_quota_us"}, laneQuota, []laneColumn{{"", "cpu_quota_ns"}})),
		limitOf(spec("cpu", []string{"cpu.cfs_period_us"}, laneQuota, []laneColumn{{"", "cpu_period_ns"}})),
		oneNumber("memory", "memory.usage_in_bytes", "memory.usage.current"),
		oneNumber("memory", "memory.max_usage_in_bytes", "memory.usage.max"),
		limitOf(oneNumber("memory", "memory.limit_in_bytes", "memory.limit.hard")),
		limitOf(oneNumber("memory", "memory.soft_limit_in_bytes", "memory.limit.soft")),
		oneNumber("memory", "memory.failcnt", "memory.failcnt"),
		spec("memory", []string{"memory.stat"}, laneKeys, append([]laneColumn{
			{"hierarchical_memory_limit", "memory.hierarchical_limit.memory"},
			{"hierarchical_memsw_limit", "memory.hierarchical_limit.memoryswap"},
			{"total_cache", "memory.cache"}, {"total_rss", "memory.rss.all"}, {"total_rss_huge", "memory.rss.huge"},
			{"total_mapped_file", "memory.mapped"}, {"total_swap", "memory.swap"}, {"total_pgpgin", "memory.paged.in"},
			{"total_pgpgout", "memory.paged.out"}, {"total_pgfault", "memory.fault.total"},
			{"total_pgmajfault", "memory.fault.major"},
			{"total_inactive_anon", "memory.anon.inactive"}, {"total_active_anon", "memory.anon.active"},
			{"total_inactive_file", "memory.file.inactive"}, {"total_active_file", "memory.file.active"},
			{"total_unevictable", "memory.unevictable"}}, refaults("total_")...)),
	}
	for _, f := range []struct{ file, column string }{{"blkio.time", "blkio.time"}, {"blkio.sectors", "blkio.sectors"}} {
		files = append(files, spec("blkio", []string{f.file + "_recursive", f.file}, laneDevices,
			[]laneColumn{{"", f.column}}))
	}
	for _, f := range []struct{ file, column string }{
		{"blkio.io_service_bytes", "blkio.service.bytes"}, {"blkio.io_serviced", "blkio.service.ios"},
		{"blkio.io_service_time", "blkio.service.time"}, {"blkio.io_queued", "blkio.queued"},
		{"blkio.io_wait_time", "blkio.wait"}, {"blkio.io_merged", "blkio.merged"},
		{"blkio.throttle.io_service_bytes", "blkio.throttle.service.bytes"},
		{"blkio.throttle.io_serviced", "blkio.throttle.service.ios"},
		{"blkio.bfq.io_service_bytes", "blkio.bfq.service.bytes"}, {"blkio.bfq.io_serviced", "blkio.bfq.service.ios"},
	} {
		files = append(files, spec("blkio", []string{f.file + "_recursive", f.file}, laneDevices, []laneColumn{
			{"Read", f.column + ".read"}, {"Write", f.column + ".write"}, {"Sync", f.column + ".sync"},
			{"Async", f.column + ".async"}}))
	}
	return files
}
