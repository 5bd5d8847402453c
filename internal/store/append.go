package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/storage"

	"outsight/internal/model"
)

// ErrRejected means that some samples of a batch can never be stored: too old, in conflict with a stored one,
// malformed, or of a new series beyond a limit. The other samples are stored; sending the batch again would not help.
var ErrRejected = errors.New("samples rejected")

// RejectedError is an ErrRejected with the number of rejected samples.
type RejectedError struct {
	Samples uint64
	cause   error
}

func (e *RejectedError) Error() string {
	return fmt.Sprintf("%d %v: %v", e.Samples, ErrRejected, e.cause)
}

// Unwrap makes it an ErrRejected, and what caused it.
func (e *RejectedError) Unwrap() []error { return []error{ErrRejected, e.cause} }

// ErrClosed means that the store was closed.
var ErrClosed = errors.New("store is closed")

// hostLabel names the source of a series.
const hostLabel = "host"

// TenantLabel is the label of a series' tenant, in a store with tenants. The appender sets it; a tenant reads series
// with its own name only.
const TenantLabel = "tenant"

// ErrNoSpace means that the disk has less than Options.MinFree left; nothing of the batch is stored.
var ErrNoSpace = errors.New("not enough free space")

// source is one host with an agent, or all parts: see partsKey.
type source struct {
	// key of tracker.sources.
	key string
	// last is the time of its newest batch, in ms.
	last int64
	live []*entry
	// lastAppend is the time of its last batch by this host's clock: the clocks of sources may differ by hours.
	lastAppend time.Time
	// newest sample and number of the batch that is being appended.
	newest int64
	batch  uint64
	// parts means that its series are appended by AppendPart: a batch without a series does not end it.
	parts bool
}

// idleAfter is how long a source may be silent before its series are ended and forgotten.
const idleAfter = 10 * time.Minute

// Append stores a batch: all series that its hosts (the label "host") have at one time. It is all
// there after a crash of the process once Append has returned. The same batch may be
// appended again, whole and unchanged, without effect. A series of the host's last batch that
// is not in this one ends, unless this one is older. Errors are ErrClosed, ErrRejected, ErrNoSpace,
// that of ctx, and those of the disk, after which nothing of the batch is stored.
func (s *Store) Append(ctx context.Context, series []model.Series) error {
	return s.append(ctx, series, false)
}

// AppendPart stores some series of any source: a later batch without a series does not end it; a value of model.Stale
// does. Counters get no zero at their start. Otherwise it is like Append.
func (s *Store) AppendPart(ctx context.Context, series []model.Series) error {
	return s.append(ctx, series, true)
}

func (s *Store) append(ctx context.Context, series []model.Series, parts bool) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("appending %d series: %w", len(series), err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("appending %d series: %w", len(series), ErrClosed)
	}
	if err := s.checkSpace(); err != nil {
		s.tracker.counts.noSpace += uint64(len(series))
		return fmt.Errorf("appending %d series: %w", len(series), err)
	}
	if err := s.checkClock(); err != nil {
		s.tracker.counts.clock += uint64(len(series))
		return fmt.Errorf("appending %d series: %w", len(series), err)
	}
	return s.tracker.append(s.db.AppenderV2(ctx), series, parts)
}

func (s *Store) checkSpace() error {
	free, err := freeBytes(s.db.Dir())
	if err != nil {
		return err
	}
	if free < s.options.MinFree {
		return fmt.Errorf("%w: data directory %q has %d bytes left, less than %d", ErrNoSpace, s.db.Dir(), free,
			s.options.MinFree)
	}
	return nil
}

// tracker knows the series of the last batch of each source, to find out which begin and end.
type tracker struct {
	sources map[string]*source
	cache   cache
	// batches begun, failed ones too.
	batches uint64
	counts  counts
	now     func() time.Time
	// usage counts series in memory. The TSDB's callbacks update it; without a TSDB, the tracker does (ownsUsage).
	usage     *seriesUsage
	ownsUsage bool
}

func newTracker(u *seriesUsage) tracker {
	return tracker{sources: map[string]*source{}, cache: newCache(), now: time.Now, usage: u}
}

// append writes a batch to app and commits it; parts is explained at AppendPart.
func (k *tracker) append(app storage.AppenderV2, series []model.Series, parts bool) error {
	k.batches++
	b := &batch{tracker: k, parts: parts, app: app, number: k.batches}
	for i := range series {
		b.add(&series[i])
	}
	b.end()
	if err := b.app.Commit(); err != nil {
		var partial refusedError
		if !errors.As(err, &partial) {
			b.undo()
			return fmt.Errorf("writing %d samples: %w", b.counts.samples, err)
		}
		b.counts.refused += partial.samples
		b.counts.samples -= min(b.counts.samples, partial.samples)
		b.commit()
		return &RejectedError{Samples: partial.samples + b.counts.rejected(), cause: err}
	}
	b.commit()
	if n := b.counts.rejected(); n != 0 {
		return &RejectedError{Samples: n,
			cause: fmt.Errorf("%d too old, %d in conflict with a stored one, %d malformed, %d beyond a limit, of %d",
				b.counts.tooOld, b.counts.conflicts, b.counts.malformed, b.counts.overLimit, len(series))}
	}
	return nil
}

// remove forgets a series.
func (k *tracker) remove(e *entry) {
	k.cache.remove(e)
	if k.ownsUsage {
		k.usage.add(e.stored, -1)
	}
}

// live counts the live series.
func (k *tracker) live() (n int) {
	for _, src := range k.sources {
		n += len(src.live)
	}
	return n
}

// batch is one Append under way.
type batch struct {
	tracker *tracker
	app     storage.AppenderV2
	number  uint64
	parts   bool
	touched []*source
	added   []*entry
	ended   []*entry
	counts  counts
	// previous is the entry of the series before.
	previous *entry
	// recent is the source of the series before: nearly always that of the next, too.
	recent                   *source
	recentHost, recentTenant string
}

func (b *batch) add(s *model.Series) {
	if s.Kind == model.HistogramSeries && s.Histogram == nil && s.Foreign == nil || s.Name == "" {
		b.counts.malformed++
		return
	}
	e, hash := b.find(s)
	var src *source
	if e != nil && e.source.parts == b.parts {
		// Its labels say where it is from; they need not be read again.
		src = e.source
		b.addSource(src)
	} else {
		src = b.source(s)
	}
	var start int64
	if e == nil {
		e = b.tracker.cache.add(s, hash)
		e.source = src
		// A series that the store has already, from before a restart or a silence, is not new.
		if e.ref = b.known(e); e.ref == 0 {
			if !b.tracker.usage.admit(e.stored) {
				b.tracker.cache.remove(e)
				b.counts.overLimit++
				return
			}
		}
		if b.tracker.ownsUsage {
			b.tracker.usage.add(e.stored, 1)
		}
		start = b.startOf(s, src)
		b.added = append(b.added, e)
		src.live = append(src.live, e)
	}
	if b.previous != nil {
		b.previous.following = e
	}
	b.previous = e
	e.batch, e.kind = b.number, s.Kind
	at := s.Time.UnixMilli()
	e.last = max(e.last, at)
	src.newest = max(src.newest, at)
	b.append(e, start, at, s.Value, nativeOf(s))
}

// find returns the entry of s, or nil, and the hash to add one by. A source sends its series in the same order each
// time, so the entry that followed last time is tried before the map.
func (b *batch) find(s *model.Series) (*entry, uint64) {
	if b.previous != nil && s.Key != 0 {
		// One that was removed has no key.
		if e := b.previous.following; e != nil && e.key == s.Key {
			return e, e.hash
		}
	}
	return b.tracker.cache.find(s)
}

// known is the reference of a series that the store has in memory, 0 where it has not.
func (b *batch) known(e *entry) storage.SeriesRef {
	store, ok := b.app.(storage.GetRef)
	if !ok {
		return 0
	}
	ref, _ := store.GetRef(e.stored, e.stored.Hash())
	return ref
}

// startOf is the time, in ms, of the zero sample before the first sample of s, or 0 for none. It must lie after the
// source's last batch: what was counted before may already be in an earlier series (another name for the same entity,
// or one before a restart of this server).
func (b *batch) startOf(s *model.Series, src *source) int64 {
	if b.parts || s.Kind == model.Gauge || s.Start.IsZero() || src.last == 0 {
		return 0
	}
	if start := s.Start.UnixMilli(); start >= src.last {
		return start
	}
	return 0
}

func nativeOf(s *model.Series) *histogram.Histogram {
	if s.Kind != model.HistogramSeries {
		return nil
	}
	if s.Histogram == nil {
		return nativeForeign(s.Foreign)
	}
	return native(s.Histogram)
}

func (b *batch) append(e *entry, start, at int64, v float64, h *histogram.Histogram) {
	ref, err := b.app.Append(e.ref, e.stored, start, at, v, h, nil, storage.AOptions{})
	switch {
	case err == nil:
		e.ref = ref
		b.counts.samples++
	case errors.Is(err, storage.ErrTooOldSample), errors.Is(err, storage.ErrOutOfBounds),
		errors.Is(err, storage.ErrOutOfOrderSample):
		b.counts.tooOld++
	case errors.Is(err, storage.ErrDuplicateSampleForTimestamp):
		b.counts.conflicts++
	default:
		b.counts.malformed++
	}
}

// originOf returns the host and the tenant of a series.
func originOf(of []model.Label) (host, tenant string) {
	for _, l := range of {
		switch l.Name {
		case hostLabel:
			host = l.Value
		case TenantLabel: // tenants may have hosts of one name
			tenant = l.Value
		}
	}
	return host, tenant
}

func sourceKey(host, tenant string) string { return tenant + "\x00" + host }

func (b *batch) source(s *model.Series) *source {
	host, tenant := "", ""
	if !b.parts {
		host, tenant = originOf(s.Labels)
	}
	if b.recent != nil && host == b.recentHost && tenant == b.recentTenant {
		return b.recent
	}
	key := sourceKey(host, tenant)
	if b.parts {
		key = partsKey
	}
	src := b.tracker.sources[key]
	if src == nil {
		src = &source{key: key, parts: b.parts}
		b.tracker.sources[key] = src
	}
	b.addSource(src)
	b.recent, b.recentHost, b.recentTenant = src, host, tenant
	return src
}

// addSource adds a source to the batch.
func (b *batch) addSource(src *source) {
	if src.batch != b.number {
		src.batch, src.newest, src.lastAppend = b.number, math.MinInt64, b.tracker.now()
		b.touched = append(b.touched, src)
	}
}

// partsKey is the source of everything from AppendPart; no host has this name.
const partsKey = "\x00\x00parts"

// end puts staleness markers on the series that ended.
func (b *batch) end() {
	for _, src := range b.touched {
		if src.parts {
			b.forget(src)
			continue
		}
		if src.newest <= src.last {
			continue
		}
		for _, e := range src.live {
			if e.batch != b.number {
				b.markStale(e, src.newest)
			}
		}
	}
	if len(b.touched) == 0 {
		return
	}
	now := b.tracker.now()
	for key, src := range b.tracker.sources {
		if src.batch == b.number {
			continue
		}
		if len(src.live) == 0 { // nothing of its last batch was taken
			delete(b.tracker.sources, key)
		} else if !src.parts && now.Sub(src.lastAppend) > idleAfter {
			for _, e := range src.live {
				b.markStale(e, src.last+1)
			}
		}
	}
}

// forget evicts series without a sample for idleAfter, once a minute of their own time. They get no staleness marker: a
// sender of parts may be slow. A later sample continues them.
func (b *batch) forget(src *source) {
	// Compared so that the least newest, that of a batch of which nothing was taken, does not overflow.
	if src.newest < src.last+time.Minute.Milliseconds() {
		src.newest = src.last
		return
	}
	for _, e := range src.live {
		if src.newest-e.last > idleAfter.Milliseconds() {
			b.ended = append(b.ended, e)
		}
	}
}

func (b *batch) markStale(e *entry, at int64) {
	stale := math.Float64frombits(value.StaleNaN)
	var h *histogram.Histogram
	if e.kind == model.HistogramSeries {
		h = &histogram.Histogram{Sum: stale}
	}
	// A marker that cannot be written is not a sample of the batch that was rejected.
	if _, err := b.app.Append(e.ref, e.stored, 0, at, stale, h, nil, storage.AOptions{}); err == nil {
		b.counts.ended++
	}
	b.ended = append(b.ended, e)
}

// undo forgets the series that a failed batch added.
func (b *batch) undo() {
	for _, e := range b.added {
		b.tracker.remove(e)
	}
	isAdded := make(map[*entry]bool, len(b.added))
	for _, e := range b.added {
		isAdded[e] = true
	}
	for _, src := range b.touched {
		src.drop(func(e *entry) bool { return isAdded[e] })
	}
}

// commit takes over what the stored batch changed.
func (b *batch) commit() {
	b.counts.batches = 1
	b.tracker.counts.add(&b.counts)
	gone := make(map[*entry]bool, len(b.ended))
	affected := map[*source]bool{}
	for _, e := range b.ended {
		b.tracker.remove(e)
		gone[e] = true
		affected[e.source] = true
	}
	// Only the sources that lost a series: there may be a thousand others.
	for src := range affected {
		src.drop(func(e *entry) bool { return gone[e] })
		if src.batch != b.number && len(src.live) == 0 {
			delete(b.tracker.sources, src.key)
		}
	}
	for _, src := range b.touched {
		src.last = max(src.last, src.newest)
	}
}

func (src *source) drop(gone func(*entry) bool) {
	kept := src.live[:0]
	for _, e := range src.live {
		if !gone(e) {
			kept = append(kept, e)
		}
	}
	clear(src.live[len(kept):])
	src.live = kept
}

// endAll marks the end of every live series.
func (k *tracker) endAll(app storage.AppenderV2) error {
	b := &batch{tracker: k, app: app}
	for _, src := range k.sources {
		if src.parts {
			continue
		}
		for _, e := range src.live {
			b.markStale(e, src.last+1)
		}
	}
	if err := b.app.Commit(); err != nil {
		return fmt.Errorf("ending %d series: %w", len(b.ended), err)
	}
	return nil
}
