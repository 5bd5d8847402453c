package place

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func options(preset string) Options {
	return Options{Weights: Presets[preset], Headroom: DefaultHeadroom, Seed: 1}
}

// checked solves a problem and asserts that the answer keeps the rules, that it costs what it says, and that each step
// keeps them too.
func checked(t *testing.T, p *Problem, o Options) *Result {
	t.Helper()
	r, err := Solve(t.Context(), p, o)
	if err != nil {
		t.Fatal(err)
	}
	c := compile(p, o)
	at := p.Present()
	start := newPlan(c, slices.Clone(at)).brokenRules()
	gained := 0.0
	for n, s := range r.Moves {
		for _, m := range s.Moves {
			if p.Hosts[at[m.Container]].Name != m.From {
				t.Errorf("step %d moves %s from %s, it is on %s", n, m.Name, m.From, p.Hosts[at[m.Container]].Name)
			}
			at[m.Container] = slices.IndexFunc(p.Hosts, func(h Host) bool { return h.Name == m.To })
		}
		gained += s.Gain
		if broken := newPlan(c, slices.Clone(at)).brokenRules(); broken > start {
			t.Errorf("step %d breaks rules: %v, %v before", n, broken, start)
		}
	}
	if !slices.Equal(at, r.Placement) {
		t.Errorf("the moves lead to %v, want %v", at, r.Placement)
	}
	end := newPlan(c, at)
	if told := end.problems(); len(told) > 0 && o.MaxMoves == 0 {
		t.Errorf("the answer breaks rules: %v", told)
	}
	if cost := end.cost(); !near(cost, r.After.Cost) || !near(r.Before.Cost-gained, cost) {
		t.Errorf("the cost is %v, told is %v, and %v less %v gained", cost, r.After.Cost, r.Before.Cost, gained)
	}
	if r.Bound > r.After.Cost+1e-9 {
		t.Errorf("the bound %v is above the cost %v", r.Bound, r.After.Cost)
	}
	return r
}

func near(a, b float64) bool { return a-b < 1e-6 && b-a < 1e-6 }

// TestSearchEndsWithItsContext: a search of years ends when nobody wants its answer any more.
func TestSearchEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	o := options("")
	o.Effort = 1e6
	if _, err := Solve(ctx, Random(1000, 100, 1), o); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the context's error", err)
	}
	for _, o.Search = range []Search{Exact, Anneal} {
		if _, err := Solve(ctx, Random(6, 2, 1), o); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: got %v, want the context's error", o.Search, err)
		}
	}
}

func TestAnnealingIsNearTheBest(t *testing.T) {
	worst, sum, solved := 0.0, 0.0, 0
	for seed := uint64(0); solved < 200; seed++ {
		p := Random(6+int(seed%5), 2+int(seed%3), seed)
		o := options([]string{"", "fewest-hosts", "lowest-energy"}[seed/5%3])
		o.Search = Exact
		best, err := Solve(t.Context(), p, o)
		var none *Infeasible
		if errors.As(err, &none) || err == nil && best.Full != "" {
			continue // there is too little room
		}
		if err != nil {
			t.Fatal(err)
		}
		o.Search, o.Effort = Anneal, 0.5
		r := checked(t, p, o)
		above := (r.After.Cost - best.After.Cost) / best.After.Cost
		worst, sum, solved = max(worst, above), sum+above, solved+1
		if above < -1e-9 {
			t.Errorf("seed %d: annealing found %v, exact %v", seed, r.After.Cost, best.After.Cost)
		}
		if b := compile(p, o).bound(); b > best.After.Cost+1e-9 {
			t.Errorf("seed %d: the bound %v is above the best cost %v", seed, b, best.After.Cost)
		}
	}
	t.Logf("%d problems: %.3f %% above the best on average, %.2f %% at worst", solved, 100*sum/float64(solved), 100*worst)
	if sum/float64(solved) > 0.001 || worst > 0.01 {
		t.Errorf("%d solved, %v above the best on average, %v at worst", solved, sum/float64(solved), worst)
	}
}

func TestSameProblemSameAnswer(t *testing.T) {
	p := Random(100, 10, 3)
	first, second := checked(t, p, options("")), checked(t, p, options(""))
	if !reflect.DeepEqual(first, second) {
		t.Error("two answers differ")
	}
	if first.After.Cost >= first.Before.Cost || len(first.Moves) == 0 {
		t.Errorf("cost %v, %v before", first.After.Cost, first.Before.Cost)
	}
	for n, s := range first.Moves[:3] {
		if s.Gain <= 0 {
			t.Errorf("step %d gains %v", n, s.Gain)
		}
	}
}

func TestFewMoves(t *testing.T) {
	p := Random(100, 10, 3)
	o := options("least-traffic")
	o.MaxMoves = 3
	r := checked(t, p, o)
	if len(r.Moves) != 3 || r.After.CrossBytes >= r.Before.CrossBytes {
		t.Errorf("%d steps, %v bytes cross hosts, %v before", len(r.Moves), r.After.CrossBytes, r.Before.CrossBytes)
	}
}

// TestTryIsWhatSolveSays: the moves of an answer, chosen one by one, have the figures of the answer to the last bit.
func TestTryIsWhatSolveSays(t *testing.T) {
	for seed := range uint64(5) {
		p, o := Random(60, 6, seed), options("")
		want := checked(t, p, o)
		var texts []string
		for _, s := range want.Moves {
			var step []string
			for _, m := range s.Moves {
				step = append(step, p.Containers[m.Container].ID+"="+m.To)
			}
			texts = append(texts, strings.Join(step, ","))
		}
		steps, err := p.ParseMoves(texts)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Try(p, steps, o)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got.Moves, want.Moves) || !reflect.DeepEqual(got.After, want.After) ||
			!reflect.DeepEqual(got.HostsAfter, want.HostsAfter) || !slices.Equal(got.Placement, want.Placement) {
			t.Errorf("seed %d: the moves chosen have other figures: %+v, want %+v", seed, got.After, want.After)
		}
		few, err := Try(p, steps[:2], o)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(few.After, *want.Moves[1].After) {
			t.Errorf("seed %d: two moves have the figures %+v, want %+v", seed, few.After, want.Moves[1].After)
		}
	}
}

func TestTryTellsWhatItBreaks(t *testing.T) {
	p := &Problem{Hosts: []Host{{Name: "a", Cores: 4, MemoryBytes: 8}, {Name: "b", Cores: 4, MemoryBytes: 8}},
		Containers: []Container{{ID: "1", Name: "web", CPU: Use{1, 2}, Memory: Use{1, 1}},
			{ID: "2", Name: "db", Host: 1, CPU: Use{1, 2}, Memory: Use{1, 1}},
			{ID: "3", Name: "dns", Host: 1, CPU: Use{0.1, 0.1}, Pinned: ofHost, OfHost: true}},
		Traffic: []Traffic{{A: 0, B: 1, Bytes: 100}}, Apart: [][]int{{0, 1}}}
	f := func(move, wantErr string, wants ...string) {
		t.Helper()
		steps, err := p.ParseMoves([]string{move})
		if wantErr != "" {
			if err == nil || !strings.Contains(err.Error(), wantErr) {
				t.Errorf("%s: %v, want %q", move, err, wantErr)
			}
			return
		}
		r, err := Try(p, steps, options(""))
		if err != nil {
			t.Fatal(err)
		}
		text := r.Text(p)
		for _, want := range wants {
			if !strings.Contains(text, want) {
				t.Errorf("%s: %s\nwant %q", move, text, want)
			}
		}
		if len(r.Broken) > 0 {
			t.Errorf("%s: broken now: %v", move, r.Broken)
		}
	}
	f("web=b", "", "Move web to b: -100.0 % of bytes between hosts", "Broken then: b: containers use 4.10 cores",
		"Broken then: b: 2 containers that are to be apart")
	f("dns=a", "", "Broken then: dns is on a, where it is not to be")
	f("web=b,db=a", "", "Move web to b, db to a: cost +0.0667.")
	f("web=c", "host \"c\"")
	f("nobody=a", "nobody")
	f("web", "want a container and a host")
}

func TestRulesAreKept(t *testing.T) {
	for seed := range uint64(20) {
		p := Random(60, 6, seed)
		rules, err := ParseRules(map[string][]string{"together": {"app0-0,app1-0"}, "apart": {"app2-*"},
			"on": {"app3-*=host-1,host-2"}, "not_on": {"app4-0=host-3"}, "stay": {"app5-1"}})
		if err != nil {
			t.Fatal(err)
		}
		rules.Apart[0] = []string{"app2-0", "app2-1", "app2-2", "app2-3", "app2-4", "app2-5"}
		if err := p.Apply(rules); err != nil {
			t.Fatal(err)
		}
		at := p.Containers[41].Host
		r := checked(t, p, options("least-traffic"))
		if r.Placement[0] != r.Placement[8] || r.Placement[41] != at {
			t.Errorf("seed %d: %v", seed, r.Placement)
		}
		for _, i := range []int{24, 25, 31} {
			if r.Placement[i] > 1 {
				t.Errorf("seed %d: container %d is on %d", seed, i, r.Placement[i])
			}
		}
	}
}

func TestInfeasible(t *testing.T) {
	f := func(want string, change func(p *Problem)) {
		t.Helper()
		p := Random(12, 3, 1)
		change(p)
		_, err := Solve(t.Context(), p, options(""))
		var none *Infeasible
		if !errors.As(err, &none) || !strings.Contains(none.Reason, want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	// It is to leave the only host that is as large as it.
	elsewhere := func(p *Problem) {
		p.Allowed = make([][]bool, len(p.Containers))
		p.Allowed[0] = slices.Repeat([]bool{true}, len(p.Hosts))
		p.Allowed[0][p.Containers[0].Host] = false
	}
	f("of memory, the hosts have", func(p *Problem) { p.Containers[0].Memory.Peak = 1 << 40; elsewhere(p) })
	f("cores at their peaks", func(p *Problem) { p.Containers[0].CPU.Peak = 1000; elsewhere(p) })
	f("has room for its", func(p *Problem) {
		p.Containers[0].CPU.Peak = 17
		p.Hosts[0].Cores = 8
		p.Hosts = append(p.Hosts, p.Hosts...)
		elsewhere(p)
	})
	f("on a host each", func(p *Problem) { p.Apart = [][]int{{0, 1, 2, 3}} })
	f("together and apart", func(p *Problem) { p.Apart, p.Together = [][]int{{0, 1}}, [][]int{{0, 1}} })
	f("no host may have", func(p *Problem) {
		p.Together = [][]int{{0, 1}}
		p.Containers[0].Pinned, p.Containers[1].Pinned = "volume", "volume"
		p.Containers[0].Host, p.Containers[1].Host = 0, 1
	})
}

func TestReplicasAreInterchangeable(t *testing.T) {
	small := Use{0.1, 0.1}
	p := &Problem{Hosts: []Host{{Name: "a", Cores: 4, MemoryBytes: 1e9}, {Name: "b", Cores: 4, MemoryBytes: 1e9}}}
	for _, host := range []int{0, 1, 0, 1} { // two replicas, two servers
		p.Containers = append(p.Containers, Container{Name: "c", Host: host, CPU: small, Memory: Use{1e6, 1e6}})
	}
	p.Traffic = []Traffic{{A: 0, B: 3, Bytes: 1000}, {A: 1, B: 2, Bytes: 1000}}
	if r := checked(t, p, options("least-traffic")); r.Before.CrossBytes != 2000 || r.After.CrossBytes != 0 {
		t.Errorf("single containers: %v bytes cross, %v before", r.After.CrossBytes, r.Before.CrossBytes)
	}
	p.Replicas = [][]int{{0, 1}}
	if r := checked(t, p, options("least-traffic")); r.Before.CrossBytes != 1000 {
		t.Errorf("replicas: %v bytes cross before", r.Before.CrossBytes)
	}
}

func TestOverloadedHostIsRelieved(t *testing.T) {
	p := Random(40, 5, 2)
	for i := range 20 {
		p.Containers[i].Host = 0
	}
	r := checked(t, p, options(""))
	if len(r.Broken) == 0 || r.After.HighestCPU > 1-DefaultHeadroom+1e-9 {
		t.Errorf("broken before: %v; the highest CPU is %v after", r.Broken, r.After.HighestCPU)
	}
}

// TestFullHosts: where what may not move fills a host, nothing is moved there; and where all hosts are so full that the
// headroom cannot be kept, each stays at most as full as it is.
func TestFullHosts(t *testing.T) {
	p := Random(12, 3, 1)
	p.Containers = append(p.Containers, Container{Name: "host", Host: 1, Pinned: "a process of the host", OfHost: true,
		CPU: Use{15, 15.8}, Memory: Use{1e9, 1e9}})
	p.Hosts[1].Cores = 16
	used := func(r *Result, host int) (used float64) {
		for i, at := range r.Placement {
			if at == host {
				used += p.Containers[i].CPU.Peak
			}
		}
		return used
	}
	r := checked(t, p, options(""))
	if r.Full != "" || used(r, 1) > 15.8+1e-9 {
		t.Errorf("one full host: %q, %v cores are used there", r.Full, used(r, 1))
	}
	before := make([]float64, len(p.Hosts))
	for h := range p.Hosts {
		p.Hosts[h].Cores = 1
	}
	for _, c := range p.Containers {
		before[c.Host] += c.CPU.Peak
	}
	r, err := Solve(t.Context(), p, options(""))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(r.Full, "cores at their peaks") {
		t.Errorf("of full hosts it says %q", r.Full)
	}
	for h := range p.Hosts {
		if now := used(r, h); now > max(before[h], 0.9)+1e-9 {
			t.Errorf("host %d: %v cores are used, before %v", h, now, before[h])
		}
	}
}
