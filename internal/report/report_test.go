package report

import (
	"math"
	"slices"
	"strings"
	"testing"

	"outsight/internal/csvy"
)

func TestNothingToFind(t *testing.T) {
	for _, interval := range []float64{1, 5, 50} {
		check(t, shop(interval), 0)
	}
	r := Analyse(nil, Options{})
	if len(r.Saturations) != 0 || len(r.Containers) != 0 {
		t.Errorf("got %+v of nothing", r)
	}
	check(t, world{length: 0, interval: 5, cores: 2, actors: shop(5).actors}, 0)
}

// hog takes what is left of the CPUs, and the cart's threads wait.
func hog(w *world, from, to float64) {
	w.actor("hog").cpu = between(from, to, 1.5, 0.01)
	for _, name := range []string{"gateway", "catalogue", "cart", "batch"} {
		w.actor(name).cpu = between(from, to, 0.125, 0.1)
	}
	w.actor("cart").wait = between(from, to, 0.8, 0.01)
	w.actor("cart").serving = between(from, to, 6, 0)
	w.actor("gateway").asking = between(from+8, to, 5, 0)
}

// The host's own processes take most of both CPUs, as they always do; a container's use rises to next to nothing.
func TestHostCPUIsOfWhoTookTheMost(t *testing.T) {
	w := shop(5)
	hog(&w, 3003, 3243)
	w.actor("hog").name = "host"
	w.actor("host").cpu = between(3003, 3243, 1.25, 1.2)
	w.actor("redis").cpu = between(3003, 3243, 0.35, 0)
	r := Analyse(w.record(), Options{})
	if len(r.Saturations) == 0 {
		t.Fatal("no saturation was found")
	}
	for _, s := range r.Saturations {
		if s.Kind == HostCPU && (s.Container != "host" || !strings.HasPrefix(s.Text, "host: took 1.25 of 2 CPUs")) {
			t.Errorf("%s has the blame: %s", s.Container, s.Text)
		}
	}
}

func TestHostCPU(t *testing.T) {
	for _, interval := range []float64{1, 5, 50} {
		w := shop(interval)
		hog(&w, 3003, 3243)
		r := check(t, w, 2, want{HostCPU, "hog", 3003, 3243})
		if len(r.Saturations) != 1 {
			continue
		}
		s := r.Saturations[0]
		if e := wantEffect(t, s, WaitedForCPU, "cart"); math.Abs(e.Waited-0.8*240) > 2+interval/6 {
			t.Errorf("the cart waited %v ms, want 192", e.Waited)
		}
		wantEffect(t, s, Unanswered, "cart")
		if e := wantEffect(t, s, WaitedForReplies, "gateway"); e.Most != 5 || e.From.Before(s.From) {
			t.Errorf("got %+v", e)
		}
		if s.CPU[0].Container != "hog" || math.Abs(s.CPU[0].CPUs-1.5) > 0.02+interval/1000 {
			t.Errorf("got CPU %+v, want 1.5 of the hog first", s.CPU)
		}
		if s.Chain[0].Container != "hog" || !slices.IsSortedFunc(s.Chain[1:],
			func(a, b Link) int { return a.At.Compare(b.At) }) {
			t.Errorf("got chain %+v", s.Chain)
		}
		if s.Resolution != interval {
			t.Errorf("the resolution is %v ms, want %v", s.Resolution, interval)
		}
	}
}

func TestStall(t *testing.T) {
	for _, interval := range []float64{1, 5, 10} {
		w := shop(interval)
		w.stall("catalogue", 4000, 4080)
		// Who asks it serves others' requests itself, and sends nothing meanwhile.
		g := w.actor("gateway")
		g.asking, g.serving, g.sent = stalling(4000, 4080), stalling(4000, 4080), between(4000, 4080, 0, 50)
		r := check(t, w, 10, want{Stall, "catalogue", 4000, 4080})
		if len(r.Saturations) != 1 {
			continue
		}
		s := r.Saturations[0]
		if e := wantEffect(t, s, WaitedForReplies, "gateway"); e.Most < 6 {
			t.Errorf("got %+v, want 6 requests or more", e)
		}
		if s.Earliest.After(s.From) || sinceEpoch(s.Earliest) < 3980 {
			t.Errorf("it began at %.1f ms at the earliest", sinceEpoch(s.Earliest))
		}
	}
}

// TestBeginOfAStall has no request in the first 30 ms of it: only a timer's CPU shows the begin.
func TestBeginOfAStall(t *testing.T) {
	w := shop(5)
	w.stall("catalogue", 4000, 4080)
	a := w.actor("catalogue")
	a.serving = func(at float64) float64 {
		switch {
		case at >= 4030 && at < 4080:
			return 1
		case at >= 3970 && at < 4030:
			return 0
		}
		return busy(at)
	}
	a.sent = between(3971, 4080, 0, 50)
	a.cpu = func(at float64) float64 { return between(4000, 4000.2, 1, 0)(at) + between(3971, 4080, 0, 0.2)(at) }
	check(t, w, 5, want{Stall, "catalogue", 4000, 4080})
	// Without it, the begin is put 10 ms before the first request, and the report says since when
	// nothing is known.
	a.cpu = between(3971, 4080, 0, 0.2)
	r := check(t, w, 5, want{Stall, "catalogue", 4020, 4080})
	if len(r.Saturations) == 1 {
		if at := sinceEpoch(r.Saturations[0].Earliest); math.Abs(at-3972) > 5 {
			t.Errorf("it began at %.1f ms at the earliest, want 3972", at)
		}
	}
	// A thread that waits for a CPU now and then does not part it.
	a.wait = between(4040, 4045, 0.9, 0)
	check(t, w, 5, want{Stall, "catalogue", 4020, 4080})
	// One that waits all the time is starved, and does not stand still.
	a.wait = between(4030, 4080, 0.4, 0)
	check(t, w, 0)
}

// TestSlowRequestsAreNoStall has requests that take 6 ms without CPU.
func TestSlowRequestsAreNoStall(t *testing.T) {
	w := shop(1)
	slow := func(at float64) bool { return math.Mod(at, 100) < 6 }
	a := w.actor("catalogue")
	a.serving = func(at float64) float64 {
		if slow(at) {
			return 1
		}
		return 0
	}
	a.cpu = always(0)
	a.sent = func(at float64) float64 {
		if math.Mod(at, 100) > 6 && math.Mod(at, 100) < 8 {
			return 50
		}
		return 0
	}
	check(t, w, 0)
}

// TestHeldRequestsAreNoStall has a long poll that is never answered, and pauses.
func TestHeldRequestsAreNoStall(t *testing.T) {
	w := shop(5)
	a := w.actor("catalogue")
	a.serving = func(at float64) float64 { return 1 + busy(at) }
	a.sent = func(at float64) float64 {
		if math.Mod(at, 500) < 250 {
			return 50
		}
		return 0
	}
	a.serving = func(at float64) float64 {
		if math.Mod(at, 500) < 250 {
			return 1 + busy(at)
		}
		return 1
	}
	check(t, w, 0)
}

func TestTwoAtOnce(t *testing.T) {
	w := shop(5)
	w.stall("catalogue", 4000, 4080)
	w.stall("cart", 4040, 4200)
	check(t, w, 10, want{Stall, "catalogue", 4000, 4080}, want{Stall, "cart", 4040, 4200})

	w = shop(5)
	hog(&w, 2000, 2150)
	w.actor("hog").cpu = func(at float64) float64 {
		return between(2000, 2050, 1.5, 0)(at) +
			between(2050, 2100, 0.9, 0)(at)
	}
	w.actor("second").cpu = func(at float64) float64 {
		return between(2050, 2100, 0.6, 0)(at) +
			between(2100, 2150, 1.5, 0)(at)
	}
	w.stall("third", 2050, 2120)
	w.actor("third").cpu = always(0)
	r := check(t, w, 10, want{HostCPU, "hog", 2000, 2150}, want{Stall, "third", 2050, 2120})
	if len(r.Saturations) == 2 {
		if s := r.Saturations[0]; len(s.CPU) < 2 || s.CPU[0].Container != "hog" || s.CPU[1].Container != "second" {
			t.Errorf("got CPU %+v", s.CPU)
		}
	}
}

func TestEdgesOfARecording(t *testing.T) {
	w := shop(5)
	hog(&w, -1, 200)
	r := check(t, w, 1, want{HostCPU, "hog", 0, 200})
	if s := r.Saturations; len(s) == 1 && (!s[0].OpenStart || s[0].OpenEnd) {
		t.Errorf("open at the start %v, at the end %v", s[0].OpenStart, s[0].OpenEnd)
	}
	w = shop(5)
	w.stall("catalogue", 9900, 11_000)
	r = check(t, w, 10, want{Stall, "catalogue", 9900, 10_000})
	if s := r.Saturations; len(s) == 1 && (s[0].OpenStart || !s[0].OpenEnd) {
		t.Errorf("open at the start %v, at the end %v", s[0].OpenStart, s[0].OpenEnd)
	}
	w = shop(5)
	w.stall("catalogue", -1, 70)
	w.actor("catalogue").serving = between(-1, 70, 3, 0)
	check(t, w, 10, want{Stall, "catalogue", 0, 70})
}

func TestMissingTicks(t *testing.T) {
	w := shop(5)
	hog(&w, 3000, 3240)
	w.lost = func(at float64) bool { return at > 3082 && at < 3120 }
	r := check(t, w, 2, want{HostCPU, "hog", 3000, 3240})
	for _, c := range r.Containers {
		if c.MissingTicks != 7 || c.Intervals.Max != 40 || c.Intervals.Worst != 35 {
			t.Errorf("%s: %d ticks are missing, want 7; intervals %+v", c.Name, c.MissingTicks, c.Intervals)
		}
	}
	w = shop(5)
	w.stall("catalogue", 4000, 4080)
	w.lost = func(at float64) bool { return at > 4032 && at < 4052 }
	check(t, w, 10, want{Stall, "catalogue", 4000, 4080})
	// Where the ticks around the begin are missing, the report says how little is known.
	w.lost = func(at float64) bool { return at > 3982 && at < 4012 }
	r = check(t, w, 20, want{Stall, "catalogue", 4000, 4080})
	if s := r.Saturations; len(s) == 1 && s[0].Resolution != 35 {
		t.Errorf("the resolution is %v ms, want 35", s[0].Resolution)
	}
}

func TestQuota(t *testing.T) {
	w := shop(5)
	w.cores = 4
	a := w.actor("limited")
	// 50 ms of each 100 ms, used at once by two threads; then throttled.
	a.cpu = func(at float64) float64 {
		if at >= 3000 && at < 3300 && math.Mod(at, 100) < 25 {
			return 2
		}
		return 0.05
	}
	throttled := func(at float64) float64 { return 50e6 * math.Floor(min(max(at-3000, 0), 300)/100) }
	a.more = map[string]func(float64) float64{csvy.CPUQuotaNS: always(50e6), csvy.CPUPeriodNS: always(100e6),
		csvy.ThrottledNS: throttled}
	check(t, w, 15, want{Quota, "limited", 3000, 3300})
	// Used up, and never throttled: nothing waited.
	a.more[csvy.ThrottledNS] = always(7)
	check(t, w, 0)
	a.more[csvy.ThrottledNS], a.more[csvy.CPUQuotaNS] = throttled, always(math.Inf(1))
	check(t, w, 0)
}

func TestOneCPU(t *testing.T) {
	w := shop(5)
	w.cores = 4
	a := w.actor("payment")
	a.cpu, a.sent = between(2000, 2300, 1, 0.1), always(10)
	a.serving = between(2000, 2300, 4, 0)
	w.actor("gateway").asking = between(2010, 2310, 4, 0)
	r := check(t, w, 2, want{OneCPU, "payment", 2000, 2300})
	if len(r.Saturations) == 1 {
		wantEffect(t, r.Saturations[0], WaitedForReplies, "gateway")
		wantEffect(t, r.Saturations[0], Unanswered, "payment")
	}
	a.serving = between(2000, 2300, 1, 0) // nobody waits behind it
	check(t, w, 0)
}

func TestRunQueueOfUnknownCause(t *testing.T) {
	w := shop(5)
	w.actor("cart").wait = between(5000, 5100, 1.4, 0)
	check(t, w, 5, want{RunQueue, "cart", 5000, 5100})
}

func TestMemoryAndDisk(t *testing.T) {
	w := shop(5)
	a := w.actor("database")
	a.more = map[string]func(float64) float64{
		csvy.MemoryBytes: between(6000, 6200, 99, 50), csvy.MemoryLimitBytes: always(100),
		csvy.DiskTimeNS: func(at float64) float64 { return 1e6 * min(max(at-7000, 0), 120) },
	}
	check(t, w, 5, want{MemoryLimit, "database", 6000, 6195}, want{DiskTime, "database", 7000, 7120})
}

func TestSustained(t *testing.T) {
	w := shop(50)
	hog(&w, 2000, 5000)
	r := check(t, w, 0)
	if len(r.Sustained) != 1 || r.Sustained[0].Container != "hog" || math.Abs(r.Sustained[0].Duration-3000) > 5 {
		t.Errorf("got sustained %+v", r.Sustained)
	}
}

// TestWallClock has no ticks, and a clock that is set back by a second and later jumps ahead.
func TestWallClock(t *testing.T) {
	w := shop(50)
	w.plain = true
	hog(&w, 3000, 3250)
	check(t, w, 5, want{HostCPU, "hog", 3000, 3250})
	w.plain = false
	recordings := w.record()
	for _, rec := range recordings {
		for i := range rec.At {
			if i > 30 && i < 90 {
				rec.At[i] -= 1e9
			}
		}
	}
	if r := Analyse(recordings, Options{}); len(r.Saturations) != 1 || math.Abs(r.Saturations[0].Duration-250) > 2 {
		t.Errorf("with a clock that was set: got\n%s", text(r))
	}
}

func TestIntervals(t *testing.T) {
	w := world{length: 10_000, interval: 50, cores: 2, actors: []actor{{name: "a"}}}
	recordings := w.record()
	late := recordings[0].Column(csvy.LatenessNS)
	late[100] = 10e6
	c := Analyse(recordings, Options{}).Containers[0]
	i := c.Intervals
	if i.Count != 200 || i.Mean != 50 || math.Abs(i.SD-1) > 1e-9 || i.P50 != 50 || i.P99 != 50 || i.P999 != 60 ||
		i.Max != 60 || i.Min != 40 || i.Worst != 10 || i.Nominal != 50 {
		t.Errorf("got intervals %+v", i)
	}
	if c.Lateness.Max != 10 || c.Lateness.Count != 201 || c.Cost != nil || c.MissingTicks != 0 {
		t.Errorf("got lateness %+v, cost %+v, %d missing", c.Lateness, c.Cost, c.MissingTicks)
	}
}

// TestPhases has 6 s of load at 80 %, 2 s at 60 % and 2 s at 10 %: Q3 is 80 %, so K is 40 %.
func TestPhases(t *testing.T) {
	use := func(at float64) float64 {
		switch {
		case at < 6000:
			return 0.8
		case at < 8000:
			return 0.6
		}
		return 0.1
	}
	w := world{length: 10_000, interval: 50, cores: 2,
		actors: []actor{{name: "a", cpu: use}, {name: "b", cpu: use}, {name: "idle"}}}
	r := Analyse(w.record(), Options{})
	near := func(got, want float64) bool { return math.Abs(got-want) < 0.01 }
	u := r.Containers[0].CPU
	if u.Windows != 10 || !near(u.K, 40) || u.Load.Windows != 8 || !near(u.Load.Mean, 75) ||
		!near(u.Load.SD, math.Sqrt(75)) || u.Idle.Windows != 2 || !near(u.Idle.Mean, 10) || !near(u.Mean, 62) ||
		!near(u.Max, 80) {
		t.Errorf("got %+v", u)
	}
	if u := r.CPU; !near(u.K, 80) || !near(u.Load.Mean, 150) || u.Idle.Windows != 2 {
		t.Errorf("of all: got %+v", u)
	}
	if u := r.Containers[2].CPU; u.Load.Windows != 0 || u.Idle.Windows != 10 {
		t.Errorf("of an idle container: got %+v", u)
	}
}

// TestOverlappingFiles has each container twice: nothing is counted twice, and the report says so.
func TestOverlappingFiles(t *testing.T) {
	w := shop(5)
	hog(&w, 3000, 3240)
	r := Analyse(append(w.record(), w.record()...), Options{})
	if len(r.Containers) != 5 || r.Containers[0].Rows != 2001 || len(r.Saturations) != 1 {
		t.Errorf("got %d containers, %+v\n%s", len(r.Containers), r.Containers[0], text(r))
	}
	if len(r.Notes) != 5 || !strings.Contains(r.Notes[0], "2001 rows are not later") {
		t.Errorf("got notes %q", r.Notes)
	}
}

// TestFilesOfOneContainer puts parts together, and names what they have in common.
func TestFilesOfOneContainer(t *testing.T) {
	w := shop(5)
	hog(&w, 3000, 3240)
	var parts []*csvy.Recording
	for _, rec := range w.record() {
		for part := range 2 {
			p := *rec
			p.Head.Part = part + 1
			half := len(rec.At) * 31 / 100 // within the saturation
			cut := func(from, to int) {
				p.At = rec.At[from:to]
				p.Values = nil
				for _, v := range rec.Values {
					p.Values = append(p.Values, v[from:to])
				}
			}
			if cut(0, half); part == 1 {
				cut(half, len(rec.At))
				p.Problems = []csvy.Problem{{Line: 7, Text: "odd", Count: 1}}
			}
			parts = append([]*csvy.Recording{&p}, parts...)
		}
	}
	r := Analyse(parts, Options{})
	if len(r.Saturations) != 1 || math.Abs(r.Saturations[0].Duration-240) > 2 {
		t.Errorf("got\n%s", text(r))
	}
	if len(r.Containers) != 5 || r.Containers[0].Files != 2 || r.Containers[0].MissingTicks != 0 || len(r.Problems) != 5 {
		t.Errorf("got containers %+v, problems %v", r.Containers[0], r.Problems)
	}
}
