package model

import "fmt"

var containerDiskRows = []Row[ContainerSample]{
	{Name: "container_fs_reads_bytes_total", OTel: "container.disk.io", Unit: "By", Kind: Counter,
		Help: "Bytes read from block devices, as the control group's files report",
		Columns: []Column[ContainerSample]{{Name: "disk_read_bytes", File: true,
			Count: ofDisk(func(d *DiskCounters) uint64 { return d.ReadBytes }),
			Shown: []Number{{Key: "disk_read_bytes", Title: "Disk read", Unit: "B/s", Group: GroupDisk,
				Formula: Rate}}}}},
	{Name: "container_fs_writes_bytes_total", OTel: "container.disk.io", Unit: "By", Kind: Counter,
		Help: "Bytes written to block devices, as the control group's files report",
		Columns: []Column[ContainerSample]{{Name: "disk_write_bytes", File: true,
			Count: ofDisk(func(d *DiskCounters) uint64 { return d.WriteBytes }),
			Shown: []Number{{Key: "disk_write_bytes", Title: "Disk write", Unit: "B/s", Group: GroupDisk,
				Formula: Rate}}}}},
	{Name: "container_fs_reads_total", OTel: "container.disk.operations", Unit: "{operation}", Kind: Counter,
		Help: "Reads from block devices, as the control group's files report",
		Columns: []Column[ContainerSample]{{Name: "disk_reads", File: true,
			Count: ofDisk(func(d *DiskCounters) uint64 { return d.Reads }),
			Shown: []Number{{Key: "disk_reads", Title: "Disk reads", Unit: "/s", Group: GroupDisk, Formula: Rate}}}}},
	{Name: "container_fs_writes_total", OTel: "container.disk.operations", Unit: "{operation}", Kind: Counter,
		Help: "Writes to block devices, as the control group's files report",
		Columns: []Column[ContainerSample]{{Name: "disk_writes", File: true,
			Count: ofDisk(func(d *DiskCounters) uint64 { return d.Writes }),
			Shown: []Number{{Key: "disk_writes", Title: "Disk writes", Unit: "/s", Group: GroupDisk, Formula: Rate}}}}},

	deviceRow("container_disk_io_bytes_total", "container.disk.io", "By",
		"Bytes that requests to a block device have moved, as kernel programs counted them",
		moving, func(o *DiskOperations) float64 { return float64(o.Bytes) }),
	deviceRow("container_disk_operations_total", "container.disk.operations", "{operation}",
		"Requests to a block device: read, write, discard, or flush alone; what the kernel merged is one",
		always, func(o *DiskOperations) float64 { return float64(o.Operations) }),
	{Name: "container_disk_io_latency_seconds", OTel: "container.disk.operation.duration", Unit: "s",
		Kind:   HistogramSeries,
		Help:   "Time from the issue of a request to a block device to its completion",
		Labels: DeviceLabels, Each: deviceLatency},
	deviceRow("container_disk_operation_seconds_total", "container.disk.operation_time", "s",
		"Time from the issue of requests to a block device to their completion, summed",
		always, func(o *DiskOperations) float64 { return seconds(o.TimeNS) }),
	deviceRow("container_disk_queue_seconds_total", "container.disk.queue_time", "s",
		"Time from the making of requests to a block device to their issue, summed",
		always, func(o *DiskOperations) float64 { return seconds(o.QueueNS) }),
	deviceRow("container_disk_errors_total", "container.disk.errors", "{operation}",
		"Requests to a block device that failed",
		always, func(o *DiskOperations) float64 { return float64(o.Errors) }),
	deviceRow("container_disk_untimed_operations_total", "container.disk.untimed_operations", "{operation}",
		"Requests to a block device whose issue was not seen, and which are in no latency; absent where there were none",
		untimed, func(o *DiskOperations) float64 { return float64(o.Untimed) }),

	{Name: "container_vfs_io_bytes_total", OTel: "container.vfs.io", Unit: "By", Kind: Counter,
		Help: "Bytes that read, write and their kin have moved, also out of the page cache, and of pipes and sockets",
		Columns: []Column[ContainerSample]{
			{Name: "vfs_read_bytes", Label: Label{"direction", "read"},
				Count: ofFiles(func(f *FileCounters) uint64 { return f.ReadBytes })},
			{Name: "vfs_write_bytes", Label: Label{"direction", "write"},
				Count: ofFiles(func(f *FileCounters) uint64 { return f.WriteBytes })}}},
	{Name: "container_vfs_operations_total", OTel: "container.vfs.operations", Unit: "{operation}", Kind: Counter,
		Help: "Calls of read, write and their kin",
		Columns: []Column[ContainerSample]{
			{Name: "vfs_reads", Label: Label{"direction", "read"},
				Count: ofFiles(func(f *FileCounters) uint64 { return f.Reads })},
			{Name: "vfs_writes", Label: Label{"direction", "write"},
				Count: ofFiles(func(f *FileCounters) uint64 { return f.Writes })}}},
	{Name: "container_fsync_duration_seconds", OTel: "container.fsync.duration", Unit: "s", Kind: HistogramSeries,
		Help: "Time in which a file system wrote a file to the disk because a program asked for it: fdatasync, or fsync and " +
			"the like",
		Columns: []Column[ContainerSample]{
			{Name: "fsync", Label: typed("fsync"),
				Histogram: ofSyncs(func(s *SyncCounters) *Histogram { return s.FSync.Latency })},
			{Name: "fdatasync", Label: typed("fdatasync"),
				Histogram: ofSyncs(func(s *SyncCounters) *Histogram { return s.FDataSync.Latency })}}},
}

var (
	ofDisk  = in(func(s *ContainerSample) *DiskCounters { return s.Disk })
	ofFiles = in(func(s *ContainerSample) *FileCounters { return s.Files })
)

func ofSyncs(read func(*SyncCounters) *Histogram) func(*ContainerSample) (*Histogram, bool) {
	return func(s *ContainerSample) (*Histogram, bool) {
		if s.Syncs == nil {
			return nil, false
		}
		return read(s.Syncs), true
	}
}

// DeviceLabels are those of series that are of a device.
var DeviceLabels = []string{"device", "direction"}

// DiskDirections are the kinds of DeviceCounters, as the label has them.
var DiskDirections = [...]string{"read", "write", "discard", "flush"}

// Label is what the label of series says of a device.
func (d BlockDevice) Label() string {
	switch {
	case d.Name != "":
		return d.Name
	case d == BlockDevice{}:
		return "others"
	}
	return fmt.Sprintf("%d:%d", d.Major, d.Minor)
}

// What is worth a series: a flush moves no bytes, and untimed requests are rare.
func always(*DiskOperations) bool    { return true }
func moving(o *DiskOperations) bool  { return o.Bytes != 0 }
func untimed(o *DiskOperations) bool { return o.Untimed != 0 }

// deviceRow is a number of each kind of operation that there was, on each device, where it is worth a series.
func deviceRow(name, otel, unit, help string, wanted func(*DiskOperations) bool,
	read func(*DiskOperations) float64) Row[ContainerSample] {
	return Row[ContainerSample]{Name: name, OTel: otel, Unit: unit, Kind: Counter, Help: help,
		Labels: DeviceLabels,
		Each: func(s *ContainerSample, to *Sink) {
			for i := range s.Devices {
				d := &s.Devices[i]
				for kind, o := range d.Counters.Kinds() {
					if (o.Operations != 0 || o.Bytes != 0) && wanted(o) {
						to.Add(read(o), NewLabel("device", d.Device.Label()), NewLabel("direction", DiskDirections[kind]))
					}
				}
			}
		}}
}

func deviceLatency(s *ContainerSample, to *Sink) {
	for i := range s.Devices {
		d := &s.Devices[i]
		for kind, o := range d.Counters.Kinds() {
			to.AddHistogram(o.Latency, NewLabel("device", d.Device.Label()), NewLabel("direction", DiskDirections[kind]))
		}
	}
}
