package model

import "cmp"

// BlockDevice is a disk as the kernel numbers and names it ("sda", "dm-0", "loop3"); partitions are
// their disk. Its zero value stands for devices that were put together.
type BlockDevice struct {
	Major, Minor uint32
	Name         string
}

// Compare orders devices by their numbers.
func (d BlockDevice) Compare(other BlockDevice) int {
	return cmp.Or(cmp.Compare(d.Major, other.Major), cmp.Compare(d.Minor, other.Minor))
}

// DiskOperations are cumulative counters of one kind of operation.
type DiskOperations struct {
	Operations, Bytes uint64
	// TimeNS is the time from the issue of requests to the device to their completion, summed;
	// QueueNS the time from their making to their issue.
	TimeNS, QueueNS uint64
	// Errors counts operations that failed, Untimed those whose issue was not seen: their times
	// are not in the others.
	Errors, Untimed uint64
	// Latency is the distribution of TimeNS; nil for kinds that have none.
	Latency *Histogram
}

// DeviceCounters are requests to a block device. What the kernel merges into one request is one
// operation.
type DeviceCounters struct {
	Read, Write, Discard DiskOperations
	// Flush counts requests for a flush of the device's cache that carry no data.
	Flush DiskOperations
}

// Kinds are the four kinds of operations.
func (c *DeviceCounters) Kinds() []*DiskOperations {
	return []*DiskOperations{&c.Read, &c.Write, &c.Discard, &c.Flush}
}

// Add adds what gained counted to c. Histograms of c are replaced, never changed, so that they may
// be shared.
func (c *DeviceCounters) Add(gained *DeviceCounters) {
	from := gained.Kinds()
	for i, to := range c.Kinds() {
		to.Add(from[i])
	}
}

// Since is what c gained after before, an earlier state of the same counters.
func (c *DeviceCounters) Since(before *DeviceCounters) DeviceCounters {
	gained := *c
	from := before.Kinds()
	for i, to := range gained.Kinds() {
		*to = to.Since(from[i])
	}
	return gained
}

// SyncCounters are synchronisations of files with the disk, timed from the file system's beginning to
// its end. FDataSync are those that need not write what only concerns the file's description
// (fdatasync, O_DSYNC), FSync all others (fsync, O_SYNC, msync).
type SyncCounters struct{ FSync, FDataSync DiskOperations }

// Add adds what gained counted to c; see DeviceCounters.Add.
func (c *SyncCounters) Add(gained *SyncCounters) {
	c.FSync.Add(&gained.FSync)
	c.FDataSync.Add(&gained.FDataSync)
}

// Since is what c gained after before, an earlier state of the same counters.
func (c *SyncCounters) Since(before *SyncCounters) SyncCounters {
	return SyncCounters{c.FSync.Since(&before.FSync), c.FDataSync.Since(&before.FDataSync)}
}

// Plain are the numbers without the histogram.
func (o *DiskOperations) Plain() []*uint64 {
	return []*uint64{&o.Operations, &o.Bytes, &o.TimeNS, &o.QueueNS, &o.Errors, &o.Untimed}
}

// Add adds what gained counted to o; see DeviceCounters.Add.
func (o *DiskOperations) Add(gained *DiskOperations) {
	from := gained.Plain()
	for i, to := range o.Plain() {
		*to += *from[i]
	}
	switch h := gained.Latency; {
	case h == nil:
	case o.Latency == nil:
		o.Latency = h
	case h.Count != 0:
		sum := o.Latency.Clone()
		sum.Merge(h)
		o.Latency = sum
	}
}

// Since is what o gained after before, an earlier state of the same counters.
func (o *DiskOperations) Since(before *DiskOperations) DiskOperations {
	gained := *o
	from := before.Plain()
	for i, to := range gained.Plain() {
		*to -= *from[i]
	}
	if o.Latency != nil && before.Latency != nil {
		if o.Latency == before.Latency {
			gained.Latency = nil
		} else {
			gained.Latency = o.Latency.Since(before.Latency)
		}
	}
	return gained
}

// KernelDisk is what the kernel counted of one control group on one device.
type KernelDisk struct {
	// Entry distinguishes entries, also those that follow each other at one index of the table. The
	// counters of an entry only grow.
	Entry uint64
	// Group in the hierarchy of CgroupID, 0 where it is not known: the root of another hierarchy, or
	// what found no room in the table.
	Group CgroupID
	// BlockGroup is its id in the hierarchy that accounts block I/O; 0 for requests that are
	// nobody's (the device's own flushes).
	BlockGroup uint64
	// Overflow marks the entries that collect what found no room.
	Overflow bool
	Device   BlockDevice
	Counters DeviceCounters
	// Syncs of the group's files; nil unless the entry is of those alone, without a device.
	Syncs *SyncCounters
}

// DeviceSample is what a container did on one device.
type DeviceSample struct {
	Device   BlockDevice
	Counters DeviceCounters
}

// SlotDisk is what a control group did on all devices: what the kernel has at hand at any moment.
type SlotDisk struct {
	ReadBytes, WriteBytes uint64
	Reads, Writes         uint64
	// ReadNS and WriteNS are the time from issue to completion, QueueNS that before the issue.
	ReadNS, WriteNS, QueueNS uint64
	Flushes                  uint64
}

// FileCounters are what a group's threads read and wrote by system calls (read and write and their kin, sendfile,
// copy_file_range), from and to whatever a descriptor can be: files, also out of the page cache, pipes, terminals, and
// sockets where they are read like files. What goes through memory maps or io_uring is not in it. A thread counts for
// the group that it is in at the reading.
type FileCounters struct {
	ReadBytes, WriteBytes uint64
	// Reads and Writes are calls.
	Reads, Writes uint64
}

// Plain are all the numbers.
func (c *FileCounters) Plain() []*uint64 {
	return []*uint64{&c.ReadBytes, &c.WriteBytes, &c.Reads, &c.Writes}
}
