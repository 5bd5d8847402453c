package graph

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"outsight/internal/model"
)

// Waits is what containers waited for a CPU behind, in a window.
type Waits struct {
	// CoveredSeconds is how much of the window was observed. Rates are over this time.
	CoveredSeconds float64 `json:"covered_seconds"`
	// Containers that waited, the longest first.
	Containers []*Wait `json:"containers"`
}

// Wait is what one container waited.
type Wait struct {
	Host string `json:"host"`
	ID   string `json:"id"`
	Name string `json:"name"`
	// Seconds that its threads waited in sum; Rate is milliseconds per second, 0 where nothing was covered.
	Seconds     float64 `json:"seconds"`
	Rate        float64 `json:"ms_per_second"`
	Preemptions float64 `json:"preemptions"`
	// By what it waited behind, the longest first.
	By []WaitedBehind `json:"by"`
	// Line says it in words.
	Line string `json:"line"`
}

// WaitedBehind is a container, or one of the reasons "own", "idle", "quota", "migrated" and "other", which have no
// ID: other threads of the same container, nobody (the CPU had to wake up), the container's own CPU quota, whoever
// ran on a CPU that a thread was moved away from, and all that are not distinguished.
type WaitedBehind struct {
	ID          string  `json:"id,omitempty"`
	Name        string  `json:"name"`
	Seconds     float64 `json:"seconds"`
	Rate        float64 `json:"ms_per_second"`
	Preemptions float64 `json:"preemptions"`
}

// waitsBuilder gathers what was waited by host and ID of the container, then by ID and name of who ran.
type waitsBuilder struct {
	seconds    float64
	containers map[[2]string]*waiting
}

type waiting struct {
	name string
	by   map[[2]string]*WaitedBehind
}

func newWaits(seconds float64) *waitsBuilder {
	return &waitsBuilder{seconds, map[[2]string]*waiting{}}
}

func (w *waitsBuilder) by(host, id, name, byID, byName string) *WaitedBehind {
	key := [2]string{host, id}
	c := w.containers[key]
	if c == nil {
		c = &waiting{by: map[[2]string]*WaitedBehind{}}
		w.containers[key] = c
	}
	c.name = nameOf(c.name, name, id)
	who := [2]string{byID, ""}
	if byID == "" {
		who[1] = byName
	}
	b := c.by[who]
	if b == nil {
		b = &WaitedBehind{ID: byID}
		c.by[who] = b
	}
	b.Name = nameOf(b.Name, byName, byID)
	return b
}

// nameOf is the better of two names of one thing: any rather than none or the short ID.
func nameOf(have, other, id string) string {
	if have == "" || other != "" && strings.HasPrefix(id, have) {
		return other
	}
	return have
}

func (w *waitsBuilder) finish() *Waits {
	all := &Waits{CoveredSeconds: w.seconds, Containers: []*Wait{}}
	rate := func(seconds float64) float64 {
		if w.seconds == 0 {
			return 0
		}
		return seconds * 1e3 / w.seconds
	}
	for key, c := range w.containers {
		one := &Wait{Host: key[0], ID: key[1], Name: cmp.Or(c.name, key[1]), By: []WaitedBehind{}}
		for _, b := range c.by {
			if b.Seconds == 0 && b.Preemptions == 0 {
				continue
			}
			b.Rate = rate(b.Seconds)
			one.Seconds += b.Seconds
			one.Preemptions += b.Preemptions
			one.By = append(one.By, *b)
		}
		if len(one.By) == 0 {
			continue
		}
		slices.SortFunc(one.By, func(a, b WaitedBehind) int {
			return cmp.Or(cmp.Compare(b.Seconds, a.Seconds), cmp.Compare(a.ID, b.ID), cmp.Compare(a.Name, b.Name))
		})
		one.Rate = rate(one.Seconds)
		one.Line = one.line()
		all.Containers = append(all.Containers, one)
	}
	slices.SortFunc(all.Containers, func(a, b *Wait) int {
		return cmp.Or(cmp.Compare(b.Seconds, a.Seconds), cmp.Compare(a.Host, b.Host), cmp.Compare(a.ID, b.ID))
	})
	return all
}

// Of is what the container with an ID, or else with a name, waited; nil where it did not. What runs in no container of
// host h is "host/h".
func (w *Waits) Of(id string) *Wait {
	if id == "" {
		return nil
	}
	for _, c := range w.Containers {
		if c.ID == id || c.ID == model.HostContainerID && "host/"+c.Host == id {
			return c
		}
	}
	for _, c := range w.Containers {
		if c.Name == id {
			return c
		}
	}
	return nil
}

// Bottleneck is what the first limit of an application waited; where that is a host's CPUs, what the node of the
// critical path waited that takes longest itself. Nil where there is none, or it did not wait.
func (w *Waits) Bottleneck(a *Analysis, p *Path) *Wait {
	if found := w.Of(a.Bottleneck); found != nil {
		return found
	}
	if p == nil || len(p.Hops) == 0 {
		return nil
	}
	slowest := slices.MaxFunc(p.Hops, func(x, y Hop) int { return cmp.Compare(x.ownMean, y.ownMean) })
	return w.Of(slowest.Node)
}

// inWords are the reasons that are no container.
var inWords = map[string]string{
	"own": "behind its own threads", "idle": "for the CPU to wake up", "quota": "own quota",
	"migrated": "on a CPU that it was moved away from", "other": "behind others",
}

const (
	// maxReasons are named in a line, each at least leastReason of the whole.
	maxReasons  = 4
	leastReason = 0.02
)

// line is "cart waited 38 ms/s for a CPU: 31 behind batch, 7 own quota".
func (w *Wait) line() string {
	var b strings.Builder
	total, unit := w.Rate, "ms/s"
	scale := 1.0
	if total == 0 && w.Seconds > 0 { // of an unknown time
		total, unit, scale = w.Seconds*1e3, "ms", 0
	}
	name := Clean(w.Name)
	if total < 0.05 {
		return name + " hardly waited for a CPU"
	}
	fmt.Fprintf(&b, "%s waited %s %s for a CPU", name, millis(total), unit)
	rest := total
	for i, by := range w.By {
		value := by.Rate
		if scale == 0 {
			value = by.Seconds * 1e3
		}
		if i == maxReasons || value < leastReason*total {
			break
		}
		separator := ", "
		if i == 0 {
			separator = ": "
		}
		reason := inWords[by.Name]
		if by.ID != "" || reason == "" {
			reason = "behind " + Clean(by.Name)
		}
		fmt.Fprintf(&b, "%s%s %s", separator, millis(value), reason)
		rest -= value
	}
	if rest >= leastReason*total {
		fmt.Fprintf(&b, ", %s for the rest", millis(rest))
	}
	return b.String()
}

// inFewWords are the reasons that are no container, for where there is little room.
var inFewWords = map[string]string{"own": "itself", "idle": "wake-up", "quota": "own quota", "migrated": "moved",
	"other": "others"}

// Short is the rate, and what most of it was behind, in few words: "38 ms/s batch".
func (w *Wait) Short() string {
	if w == nil || w.Rate < 0.05 {
		return "0"
	}
	text := millis(w.Rate) + " ms/s"
	if len(w.By) > 0 {
		by := w.By[0]
		reason := inFewWords[by.Name]
		if by.ID != "" || reason == "" {
			reason = Clean(by.Name)
		}
		text += " " + reason
	}
	return text
}

func millis(ms float64) string {
	if ms < 10 {
		return fmt.Sprintf("%.1f", ms)
	}
	return fmt.Sprintf("%.0f", ms)
}
