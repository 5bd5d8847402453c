package frame

import (
	"fmt"
	"sync"
	"unsafe"

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

// DecodeOnly decodes what is chosen of a key frame; all where only is nil. Tables that are not chosen have no rows, and
// columns no values. Of a frame that is no key frame, only is not looked at: it is decoded as far as its key frame was.
func DecodeOnly(data []byte, key *Frame, only *Projection) (*Frame, error) {
	return decode(data, key, only, nil, nil)
}

// DecodeInto is DecodeOnly of a frame of a window: into memory that is used again, and its histograms are for a Difference
// alone, which adds them up out of what was told. The key frame is one of DecodeInto, too.
func DecodeInto(memory *Memory, data []byte, key *Frame, only *Projection) (*Frame, error) {
	return decode(data, key, only, nil, memory)
}

// DecodeWithin is DecodeOnly that asks grow for memory before it takes it: so many bytes more, in all about what the
// frame and its decompressed blocks take. An error of grow ends it, and is its error.
func DecodeWithin(data []byte, key *Frame, only *Projection, grow func(bytes int64) error) (*Frame, error) {
	return decode(data, key, only, grow, nil)
}

func decode(data []byte, key *Frame, only *Projection, grow func(bytes int64) error, memory *Memory) (*Frame, error) {
	h, e, err := decodeHeader(data)
	if err != nil {
		return nil, err
	}
	f := &Frame{Header: h, only: only, told: memory != nil, memory: memory}
	if h.IsKey() {
		key = nil
		if f.layout, err = layoutOf(e.blocks[schemaBlock]); err != nil {
			return nil, err
		}
	} else {
		if !h.IsOf(key) {
			return nil, fmt.Errorf("%w: frame %d of %s, key %d", ErrNoKey, h.Number, h.Host, h.Key)
		}
		if f.layout = key.layout; f.layout == nil {
			f.layout = ownSchema().layout
		}
		f.only, f.told = key.only, key.told
	}
	d := parsers.Get().(*parser)
	d.grow, d.memory, d.own = grow, memory, memory.takeParts()
	defer d.release()
	if err := d.decode(f, key, &e); err != nil {
		return nil, err
	}
	return f, nil
}

// parser has the memory of a Decode. Nothing of it is part of the frame.
type parser struct {
	// raw is what was decompressed, size how much that is; apart are sections that were not.
	raw   []byte
	size  int
	apart []byte
	// tables are the sections of the tables that are told, parts those of all their columns.
	tables [NumTables]tableSection
	parts  [][]byte
	same   []segment

	f, key *Frame
	err    error
	// grow is asked for memory; nil where there is no bound but those of the format.
	grow   func(bytes int64) error
	memory *Memory
	own    *parts
	// What is allocated for the frame, of which slices are cut off. They may have any contents.
	values  []uint64
	counts  []uint64
	numbers []uint32
	indexes []int32
	bytes   []byte
	lists   [][]uint64
	columns []Values
	charts  []Histograms
	told    []toldHistograms
}

var parsers = sync.Pool{New: func() any { return &parser{} }}

// keptMemory is how much memory for decompressed bytes is kept for the next frame.
const keptMemory = 4 << 20

func (d *parser) release() {
	d.grow, d.memory, d.own, d.apart = nil, nil, nil, nil
	d.f, d.key, d.values, d.counts, d.numbers, d.indexes, d.bytes = nil, nil, nil, nil, nil, nil, nil
	d.lists, d.columns, d.charts, d.told = nil, nil, nil, nil
	if cap(d.raw) > keptMemory {
		d.raw = nil
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
type need struct{ values, buckets, numbers, bytes, lists, columns, charts, told int }

// absent are tables without rows, whose columns are empty.
var absent = func() (all [NumTables]Table) {
	for t := range all {
		all[t] = Table{Attributes: make([][]uint64, len(Schema[t].Attributes)), Columns: make([]Values,
			len(Schema[t].Columns)), Histograms: make([]Histograms, len(Schema[t].Histograms))}
	}
	return all
}()

func (d *parser) decode(f, key *Frame, e *encoded) (err error) {
	d.f, d.key, d.err, d.parts = f, key, nil, d.parts[:0]
	d.raw, d.size, d.apart = d.raw[:0], 0, e.apart
	for t := range f.Tables {
		d.tables[t] = tableSection{}
		f.Tables[t] = absent[t]
		if key != nil && len(key.Tables[t].IDs) > 0 && f.only.table(t) {
			f.Tables[t] = key.Tables[t]
		}
	}
	var needs need
	r := &reader{b: d.decompress(e.blocks[mainBlock])}
	d.strings(r)
	for i := range f.layout.tables {
		d.section(r, &f.layout.tables[i], &needs)
	}
	if d.err == nil && (r.failed || r.left() > 0) {
		d.fail("its main block")
	}
	if d.err != nil {
		return d.err
	}
	if len(f.Strings) == 0 || f.Strings[0] != "" {
		return malformed("the first text is not empty")
	}
	if needs.values+needs.buckets > MaxValues || needs.numbers > MaxValues {
		return malformed("%d values, %d buckets", needs.values, needs.buckets)
	}
	if d.reserve(needs.memory()); d.err != nil {
		return d.err
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

// reserve asks for memory.
func (d *parser) reserve(bytes int) {
	if d.grow != nil && d.err == nil {
		d.err = d.grow(int64(bytes))
	}
}

// decompress decompresses bytes of the frame; nil where that fails.
func (d *parser) decompress(b block) []byte {
	if d.size += b.size; d.size > MaxBlock {
		d.fail("%d bytes uncompressed", d.size)
		return nil
	}
	if d.reserve(b.size); d.err != nil {
		return nil
	}
	if free := cap(d.raw) - len(d.raw); free < b.size {
		d.raw = make([]byte, 0, max(b.size, 2*cap(d.raw), 1<<14)) // what is in the old memory is still read
	}
	raw, err := decompress(d.raw[len(d.raw):], b)
	if err != nil {
		if d.err == nil {
			d.err = err
		}
		return nil
	}
	d.raw = d.raw[:len(d.raw)+len(raw)]
	return raw
}

// strings reads the texts that are new.
func (d *parser) strings(r *reader) {
	n := r.count(min(MaxStrings, r.left()))
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
		if r.failed || sum > r.left() {
			d.fail("its texts are longer than it")
			return
		}
	}
	if d.reserve(sum + (len(old)+n)*int(unsafe.Sizeof(""))); d.err != nil {
		return
	}
	text := string(r.take(uint64(sum)))
	d.own.strings = emptied(d.own.strings, len(old)+n)
	all := d.own.strings
	for i := copy(all, old); i < len(all); i++ {
		n := lengths.uvarint()
		all[i], text = text[:n], text[n:]
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
	if l.id < 0 || !d.f.only.table(l.id) || section.left() == 0 {
		return
	}
	s, t := &d.tables[l.id], l.id
	old := d.old(TableID(t))
	s.told = true
	s.removed, s.added = section.count(len(old.IDs)), section.count(min(MaxRows, section.left()))
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
	if section.failed || section.left() > 0 {
		d.fail("the columns of %s", Schema[t].Name)
	}
	if d.err != nil {
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
		length := r.uvarint()
		if length&1 == 0 {
			if part := r.take(length >> 1); i >= 0 && len(part) > 0 && wanted(i) {
				all[i] = part
			}
			continue
		}
		begin, n := r.uvarint(), r.uvarint()
		if i < 0 || !wanted(i) {
			continue
		}
		if length>>1 > MaxBlock || begin > uint64(len(d.apart)) || n > uint64(len(d.apart))-begin {
			d.fail("a section of %d bytes at %d, of %d", n, begin, len(d.apart))
			return all
		}
		all[i] = d.decompress(block{d.apart[begin : begin+n], int(length >> 1)})
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
		if part != nil && (part[0]&hasValues == 0 || isZero(part, was)) || part == nil && (len(was.Of) == 0 || s.identical) {
			continue
		}
		needs.values += s.rows
		if was.Missing != nil || part != nil && part[0]&hasMissing != 0 {
			needs.values += words
		}
	}
	for i, part := range s.histograms {
		if part == nil {
			if !old.Histograms[i].isEmpty() && !s.identical {
				d.fail("the histograms of %s are not told", Schema[t].Name)
			}
			continue
		}
		if part[0]&hasValues == 0 {
			continue
		}
		if d.f.told {
			was := len(old.Histograms[i].told)
			needs.told += was + 1
			needs.bytes += len(part)
			if needs.numbers += s.rows; !s.identical {
				needs.numbers += was * s.rows
			}
			continue
		}
		buckets, _, ok := readTotal(&old.Histograms[i], part)
		if !ok {
			d.fail("the number of buckets of %s", Schema[t].Name)
		}
		needs.values += 3 * s.rows
		needs.numbers += s.rows
		needs.buckets += buckets
	}
}

// memory is how many bytes it takes.
func (n *need) memory() int {
	return 8*n.values + 12*n.buckets + 4*n.numbers + n.bytes + n.lists*int(unsafe.Sizeof([]uint64{})) +
		n.columns*int(unsafe.Sizeof(Values{})) + n.charts*int(unsafe.Sizeof(Histograms{})) +
		n.told*int(unsafe.Sizeof(toldHistograms{}))
}

func (d *parser) allocate(n *need) {
	d.values, d.counts, d.indexes = d.memory.takeWords(n.values), make([]uint64, n.buckets), make([]int32, n.buckets)
	d.numbers, d.bytes = d.memory.takeNumbers(n.numbers), d.memory.takeBytes(n.bytes)
	own := d.own
	own.lists, own.columns = emptied(own.lists, n.lists), emptied(own.columns, n.columns)
	own.charts, own.told = emptied(own.charts, n.charts), emptied(own.told, n.told)
	d.lists, d.columns, d.charts, d.told = own.lists, own.columns, own.charts, own.told
}

// cut takes the first n of all.
func cut[T any](all *[]T, n int) []T {
	part := (*all)[:n:n]
	*all = (*all)[n:]
	return part
}
