package graph

import "outsight/internal/model"

// change is what happened to one thing in the window: increases of its counters and the last
// values of its levels, by Field, and how long it was observed.
type change struct {
	values
	latency *model.FloatHistogram
	// firstByte, rtt and duration are of edges alone.
	firstByte, rtt, duration *model.FloatHistogram
	seconds                  float64
}

func (c *change) rate(f Field) *float64 {
	if !c.has(f) {
		return nil
	}
	return per(c.of(f), c.seconds)
}

func (c *change) value(fields ...Field) *float64 {
	sum, found := 0.0, false
	for _, f := range fields {
		if c.has(f) {
			sum, found = sum+c.of(f), true
		}
	}
	if !found {
		return nil
	}
	return &sum
}

// per is v per second, nil where no time has passed.
func per(v, seconds float64) *float64 {
	if seconds <= 0 {
		return nil
	}
	v /= seconds
	return &v
}

func usage(c *change) *Usage {
	u := &Usage{
		CPUCores:            c.rate(CPUSeconds),
		VoluntarySwitches:   c.rate(VoluntarySwitches),
		InvoluntarySwitches: c.rate(InvoluntarySwitches),
		Threads:             c.value(Threads),
		BusyThreads:         c.value(BusyThreads),
		Forks:               c.rate(Forks), Execs: c.rate(Execs), Exits: c.rate(Exits),
		ThrottledSeconds: c.rate(ThrottledSeconds),
		MemoryBytes:      c.value(MemoryUsage), WorkingSetBytes: c.value(MemoryWorkingSet),
		RSSBytes: c.value(MemoryRSS), CacheBytes: c.value(MemoryCache),
		MinorPageFaults: c.rate(MinorFaults), MajorPageFaults: c.rate(MajorFaults),
		OOMKills:      c.value(OOMKills),
		DiskReadBytes: c.rate(DiskReadBytes), DiskWriteBytes: c.rate(DiskWriteBytes),
		DiskReads: c.rate(DiskReads), DiskWrites: c.rate(DiskWrites),
		NetworkReceiveBytes: c.rate(ReceiveBytes), NetworkTransmitBytes: c.rate(TransmitBytes),
		ReceivePackets: c.rate(ReceivePackets), TransmitPackets: c.rate(TransmitPackets),
		NetworkErrors:  c.value(ReceiveErrors, TransmitErrors),
		NetworkDropped: c.value(ReceiveDropped, TransmitDropped),
		ZeroWindows:    c.value(ZeroWindows), ListenOverflows: c.value(ListenOverflows),
		RunQueueP50: quantile(c.latency, 0.5), RunQueueP99: quantile(c.latency, 0.99),
	}
	if quota := c.value(CPUQuota); quota != nil && *quota > 0 {
		u.CPUQuotaCores = quota
	}
	if limit := c.value(MemoryLimit); limit != nil && *limit > 0 {
		u.MemoryLimitBytes = limit
	}
	if periods := c.value(ThrottlePeriods); periods != nil && *periods > 0 {
		u.ThrottledShare = per(c.of(ThrottledPeriods), *periods)
	}
	return u
}
