package store

import (
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"

	"outsight/internal/model"
)

// keptSource are the kept values of one source.
type keptSource struct {
	keeper      *keeper
	tenant, key string

	// mu guards what follows, but for what is of who appends.
	mu       sync.Mutex
	things   []*keptThing
	byLabels map[string]*keptThing
	// room is for the bytes of labels.
	room []byte
	// numbers and histograms are by the slots of series.
	numbers    keptSlots[float64]
	histograms keptSlots[*histogram.Histogram]
	// first and last are the times, in ms, of the oldest and the newest kept sample.
	begun       bool
	first, last int64
	columns     []keptColumn // in the order of their times
	// ended are series that went on no more, in that order, for as long as a column may have their values.
	ended []endedSeries

	// What follows is of who appends: came is when its last batch came, by this host's clock, and forgotten whether the
	// keeper has let go of it, which makes it of no use.
	came      time.Time
	forgotten bool
	// batch is what was appended since settle.
	batch struct {
		samples, least, newest int64
		begun                  []begunSeries
	}
}

// keptThing are series that share their labels.
type keptThing struct {
	key    string
	labels map[string]string // without name and type
	rows   []keptRow
	place  int // in things
}

// keptRow is a series.
type keptRow struct {
	kind string // its label "type"
	name int32
	keptPlace
	// entries are how many have it: two where one says that a label is empty, and the other nothing of it.
	entries int32
	// ended is the time of the last sample, in ms, where no entry has it any more.
	ended int64
}

// keptPlace is where the values of a series are: in a slot of the histograms or of the numbers.
type keptPlace struct {
	slot        int32
	isHistogram bool
}

// row is that of a place; -1 where there is none any more.
func (th *keptThing) row(at keptPlace) int {
	return slices.IndexFunc(th.rows, func(r keptRow) bool { return r.keptPlace == at })
}

// endedSeries is a series that went on no more.
type endedSeries struct {
	thing *keptThing
	place keptPlace
	at    int64 // its last sample, in ms
}

// begunSeries is a series that was zero at a time, in ms, before its first sample.
type begunSeries struct {
	place keptPlace
	at    int64
}

// keptSlots are the newest samples, and those of the batch that is appended.
type keptSlots[V any] struct {
	now, next []keptSample[V]
	free      []int32
}

// keptSample is a value and its time in ms.
type keptSample[V any] struct {
	at    int64
	value V
}

// noSample is the time of none.
const noSample = math.MinInt64

func (s *keptSlots[V]) add() int32 {
	none := keptSample[V]{at: noSample}
	if n := len(s.free); n > 0 {
		slot := s.free[n-1]
		s.free, s.now[slot], s.next[slot] = s.free[:n-1], none, none
		return slot
	}
	s.now, s.next = append(s.now, none), append(s.next, none)
	return int32(len(s.now) - 1)
}

func (s *keptSlots[V]) settle() {
	for i := range s.next {
		if n := &s.next[i]; n.at != noSample {
			s.now[i] = *n
			*n = keptSample[V]{at: noSample}
		}
	}
}

func (s *keptSlots[V]) undo() {
	for i := range s.next {
		s.next[i] = keptSample[V]{at: noSample}
	}
}

// take keeps a sample, from settle on. start is the time of a zero before it, or 0.
func (s *keptSource) take(e *entry, start, at int64, v float64, h *histogram.Histogram) {
	switch {
	case h != nil && !canKeep(h), h == nil && value.IsStaleNaN(v):
		s.keeper.doubt(at)
		return
	case e.thing != nil && e.place.isHistogram != (h != nil): // it is of another kind from now on
		s.end(e)
	}
	if e.thing == nil {
		s.find(e, h != nil)
		if start != 0 && start < at {
			s.batch.begun = append(s.batch.begun, begunSeries{e.place, start})
			if from, ok := s.keeper.zeroFrom(); !ok || start < from || start <= s.last {
				s.keeper.doubt(start) // the store may have refused it, or have another sample of that time
			}
		}
	}
	if at < s.last {
		s.keeper.doubt(at)
	}
	slot := e.place.slot
	if h != nil {
		if !s.isNew(at, s.histograms.now[slot].at, s.histograms.next[slot].at) {
			return
		}
		s.histograms.next[slot] = keptSample[*histogram.Histogram]{at, h}
	} else {
		if !s.isNew(at, s.numbers.now[slot].at, s.numbers.next[slot].at) {
			return
		}
		s.numbers.next[slot] = keptSample[float64]{at, v}
	}
	b := &s.batch
	if b.samples++; b.samples == 1 {
		b.least, b.newest = at, at
	}
	b.least, b.newest = min(b.least, at), max(b.newest, at)
}

// isNew is whether a sample of the time at is newer than that which is kept and that of the batch before it.
func (s *keptSource) isNew(at, now, next int64) bool {
	if next != noSample && at <= next {
		s.keeper.doubt(next) // there are two in the batch, of which the store has chosen
		return false
	}
	return at > now
}

// canKeep is whether fromNative takes h as it is.
func canKeep(h *histogram.Histogram) bool {
	width := uint64(0)
	for i, span := range h.PositiveSpans {
		if width += uint64(span.Length); i > 0 {
			width += uint64(span.Offset)
		}
	}
	return h.Schema == model.Scale && len(h.NegativeBuckets) == 0 && !value.IsStaleNaN(h.Sum) && width <= maxBuckets
}

// find gives a series its place, a new one where it never had one.
func (s *keptSource) find(e *entry, isHistogram bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kind := strings.Clone(e.stored.Get(model.TypeLabel))
	s.room = appendLabels(s.room[:0], e.stored)
	th := s.byLabels[string(s.room)]
	if th == nil {
		th = &keptThing{key: string(s.room), labels: make(map[string]string, len(e.labels)), place: len(s.things)}
		for _, l := range e.labels {
			if l.Name != model.TypeLabel && l.Value != "" {
				th.labels[l.Name] = l.Value
			}
		}
		s.byLabels[th.key] = th
		s.things = append(s.things, th)
	}
	name := s.keeper.name(e.name)
	e.thing = th
	known := false
	for i := range th.rows {
		row := &th.rows[i]
		if row.name != name || row.kind != kind {
			continue
		}
		if row.isHistogram == isHistogram {
			row.entries, e.place, known = row.entries+1, row.keptPlace, true
		} else {
			s.keeper.doubt(e.last)
		}
	}
	if known {
		return
	}
	e.place.isHistogram = isHistogram
	if isHistogram {
		e.place.slot = s.histograms.add()
	} else {
		e.place.slot = s.numbers.add()
	}
	th.rows = append(th.rows, keptRow{kind: kind, name: name, keptPlace: e.place, entries: 1})
}

// appendLabels encodes labels without name and type.
func appendLabels(b []byte, of labels.Labels) []byte {
	of.Range(func(l labels.Label) {
		if l.Name != nameLabel && l.Name != model.TypeLabel {
			b = appendString(appendString(b, l.Name), l.Value)
		}
	})
	return b
}

// end says that a series goes on no more.
func (s *keptSource) end(e *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	row := &e.thing.rows[e.thing.row(e.place)]
	if row.entries--; row.entries == 0 {
		row.ended = e.last
		s.ended = append(s.ended, endedSeries{e.thing, e.place, e.last})
	}
	e.thing = nil
}

// undo forgets the batch, which was not stored, or not whole.
func (s *keptSource) undo() {
	s.numbers.undo()
	s.histograms.undo()
	if s.batch.samples > 0 {
		s.keeper.doubt(s.batch.newest)
	}
	s.batch.samples, s.batch.begun = 0, s.batch.begun[:0]
}

// settle takes over the batch: it was stored.
func (s *keptSource) settle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.batch.samples == 0 {
		return
	}
	least, newest := s.batch.least, s.batch.newest
	if !s.begun {
		s.begun, s.first, s.last = true, least, newest
		for _, b := range s.batch.begun {
			s.first = min(s.first, b.at)
		}
	}
	made := s.advance(least, newest)
	s.numbers.settle()
	s.histograms.settle()
	s.batch.samples, s.batch.begun = 0, s.batch.begun[:0]
	s.last = max(s.last, newest)
	if before := s.keeper.newest.Load(); newest > before {
		s.keeper.newest.Store(newest)
	}
	if made {
		s.free()
	}
}

// advance makes columns of the moments that the batch goes past, and lets go of those that are too old.
func (s *keptSource) advance(least, newest int64) (made bool) {
	step := keptLevels[0].step
	for at := momentFrom(max(s.last, newest-keptPast), step); at < newest; at += step {
		if !isKept(at, newest) {
			continue
		}
		if least <= at {
			s.keeper.doubt(least) // it may have been the newest one then
		}
		for _, b := range s.batch.begun {
			s.zero(b, at)
		}
		s.columns, made = append(s.columns, s.column(at)), true
	}
	if made {
		s.columns = slices.DeleteFunc(s.columns, func(c keptColumn) bool { return !isKept(c.at, newest) })
	}
	return made
}

// zero puts the zero of a series into its place if it was one until then.
func (s *keptSource) zero(b begunSeries, until int64) {
	if b.at > until {
		return
	}
	if !b.place.isHistogram {
		if now := &s.numbers.now[b.place.slot]; b.at > now.at {
			*now = keptSample[float64]{at: b.at}
		}
	} else if now := &s.histograms.now[b.place.slot]; b.at > now.at {
		*now = keptSample[*histogram.Histogram]{b.at, &histogram.Histogram{Schema: model.Scale}}
	}
}

// free lets go of the series that have ended before all that is kept.
func (s *keptSource) free() {
	n := 0
	for ; n < len(s.ended) && s.ended[n].at+keptRecent <= s.columns[0].at; n++ {
		th, p := s.ended[n].thing, s.ended[n].place
		row := th.row(p)
		if row < 0 || th.rows[row].entries > 0 || th.rows[row].ended != s.ended[n].at {
			continue // it came again, and may have ended later
		}
		if p.isHistogram {
			s.histograms.free = append(s.histograms.free, p.slot)
		} else {
			s.numbers.free = append(s.numbers.free, p.slot)
		}
		if th.rows = slices.Delete(th.rows, row, row+1); len(th.rows) == 0 {
			delete(s.byLabels, th.key)
			last := len(s.things) - 1
			s.things[th.place] = s.things[last]
			s.things[th.place].place = th.place
			s.things[last] = nil
			s.things = s.things[:last]
		}
	}
	s.ended = slices.Delete(s.ended, 0, n)
}
