package report

import (
	"cmp"
	"math"
	"slices"
	"time"

	"outsight/internal/csvy"
)

// timeline is all that was recorded of one container. Times are in ns since 1970. Where the
// recording has ticks, they are those of the monotonic clock, put onto the wall clock by the header:
// no step of the wall clock moves them, and those of all containers agree.
type timeline struct {
	name   string
	header csvy.Head
	files  int
	cut    bool
	lost   uint64
	// passed counts rows that are not later than the one before them.
	passed    int
	monotonic bool
	// t are the times of all rows, ascending.
	t []int64
	// series by name of the column, without missing values.
	series map[string]*series
	// levels are the mean and standard deviation of gauges, once they were asked for.
	levels map[string][2]float64
}

// series are the known values of a column.
type series struct {
	t []int64
	v []float64
}

func newTimeline(files []*csvy.Recording) *timeline {
	slices.SortStableFunc(files, func(a, b *csvy.Recording) int {
		return cmp.Or(a.Head.Started.Compare(b.Head.Started), cmp.Compare(a.Head.Part, b.Head.Part))
	})
	last := files[len(files)-1]
	l := &timeline{name: last.Head.Name(), header: last.Head, files: len(files), cut: last.End.Cut,
		series: map[string]*series{}}
	l.monotonic = true
	for _, f := range files {
		l.append(f)
		l.lost += f.Lost()
	}
	if n := len(files); n > 1 && files[0].Head.Started.Equal(last.Head.Started) {
		l.lost = last.Lost() // the count goes on from part to part
	}
	return l
}

// rowClock says when rows of a file were made, in ns since 1970. ticks says that it is by the monotonic clock, and not by the
// times of the rows.
type rowClock struct {
	file      *csvy.Recording
	due, late []float64
	began     int64
	ticks     bool
}

func rowClockOf(f *csvy.Recording) rowClock {
	c := rowClock{file: f, due: f.Column(csvy.DueNS), late: f.Column(csvy.LatenessNS), began: f.Head.Started.UnixNano()}
	c.ticks = c.due != nil && c.late != nil && !f.Head.Started.IsZero()
	return c
}

// at is when a row was made; known is false where its tick is missing.
func (c *rowClock) at(row int) (at int64, known bool) {
	if !c.ticks {
		return c.file.At[row], true
	}
	since := c.due[row] + c.late[row] - float64(c.file.Head.MonotonicNS)
	return c.began + int64(since), !math.IsNaN(since)
}

// share takes the rows of the first file without copying them. It does not where a row or a value is missing, or rows
// are not later than the one before them.
func (l *timeline) share(f *csvy.Recording, c *rowClock) bool {
	if len(f.At) == 0 {
		return false
	}
	t := make([]int64, len(f.At))
	for i := range t {
		at, known := c.at(i)
		if !known || i > 0 && at <= t[i-1] {
			return false
		}
		t[i] = at
	}
	for _, v := range f.Values {
		if slices.ContainsFunc(v, math.IsNaN) {
			return false
		}
	}
	l.t = t
	for i, column := range f.Head.Columns {
		l.series[column.Name] = &series{t, slices.Clip(f.Values[i])}
	}
	return true
}

// append adds the rows of a file. Rows that are not later than the one before them, and rows
// without any value, are passed over.
func (l *timeline) append(f *csvy.Recording) {
	made := rowClockOf(f)
	l.monotonic = l.monotonic && made.ticks
	if l.t == nil && l.share(f, &made) {
		return
	}
	columns := make([]*series, len(f.Head.Columns)) // those that had a value
	l.t = slices.Grow(l.t, len(f.At))
	for i := range f.At {
		at, known := made.at(i)
		if !known {
			continue
		}
		if n := len(l.t); n > 0 && at <= l.t[n-1] {
			l.passed++
			continue
		}
		l.t = append(l.t, at)
		for c := range columns {
			v := f.Values[c][i]
			if math.IsNaN(v) {
				continue
			}
			if columns[c] == nil {
				name := f.Head.Columns[c].Name
				if l.series[name] == nil {
					l.series[name] = &series{}
				}
				columns[c] = l.series[name]
				columns[c].t, columns[c].v = slices.Grow(columns[c].t, len(f.At)-i), slices.Grow(columns[c].v, len(f.At)-i)
			}
			s := columns[c]
			s.t, s.v = append(s.t, at), append(s.v, v)
		}
	}
}

// of is the series of a column; it is empty where there is none.
func (l *timeline) of(name string) *series {
	if s := l.series[name]; s != nil {
		return s
	}
	return &series{}
}

// after is the index of the first value at t or later.
func (s *series) after(t int64) int {
	if n := len(s.t); n > 1 && s.t[0] < t && t <= s.t[n-1] {
		// Most recordings are so regular that the index can be computed.
		guess := int(float64(t-s.t[0]) / float64(s.t[n-1]-s.t[0]) * float64(n-1))
		for i := max(guess, 1); i <= min(guess+1, n-1); i++ {
			if s.t[i-1] < t && t <= s.t[i] {
				return i
			}
		}
	}
	i, _ := slices.BinarySearch(s.t, t)
	return i
}

// at is a counter's value at t: on the line between the values before and after. It is NaN
// outside of the recording.
func (s *series) at(t int64) float64 {
	i := s.after(t)
	switch {
	case i == len(s.t):
		return math.NaN()
	case s.t[i] == t:
		return s.v[i]
	case i == 0:
		return math.NaN()
	}
	share := float64(t-s.t[i-1]) / float64(s.t[i]-s.t[i-1])
	return s.v[i-1] + share*(s.v[i]-s.v[i-1])
}

// level is a gauge's last value at or before t, NaN if there is none.
func (s *series) level(t int64) float64 {
	i := s.after(t)
	if i < len(s.t) && s.t[i] == t {
		return s.v[i]
	}
	if i == 0 {
		return math.NaN()
	}
	return s.v[i-1]
}

// gained is what a counter gained between two times, of the part of it that was recorded; 0 if none.
func (s *series) gained(from, to int64) float64 {
	if len(s.t) == 0 {
		return 0
	}
	from, to = max(from, s.t[0]), min(to, s.t[len(s.t)-1])
	if from >= to {
		return 0
	}
	if d := s.at(to) - s.at(from); d > 0 { // less: the counter began again
		return d
	}
	return 0
}

// between are a gauge's values from one time to another, both included.
func (s *series) between(from, to int64) []float64 {
	i, j := s.after(from), s.after(to+1)
	return s.v[i:max(i, j)]
}

// rates are, for each pair of neighbouring values, the counter's gain per ns; NaN where it began
// again.
func (s *series) rates() []float64 {
	rates := make([]float64, max(len(s.t)-1, 0))
	for i := range rates {
		d := s.v[i+1] - s.v[i]
		if d < 0 {
			d = math.NaN()
		}
		rates[i] = d / float64(s.t[i+1]-s.t[i])
	}
	return rates
}

// step is the median distance of the values, 0 if there are less than two.
func (s *series) step() time.Duration { return time.Duration(median(differences(s.t))) }

func differences(t []int64) []float64 {
	d := make([]float64, max(len(t)-1, 0))
	for i := range d {
		d[i] = float64(t[i+1] - t[i])
	}
	return d
}

// gridOf are the times of all rows of all timelines, less those that are closer to the one before
// than half a step.
func gridOf(lines []*timeline) []int64 {
	var all []int64
	least := math.Inf(1)
	for _, l := range lines {
		all = union(all, l.t)
		if m := median(differences(l.t)); m > 0 {
			least = min(least, m)
		}
	}
	var grid []int64
	for _, t := range all {
		if n := len(grid); n == 0 || float64(t-grid[n-1]) >= least/2 {
			grid = append(grid, t)
		}
	}
	return grid
}

// union are the times of two ascending lists, each once.
func union(a, b []int64) []int64 {
	if len(a) == 0 || slices.Equal(a, b) {
		return b
	}
	both := make([]int64, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		switch {
		case a[0] < b[0]:
			both, a = append(both, a[0]), a[1:]
		case a[0] > b[0]:
			both, b = append(both, b[0]), b[1:]
		default:
			both, a, b = append(both, a[0]), a[1:], b[1:]
		}
	}
	return append(append(both, a...), b...)
}

// hostUsage is the CPU use of all recorded containers, in CPUs, for each step of the grid.
func hostUsage(lines []*timeline, grid []int64) []float64 {
	usage := make([]float64, max(len(grid)-1, 0))
	for _, l := range lines {
		cpu := l.of(csvy.CPUNS)
		for i := range usage {
			if gained := cpu.gained(grid[i], grid[i+1]); gained > 0 {
				usage[i] += gained / float64(grid[i+1]-grid[i])
			}
		}
	}
	return usage
}
