package api

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"time"

	"outsight/internal/frame"
	"outsight/internal/graph"
	"outsight/internal/model"
	"outsight/internal/predict"
)

// runOutAnswer is which resources go towards their limits.
type runOutAnswer struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	// StepSeconds is how long a stretch of time is of which the use is taken.
	StepSeconds float64 `json:"step_seconds"`
	// HorizonSeconds is how far ahead is looked: as far as back, twice.
	HorizonSeconds float64 `json:"horizon_seconds"`
	// Resources are those that have a limit: what is used up first comes first.
	Resources []predict.Bounded `json:"resources"`
}

// usedResource is a resource with what was used of it.
type usedResource struct {
	predict.Bounded
	all []predict.Used
}

const (
	// runOutLength is how far back a request looks by default.
	runOutLength = 24 * time.Hour
	// runOutAhead is how many times as far ahead as back is looked.
	runOutAhead = 2
)

// runOut answers GET /api/outsight/runout: when memory and CPU time of containers with a limit, and of hosts, will be
// used up if they go on as in the window (from=now-24h, points=60). A daily pattern is told from growth in windows of
// two days and more.
func (s *server) runOut(ctx context.Context, r *http.Request) (any, error) {
	from, to, err := s.windowOf(r, windowBounds{runOutLength, minWindow, maxWindow, maxQuery})
	if err != nil {
		return nil, err
	}
	points, err := pointsOf(r)
	if err != nil {
		return nil, err
	}
	return s.runOuts(ctx, from, to, points)
}

// runOuts is the answer for a window in so many stretches. The window begins with the first frame in it: where there
// are few, the stretches are short rather than few.
func (s *server) runOuts(ctx context.Context, from, to time.Time, points int) (answer runOutAnswer, err error) {
	whole, t, leave, err := s.stretchesOf(ctx, points, from, to, nil, 1)
	if err != nil {
		return answer, err
	}
	defer leave()
	if begin, ok := since(whole.window); ok && begin.After(from) {
		from, whole.window.From = begin, begin
		t.times, t.step = pointTimes(whole.window, points, rowsIn(whole.window), s.Now())
	}
	found := map[[4]string]*usedResource{}
	err = s.eachStretch(ctx, &t, nil, func(i int, w *frame.Window) {
		data := &windowData{window: w}
		g := s.graphOf(w, graph.Options{Brief: true})
		for _, b := range bounded(g, data) {
			key := [4]string{string(b.Kind), b.Host, b.Node}
			if b.Kind == predict.FileSystem {
				key[3] = b.Name
			}
			if found[key] == nil {
				found[key] = new(usedResource)
			}
			found[key].Bounded = b
			found[key].all = append(found[key].all, predict.Used{At: t.times[i+1], Amount: b.Used})
		}
	})
	if err != nil {
		return answer, err
	}
	horizon := runOutAhead * to.Sub(from)
	answer = runOutAnswer{from, to, t.step.Seconds(), horizon.Seconds(), make([]predict.Bounded, 0, len(found))}
	for _, b := range found {
		if last := b.all[len(b.all)-1].At; to.Sub(last) > 2*t.step {
			continue // it is gone
		}
		b.Fit(b.all, horizon)
		answer.Resources = append(answer.Resources, b.Bounded)
	}
	slices.SortFunc(answer.Resources, func(a, b predict.Bounded) int {
		return cmp.Or(a.First().Compare(b.First()), cmp.Compare(b.Used/b.Capacity, a.Used/a.Capacity),
			cmp.Compare(a.Host, b.Host), cmp.Compare(a.Node, b.Node), cmp.Compare(a.Kind, b.Kind),
			cmp.Compare(a.Name, b.Name))
	})
	return answer, nil
}

// bounded are the resources of a window that have a limit.
func bounded(g *graph.Graph, data *windowData) (all []predict.Bounded) {
	for _, n := range g.Nodes {
		u := n.Usage
		if u == nil || n.Kind == graph.KindHost || n.Gone {
			continue
		}
		for _, of := range []struct {
			kind           predict.BoundedKind
			used, capacity *float64
		}{{predict.Memory, u.WorkingSetBytes, u.MemoryLimitBytes}, {predict.CPU, u.CPUCores, u.CPUQuotaCores},
			{predict.Threads, u.Threads, u.ThreadsLimit}, {predict.OpenFiles, u.OpenFiles, u.OpenFilesLimit}} {
			if of.used != nil && of.capacity != nil {
				all = append(all, predict.Bounded{Kind: of.kind, Node: n.ID, Name: n.Name, Host: n.Host, Used: *of.used,
					Capacity: *of.capacity})
			}
		}
	}
	for _, h := range data.hostRows(g) {
		if available, ok := h.Numbers["memory_available_bytes"]; ok && h.MemoryBytes != nil {
			all = append(all, predict.Bounded{Kind: predict.Memory, Name: h.Name, Host: h.Name,
				Used: *h.MemoryBytes - available, Capacity: *h.MemoryBytes})
		}
		if h.Cores > 0 {
			all = append(all, predict.Bounded{Kind: predict.CPU, Name: h.Name, Host: h.Name, Used: h.CPUCores, Capacity: h.Cores})
		}
	}
	return append(all, fileSystems(data.window)...)
}

// fileSystems are those of hosts.
func fileSystems(w *frame.Window) (all []predict.Bounded) {
	sizes := map[[2]string]float64{}
	rows := labelledOf(w, func(metric string) bool { return metric == model.FileSystemUsed || metric == model.FileSystemSize })
	for i := range rows {
		if rows[i].metric == model.FileSystemSize {
			sizes[[2]string{rows[i].host, rows[i].labels[0]}] = rows[i].value
		}
	}
	for i := range rows {
		r := &rows[i]
		if size := sizes[[2]string{r.host, r.labels[0]}]; r.metric == model.FileSystemUsed && size > 0 {
			all = append(all, predict.Bounded{Kind: predict.FileSystem, Name: r.labels[0], Host: r.host, Used: r.value,
				Capacity: size})
		}
	}
	return all
}
