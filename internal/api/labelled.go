package api

import (
	"context"
	"net/http"
	"strings"
	"time"

	"outsight/internal/frame"
	"outsight/internal/graph"
	"outsight/internal/model"
)

// labelledAnswer are the series of a window whose labels are only known when they are read: of disks, processes,
// domains of energy, kernel programs.
type labelledAnswer struct {
	From           time.Time `json:"from"`
	To             time.Time `json:"to"`
	CoveredSeconds float64   `json:"covered_seconds"`
	// Times are those of the values of all rows, as in a chart; absent unless points were asked for.
	Times       []float64    `json:"times,omitempty"`
	StepSeconds float64      `json:"step_seconds,omitempty"`
	Rows        []labelledAt `json:"rows"`
	// Omitted is how many rows are left out.
	Omitted int `json:"omitted"`
}

// labelledAt is one series.
type labelledAt struct {
	Metric string `json:"metric"`
	Host   string `json:"host"`
	// Node is the ID of the node that it is of, and Name the container's name; both are empty where it is of the host.
	Node   string            `json:"node,omitempty"`
	Name   string            `json:"name,omitempty"`
	Labels map[string]string `json:"labels"`
	// Value is what a counter gained, or a level at the end of the window; PerSecond is of a counter.
	Value     *float64 `json:"value,omitempty"`
	PerSecond *float64 `json:"per_second,omitempty"`
	// Count, P50, P99 and Mean are of a histogram.
	Count *uint64        `json:"count,omitempty"`
	P50   *graph.Seconds `json:"p50,omitempty"`
	P99   *graph.Seconds `json:"p99,omitempty"`
	Mean  *graph.Seconds `json:"mean,omitempty"`
	// Values are a counter's per second, levels, or a histogram's p99, at Times.
	Values line `json:"values,omitempty"`
}

// maxLabelledRows bounds the rows of one answer.
const maxLabelledRows = 5000

// labelled answers GET /api/outsight/labelled: the series of metrics=NAME,NAME,... (by their stored names; all without
// it), of the containers of node=ID in the grouping by, or of host=NAME, or of all hosts and their containers. With
// points=N there is a line of each.
func (s *server) labelled(ctx context.Context, r *http.Request) (any, error) {
	from, to, err := s.window(r)
	if err != nil {
		return nil, err
	}
	q, err := labelledQueryOf(r)
	if err != nil {
		return nil, err
	}
	points := 0
	if r.URL.Query().Has("points") {
		if points, err = pointsOf(r); err != nil {
			return nil, err
		}
	}
	leave, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	whole, err := s.read(ctx, from, to, q.hosts)
	if err != nil {
		return nil, err
	}
	q.nodeOf = nodesOf(nil, q.by)
	if q.by != graph.ByContainer && q.by != graph.ByProcess {
		g := graph.FromFrames(whole.window, graph.Options{Names: s.Names})
		q.nodeOf = nodesOf(g, q.by)
	}
	answer := labelledAnswer{From: from, To: to, CoveredSeconds: graph.Covered(whole.window).Seconds(),
		Rows: []labelledAt{}}
	rows := q.rows(whole.window)
	if len(rows) > maxLabelledRows {
		answer.Omitted = len(rows) - maxLabelledRows
		rows = rows[:maxLabelledRows]
	}
	at := make(map[labelledKey]int, len(rows))
	for i := range rows {
		at[rows[i].labelledKey] = i
		answer.Rows = append(answer.Rows, rows[i].shown(q.nodeOf(&rows[i])))
	}
	if points == 0 {
		return answer, nil
	}
	return answer, s.labelledLines(ctx, q, &answer, whole.window, points, at)
}

// labelledLines adds the values at points.
func (s *server) labelledLines(ctx context.Context, q *labelledQuery, answer *labelledAnswer, whole *frame.Window,
	points int, at map[labelledKey]int) error {
	most := min(points, maxPointValues/max(len(at), 1))
	t := timeline{}
	t.times, t.step = pointTimes(whole, most, 0, s.Now())
	answer.Times, answer.StepSeconds = t.unix(), t.step.Seconds()
	return s.eachStretch(ctx, &t, q.hosts, func(i int, w *frame.Window) {
		rows := q.rows(w)
		for k := range rows {
			if row, ok := at[rows[k].labelledKey]; ok {
				if v, ok := rows[k].point(); ok {
					t.set(&answer.Rows[row].Values, i, v)
				}
			}
		}
	})
}

// labelledQuery is which series are asked for.
type labelledQuery struct {
	by      graph.Grouping
	node    string
	metrics map[string]bool // nil for all
	hosts   []string
	nodeOf  func(*labelledRow) string
}

func labelledQueryOf(r *http.Request) (*labelledQuery, error) {
	query := r.URL.Query()
	by, err := graph.ParseGrouping(query.Get("by"))
	if err != nil {
		return nil, badRequest("%w", err)
	}
	q := &labelledQuery{by: by, node: query.Get("node"), hosts: query["host"]}
	if text := query.Get("metrics"); text != "" {
		q.metrics = map[string]bool{}
		for _, name := range strings.Split(text, ",") {
			_, ofLabels := frame.LabelledMetrics[name]
			if _, ofHost := hostMetrics[name]; !ofLabels && !ofHost {
				return nil, badRequest("metrics=%q: no series of %q has labels of its own", text, name)
			}
			q.metrics[name] = true
		}
	}
	return q, nil
}

// rows are the series of a window that are asked for.
func (q *labelledQuery) rows(w *frame.Window) []labelledRow {
	rows := labelledOf(w, func(metric string) bool { return q.metrics == nil || q.metrics[metric] })
	if q.node == "" {
		return rows
	}
	kept := rows[:0]
	for i := range rows {
		if !rows[i].ofHost() && q.nodeOf(&rows[i]) == q.node {
			kept = append(kept, rows[i])
		}
	}
	return kept
}

// shown is the series as it is answered.
func (r *labelledRow) shown(node string) labelledAt {
	a := labelledAt{Metric: r.metric, Host: r.host, Name: r.name, Labels: map[string]string{}}
	if !r.ofHost() {
		a.Node = node
	}
	for i, name := range r.info.Labels {
		if r.labels[i] != "" {
			a.Labels[name] = r.labels[i]
		}
	}
	if r.info.Kind == model.HistogramSeries {
		if h := r.durations; h != nil {
			a.Count = &h.Count
			if h.Count > 0 {
				a.P50, a.P99, a.Mean = seconds(h.Quantile(0.5)), seconds(h.Quantile(0.99)), seconds(h.Mean())
			}
		}
		return a
	}
	a.Value = &r.value
	if v, ok := r.rate(); ok {
		a.PerSecond = &v
	}
	return a
}

func seconds(v float64) *graph.Seconds { return new(graph.Seconds(v)) }

// point is the value of a chart.
func (r *labelledRow) point() (float64, bool) {
	switch r.info.Kind {
	case model.Gauge:
		return r.value, true
	case model.HistogramSeries:
		if r.durations == nil || r.durations.Count == 0 {
			return 0, false
		}
		return r.durations.Quantile(0.99), true
	}
	return r.rate()
}
