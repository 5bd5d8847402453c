package frame

import (
	"cmp"
	"slices"
	"time"
)

// plan says what a row of the frame is made of.
type plan struct {
	id uint32
	// live is the index of what it is in the snapshot, before that of the row in the frame before; -1 for none.
	live, before int
	// ended says that the row has ended now. add are rows of the frame before that are removed and added to it.
	ended bool
	add   []int
}

// planned are the rows of a table.
type planned struct {
	b     *Builder
	table TableID
	old   *Table
	plans []plan
	// kept says of each row of the frame before whether it goes on.
	kept []bool
	sums map[uint32]int
	// ordered, fresh and at are memory of order.
	ordered, fresh []plan
	at             []int32
}

func (b *Builder) plan(t TableID) *planned {
	p := &b.spare[t]
	*p = planned{b: b, table: t, old: &Table{}, plans: p.plans[:0], kept: p.kept[:0], sums: p.sums,
		ordered: p.ordered, fresh: p.fresh, at: p.at}
	if p.sums == nil {
		p.sums = map[uint32]int{}
	}
	clear(p.sums)
	if b.before != nil {
		p.old = &b.before.Tables[t]
	}
	p.kept = slices.Grow(p.kept, len(p.old.IDs))[:len(p.old.IDs)]
	clear(p.kept)
	return p
}

// live plans the row of what has this key in the snapshot, at the next index.
func live[K, S comparable](p *planned, x *index[K, S], key K) *entry[K] {
	return planLive(p, x, key, x.find(key))
}

// planLive does so with what was found of the key, nil for nothing.
func planLive[K, S comparable](p *planned, x *index[K, S], key K, e *entry[K]) *entry[K] {
	before := -1
	if e != nil {
		row, ok := e.row, true
		if row >= len(p.old.IDs) || p.old.IDs[row] != e.id { // other rows came or went
			row, ok = p.old.Find(e.id)
		}
		if ok && !p.kept[row] {
			e.row, before = row, row
			p.kept[row] = true
		} else {
			e = nil
		}
	}
	if e == nil {
		known := &p.b.tables[p.table]
		e = &entry[K]{key: key, id: known.next, began: p.b.header.Time}
		known.next++
		x.byKey[key], x.byID[e.id] = e, e
	}
	p.plans = append(p.plans, plan{id: e.id, live: x.add(e), before: before})
	return e
}

// forget forgets all that is known of a row that is removed.
func (p *planned) forget(id uint32) {
	if x := p.b.tables[p.table].index; x != nil {
		x.forget(id)
	}
	if len(p.b.restarts)+len(p.b.merged) == 0 {
		return
	}
	for column := range Schema[p.table].Columns {
		delete(p.b.restarts, cell{p.table, id, column})
	}
	for column := range Schema[p.table].Histograms {
		delete(p.b.merged, cell{p.table, id, column})
	}
}

// keeps reports whether the row of the frame before with this number goes on.
func (p *planned) keeps(id uint32) bool {
	row, ok := p.old.Find(id)
	return ok && p.kept[row]
}

func (p *planned) oldReference(a Attribute, row int) uint32 { return uint32(p.old.Attributes[a][row]) }

func (p *planned) oldText(a Attribute, row int) string {
	return p.b.before.Strings[p.old.Attributes[a][row]]
}

// removeOrphans removes the rows that ended for which owned says that what they are of is not there.
func (p *planned) removeOrphans(owned func(row int) bool) {
	var orphans []int
	kept := p.plans[:0]
	for _, of := range p.plans {
		if of.live < 0 && of.before >= 0 && p.old.Attributes[State][of.before] != Summed && !owned(of.before) {
			orphans = append(orphans, of.before)
			p.kept[of.before] = false
			continue
		}
		if _, ok := p.sums[of.id]; ok {
			p.sums[of.id] = len(kept)
		}
		kept = append(kept, of)
	}
	p.plans = kept
	for _, row := range orphans {
		p.remove(row)
	}
}

// rest plans the rows of the frame before that are not in the snapshot. A row is kept as long as keep says, whatever its
// age; one that drop says is of no use goes without a trace.
func (p *planned) rest(now time.Time, keep, drop func(row int) bool) {
	known := &p.b.tables[p.table]
	expired := uint64(now.Add(-Linger).UnixMilli())
	var gone []int
	for i, id := range p.old.IDs {
		switch state := p.old.Attributes[State][i]; {
		case p.kept[i]:
		case state == Summed:
			p.kept[i] = true
			p.sums[id] = len(p.plans)
			p.plans = append(p.plans, plan{id: id, live: -1, before: i})
		case drop != nil && drop(i):
			p.forget(id)
		default:
			gone = append(gone, i)
		}
	}
	ended := func(i int) uint64 {
		if p.old.Attributes[State][i] == Gone {
			return p.old.Attributes[Ended][i]
		}
		return uint64(now.UnixMilli())
	}
	slices.SortStableFunc(gone, func(x, y int) int { return cmp.Compare(ended(x), ended(y)) })
	known.gone = len(gone)
	for n, i := range gone {
		early := len(gone)-n > maxGone
		if !early && ended(i) > expired || keep != nil && keep(i) {
			p.kept[i] = true
			p.plans = append(p.plans, plan{id: p.old.IDs[i], live: -1, before: i, ended: p.old.Attributes[State][i] == Live})
			continue
		}
		if early {
			p.b.overflow++
		}
		p.remove(i)
		known.gone--
	}
}

// remove adds a row of the frame before to that of its sum.
func (p *planned) remove(row int) {
	id := uint32(p.old.Attributes[Sum][row])
	at, ok := p.sums[id]
	if !ok {
		at = len(p.plans)
		p.sums[id] = at
		p.plans = append(p.plans, plan{id: id, live: -1, before: -1})
	}
	p.plans[at].add = append(p.plans[at].add, row)
	p.forget(p.old.IDs[row])
}
