package frame

import (
	"cmp"
	"slices"

	"outsight/internal/model"
)

// draft is a table that is being made.
type draft struct {
	*Table
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
	slices.SortFunc(p.plans, func(x, y plan) int { return cmp.Compare(x.id, y.id) })
	d := newDraft(p.table, len(p.plans))
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
		case kind == Counter && d.some(i):
			p.grow(d, i)
		case (kind == Integral || kind == Highest) && d.some(d.info.Columns[i].Of):
			p.integrate(d, i, seconds)
		}
	}
	known := &p.b.tables[p.table]
	known.totals, known.spare = d.totals, known.totals
	f.Tables[p.table] = d.finish()
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
		n := len(p.old.Histograms[i].Bucket)
		n += n/16 + 64
		d.Histograms[i].Bucket, d.Histograms[i].Count = make([]int32, 0, n), make([]uint64, 0, n)
	}
}

func newDraft(t TableID, rows int) *draft {
	info := &Schema[t]
	d := &draft{Table: &Table{IDs: make([]uint32, rows), Attributes: make([][]uint64, len(info.Attributes)),
		Columns: make([]Values, len(info.Columns)), Histograms: make([]Histograms, len(info.Histograms))}, info: info,
		any: make([]bool, len(info.Histograms))}
	words := (rows + 63) / 64
	memory := make([]uint64, rows*(len(info.Attributes)+len(info.Columns)+3*len(info.Histograms))+words*len(info.Columns))
	take := func(n int) []uint64 {
		part := memory[:n:n]
		memory = memory[n:]
		return part
	}
	for i := range d.Attributes {
		d.Attributes[i] = take(rows)
	}
	for i := range d.Columns {
		d.Columns[i] = Values{take(rows), take(words)}
		for w := range d.Columns[i].Missing {
			d.Columns[i].Missing[w] = ^uint64(0)
		}
	}
	ends := make([]uint32, rows*len(info.Histograms))
	for i := range d.Histograms {
		d.Histograms[i] = Histograms{SumNS: take(rows), Zero: take(rows), Overflow: take(rows), End: ends[i*rows : (i+1)*rows]}
	}
	return d
}

// finish drops columns that are empty, and marks that mark nothing.
func (d *draft) finish() Table {
	for i := range d.Columns {
		c := &d.Columns[i]
		if !d.some(i) {
			*c = Values{}
			continue
		}
		missing := uint64(0)
		for w := range c.Missing {
			missing |= c.Missing[w] & d.rowsOf(w)
		}
		if missing == 0 {
			c.Missing = nil
		}
	}
	for i := range d.Histograms {
		if !d.any[i] {
			d.Histograms[i] = Histograms{}
		}
	}
	return *d.Table
}

// rowsOf has a bit for each row that a word of marks is of.
func (d *draft) rowsOf(word int) uint64 {
	if rest := len(d.IDs) - word<<6; rest < 64 {
		return 1<<rest - 1
	}
	return ^uint64(0)
}

// some reports whether a row has a value.
func (d *draft) some(column int) bool {
	for w, missing := range d.Columns[column].Missing {
		if ^missing&d.rowsOf(w) != 0 {
			return true
		}
	}
	return false
}

func (d *draft) set(column int, n uint64) {
	c := &d.Columns[column]
	c.Of[d.row] = n
	c.Missing[d.row>>6] &^= 1 << (d.row & 63)
}

func (d *draft) has(column int) bool { return d.Columns[column].Missing[d.row>>6]>>(d.row&63)&1 == 0 }

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
	to.Bucket, to.Count, d.totals[column][d.row] = bucket, count, total
}

// same reports whether a histogram is what the row had in the frame before. Counts only grow: if their sum is equal, so
// is each.
func (d *draft) same(column int, h *model.Histogram) bool {
	return d.before != nil && d.unmerged && h.Count == d.totalsBefore[column][d.at] && h.SumNS == d.before.Histograms[column].SumNS[d.at]
}
