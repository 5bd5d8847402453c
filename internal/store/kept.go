package store

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"maps"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/value"

	"outsight/internal/model"
)

// KeptRecent is the Moments.Recent for which values are kept.
const KeptRecent = 10 * time.Second

const keptRecent = int64(KeptRecent / time.Millisecond)

// keptLevel says how far apart kept moments are that are no longer past than this, both in ms.
type keptLevel struct{ step, past int64 }

// keptLevels are in ascending order. A step is a divisor of those after it: a moment of a coarse level is one of all finer ones, too.
var keptLevels = [...]keptLevel{{2_000, 40_000}, {10_000, 6 * 60_000}, {60_000, 18 * 60_000}, {300_000, 70 * 60_000}}

// keptMargin is how much of a level, in ms, is not promised: it may pass while a request waits for its turn.
const keptMargin = 10_000

// keptPast is how long a moment is kept at most, in ms.
var keptPast = keptLevels[len(keptLevels)-1].past

// isKept is whether the moment at is still kept at the time now, both in ms.
func isKept(at, now int64) bool {
	for _, l := range keptLevels {
		if at%l.step == 0 && now-at <= l.past {
			return true
		}
	}
	return false
}

// keeper keeps the values that the series of a large store had at some moments of the last while, the values of one moment side by side:
// so a map of very many edges is read out of arrays, where a query would have to find each series and to decompress its chunk. Sources
// are kept each by itself and in its own time. What cannot be kept exactly (samples out of order, or in parts) makes since later, and the
// moments before that are read as ever.
//
// One appends at a time, any number may read meanwhile.
type keeper struct {
	// from is the number of live series from which on values are kept.
	from int
	// since is the moment, in ms, before which not all is known; newest the newest sample that was kept.
	since, newest atomic.Int64
	// on is whether values are kept. Who appends uses it alone.
	on bool

	// mu guards what follows.
	mu      sync.Mutex
	sources map[string]*keptSource
	names   map[string]int32
	// parts are the newest samples, in ms, that came in parts, by name. They are not kept.
	parts map[string]int64
	// readers are those of earlier requests, with their memory.
	readers sync.Pool
}

func newKeeper(from int) *keeper {
	k := &keeper{from: from, sources: map[string]*keptSource{}, names: map[string]int32{}, parts: map[string]int64{}}
	k.since.Store(noSample)
	k.newest.Store(noSample)
	return k
}

// begin starts to keep values where there are enough series. newest is that of all stored samples: what was stored before is not known.
func (k *keeper) begin(series int, newest func() int64) {
	if !k.on && series >= k.from {
		k.on = true
		k.doubt(newest())
	}
}

// doubt says that a sample of the time at is not kept.
func (k *keeper) doubt(at int64) {
	if at != noSample {
		k.since.Store(max(k.since.Load(), at+keptRecent))
	}
}

// source is that of a key, which says for which host of which tenant it is.
func (k *keeper) source(tenant, key string) *keptSource {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.sources[key]
	if s == nil {
		s = &keptSource{keeper: k, tenant: tenant, byLabels: map[string]*keptThing{}}
		k.sources[key] = s
	}
	return s
}

// name is the number of a name.
func (k *keeper) name(name string) int32 {
	k.mu.Lock()
	defer k.mu.Unlock()
	n, ok := k.names[name]
	if !ok {
		n = int32(len(k.names))
		k.names[name] = n
		if at, ok := k.parts[name]; ok {
			k.doubt(at)
		}
	}
	return n
}

// maxPartNames bounds the names that are known to come in parts.
const maxPartNames = 10_000

// part says that a sample came in parts. It is not kept; where others of its name are, these are not all.
func (k *keeper) part(name string, at int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	before, known := k.parts[name]
	if _, kept := k.names[name]; kept || !known && len(k.parts) == maxPartNames {
		k.doubt(at)
		return
	}
	if !known || at > before {
		k.parts[name] = at
	}
}

// knows is whether all that m asks for is kept, where a source does not say otherwise.
func (k *keeper) knows(m *Moments) bool {
	first := m.Times[0].UnixMilli()
	if m.Recent != KeptRecent || k.newest.Load() == noSample || first < k.since.Load() {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return !slices.ContainsFunc(m.Names, func(name string) bool {
		at, ok := k.parts[name]
		return ok && at+keptRecent > first
	})
}

// forget lets go of sources that have been silent for so long that their values are all past. One that is far behind is not silent.
func (k *keeper) forget(now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for key, s := range k.sources {
		if s.begun && now.Sub(s.came).Milliseconds() > 2*keptPast {
			delete(k.sources, key)
		}
	}
}

// near is the newest kept moment at or before t, no more than most before it; false where there is none.
func (k *keeper) near(t time.Time, most time.Duration) (time.Time, bool) {
	now, asked := k.newest.Load(), t.UnixMilli()
	if now == noSample {
		return t, false
	}
	for _, l := range keptLevels {
		at := asked - asked%l.step
		if asked-at <= most.Milliseconds() && now-at <= l.past-keptMargin && at >= k.since.Load() {
			return time.UnixMilli(at), true
		}
	}
	return t, false
}

// moments are how many there are of the source with the most.
func (k *keeper) moments() (most int) {
	for _, s := range k.of("") {
		s.mu.Lock()
		most = max(most, len(s.columns))
		s.mu.Unlock()
	}
	return most
}

// keptSource are the kept values of one source.
type keptSource struct {
	keeper *keeper
	tenant string

	// mu guards what follows, but for what is of who appends.
	mu       sync.Mutex
	things   []*keptThing
	byLabels map[string]*keptThing
	// key is room for the bytes of labels.
	key []byte
	// numbers and histograms are by the slots of series.
	numbers    keptSlots[float64]
	histograms keptSlots[*histogram.Histogram]
	// first and last are the times, in ms, of the oldest and the newest kept sample; came is when that came, by this host's clock.
	begun       bool
	first, last int64
	came        time.Time
	columns     []keptColumn // in the order of their times
	// ended are series that went on no more, in that order, for as long as a column may have their values.
	ended []endedSeries

	// batch is what was appended since settle, of who appends.
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
	case h != nil && !canKeep(h), h == nil && value.IsStaleNaN(v), e.thing != nil && e.place.isHistogram != (h != nil):
		s.keeper.doubt(at)
		return
	}
	if e.thing == nil {
		s.find(e, h != nil)
		if start != 0 && start < at {
			s.batch.begun = append(s.batch.begun, begunSeries{e.place, start})
		}
	}
	if at < s.last {
		s.keeper.doubt(at)
	}
	slot := e.place.slot
	if h != nil {
		if at <= s.histograms.now[slot].at {
			return
		}
		s.histograms.next[slot] = keptSample[*histogram.Histogram]{at, h}
	} else {
		if at <= s.numbers.now[slot].at {
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
	kind, key := "", s.key[:0]
	for _, l := range e.labels {
		switch {
		case l.Name == model.TypeLabel:
			kind = l.Value
		case l.Value != "":
			key = append(append(append(append(key, l.Name...), 0xff), l.Value...), 0xff)
		}
	}
	s.key = key
	th := s.byLabels[string(key)]
	if th == nil {
		th = &keptThing{key: string(key), labels: make(map[string]string, len(e.labels)), place: len(s.things)}
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
	for i := range th.rows {
		row := &th.rows[i]
		if row.name != name || row.kind != kind {
			continue
		}
		if row.isHistogram == isHistogram {
			row.entries, e.place = row.entries+1, row.keptPlace
			return
		}
		s.keeper.doubt(e.last)
	}
	e.place.isHistogram = isHistogram
	if isHistogram {
		e.place.slot = s.histograms.add()
	} else {
		e.place.slot = s.numbers.add()
	}
	th.rows = append(th.rows, keptRow{kind: kind, name: name, keptPlace: e.place, entries: 1})
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
func (s *keptSource) settle(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.came = now
	if s.batch.samples == 0 {
		return
	}
	least, newest := s.batch.least, s.batch.newest
	if !s.begun {
		s.begun, s.first, s.last = true, least, newest
	}
	made := s.advance(least, newest)
	s.numbers.settle()
	s.histograms.settle()
	s.batch.samples, s.batch.begun = 0, s.batch.begun[:0]
	s.last = max(s.last, newest)
	if before := s.keeper.newest.Load(); newest > before {
		s.keeper.newest.Store(newest)
		if before/keptPast != newest/keptPast {
			defer s.keeper.forget(now)
		}
	}
	if made {
		s.free()
	}
}

// advance makes columns of the moments that the batch goes past, and lets go of those that are too old.
func (s *keptSource) advance(least, newest int64) (made bool) {
	step := keptLevels[0].step
	begin := max(s.last, newest-keptPast)
	for at := begin + (step-begin%step)%step; at < newest; at += step {
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

// keptColumn are the values of a source at one moment, in blocks, which moments share between which nothing has changed.
type keptColumn struct {
	at         int64 // ms
	numbers    []*numberBlock
	histograms []*histogramBlock
}

const blockNumbers, blockHistograms = 256, 64

// numberBlock has a staleness marker where there is none.
type numberBlock [blockNumbers]float64

// histogramBlock has encoded histograms one after the other, and where each of them ends; of none there is nothing.
type histogramBlock struct {
	bytes []byte
	ends  [blockHistograms]uint32
}

// column are the newest values at the moment at.
func (s *keptSource) column(at int64) keptColumn {
	c := keptColumn{at: at}
	var before keptColumn
	if n := len(s.columns); n > 0 {
		before = s.columns[n-1]
	}
	none := math.Float64frombits(value.StaleNaN)
	var numbers numberBlock
	for from := 0; from < len(s.numbers.now); from += blockNumbers {
		part := s.numbers.now[from:min(from+blockNumbers, len(s.numbers.now))]
		for i := range part {
			numbers[i] = part[i].value
			if part[i].at <= at-keptRecent {
				numbers[i] = none
			}
		}
		for i := len(part); i < blockNumbers; i++ {
			numbers[i] = none
		}
		block := blockAt(before.numbers, len(c.numbers))
		if block == nil || !slices.EqualFunc(block[:], numbers[:], func(a, b float64) bool { return math.Float64bits(a) == math.Float64bits(b) }) {
			made := numbers
			block = &made
		}
		c.numbers = append(c.numbers, block)
	}
	var room []byte
	for from := 0; from < len(s.histograms.now); from += blockHistograms {
		part := s.histograms.now[from:min(from+blockHistograms, len(s.histograms.now))]
		made := histogramBlock{bytes: room[:0]}
		for i := range made.ends {
			if i < len(part) && part[i].at > at-keptRecent {
				made.bytes = encodeKept(made.bytes, part[i].value)
			}
			made.ends[i] = uint32(len(made.bytes))
		}
		room = made.bytes
		block := blockAt(before.histograms, len(c.histograms))
		if block == nil || block.ends != made.ends || !bytes.Equal(block.bytes, made.bytes) {
			made.bytes = bytes.Clone(made.bytes)
			block = &made
		}
		c.histograms = append(c.histograms, block)
	}
	return c
}

func blockAt[B any](blocks []*B, i int) *B {
	if i < len(blocks) {
		return blocks[i]
	}
	return nil
}

// encodeKept encodes h: its count, that of zeros, its sum, and if it has some the buckets: the first one, how many, and the count of each;
// after one that is empty, how many of those after it are, too.
func encodeKept(b []byte, h *histogram.Histogram) []byte {
	b = binary.AppendUvarint(b, h.Count)
	b = binary.AppendUvarint(b, h.ZeroCount)
	b = binary.LittleEndian.AppendUint64(b, math.Float64bits(h.Sum))
	first, width := extentOf(h)
	if width == 0 {
		return b
	}
	b = binary.AppendVarint(b, int64(first))
	b = binary.AppendUvarint(b, uint64(width))
	next := 0
	eachCount(h, func(i int32, count uint64) {
		if empty := int(i-first) - next; empty > 0 {
			b = binary.AppendUvarint(append(b, 0), uint64(empty-1))
		}
		b = binary.AppendUvarint(b, count)
		next = int(i-first) + 1
	})
	return b
}

// extentOf is the first bucket of h that is not empty, and how many there are up to the last such.
func extentOf(h *histogram.Histogram) (first int32, width int) {
	last := first - 1
	eachCount(h, func(i int32, _ uint64) {
		if last < first {
			first = i
		}
		last = i
	})
	return first, int(last-first) + 1
}

// eachCount calls f for each bucket of h that is not empty, in ascending order.
func eachCount(h *histogram.Histogram, f func(i int32, count uint64)) {
	i, count, rest := int32(0), int64(0), h.PositiveBuckets
	for _, span := range h.PositiveSpans {
		i += span.Offset
		for _, delta := range rest[:span.Length] {
			if count += delta; count != 0 {
				f(i, uint64(count))
			}
			i++
		}
		rest = rest[span.Length:]
	}
}

// keptView are the values of a source at one moment: of a column, or the newest.
type keptView struct {
	at     int64
	source *keptSource
	column *keptColumn
	// newest is whether nothing has come since.
	newest bool
}

// view is what the source had at a moment; false where that is not kept.
func (s *keptSource) view(at int64) (keptView, bool) {
	v := keptView{at: at, source: s}
	if v.newest = s.last <= at; v.newest {
		return v, true
	}
	if i, ok := slices.BinarySearchFunc(s.columns, at, func(c keptColumn, at int64) int { return cmp.Compare(c.at, at) }); ok {
		v.column = &s.columns[i]
	}
	return v, v.column != nil || at < s.first
}

// number is the value of a slot, false where there was none.
func (v *keptView) number(slot int32) (float64, bool) {
	switch {
	case v.newest:
		now := &v.source.numbers.now[slot]
		return now.value, now.at > v.at-keptRecent && now.at <= v.at
	case v.column == nil || int(slot)/blockNumbers >= len(v.column.numbers):
		return 0, false
	}
	n := v.column.numbers[slot/blockNumbers][slot%blockNumbers]
	return n, !value.IsStaleNaN(n)
}

// histogram is that of a slot, as it is or encoded; neither where there was none.
func (v *keptView) histogram(slot int32) (h *histogram.Histogram, encoded []byte) {
	switch {
	case v.newest:
		if now := &v.source.histograms.now[slot]; now.at > v.at-keptRecent && now.at <= v.at {
			return now.value, nil
		}
		return nil, nil
	case v.column == nil || int(slot)/blockHistograms >= len(v.column.histograms):
		return nil, nil
	}
	block, i, from := v.column.histograms[slot/blockHistograms], slot%blockHistograms, uint32(0)
	if i > 0 {
		from = block.ends[i-1]
	}
	return nil, block.bytes[from:block.ends[i]]
}

// keptReader reads kept values. What it has read lasts until it is used again.
type keptReader struct {
	// wanted is by the number of a name whether its series are read, sparse whether those are left out that were zero.
	wanted, sparse []bool
	names          []string
	times          []time.Time
	budget         readBudget
	views          []keptView
	// found are the results of a source so far, now the points of a series.
	found      []model.NamedResult
	now        []model.Point
	results    arena[model.NamedResult]
	points     arena[model.Point]
	histograms arena[model.FloatHistogram]
	buckets    arena[float64]
}

// arena is memory that is given away in parts and taken back all at once.
type arena[T any] struct {
	chunks [][]T
	// used is how many chunks are full.
	used int
}

// arenaChunk is how many there are in a chunk, where no more are asked for at once.
const arenaChunk = 1 << 12

// take gives away n, which are as their last user left them.
func (a *arena[T]) take(n int) []T {
	for ; a.used < len(a.chunks); a.used++ {
		c := &a.chunks[a.used]
		if from := len(*c); cap(*c)-from >= n {
			*c = (*c)[:from+n]
			return (*c)[from : from+n : from+n]
		}
	}
	a.chunks = append(a.chunks, make([]T, n, max(n, arenaChunk)))
	return a.chunks[a.used][:n:n]
}

// reset takes all back.
func (a *arena[T]) reset() {
	for i := range a.chunks {
		a.chunks[i] = a.chunks[i][:0]
	}
	a.used = 0
}

// begin makes it read what m asks for.
func (r *keptReader) begin(k *keeper, m *Moments, budget readBudget) {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := len(k.names)
	r.wanted, r.sparse, r.names = make([]bool, n), make([]bool, n), make([]string, n)
	r.times, r.budget, r.views = m.Times, budget, make([]keptView, len(m.Times))
	for _, name := range m.Names {
		if n, ok := k.names[name]; ok {
			r.wanted[n], r.names[n] = true, name
		}
	}
	for _, name := range m.Sparse {
		if n, ok := k.names[name]; ok {
			r.sparse[n] = true
		}
	}
	r.results.reset()
	r.points.reset()
	r.histograms.reset()
	r.buckets.reset()
}

// of are the sources of a tenant, or all, always in the same order.
func (k *keeper) of(tenant string) (all []*keptSource) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(k.sources)) {
		if s := k.sources[key]; tenant == "" || s.tenant == tenant {
			all = append(all, s)
		}
	}
	return all
}

// last is Store.Last out of what is kept; false where that is not all.
func (k *keeper) last(m *Moments, budget func() readBudget) (*Values, bool, error) {
	if !k.knows(m) {
		return nil, false, nil
	}
	sources := k.of(m.Tenant)
	results, missing := make([][]model.NamedResult, len(sources)), atomic.Bool{}
	var next atomic.Int64
	readers := make([]*keptReader, max(1, min(runtime.GOMAXPROCS(0), len(sources))))
	values := &Values{Blocks: results, release: func() {
		for _, r := range readers {
			k.readers.Put(r)
		}
	}}
	read := func(r *keptReader) {
		for !missing.Load() && r.budget.inTime() {
			i := int(next.Add(1)) - 1
			if i >= len(sources) {
				return
			}
			var ok bool
			if results[i], ok = r.read(sources[i]); !ok {
				missing.Store(true)
			}
		}
	}
	var others sync.WaitGroup
	for i := range readers {
		readers[i], _ = k.readers.Get().(*keptReader)
		if readers[i] == nil {
			readers[i] = &keptReader{}
		}
		readers[i].begin(k, m, budget())
		if i > 0 {
			others.Go(func() { read(readers[i]) })
		}
	}
	read(readers[0])
	others.Wait()
	for _, r := range readers {
		if r.budget.err != nil {
			values.Release()
			return nil, false, r.budget.err
		}
	}
	// A sample may have come meanwhile that is not kept.
	if missing.Load() || !k.knows(m) {
		values.Release()
		return nil, false, nil
	}
	return values, true, nil
}

// read are the values of a source; false where not all are kept. The series of a thing come one after the other.
func (r *keptReader) read(s *keptSource) (results []model.NamedResult, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, t := range r.times {
		if r.views[i], known = s.view(t.UnixMilli()); !known {
			return nil, false
		}
	}
	r.found = r.found[:0]
	for _, th := range s.things {
		for i := range th.rows {
			row := &th.rows[i]
			if n := int(row.name); n >= len(r.wanted) || !r.wanted[n] {
				continue
			}
			read := r.numbers
			if row.isHistogram {
				read = r.distributions
			}
			r.now = r.now[:0]
			if zero := read(row); len(r.now) == 0 || zero && r.sparse[row.name] {
				continue
			}
			points := r.points.take(len(r.now))
			copy(points, r.now)
			r.found = append(r.found, model.NamedResult{Name: r.names[row.name], Type: row.kind, QueryResult: model.QueryResult{Labels: th.labels, Points: points}})
			if !r.budget.take((resultBytes + len(points)*pointBytes) / sampleBytes) {
				return nil, true
			}
		}
	}
	results = r.results.take(len(r.found))
	copy(results, r.found)
	return results, true
}

// numbers puts the values of a series into the points; zero is whether all are.
func (r *keptReader) numbers(row *keptRow) (zero bool) {
	zero = true
	for i := range r.views {
		if v, ok := r.views[i].number(row.slot); ok {
			r.now = append(r.now, model.Point{Time: r.times[i], Value: v})
			zero = zero && v == 0
		}
	}
	return zero
}

// distributions is numbers for a series of histograms.
func (r *keptReader) distributions(row *keptRow) (zero bool) {
	zero = true
	for i := range r.views {
		h, encoded := r.views[i].histogram(row.slot)
		p := model.Point{Time: r.times[i]}
		switch {
		case h != nil:
			p.Histogram = r.native(h)
		case len(encoded) > 0:
			p.Histogram = r.decode(encoded)
		default:
			continue
		}
		r.now = append(r.now, p)
		zero = zero && p.Histogram.Count == 0
	}
	return zero
}

// histogram is a new one with so many buckets from first on, all of which are empty.
func (r *keptReader) histogram(count, zeros uint64, sum float64, first int32, width int) *model.FloatHistogram {
	h := &r.histograms.take(1)[0]
	*h = model.FloatHistogram{Count: float64(count), ZeroCount: float64(zeros), Sum: sum}
	if width > 0 {
		h.Offset, h.Buckets = first, r.buckets.take(width)
		clear(h.Buckets)
	}
	r.budget.take(resultBytes/sampleBytes + width/2)
	return h
}

func (r *keptReader) native(from *histogram.Histogram) *model.FloatHistogram {
	first, width := extentOf(from)
	h := r.histogram(from.Count, from.ZeroCount, from.Sum, first, width)
	eachCount(from, func(i int32, count uint64) { h.Buckets[i-first] = float64(count) })
	return h
}

// decode is what encodeKept has encoded.
func (r *keptReader) decode(b []byte) *model.FloatHistogram {
	count, n := binary.Uvarint(b)
	b = b[n:]
	zeros, n := binary.Uvarint(b)
	b = b[n:]
	sum := math.Float64frombits(binary.LittleEndian.Uint64(b))
	if b = b[8:]; len(b) == 0 {
		return r.histogram(count, zeros, sum, 0, 0)
	}
	first, n := binary.Varint(b)
	b = b[n:]
	width, n := binary.Uvarint(b)
	b = b[n:]
	h := r.histogram(count, zeros, sum, int32(first), int(width))
	for i := 0; i < len(h.Buckets); i++ {
		count, n := binary.Uvarint(b)
		b = b[n:]
		if count == 0 {
			empty, n := binary.Uvarint(b)
			b = b[n:]
			i += int(empty)
			continue
		}
		h.Buckets[i] = float64(count)
	}
	return h
}
