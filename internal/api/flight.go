package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"time"

	"outsight/internal/csvy"
	"outsight/internal/graph"
	"outsight/internal/model"
	"outsight/internal/recorder"
	"outsight/internal/report"
)

// Bounds of an answer about the flight recorder.
const (
	flightWindow      = time.Minute // unless the request says more
	leastFlightWindow = time.Millisecond
	mostFlightWindow  = time.Hour
	// flightAround is how long before and after the window is analysed, too: what is usual does
	// not show in a few milliseconds, and a saturation may be cut by the window.
	flightAround = 30 * time.Second
	// flightTicks is how many ticks an answer has as they are. More are reduced.
	flightTicks = 3000
	// flightRows bounds what is unpacked at a time, in rows of one container at one tick; each takes
	// 1.3 kB of allocations. Containers that used the least CPU are left out beyond it.
	flightRows                  = 200_000
	flightLanes, maxFlightLanes = 8, 100
	maxFlightMarks              = 200
)

// flightAnswer is a stretch of the flight recorder. Times that end with MS are in milliseconds
// since BaseMS, in Unix milliseconds.
type flightAnswer struct {
	BaseMS int64   `json:"base_ms"`
	FromMS float64 `json:"from_ms"`
	ToMS   float64 `json:"to_ms"`
	// KeptFromMS and KeptToMS are what the recorder has, nil where it has nothing yet.
	KeptFromMS *float64 `json:"kept_from_ms"`
	KeptToMS   *float64 `json:"kept_to_ms"`
	IntervalMS float64  `json:"interval_ms"`
	// TicksPerPoint is 1 where all ticks are here. Else two points stand for so many ticks: their
	// least and greatest value, in the order in which they were.
	TicksPerPoint int `json:"ticks_per_point"`
	// AtMS are the times of the values of all lanes. Those of the window have one more at each end.
	AtMS  numberList   `json:"at_ms"`
	Lanes []flightLane `json:"lanes"`
	// OmittedLanes are containers that did something and are not shown, LeftOut those that were not
	// analysed either.
	OmittedLanes int `json:"omitted_lanes"`
	LeftOut      int `json:"left_out"`
	// Marks are the saturations in the window, in order of time. OmittedMarks made others wait less.
	Marks        []flightMark `json:"marks"`
	OmittedMarks int          `json:"omitted_marks"`
}

// flightLane is one container.
type flightLane struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// CPU is in CPUs, Waiting in threads that waited for one, both over the time since the tick
	// before. Asking and Serving are requests at the tick.
	CPU     numberList `json:"cpu"`
	Waiting numberList `json:"waiting"`
	Asking  numberList `json:"asking"`
	Serving numberList `json:"serving"`
}

func (l *flightLane) columns() [4]*numberList {
	return [4]*numberList{&l.CPU, &l.Waiting, &l.Asking, &l.Serving}
}

// flightMark is a saturation, and the edges of the map that it slowed.
type flightMark struct {
	*report.Saturation
	FromMS    float64        `json:"from_ms"`
	ToMS      float64        `json:"to_ms"`
	Sustained bool           `json:"sustained"`
	Effects   []flightEffect `json:"effects"`
	Chain     []flightLink   `json:"chain"`
	Edges     []flightEdge   `json:"edges"`

	// asked are the containers that waited for a reply whenever one that stood still owed some.
	asked map[string]bool
}

type flightEffect struct {
	report.Effect
	ID     string  `json:"id"`
	FromMS float64 `json:"from_ms"`
}

type flightLink struct {
	report.Link
	ID   string  `json:"id"`
	AtMS float64 `json:"at_ms"`
}

// flightEdge is an edge by its ID in the graph by containers.
type flightEdge struct {
	ID     string `json:"id"`
	Client string `json:"client"`
	Server string `json:"server"`
}

// numberList is written short: with at most four digits after the point, and null for NaN.
type numberList []float64

func (l numberList) MarshalJSON() ([]byte, error) {
	b := append(make([]byte, 0, 6*len(l)+2), '[')
	for i, v := range l {
		if i > 0 {
			b = append(b, ',')
		}
		if math.IsNaN(v) {
			b = append(b, "null"...)
			continue
		}
		b = strconv.AppendFloat(b, math.Round(v*1e4)/1e4, 'f', -1, 64)
	}
	return append(b, ']'), nil
}

// flight answers GET /api/outsight/flight: from and to as everywhere, the last minute without them; lanes=8, how many
// of the busiest containers, and container=ID for further ones; anomaly=3 for the recording of the anomaly with that
// number, which may be older than all others.
func (s *server) flight(ctx context.Context, r *http.Request) (any, error) {
	from, to, err := s.windowOf(r, windowBounds{flightWindow, leastFlightWindow, mostFlightWindow, maxQuery})
	if err != nil {
		return nil, err
	}
	lanes := flightLanes
	if text := r.URL.Query().Get("lanes"); text != "" {
		if lanes, err = strconv.Atoi(text); err != nil || lanes < 1 || lanes > maxFlightLanes {
			return nil, badRequest("lanes=%q, want a number from 1 to %d", text, maxFlightLanes)
		}
	}
	data, err := s.kept(r.URL.Query().Get("anomaly"))
	if err != nil {
		return nil, err
	}
	answer, err := s.analysed(ctx, data, from, to, lanes, r.URL.Query()["container"])
	if err != nil {
		return nil, err
	}
	if len(answer.Marks) > 0 {
		end := to.Add(2 * time.Second) // an edge may be reported late
		if now := s.Now(); end.After(now) {
			end = now
		}
		g, _, err := s.build(ctx, from.Add(-time.Minute), end, graph.Options{}, graphColumns)
		if err != nil {
			return nil, fmt.Errorf("reading the edges: %w", err)
		}
		asked := callersOf(g)
		for i := range answer.Marks {
			answer.Marks[i].slowed(asked)
		}
	}
	return answer, nil
}

// analysed is the answer but for the edges.
func (s *server) analysed(ctx context.Context, data *recorder.FlightData, from, to time.Time, lanes int,
	asked []string) (*flightAnswer, error) {
	leave, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	f := flightView{from: from, to: to, base: from.Truncate(time.Minute).UnixMilli()}
	f.answer = flightAnswer{BaseMS: f.base, FromMS: f.since(from), ToMS: f.since(to), TicksPerPoint: 1,
		IntervalMS: float64(data.Interval) / 1e6, Lanes: []flightLane{}, Marks: []flightMark{}, AtMS: numberList{}}
	recordings, err := f.unpack(data)
	if err != nil {
		return nil, err
	}
	marked := f.analyse(recordings)
	f.cut(recordings, lanes, append(asked, marked...))
	return &f.answer, nil
}

// flightView makes an answer.
type flightView struct {
	from, to time.Time
	base     int64 // in Unix milliseconds
	answer   flightAnswer
}

func (f *flightView) since(t time.Time) float64 {
	return float64(t.UnixNano()-f.base*int64(time.Millisecond)) / float64(time.Millisecond)
}

// unpack makes recordings in memory of the window and the time around it.
func (f *flightView) unpack(data *recorder.FlightData) ([]*csvy.Recording, error) {
	wall := func(ns uint64) time.Time { return data.Wall.Add(time.Duration(int64(ns - data.MonotonicNS))) }
	begin, end := f.from.Add(-flightAround), f.to.Add(flightAround)
	part := *data
	part.Blocks = nil
	for _, b := range data.Blocks {
		if !wall(b.FirstDueNS).After(end) && !wall(b.LastNS).Before(begin) {
			part.Blocks = append(part.Blocks, b)
		}
	}
	if n := len(data.Blocks); n > 0 {
		first, last := f.since(wall(data.Blocks[0].FirstDueNS)), f.since(wall(data.Blocks[n-1].LastNS))
		f.answer.KeptFromMS, f.answer.KeptToMS = &first, &last
	}
	wanted, err := f.affordable(&part, begin)
	if err != nil {
		return nil, err
	}
	part.Until = end
	var sheets recorder.InMemory
	_, err = part.Write(begin, recorder.Options{Host: csvy.ThisHost(), Wanted: wanted, Create: sheets.Create})
	if err != nil && !errors.Is(err, recorder.ErrNothingKept) {
		return nil, fmt.Errorf("reading the flight recorder: %w", err)
	}
	return slices.DeleteFunc(sheets.List, func(r *csvy.Recording) bool { return len(r.At) == 0 }), nil
}

// flightTally counts the rows of a container, and what it used.
type flightTally struct {
	id          string
	cpu         int
	rows        int
	first, last float64
}

func (t *flightTally) Row(_ time.Time, values []float64) error {
	if t.rows == 0 {
		t.first = values[t.cpu]
	}
	t.rows, t.last = t.rows+1, values[t.cpu]
	return nil
}
func (t *flightTally) Lost(uint64) error { return nil }
func (t *flightTally) Close() error      { return nil }

// affordable are the containers that fit into flightRows, those with the most CPU time first; nil if all fit.
func (f *flightView) affordable(data *recorder.FlightData, begin time.Time) (func(*model.Container) bool, error) {
	var tallies []*flightTally
	progress, err := data.Write(begin, recorder.Options{Create: func(h csvy.Head) (recorder.Writer, error) {
		t := &flightTally{id: h.Container.ID, cpu: h.Index(csvy.CPUNS)}
		tallies = append(tallies, t)
		return t, nil
	}})
	if err != nil && !errors.Is(err, recorder.ErrNothingKept) {
		return nil, fmt.Errorf("reading the flight recorder: %w", err)
	}
	if progress.Rows <= flightRows {
		return nil, nil
	}
	slices.SortStableFunc(tallies, func(a, b *flightTally) int { return cmp.Compare(b.last-b.first, a.last-a.first) })
	room := flightRows
	in := map[string]bool{}
	for _, t := range tallies {
		if room -= t.rows; room < 0 {
			f.answer.LeftOut++
			continue
		}
		in[t.id] = true
	}
	return func(c *model.Container) bool { return in[c.ID] }, nil
}

// analyse fills in the marks, and answers the containers that these are about.
func (f *flightView) analyse(recordings []*csvy.Recording) (ids []string) {
	found := report.Analyse(recordings, report.Options{})
	byName := map[string]string{}
	for _, c := range found.Containers {
		byName[c.Name] = c.ID
	}
	add := func(s *report.Saturation, sustained bool) {
		if !s.To.After(f.from) || !s.From.Before(f.to) {
			return
		}
		m := flightMark{Saturation: s, FromMS: f.since(s.From), ToMS: f.since(s.To), Sustained: sustained,
			Effects: []flightEffect{}, Chain: []flightLink{}, Edges: []flightEdge{}}
		for _, e := range s.Effects {
			m.Effects = append(m.Effects, flightEffect{e, byName[e.Container], f.since(e.From)})
		}
		for _, l := range s.Chain {
			m.Chain = append(m.Chain, flightLink{l, byName[l.Container], f.since(l.At)})
		}
		if s.Kind == report.Stall {
			m.asked = askedOf(recordings, s)
		}
		f.answer.Marks = append(f.answer.Marks, m)
	}
	for _, s := range found.Saturations {
		add(s, false)
	}
	for _, s := range found.Sustained {
		add(s, true)
	}
	marks := f.answer.Marks
	slices.SortStableFunc(marks, func(a, b flightMark) int { return cmp.Compare(b.Waited, a.Waited) })
	if len(marks) > maxFlightMarks {
		f.answer.OmittedMarks = len(marks) - maxFlightMarks
		marks = marks[:maxFlightMarks]
	}
	for i := range marks {
		ids = append(ids, marks[i].ID)
	}
	slices.SortStableFunc(marks, func(a, b flightMark) int { return cmp.Compare(a.FromMS, b.FromMS) })
	f.answer.Marks = marks
	return ids
}

// askedOf finds, for one that stood still, who waited for replies at each tick at which it owed some.
func askedOf(recordings []*csvy.Recording, s *report.Saturation) map[string]bool {
	owed, asked := map[float64]bool{}, map[string]int{}
	each := func(column string, visit func(id string, tick, requests float64)) {
		for _, rec := range recordings {
			from, _ := slices.BinarySearch(rec.At, s.From.UnixNano())
			to, _ := slices.BinarySearch(rec.At, s.To.UnixNano()+1)
			for i := from; i < to; i++ {
				visit(rec.Head.Container.Key(), rec.Column(csvy.Tick)[i], rec.Column(column)[i])
			}
		}
	}
	each(csvy.RequestsServing, func(id string, tick, requests float64) {
		if id == s.ID && requests >= 1 {
			owed[tick] = true
		}
	})
	each(csvy.RequestsAsking, func(id string, tick, requests float64) {
		if owed[tick] && requests >= 1 {
			asked[id]++
		}
	})
	always := map[string]bool{}
	for id, n := range asked {
		always[id] = n == len(owed)
	}
	return always
}

// cut fills in the lanes: the busiest containers of the window, and those that were asked for.
func (f *flightView) cut(recordings []*csvy.Recording, most int, asked []string) {
	ticks, place := f.ticks(recordings)
	if len(ticks) == 0 {
		return
	}
	lanes, used := map[string]*flightLane{}, map[string]float64{}
	for _, rec := range recordings {
		id := rec.Head.Container.Key()
		if !slices.ContainsFunc(rec.Column(csvy.Tick), func(n float64) bool { _, shown := place[int64(n)]; return shown }) {
			continue
		}
		lane := lanes[id]
		if lane == nil {
			lane = &flightLane{ID: id, Name: rec.Head.Name()}
			for _, c := range lane.columns() {
				*c = slices.Repeat(numberList{math.NaN()}, len(ticks))
			}
			lanes[id] = lane
		}
		used[id] += lane.fill(rec, place)
	}
	order := slices.SortedFunc(maps.Keys(lanes),
		func(a, b string) int { return cmp.Or(cmp.Compare(used[b], used[a]), cmp.Compare(a, b)) })
	shown := map[string]bool{}
	for i, id := range order {
		switch {
		case i < most || slices.Contains(asked, id) && len(shown) < maxFlightLanes:
			shown[id] = true
			f.answer.Lanes = append(f.answer.Lanes, *lanes[id])
		case used[id] > 0:
			f.answer.OmittedLanes++
		}
	}
	// In order of their names lanes stay where they are when the window moves on.
	slices.SortFunc(f.answer.Lanes, func(a, b flightLane) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.ID, b.ID))
	})
	f.reduce(ticks)
}

// flightTick is a tick by its number, and when it began.
type flightTick struct {
	number int64
	atMS   float64
}

// ticks are those of the window and one more at each end, and the index of each by its number.
func (f *flightView) ticks(recordings []*csvy.Recording) (ticks []flightTick, place map[int64]int) {
	place = map[int64]int{}
	// A container that ended before the window, or started after it, has no ticks in between.
	before, after := flightTick{math.MinInt64, 0}, flightTick{math.MaxInt64, 0}
	for _, rec := range recordings {
		number := rec.Column(csvy.Tick)
		tick := func(i int) flightTick { return flightTick{int64(number[i]), f.since(time.Unix(0, rec.At[i]))} }
		from, _ := slices.BinarySearch(rec.At, f.from.UnixNano())
		to, _ := slices.BinarySearch(rec.At, f.to.UnixNano()+1)
		for i := from; i < to; i++ {
			if _, known := place[int64(number[i])]; !known {
				place[int64(number[i])] = 0
				ticks = append(ticks, tick(i))
			}
		}
		if from > 0 && tick(from-1).number > before.number {
			before = tick(from - 1)
		}
		if to < len(rec.At) && tick(to).number < after.number {
			after = tick(to)
		}
	}
	inside, has, goesOn := len(ticks) > 0, before.number > math.MinInt64, after.number < math.MaxInt64
	if has && (inside || goesOn) {
		ticks = append(ticks, before)
	}
	if goesOn && (inside || has) {
		ticks = append(ticks, after)
	}
	slices.SortFunc(ticks, func(a, b flightTick) int { return cmp.Compare(a.number, b.number) })
	for i, t := range ticks {
		place[t.number] = i
	}
	return ticks, place
}

// fill copies the values of a recording to their indexes. It returns the CPU time used in them, in ns.
func (l *flightLane) fill(rec *csvy.Recording, place map[int64]int) (used float64) {
	tick, cpu, waits := rec.Column(csvy.Tick), rec.Column(csvy.CPUNS), rec.Column(csvy.RunQueueNS)
	asking, serving := rec.Column(csvy.RequestsAsking), rec.Column(csvy.RequestsServing)
	for i := range rec.At {
		to, shown := place[int64(tick[i])]
		if !shown {
			continue
		}
		l.Asking[to], l.Serving[to] = asking[i], serving[i]
		if i > 0 && rec.At[i] > rec.At[i-1] {
			step := float64(rec.At[i] - rec.At[i-1])
			l.CPU[to], l.Waiting[to] = (cpu[i]-cpu[i-1])/step, (waits[i]-waits[i-1])/step
			used += cpu[i] - cpu[i-1]
		}
	}
	return used
}

// reduce leaves of many ticks the least and the greatest value of so many as lie beside each other,
// so that a stall of a tick or two shows however long the window is. A mean would hide it.
func (f *flightView) reduce(ticks []flightTick) {
	per := 1
	if len(ticks) > flightTicks {
		per = (2*len(ticks) + flightTicks - 1) / flightTicks
	}
	f.answer.TicksPerPoint = per
	if per == 1 {
		for _, t := range ticks {
			f.answer.AtMS = append(f.answer.AtMS, t.atMS)
		}
		return
	}
	// The same ticks are together whatever the window, so that a moving one does not flicker.
	var groups [][2]int
	for begin := 0; begin < len(ticks); {
		end := begin + 1
		for end < len(ticks) && ticks[end].number/int64(per) == ticks[begin].number/int64(per) {
			end++
		}
		groups = append(groups, [2]int{begin, end})
		first, last := ticks[begin].atMS, ticks[end-1].atMS
		if end-begin == 1 {
			last += f.answer.IntervalMS / 2 // points have a time each
		}
		f.answer.AtMS = append(f.answer.AtMS, first, last)
		begin = end
	}
	for i := range f.answer.Lanes {
		for _, values := range f.answer.Lanes[i].columns() {
			var reduced numberList
			for _, g := range groups {
				a, b := extremes((*values)[g[0]:g[1]])
				reduced = append(reduced, a, b)
			}
			*values = reduced
		}
	}
}

// extremes are the least and the greatest of the values, in the order of time; NaN of none.
func extremes(values []float64) (float64, float64) {
	least, greatest := -1, -1
	for i, v := range values {
		if math.IsNaN(v) {
			continue
		}
		if least < 0 || v < values[least] {
			least = i
		}
		if greatest < 0 || v > values[greatest] {
			greatest = i
		}
	}
	switch {
	case least < 0:
		return math.NaN(), math.NaN()
	case least <= greatest:
		return values[least], values[greatest]
	}
	return values[greatest], values[least]
}

// slowed finds the edges on which requests waited because of the saturation: from the container that it is about, and
// where CPUs were short from those that lacked them, back to clients that waited for replies meanwhile, and to theirs.
// Who asks one that stands still waits for it, however usual that is. Of clients outside it is not known whether they
// waited; they are taken for it.
func (m *flightMark) slowed(callers callers) {
	level, waits := []string{m.ID}, map[string]bool{}
	for _, e := range m.Effects {
		switch {
		case e.What == report.WaitedForReplies:
			waits[e.ID] = true
		case m.Kind == report.HostCPU || m.Kind == report.RunQueue:
			level = append(level, e.ID)
		}
	}
	reached := map[string]bool{}
	for len(level) > 0 {
		for _, id := range level {
			reached[id] = true
		}
		var calls []call
		for _, id := range slices.Compact(slices.Sorted(slices.Values(level))) {
			calls = append(calls, callers[id]...)
		}
		slices.SortFunc(calls, func(x, y call) int { return x.place - y.place })
		var next []string
		for _, c := range calls {
			client, server := c.client, c.server
			if !waits[client.SeriesID] && client.Kind != graph.KindOutside &&
				!(server.SeriesID == m.ID && m.asked[client.SeriesID]) {
				continue
			}
			m.Edges = append(m.Edges, flightEdge{c.edge, client.Name, server.Name})
			if client.Kind != graph.KindOutside && !reached[client.SeriesID] {
				next = append(next, client.SeriesID)
				reached[client.SeriesID] = true
			}
		}
		level = next
	}
}

// callers are the edges with requests by the id of their server's series.
type callers map[string][]call

// call is an edge, and its index among those of the graph.
type call struct {
	place          int
	edge           string
	client, server *graph.Node
}

func callersOf(g *graph.Graph) callers {
	nodes, all := make(map[string]*graph.Node, len(g.Nodes)), callers{}
	for _, n := range g.Nodes {
		nodes[n.ID] = n
	}
	for i, e := range g.Edges {
		if client, server := nodes[e.Client], nodes[e.Server]; client != nil && server != nil && client != server &&
			hadRequests(e) {
			all[server.SeriesID] = append(all[server.SeriesID], call{i, e.ID, client, server})
		}
	}
	return all
}

func hadRequests(e *graph.Edge) bool {
	return e.ClientSide != nil && e.ClientSide.Of(graph.Transactions) > 0 || e.ServerSide != nil &&
		e.ServerSide.Of(graph.Transactions) > 0
}
