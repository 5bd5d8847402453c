package pull

import (
	"outsight/internal/frame"
	"outsight/internal/model"
	"outsight/internal/region"
)

// counters are the numbers that only grow of a control group.
type counters struct {
	CPU     model.CPUCounters
	Tasks   model.TaskCounters
	Files   model.FileCounters
	Reclaim model.ReclaimCounters
}

// levels are the figures of a container that its host keeps as a whole.
type levels struct {
	Memory, Kills, Threads, Periods, ThrottledPeriods, ThrottledNS level
	// Pressures are those of CPU, memory and disks: waiting, then stalled. Of the limits 0 is none; Quota is in microcores.
	Pressures                        [3][2]level
	MemoryLimit, Quota, ThreadsLimit level
}

// level is a figure that may not be known.
type level struct {
	N     uint64
	Known bool
}

func (l *level) raise(was level) {
	if l.Known && was.Known {
		l.N = max(l.N, was.N)
	}
}

// pressureOf are a place in levels.Pressures.
func pressureOf(resource, how int) func(*levels) *level {
	return func(l *levels) *level { return &l.Pressures[resource][how] }
}

// The numbers of a control group, of a container and of an edge by the column of the registry. Whichever a host's regions
// have is filled in.
var (
	groupCounts = map[string]func(*counters) *uint64{
		"cpu":                  func(c *counters) *uint64 { return &c.CPU.UsageNS },
		"polling":              func(c *counters) *uint64 { return &c.CPU.PollingNS },
		"voluntary_switches":   func(c *counters) *uint64 { return &c.CPU.Voluntary },
		"involuntary_switches": func(c *counters) *uint64 { return &c.CPU.Involuntary },
		"forks":                func(c *counters) *uint64 { return &c.Tasks.Forks },
		"execs":                func(c *counters) *uint64 { return &c.Tasks.Execs },
		"exits":                func(c *counters) *uint64 { return &c.Tasks.Exits },
		"thread_starts":        func(c *counters) *uint64 { return &c.Tasks.ThreadStarts },
		"vfs_read_bytes":       func(c *counters) *uint64 { return &c.Files.ReadBytes },
		"vfs_write_bytes":      func(c *counters) *uint64 { return &c.Files.WriteBytes },
		"vfs_reads":            func(c *counters) *uint64 { return &c.Files.Reads },
		"vfs_writes":           func(c *counters) *uint64 { return &c.Files.Writes },
		"reclaim_stall_limit":  func(c *counters) *uint64 { return &c.Reclaim.LimitNS },
		"reclaim_stall_host":   func(c *counters) *uint64 { return &c.Reclaim.HostNS },
		"reclaim_stalls_limit": func(c *counters) *uint64 { return &c.Reclaim.LimitStalls },
		"reclaim_stalls_host":  func(c *counters) *uint64 { return &c.Reclaim.HostStalls },
	}
	groupHistograms = map[string]func(*counters) **model.Histogram{
		"run_queue": func(c *counters) **model.Histogram { return &c.CPU.RunQueue },
	}
	containerLevels = map[string]func(*levels) *level{
		"memory_usage":         func(l *levels) *level { return &l.Memory },
		"oom_kills":            func(l *levels) *level { return &l.Kills },
		"threads":              func(l *levels) *level { return &l.Threads },
		"throttle_periods":     func(l *levels) *level { return &l.Periods },
		"throttled_periods":    func(l *levels) *level { return &l.ThrottledPeriods },
		"throttled":            func(l *levels) *level { return &l.ThrottledNS },
		"memory_limit":         func(l *levels) *level { return &l.MemoryLimit },
		"cpu_quota":            func(l *levels) *level { return &l.Quota },
		"threads_limit":        func(l *levels) *level { return &l.ThreadsLimit },
		"pressure_cpu_waiting": pressureOf(0, 0), "pressure_cpu_stalled": pressureOf(0, 1),
		"pressure_memory_waiting": pressureOf(1, 0), "pressure_memory_stalled": pressureOf(1, 1),
		"pressure_io_waiting": pressureOf(2, 0), "pressure_io_stalled": pressureOf(2, 1),
	}
	edgeCounts = map[string]func(*model.EdgeCounters) *uint64{
		"one_way":                 func(c *model.EdgeCounters) *uint64 { return &c.OneWay },
		"connections_opened":      func(c *model.EdgeCounters) *uint64 { return &c.Opens },
		"connections_closed":      func(c *model.EdgeCounters) *uint64 { return &c.Closes },
		"failures_refused":        func(c *model.EdgeCounters) *uint64 { return &c.FailuresRefused },
		"failures_timed_out":      func(c *model.EdgeCounters) *uint64 { return &c.FailuresTimedOut },
		"failures_unreachable":    func(c *model.EdgeCounters) *uint64 { return &c.FailuresUnreachable },
		"retransmits":             func(c *model.EdgeCounters) *uint64 { return &c.Retransmits },
		"aborted":                 func(c *model.EdgeCounters) *uint64 { return &c.Aborts },
		"continued":               func(c *model.EdgeCounters) *uint64 { return &c.Continued },
		"transfers":               func(c *model.EdgeCounters) *uint64 { return &c.Transfers },
		"held":                    func(c *model.EdgeCounters) *uint64 { return &c.Held },
		"pushes":                  func(c *model.EdgeCounters) *uint64 { return &c.Pushes },
		"upgrades":                func(c *model.EdgeCounters) *uint64 { return &c.Upgrades },
		"lost_transactions":       func(c *model.EdgeCounters) *uint64 { return &c.Lost },
		"resets":                  func(c *model.EdgeCounters) *uint64 { return &c.Resets },
		"timed_out":               func(c *model.EdgeCounters) *uint64 { return &c.TimedOut },
		"unseen_bytes":            func(c *model.EdgeCounters) *uint64 { return &c.UnseenBytes },
		"rtt_deviation":           func(c *model.EdgeCounters) *uint64 { return &c.JitterSumNS },
		"window_limited":          func(c *model.EdgeCounters) *uint64 { return &c.WindowLimitedNS },
		"send_limited":            func(c *model.EdgeCounters) *uint64 { return &c.SendLimitedNS },
		"network_reordered":       func(c *model.EdgeCounters) *uint64 { return &c.Packets.Reordered },
		"network_duplicated":      func(c *model.EdgeCounters) *uint64 { return &c.Packets.Duplicated },
		"network_repeated":        func(c *model.EdgeCounters) *uint64 { return &c.Packets.Repeated },
		"network_observed":        func(c *model.EdgeCounters) *uint64 { return &c.Packets.Observed },
		"network_retransmitted":   func(c *model.EdgeCounters) *uint64 { return &c.Packets.Retransmitted },
		"network_out_of_order":    func(c *model.EdgeCounters) *uint64 { return &c.Packets.OutOfOrder },
		"network_delay_variation": func(c *model.EdgeCounters) *uint64 { return &c.Packets.DelayVariationNS },
		"network_unread":          func(c *model.EdgeCounters) *uint64 { return &c.Packets.UnreadNS },
		"network_unread_requests": func(c *model.EdgeCounters) *uint64 { return &c.Packets.UnreadRequests },
	}
	// diskNumbers are by their series, since devices have no columns. A histogram's count is the sum of its times.
	diskNumbers = func() map[string]diskNumber {
		all := map[string]diskNumber{}
		for kind, direction := range model.DiskDirections {
			for metric, of := range map[string]func(*model.DiskOperations) (*uint64, **model.Histogram){
				"container_disk_operations_total":         plainly(func(o *model.DiskOperations) *uint64 { return &o.Operations }),
				"container_disk_io_bytes_total":           plainly(func(o *model.DiskOperations) *uint64 { return &o.Bytes }),
				"container_disk_io_latency_seconds":       timed,
				"container_disk_operation_seconds_total":  plainly(func(o *model.DiskOperations) *uint64 { return &o.TimeNS }),
				"container_disk_queue_seconds_total":      plainly(func(o *model.DiskOperations) *uint64 { return &o.QueueNS }),
				"container_disk_errors_total":             plainly(func(o *model.DiskOperations) *uint64 { return &o.Errors }),
				"container_disk_untimed_operations_total": plainly(func(o *model.DiskOperations) *uint64 { return &o.Untimed }),
			} {
				m := region.Metric{Name: metric, LabelName: model.DeviceLabels[1], LabelValue: direction}
				all[m.Series()] = func(d *model.KernelDisk) (*uint64, **model.Histogram) { return of(d.Counters.Kinds()[kind]) }
			}
		}
		return all
	}()
	syncNumbers = map[string]diskNumber{
		"fsync":     func(d *model.KernelDisk) (*uint64, **model.Histogram) { return timed(&d.Syncs.FSync) },
		"fdatasync": func(d *model.KernelDisk) (*uint64, **model.Histogram) { return timed(&d.Syncs.FDataSync) },
	}
	// edgeRequests and edgeResponses are of a direction: what a client sent is what a server received.
	edgeRequests = map[string]func(*model.EdgeCounters) (client, server *uint64){
		"request_bytes": func(c *model.EdgeCounters) (_, _ *uint64) { return &c.SentBytes, &c.ReceivedBytes },
		"response_bytes": func(c *model.EdgeCounters) (_, _ *uint64) {
			return &c.ReceivedBytes, &c.SentBytes
		},
		"request_packets":  func(c *model.EdgeCounters) (_, _ *uint64) { return &c.SentPackets, &c.ReceivedPackets },
		"response_packets": func(c *model.EdgeCounters) (_, _ *uint64) { return &c.ReceivedPackets, &c.SentPackets },
		"network_request_packets": func(c *model.EdgeCounters) (_, _ *uint64) {
			return &c.Packets.SentPackets, &c.Packets.ReceivedPackets
		},
		"network_response_packets": func(c *model.EdgeCounters) (_, _ *uint64) {
			return &c.Packets.ReceivedPackets, &c.Packets.SentPackets
		},
		"network_request_bytes": func(c *model.EdgeCounters) (_, _ *uint64) {
			return &c.Packets.SentBytes, &c.Packets.ReceivedBytes
		},
		"network_response_bytes": func(c *model.EdgeCounters) (_, _ *uint64) {
			return &c.Packets.ReceivedBytes, &c.Packets.SentBytes
		},
	}
	edgeHistograms = map[string]func(*model.EdgeCounters) **model.Histogram{
		"latency":       func(c *model.EdgeCounters) **model.Histogram { return &c.Latency },
		"first_byte":    func(c *model.EdgeCounters) **model.Histogram { return &c.TimeToFirstByte },
		"rtt":           func(c *model.EdgeCounters) **model.Histogram { return &c.RTT },
		"duration":      func(c *model.EdgeCounters) **model.Histogram { return &c.Duration },
		"network_delay": func(c *model.EdgeCounters) **model.Histogram { return &c.Packets.Delay },
	}
)

// Columns of frames that follow from the others, or from names.
var derivedColumns = map[frame.TableID][]string{
	frame.Hosts:      {"cores"},
	frame.Containers: {"start_time", "fsync", "fdatasync"},
	frame.Edges:      {"transactions", "completeness", "paired", "confidence"},
}

// columns are those of the frames of a host that is read: what its regions do not have is missing in them, which is not 0.
var columns = func() *frame.Projection {
	all := map[frame.TableID][]string{frame.Endpoints: nil, frame.Labelled: nil, frame.Addresses: {}, frame.Listeners: {},
		frame.Translations: {}, frame.Features: {}, frame.Connections: {}, frame.PacketSamples: {}}
	all[frame.Containers], all[frame.Edges] = region.Columns(model.OfContainer), region.Columns(model.OfEdge)
	for table, names := range derivedColumns {
		all[table] = append(all[table], names...)
	}
	return frame.NewProjection(all)
}()

// columnOfContainer and columnOfEdge are the columns of containers and edges by their series, as region.Metric.Series writes them.
var columnOfContainer, columnOfEdge = seriesOf(model.ContainerRows), seriesOf(model.EdgeRows)

func seriesOf[T any](rows []model.Row[T]) map[string]string {
	all := map[string]string{}
	for i := range rows {
		for _, c := range rows[i].Columns {
			m := region.Metric{Name: rows[i].Name, LabelName: c.Label.Name, LabelValue: c.Label.Value}
			all[m.Series()] = c.Name
		}
	}
	return all
}

func (c *counters) fill(of region.Figures) {
	for i := range of {
		f := &of[i]
		column := columnOfContainer[f.Metric.Series()]
		if to := groupCounts[column]; to != nil {
			*to(c) = f.Count
		} else if to := groupHistograms[column]; to != nil {
			*to(c) = f.Histogram
		}
	}
}

func (l *levels) fill(of region.Figures) {
	for i := range of {
		if to := containerLevels[columnOfContainer[of[i].Metric.Series()]]; to != nil {
			*to(l) = level{of[i].Count, true}
		}
	}
}

// fillEdge fills counters of an edge's end in.
func fillEdge(c *model.EdgeCounters, role model.Role, of region.Figures) {
	for i := range of {
		f := &of[i]
		column := columnOfEdge[f.Metric.Series()]
		if to := edgeCounts[column]; to != nil {
			*to(c) = f.Count
		} else if to := edgeHistograms[column]; to != nil {
			*to(c) = f.Histogram
		} else if to := edgeRequests[column]; to != nil {
			client, server := to(c)
			if role == model.RoleServer {
				client = server
			}
			*client = f.Count
		}
	}
	if f := of.Of(region.InFlightSeries); f != nil {
		c.Requests, c.Replies = f.Count+f.Less, f.Less-min(f.Less, c.Aborts)
	}
	c.Failures = c.FailuresRefused + c.FailuresTimedOut + c.FailuresUnreachable
}

// diskNumber is a number of a disk, and the histogram whose sum it is; nil where it is of none.
type diskNumber func(*model.KernelDisk) (*uint64, **model.Histogram)

func plainly(of func(*model.DiskOperations) *uint64) func(*model.DiskOperations) (*uint64, **model.Histogram) {
	return func(o *model.DiskOperations) (*uint64, **model.Histogram) { return of(o), nil }
}

func timed(o *model.DiskOperations) (*uint64, **model.Histogram) { return &o.TimeNS, &o.Latency }

// diskOf is a disk as the kernel's table has it.
func diskOf(of *region.DiskFigures) model.KernelDisk {
	d := model.KernelDisk{Entry: of.Number, Group: of.Group}
	if of.Syncs {
		d.Syncs = &model.SyncCounters{}
	} else {
		d.BlockGroup, d.Device = of.BlockGroup, of.Device
	}
	for i := range of.Figures {
		f := &of.Figures[i]
		series := f.Metric.Series()
		to := diskNumbers[series]
		if of.Syncs {
			to = syncNumbers[columnOfContainer[series]]
		}
		if to == nil {
			continue
		}
		count, histogram := to(&d)
		if *count = f.Count; histogram != nil {
			*histogram = f.Histogram
		}
	}
	return d
}

// endpointOf is an endpoint as the kernel's table has it.
func endpointOf(of *region.EndpointFigures) model.Endpoint {
	e := model.Endpoint{EndpointKey: of.Key}
	if f := of.Figures.Of(region.RequestsSeries); f != nil {
		e.Aside = f.Count
	}
	if f := of.Figures.Of(region.AnsweredSeries); f != nil && f.Histogram != nil {
		e.Latency = f.Histogram
		e.Aside -= min(e.Aside, e.Latency.Count)
	}
	return e
}

// raiseDisk is counters.raise of a disk. Its owner may become known later.
func raiseDisk(d, now *model.KernelDisk) {
	if d.Group == 0 {
		d.Group = now.Group
	}
	if d.Device.Name == "" {
		d.Device.Name = now.Device.Name
	}
	to, from := d.Counters.Kinds(), now.Counters.Kinds()
	if d.Syncs != nil && now.Syncs != nil {
		raised := *d.Syncs // the one before may be in use
		d.Syncs = &raised
		to, from = append(to, &raised.FSync, &raised.FDataSync), append(from, &now.Syncs.FSync, &now.Syncs.FDataSync)
	}
	for i, o := range to {
		numbers := from[i].Plain()
		for k, n := range o.Plain() {
			*n = max(*n, *numbers[k])
		}
		o.Latency = greater(o.Latency, from[i].Latency)
	}
}

// raise makes c the greater of each of c and now: both are readings of what only grows, in whatever order they came.
func (c *counters) raise(now *counters) {
	for _, to := range groupCounts {
		*to(c) = max(*to(c), *to(now))
	}
	for _, to := range groupHistograms {
		*to(c) = greater(*to(c), *to(now))
	}
}

// add adds what was counted between two states.
func (c *counters) add(to, from *counters) {
	for _, of := range groupCounts {
		*of(c) += *of(to) - *of(from)
	}
	for _, of := range groupHistograms {
		if *of(to) == nil {
			continue
		}
		sum := *of(c)
		if sum == nil {
			sum = &model.Histogram{}
		}
		sum = sum.Clone()
		sum.Merge((*of(to)).Since(*of(from)))
		*of(c) = sum
	}
}

func greater(a, b *model.Histogram) *model.Histogram {
	if a == nil || b != nil && b.Count > a.Count {
		return b
	}
	return a
}

// raiseEdge is counters.raise of an edge.
func raiseEdge(c, now *model.EdgeCounters) {
	from := now.Plain()
	for i, to := range c.Plain() {
		*to = max(*to, *from[i])
	}
	histograms := now.Histograms()
	for i, to := range c.Histograms() {
		*to = greater(*to, *histograms[i])
	}
}
