package clickhouse

import (
	"fmt"
	"strings"

	"outsight/internal/frame"
)

// What a window gained is computed as follows. The state at a frame is, of each number, the row of the frame, or else
// that of its key frame, unless it is removed. The state at the later frame counts with the sign +, that at the earlier
// one with -; the sum by number is the gain. Of a row that is only in the earlier frame the answer has what it counted,
// once: frame.Since subtracts it from the row to which it was added meanwhile.

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

// side is what was so at frames: condition names them and their key frames.
func (d *difference) side(table, condition string, moment int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "SELECT * FROM (SELECT host, epoch, row, removed, toUInt8(%d) AS moment", moment)
	for i := range d.info.Attributes {
		b.WriteString(", " + quoted(d.info.Attributes[i].Name))
	}
	for i := range d.info.Columns {
		if d.only.HasColumn(d.table, i) {
			b.WriteString(", " + quoted(columnName(d.info.Columns[i].Name)))
		}
	}
	sign := ""
	if moment == inBefore {
		sign = "-"
	}
	for i := range d.info.Histograms {
		if name := columnName(d.info.Histograms[i].Name); d.only.HasHistogram(d.table, i) {
			for _, part := range []string{"_sum_ns", "_zero", "_overflow", "_buckets"} {
				b.WriteString(", " + quoted(name+part))
			}
			fmt.Fprintf(&b, ", arrayMap(x -> %stoInt64(x), %s) AS signed%d", sign, quoted(name+"_counts"), i)
		}
	}
	return fmt.Sprintf("%s FROM %s WHERE %s ORDER BY host, epoch, row, frame DESC LIMIT 1 BY host, epoch, row) "+
		"WHERE removed = 0", b.String(), table, condition)
}

// query makes the statement of conditions that name the later and the earlier frames; the latter may be "".
func (d *difference) query(table, after, before string) string {
	sides := d.side(table, after, inAfter)
	if before != "" {
		sides += " UNION ALL " + d.side(table, before, inBefore)
	}
	if d.isList() {
		return fmt.Sprintf("SELECT host, epoch, row, moment%s FROM (%s) ORDER BY host, epoch, row FORMAT RowBinary",
			d.results(), sides)
	}
	return fmt.Sprintf("SELECT host, epoch, row, toUInt8(sum(moment))%s FROM (%s) GROUP BY host, epoch, row "+
		"ORDER BY host, epoch, row FORMAT RowBinary", d.results(), sides)
}

// results are the values of a row of the answer, as rowReader reads them. They have few terms: ClickHouse takes longer
// to plan a term than to compute it for a thousand rows.
func (d *difference) results() string {
	var b strings.Builder
	for i := range d.info.Attributes {
		attribute := quoted(d.info.Attributes[i].Name)
		if !d.isList() { // those of the later frame, if the row is there
			attribute = "argMin(" + attribute + ", moment)"
		}
		b.WriteString(", " + attribute)
	}
	if d.lasts() {
		fmt.Fprintf(&b, ", sumIf(%s, moment = 2)", quoted(d.info.Attributes[frame.State].Name))
	}
	for i := range d.info.Columns {
		if !d.only.HasColumn(d.table, i) {
			continue
		}
		name := quoted(columnName(d.info.Columns[i].Name))
		after, before := "sumIf("+name+", moment = 1)", "sumIf("+name+", moment = 2)"
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
		for _, part := range []string{"_sum_ns", "_zero", "_overflow"} {
			fmt.Fprintf(&b, ", sumIf(%s, moment = 1), sumIf(%[1]s, moment = 2)", quoted(name+part))
		}
		// Whether there are buckets in the later frame is answered too: none gained, or none at all.
		fmt.Fprintf(&b, ", sumIf(toUInt64(notEmpty(%s)), moment = 1), sumMap(%[1]s, signed%d)", quoted(name+"_buckets"), i)
	}
	return b.String()
}
