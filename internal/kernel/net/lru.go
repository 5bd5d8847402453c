package net

import (
	"sync/atomic"

	"github.com/cilium/ebpf"

	"outsight/internal/kernel/host"
	"outsight/internal/model"
)

// lruTable counts what was evicted from a table of lru.h.
type lruTable struct {
	entries  *ebpf.Map
	which    edgesLruTable
	capacity uint64
	// missing entries at the last look.
	missing    uint64
	lost, used atomic.Uint64
}

// newLRUTable takes maps for one table that the programs count as one.
func newLRUTable(objects *edgeObjects, which edgesLruTable, tables ...*ebpf.Map) *lruTable {
	t := &lruTable{entries: objects.LruEntries, which: which}
	for _, m := range tables {
		t.capacity += uint64(m.MaxEntries())
	}
	return t
}

// made counts the entries that were ever made.
func (t *lruTable) made() uint64 { return host.SumDrops(t.entries, uint32(2*t.which)) }

// taken counts the entries that programs took away.
func (t *lruTable) taken() uint64 { return host.SumDrops(t.entries, uint32(2*t.which+1)) }

// look is given how many entries had been made, and how many were found after that. What was made or taken away
// meanwhile makes fewer look lost. While an entry moves, it may be passed over: lost is what two looks agree on.
func (t *lruTable) look(made, found uint64) {
	missing := made - min(made, t.taken()+found)
	t.lost.Store(max(t.lost.Load(), min(missing, t.missing)))
	t.missing = missing
	t.used.Store(found)
}

// lookAtFull is for a table whose entries are not counted: what it has no room for is lost.
func (t *lruTable) lookAtFull() {
	made := t.made()
	t.look(made, min(made-min(made, t.taken()), t.capacity))
}

func (t *lruTable) drop(name string, others uint64) model.Drop {
	return model.Drop{Name: name, Count: t.lost.Load() + others, Capacity: t.capacity, Used: t.used.Load()}
}
