package csvy

import (
	"strconv"
	"strings"
)

// radvisorVersion is the version of rAdvisor whose layout is written.
const radvisorVersion = "1.4.0"

// perCPU is the one column of rAdvisor's that holds a vector: a number for each CPU. Here it is
// columns of one number: "cpu.usage.percpu/0" and so on.
const perCPU = "cpu.usage.percpu"

// vectorOf is the column of the file that holds the one with the name as a part.
func vectorOf(name string) (base string, ok bool) {
	base, index, found := strings.Cut(name, "/")
	if !found || base != perCPU {
		return "", false
	}
	_, err := strconv.ParseUint(index, 10, 16)
	return base, err == nil
}

func files(kind, unit, prefix string, names ...string) []Column {
	list := make([]Column, 0, len(names))
	for _, name := range names {
		list = append(list, Column{prefix + name, unit, kind, FromFile})
	}
	return list
}

func join(lists ...[]Column) []Column {
	var all []Column
	for _, list := range lists {
		all = append(all, list...)
	}
	return all
}

// radvisorV2 are rAdvisor's columns on cgroup v2, in its order, without "read".
var radvisorV2 = join(
	files(Gauge, "1", "pids.", "current", "max"),
	files(Counter, "us", "cpu.stat/", "usage_usec", "system_usec", "user_usec"),
	files(Counter, "1", "cpu.stat/", "nr_periods", "nr_throttled"),
	files(Counter, "us", "cpu.stat/", "throttled_usec"),
	files(Gauge, "By", "memory.", "current", "high", "max"),
	files(Gauge, "By", "memory.stat/", "anon", "file", "kernel_stack", "pagetables", "percpu", "sock", "shmem",
		"file_mapped",
		"file_dirty", "file_writeback", "swapcached", "inactive_anon", "active_anon", "inactive_file", "active_file",
		"unevictable"),
	files(Counter, "1", "memory.stat/", "pgfault", "pgmajfault"),
	files(Counter, "By", "io.stat/", "rbytes", "wbytes"),
	files(Counter, "1", "io.stat/", "rios", "wios"),
	files(Counter, "By", "io.stat/", "dbytes"),
	files(Counter, "1", "io.stat/", "dios"),
)

// radvisorV1 are rAdvisor's columns on cgroup v1, in its order, without "read".
var radvisorV1 = join(
	files(Gauge, "1", "pids.", "current", "max"),
	files(Counter, "ns", "cpu.usage.", "total", "system", "user", "percpu"),
	files(Counter, "ticks", "cpu.stat.", "user", "system"),
	files(Counter, "1", "cpu.throttling.", "periods", "throttled.count"),
	files(Counter, "ns", "cpu.throttling.", "throttled.time"),
	files(Gauge, "By", "memory.", "usage.current", "usage.max", "limit.hard", "limit.soft"),
	files(Counter, "1", "memory.", "failcnt"),
	files(Gauge, "By", "memory.", "hierarchical_limit.memory", "hierarchical_limit.memoryswap", "cache", "rss.all",
		"rss.huge", "mapped", "swap"),
	files(Counter, "1", "memory.", "paged.in", "paged.out", "fault.total", "fault.major"),
	files(Gauge, "By", "memory.", "anon.inactive", "anon.active", "file.inactive", "file.active", "unevictable"),
	files(Counter, "ms", "blkio.", "time"),
	files(Counter, "1", "blkio.", "sectors"),
	operations("By", "service.bytes"), operations("1", "service.ios"), operations("ns", "service.time"),
	files(Gauge, "1", "blkio.queued.", "read", "write", "sync", "async"),
	operations("ns", "wait"), operations("1", "merged"),
	operations("By", "throttle.service.bytes"), operations("1", "throttle.service.ios"),
	operations("By", "bfq.service.bytes"), operations("1", "bfq.service.ios"),
)

func operations(unit, name string) []Column {
	return files(Counter, unit, "blkio."+name+".", "read", "write", "sync", "async")
}

// RAdvisorColumns are the columns that rAdvisor writes for a control group of the version, 1 or
// 2, in its order and without the time. A recorder may use any of the names in Head.Columns. On
// version 1 the number of CPU n is the column "cpu.usage.percpu/n".
func RAdvisorColumns(cgroupVersion int) []Column {
	if cgroupVersion == 1 {
		return append([]Column(nil), radvisorV1...)
	}
	return append([]Column(nil), radvisorV2...)
}

// sum is a column that is the sum of others, each times a factor, rounded down.
type sum struct {
	name  string
	terms []term
}

type term struct {
	name   string
	factor float64
}

func same(name, other string) sum { return sum{name, []term{{other, 1}}} }

// toRAdvisor gives rAdvisor's columns from ours, fromRAdvisor ours from rAdvisor's.
var (
	toRAdvisor = []sum{
		{"cpu.stat/usage_usec", []term{{CPUNS, 1e-3}}},
		{"cpu.stat/throttled_usec", []term{{ThrottledNS, 1e-3}}},
		{"memory.stat/pgfault", []term{{"minor_faults", 1}, {MajorFaults, 1}}},
		{"memory.fault.total", []term{{"minor_faults", 1}, {MajorFaults, 1}}},
		same("cpu.stat/nr_periods", "periods"), same("cpu.stat/nr_throttled", "throttled_periods"),
		same("memory.current", MemoryBytes), same("memory.max", MemoryLimitBytes),
		same("memory.stat/pgmajfault", MajorFaults),
		same("io.stat/rbytes", DiskReadBytes), same("io.stat/wbytes", DiskWriteBytes), same("io.stat/rios", "disk_reads"),
		same("io.stat/wios", "disk_writes"), same("io.stat/dbytes", "disk_discard_bytes"),
		same("io.stat/dios", "disk_discards"),
		same("pids.current", "threads"), same("pids.max", "threads_limit"),
		same("cpu.usage.total", CPUNS), same("cpu.throttling.periods", "periods"),
		same("cpu.throttling.throttled.count", "throttled_periods"), same("cpu.throttling.throttled.time", ThrottledNS),
		same("memory.usage.current", MemoryBytes), same("memory.limit.hard", MemoryLimitBytes),
		same("memory.fault.major", MajorFaults),
		same("blkio.throttle.service.bytes.read", DiskReadBytes), same("blkio.throttle.service.bytes.write", DiskWriteBytes),
		same("blkio.throttle.service.ios.read", "disk_reads"), same("blkio.throttle.service.ios.write", "disk_writes"),
	}
	fromRAdvisor = []sum{
		{CPUNS, []term{{"cpu.stat/usage_usec", 1e3}}},
		{ThrottledNS, []term{{"cpu.stat/throttled_usec", 1e3}}},
		{"minor_faults", []term{{"memory.stat/pgfault", 1}, {"memory.stat/pgmajfault", -1}}},
		{"minor_faults", []term{{"memory.fault.total", 1}, {"memory.fault.major", -1}}},
		same("periods", "cpu.stat/nr_periods"), same("throttled_periods", "cpu.stat/nr_throttled"),
		same(MemoryBytes, "memory.current"), same(MemoryLimitBytes, "memory.max"),
		same(MajorFaults, "memory.stat/pgmajfault"),
		same(DiskReadBytes, "io.stat/rbytes"), same(DiskWriteBytes, "io.stat/wbytes"), same("disk_reads", "io.stat/rios"),
		same("disk_writes", "io.stat/wios"), same("disk_discard_bytes", "io.stat/dbytes"),
		same("disk_discards", "io.stat/dios"),
		same("threads", "pids.current"), same("threads_limit", "pids.max"),
		same(CPUNS, "cpu.usage.total"), same("periods", "cpu.throttling.periods"),
		same("throttled_periods", "cpu.throttling.throttled.count"), same(ThrottledNS, "cpu.throttling.throttled.time"),
		same(MemoryBytes, "memory.usage.current"), same(MemoryLimitBytes, "memory.limit.hard"),
		same(MajorFaults, "memory.fault.major"),
		same(DiskReadBytes, "blkio.throttle.service.bytes.read"), same(DiskWriteBytes, "blkio.throttle.service.bytes.write"),
		same("disk_reads", "blkio.throttle.service.ios.read"), same("disk_writes", "blkio.throttle.service.ios.write"),
		{DiskTimeNS, []term{{"blkio.service.time.read", 1}, {"blkio.service.time.write", 1}}},
	}
)
