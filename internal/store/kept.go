package store

import (
	"cmp"
	"errors"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"outsight/internal/model"
)

// KeptRecent is the Moments.Recent for which values are kept.
const KeptRecent = 10 * time.Second

const keptRecent = int64(KeptRecent / time.Millisecond)

// keptLevel says how far apart kept moments are that are no longer past than this, both in ms.
type keptLevel struct{ step, past int64 }

// keptLevels are in ascending order. A step is a divisor of those after it: a moment of a coarse level is one of all
// finer ones, too.
var keptLevels = [...]keptLevel{{2_000, 40_000}, {10_000, 6 * 60_000}, {60_000, 18 * 60_000}}

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

// momentFrom is the first moment at or after t of those that are so far apart, all in ms.
func momentFrom(t, step int64) int64 { return t + (step-t%step)%step }

// keeper keeps the values that the series of a large store had at some moments, the values of one moment side by side:
// so a map of very many edges is read out of arrays, where a query would have to find each series and to decompress its
// chunk. Moments of the last while are in memory, where sources are kept each by itself and in its own time; those of
// each minute in files. What cannot be kept exactly (samples out of order, or in parts) makes since later, and the
// moments before that which have no file are read as ever.
//
// One appends at a time, any number may read meanwhile.
type keeper struct {
	// from is the number of live series from which on values are kept.
	from int
	// since is the moment, in ms, before which not all is known; newest the newest sample that was kept.
	since, newest atomic.Int64
	// on is whether values are kept, and looked the period in which forget last looked. Who appends uses both alone.
	on     bool
	looked int64
	// files are of moments of long ago.
	files *momentFiles
	// zeroFrom is the time, in ms, from which on the store takes a zero before the first sample of a series; false
	// where it is not known.
	zeroFrom func() (int64, bool)

	// mu guards what follows.
	mu      sync.Mutex
	sources map[string]*keptSource
	names   map[string]int32
	texts   []string // of names, by number
	// parts are the newest samples, in ms, that came in parts, by name. They are not kept.
	parts map[string]int64
	// readers are those of earlier requests, with their memory.
	readers sync.Pool
}

func newKeeper(from int, files *momentFiles) *keeper {
	k := &keeper{from: from, files: files, sources: map[string]*keptSource{}, names: map[string]int32{},
		parts: map[string]int64{}}
	k.since.Store(noSample)
	k.newest.Store(noSample)
	return k
}

// begin starts to keep values where there are enough series. newest is that of all stored samples: what was stored
// before is not known.
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

// came is that a sample, and a zero before it where start is not 0, are about to be stored, both in ms.
func (k *keeper) came(start, at int64) {
	k.files.came(at)
	if start != 0 {
		k.files.came(start)
	}
}

// source is that of a key, which says for which host of which tenant it is.
func (k *keeper) source(tenant, key string, now time.Time) *keptSource {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.sources[key]
	if s == nil {
		s = &keptSource{keeper: k, tenant: tenant, key: key, came: now, byLabels: map[string]*keptThing{}}
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
		k.names[name], k.texts = n, append(k.texts, name)
		if at, ok := k.parts[name]; ok {
			k.doubt(at)
		}
	}
	return n
}

// nameTexts are the names by their numbers.
func (k *keeper) nameTexts() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.texts
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

// knowsAt is knows for one moment, in ms.
func (k *keeper) knowsAt(at int64, m *Moments) bool {
	return k.knows(&Moments{Names: m.Names, Times: []time.Time{time.UnixMilli(at)}, Recent: m.Recent})
}

// forget lets go of sources that have been silent for so long that their values are all past. One that is far behind is
// not silent.
func (k *keeper) forget(now time.Time) {
	if period := k.newest.Load() / keptPast; period == k.looked {
		return
	} else {
		k.looked = period
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for key, s := range k.sources {
		if now.Sub(s.came).Milliseconds() > 2*keptPast {
			delete(k.sources, key)
			s.forgotten = true
			k.doubt(s.last)
		}
	}
}

// near is the newest moment at or before t, no more than most before it, that is kept or has a file of a time since
// oldest, in ms; false where there is none.
func (k *keeper) near(t time.Time, most time.Duration, oldest int64) (time.Time, bool) {
	now, asked := k.newest.Load(), t.UnixMilli()
	for _, l := range keptLevels {
		at := asked - asked%l.step
		if now != noSample && asked-at <= most.Milliseconds() && now-at <= l.past-keptMargin && at >= k.since.Load() {
			return time.UnixMilli(at), true
		}
	}
	if at, ok := k.files.near(asked, most.Milliseconds(), oldest); ok {
		return time.UnixMilli(at), true
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
func (k *keeper) last(m *Moments, budget func(readers int) readBudget) (*Values, bool, error) {
	values, ok, err := k.memory(m, budget)
	if ok || err != nil {
		return values, ok, err
	}
	return k.merged(m, budget)
}

// memory is last where memory has all moments.
func (k *keeper) memory(m *Moments, budget func(readers int) readBudget) (*Values, bool, error) {
	if !k.knows(m) {
		return nil, false, nil
	}
	sources := k.of(m.Tenant)
	return k.read(m, len(sources), budget, func(r *keptReader, i int) ([]model.NamedResult, bool, error) {
		results, ok := r.read(sources[i])
		return results, ok, nil
	}, func() bool { return k.knows(m) }) // a sample may have come meanwhile that is not kept
}

// read reads so many sources, by several readers at once; false where one is not known whole, or what was known is not
// valid any more.
func (k *keeper) read(m *Moments, sources int, budget func(readers int) readBudget,
	one func(*keptReader, int) ([]model.NamedResult, bool, error), valid func() bool) (*Values, bool, error) {
	results, missing := make([][]model.NamedResult, sources), atomic.Bool{}
	var next atomic.Int64
	readers := make([]*keptReader, max(1, min(runtime.GOMAXPROCS(0), sources)))
	failed := make([]error, len(readers))
	values := &Values{Blocks: results, release: func() {
		for _, r := range readers {
			r.views, r.budget = nil, readBudget{}
			k.readers.Put(r)
		}
	}}
	read := func(reader int) {
		for r := readers[reader]; !missing.Load() && r.budget.inTime(); {
			i := int(next.Add(1)) - 1
			if i >= sources {
				return
			}
			var ok bool
			if results[i], ok, failed[reader] = one(r, i); !ok {
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
		readers[i].begin(k, m, budget(len(readers)))
		if i > 0 {
			others.Go(func() { read(i) })
		}
	}
	read(0)
	others.Wait()
	err := errors.Join(failed...)
	for _, r := range readers {
		err = cmp.Or(err, r.budget.err)
	}
	if err != nil || missing.Load() || !valid() {
		values.Release()
		return nil, false, err
	}
	return values, true, nil
}

// merged is last where files have some of the moments. What is wrong with a file is told in the log, and it is removed:
// all of it can be read out of chunks.
func (k *keeper) merged(m *Moments, budget func(readers int) readBudget) (*Values, bool, error) {
	if m.Recent != KeptRecent {
		return nil, false, nil
	}
	moments := make([]keptMoment, len(m.Times))
	defer func() {
		for i := range moments {
			if f := moments[i].file; f != nil {
				_ = f.Close() // it was for reading
			}
		}
	}()
	sources := map[string]*keptSource{}
	for i, t := range m.Times {
		moments[i].at = t.UnixMilli()
		if ok := k.open(&moments[i], m); !ok {
			return nil, false, nil
		}
		if index := moments[i].index; index != nil {
			for j := range index.blocks {
				if b := &index.blocks[j]; m.Tenant == "" || b.tenant == m.Tenant {
					sources[b.key] = nil
				}
			}
		}
	}
	for _, s := range k.of(m.Tenant) {
		sources[s.key] = s
	}
	keys := slices.Sorted(maps.Keys(sources))
	values, ok, err := k.read(m, len(keys), budget, func(r *keptReader, i int) ([]model.NamedResult, bool, error) {
		return r.merge(sources[keys[i]], keys[i], moments)
	}, func() bool { return k.hold(moments, m) })
	if bad := (*badMoment)(nil); errors.As(err, &bad) {
		k.files.damaged(bad)
		return nil, false, nil
	}
	return values, ok, err
}

// open opens the file of a moment, where there is one; false where neither it nor memory has what m asks for.
func (k *keeper) open(moment *keptMoment, m *Moments) bool {
	if !k.files.has(moment.at) {
		return k.knowsAt(moment.at, m)
	}
	f, index, err := openMoment(k.files.path(moment.at))
	if err != nil {
		k.files.damaged(&badMoment{moment.at, err})
		return false
	}
	moment.file, moment.index = f, index
	return !slices.ContainsFunc(index.parts, func(name string) bool { return slices.Contains(m.Names, name) })
}

// hold is whether what was read of moments is still right.
func (k *keeper) hold(moments []keptMoment, m *Moments) bool {
	for i := range moments {
		known := moments[i].file != nil && k.files.has(moments[i].at) || moments[i].file == nil && k.knowsAt(moments[i].at, m)
		if !known {
			return false
		}
	}
	return true
}

// due is the oldest moment that is kept, has no file, and will hardly change any more, and the sources of then; final
// is that nothing comes any more. It is called between batches.
func (k *keeper) due(now time.Time, final bool) (moment int64, sources []*keptSource, ok bool) {
	newest := k.newest.Load()
	if newest == noSample {
		return 0, nil, false
	}
	until := newest - momentSettle
	if final {
		until = newest
	}
	sources = k.of("")
	for at := momentFrom(max(k.since.Load(), newest-momentDeadline, k.files.skip+1),
		momentStep); at <= until; at += momentStep {
		if k.files.has(at) {
			continue
		}
		behind := slices.ContainsFunc(sources, func(s *keptSource) bool {
			return s.last <= at &&
				now.Sub(s.came).Milliseconds() < sourceSilent
		})
		if !behind || final || newest-at > momentWait {
			return at, sources, true
		}
	}
	return 0, nil, false
}

// partsSince are the names of series that came in parts since a moment, in ms.
func (k *keeper) partsSince(at int64) (names []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for name, newest := range k.parts {
		if newest > at-keptRecent {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
