package disks

import (
	"testing"
	"time"

	"outsight/internal/model"
)

var (
	web  = &model.Container{ID: "web"}
	sda  = model.BlockDevice{Major: 8, Name: "sda"}
	dm   = model.BlockDevice{Major: 253, Name: "dm-0"}
	none = model.BlockDevice{}
)

// ownersOf is a registry that knows group 2.
func ownersOf(id model.CgroupID) *model.Container {
	if id == 2 {
		return web
	}
	return nil
}

func reads(n uint64) model.DeviceCounters {
	return model.DeviceCounters{Read: model.DiskOperations{Operations: n, Bytes: 4096 * n,
		TimeNS:  n * uint64(time.Millisecond),
		Latency: &model.Histogram{Count: n, SumNS: n * uint64(time.Millisecond), Offset: -300, Buckets: []uint64{n}}}}
}

func checkReads(t *testing.T, d *Disks, id string, device model.BlockDevice, want uint64) {
	t.Helper()
	devices, _ := d.Of(id)
	var got model.DiskOperations
	for _, s := range devices {
		if s.Device.Compare(device) == 0 {
			got = s.Counters.Read
		}
	}
	if got.Operations != want || got.Bytes != 4096*want ||
		(want != 0 && (got.Latency == nil || got.Latency.Count != want)) {
		t.Errorf("%s on %s: %+v, want %d reads", id, device.Name, got, want)
	}
}

func TestDisksSumTheGroupsOfAContainer(t *testing.T) {
	d := New()
	d.Update([]model.KernelDisk{
		{Entry: 2, Group: 2, BlockGroup: 20, Device: sda, Counters: reads(3)},
		{Entry: 3, Group: 2, BlockGroup: 21, Device: sda, Counters: reads(4)},
		{Entry: 4, Group: 2, BlockGroup: 21, Device: dm, Counters: reads(5)},
		{Entry: 5, Group: 9, BlockGroup: 22, Device: sda, Counters: reads(6)},
	}, ownersOf)
	checkReads(t, d, "web", sda, 7)
	checkReads(t, d, "web", dm, 5)
	checkReads(t, d, model.HostContainerID, sda, 0) // it may yet be known
	before, _ := d.Of("web")
	// One group is gone; another has the same slot of the kernel's table.
	d.Update([]model.KernelDisk{
		{Entry: 2, Group: 2, BlockGroup: 20, Device: sda, Counters: reads(10)},
		{Entry: 1<<32 | 3, Group: 2, BlockGroup: 23, Device: sda, Counters: reads(1)},
	}, ownersOf)
	checkReads(t, d, "web", sda, 15)
	checkReads(t, d, "web", dm, 5)
	checkReads(t, d, model.HostContainerID, sda, 6) // it was gone before it was known
	if n := before[0].Counters.Read; n.Operations != 7 || n.Latency.Count != 7 {
		t.Errorf("what was handed out has changed: %+v", n)
	}
	if len(d.entries) != 2 {
		t.Errorf("%d entries are kept, want 2", len(d.entries))
	}
	d.Keep([]*model.Container{web})
	checkReads(t, d, model.HostContainerID, sda, 0)
	checkReads(t, d, "web", sda, 15)
}

// TestDisksThatAreKnownLate: what is known at the second reading has all of it, else the host has what there was up to
// then.
func TestDisksThatAreKnownLate(t *testing.T) {
	type step struct {
		group         model.CgroupID
		count         uint64
		ofHost, ofWeb uint64
	}
	f := func(steps ...step) {
		t.Helper()
		d := New()
		for _, step := range steps {
			d.Update([]model.KernelDisk{{Entry: 2, Group: step.group, BlockGroup: 20, Device: sda, Counters: reads(step.count)}},
				ownersOf)
			checkReads(t, d, model.HostContainerID, sda, step.ofHost)
			checkReads(t, d, "web", sda, step.ofWeb)
		}
	}
	f(step{group: 0, count: 2}, step{group: 2, count: 5, ofWeb: 5}, step{group: 0, count: 6, ofWeb: 6})
	f(step{group: 9, count: 2}, step{group: 2, count: 2, ofWeb: 2})
	f(step{group: 0, count: 2}, step{group: 0, count: 4, ofHost: 4}, step{group: 2, count: 7, ofHost: 4, ofWeb: 3})
}

// A container that begins after a reading has listed the containers, and before it reads the disks, has what it did by
// then; it is forgotten when it is gone and the kernel has no entry of it.
func TestDisksOfAContainerThatIsListedLater(t *testing.T) {
	d := New()
	read := []model.KernelDisk{{Entry: 2, Group: 2, BlockGroup: 20, Device: sda, Counters: reads(5)}}
	d.Update(read, ownersOf)
	d.Keep(nil)
	d.Update(read, ownersOf)
	d.Keep([]*model.Container{web})
	checkReads(t, d, "web", sda, 5)
	d.Update(nil, ownersOf)
	d.Keep(nil)
	if len(d.totals) != 0 {
		t.Errorf("%d containers are kept, want none", len(d.totals))
	}
}

func TestDevicesOfAContainerAreBounded(t *testing.T) {
	d := New()
	var all []model.KernelDisk
	for i := range uint32(maxDevices + 5) {
		all = append(all, model.KernelDisk{Entry: uint64(i), Group: 2, BlockGroup: 20,
			Device: model.BlockDevice{Major: 7, Minor: i}, Counters: reads(1)})
	}
	d.Update(all, ownersOf)
	checkReads(t, d, "web", none, 5)
	if devices, _ := d.Of("web"); len(devices) != maxDevices+1 {
		t.Errorf("%d devices", len(devices))
	}
}

func TestDevicesOwnFlushesAreNobodys(t *testing.T) {
	d := New()
	flushes := model.DeviceCounters{Flush: model.DiskOperations{Operations: 3}}
	syncs := &model.SyncCounters{FSync: model.DiskOperations{Operations: 2}}
	d.Update([]model.KernelDisk{
		{Entry: 2, BlockGroup: 0, Device: sda, Counters: flushes},
		{Entry: 3, Group: 2, BlockGroup: 20, Device: sda, Counters: flushes},
		{Entry: 4, Group: 2, Syncs: syncs},
	}, ownersOf)
	if devices, _ := d.Of(model.HostContainerID); len(devices) != 0 {
		t.Errorf("the host has %+v", devices)
	}
	devices, got := d.Of("web")
	if len(devices) != 1 || devices[0].Counters.Flush.Operations != 3 || got == nil || got.FSync.Operations != 2 {
		t.Errorf("%+v, %+v", devices, got)
	}
	syncs = &model.SyncCounters{FSync: model.DiskOperations{Operations: 7}}
	d.Update([]model.KernelDisk{{Entry: 4, Group: 2, Syncs: syncs}}, ownersOf)
	if _, later := d.Of("web"); later.FSync.Operations != 7 || got.FSync.Operations != 2 {
		t.Errorf("%+v, and before %+v", later, got)
	}
}
