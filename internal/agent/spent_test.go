package agent

import (
	"context"
	"io"
	"maps"
	"math"
	"net/http"
	"slices"
	"testing"
	"time"

	"outsight/internal/frame"
	"outsight/internal/model"
	"outsight/internal/otlp"
)

// costing is a kernel whose programs have run for what they are set to, and what can be given up of them.
type costing struct {
	programs    []model.ProgramCost
	parts       []model.Part
	own, kernel map[string]uint64
}

func (c *costing) ProgramCosts() []model.ProgramCost { return slices.Clone(c.programs) }
func (c *costing) Parts() []model.Part               { return append(slices.Clone(c.parts), ownParts...) }
func (c *costing) Shed(string) error                 { return nil }
func (c *costing) Restore(string) error              { return nil }
func (c *costing) Spent() (own, kernel map[string]uint64) {
	return maps.Clone(c.own), maps.Clone(c.kernel)
}
func (c *costing) spend(part string, own, kernel uint64) {
	c.own[part] += own
	c.kernel[part] += kernel
}
func (c *costing) others(own map[string]uint64) map[string]uint64 { return own }

func spentBy(t *testing.T, b *model.BudgetSample, part string) float64 {
	t.Helper()
	i := slices.IndexFunc(b.Parts, func(p model.PartSample) bool { return p.Name == part })
	if i < 0 {
		t.Fatalf("no part %q in %+v", part, b.Parts)
	}
	return b.Parts[i].Spent
}

func near(a, b float64) bool { return math.Abs(a-b) < 1e-12 }

// Each part has its kernel programs and its share of the process; what is unattributed is the rest, and all of them
// together are what was spent, also where the clocks of parts are ahead of the process's.
func TestPartsAndRestAreTheWhole(t *testing.T) {
	c := &costing{own: map[string]uint64{}, kernel: map[string]uint64{}, parts: []model.Part{
		{Name: "transfers", Programs: []string{"send", "receive"}}, {Name: "names"}, {Name: "recorder"},
		{Name: "many-packets", Under: "packets"}, {Name: "packets", Programs: []string{"packet"}},
		{Name: "disks", Fixed: true, Programs: []string{"issue"}},
	}}
	meter := &programMeter{programs: c}
	k := newKeeping(c, meter, c.others, 0, 2)
	const second = uint64(time.Second)
	at := time.Unix(1_800_000_000, 0)
	meter.number = 1
	if changes, err := k.step(at, second); err != nil || changes != nil {
		t.Fatal(changes, err)
	}
	step := func(process uint64) *model.BudgetSample {
		t.Helper()
		meter.number++
		at = at.Add(time.Second)
		if _, err := k.step(at, process); err != nil {
			t.Fatal(err)
		}
		sample := k.published()
		sum := 0.0
		for _, p := range sample.Parts {
			sum += p.Spent
		}
		if !near(sum, sample.Own+sample.Kernel) {
			t.Errorf("the parts are %v, all that was spent %v: %+v", sum, sample.Own+sample.Kernel, sample)
		}
		return sample
	}
	// Shares of one of two CPUs.
	meter.shares = map[string]float64{"send": 0.02, "receive": 0.04, "issue": 0.01, "packet": 0.004, "unattributed": 0.002}
	c.spend("recorder", second/100, second/50)
	c.spend("export", second/1000, 0)
	sample := step(second + second/20)
	for part, want := range map[string]float64{
		"transfers": 0.015, "names": 0.015, "packets": 0.0006, "many-packets": 0.0014, "disks": 0.005, "recorder": 0.015, "export": 0.0005, "containers": 0,
		// The process without recorder and export, and the unattributed program.
		"rest": 0.025 - 0.0055 + 0.001,
	} {
		if got := spentBy(t, sample, part); !near(got, want) {
			t.Errorf("%s took %v, want %v", part, got, want)
		}
	}
	// The kernel times a program, not what it does in it: how these divide their programs is not measured.
	for _, p := range sample.Parts {
		if want := slices.Contains([]string{"names", "transfers", "packets", "many-packets"}, p.Name); p.Estimated != want {
			t.Errorf("%s: estimated is %v, want %v", p.Name, p.Estimated, want)
		}
	}
	if !near(sample.Own, 0.025) || !near(sample.Kernel, 0.048) {
		t.Errorf("own %v and kernel %v, want 0.025 and 0.048", sample.Own, sample.Kernel)
	}
	meter.shares = nil
	c.spend("serving", second/10, 0)
	sample = step(second + second/20 + second/100)
	if !near(sample.Own, 0.05) || !near(spentBy(t, sample, "serving"), 0.05) || spentBy(t, sample, "rest") != 0 {
		t.Errorf("a part that is ahead of the process: %+v", sample)
	}
}

// What threads worked is of the part for which they did, whatever their goroutine does next.
func TestSpendingIsTheThreads(t *testing.T) {
	var s spending
	work := func(part string, d uint64) {
		defer s.on(part)()
		for begun := threadTime(); threadTime()-begun < d; {
		}
	}
	const least = uint64(5 * time.Millisecond)
	work("one", least)
	work("two", 2*least)
	time.Sleep(20 * time.Millisecond)
	work("one", least)
	got := s.with(map[string]uint64{"two": 1, "three": 2})
	if got["one"] < 2*least || got["two"] < 2*least+1 || got["three"] != 2 {
		t.Errorf("got %v", got)
	}
	if again := s.with(nil); again["two"] != got["two"]-1 || len(again) != 2 {
		t.Errorf("got %v after %v", again, got)
	}
}

// On this host the parts that are stored add up to what is stored as the whole, and those with work to do have some.
func TestCostsOnThisHostAddUp(t *testing.T) {
	type reading struct {
		budget *model.BudgetSample
		frame  *frame.Frame
	}
	readings := make(chan reading, 100)
	answers := &Answers{}
	host, err := Open(HostOptions{Flight: time.Minute, Answers: answers,
		Options: Options{Budget: 0.99, whenRead: func(s *model.Snapshot) {
			readings <- reading{s.Self.Budget, frame.Of(s)} // the agent goes on with the snapshot's memory
		}}})
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- host.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	server := listenLocal(t)
	serve(t, server, answers.Measure(otlp.Handler(host.Frame)))
	var s reading
	for limit := time.After(testPatience); ; {
		select {
		case s = <-readings:
		case <-limit:
			t.Fatalf("no costs after %v", testPatience)
		}
		get(t, "http://"+server.Addr().String()+"/metrics")
		if b := s.budget; b != nil && spentBy(t, b, "serving") > 0 && spentBy(t, b, "export") > 0 {
			break
		}
	}
	whole, parts, rows := 0.0, 0.0, 0
	names := map[string]bool{}
	for _, m := range otlp.FromFrame(s.frame, otlp.SeriesOptions{}) {
		switch m.Name {
		case otlp.CostRatio:
			whole += m.Value
			rows++
		case otlp.FeatureCost:
			parts += m.Value
			rows++
			for _, l := range m.Labels {
				if l.Name == otlp.LabelName {
					names[l.Value] = true
				}
			}
		}
	}
	// A frame has each rounded to a billionth.
	if most := float64(rows) * 0.5e-9; whole <= 0 || math.Abs(whole-parts) > most+1e-12 {
		t.Errorf("the parts are %v of the host, the whole %v", parts, whole)
	}
	for _, part := range []string{"recorder", "contention", "names", "transfers", "switches", "groups", "connections",
		"files", "containers", "export", "serving", "rest"} {
		if !names[part] {
			t.Errorf("no part %q among %v", part, names)
		}
	}
	for _, part := range []string{"groups", "connections", "files", "containers"} {
		if spentBy(t, s.budget, part) <= 0 {
			t.Errorf("%s took nothing", part)
		}
	}
}

func get(t *testing.T, url string) {
	t.Helper()
	answer, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		t.Fatal(err)
	}
}

// What a program did in a window stands for the time since the last one; of one that counts its runs itself, all of them
// count, and take as long as those that fell into a window.
func TestCostOfProgramsThatCountTheirRuns(t *testing.T) {
	var m programMeter
	took := func(name string, ran, ns, counted uint64) (share float64, total programTotal) {
		t.Helper()
		m.take(map[string]model.ProgramCost{name: {}}, map[string]model.ProgramCost{name: {Runs: ran, RunTimeNS: ns,
			Counted: counted}}, 50*time.Millisecond, time.Second)
		return m.shares[name], m.totals[name]
	}
	if share, total := took("always", 100, 5e5, 0); !near(share, 0.01) || total != (programTotal{2000, 1e7}) {
		t.Errorf("share %v, in all %+v", share, total)
	}
	// Until a run has fallen into a window it is not known how long one takes.
	if share, total := took("in slices", 0, 0, 1000); share != 0 || total != (programTotal{1000, 0}) {
		t.Errorf("share %v, in all %+v", share, total)
	}
	if share, total := took("in slices", 100, 5e4, 3000); !near(share, 0.001) || total != (programTotal{3000, 1e6}) {
		t.Errorf("share %v, in all %+v", share, total)
	}
	if share, total := took("in slices", 0, 0, 5000); !near(share, 0.001) || total != (programTotal{5000, 2e6}) {
		t.Errorf("share %v, in all %+v", share, total)
	}
}
