package api

import (
	"context"
	"net/http"
	"strings"
	"time"

	"outsight/internal/frame"
	"outsight/internal/graph"
)

// chartAnswer are numbers of a node, an edge or an endpoint over time.
type chartAnswer struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	// Times are the ends of the stretches that values are of, in seconds since 1970; each is StepSeconds long.
	Times       []float64 `json:"times"`
	StepSeconds float64   `json:"step_seconds"`
	// Lines are by what was asked for, as "usage.cpu_cores"; a number that could never be had has none.
	Lines map[string]line `json:"lines"`
}

// maxChartNumbers bounds the numbers of one chart.
const maxChartNumbers = 16

// chart answers GET /api/outsight/chart: numbers=client.p99,server.p99 of edge=ID (of both ends together as
// ends.server_seconds, or of endpoint="http GET /" of it, as endpoint.p99), or usage.cpu_cores, served.p99 and called.p99 of node=ID, at points=N of the window. by is the grouping
// of the IDs. host=NAME, which may be repeated, says which hosts are enough. Each point is a graph of its own, of the
// frames around it.
func (s *server) chart(ctx context.Context, r *http.Request) (any, error) {
	from, to, err := s.window(r)
	if err != nil {
		return nil, err
	}
	c, err := chartOf(r)
	if err != nil {
		return nil, err
	}
	// Rows of others are not looked at: only a part of the work grows with them.
	whole, t, leave, err := s.stretches(ctx, r, from, to, c.hosts, 8)
	if err != nil {
		return nil, err
	}
	defer leave()
	answer := chartAnswer{From: from, To: to, Times: t.unix(), StepSeconds: t.step.Seconds(), Lines: map[string]line{}}
	if c.hosts == nil && len(t.times) > 0 {
		c.hosts = c.enough(whole.window, s.Names)
	}
	return answer, s.eachStretch(ctx, &t, c.hosts, func(i int, w *frame.Window) {
		g := graph.FromFrames(w, graph.Options{By: c.by, Only: c.node + c.edge, Names: s.Names})
		for _, path := range c.numbers {
			if v, ok := c.number(g, path); ok {
				l := answer.Lines[path]
				t.set(&l, i, v)
				answer.Lines[path] = l
			}
		}
	})
}

// charted is what a chart is of.
type charted struct {
	by             graph.Grouping
	node, edge     string
	protocol, name string // of an endpoint
	numbers, hosts []string
}

func chartOf(r *http.Request) (c charted, err error) {
	query := r.URL.Query()
	if c.by, err = graph.ParseGrouping(query.Get("by")); err != nil {
		return c, badRequest("%w", err)
	}
	c.node, c.edge, c.hosts = query.Get("node"), query.Get("edge"), query["host"]
	if (c.node == "") == (c.edge == "") {
		return c, badRequest("want node or edge, which one of them it is of")
	}
	if c.edge != "" && !strings.Contains(c.edge, ">") {
		return c, badRequest(`edge=%q, want the ID of an edge, as in "client>server"`, c.edge)
	}
	c.protocol, c.name, _ = strings.Cut(query.Get("endpoint"), " ")
	c.numbers, err = numberPaths(query.Get("numbers"), maxChartNumbers)
	for _, path := range c.numbers {
		scope, _, _ := strings.Cut(path, ".")
		switch {
		case c.node != "" && (scope == "usage" || scope == "served" || scope == "called"):
		case c.edge != "" && (scope == "client" || scope == "server" || scope == "endpoint" || scope == "ends"):
		default:
			return c, badRequest("numbers=%q: what was asked for has none of %q", query.Get("numbers"), scope)
		}
	}
	return c, err
}

// numberPaths reads "usage.cpu_cores,served.p99".
func numberPaths(text string, most int) ([]string, error) {
	paths := strings.Split(text, ",")
	if len(paths) > most {
		return nil, badRequest("%d numbers, at most %d are possible", len(paths), most)
	}
	for _, path := range paths {
		scope, key, ok := strings.Cut(path, ".")
		ofUsage, ofSide, ofEnds := graph.IsNumber(key)
		switch scope {
		case "usage":
			ok = ok && ofUsage
		case "served", "called", "client", "server", "edge":
			ok = ok && ofSide
		case "ends":
			ok = ok && ofEnds
		case "endpoint", "service", "host":
		default:
			ok = false
		}
		if !ok || key == "" {
			return nil, badRequest("numbers=%q: there is no number %q", text, path)
		}
	}
	return paths, nil
}

// enough are the hosts that know of what is charted; nil for all.
func (c *charted) enough(w *frame.Window, names graph.Names) []string {
	g := graph.FromFrames(w, graph.Options{By: c.by, Only: c.node + c.edge, Names: names})
	ends := []string{c.node}
	if c.edge != "" {
		ends = strings.SplitN(strings.TrimSuffix(c.edge, "/udp"), ">", 2)
	}
	var hosts []string
	for _, end := range ends {
		n := g.Node(end)
		if n == nil || n.Host == "" && (n.Kind != graph.KindOutside || c.node != "") {
			return nil
		}
		if n.Host != "" {
			hosts = append(hosts, n.Host)
		}
	}
	return hosts
}

// number is one of the numbers in a graph.
func (c *charted) number(g *graph.Graph, path string) (float64, bool) {
	if c.node != "" {
		return nodeNumber(g.Node(c.node), path)
	}
	scope, key, _ := strings.Cut(path, ".")
	for _, e := range g.Edges {
		if e.ID != c.edge {
			continue
		}
		switch scope {
		case "client":
			return e.ClientSide.Number(key)
		case "server":
			return e.ServerSide.Number(key)
		case "ends":
			return e.EndsNumber(key)
		}
		for _, endpoint := range e.Endpoints {
			if endpoint.Protocol == c.protocol && endpoint.Name == c.name {
				return endpoint.Number(key)
			}
		}
	}
	return 0, false
}

// nodeNumber is a number of a node, which may be nil.
func nodeNumber(n *graph.Node, path string) (float64, bool) {
	if n == nil {
		return 0, false
	}
	scope, key, _ := strings.Cut(path, ".")
	switch scope {
	case "usage":
		return n.Usage.Number(key)
	case "served":
		return n.Served.Number(key)
	case "called":
		return n.Called.Number(key)
	}
	return 0, false
}
