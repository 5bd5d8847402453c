package api

import (
	"context"
	"net/http"
	"strings"
	"time"

	"outsight/internal/graph"
)

// contentionAnswer is what containers waited for a CPU behind in a window.
type contentionAnswer struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	*graph.Waits
}

// maxWaits bounds the containers of one answer.
const maxWaits = 200

// contention answers which containers others waited behind for a CPU: for all containers, for the one of node=ID or
// name, or with edge=ID for the server of an edge, whose waits are in the edge's latency. by is the grouping of the IDs: a
// node of several containers has an entry of each. A node that did not wait, or is unknown, has none.
func (s *server) contention(ctx context.Context, r *http.Request) (any, error) {
	from, to, err := s.window(r)
	if err != nil {
		return nil, err
	}
	node := r.URL.Query().Get("node")
	if edge := r.URL.Query().Get("edge"); edge != "" {
		_, server, found := strings.Cut(edge, ">")
		if !found || node != "" {
			return nil, badRequest(`edge=%q, want the ID of an edge, as in "client>server", and no node`, edge)
		}
		node = strings.TrimSuffix(server, "/udp")
	}
	by, err := graph.ParseGrouping(r.URL.Query().Get("by"))
	if err != nil {
		return nil, badRequest("%w", err)
	}
	leave, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	data, err := s.read(ctx, from, to, nil)
	if err != nil {
		return nil, err
	}
	waits := graph.WaitsFromFrames(data.window)
	if node != "" {
		waits.Containers = data.waitsOf(waits, node, by, s.Names)
	}
	if len(waits.Containers) > maxWaits {
		waits.Containers = waits.Containers[:maxWaits]
	}
	return contentionAnswer{from, to, waits}, nil
}

// waitsOf are the waits of the container with an ID or a name, or of all containers of a node of a grouping.
func (d *windowData) waitsOf(waits *graph.Waits, node string, by graph.Grouping,
	names graph.Names) []*graph.Wait {
	all := []*graph.Wait{}
	if only := waits.Of(node); only != nil {
		return append(all, only)
	}
	if by == graph.ByContainer || by == graph.ByProcess {
		return all
	}
	g := graph.FromFrames(d.window, graph.Options{Names: names})
	nodeOf := nodesOf(g, by)
	for _, w := range waits.Containers {
		if nodeOf(&labelledRow{labelledKey: labelledKey{host: w.Host, container: w.ID}}) == node {
			all = append(all, w)
		}
	}
	return all
}
