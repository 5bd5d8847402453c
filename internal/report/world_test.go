package report

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"outsight/internal/csvy"
)

// actor is a container of a simulation. The functions take the time in ms; nil is 0.
type actor struct {
	name string
	// cpu in CPUs, wait in threads in the run queue, sent in bytes per ms: they are integrated.
	cpu, wait, sent func(ms float64) float64
	// asking and serving are numbers of requests.
	asking, serving func(ms float64) float64
	// more columns, as they are.
	more map[string]func(ms float64) float64
}

// world is a recording of all actors: length and interval in ms, without the ticks that are lost.
type world struct {
	length, interval float64
	cores            int
	lost             func(ms float64) bool
	// plain is a recording without ticks, as rAdvisor makes it.
	plain  bool
	actors []actor
}

var epoch = time.Unix(1_790_000_000, 0)

func (w world) record() []*csvy.Recording {
	var all []*csvy.Recording
	for _, a := range w.actors {
		r := &csvy.Recording{Path: a.name + ".csvy", Head: csvy.Head{
			Container: csvy.Container{ID: "id-" + a.name, Name: a.name},
			Host:      csvy.Host{Name: "node", Cores: w.cores, OnlineCores: w.cores},
			Interval:  time.Duration(w.interval * 1e6), Started: epoch, MonotonicNS: 5e9,
		}}
		names := []string{csvy.CPUNS, csvy.RunQueueNS, csvy.SentBytes, csvy.RequestsAsking, csvy.RequestsServing}
		if !w.plain {
			names = append(names, csvy.Tick, csvy.DueNS, csvy.LatenessNS)
		}
		for name := range a.more {
			names = append(names, name)
		}
		for _, name := range names {
			r.Head.Columns = append(r.Head.Columns, csvy.ColumnNamed(name))
			r.Values = append(r.Values, nil)
		}
		call := func(f func(float64) float64, at float64) float64 {
			if f == nil {
				return 0
			}
			return f(at)
		}
		const fine = 0.1
		var cpu, wait, sent float64
		tick := 0
		for step := 0; float64(step)*fine <= w.length+fine/2; step++ {
			at := float64(step) * fine
			if due := float64(tick) * w.interval; at >= due-fine/2 {
				row := map[string]float64{
					csvy.CPUNS: cpu, csvy.RunQueueNS: wait, csvy.SentBytes: math.Floor(sent),
					csvy.RequestsAsking:  math.Floor(call(a.asking, at)),
					csvy.RequestsServing: math.Floor(call(a.serving, at)), csvy.Tick: float64(tick), csvy.DueNS: 5e9 + due*1e6,
					csvy.LatenessNS: 0,
				}
				tick++
				if w.lost == nil || !w.lost(at) {
					r.At = append(r.At, epoch.UnixNano()+int64(due*1e6))
					for i, name := range names {
						v, ok := row[name]
						if !ok {
							v = a.more[name](at)
						}
						r.Values[i] = append(r.Values[i], v)
					}
				}
			}
			cpu += call(a.cpu, at) * fine * 1e6
			wait += call(a.wait, at) * fine * 1e6
			sent += call(a.sent, at) * fine
		}
		all = append(all, r)
	}
	return all
}

// between is v from one time to another, and other otherwise.
func between(from, to, v, other float64) func(float64) float64 {
	return func(at float64) float64 {
		if at >= from && at < to {
			return v
		}
		return other
	}
}

func always(v float64) func(float64) float64 { return func(float64) float64 { return v } }

// busy are requests that come each 7 ms and take 2 ms.
func busy(at float64) float64 {
	if math.Mod(at, 7) < 2 {
		return 1
	}
	return 0
}

// stalling are requests that come each 12 ms and are not answered from one time to another.
func stalling(from, to float64) func(float64) float64 {
	return func(at float64) float64 {
		if at < from || at >= to {
			if math.Mod(at, 12) < 1 {
				return 1
			}
			return 0
		}
		return math.Floor(at/12) - math.Ceil(from/12) + 1
	}
}

// shop is a world with nothing to find in it.
func shop(interval float64) world {
	return world{length: 10_000, interval: interval, cores: 2, actors: []actor{
		{name: "gateway", cpu: always(0.1), sent: always(50), asking: busy, serving: busy},
		{name: "catalogue", cpu: always(0.2), sent: always(50), serving: busy},
		{name: "cart", cpu: always(0.3), wait: always(0.01), sent: always(50), serving: busy},
		{name: "batch", cpu: func(at float64) float64 { return 0.3 + 0.2*math.Sin(at/300) }},
	}}
}

func (w *world) actor(name string) *actor {
	for i := range w.actors {
		if w.actors[i].name == name {
			return &w.actors[i]
		}
	}
	w.actors = append(w.actors, actor{name: name})
	return &w.actors[len(w.actors)-1]
}

// stall makes the catalogue stand still; the gateway's requests to it wait.
func (w *world) stall(name string, from, to float64) {
	a := w.actor(name)
	a.serving = stalling(from, to)
	a.sent = between(from, to, 0, 50)
	a.cpu = between(from, to, 0.01, 0.2)
}

func text(r *Report) string {
	var b strings.Builder
	for _, s := range r.Saturations {
		fmt.Fprintf(&b, "%s %s %.1f–%.1f ms\n", s.Kind, s.Container, sinceEpoch(s.From), sinceEpoch(s.To))
		for _, l := range s.Chain {
			fmt.Fprintf(&b, "    %.1f %s\n", sinceEpoch(l.At), l.Text)
		}
	}
	return b.String()
}

func sinceEpoch(t time.Time) float64 { return float64(t.Sub(epoch)) / 1e6 }

// want is what is to be found: from and to within the tolerance in ms.
type want struct {
	kind     Kind
	name     string
	from, to float64
}

func check(t *testing.T, w world, tolerance float64, wants ...want) *Report {
	t.Helper()
	r := Analyse(w.record(), Options{})
	found := slices.Clone(r.Saturations)
	for _, want := range wants {
		i := slices.IndexFunc(found, func(s *Saturation) bool {
			return s.Kind == want.kind && s.Container == want.name && math.Abs(sinceEpoch(s.From)-want.from) <= tolerance &&
				math.Abs(sinceEpoch(s.To)-want.to) <= tolerance
		})
		if i < 0 {
			t.Errorf("no %s of %s from %v to %v ms in\n%s", want.kind, want.name, want.from, want.to, text(r))
			continue
		}
		found = slices.Delete(found, i, i+1)
	}
	for _, s := range found {
		t.Errorf("%s of %s from %.1f to %.1f ms is not there", s.Kind, s.Container, sinceEpoch(s.From), sinceEpoch(s.To))
	}
	return r
}

func wantEffect(t *testing.T, s *Saturation, what What, name string) *Effect {
	t.Helper()
	for i, e := range s.Effects {
		if e.What == what && e.Container == name {
			return &s.Effects[i]
		}
	}
	t.Errorf("%s of %s: %s of %s is missing in %+v", s.Kind, s.Container, what, name, s.Effects)
	return &Effect{}
}
