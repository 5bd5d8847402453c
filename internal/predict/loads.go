package predict

import (
	"slices"
	"time"

	"outsight/internal/graph"
)

// Loads are stretches of time in which requests used what there is for them.
type Loads struct {
	history History
	all     []load
}

type load struct {
	at   time.Time
	rate float64
	// busy is how many connections, or permits, of a pool are under way.
	busy map[string]float64
}

// Add adds a stretch of time that ended then, of which the analysis is; they are in the order of time. cores is how many CPUs
// each host has.
func (l *Loads) Add(at time.Time, a *graph.Analysis, cores map[string]float64) {
	if a.ArrivalRate <= 0 {
		return
	}
	busy := map[string]float64{}
	for _, c := range a.Connections {
		busy[(&Pool{Client: c.Client, Server: c.Server}).id()] = c.Busy
	}
	l.all = append(l.all, load{at, a.ArrivalRate, busy})
	l.history.Add(a, cores, nil)
}

// Each calls f for the requests at the entries, of which there can be so many until the first limit, and for the connections of
// each pool of which it is known that there are no more, with what was used of each. Where the limit may be lower (Prediction.AtMost)
// the name says so; where it cannot be told (UpperBound) there are no requests.
func (l *Loads) Each(f func(b Bounded, all []Used)) {
	p, err := l.history.predict(Scenario{Times: 1}, false)
	if err != nil {
		return
	}
	used := func(b Bounded, of func(*load) float64) {
		all := make([]Used, 0, len(l.all))
		for i := range l.all {
			all = append(all, Used{At: l.all[i].at, Amount: of(&l.all[i])})
		}
		b.Used = all[len(all)-1].Amount
		f(b, all)
	}
	if p.Limit != nil && !p.UpperBound {
		b := Bounded{Kind: Requests, Name: p.LimitName(), Capacity: p.Limit.Value}
		if p.AtMost != "" {
			b.Name += ", or sooner"
		}
		node := p.LimitedBy
		if pool := p.LimitingPool(); pool != nil {
			node = pool.Client
		}
		b.Host = p.hostOf(node)
		used(b, func(o *load) float64 { return o.rate })
	}
	for i := range p.Pools {
		if pool := &p.Pools[i]; pool.Fixed {
			used(Bounded{Kind: Connections, Node: pool.Client, Name: pool.Name, Host: p.hostOf(pool.Client), Capacity: pool.Open},
				func(o *load) float64 { return o.busy[pool.id()] })
		}
	}
}

// hostOf is that of a resource; empty where there is none.
func (p *Prediction) hostOf(node string) string {
	at := slices.IndexFunc(p.Resources, func(r Resource) bool { return r.Node == node })
	if at < 0 {
		return ""
	}
	return p.Resources[at].Host
}
