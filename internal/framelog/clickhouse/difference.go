package clickhouse

import (
	"fmt"
	"strings"

	"outsight/internal/frame"
)

// What a window gained is computed as follows. The state at a frame is, of each number, the row of the frame, or else that
// of its key frame, unless it is removed. The state at the later frame counts with the sign +, that at the earlier one
// with -; the sum by number is the gain. Of a row that is only in the earlier frame the answer has what it counted, once:
// frame.Since subtracts it from the row to which it was added meanwhile.

// difference is the query for one table of all spans of a window.
type difference struct {
	table frame.TableID
	info  *frame.TableInfo
	// both says of each column that the values of both frames are answered: it is a level, or may be one, or goes on in
	// the next epoch. Of other columns it is the gain.
	both []bool
}

func newDifference(t frame.TableID) *difference {
	d := &difference{table: t, info: &frame.Schema[t]}
	for i := range d.info.Columns {
		c := &d.info.Columns[i]
		d.both = append(d.both, c.Kind != frame.Counter && c.Kind != frame.Integral || c.File || t == frame.Labelled)
	}
	return d
}

// isList reports whether rows have no counters, and are not followed from frame to frame: both frames' are answered.
func (d *difference) isList() bool { return len(d.info.Columns)+len(d.info.Histograms) == 0 }

// state is a query for what was so at frames: condition names them, and their key frames.
func (d *difference) state(table, condition string) string {
	return fmt.Sprintf("(SELECT * FROM %s WHERE %s ORDER BY host, epoch, row, frame DESC LIMIT 1 BY host, epoch, row)",
		table, condition)
}

// query makes the statement of conditions that name the later and the earlier frames; the latter may be "".
func (d *difference) query(table, after, before string) string {
	sides := d.side(table, after, "")
	if before != "" {
		sides += " UNION ALL " + d.side(table, before, "-")
	}
	if d.isList() {
		return fmt.Sprintf("SELECT * FROM (%s) ORDER BY host, epoch, row FORMAT RowBinary", sides)
	}
	return fmt.Sprintf("SELECT host, epoch, row, toUInt8((countIf(moment = 1) > 0) + 2 * (countIf(moment = -1) > 0))%s FROM (%s) "+
		"GROUP BY host, epoch, row ORDER BY host, epoch, row FORMAT RowBinary", d.results(), sides)
}

// What the answer says of a row: in which of the frames it is.
const (
	inAfter  = 1
	inBefore = 2
)

// side is the state at the frames of a side, by names of its own: a for attributes, v for values, g for what is added up, h
// for histograms.
func (d *difference) side(table, condition, sign string) string {
	side := inAfter
	if sign != "" {
		side = inBefore
	}
	var b strings.Builder
	if d.isList() {
		fmt.Fprintf(&b, "SELECT host, epoch, row, toUInt8(%d) AS moment", side)
	} else {
		fmt.Fprintf(&b, "SELECT host, epoch, row, toInt8(%s1) AS moment", sign)
	}
	for i := range d.info.Attributes {
		fmt.Fprintf(&b, ", %s AS a%d", quoted(d.info.Attributes[i].Name), i)
	}
	for i := range d.info.Columns {
		name := quoted(columnName(d.info.Columns[i].Name))
		if d.both[i] {
			fmt.Fprintf(&b, ", %s AS v%d", name, i)
		} else {
			fmt.Fprintf(&b, ", %stoInt64(%s) AS g%d", sign, name, i)
		}
	}
	for i := range d.info.Histograms {
		name := columnName(d.info.Histograms[i].Name)
		for _, part := range []string{"sum_ns", "zero", "overflow"} {
			fmt.Fprintf(&b, ", %stoInt64(%s) AS h%d%s", sign, quoted(name+"_"+part), i, part)
		}
		fmt.Fprintf(&b, ", %s AS h%db, arrayMap(x -> %stoInt64(x), %s) AS h%[2]dc", quoted(name+"_buckets"), i, sign,
			quoted(name+"_counts"))
	}
	return b.String() + " FROM " + d.state(table, condition) + " WHERE removed = 0"
}

// results are the values of a row of the answer, as readRow reads them.
func (d *difference) results() string {
	var b strings.Builder
	for i := range d.info.Attributes {
		fmt.Fprintf(&b, ", argMax(a%d, moment)", i)
	}
	if d.table != frame.Hosts {
		fmt.Fprintf(&b, ", anyIf(a%d, moment = -1)", frame.State)
	}
	for i := range d.info.Columns {
		if d.both[i] {
			fmt.Fprintf(&b, ", anyIf(v%d, moment = 1), anyIf(v%[1]d, moment = -1)", i)
		} else {
			fmt.Fprintf(&b, ", if(countIf(moment = 1) > 0 AND isNull(anyIf(g%d, moment = 1)), NULL, sum(g%[1]d))", i)
		}
	}
	for i := range d.info.Histograms {
		// Whether there are durations in the later frame is answered too: none in the window, or none at all.
		fmt.Fprintf(&b, ", toUInt8(countIf(moment = 1 AND (length(h%db) > 0 OR h%[1]dzero != 0 OR h%[1]doverflow != 0)) > 0), "+
			"sum(h%[1]dsum_ns), sum(h%[1]dzero), sum(h%[1]doverflow), sumMap(h%[1]db, h%[1]dc)", i)
	}
	return b.String()
}
