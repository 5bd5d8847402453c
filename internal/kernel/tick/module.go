// Package tick samples every control group at each tick of a timer in the kernel.
package tick

import (
	"iter"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"outsight/internal/kernel/host"
	"outsight/internal/model"
)

// Groups have the slots of control groups.
type Groups interface {
	Counts() bool
	Share(other *ebpf.CollectionSpec) map[string]*ebpf.Map
	Slots() []uint64
	SlotOf(model.CgroupID) (uint32, bool)
}

// Edges belong to control groups.
type Edges interface {
	EdgesMap() *ebpf.Map
	EdgeOwners() iter.Seq2[uint32, uint64]
}

// Disks have sums for each slot.
type Disks interface{ SlotSums() *ebpf.Map }

// Options of New.
type Options struct {
	// FirstSlot is the first that may be a control group's.
	FirstSlot int
	// Types are the kernel's, if they are decoded already.
	Types *btf.Cache
}

// Tick is the module. It has no program before Record.
type Tick struct {
	host.Loader
	options Options
	groups  Groups
	edges   Edges
	disks   Disks
	// kernel is what was loaded for, without its types, which are large; nil where there are none.
	kernel *host.Kernel
}

// New makes the module.
func New(o Options, groups Groups, edges Edges, disks Disks) *Tick {
	return &Tick{Loader: host.NewLoader(), options: o, groups: groups, edges: edges, disks: disks}
}

// Hooks are what may be attached to.
func (p *Tick) Hooks() []host.Hook { return []host.Hook{recorderHook} }

// Open asks whether the kernel has recorders.
func (p *Tick) Open(k *host.Kernel) error {
	p.AddFeature(recorderHook, canRecord())
	kernel := *k
	kernel.Types = nil
	p.kernel = &kernel
	return nil
}

// Parts of the module: what a recorder costs is its own account.
func (p *Tick) Parts() []host.Part { return nil }

// Drops are none: each recorder counts its own losses.
func (p *Tick) Drops() []model.Drop { return nil }

// Forget has nothing to release: a recorder finds out by itself.
func (p *Tick) Forget(model.CgroupID) {}
