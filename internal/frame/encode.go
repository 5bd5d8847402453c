package frame

import (
	"encoding/binary"
	"slices"
	"sync"
)

// Encode appends an encoded frame to dst. A key frame is told completely, and key is not looked at; any other frame is
// told as changes of key, which is the key frame that its header names. It panics where key is another one: the two come
// of the same Builder.
func Encode(dst []byte, f, key *Frame) []byte {
	if f.told {
		panic("BUG: a frame of a window is encoded: it has no histograms")
	}
	if f.IsKey() {
		key = nil
	} else if !f.IsOf(key) || len(key.Strings) > len(f.Strings) {
		panic("BUG: the key frame is another one")
	}
	added, old := f.Strings, []Table(nil)
	e := encoded{}
	if key != nil {
		added, old = added[len(key.Strings):], key.Tables[:]
	} else {
		e.blocks[schemaBlock] = ownSchema().block
	}
	return encode(dst, &f.Header, &e, added, f.Tables[:], old, Schema[:])
}

// encode encodes tables that have what schema says. old are those of the key frame, none for a key frame.
func encode(dst []byte, h *Header, e *encoded, added []string, tables, old []Table, schema []TableInfo) []byte {
	w := writers.Get().(*writer)
	defer writers.Put(w)
	w.raw, w.apart = w.raw[:0], w.apart[:0]
	w.strings(added)
	w.tables(tables, old, schema)
	w.compressed = compress(w.compressed[:0], w.raw)
	e.blocks[mainBlock], e.apart = block{w.compressed, len(w.raw)}, w.apart
	dst = appendHeader(dst, h, e)
	for i := range e.blocks {
		dst = append(dst, e.blocks[i].compressed...)
	}
	return append(dst, e.apart...)
}

// apartFrom is the length from which on a section is compressed by itself.
const apartFrom = 512

// writer has the memory of an Encode.
type writer struct {
	raw, compressed []byte
	// apart are the sections that are compressed by themselves.
	apart []byte
	// table is the section of a table, part that of a column in it.
	table, part []byte
	// same are the rows that are in the key frame too, at once where they lie in the same order behind each other.
	same      []segment
	identical bool
	rows      int
	// base are the values of the key frame in the order of the rows, values those of the frame without what is missing.
	base, values []uint64
	bits         []uint64
	gains        []gain
}

// segment says that n rows from to on are those of the key frame from from on.
type segment struct{ to, from, n int }

var writers = sync.Pool{New: func() any { return &writer{} }}

var emptyTable Table

func (w *writer) strings(added []string) {
	w.raw = binary.AppendUvarint(w.raw, uint64(len(added)))
	for _, s := range added {
		w.raw = binary.AppendUvarint(w.raw, uint64(len(s)))
	}
	for _, s := range added {
		w.raw = append(w.raw, s...)
	}
}

// tables appends all tables, each with its length in front.
func (w *writer) tables(tables, old []Table, schema []TableInfo) {
	for t := range tables {
		was := &emptyTable
		if len(old) > 0 {
			was = &old[t]
		}
		w.table = w.table[:0]
		apart := len(w.apart)
		if !w.writeTable(&tables[t], was, &schema[t]) {
			w.table, w.apart = w.table[:0], w.apart[:apart] // as in the key frame
		}
		w.raw = binary.AppendUvarint(w.raw, uint64(len(w.table)))
		w.raw = append(w.raw, w.table...)
	}
}

// endSection appends a section to the table, or puts it where large ones are, compressed.
func (w *writer) endSection(compressed func(dst, raw []byte) []byte) {
	if len(w.part) < apartFrom {
		w.table = binary.AppendUvarint(w.table, uint64(len(w.part))<<1)
		w.table = append(w.table, w.part...)
		return
	}
	begin := len(w.apart)
	w.apart = compressed(w.apart, w.part)
	w.table = binary.AppendUvarint(w.table, uint64(len(w.part))<<1|1)
	w.table = binary.AppendUvarint(w.table, uint64(begin))
	w.table = binary.AppendUvarint(w.table, uint64(len(w.apart)-begin))
}

// writeTable reports whether the table is another one than that of the key frame.
func (w *writer) writeTable(now, old *Table, info *TableInfo) (changed bool) {
	w.rows = len(now.IDs)
	changed = w.writeIDs(now.IDs, old.IDs)
	end := func(some bool, compressed func(dst, raw []byte) []byte) {
		if some {
			changed = true
		} else {
			w.part = w.part[:0]
		}
		w.endSection(compressed)
	}
	for a := range info.Attributes {
		w.part = w.part[:0]
		var was []uint64
		if len(old.Attributes) > 0 {
			was = old.Attributes[a]
		}
		var is []uint64
		if len(now.Attributes) > 0 {
			is = now.Attributes[a]
		}
		end(w.writeRuns(is, w.gather(was)), compress)
	}
	for c := range info.Columns {
		w.part = w.part[:0]
		end(w.writeColumn(column(now.Columns, c), column(old.Columns, c)), compress)
	}
	for h := range info.Histograms {
		w.part = w.part[:0]
		end(w.writeHistograms(histograms(now.Histograms, h), histograms(old.Histograms, h)), compressLiterals)
	}
	return changed
}

var (
	noValues     Values
	noHistograms Histograms
)

func column(all []Values, i int) *Values {
	if len(all) == 0 {
		return &noValues
	}
	return &all[i]
}

func histograms(all []Histograms, i int) *Histograms {
	if len(all) == 0 {
		return &noHistograms
	}
	return &all[i]
}

// writeIDs tells which rows there are, and finds those that were there before.
func (w *writer) writeIDs(now, old []uint32) (changed bool) {
	w.same, w.identical, w.part = w.same[:0], true, w.part[:0]
	removed, added := 0, 0
	previous := -1
	for i, j := 0, 0; j < len(old); j++ {
		for i < len(now) && now[i] < old[j] {
			i++
		}
		if i == len(now) || now[i] != old[j] {
			w.part = binary.AppendUvarint(w.part, uint64(j-previous-1))
			previous = j
			removed++
			continue
		}
		if last := len(w.same) - 1; last >= 0 && w.same[last].to+w.same[last].n == i && w.same[last].from+w.same[last].n == j {
			w.same[last].n++
		} else {
			w.same = append(w.same, segment{i, j, 1})
		}
	}
	last := uint32(0)
	for i, j := 0, 0; i < len(now); i++ {
		for j < len(old) && old[j] < now[i] {
			j++
		}
		if j < len(old) && old[j] == now[i] {
			continue
		}
		w.part = binary.AppendUvarint(w.part, uint64(now[i]-last-1))
		last = now[i]
		added++
	}
	w.identical = removed+added == 0
	w.table = binary.AppendUvarint(w.table, uint64(removed))
	w.table = binary.AppendUvarint(w.table, uint64(added))
	w.table = append(w.table, w.part...)
	return !w.identical
}

// gather answers the values that the rows have in the key frame, 0 for new ones.
func (w *writer) gather(old []uint64) []uint64 {
	if w.identical && len(old) == w.rows {
		return old
	}
	w.base = append(w.base[:0], make([]uint64, w.rows)...)
	if len(old) > 0 {
		for _, s := range w.same {
			copy(w.base[s.to:s.to+s.n], old[s.from:])
		}
	}
	return w.base
}

// writeRuns appends the values that are not those of base, in runs: how many rows are passed over, how many follow, and
// what each gained.
func (w *writer) writeRuns(values, base []uint64) (some bool) {
	at := 0
	for i := 0; i < len(values); {
		if values[i] == base[i] {
			i++
			continue
		}
		// A run goes on over one row that is the same: its 0 takes no more than a new run.
		end := i + 1
		for end < len(values) && (values[end] != base[end] || end+1 < len(values) && values[end+1] != base[end+1]) {
			end++
		}
		w.part = binary.AppendUvarint(w.part, uint64(i-at))
		w.part = binary.AppendUvarint(w.part, uint64(end-i))
		for ; i < end; i++ {
			w.part = binary.AppendUvarint(w.part, zigzag(values[i]-base[i]))
		}
		at, some = end, true
	}
	return some
}

// The flags of a column.
const (
	hasValues  = 1
	hasMissing = 2
)

func (w *writer) writeColumn(now, old *Values) (some bool) {
	if len(now.Of) == 0 {
		w.part = append(w.part, 0)
		return len(old.Of) > 0
	}
	values := now.Of
	if now.Missing != nil {
		w.values = append(w.values[:0], values...)
		values = w.values
		zeroMissing(values, now.Missing)
	}
	was := old.Of
	if old.Missing != nil {
		was = slices.Clone(was)
		zeroMissing(was, old.Missing)
	}
	w.part = append(w.part, hasValues)
	some = len(old.Of) == 0
	if now.Missing != nil || old.Missing != nil {
		if w.writeMissing(now.Missing, old.Missing) {
			w.part[0] |= hasMissing
			some = true
		}
	}
	return w.writeRuns(values, w.gather(was)) || some
}

// zeroMissing makes values that are missing 0.
func zeroMissing(values, missing []uint64) {
	for i := range values {
		if missing[i>>6]>>(i&63)&1 != 0 {
			values[i] = 0
		}
	}
}

// writeMissing appends the runs of rows where a value is missing and was not, or the other way round.
func (w *writer) writeMissing(now, old []uint64) (some bool) {
	w.bits = append(w.bits[:0], make([]uint64, (w.rows+63)/64)...)
	gatherBits(w.bits, old, w.same)
	differs := func(i int) bool {
		is := now != nil && now[i>>6]>>(i&63)&1 != 0
		return is != (w.bits[i>>6]>>(i&63)&1 != 0)
	}
	runs, begin := 0, len(w.part)
	at := 0
	for i := 0; i < w.rows; {
		if !differs(i) {
			i++
			continue
		}
		end := i + 1
		for end < w.rows && differs(end) {
			end++
		}
		w.part = binary.AppendUvarint(w.part, uint64(i-at))
		w.part = binary.AppendUvarint(w.part, uint64(end-i))
		i, at = end, end
		runs++
	}
	if runs > 0 {
		w.part = slices.Insert(w.part, begin, binary.AppendUvarint(nil, uint64(runs))...)
	}
	return runs > 0
}

// gatherBits sets the bits that the rows have in the key frame.
func gatherBits(bits, old []uint64, same []segment) {
	if old == nil {
		return
	}
	for _, s := range same {
		for i := range s.n {
			from, to := s.from+i, s.to+i
			bits[to>>6] |= old[from>>6] >> (from & 63) & 1 << (to & 63)
		}
	}
}
