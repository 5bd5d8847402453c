package place

import (
	"cmp"
	"container/heap"
	"context"
	"slices"
)

// Move is of one container.
type Move struct {
	// Container is an index.
	Container int    `json:"container"`
	Name      string `json:"name"`
	From      string `json:"from"`
	To        string `json:"to"`
}

// Step are containers that move at once: one, those that are to be together, those that gain only together, or those that
// need each other's room.
type Step struct {
	Moves []Move `json:"moves"`
	// Gain is by how much it makes the cost less, After what the placement is like then, with all steps before.
	Gain float64 `json:"gain"`
	// After is there for the first maxFigures steps.
	After *Figures `json:"after,omitempty"`
}

// maxFigures bounds for how many steps all figures are told.
const maxFigures = 200

// item are containers that move at once, and where to.
type item struct {
	containers []int
	to         []int
	gain       float64
	version    int // of the newest entry in the queue
	done       bool
}

// route finds the order of moves from a placement to another.
type route struct {
	*plan
	items   []*item
	itemOf  map[int]*item
	blocked map[int][]*item // by the host that lacks room
	queue   queue
	taken   [][]*item
}

// steps makes the moves that lead to target, each time those that gain most and break no rule on the way. What only costs
// at the end is left out. It ends early with the context.
func (p *plan) steps(ctx context.Context, target []int, most int) []Step {
	r := &route{plan: p, itemOf: map[int]*item{}, blocked: map[int][]*item{}}
	for n := range p.together.units {
		it := &item{}
		for _, i := range p.together.units[n].containers {
			if int(p.at[i]) != target[i] {
				it.containers, it.to = append(it.containers, i), append(it.to, target[i])
				r.itemOf[i] = it
			}
		}
		if len(it.containers) > 0 {
			r.items = append(r.items, it)
			r.push(it)
		}
	}
	costs, broken := []float64{p.cost()}, []float64{p.brokenRules()}
	for range len(r.items) {
		if most > 0 && len(r.taken) == most || ctx.Err() != nil {
			break
		}
		next := r.next()
		if next == nil {
			break
		}
		before := costs[len(costs)-1]
		costs = append(costs, before-r.take(next))
		now := broken[len(broken)-1]
		if now > 0 { // a step that fits breaks nothing
			now = p.brokenRules()
		}
		broken = append(broken, now)
	}
	r.back(fewestCost(costs, broken))
	return r.told()
}

// fewestCost is after how many steps the cost is least, of those after which the least is broken.
func fewestCost(costs, broken []float64) int {
	best := 0
	for i := range costs {
		if c := cmp.Compare(broken[i], broken[best]); c < 0 || c == 0 && costs[i] < costs[best]-1e-12 {
			best = i
		}
	}
	return best
}

// brokenRules is broken, with units that are not together; rounded, so that sums in another order are the same.
func (p *plan) brokenRules() float64 {
	sum := p.broken()
	for n := range p.together.units {
		own := p.together.units[n].containers
		for _, i := range own {
			if p.at[i] != p.at[own[0]] {
				sum++
			}
		}
	}
	return float64(int64(sum*1e6+0.5)) / 1e6
}

// repairWorth is how much more it counts that less of the rules is broken than what the cost gains.
const repairWorth = 1000

// trial moves the containers and says what that gains, and whether none of the hosts has too much then that had not.
func (r *route) trial(items []*item) (gain float64, fits bool) {
	var hosts []int
	for _, it := range items {
		for k, i := range it.containers {
			hosts = append(hosts, int(r.at[i]), it.to[k])
		}
	}
	slices.Sort(hosts)
	hosts = slices.Compact(hosts)
	was := make([]float64, len(hosts))
	for k, h := range hosts {
		was[k] = r.over(h)
	}
	type place struct{ container, host int }
	var before []place
	for _, it := range items {
		for k, i := range it.containers {
			before = append(before, place{i, int(r.at[i])})
			gain -= r.delta(i, it.to[k])
			r.move(i, it.to[k])
			if u := &r.units[i]; u.allowed != nil && !u.allowed[before[len(before)-1].host] {
				gain += repairWorth
			}
		}
	}
	fits = true
	for k, h := range hosts {
		now := r.over(h)
		fits = fits && now <= was[k]+tolerance
		gain += repairWorth * (was[k] - now)
	}
	for _, p := range slices.Backward(before) {
		r.move(p.container, p.host)
	}
	return gain, fits
}

// push puts an item into the queue by what it gains now.
func (r *route) push(it *item) {
	it.gain, _ = r.trial([]*item{it})
	it.version++
	heap.Push(&r.queue, entry{it, it.gain, it.version})
}

// next is what is to move next: the item that gains most and fits; where none gains, those that do together; where none
// fits, two that change places, else all that are left. It is nil where nothing is left.
func (r *route) next() []*item {
	var late *item // fits and gains nothing
	for r.queue.Len() > 0 && late == nil {
		e := heap.Pop(&r.queue).(entry)
		if e.done || e.version != e.item.version {
			continue
		}
		gain, fits := r.trial([]*item{e.item})
		switch {
		case !fits:
			for _, h := range e.to {
				r.blocked[h] = append(r.blocked[h], e.item)
			}
		case gain < e.gain-tolerance && r.queue.Len() > 0 && gain < r.queue[0].gain:
			r.push(e.item)
		case gain > 0:
			return []*item{e.item}
		default:
			late = e.item
		}
	}
	if late != nil {
		r.push(late)
	}
	if group := r.group(); group != nil {
		return group
	}
	if late != nil {
		return []*item{late}
	}
	return r.exchange()
}

// maxGroup bounds how many items are looked at for a step of several.
const maxGroup = 2000

// pending are the items that are left.
func (r *route) pending() []*item {
	var left []*item
	for _, it := range r.items {
		if !it.done {
			left = append(left, it)
		}
	}
	return left
}

// group is the set of items that talk with one another and go to one host that gains most for each item, nil where none
// gains.
func (r *route) group() (best []*item) {
	left := r.pending()
	if len(left) > maxGroup {
		return nil
	}
	most := tolerance
	seen := map[*item]bool{}
	for _, it := range left {
		if seen[it] {
			continue
		}
		group := r.around(it, seen)
		if len(group) < 2 {
			continue
		}
		if gain, fits := r.trial(group); fits && gain/float64(len(group)) > most {
			best, most = group, gain/float64(len(group))
		}
	}
	return best
}

// around are the items that an item is joined with by links among those to the same host.
func (r *route) around(it *item, seen map[*item]bool) []*item {
	group := []*item{it}
	seen[it] = true
	for k := 0; k < len(group); k++ {
		for _, i := range group[k].containers {
			for _, l := range r.units[i].links {
				other := r.itemOf[int(l.to)]
				if other != nil && !other.done && !seen[other] && other.to[0] == it.to[0] {
					seen[other] = true
					group = append(group, other)
				}
			}
		}
	}
	return group
}

// exchange is two items that change places, or else all that are left.
func (r *route) exchange() []*item {
	left := r.pending()
	if len(left) == 0 {
		return nil
	}
	byWay := map[[2]int]*item{}
	for _, it := range left {
		way := [2]int{int(r.at[it.containers[0]]), it.to[0]}
		if other := byWay[[2]int{way[1], way[0]}]; other != nil {
			if _, fits := r.trial([]*item{it, other}); fits {
				return []*item{it, other}
			}
		}
		if byWay[way] == nil {
			byWay[way] = it
		}
	}
	return left
}

// take moves the items and says what that gains.
func (r *route) take(items []*item) (gain float64) {
	var again []*item
	step := make([]*item, 0, len(items))
	for _, it := range items {
		was := &item{done: true}
		for k, i := range it.containers {
			from := int(r.at[i])
			was.containers, was.to = append(was.containers, i), append(was.to, from)
			gain -= r.delta(i, it.to[k])
			r.move(i, it.to[k])
			r.containers[i] = it.to[k]
			again = append(again, r.blocked[from]...)
			delete(r.blocked, from)
			for _, l := range r.units[i].links {
				if other := r.itemOf[int(l.to)]; other != nil {
					again = append(again, other)
				}
			}
		}
		it.done = true
		step = append(step, was)
	}
	r.taken = append(r.taken, step)
	for _, it := range again {
		if !it.done {
			r.push(it)
		}
	}
	return gain
}

// back undoes the steps after the first n.
func (r *route) back(n int) {
	for k := len(r.taken) - 1; k >= n; k-- {
		r.undo(r.taken[k])
	}
	r.taken = r.taken[:n]
}

// undo moves the containers of a step back to where they came from, and turns it around.
func (r *route) undo(step []*item) {
	for _, it := range step {
		for k, i := range it.containers {
			now := int(r.at[i])
			r.move(i, it.to[k])
			r.containers[i], it.to[k] = it.to[k], now
		}
	}
}

// told is what the steps are, with the figures after each.
func (r *route) told() []Step {
	for _, step := range slices.Backward(r.taken) {
		r.undo(step)
	}
	r.sumAnew()
	steps := make([]Step, 0, len(r.taken))
	for n, taken := range r.taken {
		var all []Assignment
		for _, it := range taken {
			for k, i := range it.containers {
				all = append(all, Assignment{i, it.to[k]})
			}
		}
		steps = append(steps, r.step(all, n < maxFigures))
	}
	return steps
}

// sumAnew leaves nothing of what adding and taking away make of sums: the same placement has the same figures, however it
// was reached, and a host that was left has nothing and not nearly nothing.
func (p *plan) sumAnew() { *p.state = *newState(p.compiled, p.at) }

// step moves the containers and says what that is, with the figures then or without.
func (p *plan) step(moves []Assignment, withFigures bool) (s Step) {
	for _, m := range moves {
		i, to := m.Container, m.Host
		if int(p.at[i]) == to {
			continue
		}
		s.Moves = append(s.Moves, Move{i, p.Containers[i].Name, p.Hosts[p.at[i]].Name, p.Hosts[to].Name})
		s.Gain -= p.delta(i, to)
		p.move(i, to)
		p.containers[i] = to
	}
	if withFigures {
		p.sumAnew()
		after := p.figures()
		s.After = &after
	}
	return s
}

// entry is an item in the queue with what it gained when it was put there.
type entry struct {
	*item
	gain    float64
	version int
}

// queue has the entry that gains most first (container/heap).
type queue []entry

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, k int) bool {
	return cmp.Or(-cmp.Compare(q[i].gain, q[k].gain), cmp.Compare(q[i].containers[0], q[k].containers[0])) < 0
}
func (q queue) Swap(i, k int) { q[i], q[k] = q[k], q[i] }
func (q *queue) Push(e any)   { *q = append(*q, e.(entry)) }
func (q *queue) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}
