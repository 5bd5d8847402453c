// Package block reads what the programs at disks and files count for each control group.
package block

import (
	"cmp"
	"errors"
	"slices"

	"github.com/cilium/ebpf"

	"outsight/internal/kernel/host"
	"outsight/internal/model"
)

// Options of New. The zero value works.
type Options struct {
	// MaxDisks bounds the pairs of a control group and a device, MaxRequests the requests that are timed at a time.
	MaxDisks, MaxRequests int
	// Without counts nothing.
	Without bool
	// LogRequests makes DiskRequests work, with room for so many.
	LogRequests            int
	GroupMount, BlockMount string
	ProcFS                 string
	// NearRequests is a power of two, see disk.h; 0 leaves it.
	NearRequests uint32

	// filesByIterator leaves the walk over threads out, as kernels before 6.7 do. It is for tests.
	filesByIterator bool
}

// Groups have the slots of control groups.
type Groups interface {
	Counts() bool
	Share(other *ebpf.CollectionSpec) map[string]*ebpf.Map
	SlotOf(model.CgroupID) (uint32, bool)
}

// Block is the module. Its Read methods are for one goroutine at a time.
type Block struct {
	host.Loader
	options Options
	groups  Groups
	disks   *diskReader
	files   *filesReader
}

// New makes the module.
func New(o Options, groups Groups) *Block {
	o.MaxDisks = max(host.DefaultTo(o.MaxDisks, DefaultMaxDisks), 16)
	o.MaxRequests = host.DefaultTo(o.MaxRequests, DefaultMaxRequests)
	o.ProcFS = cmp.Or(o.ProcFS, "/proc")
	return &Block{Loader: host.NewLoader(), options: o, groups: groups}
}

// Hooks are what may be attached to.
func (p *Block) Hooks() []host.Hook {
	return slices.Concat(diskHooks, []host.Hook{filesExitHook, filesHook})
}

// Open loads and attaches the programs.
func (p *Block) Open(k *host.Kernel) error {
	p.Loading = "disks"
	err := p.openDisk(k)
	p.Loading = "files"
	return errors.Join(err, p.openFiles(k))
}

// Parts of the module.
func (p *Block) Parts() []host.Part {
	return []host.Part{
		{Rank: 13, Part: model.Part{Name: "disks", Purpose: "requests to disks, and how long files take to be on them",
			Fixed: true}},
		{Rank: 14, Part: model.Part{Name: "files",
			Purpose: "what programs read and write, and what the files of control groups tell", Fixed: true}},
	}
}

// Drops lists every bounded table with what found no room in it.
func (p *Block) Drops() (drops []model.Drop) {
	if p.disks != nil {
		drops = append(drops, p.disks.drops()...)
	}
	if p.files != nil {
		drops = append(drops, p.files.drops()...)
	}
	return drops
}

// Forget evicts the entries of a control group that was removed.
func (p *Block) Forget(id model.CgroupID) {
	if p.disks != nil {
		p.disks.evictGroup(id)
	}
}

// Refresh lets the kernel add what running threads have read and written.
func (p *Block) Refresh() error {
	if p.files == nil {
		return nil
	}
	return p.files.refresh()
}

// Fill tells what a slot's group has read and written.
func (p *Block) Fill(slot int, c *model.CgroupCounters) {
	if p.files != nil {
		c.Files = p.files.of(slot)
	}
}

// ClearSlot empties a slot that has no group any more.
func (p *Block) ClearSlot(slot uint32) {
	if p.disks != nil {
		p.disks.clearSlot(slot)
	}
	if p.files != nil {
		p.files.clearSlot(slot)
	}
}

// SlotSums is the map of what each slot's group did on all disks; nil where it is not counted.
func (p *Block) SlotSums() *ebpf.Map {
	if p.disks == nil {
		return nil
	}
	return p.disks.maps.DiskOfSlot
}
