package api

import (
	"context"
	"encoding/json"
	"math"
	"net/http"
	"strconv"
	"time"

	"outsight/internal/fleet"
	"outsight/internal/frame"
)

// Bounds of what is computed at points of time.
const (
	usualPoints, maxPoints = 60, 500
	// maxPointFrames bounds the frames that are read for the points of one answer, and maxPointRows the rows of edges.
	maxPointFrames, maxPointRows = 4096, 1_000_000
	// maxPointValues bounds the values of one answer.
	maxPointValues = 400_000
)

// steps are the lengths that a stretch between two points may have: round ones, so that points of a window that moves
// on are the same.
var steps = []time.Duration{time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 15 * time.Second,
	30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour}

// pointsOf is how many points a request asks for.
func pointsOf(r *http.Request) (int, error) {
	text := r.URL.Query().Get("points")
	if text == "" {
		return usualPoints, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > maxPoints {
		return 0, badRequest("points=%q, want a number from 1 to %d", text, maxPoints)
	}
	return n, nil
}

// stretches are those of a window for which a request wants values, of a read of the window in a slot among large
// computations, which the caller leaves. share says for how much of its rows each stretch is computed: one of so many.
func (s *server) stretches(ctx context.Context, r *http.Request, from, to time.Time, hosts []string,
	share int) (whole *windowData, t timeline, leave func(), err error) {
	points, err := pointsOf(r)
	if err != nil {
		return nil, t, nil, err
	}
	return s.stretchesOf(ctx, points, from, to, hosts, share)
}

// stretchesOf are as many as points.
func (s *server) stretchesOf(ctx context.Context, points int, from, to time.Time, hosts []string,
	share int) (whole *windowData, t timeline, leave func(), err error) {
	if leave, err = s.enter(ctx); err != nil {
		return nil, t, nil, err
	}
	if whole, err = s.read(ctx, from, to, hosts); err != nil {
		leave()
		return nil, t, nil, err
	}
	t.times, t.step = pointTimes(whole.window, points, rowsIn(whole.window)/share, s.Now())
	return whole, t, leave, nil
}

// eachStretch reads the stretches of a timeline and visits those of which a host told anything, in order.
func (s *server) eachStretch(ctx context.Context, t *timeline, hosts []string, visit func(i int, w *frame.Window)) error {
	if len(t.times) == 0 {
		return nil
	}
	return s.windows(ctx, t.times, hosts, func(i int, w *frame.Window) error {
		var known bool
		if t.begin, known = since(w); known {
			visit(i, w)
		}
		return nil
	})
}

// pointTimes are the ends of the stretches of a window, with the beginning of the first one before them: as many as were
// asked for, or fewer where frames are further apart, or the work would be too much. There are none where not even two
// stretches would do.
func pointTimes(w *frame.Window, asked, rows int, now time.Time) ([]time.Time, time.Duration) {
	most := min(asked, maxPointFrames/max(len(w.Hosts), 1)-1, maxPointRows/max(rows, 1))
	length := w.To.Sub(w.From)
	if most < 1 {
		return nil, 0
	}
	step := max(length/time.Duration(most), frameDistance(w, now))
	for _, round := range steps {
		if round >= step {
			step = round
			break
		}
	}
	n := int(length / step)
	if n < 1 {
		n, step = 1, length
	}
	times := make([]time.Time, 0, n+1)
	for i := range n + 1 {
		times = append(times, w.To.Add(-step*time.Duration(n-i)))
	}
	return times, step
}

// frameDistance is how far apart the frames of a window are at least: as its agents made them, and as they are thinned
// with age by default. Where they are further apart all the same, points get the value of the stretch that they are in.
func frameDistance(w *frame.Window, now time.Time) time.Duration {
	distance := time.Duration(0)
	switch age := now.Sub(w.From); {
	case age > 25*time.Hour:
		distance = time.Minute
	case age > 65*time.Minute:
		distance = 10 * time.Second
	}
	for i := range w.Hosts {
		for _, span := range w.Hosts[i].Spans {
			if span.Before == nil || span.After.Number <= span.Before.Number {
				continue
			}
			n := span.After.Number - span.Before.Number
			// The mean of a few is a little off.
			mean := span.After.Time.Sub(span.Before.Time) / time.Duration(n)
			distance = max(distance, mean.Round(100*time.Millisecond))
		}
	}
	return distance
}

// rowsIn is how many edges the frames of a window have.
func rowsIn(w *frame.Window) (n int) {
	for i := range w.Hosts {
		for _, span := range w.Hosts[i].Spans {
			n += len(span.After.Tables[frame.Edges].IDs)
		}
	}
	return n
}

// since is when the frames of a window begin; ok is false where no host told anything new in it.
func since(w *frame.Window) (begin time.Time, ok bool) {
	for i := range w.Hosts {
		h := &w.Hosts[i]
		if fleet.Covered(h) <= 0 {
			continue
		}
		first := h.Spans[0].Before
		if first == nil {
			first = h.Spans[0].After
		}
		if !ok || first.Time.Before(begin) {
			begin, ok = first.Time, true
		}
	}
	return begin, ok
}

// line has a value for each point; NaN where there is none.
type line []float64

// MarshalJSON writes null for NaN, and "+Inf" for what is past the end of a histogram.
func (l line) MarshalJSON() ([]byte, error) {
	b := append(make([]byte, 0, 12*len(l)+2), '[')
	for i, v := range l {
		if i > 0 {
			b = append(b, ',')
		}
		switch {
		case math.IsNaN(v) || math.IsInf(v, -1):
			b = append(b, "null"...)
		case math.IsInf(v, 1):
			b = append(b, `"+Inf"`...)
		default:
			b = strconv.AppendFloat(b, v, 'g', -1, 64)
		}
	}
	return append(b, ']'), nil
}

// UnmarshalJSON reads what MarshalJSON writes.
func (l *line) UnmarshalJSON(b []byte) error {
	var all []any
	if err := json.Unmarshal(b, &all); err != nil {
		return err
	}
	*l = make(line, len(all))
	for i, v := range all {
		switch v := v.(type) {
		case float64:
			(*l)[i] = v
		case string:
			(*l)[i] = math.Inf(1)
		default:
			(*l)[i] = math.NaN()
		}
	}
	return nil
}

// timeline has lines over the stretches between times.
type timeline struct {
	times []time.Time
	// step is the length of a stretch.
	step time.Duration
	// begin is when the frames of the stretch that is being filled in begin.
	begin time.Time
}

// set gives a line a value of a stretch. Stretches before it that had no frame of their own have the same one, as far as
// its frames reach back: what they are of is not told any finer.
func (t *timeline) set(l *line, stretch int, v float64) {
	if *l == nil {
		*l = make(line, len(t.times)-1)
		for i := range *l {
			(*l)[i] = math.NaN()
		}
	}
	(*l)[stretch] = v
	for i := stretch - 1; i >= 0 && math.IsNaN((*l)[i]) && t.times[i+1].After(t.begin); i-- {
		(*l)[i] = v
	}
}

// unix are the ends of the stretches in seconds since 1970.
func (t *timeline) unix() []float64 {
	all := make([]float64, 0, len(t.times))
	for _, at := range t.times[min(1, len(t.times)):] {
		all = append(all, float64(at.UnixMilli())/1e3)
	}
	return all
}
