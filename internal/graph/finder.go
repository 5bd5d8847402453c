package graph

import (
	"cmp"
	"hash/maphash"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"outsight/internal/model"
)

// finders are those of each kind of entity.
type finders [kinds]finder

func newFinders() *finders {
	all := &finders{
		{identity: containerIdentity, fields: len(containerTable.columns)},
		{identity: edgeIdentity, fields: len(edgeTable.columns)},
		{identity: endpointIdentity, fields: len(endpointTable.columns)},
	}
	for i := range all {
		all[i].kind = Field(i) << kindShift
		all[i].byHash, all[i].same = map[uint64]*entity{}, map[uintptr]int32{}
		all[i].reset()
	}
	return all
}

func findersOf(series []FieldResult) *finders {
	all, _ := findersPool.Get().(*finders)
	if all == nil {
		all = newFinders()
	}
	for _, r := range series {
		if slices.ContainsFunc(r.Points, noNumber) {
			r.Points = slices.DeleteFunc(slices.Clone(r.Points), noNumber)
		}
		if len(r.Points) > 0 {
			all[r.Field.kind()>>kindShift].add(&r)
		}
	}
	return all
}

// findersPool has finders that are not used, with their memory.
var findersPool sync.Pool

// entityBlock has memory for entities of one kind, of which a graph keeps none.
type entityBlock struct {
	entities []entity
	series   [][]model.Point
}

// The labels that distinguish two entities.
var (
	containerIdentity = []string{"host", "id"}
	edgeIdentity      = []string{"host", "side", "client_id", "server_id", "client_process", "server_process",
		"service", "transport"}
	endpointIdentity = slices.Concat(edgeIdentity, []string{"protocol", "endpoint", "status"})
)

var identitySeed = maphash.MakeSeed()

// hashOf is that of the values of labels.
func hashOf(labels map[string]string, identity []string) uint64 {
	var h maphash.Hash
	h.SetSeed(identitySeed)
	for _, name := range identity {
		h.WriteString(labels[name])
		h.WriteByte(0)
	}
	return h.Sum64()
}

// lateLabels are labels that a series may gain.
var lateLabels = []string{"pod", "workload", "client_pod", "client_workload", "server_pod", "server_workload",
	"service_name"}

// finder finds the entity that a series is one of.
type finder struct {
	kind     Field
	identity []string
	// fields that an entity may have.
	fields int
	all    []*entity
	byHash map[uint64]*entity
	// rooms are what the entities are in, of which used have been given away.
	rooms []*entityBlock
	used  int
	// same are indexes in labels, by the address of a series' labels.
	same   map[uintptr]int32
	labels []sameLabels
	// before is the index of the labels of the series before.
	before int32
}

// sameLabels are labels that series share, where a store lets them, and the entity that they are of: to read what is in
// them takes longer than all else.
type sameLabels struct {
	address uintptr
	entity  *entity
	// next is the index of those of the series that followed one with these, which they mostly do again.
	next int32
}

// addressOf distinguishes labels without a look into them.
func addressOf(labels map[string]string) uintptr { return reflect.ValueOf(labels).Pointer() }

// find finds the entity that has the labels of r, and the address of these.
func (f *finder) find(r *FieldResult) (*entity, uintptr) {
	address := addressOf(r.Labels)
	before := &f.labels[f.before]
	if before.entity != nil && before.address == address {
		return before.entity, address
	}
	at := before.next
	if f.labels[at].address != address || at == 0 {
		var known bool
		if at, known = f.same[address]; !known {
			at = int32(len(f.labels))
			f.same[address] = at
			f.labels = append(f.labels, sameLabels{address: address, entity: f.of(r)})
		}
	}
	f.labels[f.before].next, f.before = at, at
	return f.labels[at].entity, address
}

// of is the entity with the identity of r, which may be new.
func (f *finder) of(r *FieldResult) *entity {
	hash := hashOf(r.Labels, f.identity)
	e := f.known(r.Labels, hash)
	if e == nil {
		e = f.entity()
		*e = entity{kind: f.kind, identity: r.Labels, hash: hash, host: r.Labels["host"], series: e.series,
			first: r.Points[0].Time}
		f.insert(e)
	}
	return e
}

func (f *finder) insert(e *entity) {
	e.twin, f.byHash[e.hash] = f.byHash[e.hash], e
	f.all = append(f.all, e)
}

// known is the entity with the identity of labels, whose hash it is; nil where there is none.
func (f *finder) known(labels map[string]string, hash uint64) *entity {
	e := f.byHash[hash]
	for ; e != nil; e = e.twin {
		if !slices.ContainsFunc(f.identity, func(name string) bool { return labels[name] != e.identity[name] }) {
			break
		}
	}
	return e
}

// blockEntities is how many entities an entityBlock has.
const blockEntities = 256

// entity is a new one with room for its series.
func (f *finder) entity() *entity {
	if f.used == len(f.rooms)*blockEntities {
		f.rooms = append(f.rooms, &entityBlock{make([]entity, blockEntities), make([][]model.Point, blockEntities*f.fields)})
	}
	room, i := f.rooms[f.used/blockEntities], f.used%blockEntities
	f.used++
	e := &room.entities[i]
	e.series = room.series[i*f.fields : (i+1)*f.fields : (i+1)*f.fields]
	return e
}

// reset makes f as it was when it had found nothing.
func (f *finder) reset() {
	for i := 0; i < f.used; i += blockEntities {
		clear(f.rooms[i/blockEntities].entities)
		clear(f.rooms[i/blockEntities].series)
	}
	clear(f.all)
	clear(f.labels)
	clear(f.byHash)
	clear(f.same)
	f.all, f.used, f.before = f.all[:0], 0, 0
	f.labels = append(f.labels[:0], sameLabels{}) // those before the first
}

func (f *finder) add(r *FieldResult) {
	e, address := f.find(r)
	if r.Points[0].Time.Before(e.first) {
		e.first = r.Points[0].Time
	}
	last := r.Points[len(r.Points)-1].Time
	if e.labels != nil && addressOf(e.labels) == address {
		if last.After(e.last) {
			e.last = last
		}
	} else {
		e.name(r.Labels, last)
	}
	points := &e.series[r.Field.index()]
	*points = join(*points, r.Points)
}

// name gives an entity the labels of some of its series, which were seen last at this time, where they say more than
// those that it has.
func (e *entity) name(labels map[string]string, last time.Time) {
	late := lateLabelsOf(labels)
	if last.After(e.last) || last.Equal(e.last) && (late > e.late || late == e.late && newer(labels, e.labels)) {
		e.last, e.labels, e.late = last, labels, late
	}
}

// take adds entities that were found in later series.
func (f *finder) take(later []*entity) {
	for _, e := range later {
		known := f.known(e.identity, e.hash)
		if known == nil {
			f.insert(e)
			continue
		}
		if e.first.Before(known.first) {
			known.first = e.first
		}
		known.name(e.labels, e.last)
		for i, points := range e.series {
			if len(points) > 0 {
				known.series[i] = join(known.series[i], points)
			}
		}
	}
}

func lateLabelsOf(l map[string]string) (n int) {
	for _, name := range lateLabels {
		if l[name] != "" {
			n++
		}
	}
	return n
}

// newer decides which of two label sets of one entity to show when both were seen last and say as
// much. A name that is known replaces the short id.
func newer(a, b map[string]string) bool {
	placeholder := func(l map[string]string) int {
		n := 0
		for _, end := range [][2]string{{"name", "id"}, {"client", "client_id"}, {"server", "server_id"}} {
			if l[end[0]] != "" && strings.HasPrefix(l[end[1]], l[end[0]]) && l[end[0]] != l[end[1]] {
				n++
			}
		}
		return n
	}
	return cmp.Or(cmp.Compare(placeholder(b), placeholder(a)), cmp.Compare(a["name"], b["name"]),
		cmp.Compare(a["client"]+a["server"], b["client"]+b["server"])) > 0
}

// join merges the points of one counter that was renamed; where both have one at a time, the
// greater is the one that went on.
func join(a, b []model.Point) []model.Point {
	if len(a) == 0 {
		return b
	}
	if a[len(a)-1].Time.Before(b[0].Time) {
		return slices.Concat(a, b)
	}
	byTime := map[int64]model.Point{}
	for _, p := range slices.Concat(a, b) {
		have, ok := byTime[p.Time.UnixNano()]
		if !ok || p.Value > have.Value || p.Histogram != nil &&
			(have.Histogram == nil || p.Histogram.Count > have.Histogram.Count) {
			byTime[p.Time.UnixNano()] = p
		}
	}
	joined := make([]model.Point, 0, len(byTime))
	for _, p := range byTime {
		joined = append(joined, p)
	}
	slices.SortFunc(joined, func(x, y model.Point) int { return x.Time.Compare(y.Time) })
	return joined
}
