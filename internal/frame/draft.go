package frame

import (
	"cmp"
	"slices"

	"outsight/internal/model"
)

// draft is a table that is being made.
type draft struct {
	*Table
	scratch *scratch
	table   TableID
	// only are the columns that are filled in; nil is all.
	only *Projection
	info *TableInfo
	row  int
	// any says of each histogram whether a row has one.
	any []bool
	// totals are how many durations histograms have, by column and row.
	totals [][]uint64
	// before is the table of the frame before, with the row that is being filled in at at; nil where the row is new. texts
	// says that texts have the numbers that they had.
	before       *Table
	at           int
	totalsBefore [][]uint64
	texts        bool
	// unmerged says that no histogram has what was counted before its source restarted.
	unmerged bool
}

// make makes the table of all plans, in the order of their numbers. fill fills a live row in.
func (p *planned) make(f *Frame, fill func(d *draft, of *plan)) {
	p.order()
	known := &p.b.tables[p.table]
	d := newDraft(p.table, len(p.plans), &known.scratch)
	d.only = p.b.only
	p.prepare(d)
	d.texts, d.totalsBefore, d.unmerged = !f.IsKey(), p.b.tables[p.table].totals, len(p.b.merged) == 0
	seconds := 0.0
	if p.b.before != nil {
		seconds = f.Time.Sub(p.b.before.Time).Seconds()
	}
	for i := range p.plans {
		of := &p.plans[i]
		d.row = i
		d.IDs[i] = of.id
		if of.live >= 0 {
			if d.before = nil; of.before >= 0 {
				d.before, d.at = p.old, of.before
			}
			fill(d, of)
			for k := range d.Histograms {
				p.growHistogram(d, of, k)
			}
		} else {
			p.copy(d, of, f)
		}
		for k := range d.Histograms {
			d.Histograms[k].End[i] = uint32(len(d.Histograms[k].Bucket))
		}
	}
	for i := range d.info.Columns {
		switch kind := d.info.Columns[i].Kind; {
		case kind == Counter && d.Columns[i].Of != nil:
			p.grow(d, i)
		case (kind == Integral || kind == Highest) &&
			(d.Columns[d.info.Columns[i].Of].Of != nil || len(p.old.Columns) > 0 && len(p.old.Columns[i].Of) > 0):
			p.integrate(d, i, seconds)
		}
	}
	known.totals, known.spare = d.totals, known.totals
	f.Tables[p.table] = d.finish(p.old)
}

// order puts the plans in the order of their numbers. Those of the frame before are in it there.
func (p *planned) order() {
	all, fresh := p.ordered[:0], p.fresh[:0]
	at := append(p.at[:0], make([]int32, len(p.old.IDs))...)
	for i := range p.plans {
		if of := &p.plans[i]; of.before >= 0 {
			at[of.before] = int32(i + 1)
		} else {
			fresh = append(fresh, *of)
		}
	}
	slices.SortFunc(fresh, func(x, y plan) int { return cmp.Compare(x.id, y.id) })
	next := 0
	for _, i := range at {
		if i == 0 {
			continue
		}
		for ; next < len(fresh) && fresh[next].id < p.plans[i-1].id; next++ {
			all = append(all, fresh[next])
		}
		all = append(all, p.plans[i-1])
	}
	all = append(all, fresh[next:]...)
	p.plans, p.ordered, p.fresh, p.at = all, p.plans, fresh, at
}

// prepare gets memory for as many buckets as the frame before had, and some more.
func (p *planned) prepare(d *draft) {
	d.totals = p.b.tables[p.table].spare
	if d.totals == nil {
		d.totals = make([][]uint64, len(d.Histograms))
	}
	for i := range d.totals {
		d.totals[i] = slices.Grow(d.totals[i][:0], len(d.IDs))[:len(d.IDs)]
		clear(d.totals[i])
		if len(p.old.Histograms) == 0 || len(p.old.Histograms[i].Bucket) == 0 {
			continue
		}
		h, spare := &d.Histograms[i], p.b.tables[p.table].scratch.buckets(i)
		n := len(p.old.Histograms[i].Bucket)
		n += n/16 + 64
		spare.bucket, spare.count = slices.Grow(spare.bucket[:0], n), slices.Grow(spare.count[:0], n)
		h.Bucket, h.Count = spare.bucket, spare.count
	}
}

// scratch is memory for drafts of a table: what finish shares is not in it.
type scratch struct {
	numbers    []uint64
	ids        []uint32
	columns    [][]uint64
	histograms []spareBuckets
}

type spareBuckets struct {
	bucket []int32
	count  []uint64
}

// buckets is memory for the buckets of a column of histograms.
func (s *scratch) buckets(column int) *spareBuckets {
	for len(s.histograms) <= column {
		s.histograms = append(s.histograms, spareBuckets{})
	}
	return &s.histograms[column]
}

// column is memory for a column, its values and its marks.
func (s *scratch) column(column, length int) []uint64 {
	for len(s.columns) <= column {
		s.columns = append(s.columns, nil)
	}
	s.columns[column] = zeroed(s.columns[column], length)
	return s.columns[column]
}

// zeroed is memory of this length without values, in that of all if there is enough.
func zeroed[T any](all []T, length int) []T {
	all = slices.Grow(all[:0], length)[:length]
	clear(all)
	return all
}

func newDraft(t TableID, rows int, s *scratch) *draft {
	info := &Schema[t]
	s.ids = zeroed(s.ids, rows*(1+len(info.Histograms)))
	d := &draft{scratch: s, table: t, Table: &Table{IDs: s.ids[:rows:rows], Attributes: make([][]uint64, len(info.Attributes)),
		Columns: make([]Values, len(info.Columns)), Histograms: make([]Histograms, len(info.Histograms))}, info: info,
		any: make([]bool, len(info.Histograms))}
	s.numbers = zeroed(s.numbers, rows*(len(info.Attributes)+3*len(info.Histograms)))
	memory := s.numbers
	take := func(n int) []uint64 {
		part := memory[:n:n]
		memory = memory[n:]
		return part
	}
	for i := range d.Attributes {
		d.Attributes[i] = take(rows)
	}
	ends := s.ids[rows:]
	for i := range d.Histograms {
		d.Histograms[i] = Histograms{SumNS: take(rows), Zero: take(rows), Overflow: take(rows),
			End: ends[i*rows : (i+1)*rows]}
	}
	return d
}

// finish drops histograms that are empty, and marks that mark nothing. What is as it was shares the memory of the frame
// before, where all of the table's rows are those of then.
func (d *draft) finish(old *Table) Table {
	for i := range d.Columns {
		missing := uint64(0)
		for w, bits := range d.Columns[i].Missing {
			if rest := len(d.IDs) - w<<6; rest < 64 {
				bits &= 1<<rest - 1
			}
			missing |= bits
		}
		if missing == 0 {
			d.Columns[i].Missing = nil
		}
	}
	for i := range d.Histograms {
		if !d.any[i] {
			d.Histograms[i] = Histograms{}
		}
	}
	d.share(old)
	return *d.Table
}

// share takes the columns of the frame before for those that are equal, and copies of the others: a draft's own memory is
// used again.
func (d *draft) share(old *Table) {
	same := len(old.Attributes) > 0 && slices.Equal(d.IDs, old.IDs)
	if !same {
		old = &Table{Attributes: make([][]uint64, len(d.Attributes)), Columns: make([]Values, len(d.Columns)),
			Histograms: make([]Histograms, len(d.Histograms))}
	}
	d.IDs = shared(d.IDs, old.IDs)
	for i := range d.Attributes {
		d.Attributes[i] = shared(d.Attributes[i], old.Attributes[i])
	}
	for i := range d.Columns {
		d.Columns[i].Of = shared(d.Columns[i].Of, old.Columns[i].Of)
		d.Columns[i].Missing = shared(d.Columns[i].Missing, old.Columns[i].Missing)
	}
	for i := range d.Histograms {
		h, was := &d.Histograms[i], &old.Histograms[i]
		h.SumNS, h.Zero, h.Overflow = shared(h.SumNS, was.SumNS), shared(h.Zero, was.Zero), shared(h.Overflow, was.Overflow)
		h.End, h.Bucket, h.Count = shared(h.End, was.End), shared(h.Bucket, was.Bucket), shared(h.Count, was.Count)
	}
}

// shared is was where all is as it was, and else a copy.
func shared[T comparable](now, was []T) []T {
	switch {
	case now == nil:
		return nil
	case slices.Equal(now, was):
		return was
	}
	return slices.Clip(append(make([]T, 0, len(now)), now...))
}

// set sets a value of the row. A column has memory from its first value on.
func (d *draft) set(column int, n uint64) {
	c := &d.Columns[column]
	if c.Of == nil {
		rows := len(d.IDs)
		memory := d.scratch.column(column, rows+(rows+63)/64)
		c.Of, c.Missing = memory[:rows:rows], memory[rows:]
		for w := range c.Missing {
			c.Missing[w] = ^uint64(0)
		}
	}
	c.Of[d.row] = n
	c.Missing[d.row>>6] &^= 1 << (d.row & 63)
}

func (d *draft) has(column int) bool {
	missing := d.Columns[column].Missing
	return missing != nil && missing[d.row>>6]>>(d.row&63)&1 == 0
}

func (d *draft) setHistogram(column int, h *model.Histogram) {
	if h == nil || h.Count == 0 {
		return
	}
	to := &d.Histograms[column]
	d.any[column] = true
	to.SumNS[d.row], to.Zero[d.row], to.Overflow[d.row] = h.SumNS, h.ZeroCount, h.OverflowCount
	if d.same(column, h) {
		index, count := d.before.Histograms[column].Buckets(d.at)
		to.Bucket, to.Count = append(to.Bucket, index...), append(to.Count, count...)
		d.totals[column][d.row] = h.Count
		return
	}
	bucket, count, total := to.Bucket, to.Count, h.ZeroCount+h.OverflowCount
	for i, n := range h.Buckets {
		if n != 0 {
			bucket, count, total = append(bucket, h.Offset+int32(i)), append(count, n), total+n
		}
	}
	if to.Bucket, to.Count = bucket, count; d.totals != nil {
		d.totals[column][d.row] = total
	}
}

// same reports whether a histogram is what the row had in the frame before. Counts only grow: if their sum is equal, so
// is each.
func (d *draft) same(column int, h *model.Histogram) bool {
	return d.before != nil && d.unmerged && h.Count == d.totalsBefore[column][d.at] &&
		h.SumNS == d.before.Histograms[column].SumNS[d.at]
}
