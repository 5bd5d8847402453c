package predict

import (
	"context"
	"maps"
	"slices"
	"time"

	"outsight/internal/graph"
)

// Loads are stretches of time in which requests used what there is for them.
type Loads struct {
	history History
	all     []load
	// newest are the connections, by client and server, that were there in the newest stretch; of is how many of them there are by
	// the client and what Connections.Name says. many is that there were too many to look at.
	newest map[[2]string]bool
	of     map[[2]string]int
	many   bool
}

type load struct {
	at   time.Time
	rate float64
	// busy is how many connections, or permits, are under way, by the client and what Connections.Name says.
	busy map[[2]string]float64
}

// loadsConnections is how many pairs of clients and servers are looked at for pools, at most: what is kept of each stretch of time
// takes half a kilobyte for each.
const loadsConnections = 2000

// Add adds a stretch of time that ended then, of which the analysis is; they are in the order of time. cores is how many CPUs
// each host has.
func (l *Loads) Add(at time.Time, a *graph.Analysis, cores map[string]float64) {
	if a.ArrivalRate <= 0 {
		return // nothing came, or its host was not heard of
	}
	if len(a.Connections) > loadsConnections {
		few := *a
		few.Connections = nil
		a, l.many = &few, true
	}
	busy := map[[2]string]float64{}
	l.newest, l.of = map[[2]string]bool{}, map[[2]string]int{}
	for i := range a.Connections {
		c := &a.Connections[i]
		key := [2]string{c.Client, c.Name}
		busy[key] += c.Busy
		l.newest[[2]string{c.Client, c.Server}] = true
		l.of[key]++
	}
	l.all = append(l.all, load{at, a.ArrivalRate, busy})
	l.history.Add(a, cores, nil)
}

// Each calls f for the requests at the entries, of which there can be so many until the first limit, and for the connections of
// each pool of which it is known that there are no more, with what was used of each. Where the limit may be lower
// (Prediction.AtMost) By says so; where it cannot be told (UpperBound) there are no requests. When the context ends there is
// nothing.
func (l *Loads) Each(ctx context.Context, f func(b Bounded, all []Used)) {
	l.history.ctx = ctx
	p, err := l.history.predict(Scenario{Times: 1}, false)
	if err != nil || ctx.Err() != nil {
		return
	}
	used := func(b Bounded, of func(*load) (amount float64, ok bool)) {
		all := make([]Used, 0, len(l.all))
		for i := range l.all {
			if amount, ok := of(&l.all[i]); ok {
				all = append(all, Used{At: l.all[i].at, Amount: amount})
			}
		}
		b.Used = all[len(all)-1].Amount
		f(b, all)
	}
	if p.Limit != nil && !p.UpperBound {
		b := Bounded{Kind: Requests, Name: string(Requests), By: p.LimitName(), Capacity: p.Limit.Value}
		if p.AtMost != "" || l.many {
			b.By += ", or sooner"
		}
		used(b, func(o *load) (float64, bool) { return o.rate, true })
	}
	// Several servers of a name are one pool, if all of theirs are known.
	pools, servers := map[[3]string]Bounded{}, map[[3]string]int{}
	for i := range p.Pools {
		pool := &p.Pools[i]
		if !pool.Fixed || !l.newest[[2]string{pool.Client, pool.Server}] {
			continue
		}
		kind := Connections
		if pool.Ceiling {
			kind = RequestsAtATime
		}
		key := [3]string{pool.Client, pool.Name, string(kind)}
		pools[key] = Bounded{Kind: kind, Node: pool.Client, Name: pool.Name, Host: p.hostOf(pool.Client),
			Capacity: pools[key].Capacity + pool.Open}
		servers[key]++
	}
	for _, key := range slices.SortedFunc(maps.Keys(pools), func(a, b [3]string) int { return slices.Compare(a[:], b[:]) }) {
		of := [2]string{key[0], key[1]}
		if servers[key] < l.of[of] {
			continue
		}
		used(pools[key], func(o *load) (amount float64, ok bool) {
			amount, ok = o.busy[of]
			return amount, ok
		})
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
