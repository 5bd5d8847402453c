package predict

import (
	"math"
	"math/rand/v2"
	"testing"

	"outsight/internal/graph"
)

// shop is a history of a web container that takes 0.1 cores and 2 ms for each request, of its one thread, and two cart
// containers that take 4 ms for half of the requests each, at rates from 50 to 150/s.
func shop() *History {
	r := rand.New(rand.NewPCG(1, 2))
	var h History
	for range 30 {
		rate := 50 + 100*r.Float64()
		noise := func() float64 { return 1e-4 * r.NormFloat64() }
		web, cart := 0.1+0.002*rate+noise(), 0.002*rate+noise()
		h.Add(&graph.Analysis{ArrivalRate: rate, Resources: []graph.Resource{
			{Node: "1", Name: "web", Host: "a", CPUCores: web, Parallel: 1, ParallelBy: "threads"},
			{Node: "2", Name: "cart", Host: "a", CPUCores: cart, Parallel: 0.5, ParallelBy: "quota"},
			{Node: "3", Name: "cart", Host: "a", CPUCores: cart, Parallel: 0.5, ParallelBy: "quota"},
			{Node: "cpus/a", Name: "CPUs of a", Host: "a", CPUCores: web + 2*cart, Parallel: 4, ParallelBy: "left"},
		}}, map[string]float64{"a": 4}, nil)
	}
	return &h
}

// TestScenarios: utilisations and the first limit follow load, replicas and quotas.
func TestScenarios(t *testing.T) {
	h := shop()
	for _, c := range []struct {
		name     string
		scenario Scenario
		// limit is where the resource by gets used up, and cart how full a container of that name is.
		limit float64
		by    string
		cart  float64
	}{
		{"as it is", Scenario{Rate: 100}, 250, "cart", 0.4},
		{"twice the load", Scenario{Rate: 200}, 250, "cart", 0.8},
		{"a larger quota", Scenario{Rate: 200, Quota: map[string]float64{"cart": 2}}, 450, "web", 0.2},
		{"a smaller quota", Scenario{Rate: 100, Quota: map[string]float64{"cart": 0.25}}, 125, "cart", 0.8},
		{"more replicas", Scenario{Rate: 200, Replicas: map[string]int{"cart": 4}}, 450, "web", 0.4},
		{"one replica", Scenario{Rate: 100, Replicas: map[string]int{"cart": 1}}, 125, "cart", 0.8},
		// Two webs take 0.1 cores more of the host: 4 cores less 0.2 for 6 ms each.
		{"both", Scenario{Rate: 100, Replicas: map[string]int{"web": 2}, Quota: map[string]float64{"cart": 4}},
			3.8 / 0.006, "CPUs of a", 0.05},
	} {
		p, err := h.Predict(c.scenario)
		if err != nil {
			t.Fatal(err)
		}
		if p.Limit == nil || math.Abs(p.Limit.Value/c.limit-1) > 0.01 {
			t.Errorf("%s: the first limit is %+v, want %v", c.name, p.Limit, c.limit)
		}
		for i := range p.Resources {
			r := &p.Resources[i]
			if r.Node == p.LimitedBy && r.Name != c.by {
				t.Errorf("%s: %s is used up first, want %s", c.name, r.Name, c.by)
			}
			if r.Name == "cart" && math.Abs(r.Utilisation.Value/c.cart-1) > 0.01 {
				t.Errorf("%s: cart is used at %+v, want %v", c.name, r.Utilisation, c.cart)
			}
		}
	}
	if _, err := h.Predict(Scenario{Times: 1, Replicas: map[string]int{"carts": 2}}); err == nil {
		t.Error("replicas of what is not there are predicted")
	}
	if _, err := h.Predict(Scenario{Times: 1, Quota: map[string]float64{"CPUs of a": 2}}); err == nil {
		t.Error("a quota of a host is predicted")
	}
}

// TestSteadyLoad: where the load hardly changed, no limit is told, and why.
func TestSteadyLoad(t *testing.T) {
	var h History
	for i := range 30 {
		rate := 100 + float64(i%3)
		h.Add(&graph.Analysis{ArrivalRate: rate, Resources: []graph.Resource{
			{Node: "1", Name: "web", Host: "a", CPUCores: 0.002 * rate, Parallel: 1, ParallelBy: "threads"}}}, nil, nil)
	}
	p, err := h.Predict(Scenario{Times: 2})
	if err != nil {
		t.Fatal(err)
	}
	if p.Limit != nil || len(p.Resources) != 1 || p.Resources[0].Unknown != ErrSteady.Error() || p.Resources[0].Utilisation != nil {
		t.Errorf("of a steady load it is told %+v", p)
	}
	if empty, err := new(History).Predict(Scenario{Times: 2}); err != nil || empty.Stretches != 0 || empty.Limit != nil {
		t.Errorf("of nothing it is told %+v, %v", empty, err)
	}
}

// twoHosts is a history of a web on host a, two carts on a and b that share its calls, and a batch of none on c.
func twoHosts() *History {
	r := rand.New(rand.NewPCG(1, 2))
	var h History
	for range 30 {
		rate := 50 + 100*r.Float64()
		noise := func() float64 { return 1e-4 * r.NormFloat64() }
		web, cart := 0.1+0.004*rate+noise(), 0.002*rate+noise()
		h.Add(&graph.Analysis{ArrivalRate: rate, Resources: []graph.Resource{
			{Node: "1", Name: "web", Host: "a", CPUCores: web, Parallel: 8, ParallelBy: "threads"},
			{Node: "2", Name: "cart", Host: "a", CPUCores: cart, Parallel: 1, ParallelBy: "threads"},
			{Node: "3", Name: "cart", Host: "b", CPUCores: cart, Parallel: 1, ParallelBy: "threads"},
			{Node: "cpus/a", Name: "CPUs of a", Host: "a", CPUCores: web + cart, Parallel: 2, ParallelBy: "left"},
			{Node: "cpus/b", Name: "CPUs of b", Host: "b", CPUCores: cart, Parallel: 2, ParallelBy: "left"},
		}}, map[string]float64{"a": 2, "b": 2, "c": 4}, nil)
	}
	return &h
}

// TestMoves: what moves is taken off one host's CPUs and put onto the other's, and what a dead host had goes to replicas
// or is started elsewhere.
func TestMoves(t *testing.T) {
	h := twoHosts()
	f := func(s Scenario, want map[string]float64, limit float64) *Prediction {
		t.Helper()
		p, err := h.Predict(s)
		if err != nil {
			t.Fatal(err)
		}
		if len(p.Resources) != len(want) {
			t.Errorf("%+v: %d resources, want %d", s, len(p.Resources), len(want))
		}
		for i := range p.Resources {
			r := &p.Resources[i]
			if w, ok := want[r.Node]; w == -1 && r.Unknown != "" && r.Utilisation == nil {
				continue // it is not known what else runs there
			} else if !ok || r.Utilisation == nil || math.Abs(r.Utilisation.Value-w) > 0.005 {
				t.Errorf("%+v: %s on %s at %+v, want %v", s, r.Node, r.Host, r.Utilisation, w)
			}
		}
		if p.Limit == nil || math.Abs(p.Limit.Value/limit-1) > 0.01 {
			t.Errorf("%+v: the first limit is %+v, want %v", s, p.Limit, limit)
		}
		return p
	}
	// At 100/s: web 0.5 of 8 cores, each cart 0.2 of 1, a 0.7 of 2, b 0.2 of 2. a is full at 1.9 / 0.006.
	f(Scenario{Rate: 100}, map[string]float64{"1": 0.0625, "2": 0.2, "3": 0.2, "cpus/a": 0.35, "cpus/b": 0.1}, 1.9/0.006)
	f(Scenario{Rate: 100, Move: map[string]string{"web": "b"}},
		map[string]float64{"1": 0.0625, "2": 0.2, "3": 0.2, "cpus/a": 0.1, "cpus/b": 0.35}, 1.9/0.006)
	// To a host that no request had reached: a cart is full at 500.
	p := f(Scenario{Rate: 100, Move: map[string]string{"web": "c"}},
		map[string]float64{"1": 0.0625, "2": 0.2, "3": 0.2, "cpus/a": 0.1, "cpus/b": 0.1, "cpus/c": -1}, 500)
	for i := range p.Resources {
		if r := &p.Resources[i]; r.Node == "1" && (r.Host != "c" || r.MovedFrom != "a") {
			t.Errorf("web is on %s, from %s", r.Host, r.MovedFrom)
		}
	}
	// Without a, the other cart gets all calls, and the web is started on b, of which it is known what is left.
	f(Scenario{Rate: 100, Down: []string{"a"}}, map[string]float64{"1": 0.0625, "3": 0.4, "cpus/b": 0.45}, 1.9/0.008)
	for _, s := range []Scenario{{Move: map[string]string{"nobody": "a"}}, {Move: map[string]string{"web": "nowhere"}},
		{Down: []string{"nowhere"}}, {Down: []string{"a", "b", "c"}}, {Move: map[string]string{"web": "a"}, Down: []string{"a"}}} {
		if _, err := h.Predict(s); err == nil {
			t.Errorf("%+v is no error", s)
		}
	}
	if _, err := h.Predict(Scenario{Rate: 1, Down: []string{"a", "a", "b"}}); err != nil {
		t.Error(err)
	}
}

// TestMove: the line of a host is of what would have run there.
func TestMove(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var h History
	cores := map[string]float64{"a": 4, "b": 2, "idle": 8}
	for range 30 {
		rate := 50 + 100*r.Float64()
		noise := func() float64 { return 1e-4 * r.NormFloat64() }
		web, cart, db := 0.1+0.002*rate+noise(), 0.2+0.004*rate+noise(), 0.003*rate+noise()
		h.Add(&graph.Analysis{ArrivalRate: rate, Resources: []graph.Resource{
			{Node: "1", Name: "web", Host: "a", CPUCores: web, Parallel: 4, ParallelBy: "cores"},
			{Node: "2", Name: "cart", Host: "a", CPUCores: cart, Parallel: 4, ParallelBy: "cores"},
			{Node: "3", Name: "db", Host: "b", CPUCores: db, Parallel: 2, ParallelBy: "cores"},
			{Node: "cpus/a", Name: "CPUs of a", Host: "a", CPUCores: web + cart, Parallel: 4, ParallelBy: "left"},
			{Node: "cpus/b", Name: "CPUs of b", Host: "b", CPUCores: db, Parallel: 1.5, ParallelBy: "left"},
		}}, cores, nil)
	}
	p, err := h.Predict(Scenario{Rate: 200, Move: map[string]string{"cart": "b"}})
	if err != nil {
		t.Fatal(err)
	}
	of := map[string]*Resource{}
	for i := range p.Resources {
		of[p.Resources[i].Name] = &p.Resources[i]
	}
	for name, want := range map[string]float64{"cart": (0.2 + 0.8) / 2, "CPUs of a": (0.1 + 0.4) / 4, "CPUs of b": (0.2 + 1.4) / 1.5, "web": 0.5 / 4} {
		if u := of[name].Utilisation; math.Abs(u.Value/want-1) > 0.01 || u.Low > want || *u.High < want {
			t.Errorf("%s: %+v, want %v", name, u, want)
		}
	}
	if of["cart"].Host != "b" || p.LimitedBy != "cpus/b" || math.Abs(p.Limit.Value/(1.3/0.007)-1) > 0.01 {
		t.Errorf("cart is on %s, the first limit is %s at %+v", of["cart"].Host, p.LimitedBy, p.Limit)
	}
	if before := of["CPUs of b"].Before.Value; math.Abs(before/(0.003*p.MeanRate/1.5)-1) > 0.01 {
		t.Errorf("before, b is used by %v", before)
	}
	if p, err = h.Predict(Scenario{Rate: 200, Move: map[string]string{"cart": "idle"}}); err != nil {
		t.Fatal(err)
	}
	if last := p.Resources[len(p.Resources)-1]; last.Name != "CPUs of idle" || last.Unknown == "" || last.Utilisation != nil {
		t.Errorf("the host that no request reached is %+v", last)
	}
	for name, host := range map[string]string{"cart": "nowhere", "nobody": "b"} {
		if _, err := h.Predict(Scenario{Rate: 200, Move: map[string]string{name: host}}); err == nil {
			t.Errorf("%s moves to %s", name, host)
		}
	}
}

// What others leave of a host's CPUs changes: the bounds of its limit are those of what they left in nine of ten cases.
func TestOthersLeaveMoreAndLess(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	limits := func(others float64) Interval {
		var h History
		for range 40 {
			rate := 50 + 100*r.Float64()
			h.Add(&graph.Analysis{ArrivalRate: rate, Resources: []graph.Resource{{Node: "cpus/a", Name: "CPUs of a", Host: "a",
				CPUCores: 0.01*rate + 0.002*r.NormFloat64(), Parallel: 4 - others*r.Float64(), ParallelBy: "left"}}},
				map[string]float64{"a": 4}, nil)
		}
		p, err := h.Predict(Scenario{Times: 1})
		if err != nil || p.Limit == nil || p.Limit.High == nil {
			t.Fatalf("%+v, %v", p, err)
		}
		return ofLine(&p.Resources[0])
	}
	if l := limits(0); l.Low < 390 || *l.High > 410 {
		t.Errorf("of all 4 cores: %v, high %v", l, *l.High)
	}
	if l := limits(2); l.Low > 225 || l.Low < 195 || *l.High < 380 || *l.High > 410 || l.Value < l.Low || l.Value > *l.High {
		t.Errorf("of 2 to 4 cores: %v, high %v", l, *l.High)
	}
}
