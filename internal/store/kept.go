package store

import (
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
	// on is whether values are kept, and looked the period in which forget last looked. Who appends uses both alone.
	on     bool
	looked int64

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
func (k *keeper) source(tenant, key string, now time.Time) *keptSource {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.sources[key]
	if s == nil {
		s = &keptSource{keeper: k, tenant: tenant, came: now, byLabels: map[string]*keptThing{}}
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
			k.doubt(s.last)
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
	if !k.knows(m) {
		return nil, false, nil
	}
	sources := k.of(m.Tenant)
	results, missing := make([][]model.NamedResult, len(sources)), atomic.Bool{}
	var next atomic.Int64
	readers := make([]*keptReader, max(1, min(runtime.GOMAXPROCS(0), len(sources))))
	values := &Values{Blocks: results, release: func() {
		for _, r := range readers {
			r.views, r.budget = nil, readBudget{}
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
		readers[i].begin(k, m, budget(len(readers)))
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
