package frame

import (
	"fmt"
	"math"
	"slices"
)

// maxFloat bounds what is computed of floats, so that sums over all rows are finite: JSON has no more.
const maxFloat = 0x1p512

// isInfinite reports whether bits are of an infinity, or of what is no number.
func isInfinite(bits uint64) bool { return bits<<1 >= math.Float64bits(math.Inf(1))<<1 }

// Float is the value of a column of floats, and of one that is no whole number of Labelled: no more than 2^512, and no less than
// -2^512.
func Float(bits uint64) float64 { return min(max(math.Float64frombits(bits), -maxFloat), maxFloat) }

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
		if part != nil && info.isFloat(i) && slices.ContainsFunc(to.Columns[i].Of, isInfinite) {
			d.fail("%s is infinite or no number", info.Columns[i].Name)
		}
	}
	for i, part := range s.histograms {
		switch {
		case part == nil:
			to.Histograms[i] = old.Histograms[i]
		case part[0]&hasValues != 0 && d.f.told:
			d.keepHistograms(&to.Histograms[i], &old.Histograms[i], part, s)
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
	done := 0
	if len(old) > 0 {
		for _, same := range d.same {
			clear(to[done:same.to])
			done = same.to + copy(to[same.to:same.to+same.n], old[same.from:])
		}
	}
	clear(to[done:])
	return to
}

// readRuns adds what rows gained.
func (d *parser) readRuns(to []uint64, part []byte) {
	for at := 0; at < len(part); {
		var skip, n uint64
		skip, at = numberAt(part, at)
		n, at = numberAt(part, at)
		if rows := uint64(len(to)); at > len(part) || skip > rows || n > rows-skip {
			d.fail("a run of %d values behind %d, of %d rows", n, skip, len(to))
			return
		}
		run := to[skip:][:n]
		to = to[skip+n:]
		for i := range run {
			var v uint64
			v, at = numberAt(part, at)
			run[i] += unzigzag(v)
		}
		if at > len(part) {
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
	if part != nil && isZero(part, old) {
		to.Of = zeros[:s.rows:s.rows]
		return
	}
	told := part != nil && part[0]&hasMissing != 0
	to.Of = d.gather(old.Of, s)
	if old.Missing != nil {
		zeroMissingRows(to.Of, old, d.same)
	}
	if old.Missing != nil || told {
		to.Missing = cut(&d.values, (s.rows+63)/64)
		clear(to.Missing)
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

// zeros are the values of all columns of which all rows have 0, as most columns of key frames.
var zeros [MaxRows]uint64

// isZero reports whether a section says that all rows have 0.
func isZero(part []byte, old *Values) bool {
	return len(part) == 1 && part[0] == hasValues && len(old.Of) == 0
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
	return r.b[r.at:]
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
