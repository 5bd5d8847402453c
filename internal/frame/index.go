package frame

import (
	"net/netip"
	"time"
)

// decideTime is for how long after its begin a row may still change the row that will sum it: names become known a
// moment later. After that it stays, so that a row that is gone is found in the sum that frames before named.
const decideTime = 10 * time.Second

// index finds rows by what distinguishes them while they live (K), and the rows that sum them by what distinguishes
// those (S).
type index[K, S comparable] struct {
	byKey map[K]*entry[K]
	byID  map[uint32]*entry[K]
	sums  map[S]uint32
	// before are the rows of the frame before, in the order of its snapshot, which is nearly that of the next one; now
	// are those of the frame that is made. at is where the next one is likely to be.
	before, now []*entry[K]
	at          int
	// round counts frames.
	round uint64
}

// entry is a row that lives or has ended.
type entry[K comparable] struct {
	key K
	id  uint32
	// row is where it was in the table of the frame before the last one.
	row   int
	began time.Time
	// sum is the row that will sum it; 0 where that is not decided yet.
	sum uint32
	// place is the index in the list of the last frame that it was live in, which is round. ended says that the key is
	// another row's by now.
	place int
	round uint64
	ended bool
}

// forgetter is an index of any kind.
type forgetter interface {
	forget(id uint32)
	turn()
	kinds() int
}

func (x *index[K, S]) open() *index[K, S] {
	x.byKey, x.byID, x.sums = map[K]*entry[K]{}, map[uint32]*entry[K]{}, map[S]uint32{}
	x.round = 1
	return x
}

// find finds a row, nil where there is none.
func (x *index[K, S]) find(key K) *entry[K] {
	if x.at < len(x.before) {
		if e := x.before[x.at]; !e.ended && e.key == key {
			x.at++
			return e
		}
	}
	e := x.byKey[key]
	if e != nil {
		x.at = e.place + 1
	}
	return e
}

// add adds a row to those of the frame that is made, and answers its index there.
func (x *index[K, S]) add(e *entry[K]) int {
	e.place, e.round = len(x.now), x.round
	x.now = append(x.now, e)
	return e.place
}

// has reports whether a row is in the frame that is made.
func (x *index[K, S]) has(e *entry[K]) bool { return e.round == x.round }

// end forgets the key of a row, so that the next one with it is another row.
func (x *index[K, S]) end(e *entry[K]) {
	if x.byKey[e.key] == e {
		delete(x.byKey, e.key)
	}
	e.ended = true
}

func (x *index[K, S]) forget(id uint32) {
	if e := x.byID[id]; e != nil {
		x.end(e)
		delete(x.byID, id)
	}
}

// turn ends a frame.
func (x *index[K, S]) turn() {
	clear(x.before)
	x.round++
	x.before, x.now, x.at = x.now, x.before[:0], 0
}

func (x *index[K, S]) kinds() int { return len(x.sums) }

// sumOf is the number of the row that will sum a row of this kind.
func sumOf[K, S comparable](b *Builder, t TableID, x *index[K, S], e *entry[K], kind S) uint64 {
	if e.sum != 0 && b.header.Time.Sub(e.began) > decideTime {
		return uint64(e.sum)
	}
	id, ok := x.sums[kind]
	switch {
	case ok:
	case len(x.sums) >= maxSums:
		if e.sum == 0 {
			b.overflow++
		}
		id = OthersRow
	default:
		id = b.tables[t].next
		b.tables[t].next++
		x.sums[kind] = id
	}
	e.sum = id
	return uint64(id)
}

// texts are those of the frames since the last key frame.
type texts struct {
	all       []string
	ids       map[string]uint64
	addresses map[netip.AddrPort]uint64
}

func (t *texts) begin() {
	t.all, t.ids, t.addresses = []string{""}, map[string]uint64{"": 0}, map[netip.AddrPort]uint64{}
}

// id is the index of a text.
func (t *texts) id(text string) uint64 {
	id, ok := t.ids[text]
	if !ok {
		id = uint64(len(t.all))
		t.ids[text] = id
		t.all = append(t.all, text)
	}
	return id
}

// address is the index of an address, 0 for none.
func (t *texts) address(a netip.Addr) uint64 {
	if !a.IsValid() {
		return 0
	}
	// No port is 0: an address with it stands for one without.
	key := netip.AddrPortFrom(a, 0)
	id, ok := t.addresses[key]
	if !ok {
		id = t.id(a.String())
		t.addresses[key] = id
	}
	return id
}

// addressPort is the index of an address and port, 0 for none.
func (t *texts) addressPort(a netip.AddrPort) uint64 {
	switch {
	case !a.IsValid():
		return 0
	case a.Port() == 0:
		return t.id(a.String())
	}
	id, ok := t.addresses[a]
	if !ok {
		id = t.id(a.String())
		t.addresses[a] = id
	}
	return id
}
