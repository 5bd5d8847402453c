package block

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"

	"outsight/internal/kernel/host"
	"outsight/internal/model"
)

// The bounds of Options where they are 0.
const (
	DefaultMaxDisks    = 512
	DefaultMaxRequests = 8192
)

const (
	diskSyncs       = int(diskDiskIndexDISK_INDEX_SYNCS)
	diskFirst       = int(diskDiskIndexDISK_INDEX_FIRST)
	diskHistograms  = 2
	diskOfSyncs     = ^uint64(0)
	diskKinds       = int(diskDiskOperationDISK_OPERATIONS)
	diskQuietBefore = time.Minute
)

const diskRemedy = "Linux 5.12 or later with BTF and CONFIG_BLK_CGROUP"

// diskHooks in the order in which they are attached: what is done before an issue was seen is counted,
// without its latency.
var diskHooks = []host.Hook{
	host.NewHook(diskProgBlockRqComplete, "tp_btf/block_rq_complete",
		"disk: bytes and operations per container and device", false, diskRemedy),
	host.NewHook(diskProgBlockRqIssue, "tp_btf/block_rq_issue", "disk: latency and queue time per container and device",
		false, diskRemedy),
	host.NewHook(diskProgSyncExit, "tp_btf/ext4_sync_file_exit", "disk: duration of fsync per container", false,
		"files on ext4, and Linux 5.12 or later with BTF"),
	host.NewHook(diskProgSyncEnter, "tp_btf/ext4_sync_file_enter", "disk: duration of fsync per container", false,
		"files on ext4, and Linux 5.12 or later with BTF"),
}

// bioHooks are for devices without requests: each costs every bio of every device a little.
var bioHooks = []host.Hook{
	host.NewHook(diskProgBlockBioComplete, "tp_btf/block_bio_complete",
		"disk: devices without requests (device mapper, md, zram)", false, diskRemedy),
	host.NewHook(diskProgBlockBioQueue, "tp_btf/block_bio_queue",
		"disk: devices without requests (device mapper, md, zram)", false, diskRemedy),
}

// hasBioDevice tells whether there is a device without requests that can hold anything, in sysfs' list of disks.
func hasBioDevice(disks string) bool {
	sizes, _ := filepath.Glob(filepath.Join(disks, "*", "size"))
	return slices.ContainsFunc(sizes, func(size string) bool {
		text, err := os.ReadFile(size)
		if err != nil || strings.TrimSpace(string(text)) == "0" {
			return false
		}
		_, err = os.Stat(filepath.Join(filepath.Dir(size), "mq"))
		return errors.Is(err, os.ErrNotExist)
	})
}

// attachBioHooks counts bios where there is a device for it.
func (p *Block) attachBioHooks(k *host.Kernel, spec *ebpf.CollectionSpec, maps *ebpf.Collection) {
	wanted := hasBioDevice("/sys/block")
	for _, h := range bioHooks {
		if wanted {
			p.Attach(k, spec, maps, h)
			continue
		}
		p.TellFeature(model.Feature{Name: h.Name, Purpose: h.Purpose, State: model.FeatureOff,
			Reason: "there was no such device at the start", Remedy: "start anew when there is one"})
	}
}

// diskReader reads what disk.bpf.c counts.
type diskReader struct {
	maps diskMaps
	// collection owns the maps: programs are loaded onto it.
	collection *ebpf.Collection
	disks      *host.Table[diskDisk]
	slots      *host.Table[diskDiskSlot]
	latency    host.Histograms
	dropped    host.Drops[diskDiskDrop]
	owners     *groupTranslator
	// quiet is for how long an entry must be silent to be evicted.
	quiet time.Duration
	log   *requestLog
	// entries have what is known of each entry besides.
	entries []diskEntry
	// used is how many entries had an owner at the last reading.
	used atomic.Uint64
}

type diskEntry struct {
	cached [diskHistograms]host.CachedHistogram
	// instance counts those that had this index before.
	instance uint32
	// evicted: it is read once more and then released. lookedUp: its owner was.
	evicted, lookedUp bool
	// operations at the last reading, and since when there were so many.
	operations uint64
	since      time.Time
}

func (p *Block) openDisk(k *host.Kernel) error {
	err := p.tryOpenDisk(k)
	if err != nil {
		for _, h := range diskHooks {
			p.AddFeature(h, err)
		}
	}
	return err
}

func (p *Block) tryOpenDisk(k *host.Kernel) error {
	var object diskSpecs
	spec, err := host.ReadSpec(loadDisk, &object)
	if err != nil {
		return err
	}
	if p.options.Without {
		return nil
	}
	if !p.groups.Counts() {
		return errors.New("counting disks: no kernel program counts control groups")
	}
	shared := p.groups.Share(spec)
	entries := uint32(p.options.MaxDisks + diskFirst)
	for _, table := range []*ebpf.MapSpec{object.Disks, object.IndexOfDisk, object.FreeDisks} {
		table.MaxEntries = entries
	}
	object.DiskLatency.MaxEntries = entries * diskHistograms
	object.DiskRequests.MaxEntries = uint32(p.options.MaxRequests)
	object.DiskOfSlot.MaxEntries = object.CgroupSlots.MaxEntries
	if errors.Is(features.HaveMapType(ebpf.TaskStorage), ebpf.ErrNotSupported) {
		// A map that the programs which need it are refused with, and no others.
		began := object.SyncBegan
		began.Type, began.Flags, began.MaxEntries = ebpf.Hash, 0, 1
	}
	err = errors.Join(
		object.CgroupHierarchy.Set(k.Hierarchy),
		object.CgroupSubsysIndex.Set(k.Subsys),
		object.IoIndex.Set(k.IO),
		object.RequestIsSecond.Set(k.RequestIsSecond),
		setNearRequests(&object, p.options.NearRequests),
		prepareRequestLog(&object, p.options.LogRequests))
	if err != nil {
		return fmt.Errorf("BUG: setting the object's constants: %w", err)
	}
	r := &diskReader{quiet: diskQuietBefore, owners: newGroupTranslator(p.options.BlockMount, p.options.GroupMount)}
	p.OnClose(r.owners)
	var variables diskVariables
	maps, err := host.NewMaps(spec, shared, &r.maps, &variables)
	if err != nil {
		return fmt.Errorf("making the disks' maps: %w", err)
	}
	r.collection = maps
	p.OnClose(host.CloserFunc(maps.Close))
	if err := p.mapDisks(r, &variables); err != nil {
		return err
	}
	// All are features, so a refusal of one does not end the others.
	var errs []error
	for _, h := range diskHooks {
		errs = append(errs, p.Attach(k, spec, maps, h))
	}
	syncs := p.attachSyncs(k, spec, maps)
	p.attachBioHooks(k, spec, maps)
	if errs[0] == nil || errs[2] == nil || syncs {
		p.disks = r
	}
	return nil
}

// setNearRequests changes the size of the array of near requests; 0 leaves it.
func setNearRequests(object *diskSpecs, n uint32) error {
	if n == 0 {
		return nil
	}
	object.NearRequests.MaxEntries = n
	return object.NearMask.Set(n - 1)
}

func (p *Block) mapDisks(r *diskReader, variables *diskVariables) (err error) {
	r.latency = host.Histograms{Cells: r.maps.DiskLatency}
	r.dropped = host.Drops[diskDiskDrop]{Counts: r.maps.DiskDrops, Names: diskDropNames}
	if r.disks, err = host.MapTable[diskDisk](r.maps.Disks); err != nil {
		return err
	}
	p.OnClose(r.disks)
	if r.slots, err = host.MapTable[diskDiskSlot](r.maps.DiskOfSlot); err != nil {
		return err
	}
	p.OnClose(r.slots)
	r.entries = make([]diskEntry, len(r.disks.Entries))
	for index := diskFirst; index < len(r.entries); index++ {
		if err := r.maps.FreeDisks.Update(nil, uint32(index), ebpf.UpdateAny); err != nil {
			return fmt.Errorf("filling the list of free entries: %w", err)
		}
	}
	if r.log, err = openRequestLog(r.maps.DiskLog, variables.UnloggedRequests, p.options.LogRequests); err != nil {
		return err
	}
	if r.log != nil {
		p.OnClose(r.log.ring)
	}
	return nil
}

// ReadDisks reads the counters of every control group on every device, of those that found no
// entry together (Overflow), and of what groups' files were synchronised. An entry may be evicted when it
// was silent for long; it was read before then. It fails where no kernel program counts them.
func (p *Block) ReadDisks() ([]model.KernelDisk, error) {
	r := p.disks
	if r == nil {
		return nil, errors.New("reading disks: no kernel program counts them")
	}
	now := time.Now()
	full := r.used.Load() > uint64(len(r.entries)-diskFirst)*3/4
	var all []model.KernelDisk
	var errs []error
	used := uint64(0)
	for index := range r.disks.Entries {
		if index >= diskFirst && host.Load(&r.disks.Entries[index].Used) == 0 {
			continue
		}
		d := r.read(index, now)
		if index < diskFirst {
			if r.entries[index].operations != 0 {
				all = append(all, d)
			}
			continue
		}
		used++
		all = append(all, d)
		switch state := &r.entries[index]; {
		case state.evicted:
			errs = append(errs, r.release(index))
		case full && now.Sub(state.since) > r.quiet:
			r.evict(index)
		}
	}
	r.used.Store(used)
	return all, errors.Join(errs...)
}

func (r *diskReader) read(index int, now time.Time) model.KernelDisk {
	entry, state := &r.disks.Entries[index], &r.entries[index]
	d := model.KernelDisk{
		Entry: uint64(state.instance)<<32 | uint64(index), BlockGroup: entry.Key.Group, Overflow: index < diskFirst,
		Device: model.BlockDevice{Major: uint32(entry.Key.Device >> 32), Minor: uint32(entry.Key.Device),
			Name: host.Text(entry.Name[:])},
	}
	if index >= diskFirst {
		d.Group = r.owner(index)
	}
	var kinds [diskKinds]model.DiskOperations
	operations := uint64(0)
	for i := range kinds {
		kinds[i] = r.kind(index, i)
		operations += kinds[i].Operations
	}
	if operations != state.operations || state.since.IsZero() {
		state.operations, state.since = operations, now
	}
	if index == diskSyncs || index >= diskFirst && entry.Key.Device == diskOfSyncs {
		d.Device, d.BlockGroup = model.BlockDevice{}, 0
		d.Syncs = &model.SyncCounters{FSync: kinds[diskDiskOperationDISK_READ], FDataSync: kinds[diskDiskOperationDISK_WRITE]}
		return d
	}
	d.Counters = model.DeviceCounters{Read: kinds[diskDiskOperationDISK_READ],
		Write: kinds[diskDiskOperationDISK_WRITE], Discard: kinds[diskDiskOperationDISK_DISCARD],
		Flush: kinds[diskDiskOperationDISK_FLUSH]}
	return d
}

func (r *diskReader) kind(index, kind int) model.DiskOperations {
	c := &r.disks.Entries[index].Counters[kind]
	o := model.DiskOperations{Operations: host.Load(&c.Operations), Bytes: host.Load(&c.Bytes),
		TimeNS:  host.Load(&c.TimeNs),
		QueueNS: host.Load(&c.QueueNs), Errors: host.Load(&c.Errors), Untimed: host.Load(&c.Untimed)}
	if kind < diskHistograms && o.Operations != 0 {
		o.Latency = r.entries[index].cached[kind].Read(&r.latency, index*diskHistograms+kind, 1, o.Operations, o.TimeNS)
	}
	return o
}

// owner is the group that has the entry, in the hierarchy of containers. Where the kernel has not found
// it, it is looked up once, by its path.
func (r *diskReader) owner(index int) model.CgroupID {
	entry, state := &r.disks.Entries[index], &r.entries[index]
	owner := host.Load(&entry.Owner)
	if owner == 0 && !state.lookedUp && entry.Key.Group != 0 {
		state.lookedUp = true
		if owner = r.owners.translate(entry.Key.Group); owner != 0 {
			atomic.CompareAndSwapUint64(&entry.Owner, 0, owner)
		}
	}
	return model.CgroupID(owner)
}

// evict takes an entry from its group: what that does from now on is counted elsewhere, and what was
// in flight is in one more reading.
func (r *diskReader) evict(index int) {
	state := &r.entries[index]
	if state.evicted {
		return
	}
	if err := r.maps.IndexOfDisk.Delete(&r.disks.Entries[index].Key); err == nil {
		state.evicted = true
	}
}

func (r *diskReader) release(index int) error {
	r.disks.Entries[index] = diskDisk{}
	if err := r.latency.Clear(index*diskHistograms, diskHistograms); err != nil {
		return fmt.Errorf("releasing an entry of a disk: %w", err)
	}
	r.entries[index] = diskEntry{instance: r.entries[index].instance + 1}
	if err := r.maps.FreeDisks.Update(nil, uint32(index), ebpf.UpdateAny); err != nil {
		return fmt.Errorf("releasing entry %d of a disk: %w", index, err)
	}
	return nil
}

// evictGroup evicts the entries of a control group that was removed.
func (r *diskReader) evictGroup(id model.CgroupID) {
	for index := diskFirst; index < len(r.entries); index++ {
		if e := &r.disks.Entries[index]; host.Load(&e.Used) != 0 && host.Load(&e.Owner) == uint64(id) {
			r.evict(index)
		}
	}
}

// clearSlot empties the sums of a slot that has no owner any more.
func (r *diskReader) clearSlot(slot uint32) { r.slots.Entries[slot] = diskDiskSlot{} }

// SlotDisk is what a control group did on all devices since its slot was made, as a timer's tick reads it;
// false where the group has no slot.
func (p *Block) SlotDisk(id model.CgroupID) (model.SlotDisk, bool) {
	if p.disks == nil {
		return model.SlotDisk{}, false
	}
	slot, found := p.groups.SlotOf(id)
	if !found || int(slot) >= len(p.disks.slots.Entries) {
		return model.SlotDisk{}, false
	}
	s := &p.disks.slots.Entries[slot]
	return model.SlotDisk{ReadBytes: host.Load(&s.ReadBytes), WriteBytes: host.Load(&s.WriteBytes),
		Reads: host.Load(&s.Reads), Writes: host.Load(&s.Writes),
		ReadNS: host.Load(&s.ReadNs), WriteNS: host.Load(&s.WriteNs), QueueNS: host.Load(&s.QueueNs),
		Flushes: host.Load(&s.Flushes)}, true
}

func (r *diskReader) drops() []model.Drop {
	drops := []model.Drop{
		r.dropped.Of(diskDiskDropDROP_DISK, uint64(len(r.entries)-diskFirst), r.used.Load()),
		r.dropped.Drop(diskDiskDropDROP_DISK_REQUEST),
		r.dropped.Drop(diskDiskDropDROP_DISK_SYNC),
	}
	if r.log != nil {
		drops = append(drops, r.log.drop())
	}
	return drops
}
