package agent

import (
	"slices"

	"outsight/internal/model"
)

// maxDevices bounds the devices of a container with counters of their own; further ones are together in one
// without a name.
const maxDevices = 16

// disks sums what control groups did on devices to what containers did. As with groups, what became known
// later than at the second reading stays with the host, and what a group did is kept when it is gone.
type disks struct {
	entries map[uint64]*diskEntry
	totals  map[string]*diskTotal
	reading uint64
}

// diskEntry is an entry of the kernel's table at its last reading.
type diskEntry struct {
	last    model.KernelDisk
	owner   string
	reading uint64
	// waits is the first reading of an entry that may be of a container that began after the containers were listed. The
	// next reading shows.
	waits *model.KernelDisk
}

// diskTotal is a container. Histograms in it are replaced, never changed: they are in snapshots.
type diskTotal struct {
	// devices in order.
	devices []model.DeviceSample
	syncs   *model.SyncCounters
}

func newDisks() *disks {
	return &disks{entries: make(map[uint64]*diskEntry), totals: make(map[string]*diskTotal)}
}

// update adds a reading.
func (d *disks) update(read []model.KernelDisk, lookup func(model.CgroupID) *model.Container) {
	d.reading++
	for i := range read {
		d.enter(&read[i], lookup)
	}
	for id, e := range d.entries {
		if e.reading == d.reading {
			continue
		}
		if e.waits != nil {
			d.total(e.owner).gain(e.waits, &e.last)
		}
		delete(d.entries, id)
	}
}

func (d *disks) enter(now *model.KernelDisk, lookup func(model.CgroupID) *model.Container) {
	e := d.entries[now.Entry]
	fresh := e == nil
	if fresh {
		e = &diskEntry{owner: model.HostContainerID}
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
	d.total(e.owner).gain(now, &e.last)
	e.last, e.waits = *now, nil
}

func (d *disks) total(owner string) *diskTotal {
	t := d.totals[owner]
	if t == nil {
		t = &diskTotal{}
		d.totals[owner] = t
	}
	return t
}

// gain adds what an entry of the kernel's table gained.
func (t *diskTotal) gain(now, before *model.KernelDisk) {
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

func (t *diskTotal) addSyncs(now, before *model.SyncCounters) {
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

func (t *diskTotal) add(device model.BlockDevice, gained *model.DeviceCounters) {
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

// of is what a container did, a copy; nil where it did nothing.
func (d *disks) of(id string) ([]model.DeviceSample, *model.SyncCounters) {
	t := d.totals[id]
	if t == nil {
		return nil, nil
	}
	return slices.Clone(t.devices), t.syncs
}

// keep forgets containers that are gone and have no entry left. One that has entries and is not among the containers may
// have begun since these were listed.
func (d *disks) keep(containers []*model.Container) {
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
