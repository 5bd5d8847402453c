package clickhouse

import (
	"fmt"
	"io"

	"outsight/internal/frame"
)

// spanFrames are the two frames of a span while they are read. The earlier one has 0 for what is only answered as a
// gain.
type spanFrames struct {
	after, before *frame.Frame // before is nil for none, or after itself
	strings       map[string]uint64
	tables        [2][frame.NumTables]*table
}

func newSpanFrames(s *span) *spanFrames {
	f := &spanFrames{after: &frame.Frame{Header: *s.after, Strings: []string{""}}, strings: map[string]uint64{"": 0}}
	switch {
	case s.before == s.after:
		f.before = f.after
	case s.before != nil:
		f.before = &frame.Frame{Header: *s.before}
	}
	for side := range f.tables {
		for t := range frame.NumTables {
			f.tables[side][t] = newTable(t)
		}
	}
	return f
}

func (f *spanFrames) id(text string) uint64 {
	id, ok := f.strings[text]
	if !ok {
		id = uint64(len(f.after.Strings))
		f.strings[text] = id
		f.after.Strings = append(f.after.Strings, text)
	}
	return id
}

func (f *spanFrames) span() frame.Span {
	for t := range frame.NumTables {
		f.after.Tables[t] = f.tables[0][t].finish()
		if f.before != nil && f.before != f.after {
			f.before.Tables[t] = f.tables[1][t].finish()
		}
	}
	if f.before != nil {
		f.before.Strings = f.after.Strings
	}
	return frame.Span{Before: f.before, After: f.after}
}

// table is a frame.Table to which rows are added.
type table struct {
	frame.Table
	some, any []bool
}

func newTable(t frame.TableID) *table {
	info := &frame.Schema[t]
	return &table{Table: frame.Table{Attributes: make([][]uint64, len(info.Attributes)),
		Columns: make([]frame.Values, len(info.Columns)), Histograms: make([]frame.Histograms, len(info.Histograms))},
		some: make([]bool, len(info.Columns)), any: make([]bool, len(info.Histograms))}
}

// add begins a row.
func (t *table) add(id uint32, attributes []uint64) {
	row := len(t.IDs)
	t.IDs = append(t.IDs, id)
	for a, v := range attributes {
		t.Attributes[a] = append(t.Attributes[a], v)
	}
	for c := range t.Columns {
		t.Columns[c].Of = append(t.Columns[c].Of, 0)
		if row&63 == 0 {
			t.Columns[c].Missing = append(t.Columns[c].Missing, 0)
		}
		t.Columns[c].Missing[row>>6] |= 1 << (row & 63)
	}
}

// set sets a column of the newest row.
func (t *table) set(column int, n uint64) {
	c, row := &t.Columns[column], len(t.IDs)-1
	c.Of[row] = n
	c.Missing[row>>6] &^= 1 << (row & 63)
	t.some[column] = true
}

// gain is what a histogram gained.
type gain struct {
	there                 bool // there are durations in the later frame
	sumNS, zero, overflow uint64
	bucket                []int32
	count                 []uint64
}

func (t *table) addHistogram(column int, g *gain) {
	h := &t.Histograms[column]
	h.SumNS, h.Zero, h.Overflow = append(h.SumNS, g.sumNS), append(h.Zero, g.zero), append(h.Overflow, g.overflow)
	h.Bucket, h.Count = append(h.Bucket, g.bucket...), append(h.Count, g.count...)
	h.End = append(h.End, uint32(len(h.Bucket)))
	t.any[column] = t.any[column] || len(g.bucket) > 0 || g.zero > 0 || g.overflow > 0
}

// finish drops columns that are empty, and marks that mark nothing.
func (t *table) finish() frame.Table {
	for i := range t.Columns {
		c := &t.Columns[i]
		missing := false
		for _, word := range c.Missing {
			missing = missing || word != 0
		}
		if !t.some[i] {
			*c = frame.Values{}
		} else if !missing {
			c.Missing = nil
		}
	}
	for i := range t.Histograms {
		if !t.any[i] {
			t.Histograms[i] = frame.Histograms{}
		}
	}
	return t.Table
}

// answer is one to a query of a difference.
type answer struct {
	body io.ReadCloser
	err  error
}

func (a answer) close() {
	if a.err == nil {
		a.body.Close()
	}
}

// read reads it into frames, which are in the order of its rows.
func (a answer) read(d *difference, frames []*spanFrames) error {
	if a.err != nil {
		return a.err
	}
	defer a.body.Close()
	r := newReader(a.body)
	row := rowReader{reader: r, d: d, attributes: make([]uint64, len(d.info.Attributes))}
	for r.more() {
		host, epoch := r.text(), r.uint64()
		for len(frames) > 0 && (frames[0].after.Host != host || frames[0].after.Epoch != epoch) {
			frames = frames[1:]
		}
		if r.err == nil && len(frames) == 0 {
			return fmt.Errorf("ClickHouse answered a row of %q that was not asked for", host)
		}
		if r.err == nil {
			row.read(frames[0])
		}
	}
	return r.err
}

type rowReader struct {
	*reader
	d          *difference
	attributes []uint64
	gain       gain
}

func (r *rowReader) read(f *spanFrames) {
	id, in := r.uint32(), r.uint8()
	for a := range r.attributes {
		if r.d.info.Attributes[a].Kind == frame.Text {
			r.attributes[a] = f.id(r.text())
		} else {
			r.attributes[a] = r.uint64()
		}
	}
	var after, before *table
	if in&inAfter != 0 {
		after = f.tables[0][r.d.table]
		after.add(id, r.attributes)
	}
	if in&inBefore != 0 {
		before = f.tables[1][r.d.table]
		before.add(id, r.attributes)
	}
	if r.d.isList() {
		return
	}
	if r.d.lasts() {
		state := r.uint64()
		if before != nil {
			before.Attributes[frame.State][len(before.IDs)-1] = state
		}
	}
	r.readColumns(after, before)
	for i := range r.d.info.Histograms {
		if !r.d.only.HasHistogram(r.d.table, i) {
			r.gain = gain{}
			if after != nil {
				after.addHistogram(i, &r.gain)
			}
			if before != nil {
				before.addHistogram(i, &r.gain)
			}
			continue
		}
		r.readHistogram(after == nil)
		if after == nil {
			before.addHistogram(i, &r.gain)
			continue
		}
		var was gain
		if g := &r.gain; before != nil && g.there && len(g.bucket) == 0 && g.zero == 0 && g.overflow == 0 {
			// It has durations, none of which are of the window: both frames have the same one.
			g.zero, was.zero = 1, 1
		}
		after.addHistogram(i, &r.gain)
		if before != nil {
			before.addHistogram(i, &was)
		}
	}
}

func (r *rowReader) readColumns(after, before *table) {
	for i := range r.d.info.Columns {
		if !r.d.only.HasColumn(r.d.table, i) {
			continue
		}
		n, ok := r.nullable()
		if r.d.both[i] {
			was, known := r.nullable()
			if ok && after != nil {
				after.set(i, n)
			}
			if known && before != nil {
				before.set(i, was)
			}
			continue
		}
		switch gained := int64(n); {
		case !ok:
		case after == nil && gained < 0:
			before.set(i, uint64(-1-gained))
		case after != nil && gained >= 0:
			after.set(i, n)
			if before != nil {
				before.set(i, 0)
			}
		}
	}
}

// readHistogram reads what one gained, or what it had if its row is only in the earlier frame.
func (r *rowReader) readHistogram(removed bool) {
	g := &r.gain
	g.there = false
	number := func() uint64 {
		now, was := r.uint64(), r.uint64()
		if removed {
			return was
		}
		g.there = g.there || now > 0
		if was > now {
			return 0
		}
		return now - was
	}
	g.sumNS, g.zero, g.overflow = number(), number(), number()
	g.there = r.uint64() > 0 || g.there
	g.bucket, g.count = g.bucket[:0], g.count[:0]
	for range r.length(4) {
		g.bucket = append(g.bucket, int32(r.uint32()))
	}
	kept := g.bucket[:0]
	for i := range r.length(8) {
		n := int64(r.uint64())
		if removed {
			n = -n
		}
		if n > 0 && i < len(g.bucket) {
			kept, g.count = append(kept, g.bucket[i]), append(g.count, uint64(n))
		}
	}
	g.bucket = kept
}
