package api

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"time"

	"outsight/internal/frame"
	"outsight/internal/graph"
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
	Resources []boundedResource `json:"resources"`
}

// boundedResource is something of which there is so much.
type boundedResource struct {
	// Kind is "memory" (bytes; of a container its working set) or "cpu" (cores).
	Kind string `json:"kind"`
	// Node is the container's; empty for a host's.
	Node string `json:"node,omitempty"`
	Name string `json:"name"`
	Host string `json:"host"`
	// Used is of the last stretch, Capacity the limit.
	Used     float64 `json:"used"`
	Capacity float64 `json:"capacity"`
	// Course is nil where it is not known, because of Unknown.
	Course  *predict.Course `json:"course,omitempty"`
	Unknown string          `json:"unknown,omitempty"`
	// RunsOut is nil where it does not within the horizon, for all that is known.
	RunsOut *predict.RunOut `json:"runs_out,omitempty"`

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
	_, t, leave, err := s.stretches(ctx, r, from, to, nil, 1)
	if err != nil {
		return nil, err
	}
	defer leave()
	found := map[[3]string]*boundedResource{}
	err = s.eachStretch(ctx, &t, nil, func(i int, w *frame.Window) {
		data := &windowData{window: w}
		g := s.graphOf(w, graph.Options{Brief: true})
		for _, b := range bounded(g, data) {
			key := [3]string{b.Kind, b.Host, b.Node}
			if found[key] == nil {
				found[key] = new(boundedResource)
			}
			all := append(found[key].all, predict.Used{At: t.times[i+1], Amount: b.Used})
			*found[key] = b
			found[key].all = all
		}
	})
	if err != nil {
		return nil, err
	}
	horizon := runOutAhead * to.Sub(from)
	answer := runOutAnswer{from, to, t.step.Seconds(), horizon.Seconds(), make([]boundedResource, 0, len(found))}
	for _, b := range found {
		if last := b.all[len(b.all)-1].At; to.Sub(last) > 2*t.step {
			continue // it is gone
		}
		if b.Course, err = predict.FitCourse(b.all); err != nil {
			b.Unknown = err.Error()
		} else {
			b.RunsOut = b.Course.RunOut(b.Capacity, horizon)
		}
		answer.Resources = append(answer.Resources, *b)
	}
	slices.SortFunc(answer.Resources, func(a, b boundedResource) int {
		return cmp.Or(a.first().Compare(b.first()), cmp.Compare(b.Used/b.Capacity, a.Used/a.Capacity),
			cmp.Compare(a.Host, b.Host), cmp.Compare(a.Node, b.Node), cmp.Compare(a.Kind, b.Kind))
	})
	return answer, nil
}

// never is after all times that are told.
var never = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// first is when it is used up, or may be.
func (b *boundedResource) first() time.Time {
	switch r := b.RunsOut; {
	case r == nil:
		return never
	case r.At != nil:
		return *r.At
	default:
		return *r.Earliest
	}
}

// bounded are the resources of a window that have a limit.
func bounded(g *graph.Graph, data *windowData) (all []boundedResource) {
	for _, n := range g.Nodes {
		u := n.Usage
		if u == nil || n.Kind == graph.KindHost || n.Gone {
			continue
		}
		if u.MemoryLimitBytes != nil && u.WorkingSetBytes != nil {
			all = append(all, boundedResource{Kind: "memory", Node: n.ID, Name: n.Name, Host: n.Host,
				Used: *u.WorkingSetBytes, Capacity: *u.MemoryLimitBytes})
		}
		if u.CPUQuotaCores != nil && u.CPUCores != nil {
			all = append(all, boundedResource{Kind: "cpu", Node: n.ID, Name: n.Name, Host: n.Host, Used: *u.CPUCores,
				Capacity: *u.CPUQuotaCores})
		}
	}
	for _, h := range data.hostRows(g) {
		if available, ok := h.Numbers["memory_available_bytes"]; ok && h.MemoryBytes != nil {
			all = append(all, boundedResource{Kind: "memory", Name: h.Name, Host: h.Name,
				Used: *h.MemoryBytes - available, Capacity: *h.MemoryBytes})
		}
		if h.Cores > 0 {
			all = append(all, boundedResource{Kind: "cpu", Name: h.Name, Host: h.Name, Used: h.CPUCores, Capacity: h.Cores})
		}
	}
	return all
}
