package disks

import (
	"slices"

	"outsight/internal/model"
)

// maxDevices bounds the devices of a container with counters of their own; further ones are together in one
// without a name.
const maxDevices = 16

// Disks are the sums. As with groups, what became known later than at the second reading stays with the host, and what a
// group did is kept when it is gone. It is for one goroutine.
type Disks struct {
	entries map[uint64]*entry
	totals  map[string]*total
	reading uint64
}

// entry is an entry of the kernel's table at its last reading.
type entry struct {
	last    model.KernelDisk
	owner   string
	reading uint64
	// waits is the first reading of an entry that may be of a container that began after the containers were listed. The
	// next reading shows.
	waits *model.KernelDisk
}

// total is a container. Histograms in it are replaced, never changed: they are in snapshots.
type total struct {
	// devices in order.
	devices []model.DeviceSample
	syncs   *model.SyncCounters
}

// New makes sums of nothing.
func New() *Disks {
	return &Disks{entries: make(map[uint64]*entry), totals: make(map[string]*total)}
}

// Update adds a reading: all entries of the kernel's table. lookup is the container of a control group, nil where it has
// none.
func (d *Disks) Update(read []model.KernelDisk, lookup func(model.CgroupID) *model.Container) {
	d.reading++
	for i := range read {
		d.enter(&read[i], lookup)
	}
	for id, e := range d.entries {
		if e.reading == d.reading {
			continue
		}
		if e.waits != nil {
			d.of(e.owner).gain(e.waits, &e.last)
		}
		delete(d.entries, id)
	}
}

// Base makes a first reading that from which entries count: what they have counted before is nobody's.
func (d *Disks) Base(read []model.KernelDisk) {
	for i := range read {
		d.entries[read[i].Entry] = &entry{last: read[i], owner: model.HostContainerID}
	}
}

func (d *Disks) enter(now *model.KernelDisk, lookup func(model.CgroupID) *model.Container) {
	e := d.entries[now.Entry]
	fresh := e == nil
	if fresh {
		e = &entry{owner: model.HostContainerID}
		d.entries[now.Entry] = e
	}
	if e.owner == model.HostContainerID && now.Group != 0 {
		if c := lookup(now.Group); c != nil {
			e.owner = c.ID
		}
	}
	e.reading = d.reading
	if fresh && e.owner == model.HostContainerID && (now.Group != 0 || now.BlockGroup != 0) {
		first := *now
		e.waits = &first
		return
	}
	d.of(e.owner).gain(now, &e.last)
	e.last, e.waits = *now, nil
}

func (d *Disks) of(owner string) *total {
	t := d.totals[owner]
	if t == nil {
		t = &total{}
		d.totals[owner] = t
	}
	return t
}

// gain adds what an entry of the kernel's table gained.
func (t *total) gain(now, before *model.KernelDisk) {
	if now.Syncs != nil {
		t.addSyncs(now.Syncs, before.Syncs)
		return
	}
	gained := now.Counters.Since(&before.Counters)
	if now.BlockGroup == 0 && !now.Overflow {
		// The device's own flushes do what groups asked for, which is counted already.
		gained.Flush = model.DiskOperations{}
	}
	t.add(now.Device, &gained)
}

func (t *total) addSyncs(now, before *model.SyncCounters) {
	sum := model.SyncCounters{}
	if t.syncs != nil {
		sum = *t.syncs
	}
	if before == nil {
		before = &model.SyncCounters{}
	}
	gained := now.Since(before)
	sum.Add(&gained)
	t.syncs = &sum
}

func (t *total) add(device model.BlockDevice, gained *model.DeviceCounters) {
	compare := func(s model.DeviceSample, d model.BlockDevice) int { return s.Device.Compare(d) }
	at, found := slices.BinarySearchFunc(t.devices, device, compare)
	if !found {
		if *gained == (model.DeviceCounters{}) {
			return
		}
		// The one of devices put together is the first and beyond the bound.
		if device != (model.BlockDevice{}) && len(t.devices) >= maxDevices {
			t.add(model.BlockDevice{}, gained)
			return
		}
		t.devices = slices.Insert(t.devices, at, model.DeviceSample{Device: device})
	}
	t.devices[at].Counters.Add(gained)
}

// Of is what a container did, a copy; nil where it did nothing.
func (d *Disks) Of(id string) ([]model.DeviceSample, *model.SyncCounters) {
	t := d.totals[id]
	if t == nil {
		return nil, nil
	}
	return slices.Clone(t.devices), t.syncs
}

// Operations is a sum that changes with what the container did on any device.
func (d *Disks) Operations(id string) (sum uint64) {
	if t := d.totals[id]; t != nil {
		for i := range t.devices {
			for _, kind := range t.devices[i].Counters.Kinds() {
				sum += kind.Operations
			}
		}
	}
	return sum
}

// Keep forgets containers that are gone and have no entry left. One that has entries and is not among the containers may
// have begun since these were listed.
func (d *Disks) Keep(containers []*model.Container) {
	kept := make(map[string]bool, len(containers))
	for _, c := range containers {
		kept[c.ID] = true
	}
	for _, e := range d.entries {
		kept[e.owner] = true
	}
	for id := range d.totals {
		if !kept[id] {
			delete(d.totals, id)
		}
	}
}
