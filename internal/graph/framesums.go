package graph

import (
	"sync"
	"time"

	"outsight/internal/frame"
	"outsight/internal/model"
)

// sums adds up the rows of edges: integers until all are there.
type sums struct {
	gains [maxFields]uint64
	// levels are of now, and least values.
	levels         values
	most           mostSeen
	known          uint64
	open, received uint64
	// histograms in the order of edgeHistograms, of which the first are wanted.
	histograms [len(edgeHistograms)]frame.Durations
	wanted     int
	// rooms are for the buckets of those that nothing needs any more when quantiles are known.
	rooms [len(edgeHistograms) - 1][model.MaxBucket - model.MinBucket + 2]float64
}

var sumsPool = sync.Pool{New: func() any { return &sums{} }}

func (s *sums) reset(histograms int) {
	s.wanted = histograms
	s.gains, s.levels, s.most, s.known, s.open, s.received = [maxFields]uint64{}, values{}, mostSeen{}, 0, 0, 0
	for i := range s.histograms {
		s.histograms[i].Reset()
	}
}

// add adds a row of a part.
func (s *sums) add(p *part, r *mapRow) {
	d, v, row := p.edges, &p.view, int(r.row)
	before := d.BeforeRow[row]
	removed := r.sum && d.HasRemoved(row)
	s.known |= v.still
	for _, i := range v.moved {
		c := &edgeColumns[i]
		f := c.field.index()
		view := &v.columns[f]
		if isMissing(view.nowMissing, row) {
			continue
		}
		n := view.now[row]
		if removed {
			n, _ = d.Gain(c.column, row)
		} else if before >= 0 && len(view.was) > 0 && !isMissing(view.wasMissing, int(before)) {
			n = since(view.was[before], n)
		}
		s.gains[f] += n
		s.known |= 1 << f
	}
	for _, i := range v.levels {
		c := &edgeColumns[i]
		if view := &v.columns[c.field.index()]; (r.now || c.lasting) && !isMissing(view.nowMissing, row) {
			v := level(view.now[row], c.kind, c.per)
			if s.level(c, v); c.field == mostInFlight {
				s.most.add(v, p.After)
			}
		}
	}
	if opened, closed := v.opened.value(row), v.closed.value(row); r.now && opened > closed {
		s.open += opened - closed
	}
	if r.side == model.RoleServer {
		s.received += r.request
	} else {
		s.received += r.response
	}
	for i, column := range edgeHistograms[:s.wanted] {
		d.AddHistogram(&s.histograms[i], column, row)
	}
}

// mostSeen are the most requests in flight of rows, each by itself.
type mostSeen struct {
	rows int
	// greatest is that of all rows, and seconds how far back each goes.
	greatest, seconds float64
}

func (m *mostSeen) add(most float64, f *frame.Frame) {
	m.rows++
	m.greatest = max(m.greatest, most)
	// A key frame, the first of a minute, has the greatest value of all of the minute before.
	since := f.Time.Sub(f.Time.Truncate(frame.KeyInterval))
	if f.IsKey() && since < firstOfMinute {
		since = frame.KeyInterval
	}
	m.seconds = since.Seconds()
}

// firstOfMinute is how long after the beginning of a minute its first frame is at most.
const firstOfMinute = 2 * time.Second

// level adds a value of a gauge, or keeps the least.
func (s *sums) level(c *edgeColumn, v float64) {
	switch {
	case !s.levels.has(c.field):
	case c.least:
		v = min(v, s.levels.of(c.field))
	default:
		v += s.levels.of(c.field)
	}
	s.levels.set(c.field, v)
}

// side makes into the side that was added up, with histograms in the room, if there is one.
func (s *sums) side(into *Side, seconds float64, room *edgeRoom) *Side {
	into.values, into.most = s.levels, s.most
	for i := range edgeColumns {
		c := &edgeColumns[i]
		if f := c.field.index(); s.known>>f&1 == 1 {
			into.set(c.field, float64(s.gains[f])/c.per)
		}
	}
	into.Open, into.received = float64(s.open), float64(s.received)
	into.latency = room.durations(&s.histograms[0])
	into.finish(seconds, &sideTimes{firstByte: floatDurations(&s.histograms[1], s.rooms[0][:]),
		rtt:      floatDurations(&s.histograms[2], s.rooms[1][:]),
		duration: floatDurations(&s.histograms[3], s.rooms[2][:]),
		delay:    floatDurations(&s.histograms[4], s.rooms[3][:])})
	return into
}
