package kernel

import (
	"sync/atomic"

	"github.com/cilium/ebpf"

	"outsight/internal/model"
)

// The tables of lru.h, in its order.
const (
	lruFlows = iota
	lruQueries
	lruTLSCalls
	lruTLSConnections
)

// lruTable counts what gave way in a table of lru.h.
type lruTable struct {
	entries  *ebpf.Map
	which    uint32
	capacity uint64
	// missing entries at the last look.
	missing    uint64
	lost, used atomic.Uint64
}

// newLRUTable takes maps for one table that the programs count as one.
func newLRUTable(maps *ebpf.Collection, which uint32, names ...string) *lruTable {
	t := &lruTable{entries: maps.Maps["lru_entries"], which: which}
	for _, name := range names {
		t.capacity += uint64(maps.Maps[name].MaxEntries())
	}
	return t
}

// made counts the entries that were ever made.
func (t *lruTable) made() uint64 { return sumDrops(t.entries, 2*t.which) }

// look is told how many entries had been made, and how many were found after that. What came or went
// meanwhile makes fewer look lost. While an entry moves, it may be passed over: lost is what two looks agree on.
func (t *lruTable) look(made, found uint64) {
	taken := sumDrops(t.entries, 2*t.which+1)
	missing := made - min(made, taken+found)
	t.lost.Store(max(t.lost.Load(), min(missing, t.missing)))
	t.missing = missing
	t.used.Store(found)
}

// lookAtFull is for a table of which nobody counts the entries: what it has no room for is lost.
func (t *lruTable) lookAtFull() {
	made := t.made()
	t.look(made, min(made-min(made, sumDrops(t.entries, 2*t.which+1)), t.capacity))
}

func (t *lruTable) drop(name string, others uint64) model.Drop {
	return model.Drop{Name: name, Count: t.lost.Load() + others, Capacity: t.capacity, Used: t.used.Load()}
}
