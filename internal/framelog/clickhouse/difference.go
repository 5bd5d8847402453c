package clickhouse

import (
	"fmt"
	"strings"

	"outsight/internal/frame"
)

// What a window gained is computed as follows. The state at a frame is, of each number, the row of the frame, or else
// that of its key frame, unless it is removed. The states at the later and at the earlier frame are joined by number: the
// gain is what the later one has less what the earlier one has. Of a row that is only in the earlier frame the answer has
// what it counted, once: frame.Since subtracts it from the row to which it was added meanwhile.

// difference is the query for one table of all spans of a window.
type difference struct {
	table frame.TableID
	info  *frame.TableInfo
	// both says of each column that the values of both frames are answered: it is a level, or may be one, or goes on in
	// the next epoch. Of other columns it is the gain.
	both []bool
	// only are the columns that are wanted; nil for all.
	only *frame.Projection
}

func newDifference(t frame.TableID, only *frame.Projection) *difference {
	d := &difference{table: t, info: &frame.Schema[t], only: only}
	for i := range d.info.Columns {
		c := &d.info.Columns[i]
		d.both = append(d.both, c.Kind != frame.Counter && c.Kind != frame.Integral || c.File || t == frame.Labelled)
	}
	return d
}

// isList reports whether rows have no counters, and are not followed from frame to frame: both frames' are answered.
func (d *difference) isList() bool { return len(d.info.Columns)+len(d.info.Histograms) == 0 }

// What the answer says of a row: in which of the frames it is.
const (
	inAfter  = 1
	inBefore = 2
)

// lasts reports whether rows have states.
func (d *difference) lasts() bool { return !d.isList() && d.table != frame.Hosts }

// later and earlier are what names of the columns of both frames begin with in a statement.
const later, earlier = "later_", "earlier_"

// side is what was so at frames: condition names them and their key frames. Its columns have a prefix.
func (d *difference) side(table, condition string, moment int, prefix string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "SELECT * FROM (SELECT host, epoch, row, removed, toUInt8(%d) AS %smoment", moment, prefix)
	for _, name := range d.columns() {
		fmt.Fprintf(&b, ", %s AS %s", quoted(name), quoted(prefix+name))
	}
	return fmt.Sprintf("%s FROM %s WHERE %s ORDER BY host, epoch, row, frame DESC LIMIT 1 BY host, epoch, row) "+
		"WHERE removed = 0", b.String(), table, condition)
}

// columns are those of the table that are read.
func (d *difference) columns() (names []string) {
	for i := range d.info.Attributes {
		names = append(names, d.info.Attributes[i].Name)
	}
	for i := range d.info.Columns {
		if d.only.HasColumn(d.table, i) {
			names = append(names, columnName(d.info.Columns[i].Name))
		}
	}
	for i := range d.info.Histograms {
		if d.only.HasHistogram(d.table, i) {
			for _, part := range []string{"_sum_ns", "_zero", "_overflow", "_buckets", "_counts"} {
				names = append(names, columnName(d.info.Histograms[i].Name)+part)
			}
		}
	}
	return names
}

// query makes the statement of conditions that name the later and the earlier frames; the latter may be "".
func (d *difference) query(table, after, before string) string {
	if d.isList() {
		sides := d.side(table, after, inAfter, "")
		if before != "" {
			sides += " UNION ALL " + d.side(table, before, inBefore, "")
		}
		return fmt.Sprintf("SELECT host, epoch, row, moment, %s FROM (%s) ORDER BY host, epoch, row FORMAT RowBinary",
			quotedList(d.columns()), sides)
	}
	if before == "" {
		before = "0"
	}
	return fmt.Sprintf("SELECT host, epoch, row, toUInt8(later_moment + earlier_moment)%s FROM (%s) AS now ALL FULL JOIN (%s) AS was "+
		"USING (host, epoch, row) ORDER BY host, epoch, row FORMAT RowBinary", d.results(),
		d.side(table, after, inAfter, later), d.side(table, before, inBefore, earlier))
}

// results are the values of a row of the answer, as rowReader reads them. What is in one frame alone is 0, NULL or empty of
// the other. There are no aggregates: ClickHouse takes longer to make the states of a row's than to compute all else.
func (d *difference) results() string {
	var b strings.Builder
	for i := range d.info.Attributes { // those of the later frame, if the row is there
		name := d.info.Attributes[i].Name
		fmt.Fprintf(&b, ", if(later_moment = %d, %s, %s)", inAfter, quoted(later+name), quoted(earlier+name))
	}
	if d.lasts() {
		b.WriteString(", " + quoted(earlier+d.info.Attributes[frame.State].Name))
	}
	for i := range d.info.Columns {
		if !d.only.HasColumn(d.table, i) {
			continue
		}
		name := columnName(d.info.Columns[i].Name)
		after, before := quoted(later+name), quoted(earlier+name)
		if d.both[i] {
			fmt.Fprintf(&b, ", %s, %s", after, before)
		} else {
			// A gain is not negative. What is only in the earlier frame is answered as -1 less it.
			fmt.Fprintf(&b, ", ifNull(%s - ifNull(%s, 0), -1 - %[2]s)", after, before)
		}
	}
	for i := range d.info.Histograms {
		if !d.only.HasHistogram(d.table, i) {
			continue
		}
		name := columnName(d.info.Histograms[i].Name)
		of := func(prefix, part string) string { return quoted(prefix + name + part) }
		for _, part := range []string{"_sum_ns", "_zero", "_overflow"} {
			fmt.Fprintf(&b, ", %s, %s", of(later, part), of(earlier, part))
		}
		// Whether there are buckets in the later frame is answered too: none gained, or none at all.
		fmt.Fprintf(&b, ", toUInt64(notEmpty(%s)), arrayReduce('sumMap', [%[1]s, %s], "+
			"[arrayMap(x -> toInt64(x), %s), arrayMap(x -> -toInt64(x), %s)])", of(later, "_buckets"), of(earlier, "_buckets"),
			of(later, "_counts"), of(earlier, "_counts"))
	}
	return b.String()
}

func quotedList(names []string) string {
	all := make([]string, len(names))
	for i, name := range names {
		all[i] = quoted(name)
	}
	return strings.Join(all, ", ")
}
