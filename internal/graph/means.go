package graph

import (
	"outsight/internal/frame"
)

// maxMeans is how many levels of a container have a mean.
const maxMeans = 8

// levelMeans are, of levels whose mean the registry wants, the integral over the window in the level's unit times
// seconds, and the highest value of late.
type levelMeans struct {
	integrals, highest           [maxMeans]float64
	knownIntegrals, knownHighest uint32
}

// meanColumn says where they are in a frame.
type meanColumn struct {
	field             Field
	integral, highest int
	per, levelPer     float64
	kind              frame.ColumnKind
}

var meanColumns = func() (all []meanColumn) {
	columns := frame.Schema[frame.Containers].Columns
	for i := range columns {
		if columns[i].Kind != frame.Integral {
			continue
		}
		level := &columns[columns[i].Of]
		field, shown := containerTable.byName[level.Name]
		if !shown {
			continue
		}
		all = append(all, meanColumn{field: field, integral: i,
			highest: frame.Column(frame.Containers, level.Name+".highest"), per: columns[i].Per, levelPer: level.Per, kind: level.Kind})
	}
	if len(all) > maxMeans {
		panic("BUG: more levels with a mean than maxMeans")
	}
	return all
}()

// meanAt is the index of a field among meanColumns. It panics where the registry wants no mean of it.
func meanAt(f Field) int {
	for i := range meanColumns {
		if meanColumns[i].field == f {
			return i
		}
	}
	panic("BUG: a mean of a level that has none")
}

func (l *levelMeans) mean(f Field, seconds float64) (float64, bool) {
	i := meanAt(f)
	return l.integrals[i] / seconds, l.knownIntegrals>>i&1 == 1 && seconds > 0
}

func (l *levelMeans) peak(f Field) (float64, bool) {
	i := meanAt(f)
	return l.highest[i], l.knownHighest>>i&1 == 1
}

// add adds those of another container of a group. The highest of a group is no more than the sum.
func (l *levelMeans) add(other *levelMeans) {
	for i := range other.integrals {
		l.integrals[i] += other.integrals[i]
		l.highest[i] += other.highest[i]
	}
	l.knownIntegrals |= other.knownIntegrals
	l.knownHighest |= other.knownHighest
}

// addMeans adds the gains of integrals in a row.
func (c *change) addMeans(d *frame.Difference, row int, state uint64) {
	for i := range meanColumns {
		column := &meanColumns[i]
		n, ok := d.Gain(column.integral, row)
		if ok && n == 0 && state == frame.Live { // the level may not be known: its integral stands still then
			_, ok = d.After.Columns[frame.Schema[frame.Containers].Columns[column.integral].Of].At(row)
		}
		if ok {
			c.means.integrals[i] += float64(n) / column.per
			c.means.knownIntegrals |= 1 << i
		}
		if state == frame.Summed || column.highest >= len(d.After.Columns) {
			continue
		}
		if n, ok := d.After.Columns[column.highest].At(row); ok {
			c.means.highest[i] = level(n, column.kind, column.levelPer)
			c.means.knownHighest |= 1 << i
		}
	}
}
