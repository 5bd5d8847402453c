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

// runOut answers GET /api/outsight/runout: when memory, CPU time and others of containers with a limit, those of hosts, and
// what requests use will be used up if they go on as in the window (from=now-24h, points=60). A daily pattern is told from
// growth in windows of two days and more.
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
	add := func(b predict.Bounded, all ...predict.Used) {
		key := [4]string{string(b.Kind), b.Host, b.Node}
		switch b.Kind {
		case predict.FileSystem, predict.AcceptQueue, predict.Connections, predict.RequestsAtATime: // there may be several
			key[3] = b.Name
		}
		if found[key] == nil {
			found[key] = new(usedResource)
		}
		found[key].Bounded = b
		found[key].all = append(found[key].all, all...)
	}
	var loads predict.Loads
	err = s.eachStretch(ctx, &t, nil, func(i int, w *frame.Window) {
		data := &windowData{window: w}
		g := s.graphOf(w, graph.Options{Brief: true})
		for _, b := range bounded(g, data) {
			add(b, predict.Used{At: t.times[i+1], Amount: b.Used})
		}
		cores := data.cores()
		loads.Add(t.times[i+1], g.AnalyseWithConnections(cores), cores)
	})
	if err != nil {
		return answer, err
	}
	loads.Each(ctx, func(b predict.Bounded, all []predict.Used) { add(b, all...) })
	if err := ctx.Err(); err != nil {
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
	there := map[string]bool{}
	for _, n := range g.Nodes {
		there[n.ID] = !n.Gone
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
	queues := slices.DeleteFunc(acceptQueues(data.window), func(b predict.Bounded) bool { return !there[b.Node] })
	return slices.Concat(all, fileSystems(data.window), queues)
}

// acceptQueues are those of containers, by the address at which they listen.
func acceptQueues(w *frame.Window) (all []predict.Bounded) {
	return pairs(w, model.AcceptQueueLength, model.AcceptQueueLimit, func(r *labelledRow) predict.Bounded {
		return predict.Bounded{Kind: predict.AcceptQueue, Node: r.nodeID(), Name: r.name + " at " + r.labels[0], Host: r.host}
	})
}

// fileSystems are those of hosts.
func fileSystems(w *frame.Window) []predict.Bounded {
	return pairs(w, model.FileSystemUsed, model.FileSystemSize, func(r *labelledRow) predict.Bounded {
		return predict.Bounded{Kind: predict.FileSystem, Name: r.labels[0], Host: r.host}
	})
}

// pairs are what has one series that says how much is used, and one with the same labels that says of how much.
func pairs(w *frame.Window, used, capacity string, of func(*labelledRow) predict.Bounded) (all []predict.Bounded) {
	capacities := map[labelledKey]float64{}
	rows := labelledOf(w, func(metric string) bool { return metric == used || metric == capacity })
	for i := range rows {
		if r := &rows[i]; r.metric == capacity {
			key := r.labelledKey
			key.metric = used
			capacities[key] = r.value
		}
	}
	for i := range rows {
		if r := &rows[i]; r.metric == used && capacities[r.labelledKey] > 0 {
			b := of(r)
			b.Used, b.Capacity = r.value, capacities[r.labelledKey]
			all = append(all, b)
		}
	}
	return all
}
