package budget

import (
	"slices"
	"testing"
	"time"
)

// host is a simulated one: what each part costs while it is not given up.
type host struct {
	k     *Keeper
	now   time.Time
	base  float64
	costs map[string]float64
	log   []Change
}

func newHost(limit float64, parts ...string) *host {
	return &host{k: New(limit, parts), now: time.Unix(0, 0), costs: map[string]float64{}}
}

func (h *host) total() float64 {
	total := h.base
	for part, cost := range h.costs {
		if !h.k.Shed(part) {
			total += cost
		}
	}
	return total
}

// run measures once a second.
func (h *host) run(seconds int) (changes []Change) {
	for range seconds {
		h.now = h.now.Add(time.Second)
		c := Cost{Total: h.total(), Parts: map[string]float64{}}
		for part, cost := range h.costs {
			if !h.k.Shed(part) {
				c.Parts[part] = cost
			}
		}
		changes = append(changes, h.k.Observe(h.now, c)...)
	}
	h.log = append(h.log, changes...)
	return changes
}

func shed(part string) Change     { return Change{Part: part, Shed: true} }
func restored(part string) Change { return Change{Part: part} }

func TestShedsInOrderAndAsMuchAsItTakes(t *testing.T) {
	h := newHost(0.01, "a", "free", "b", "c")
	h.base, h.costs = 0.002, map[string]float64{"a": 0.001, "free": 0, "b": 0.004, "c": 0.005}
	if got := h.run(1); got != nil {
		t.Fatalf("one measurement over the limit: %v", got)
	}
	// Without a and b it is 0.007; a alone would leave 0.011.
	if got, want := h.run(1), []Change{shed("a"), shed("b")}; !slices.Equal(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
	if got := h.run(20); got != nil || h.total() > 0.01 {
		t.Errorf("then %v at %v", got, h.total())
	}
	if !h.k.Shed("a") || h.k.Shed("free") || !h.k.Shed("b") || h.k.Shed("c") {
		t.Error("Shed says otherwise")
	}
}

func TestOneAccidentChangesNothing(t *testing.T) {
	h := newHost(0.01, "a")
	for range 10 {
		h.base, h.costs = 0.02, map[string]float64{"a": 0.001}
		h.run(1)
		h.base = 0.002
		if h.run(1); h.log != nil {
			t.Fatalf("got %v", h.log)
		}
	}
}

func TestRestoresInReverseAfterAWhile(t *testing.T) {
	h := newHost(0.01, "a", "b")
	h.costs = map[string]float64{"a": 0.01, "b": 0.01}
	h.run(2)
	if !h.k.Shed("a") || !h.k.Shed("b") {
		t.Fatalf("got %v", h.log)
	}
	h.costs = map[string]float64{"a": 0.001, "b": 0.001} // the load has gone
	if got := h.run(int(Hold/time.Second) - 1); got != nil {
		t.Fatalf("too early: %v", got)
	}
	if got, want := h.run(1), []Change{restored("b")}; !slices.Equal(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
	if got, want := h.run(int(Hold/time.Second)), []Change{restored("a")}; !slices.Equal(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
	if got := h.run(1000); got != nil {
		t.Errorf("then %v", got)
	}
}

// While the load stays, the trials become rarer: each doubles the wait, up to a bound.
func TestTrialsBecomeRare(t *testing.T) {
	h := newHost(0.01, "a")
	h.costs = map[string]float64{"a": 0.02}
	var trials []int
	for second := range 7200 {
		for _, c := range h.run(1) {
			if !c.Shed {
				trials = append(trials, second)
			}
		}
	}
	if len(trials) < 5 {
		t.Fatalf("%d trials in two hours", len(trials))
	}
	last := 0
	for i := range len(trials) - 1 {
		gap := trials[i+1] - trials[i]
		if gap < last || time.Duration(gap)*time.Second > MaxHold+10*time.Second {
			t.Errorf("trial %d after %d s, the one before after %d", i+1, gap, last)
		}
		last = gap
	}
	if time.Duration(last)*time.Second < MaxHold {
		t.Errorf("the last trial after %d s", last)
	}
}

func TestBetweenCalmAndTheLimitNothingChanges(t *testing.T) {
	h := newHost(0.01, "a")
	h.costs = map[string]float64{"a": 0.02}
	h.run(2)
	h.base = 0.009
	if got := h.run(3600); got != nil {
		t.Errorf("got %v", got)
	}
}

// What cannot be kept is not tried for ever: nothing is left to give up.
func TestNothingLeft(t *testing.T) {
	h := newHost(0.01, "a")
	h.base, h.costs = 0.02, map[string]float64{"a": 0.001}
	if got, want := h.run(3600), []Change{shed("a")}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
