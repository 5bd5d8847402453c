package api

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"

	"go.yaml.in/yaml/v3"

	"outsight/internal/fleet"
	"outsight/internal/frame"
	"outsight/internal/framelog"
	"outsight/internal/graph"
	"outsight/internal/place"
)

// Bounds of what is computed of a placement.
const (
	maxPlaceMinutes = 60
	maxRules        = 1 << 20 // bytes of a request's rules and moves
	maxPlaceQuery   = 16 << 10
	// maxPlaceTraffic bounds the pairs of containers that the page gets, those with the most bytes first.
	maxPlaceTraffic = 20000
)

// placeColumns are what a placement reads: of the times of edges the latency alone.
var placeColumns = withProbes(graph.AnalysisColumns())

// placeAnswer is where containers would better run.
type placeAnswer struct {
	From           time.Time     `json:"from"`
	To             time.Time     `json:"to"`
	CoveredSeconds float64       `json:"covered_seconds"`
	Weights        place.Weights `json:"weights"`
	Headroom       float64       `json:"headroom"`
	*place.Result
	Hosts      []place.Host      `json:"hosts"`
	Containers []place.Container `json:"containers"`
	// Traffic are the pairs of containers that talk: two indexes, and the bytes per second both ways.
	Traffic        [][3]float64       `json:"traffic"`
	OmittedTraffic int                `json:"omitted_traffic,omitempty"`
	Completeness   fleet.Completeness `json:"completeness"`
}

// placed is what a request asks for of a placement.
type placed struct {
	place.Options
	rules  place.Rules
	moves  []string // that were chosen; nil where they are to be found
	format string
	label  string
}

// place answers GET and POST /api/outsight/place: from and to as everywhere; preset=least-traffic, fewest-hosts,
// lowest-latency or lowest-energy; weight=traffic=1, which may be repeated; together=a,b, apart=a,b, on=a=host, not_on=a=host,
// require=a=disk=ssd, host_label=host=disk=ssd, stay=a and movable=a, which may be repeated; move=a=host for what somebody
// chose instead of a search, one for each step; moves=N at most (all), headroom=0 to 0.9 (0.1), seed=N; format=json, text,
// kubernetes, compose or network-aware (json); pod_label=app. POST has more rules in its body, in YAML or JSON, and the
// list move. It changes nothing.
func (s *server) place(ctx context.Context, r *http.Request) (any, error) {
	from, to, err := s.windowOf(r, windowBounds{defaultFrom, minWindow, maxWindow, maxPlaceQuery})
	if err != nil {
		return nil, err
	}
	asked, err := placedOf(r)
	if err != nil {
		return nil, err
	}
	leave, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	data, err := s.readOnly(ctx, from, to, nil, placeColumns)
	if err != nil {
		return nil, err
	}
	g := s.graphOf(data.window, graph.Options{})
	peaks, err := s.peaks(ctx, from, to)
	if err != nil {
		return nil, err
	}
	p := place.FromFrames(data.window, g, data.hosts(), peaks)
	if s.HostLabels != nil {
		p.KnowLabels(s.HostLabels())
	}
	if err := p.Apply(asked.rules); err != nil {
		return nil, badRequest("%w", err)
	}
	result, err := asked.answer(ctx, p)
	var none *place.Infeasible
	switch {
	case errors.As(err, &none):
		return nil, badRequest("%w", err)
	case ctx.Err() != nil:
		return nil, err
	case len(p.Hosts) == 0:
		return nil, badRequest("there is nothing to place in this window: no host was seen")
	case err != nil:
		return nil, badRequest("%w", err)
	}
	switch {
	case asked.format == "text":
		return file{[]byte(result.Text(p)), map[string]string{"Content-Type": "text/plain; charset=utf-8"}}, nil
	case asked.format != "json":
		text, err := result.Manifest(asked.format, p, delays(data.window, p.Hosts), asked.label)
		return file{text, map[string]string{"Content-Type": "application/yaml",
			"Content-Disposition": `attachment; filename="outsight-placement.yaml"`}}, err
	}
	answer := placeAnswer{From: from, To: to, CoveredSeconds: g.CoveredSeconds, Weights: asked.Weights,
		Headroom: asked.Headroom, Result: result, Hosts: p.Hosts, Containers: p.Containers, Completeness: data.completeness(g)}
	answer.Traffic, answer.OmittedTraffic = p.Busiest(maxPlaceTraffic)
	return answer, nil
}

// answer finds a placement, or says what the chosen moves lead to.
func (a *placed) answer(ctx context.Context, p *place.Problem) (*place.Result, error) {
	if a.moves == nil {
		return place.Solve(ctx, p, a.Options)
	}
	steps, err := p.ParseMoves(a.moves)
	if err != nil {
		return nil, err
	}
	return place.Try(p, steps, a.Options)
}

func placedOf(r *http.Request) (asked placed, err error) {
	query := r.URL.Query()
	if asked.Weights, err = place.ParseWeights(query.Get("preset"), query["weight"]); err != nil {
		return asked, badRequest("%w", err)
	}
	asked.rules, err = place.ParseRules(query)
	if err != nil {
		return asked, badRequest("%w", err)
	}
	if r.Method == http.MethodPost {
		body, err := io.ReadAll(io.LimitReader(r.Body, maxRules+1))
		if err != nil {
			return asked, badRequest("reading the rules: %w", err)
		}
		var more struct {
			place.Rules `yaml:",inline"`
			Move        []string `yaml:"move"`
		}
		if len(body) > maxRules {
			return asked, badRequest("the rules have more than %d bytes", maxRules)
		}
		if err := yaml.Unmarshal(body, &more); err != nil {
			return asked, badRequest("rules: %w", err)
		}
		asked.rules.Add(more.Rules)
		asked.moves = more.Move
	}
	asked.moves = append(asked.moves, query["move"]...)
	if asked.format = query.Get("format"); asked.format == "" {
		asked.format = "json"
	}
	if asked.format != "json" && asked.format != "text" && !slices.Contains(place.Manifests, asked.format) {
		return asked, badRequest("format=%q, want json, text, kubernetes, compose or network-aware", asked.format)
	}
	asked.label = query.Get("pod_label")
	asked.Headroom = place.DefaultHeadroom
	if text := query.Get("headroom"); text != "" {
		if asked.Headroom, err = strconv.ParseFloat(text, 64); err != nil || !(asked.Headroom >= 0 && asked.Headroom <= 0.9) {
			return asked, badRequest("headroom=%q, want 0 to 0.9", text)
		}
	}
	if text := query.Get("moves"); text != "" {
		if asked.MaxMoves, err = strconv.Atoi(text); err != nil || asked.MaxMoves < 0 {
			return asked, badRequest("moves=%q, want a number", text)
		}
	}
	if text := query.Get("seed"); text != "" {
		if asked.Seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			return asked, badRequest("seed=%q, want a number", text)
		}
	}
	return asked, nil
}

// peaks are the highest uses of containers over the minutes of a window, or over a sixtieth of a longer one.
func (s *server) peaks(ctx context.Context, from, to time.Time) (*place.Peaks, error) {
	step := max(time.Minute, to.Sub(from)/maxPlaceMinutes)
	var times []time.Time
	for at := from; at.Before(to); at = at.Add(step) {
		times = append(times, at)
	}
	times = append(times, to)
	peaks := &place.Peaks{}
	return peaks, s.windowsOf(ctx, framelog.Query{Times: times, Only: place.PeakColumns}, func(_ int, w *frame.Window) error {
		peaks.Visit(w)
		return nil
	})
}

// delays are half the round trips that were measured between hosts, the median.
func delays(w *frame.Window, hosts []place.Host) (all []place.Delay) {
	between := fleet.Between(fleet.Probes(w))
	for a := range hosts {
		for b := range hosts {
			if v, ok := between(hosts[a].Name, hosts[b].Name, "probe_round_trip_p50"); ok && a != b {
				all = append(all, place.Delay{A: a, B: b, Seconds: v / 2})
			}
		}
	}
	return all
}
