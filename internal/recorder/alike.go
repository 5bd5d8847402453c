package recorder

import (
	"cmp"
	"slices"
	"time"
)

// Alike are anomalies of one resource of one container.
type Alike struct {
	// List is in order of time; Longest and MostWaited are indexes of it.
	List                []KeptAnomaly
	Longest, MostWaited int
	// WaitedMS is the sum of what waited.
	WaitedMS float64
}

// First is when the first one began, Last when the last one did.
func (a *Alike) First() time.Time { return a.List[0].From }

// Last is when the last one began.
func (a *Alike) Last() time.Time { return a.List[len(a.List)-1].From }

// AlikeOf puts those together that are of one resource of one container, those with the newest anomaly last.
func AlikeOf(list []KeptAnomaly) []*Alike {
	type key struct{ resource, container, id string }
	known := map[key]*Alike{}
	var all []*Alike
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(x, y KeptAnomaly) int {
		return cmp.Or(x.From.Compare(y.From),
			cmp.Compare(x.Number, y.Number))
	})
	for _, k := range list {
		of := key{k.Resource, k.Container, k.ID}
		a := known[of]
		if a == nil {
			a = &Alike{}
			known[of], all = a, append(all, a)
		}
		a.List = append(a.List, k)
		a.WaitedMS += k.WaitedMS
		if last := len(a.List) - 1; k.To.Sub(k.From) > a.List[a.Longest].To.Sub(a.List[a.Longest].From) {
			a.Longest = last
		}
		if last := len(a.List) - 1; k.WaitedMS > a.List[a.MostWaited].WaitedMS {
			a.MostWaited = last
		}
	}
	slices.SortStableFunc(all, func(x, y *Alike) int { return x.Last().Compare(y.Last()) })
	return all
}
