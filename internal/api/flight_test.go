package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"outsight/internal/csvy"
	"outsight/internal/graph"
	"outsight/internal/model"
	"outsight/internal/monotonic"
	"outsight/internal/recorder"
	"outsight/internal/report"
)

const flightInterval = 50 * time.Millisecond

// ticking stands for the kernel and the host: ticks of the made-up shop, of which the catalogue stands
// still for 80 ms. It is handed over to a real flight recorder.
type ticking struct {
	shop  *shop
	ticks []model.Tick
}

func (k *ticking) Interval() time.Duration        { return flightInterval }
func (k *ticking) Losses() model.TickLosses       { return model.TickLosses{} }
func (k *ticking) Ignore(model.CgroupID)          {}
func (k *ticking) Containers() []*model.Container { return k.shop.containers }
func (k *ticking) Drain(take func(*model.Tick)) error {
	for i := range k.ticks {
		take(&k.ticks[i])
	}
	k.ticks = nil
	return nil
}
func (k *ticking) Lookup(id model.CgroupID) *model.Container {
	for _, c := range k.shop.containers {
		if c.Cgroup == id {
			return c
		}
	}
	return k.shop.byName["host"]
}

// fill makes so many ticks up to now. The stall is from the tick with that number for 100 ms.
func (k *ticking) fill(ticks, stall int) {
	begin := monotonic.Now() - uint64(ticks)*uint64(flightInterval)
	sums := make([]model.TickSample, len(work))
	for n := range ticks {
		stalls := n >= stall && n < stall+3 // seen at three ticks: two whole steps
		for i, w := range work {
			s := &sums[i]
			s.Group = model.CgroupID(100 + i)
			s.Asking, s.Serving = 0, 0
			busy := uint64(w.cores * float64(flightInterval))
			switch w.name {
			case "catalogue":
				if n > stall && stalls {
					busy = 0
				} else {
					s.SentBytes += 1000
				}
				if stalls {
					s.Serving = uint32(1 + n - stall)
				}
			case "gateway":
				if stalls {
					s.Asking, s.Serving = uint32(1+n-stall), uint32(1+n-stall)
				}
				s.SentBytes += 1000
			default:
				s.SentBytes += 1000
			}
			s.CPUNS += busy
			s.RunQueueNS += busy / 50
		}
		due := begin + uint64(n)*uint64(flightInterval)
		k.ticks = append(k.ticks, model.Tick{Number: uint64(n), DueNS: due, BeganNS: due + 2000, CostNS: 50_000,
			Samples: slices.Clone(sums)})
	}
}

// flying is a handler with a flight recorder that has kept so many ticks, the last one now.
func flying(t testing.TB, ticks, stall int) (h http.Handler, k *ticking, now time.Time) {
	t.Helper()
	now = time.Now()
	kept := openKept(t, time.Now)
	sh := newShop(now.Add(-2 * time.Minute))
	for i, c := range sh.containers {
		c.Cgroup = model.CgroupID(100 + i)
	}
	for at := sh.start; !at.After(now); at = at.Add(time.Second) {
		if err := kept.send(sh.at(at)); err != nil {
			t.Fatal(err)
		}
	}
	if err := kept.flush(); err != nil {
		t.Fatal(err)
	}
	k = &ticking{shop: sh}
	now = time.Now()
	k.fill(ticks, stall)
	flight := recorder.NewFlight(k, k, recorder.FlightOptions{Keep: time.Hour})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- flight.Run(ctx) }()
	eventually(t, "the flight recorder has emptied the ring", func() error {
		select {
		case err := <-ended:
			t.Fatalf("it has ended: %v", err)
		default:
		}
		if len(flight.Data(time.Hour).Blocks) == 0 {
			return errors.New("it has no block")
		}
		return nil
	})
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	return New(Options{Log: kept.log, Now: func() time.Time { return now }, Flight: flight.Data}), k, now
}

// flightJSON is flightAnswer as a reader has it.
type flightJSON struct {
	BaseMS        int64   `json:"base_ms"`
	FromMS        float64 `json:"from_ms"`
	KeptFromMS    float64 `json:"kept_from_ms"`
	KeptToMS      float64 `json:"kept_to_ms"`
	IntervalMS    float64 `json:"interval_ms"`
	TicksPerPoint int     `json:"ticks_per_point"`
	AtMS          []float64
	Lanes         []struct {
		ID, Name                      string
		CPU, Waiting, Asking, Serving []*float64
	}
	OmittedLanes int `json:"omitted_lanes"`
	LeftOut      int `json:"left_out"`
	Marks        []struct {
		Kind, Container, ID, Text string
		FromMS                    float64 `json:"from_ms"`
		ToMS                      float64 `json:"to_ms"`
		Effects                   []struct {
			Container, ID, What string
			FromMS              float64 `json:"from_ms"`
		}
		Chain []struct {
			ID   string
			AtMS float64 `json:"at_ms"`
		}
		Edges []flightEdge
	}
}

func getFlight(t *testing.T, h http.Handler, query string) (f flightJSON) {
	t.Helper()
	raw := map[string]json.RawMessage{}
	get200(t, h, "/api/outsight/flight"+query, &raw)
	get200(t, h, "/api/outsight/flight"+query, &f)
	if err := json.Unmarshal(raw["at_ms"], &f.AtMS); err != nil {
		t.Fatal(err)
	}
	for _, l := range f.Lanes {
		for _, column := range [][]*float64{l.CPU, l.Waiting, l.Asking, l.Serving} {
			if len(column) != len(f.AtMS) {
				t.Fatalf("%s: %d values at %d times", l.Name, len(column), len(f.AtMS))
			}
		}
	}
	return f
}

// lane is the values of a lane, without those that are missing.
func (f flightJSON) lane(t *testing.T, name string) (cpu, serving []float64) {
	t.Helper()
	known := func(column []*float64) (values []float64) {
		for _, v := range column {
			if v != nil {
				values = append(values, *v)
			}
		}
		return values
	}
	for _, l := range f.Lanes {
		if l.Name == name {
			return known(l.CPU), known(l.Serving)
		}
	}
	t.Fatalf("no lane %q", name)
	return nil, nil
}

func TestFlightFindsTheStallAndItsEdges(t *testing.T) {
	const ticks, stall = 1800, 1200 // 90 s, and the stall 30 s ago
	h, k, now := flying(t, ticks, stall)
	f := getFlight(t, h, "?lanes=20")
	if f.IntervalMS != 50 || f.TicksPerPoint != 1 || len(f.AtMS) < 1195 || len(f.AtMS) > 1203 ||
		len(f.Lanes) != len(work) {
		t.Fatalf("%v ms, %d ticks a point, %d ticks, %d lanes", f.IntervalMS, f.TicksPerPoint, len(f.AtMS), len(f.Lanes))
	}
	for i := 1; i < len(f.AtMS); i++ {
		if d := f.AtMS[i] - f.AtMS[i-1]; math.Abs(d-50) > 0.001 {
			t.Fatalf("ticks are %v ms apart", d)
		}
	}
	if kept := f.KeptToMS - f.KeptFromMS; math.Abs(kept-ticks*50) > 100 {
		t.Errorf("kept are %v ms", kept)
	}
	if cpu, _ := f.lane(t, "payment"); math.Abs(cpu[700]-0.58) > 0.001 {
		t.Errorf("payment used %v CPUs", cpu[700])
	}
	if len(f.Marks) != 1 {
		t.Fatalf("%d marks: %+v", len(f.Marks), f.Marks)
	}
	m := f.Marks[0]
	catalogue, gateway := k.shop.byName["catalogue"].ID, k.shop.byName["gateway"].ID
	if m.Kind != "stall" || m.Container != "catalogue" || m.ID != catalogue {
		t.Errorf("%+v", m)
	}
	// Against the wall clock: the last tick is a tick's time before the test's now.
	began := float64(now.UnixMilli()-f.BaseMS) - (ticks-stall)*50
	if math.Abs(m.FromMS-began) > 60 || math.Abs(m.ToMS-m.FromMS-125) > 30 {
		t.Errorf("from %v to %v ms, want it to begin at %v", m.FromMS, m.ToMS, began)
	}
	if len(m.Effects) != 1 || m.Effects[0].ID != gateway || m.Effects[0].What != "waited-for-replies" ||
		len(m.Chain) != 2 || m.Chain[1].ID != gateway ||
		m.Chain[1].AtMS < m.Chain[0].AtMS || m.Effects[0].FromMS != m.Chain[1].AtMS {
		t.Errorf("effects %+v, chain %+v", m.Effects, m.Chain)
	}
	// The edges are known to the map.
	var g graph.Graph
	get200(t, h, "/api/outsight/graph?from=now-1m", &g)
	direct, further := edgeBetween(t, &g, "gateway", "catalogue"), edgeBetween(t, &g, "outside", "gateway")
	if want := []flightEdge{{direct.ID, "gateway", "catalogue"},
		{further.ID, "outside", "gateway"}}; !slices.Equal(m.Edges, want) {
		t.Errorf("edges %+v, want %+v", m.Edges, want)
	}

	// A window of milliseconds within it has a tick more at each end, and the same mark.
	at := float64(f.BaseMS) + m.FromMS
	zoomed := getFlight(t, h, fmt.Sprintf("?from=%.3f&to=%.3f", (at+60)/1000, (at+75)/1000))
	if n := len(zoomed.AtMS); n < 2 || n > 3 || zoomed.AtMS[0] > zoomed.FromMS || zoomed.AtMS[n-1] < zoomed.FromMS+15 {
		t.Errorf("ticks at %v of a window from %v", zoomed.AtMS, zoomed.FromMS)
	}
	if _, serving := zoomed.lane(t, "catalogue"); slices.Max(serving) < 2 {
		t.Errorf("the catalogue's requests are %v", serving)
	}
	if len(zoomed.Marks) != 1 || math.Abs(float64(zoomed.BaseMS-f.BaseMS)+zoomed.Marks[0].FromMS-m.FromMS) > 0.001 {
		t.Errorf("%+v, want %+v", zoomed.Marks, f.Marks)
	}
}

func TestFlightHasTheBusiestContainersAndThoseAskedFor(t *testing.T) {
	h, k, _ := flying(t, 1300, 20) // the stall is before the window
	names := func(f flightJSON) (names []string) {
		for _, l := range f.Lanes {
			names = append(names, l.Name)
		}
		return names
	}
	f := getFlight(t, h, "?lanes=3")
	if got := names(f); !slices.Equal(got, []string{"catalogue", "gateway", "payment"}) ||
		f.OmittedLanes != len(work)-3 || len(f.Marks) != 0 {
		t.Errorf("%v and %d omitted, %d marks", got, f.OmittedLanes, len(f.Marks))
	}
	f = getFlight(t, h, "?lanes=1&container="+k.shop.byName["statsd"].ID+"&container=host&container=nobody")
	if got := names(f); !slices.Equal(got, []string{"host", "payment", "statsd"}) {
		t.Errorf("%v", got)
	}
	// Who stood still is there however little it used.
	f = getFlight(t, h, "?lanes=1&from=now-70s")
	if got := names(f); !slices.Equal(got, []string{"catalogue", "payment"}) || len(f.Marks) != 1 {
		t.Errorf("%v, %d marks", got, len(f.Marks))
	}
}

// TestFlightKeepsAStallInALongWindow: of ten minutes, the least and the greatest value of ticks beside
// each other are left. A mean would be no stall.
func TestFlightKeepsAStallInALongWindow(t *testing.T) {
	h, _, _ := flying(t, 12_000, 6000)
	f := getFlight(t, h, "?from=now-10m&lanes=20")
	if f.TicksPerPoint < 4 || len(f.AtMS) > flightTicks+2 || len(f.AtMS) < flightTicks/2 || f.LeftOut != 0 {
		t.Fatalf("%d points of %d ticks, %d containers left out", len(f.AtMS), f.TicksPerPoint, f.LeftOut)
	}
	if !slices.IsSorted(f.AtMS) {
		t.Error("times are not in order")
	}
	cpu, serving := f.lane(t, "catalogue")
	if slices.Min(cpu) != 0 || slices.Max(serving) != 3 {
		t.Errorf("least CPU %v, most requests %v: want 0 and 3", slices.Min(cpu), slices.Max(serving))
	}
	if len(f.Marks) != 1 {
		t.Errorf("%d marks", len(f.Marks))
	}
}

// TestFlightOfContainersThatCameAndWent: the last tick of one that ended earlier is none of the window.
func TestFlightOfContainersThatCameAndWent(t *testing.T) {
	f := flightView{from: time.Unix(100, 0), to: time.Unix(101, 0), base: 100_000, answer: flightAnswer{IntervalMS: 500}}
	of := func(id string, first, last int64) *csvy.Recording {
		h := csvy.Head{Container: csvy.Container{ID: id, Name: id}}
		for _, name := range []string{csvy.Tick, csvy.DueNS, csvy.CPUNS, csvy.RunQueueNS, csvy.RequestsAsking,
			csvy.RequestsServing} {
			h.Columns = append(h.Columns, csvy.ColumnNamed(name))
		}
		var one recorder.InMemory
		w, err := one.Create(h)
		if err != nil {
			t.Fatal(err)
		}
		for n := first; n <= last; n++ {
			if err := w.Row(time.Unix(0, n*500_000_000), []float64{float64(n), 0, 0, 0, 0, 0}); err != nil {
				t.Fatal(err)
			}
		}
		return one.List[0]
	}
	f.cut([]*csvy.Recording{of("gone", 150, 180), of("here", 150, 250), of("later", 220, 250), of("came", 201, 250)},
		10, nil)
	if want := (numberList{-500, 0, 500, 1000, 1500}); !slices.Equal(f.answer.AtMS, want) {
		t.Errorf("ticks at %v, want %v", f.answer.AtMS, want)
	}
	var names []string
	for _, l := range f.answer.Lanes {
		names = append(names, l.Name)
	}
	if want := []string{"came", "here"}; !slices.Equal(names, want) {
		t.Errorf("lanes %v, want %v", names, want)
	}
}

// TestFlightKnowsWhoAskedAStall: also where the client always waits for as much, so that it is no effect.
func TestFlightKnowsWhoAskedAStall(t *testing.T) {
	of := func(id string, asking, serving []float64) *csvy.Recording {
		r := &csvy.Recording{Head: csvy.Head{Container: csvy.Container{ID: id}, Columns: []csvy.Column{
			csvy.ColumnNamed(csvy.Tick), csvy.ColumnNamed(csvy.RequestsAsking), csvy.ColumnNamed(csvy.RequestsServing)}}}
		tick := []float64{}
		for i := range asking {
			r.At, tick = append(r.At, int64(i)*50_000_000), append(tick, float64(i))
		}
		r.Values = [][]float64{tick, asking, serving}
		return r
	}
	s := &report.Saturation{Kind: report.Stall, ID: "still", From: time.Unix(0, 40_000_000), To: time.Unix(0, 210_000_000)}
	none := make([]float64, 6)
	asked := askedOf([]*csvy.Recording{
		of("still", none, []float64{0, 0, 1, 2, 2, 0}),
		of("client", []float64{0, 0, 1, 2, 1, 0}, none),
		of("now and then", []float64{1, 1, 1, 0, 1, 1}, none),
		of("never", none, none),
	}, s)
	if !asked["client"] || asked["now and then"] || asked["never"] || asked["still"] {
		t.Errorf("%v", asked)
	}
	m := flightMark{Saturation: s, asked: asked}
	requests := &graph.Side{}
	if err := json.Unmarshal([]byte(`{"transactions": 5}`), requests); err != nil {
		t.Fatal(err)
	}
	m.slowed(callersOf(&graph.Graph{
		Nodes: []*graph.Node{{ID: "still", SeriesID: "still"}, {ID: "client", SeriesID: "client"},
			{ID: "far", SeriesID: "far"}},
		Edges: []*graph.Edge{{ID: "a", Client: "client", Server: "still", ClientSide: requests},
			{ID: "b", Client: "far", Server: "client", ClientSide: requests}},
	}))
	if len(m.Edges) != 1 || m.Edges[0].ID != "a" {
		t.Errorf("%+v", m.Edges)
	}
}

func TestFlightOfATimeThatWasNotKept(t *testing.T) {
	h, _, _ := flying(t, 100, 1000)
	for _, query := range []string{"?from=now-1h&to=now-30m", "?from=now-8s&to=now-6s"} {
		f := getFlight(t, h, query)
		if len(f.AtMS) != 0 || len(f.Lanes) != 0 || len(f.Marks) != 0 || f.KeptToMS-f.KeptFromMS < 4000 {
			t.Errorf("%s: %+v", query, f)
		}
	}
}

func TestFlightErrors(t *testing.T) {
	with, _, _ := flying(t, 100, 1000)
	without := New(Options{Flight: func(time.Duration) *recorder.FlightData { return nil }})
	for _, c := range []struct {
		handler http.Handler
		query   string
		status  int
		says    string
	}{
		{without, "", 404, "no flight recorder"},
		{New(Options{}), "", 404, "no flight recorder"},
		{without, "?from=yesterday", 400, "yesterday"},
		{with, "?from=now-2h", 400, "at most 1h0m0s"},
		{with, "?from=now&to=now", 400, "at least 1ms"},
		{with, "?lanes=0", 400, "lanes"},
		{with, "?lanes=many", 400, "lanes"},
		{with, "?to=2099-01-01T00:00:00Z", 400, "future"},
	} {
		w := httptest.NewRecorder()
		c.handler.ServeHTTP(w, httptest.NewRequest("GET", "/api/outsight/flight"+c.query, nil))
		var body map[string]string
		if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil || w.Code != c.status ||
			!strings.Contains(body["error"], c.says) {
			t.Errorf("%s: %d %s", c.query, w.Code, w.Body)
		}
	}
}

func BenchmarkFlight(b *testing.B) {
	h, _, _ := flying(b, 12_000, 6000)
	for _, query := range []string{"", "?from=now-10m&lanes=100"} {
		b.Run(query, func(b *testing.B) {
			for b.Loop() {
				h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/api/outsight/flight"+query, nil))
			}
		})
	}
}
