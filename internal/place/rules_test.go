package place

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"outsight/internal/model"
)

// ruled is a problem with random rules, and broken, which counts how many of them a placement breaks; it knows them as
// they were said, and not as they were compiled.
type ruled struct {
	*Problem
	rules  Rules
	disks  []string // label disk of each host
	needs  map[int]string
	volume map[int]bool
}

func randomRules(t *testing.T, seed uint64) *ruled {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 7))
	const hosts, containers = 5, 32
	r := &ruled{Problem: Random(containers, hosts, seed), needs: map[int]string{}, volume: map[int]bool{}}
	some := func() string { return r.Containers[random.IntN(containers)].Name }
	host := func() string { return r.Hosts[random.IntN(hosts)].Name }
	r.rules = Rules{On: map[string][]string{some(): {host(), host(), host()}}, NotOn: map[string][]string{some(): {host()}},
		Together: [][]string{{some(), some()}}, Apart: [][]string{{some(), some(), some()}}, Stay: []string{some()},
		HostLabels: map[string][]string{}, Require: map[string][]string{some(): {"disk in (ssd,nvme)"}, some(): {"disk!=hdd"}}}
	for h := range hosts {
		r.disks = append(r.disks, []string{"ssd", "hdd", "nvme"}[(h+int(seed))%3])
		r.rules.HostLabels[r.Hosts[h].Name] = []string{"disk=" + r.disks[h]}
	}
	for range 4 {
		i := random.IntN(containers)
		r.volume[i] = true
		r.Containers[i].seen = append(r.Containers[i].seen, model.Label{Name: model.PlaceVolume, Value: "the volume data"})
	}
	free := slices.Collect(func(yield func(int) bool) {
		for i := range r.volume {
			if !yield(i) {
				return
			}
		}
	})
	slices.Sort(free)
	r.rules.Movable = []string{r.Containers[free[0]].Name}
	delete(r.volume, free[0])
	// Another says itself that it needs what its host has.
	i := random.IntN(containers)
	r.needs[i] = r.disks[r.Containers[i].Host]
	r.Containers[i].seen = append(r.Containers[i].seen, model.Label{Name: model.PlaceRequire, Value: "disk=" + r.needs[i]})
	if err := r.Apply(r.rules); err != nil {
		t.Fatal(err)
	}
	return r
}

// broken counts the pairs of rule and container that a placement breaks.
func (r *ruled) broken(at []int) (n int) {
	count := func(broken bool) {
		if broken {
			n++
		}
	}
	index := func(name string) int {
		return slices.IndexFunc(r.Containers, func(c Container) bool { return c.Name == name })
	}
	for name, hosts := range r.rules.On {
		count(!slices.Contains(hosts, r.Hosts[at[index(name)]].Name))
	}
	for name, hosts := range r.rules.NotOn {
		count(slices.Contains(hosts, r.Hosts[at[index(name)]].Name))
	}
	for name, texts := range r.rules.Require {
		disk := r.disks[at[index(name)]]
		for _, text := range texts {
			count(disk == "hdd" && strings.Contains(text, "hdd") || disk == "hdd" && strings.Contains(text, "nvme"))
		}
	}
	for i, disk := range r.needs {
		count(r.disks[at[i]] != disk)
	}
	count(at[index(r.rules.Stay[0])] != r.Containers[index(r.rules.Stay[0])].Host)
	for i := range r.volume {
		count(at[i] != r.Containers[i].Host)
	}
	count(at[index(r.rules.Together[0][0])] != at[index(r.rules.Together[0][1])])
	for a, one := range r.rules.Apart[0] {
		for _, other := range r.rules.Apart[0][a+1:] {
			count(one != other && at[index(one)] == at[index(other)])
		}
	}
	return n
}

// TestNoPlanBreaksARule: of random problems with rules of all kinds, no step breaks more than was broken before it, and
// the end breaks none. What is told to be kept by a rule would break one where it would go.
func TestNoPlanBreaksARule(t *testing.T) {
	solved, infeasible, kept, moved := 0, 0, 0, 0
	for seed := range uint64(150) {
		r := randomRules(t, seed)
		o := options([]string{"", "least-traffic", "fewest-hosts", "lowest-energy"}[seed%4])
		o.Effort = 0.1
		result, err := Solve(t.Context(), r.Problem, o)
		var none *Infeasible
		if errors.As(err, &none) {
			infeasible++
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		solved++
		at := r.Present()
		before := r.broken(at)
		for n, step := range result.Moves {
			for _, m := range step.Moves {
				at[m.Container] = slices.IndexFunc(r.Hosts, func(h Host) bool { return h.Name == m.To })
				moved++
			}
			if now := r.broken(at); now > before {
				t.Errorf("seed %d: step %d breaks %d rules, %d before", seed, n, now, before)
			} else {
				before = now
			}
		}
		if !slices.Equal(at, result.Placement) || before > 0 {
			t.Errorf("seed %d: the placement breaks %d rules: %v", seed, before, result.BrokenAfter)
		}
		for _, k := range result.Kept {
			kept++
			to := slices.IndexFunc(r.Hosts, func(h Host) bool { return h.Name == k.To })
			elsewhere := slices.Clone(at)
			elsewhere[k.Container] = to
			if at[k.Container] != r.Containers[k.Container].Host || k.Rule == "" || k.Gain <= 0 {
				t.Errorf("seed %d: kept is %+v, it is on host %d", seed, k, at[k.Container])
			}
			if r.broken(elsewhere) == 0 {
				t.Errorf("seed %d: %s may be on %s, and is told to be kept: %s", seed, k.Name, k.To, k.Rule)
			}
		}
	}
	t.Logf("%d solved, %d infeasible, %d moves, %d kept by a rule", solved, infeasible, moved, kept)
	if solved < 75 || kept < 20 || moved < 500 {
		t.Errorf("%d solved, %d moves, %d kept by a rule: too few to tell", solved, moved, kept)
	}
}

// seenOn is a problem of two hosts with a container each that talk, the second with what is seen of it.
func seenOn(seen ...model.Label) *Problem {
	use := Use{0.1, 0.1}
	return &Problem{Hosts: []Host{{Name: "a", Cores: 4, MemoryBytes: 1e9}, {Name: "b", Cores: 4, MemoryBytes: 1e9}},
		Containers: []Container{{ID: "1", Name: "web", CPU: use, Memory: Use{1e6, 1e6}, Pinned: ofHost, OfHost: true},
			{ID: "2", Name: "db", Host: 1, CPU: use, Memory: Use{1e6, 1e6}, seen: seen}},
		Traffic: []Traffic{{A: 0, B: 1, Bytes: 1000}}}
}

// TestSeenRules: what is seen of a container keeps it where it is, with the reason, until a rule says otherwise.
func TestSeenRules(t *testing.T) {
	f := func(name, value, want string, rules Rules) {
		t.Helper()
		p := seenOn(model.Label{Name: name, Value: value})
		if err := p.Apply(rules); err != nil {
			t.Fatal(err)
		}
		r, err := Solve(t.Context(), p, options("least-traffic"))
		if err != nil {
			t.Fatal(err)
		}
		text := r.Text(p)
		switch {
		case want == "" && (len(r.Moves) != 1 || len(r.Kept) != 0):
			t.Errorf("%s=%s: it does not move: %s", name, value, text)
		case want != "" && (len(r.Moves) != 0 || len(r.Kept) != 1 || !strings.Contains(text, "db on b: it "+want+" (cost on a: -")):
			t.Errorf("%s=%s: want %q: %s", name, value, want, text)
		}
	}
	ssd := Rules{HostLabels: map[string][]string{"a": {"disk=ssd"}, "b": {"disk=ssd"}}}
	f(model.PlaceVolume, "the volume data", "has the volume data", Rules{})
	f(model.PlaceVolume, "the volume data", "", Rules{Movable: []string{"db"}})
	f(model.PlaceMovable, "true", "", Rules{})
	f(model.PlaceStay, "stays by its label", "stays by its label", Rules{Movable: []string{"db"}})
	f(model.PlaceOn, "b", "is to be on b by its label", Rules{})
	f(model.PlaceOn, "a, b", "", Rules{})
	f(model.PlaceOn, "elsewhere", "is to be on elsewhere by its label, and no other host is known", Rules{})
	f(model.PlaceNotOn, "a*", "is not to be on a* by its label", Rules{})
	f(model.PlaceNotOn, "c", "", Rules{})
	f(model.PlaceRequire, "disk=ssd", "requires the host labels disk=ssd", Rules{}) // the labels of a are not known
	f(model.PlaceRequire, "disk=ssd", "", ssd)
	f(model.PlaceRequire, "disk=ssd,!spot", "", ssd)
	f(model.PlaceRequire, "disk in (nvme) or kubernetes.io/hostname in (a,c)", "", Rules{})
	f(model.PlaceRequire, "metadata.name in (b)", "requires the host labels metadata.name in (b)", ssd)
	f(model.PlaceRequire, "cores>5", "requires the host labels cores>5, which is not understood", ssd)
}

// TestSeenGroups: containers with the same group are together, or apart.
func TestSeenGroups(t *testing.T) {
	use := Use{0.1, 0.1}
	for _, name := range []string{model.PlaceTogether, model.PlaceApart} {
		p := seenOn(model.Label{Name: name, Value: "data"})
		p.Containers = append(p.Containers, Container{ID: "3", Name: "cache", CPU: use, Memory: Use{1e6, 1e6},
			Pinned: "stays", seen: p.Containers[1].seen})
		if err := p.Apply(Rules{}); err != nil {
			t.Fatal(err)
		}
		r := checked(t, p, options("least-traffic"))
		if together := name == model.PlaceTogether; together != (r.Placement[1] == 0) || together != (len(r.Broken) > 0) {
			t.Errorf("%s: placement %v, broken now: %v", name, r.Placement, r.Broken)
		}
		if name == model.PlaceApart && (len(r.Kept) != 1 || r.Kept[0].Rule != "is to be apart from others of data") {
			t.Errorf("kept are %+v", r.Kept)
		}
	}
}

func TestContradictingRules(t *testing.T) {
	p := seenOn(model.Label{Name: model.PlaceVolume, Value: "the volume data"})
	if err := p.Apply(Rules{On: map[string][]string{"db": {"a"}}}); err != nil {
		t.Fatal(err)
	}
	_, err := Solve(t.Context(), p, options(""))
	if want := `no host may have "db": "db" is to be on a by a rule and has the volume data, on b`; err == nil ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
	for _, rules := range []Rules{{Require: map[string][]string{"db": {"disk=ssd"}}}, {Movable: []string{"nobody"}},
		{HostLabels: map[string][]string{"c": {"disk=ssd"}}}, {Require: map[string][]string{"db": {"disk=(ssd"}}}} {
		if err := seenOn().Apply(rules); err == nil {
			t.Errorf("%+v is taken", rules)
		}
	}
}

func TestRequirements(t *testing.T) {
	h := &Host{Name: "a", Labels: map[string]string{"disk": "ssd", "gpu": ""}}
	f := func(text string, want bool) {
		t.Helper()
		r, err := parseRequirement(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.fits(h); got != want {
			t.Errorf("%q fits: %v", text, got)
		}
	}
	f("disk=ssd", true)
	f("disk==ssd", true)
	f("disk=hdd", false)
	f("disk!=hdd", true)
	f("disk!=ssd", false)
	f("disk in (hdd, ssd)", true)
	f("disk notin (hdd,ssd)", false)
	f("zone notin (a)", true)
	f("gpu", true)
	f("gpu=", true)
	f("!gpu", false)
	f("!spot,disk=ssd", true)
	f("!spot,disk=hdd", false)
	f("zone=a or gpu,disk in (ssd)", true)
	f("kubernetes.io/hostname=a", true)
	for _, wrong := range []string{"", "a b", "disk in (", "=x", "a,,b", "size>3", "disk in ssd)"} {
		if r, err := parseRequirement(wrong); err == nil {
			t.Errorf("%q is read as %+v", wrong, r)
		}
	}
	unknown := &Host{Name: "b"}
	for _, text := range []string{"disk=ssd", "disk!=ssd", "!disk"} {
		if r, _ := parseRequirement(text); r.fits(unknown) {
			t.Errorf("%q fits a host whose labels are not known", text)
		}
	}
}

// FuzzRequirement: what is read says the same when it is written and read again.
func FuzzRequirement(f *testing.F) {
	f.Add("disk=ssd,zone in (a,b) or !spot")
	f.Add("a notin (b),c!=d,e")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := parseRequirement(text)
		if err != nil {
			return
		}
		var alternatives []string
		for _, all := range r {
			var parts []string
			for _, e := range all {
				part := e.key
				switch {
				case e.values != nil && e.not:
					part += " notin (" + strings.Join(e.values, ",") + ")"
				case e.values != nil:
					part += " in (" + strings.Join(e.values, ",") + ")"
				case e.not:
					part = "!" + part
				}
				parts = append(parts, part)
			}
			alternatives = append(alternatives, strings.Join(parts, ","))
		}
		again, err := parseRequirement(strings.Join(alternatives, " or "))
		if err != nil || fmt.Sprint(again) != fmt.Sprint(r) {
			t.Errorf("%q is %v, and again %v: %v", text, r, again, err)
		}
	})
}
