package net

import (
	"fmt"
	"time"

	"github.com/cilium/ebpf"
)

// What the tables of edges and of endpoints have in common; see table_index.h.

const (
	edgeOverflow     = int(edgesTableIndexEDGE_OVERFLOW)
	endpointOverflow = int(edgesTableIndexENDPOINT_OVERFLOW)
)

const (
	// idleTime is how long an entry must have been silent before its index is given to another, and only when the
	// table is three quarters full.
	idleTime = time.Minute
	// crowdedIdleTime is that of an owner that has half of its quota.
	crowdedIdleTime = 15 * time.Second
)

// freeIndexes are the queues of a table's free indexes.
type freeIndexes struct{ unreserved, reserved *ebpf.Map }

// put frees an index; the queues have room for all.
func (f freeIndexes) put(index int) error {
	queue := f.unreserved
	if index%int(edgesTableIndexRESERVED_EVERY) == 0 {
		queue = f.reserved
	}
	return queue.Update(nil, uint32(index), ebpf.UpdateAny)
}

// fill frees all indexes of a new table but 0, which is the overflow's.
func (f freeIndexes) fill(entries int) error {
	for index := 1; index < entries; index++ {
		if err := f.put(index); err != nil {
			return fmt.Errorf("filling the queue %v of free indexes: %w", f.unreserved, err)
		}
	}
	return nil
}

// entryUse is what the reader knows of the use of an entry.
type entryUse struct {
	// activity is a sum of counters that changes whenever the entry is used, changed when that was last seen.
	activity uint64
	changed  time.Time
	// leaving entries are no longer found; their indexes are freed at the next reading.
	leaving bool
}

func (u *entryUse) see(activity uint64, now time.Time) {
	if activity != u.activity || u.changed.IsZero() {
		u.activity, u.changed = activity, now
	}
}

func (u *entryUse) silentFor(d time.Duration, now time.Time) bool { return now.Sub(u.changed) > d }
