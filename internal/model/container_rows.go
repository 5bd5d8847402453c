package model

import "slices"

// ContainerRows are the metrics of a container, in the order in which they are written.
var ContainerRows = slices.Concat(containerRows, taskRows, containerQuotaRows, containerMemoryRows, containerDiskRows,
	containerNetworkRows, containerPacketDropRows, containerForwardRows, containerProxyRows, containerPowerRows)

var containerRows = []Row[ContainerSample]{
	{Name: "container_info", OTel: "container.info", Kind: Gauge, Graph: true, Labels: []string{"pod_uid"},
		Help: "1 for each container, with what else is known of it as labels",
		Each: func(s *ContainerSample, to *Sink) { to.Add(1, NewLabel("pod_uid", s.Container.PodUID)) }},
	{Name: "container_start_time_seconds", OTel: "container.start_time", Unit: "s", Kind: Gauge, Graph: true,
		Help:    "Time at which the container started, since the Unix epoch",
		Columns: []Column[ContainerSample]{{Name: "start_time", Fold: Least, Value: startTime}}},

	{Name: "container_cpu_usage_seconds_total", OTel: "container.cpu.time", Unit: "s", Kind: Counter,
		Help: "CPU time used, by threads that run at the moment of reading too",
		Columns: []Column[ContainerSample]{{Name: "cpu", Per: Nanoseconds,
			Count: ofCPU(func(c *CPUCounters) uint64 { return c.UsageNS }),
			Shown: []Number{{Key: "cpu_cores", Title: "CPU", Unit: "cores", Group: GroupCPU, Order: 1, Formula: Rate,
				Meaning: "CPUs kept busy, by threads that still run too"}}}}},
	{Name: "container_cpu_polling_seconds_total", OTel: "container.cpu.polling", Unit: "s", Kind: Counter, Graph: true,
		Help: "CPU time of threads that then slept for a time that they chose (nanosleep): part of container_cpu_usage_seconds_total " +
			"that no request woke up, as that of the Go runtime's monitor",
		Columns: []Column[ContainerSample]{{Name: "polling", Per: Nanoseconds,
			Count: ofCPU(func(c *CPUCounters) uint64 { return c.PollingNS })}}},
	{Name: "container_context_switches_total", OTel: "container.context_switches", Unit: "{switch}", Kind: Counter,
		Help: "Context switches away from a thread: voluntary (it went to sleep) or involuntary (it could have run on)",
		Columns: []Column[ContainerSample]{
			{Name: "voluntary_switches", Label: typed("voluntary"),
				Count: ofCPU(func(c *CPUCounters) uint64 { return c.Voluntary }),
				Shown: []Number{{Key: "voluntary_switches", Title: "Voluntary switches", Unit: "/s", Group: GroupCPU,
					Order:   6,
					Formula: Rate}}},
			{Name: "involuntary_switches", Label: typed("involuntary"),
				Count: ofCPU(func(c *CPUCounters) uint64 { return c.Involuntary }),
				Shown: []Number{{Key: "involuntary_switches", Title: "Involuntary switches", Unit: "/s",
					Group: GroupCPU,
					Order: 7, Formula: Rate}}}}},
	{Name: "container_run_queue_latency_seconds", OTel: "container.run_queue.latency", Unit: "s", Kind: HistogramSeries,
		Help: "Time that runnable threads waited for a CPU",
		Columns: []Column[ContainerSample]{{Name: "run_queue", Histogram: runQueue, Shown: []Number{
			{Key: "run_queue_p99", Title: "Run-queue delay p99", Unit: "s", Group: GroupCPU, Order: 2,
				Formula:  QuantileOf,
				Quantile: 0.99, Meaning: "99 % of the times that a runnable thread waited for a CPU were shorter"},
			{Key: "run_queue_p50", Title: "Run-queue delay p50", Unit: "s", Group: GroupCPU, Order: 3,
				Formula:  QuantileOf,
				Quantile: 0.5, Meaning: "Half of the times that a runnable thread waited for a CPU were shorter"}}}}},

	{Name: "container_run_queue_wait_by_seconds_total", OTel: "container.run_queue.wait_by", Unit: "s", Kind: Counter,
		Help: "Time that runnable threads waited for a CPU, by who ran on it meanwhile: by_id and by_name of another " +
			"container, or by_name alone: own (other threads of the same container), idle (nobody: the CPU had to wake up), " +
			"quota (the container's own CPU quota was used up), migrated (on a CPU that the thread was moved away from) or " +
			"other (not distinguished)",
		Labels: []string{"by_id", "by_name"}, Each: waitBy},
	{Name: "container_preemptions_by_total", OTel: "container.preemptions_by", Unit: "{preemption}", Kind: Counter,
		Help: "Times that a thread that could have run on lost its CPU, by who got it: labels as of the waits, without " +
			"idle and migrated",
		Labels: []string{"by_id", "by_name"}, Each: preemptionsBy},
}

var containerQuotaRows = []Row[ContainerSample]{
	{Name: "container_cpu_quota_cores", OTel: "container.cpu.quota", Unit: "{cpu}", Kind: Gauge,
		Help: "CPU quota over its period, in cores; 0 where there is none",
		Columns: []Column[ContainerSample]{{Name: "cpu_quota", Value: quotaCores,
			Shown: []Number{{Key: "cpu_quota_cores", Title: "CPU quota", Unit: "cores", Group: GroupCPU, Order: 10,
				Formula: Limit,
				Meaning: "CPU quota over its period"}}}}},
	{Name: "container_cpu_cfs_periods_total", OTel: "container.cpu.cfs.periods", Unit: "{period}", Kind: Counter,
		Graph: true,
		Help:  "Periods of the CPU quota in which the container was runnable",
		Columns: []Column[ContainerSample]{{Name: "throttle_periods", File: true,
			Count: ofThrottle(func(t *ThrottleCounters) uint64 { return t.Periods })}}},
	{Name: "container_cpu_cfs_throttled_periods_total", OTel: "container.cpu.cfs.throttled_periods", Unit: "{period}",
		Kind: Counter,
		Help: "Periods of the CPU quota in which the container was held back",
		Columns: []Column[ContainerSample]{{Name: "throttled_periods", File: true,
			Count: ofThrottle(func(t *ThrottleCounters) uint64 { return t.ThrottledPeriods }),
			Shown: []Number{{Key: "throttled_share", Title: "Throttled periods", Unit: "ratio", Group: GroupCPU,
				Order:   4,
				Formula: Share, Of: []string{"throttled_periods", "throttle_periods"},
				Meaning: "Share of the quota’s periods in which the container was held back"}}}}},
	{Name: "container_cpu_cfs_throttled_seconds_total", OTel: "container.cpu.cfs.throttled", Unit: "s", Kind: Counter,
		Help: "Time for which the container was held back by its CPU quota",
		Columns: []Column[ContainerSample]{{Name: "throttled", File: true, Per: Nanoseconds,
			Count: ofThrottle(func(t *ThrottleCounters) uint64 { return t.ThrottledNS }),
			Shown: []Number{{Key: "throttled_seconds", Title: "Throttled time", Unit: "cores", Group: GroupCPU,
				Order:   5,
				Formula: Rate, Meaning: "Time per second for which the CPU quota held the container back"}}}}},
}

// in makes a reader of counts from one of a group of them, which a sample may lack.
func in[G any](group func(*ContainerSample) *G) func(func(*G) uint64) func(*ContainerSample) (uint64, bool) {
	return func(read func(*G) uint64) func(*ContainerSample) (uint64, bool) {
		return func(s *ContainerSample) (uint64, bool) {
			if g := group(s); g != nil {
				return read(g), true
			}
			return 0, false
		}
	}
}

var (
	ofCPU      = in(func(s *ContainerSample) *CPUCounters { return s.CPU })
	ofThrottle = in(func(s *ContainerSample) *ThrottleCounters { return s.Throttle })
)

func startTime(s *ContainerSample) (float64, bool) {
	started := s.Container.Started
	return float64(started.UnixMilli()) / 1e3, !started.IsZero()
}

func runQueue(s *ContainerSample) (*Histogram, bool) {
	if s.CPU == nil {
		return nil, false
	}
	return s.CPU.RunQueue, true
}

func quotaCores(s *ContainerSample) (float64, bool) {
	if s.Throttle == nil {
		return 0, false
	}
	return s.Throttle.QuotaCores, true
}

// Values of the label by_name that are no container's name: other threads of the same container, nobody (the CPU had to
// wake up), its own CPU quota, whoever was on a CPU that the thread was moved away from, and all that are not
// distinguished.
const (
	ByOwn      = "own"
	ByIdle     = "idle"
	ByQuota    = "quota"
	ByMigrated = "migrated"
	ByOther    = "other"
)

func waitBy(s *ContainerSample, to *Sink) {
	c := s.Contention
	if c == nil {
		return
	}
	for i := range c.By {
		to.Add(seconds(c.By[i].WaitNS), by(&c.By[i])...)
	}
	byNobody(to, ByOwn, seconds(c.OwnNS))
	byNobody(to, ByIdle, seconds(c.IdleNS))
	byNobody(to, ByQuota, seconds(c.QuotaNS))
	byNobody(to, ByMigrated, seconds(c.MigratedNS))
	byNobody(to, ByOther, seconds(c.OtherNS))
}

func preemptionsBy(s *ContainerSample, to *Sink) {
	c := s.Contention
	if c == nil {
		return
	}
	for i := range c.By {
		to.Add(float64(c.By[i].Preemptions), by(&c.By[i])...)
	}
	byNobody(to, ByOwn, float64(c.OwnPreemptions))
	byNobody(to, ByQuota, float64(c.QuotaStops))
	byNobody(to, ByOther, float64(c.OtherPreemptions))
}

func by(c *Contender) []Label {
	return []Label{NewLabel("by_id", c.ID), NewLabel("by_name", c.Name)}
}

// byNobody adds what is no container's; most containers never have most of these.
func byNobody(to *Sink, name string, value float64) {
	if value > 0 {
		to.Add(value, NewLabel("by_name", name))
	}
}
