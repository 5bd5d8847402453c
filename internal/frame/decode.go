package frame

import (
	"fmt"
	"slices"
	"sync"

	"outsight/internal/model"
)

const (
	minBucket = model.MinBucket
	maxBucket = model.MaxBucket
)

// Decode decodes a frame. key is the key frame that the frame's header names, as Decode or a Builder made it; it is not
// looked at when the frame is a key frame itself. Frames may share memory with their key frame. Errors are ErrNoKey, and
// ErrMalformed with what was wrong.
func Decode(data []byte, key *Frame) (*Frame, error) { return DecodeOnly(data, key, nil) }

// DecodeOnly decodes what is chosen of a frame; all where only is nil. Tables that are not chosen have no rows, and columns
// no values. A frame that is no key frame is decoded as far as its key frame was.
func DecodeOnly(data []byte, key *Frame, only *Projection) (*Frame, error) {
	h, blocks, err := decodeHeader(data)
	if err != nil {
		return nil, err
	}
	f := &Frame{Header: h, only: only}
	if h.IsKey() {
		key = nil
		if f.layout, err = layoutOf(blocks[schemaBlock]); err != nil {
			return nil, err
		}
	} else {
		if key == nil || key.Number != h.Key || key.Epoch != h.Epoch || key.Host != h.Host || !key.IsKey() {
			return nil, fmt.Errorf("%w: frame %d of %s, key %d", ErrNoKey, h.Number, h.Host, h.Key)
		}
		if f.layout = key.layout; f.layout == nil {
			f.layout = ownSchema().layout
		}
		if key.only != nil {
			f.only = key.only
		}
	}
	d := parsers.Get().(*parser)
	defer d.release()
	if err := d.decode(f, key, &blocks); err != nil {
		return nil, err
	}
	return f, nil
}

// parser has the memory of a Decode. Nothing of it is part of the frame.
type parser struct {
	raw [numBlocks][]byte
	// tables are the sections of the tables that are told, parts those of all their columns.
	tables [NumTables]tableSection
	parts  [][]byte
	same   []segment

	f, key *Frame
	err    error
	// What is allocated for the frame, of which slices are cut off.
	values  []uint64
	numbers []uint32
	indexes []int32
	lists   [][]uint64
	columns []Values
	charts  []Histograms
}

var parsers = sync.Pool{New: func() any { return &parser{} }}

// keptMemory is how much memory for decompressed bytes is kept for the next frame.
const keptMemory = 4 << 20

func (d *parser) release() {
	d.f, d.key, d.values, d.numbers, d.indexes, d.lists, d.columns, d.charts = nil, nil, nil, nil, nil, nil, nil, nil
	for i := range d.raw {
		if cap(d.raw[i]) > keptMemory {
			d.raw[i] = nil
		}
	}
	parsers.Put(d)
}

// tableSection is a table that is told.
type tableSection struct {
	told, identical      bool
	rows, removed, added int
	ids                  reader
	// attributes, columns and histograms are sections by the indexes of Schema; nil for one that is not told.
	attributes, columns, histograms [][]byte
}

// need is what is to be allocated.
type need struct{ values, numbers, indexes, lists, columns, charts int }

// absent are tables without rows, whose columns are empty.
var absent = func() (all [NumTables]Table) {
	for t := range all {
		all[t] = Table{Attributes: make([][]uint64, len(Schema[t].Attributes)), Columns: make([]Values,
			len(Schema[t].Columns)), Histograms: make([]Histograms, len(Schema[t].Histograms))}
	}
	return all
}()

func (d *parser) decode(f, key *Frame, blocks *[numBlocks]block) (err error) {
	d.f, d.key, d.err, d.parts = f, key, nil, d.parts[:0]
	for t := range f.Tables {
		d.tables[t] = tableSection{}
		f.Tables[t] = absent[t]
		if key != nil && len(key.Tables[t].IDs) > 0 && f.only.table(t) {
			f.Tables[t] = key.Tables[t]
		}
	}
	var needs need
	for b := mainBlock; b < numBlocks; b++ {
		if blocks[b].size == 0 || b == labelledBlock && !f.only.table(int(Labelled)) {
			continue
		}
		if d.raw[b], err = decompress(d.raw[b], blocks[b]); err != nil {
			return err
		}
		r := &reader{b: d.raw[b]}
		if b == mainBlock {
			d.strings(r)
		}
		for i := range f.layout.tables {
			if l := &f.layout.tables[i]; l.block == b {
				d.section(r, l, &needs)
			}
		}
		if d.err == nil && (r.failed || len(r.b) > 0) {
			d.err = malformed("block %d", b)
		}
		if d.err != nil {
			return d.err
		}
	}
	if len(f.Strings) == 0 || f.Strings[0] != "" {
		return malformed("the first text is not empty")
	}
	if needs.values > MaxValues || needs.indexes > MaxValues || needs.numbers > MaxValues {
		return malformed("%d values, %d buckets", needs.values, needs.indexes)
	}
	d.allocate(&needs)
	for t := range d.tables {
		if s := &d.tables[t]; s.told {
			if d.fill(TableID(t), s); d.err != nil {
				return d.err
			}
		}
	}
	if f.only.table(int(Hosts)) && len(f.Tables[Hosts].IDs) != 1 {
		return malformed("%d hosts", len(f.Tables[Hosts].IDs))
	}
	return nil
}

func (d *parser) fail(format string, args ...any) {
	if d.err == nil {
		d.err = malformed(format, args...)
	}
}

// strings reads the texts that are new.
func (d *parser) strings(r *reader) {
	n := r.count(min(MaxStrings, len(r.b)))
	var old []string
	if d.key != nil {
		old = d.key.Strings
	}
	if len(old)+n > MaxStrings {
		d.fail("%d texts", len(old)+n)
		return
	}
	if n == 0 {
		d.f.Strings = old
		return
	}
	lengths := *r
	sum := 0
	for range n {
		sum += r.count(MaxBlock)
		if sum > len(r.b) {
			d.fail("its texts are longer than it")
			return
		}
	}
	text := string(r.b[:sum])
	r.b = r.b[sum:]
	all := append(make([]string, 0, len(old)+n), old...)
	for range n {
		n := lengths.uvarint()
		all = append(all, text[:n])
		text = text[n:]
	}
	d.f.Strings = all
}

// old is a table of the key frame.
func (d *parser) old(t TableID) *Table {
	if d.key == nil || len(d.key.Tables[t].IDs) == 0 {
		return &absent[t]
	}
	return &d.key.Tables[t]
}

// section finds the sections of a table, and adds what it needs.
func (d *parser) section(r *reader, l *tableLayout, needs *need) {
	section := reader{b: r.bytes()}
	if l.id < 0 || !d.f.only.table(l.id) || len(section.b) == 0 {
		return
	}
	s, t := &d.tables[l.id], l.id
	old := d.old(TableID(t))
	s.told = true
	s.removed, s.added = section.count(len(old.IDs)), section.count(min(MaxRows, len(section.b)))
	s.rows = len(old.IDs) - s.removed + s.added
	s.identical = s.removed+s.added == 0
	s.ids = section
	for range s.removed + s.added {
		section.uvarint()
	}
	if section.failed || s.rows > MaxRows {
		d.fail("the rows of %s", Schema[t].Name)
		return
	}
	s.attributes = d.sections(&section, l.attributes, len(Schema[t].Attributes), func(int) bool { return true })
	s.columns = d.sections(&section, l.columns, len(Schema[t].Columns), func(i int) bool { return d.f.only.column(t, i) })
	s.histograms = d.sections(&section, l.histograms, len(Schema[t].Histograms),
		func(i int) bool { return d.f.only.histogram(t, i) })
	if section.failed || len(section.b) > 0 {
		d.fail("the columns of %s", Schema[t].Name)
		return
	}
	d.count(s, old, TableID(t), needs)
}

// sections finds the sections of columns by the sender's order of them.
func (d *parser) sections(r *reader, at []int, own int, wanted func(int) bool) [][]byte {
	begin := len(d.parts)
	d.parts = append(d.parts, make([][]byte, own)...)
	all := d.parts[begin : begin+own : begin+own]
	for _, i := range at {
		if part := r.bytes(); i >= 0 && len(part) > 0 && wanted(i) {
			all[i] = part
		}
	}
	return all
}

// count adds what a table needs. What is as in the key frame needs nothing if the rows are the same.
func (d *parser) count(s *tableSection, old *Table, t TableID, needs *need) {
	words := (s.rows + 63) / 64
	needs.lists += len(s.attributes)
	needs.columns += len(s.columns)
	needs.charts += len(s.histograms)
	if !s.identical {
		needs.numbers += s.rows
	}
	for i, part := range s.attributes {
		if part != nil || !s.identical || len(old.Attributes[i]) != s.rows {
			needs.values += s.rows
		}
	}
	for i, part := range s.columns {
		was := &old.Columns[i]
		if part != nil && part[0]&hasValues == 0 || part == nil && (len(was.Of) == 0 || s.identical) {
			continue
		}
		needs.values += s.rows
		if was.Missing != nil || part != nil && part[0]&hasMissing != 0 {
			needs.values += words
		}
	}
	for i, part := range s.histograms {
		if part == nil {
			if len(old.Histograms[i].End) > 0 && !s.identical {
				d.fail("the histograms of %s are not told", Schema[t].Name)
			}
			continue
		}
		if part[0]&hasValues == 0 {
			continue
		}
		buckets, _, ok := readTotal(&old.Histograms[i], part)
		if !ok {
			d.fail("the number of buckets of %s", Schema[t].Name)
		}
		needs.values += 3*s.rows + buckets
		needs.numbers += s.rows
		needs.indexes += buckets
	}
}

func (d *parser) allocate(n *need) {
	d.values, d.numbers, d.indexes = make([]uint64, n.values), make([]uint32, n.numbers), make([]int32, n.indexes)
	d.lists, d.columns, d.charts = make([][]uint64, n.lists), make([]Values, n.columns), make([]Histograms, n.charts)
}

// cut takes the first n of all.
func cut[T any](all *[]T, n int) []T {
	part := (*all)[:n:n]
	*all = (*all)[n:]
	return part
}

// fill makes a table of its sections.
func (d *parser) fill(t TableID, s *tableSection) {
	old := d.old(t)
	info := &Schema[t]
	to := &d.f.Tables[t]
	*to = Table{IDs: old.IDs, Attributes: cut(&d.lists, len(s.attributes)), Columns: cut(&d.columns, len(s.columns)),
		Histograms: cut(&d.charts, len(s.histograms))}
	if d.readIDs(to, old.IDs, s); d.err != nil {
		return
	}
	for i, part := range s.attributes {
		was := old.Attributes[i]
		if part == nil && s.identical && len(was) == s.rows {
			to.Attributes[i] = was
			continue
		}
		to.Attributes[i] = d.gather(was, s)
		d.readRuns(to.Attributes[i], part)
		if part != nil {
			d.check(t, Attribute(i), to.Attributes[i])
		}
	}
	for i, part := range s.columns {
		d.readColumn(&to.Columns[i], &old.Columns[i], part, s)
	}
	for i, part := range s.histograms {
		switch {
		case part == nil:
			to.Histograms[i] = old.Histograms[i]
		case part[0]&hasValues != 0:
			d.readHistograms(&to.Histograms[i], &old.Histograms[i], part, s)
		case len(part) > 1 || part[0] != 0:
			d.fail("a column without histograms has some")
		}
	}
	if d.err != nil {
		d.err = fmt.Errorf("%w, in %s", d.err, info.Name)
	}
}

// readIDs reads which rows there are, and finds those that were there before.
func (d *parser) readIDs(to *Table, old []uint32, s *tableSection) {
	d.same = d.same[:0]
	if s.identical {
		if s.rows > 0 {
			d.same = append(d.same, segment{0, 0, s.rows})
		}
		return
	}
	to.IDs = cut(&d.numbers, s.rows)
	r := s.ids
	added := r
	for range s.removed {
		added.uvarint()
	}
	gone := -1
	next := func() {
		if s.removed == 0 {
			gone = len(old)
			return
		}
		s.removed--
		gone += 1 + r.count(MaxRows)
		if gone >= len(old) {
			d.fail("a row that is removed is not there")
			gone = len(old)
		}
	}
	fresh := uint64(0)
	nextAdded := func() {
		if s.added == 0 {
			fresh = 1 << 32
			return
		}
		s.added--
		if fresh += 1 + uint64(added.count(1<<32-1)); fresh >= 1<<32 {
			d.fail("the number of a row")
		}
	}
	next()
	nextAdded()
	row := 0
	for j := 0; ; {
		if j == gone {
			j++
			next()
			continue
		}
		if fresh < 1<<32 && (j >= len(old) || fresh < uint64(old[j])) {
			if row < len(to.IDs) {
				to.IDs[row] = uint32(fresh)
			}
			row++
			nextAdded()
			continue
		}
		if j >= len(old) || d.err != nil {
			break
		}
		if fresh == uint64(old[j]) {
			d.fail("a row is added that is there")
			return
		}
		if row < len(to.IDs) {
			to.IDs[row] = old[j]
		}
		if last := len(d.same) - 1; last >= 0 && d.same[last].to+d.same[last].n == row &&
			d.same[last].from+d.same[last].n == j {
			d.same[last].n++
		} else {
			d.same = append(d.same, segment{row, j, 1})
		}
		row++
		j++
	}
	if row != len(to.IDs) {
		d.fail("its rows")
	}
}

// gather takes memory for the values of all rows, with what they have in the key frame.
func (d *parser) gather(old []uint64, s *tableSection) []uint64 {
	to := cut(&d.values, s.rows)
	if len(old) > 0 {
		for _, same := range d.same {
			copy(to[same.to:same.to+same.n], old[same.from:])
		}
	}
	return to
}

// readRuns adds what rows gained.
func (d *parser) readRuns(to []uint64, part []byte) {
	r := reader{b: part}
	for len(r.b) > 0 {
		skip, n := r.count(len(to)), r.count(len(to))
		if r.failed || skip+n > len(to) || n > len(r.b) {
			d.fail("a run of %d values behind %d, of %d rows", n, skip, len(to))
			return
		}
		for i := range to[skip : skip+n] {
			to[skip+i] += unzigzag(r.uvarint())
		}
		if to = to[skip+n:]; r.failed {
			d.fail("a value")
			return
		}
	}
}

func (d *parser) readColumn(to, old *Values, part []byte, s *tableSection) {
	if part == nil && (len(old.Of) == 0 || s.identical) {
		*to = *old
		return
	}
	if part != nil && part[0]&hasValues == 0 {
		if len(part) > 1 || part[0] != 0 {
			d.fail("a column without values has some")
		}
		return
	}
	told := part != nil && part[0]&hasMissing != 0
	to.Of = d.gather(old.Of, s)
	if old.Missing != nil {
		zeroMissingRows(to.Of, old, d.same)
	}
	if old.Missing != nil || told {
		to.Missing = cut(&d.values, (s.rows+63)/64)
		gatherBits(to.Missing, old.Missing, d.same)
	}
	if part == nil {
		return
	}
	if part[0] > hasValues|hasMissing {
		d.fail("flags %#x of a column", part[0])
		return
	}
	part = part[1:]
	if told {
		part = d.readMissing(to.Missing, part, s.rows)
	}
	d.readRuns(to.Of, part)
	if !slices.ContainsFunc(to.Missing, func(bits uint64) bool { return bits != 0 }) {
		to.Missing = nil
	}
}

// zeroMissingRows makes values 0 that are missing in the key frame.
func zeroMissingRows(to []uint64, old *Values, same []segment) {
	for _, s := range same {
		for i := range s.n {
			if from := s.from + i; old.Missing[from>>6]>>(from&63)&1 != 0 {
				to[s.to+i] = 0
			}
		}
	}
}

// readMissing changes bits in runs of rows. It answers what is behind them.
func (d *parser) readMissing(bits []uint64, part []byte, rows int) []byte {
	r := reader{b: part}
	at := 0
	for range r.count(rows) {
		skip, n := r.count(rows), r.count(rows)
		at += skip
		if r.failed || at+n > rows {
			d.fail("a run of %d missing values from row %d on, of %d", n, at, rows)
			return nil
		}
		for ; n > 0; n-- {
			bits[at>>6] ^= 1 << (at & 63)
			at++
		}
	}
	if r.failed {
		d.fail("missing values")
	}
	return r.b
}

// check holds the values of an attribute against what it is.
func (d *parser) check(t TableID, a Attribute, values []uint64) {
	info := &Schema[t].Attributes[a]
	limit := ^uint64(0)
	switch info.Kind {
	case Text:
		limit = uint64(len(d.f.Strings)) - 1
	case Reference:
		limit = 1<<32 - 1
	case Instant:
		limit = maxMillis
	case Number:
		limit = 1<<32 - 1
		switch {
		case t == Labelled && a == LabelledTable:
			limit = uint64(NumTables) - 1
		case info.Name == "state":
			limit = Summed
		case t == Edges && a == EdgeSide, t == Edges && a == EdgeTransport:
			limit = 255
		}
	}
	for _, v := range values {
		if v > limit {
			d.fail("%s %d", info.Name, v)
			return
		}
	}
}
