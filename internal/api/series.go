package api

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"outsight/internal/graph"
	"outsight/internal/model"
	"outsight/internal/otlp"
	"outsight/internal/store"
)

// fields maps a stored series to an input of the graph; the key is the name, and the value of the label "type" where a
// metric has it.
var fields = func() map[[2]string]graph.Field {
	all := map[[2]string]graph.Field{}
	for _, f := range graph.StoredFields() {
		all[[2]string{f.Name, f.Type}] = f.Field
	}
	return all
}()

// selfMetrics are what the views of hosts and the completeness are made of.
var selfMetrics = append(hostNames(), otlp.HostCores, otlp.HostMemory, otlp.Drops, otlp.Entries, otlp.Capacity,
	otlp.HostCPUIdle, otlp.HostCPUOther, otlp.HostCPUSteal, otlp.AgentCPU, otlp.AgentResidentMemory, otlp.BuildInfo)

// windowNames are the series of which a graph is made, histograms first: the store reads names in two goroutines, and a
// histogram takes many times as long as a number.
var windowNames = func() []string {
	names := slices.Compact(slices.Sorted(slices.Values(selfMetrics)))
	for key := range fields {
		if !slices.Contains(names, key[0]) {
			names = append(names, key[0])
		}
	}
	slices.Sort(names)
	histograms := 0
	for _, m := range otlp.Metrics() {
		if i := slices.Index(names, m.Name); i >= 0 && m.Kind == model.HistogramSeries {
			names = slices.Insert(slices.Delete(names, i, i+1), histograms, m.Name)
			histograms++
		}
	}
	return names
}()

// windowQuery selects them.
var windowQuery = fmt.Sprintf(`{%s=~"%s"}`, model.NameLabel, strings.Join(windowNames, "|"))

// sparseNames are those of windowNames whose absence means zero.
var sparseNames = func() (names []string) {
	for key, field := range fields {
		if field.IsSparse() && !slices.Contains(names, key[0]) {
			names = append(names, key[0])
		}
	}
	return names
}()

// recent is how old a value may be to be that of a moment. It is many times the agent's
// interval, and short, because a query reads all samples that lie in it.
const recent = store.KeptRecent

// windowData is what the store holds of a window.
type windowData struct {
	input graph.Input
	// values are what the series of the input are of.
	values *store.Values
	// observed is the time at which the window's data begin, no earlier than its start.
	observed time.Time
	// self has the series of selfMetrics, by name.
	self map[string][]model.QueryResult
	// endedOmitted is how many containers ended in the window without being shown.
	endedOmitted int
}

// read asks the store for a window: for the values at its two ends, from which increases are
// exact differences, around restarts of agents, where counters begin again, and for the last
// values of the containers that ended. Its cost hardly depends on the window's length.
func (s *server) read(ctx context.Context, from, to time.Time) (windowData, error) {
	data := windowData{observed: to, self: map[string][]model.QueryResult{},
		input: graph.Input{From: from, To: to}}
	times, err := s.moments(ctx, &data)
	if err != nil {
		return data, err
	}
	data.values, err = s.querier.Last(ctx, store.Moments{Names: windowNames, Sparse: sparseNames, Times: times,
		Recent: recent})
	if err != nil {
		return data, fmt.Errorf("reading the values from %s to %s: %w", from.Format(time.RFC3339),
			to.Format(time.RFC3339), err)
	}
	data.add(data.values.Blocks)
	err = s.readEnded(ctx, &data)
	// Of several that an agent had one after the other, the newest is the last.
	for _, results := range data.self {
		slices.SortStableFunc(results, func(a, b model.QueryResult) int {
			return a.Points[len(a.Points)-1].Time.Compare(b.Points[len(b.Points)-1].Time)
		})
	}
	return data, err
}

// near is a window that a store of very many series has at hand, where it begins and ends at most a fifth of the
// window's length earlier.
func (s *server) near(from, to time.Time) (time.Time, time.Time) {
	most := to.Sub(from) / 5
	begin, ok := s.querier.Kept(from, most)
	end, both := s.querier.Kept(to, most)
	if ok && both && begin.Before(end) {
		return begin, end
	}
	return from, to
}

// maxRestarts bounds the restarts of agents that are followed in a window; past it, what was
// counted between two of them is missed.
const maxRestarts = 20

// settled are times after an agent's start by which it has found out what takes it a while, such
// as a container's network. The first value of such a counter is what it is counted from.
var settled = []time.Duration{2 * time.Second, 5 * time.Second, 20 * time.Second}

// moments are the times at which to read the values of a window: when its data begin, its end, and both sides of each
// restart. A counter of the agents themselves shows both.
func (s *server) moments(ctx context.Context, data *windowData) ([]time.Time, error) {
	from, to := data.input.From, data.input.To
	step := max(to.Sub(from)/300, time.Second).Truncate(time.Millisecond)
	query := fmt.Sprintf("last_over_time(%s[%dms])", otlp.AgentCPU, max(recent, step).Milliseconds())
	agents, err := s.querier.Range(ctx, query, from, to, step)
	if err != nil {
		return nil, fmt.Errorf("reading when the window's data begin: %w", err)
	}
	times := []time.Time{to}
	for _, agent := range agents {
		for i, p := range agent.Points {
			if i == 0 && p.Time.Before(data.observed) {
				data.observed = p.Time
			}
			if i > 0 && p.Value < agent.Points[i-1].Value && len(times) < 2*maxRestarts {
				times = append(times, agent.Points[i-1].Time, p.Time)
			}
		}
	}
	if data.observed.After(from) && data.observed.Before(to) {
		if err := s.sharpen(ctx, data, step); err != nil {
			return nil, err
		}
	}
	times = append(times, data.observed)
	if data.observed.After(from) {
		for _, d := range settled {
			if at := data.observed.Add(d); at.Before(to) {
				times = append(times, at)
			}
		}
	}
	slices.SortFunc(times, time.Time.Compare)
	return slices.CompactFunc(times, time.Time.Equal), nil
}

// sharpen moves the time at which the window's data begin from a step to the first sample: what was
// counted between the two is not to be lost.
func (s *server) sharpen(ctx context.Context, data *windowData, step time.Duration) error {
	samples, err := s.querier.Instant(ctx, fmt.Sprintf("%s[%dms]", otlp.AgentCPU, step.Milliseconds()), data.observed)
	if err != nil {
		return fmt.Errorf("reading when the window's data begin: %w", err)
	}
	for _, agent := range samples {
		for _, p := range agent.Points {
			if p.Time.Before(data.observed) {
				data.observed = p.Time
			}
		}
	}
	return nil
}

// add adds what was read; two goroutines read.
func (d *windowData) add(blocks [][]model.NamedResult) {
	if d.input.Series == nil {
		if room, ok := seriesPerMatcher.Get().(*[]graph.FieldResult); ok {
			d.input.Series = *room
		}
	}
	half := len(blocks) / 2
	begin, middle, end := len(d.input.Series), resultsIn(blocks[:half]), resultsIn(blocks)
	d.input.Series = slices.Grow(d.input.Series, end)[:begin+end]
	into := d.input.Series[begin:]
	var first, second []model.NamedResult
	var other sync.WaitGroup
	other.Go(func() { second = sortOut(into[middle:], blocks[half:]) })
	first = sortOut(into[:middle], blocks[:half])
	other.Wait()
	for _, r := range slices.Concat(first, second) {
		// which outlast windowData.values
		d.self[r.Name] = append(d.self[r.Name], model.QueryResult{Labels: r.Labels, Points: slices.Clone(r.Points)})
	}
}

func resultsIn(blocks [][]model.NamedResult) (n int) {
	for _, block := range blocks {
		n += len(block)
	}
	return n
}

// sortOut assigns the series of a graph to their inputs, reuses those without points, and returns those of selfMetrics.
func sortOut(into []graph.FieldResult, blocks [][]model.NamedResult) (self []model.NamedResult) {
	var key [2]string // of the series before, mostly that of the next one
	field, known := graph.Field(0), false
	for _, block := range blocks {
		for i := range block {
			r := &block[i]
			if r.Name != key[0] || r.Type != key[1] {
				key = [2]string{r.Name, r.Type}
				field, known = fields[key]
			}
			if known {
				into[i] = graph.FieldResult{Field: field, QueryResult: r.QueryResult}
				continue
			}
			into[i] = graph.FieldResult{}
			if slices.Contains(selfMetrics, r.Name) {
				self = append(self, *r)
			}
		}
		into = into[len(block):]
	}
	return self
}

// seriesPerMatcher has memory for series of windows.
var seriesPerMatcher sync.Pool

// forgetSeries drops the series, which a graph does not refer to.
func (d *windowData) forgetSeries() {
	clear(d.input.Series)
	room := d.input.Series[:0]
	d.input.Series = nil
	seriesPerMatcher.Put(&room)
}

// host is a machine in the window.
type host struct {
	Name        string   `json:"name"`
	Cores       float64  `json:"cores"`
	MemoryBytes *float64 `json:"memory_bytes,omitempty"`
}

func (d *windowData) hosts() []host {
	byName := map[string]*host{}
	for _, r := range d.self[otlp.HostCores] {
		get(byName, r.Labels[otlp.LabelHost], host{Name: r.Labels[otlp.LabelHost]}).Cores = last(r)
	}
	for _, r := range d.self[otlp.HostMemory] {
		v := last(r)
		get(byName, r.Labels[otlp.LabelHost], host{Name: r.Labels[otlp.LabelHost]}).MemoryBytes = &v
	}
	hosts := values(byName)
	slices.SortFunc(hosts, func(a, b host) int { return strings.Compare(a.Name, b.Name) })
	return hosts
}

// last is the last value of a series, 0 where there is none that JSON could hold.
func last(r model.QueryResult) float64 {
	if len(r.Points) == 0 {
		return 0
	}
	if v := r.Points[len(r.Points)-1].Value; !math.IsNaN(v) && !math.IsInf(v, 0) {
		return v
	}
	return 0
}
