package derive

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"outsight/internal/frame"
	"outsight/internal/model"
	"outsight/internal/store"
)

// Store is where series go.
type Store interface {
	// Append stores all series that a host has at one time, as store.Store does.
	Append(context.Context, []model.Series) error
}

// Series makes the series of one epoch of a host, of one frame after the other.
type Series func(*frame.Frame) []model.Series

// Options of New.
type Options struct {
	// Every is the time between two frames of a host that become series (15 s).
	Every time.Duration
	// Begin makes the Series of an epoch that begins, of a host of a tenant, which is empty without tenants.
	Begin func(tenant string) Series
	// Name adds labels, as kubernetes.Cluster.Name does; nil adds none.
	Name func([]model.Series) []model.Series
	// Waiting bounds the frames that wait (64): they are decoded, and of some hundred kilobytes each.
	Waiting int
	// MaxHosts bounds the hosts that are known (100,000).
	MaxHosts int
	Logger   *slog.Logger
}

// Deriver makes series of frames and stores them.
type Deriver struct {
	options Options
	store   Store
	seed    maphash.Seed
	jobs    chan job

	// mu guards the rest.
	mu     sync.Mutex
	hosts  map[source]*host
	counts Stats
	// newest is the time of the newest frame, swept that at which idle hosts were forgotten.
	newest, swept time.Time
}

type source struct{ tenant, name string }

// host is what is known of a host.
type host struct {
	epoch uint64
	// last is the time of the newest frame that was taken.
	last time.Time
	// series is of this epoch; only Run uses it.
	series Series
	of     uint64
}

type job struct {
	source
	*host
	frame *frame.Frame
}

// Stats counts frames since New.
type Stats struct {
	// Hosts that are known.
	Hosts int
	// Derived frames are series in the store. Dropped ones are not: too many waited, or the store did not take them.
	Derived, Dropped uint64
	// Series were appended; the store rejected some of them.
	Series, Rejected uint64
	// Waiting frames, of at most MaxWaiting.
	Waiting, MaxWaiting int
}

// idle is after how long without a frame a host is forgotten, by the time of the others' frames.
const idle = 15 * time.Minute

// New makes a Deriver. Nothing is stored before Run.
func New(s Store, o Options) *Deriver {
	o.Every = cmp.Or(o.Every, 15*time.Second)
	o.Waiting = cmp.Or(o.Waiting, 64)
	o.MaxHosts = cmp.Or(o.MaxHosts, 100_000)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Deriver{options: o, store: s, seed: maphash.MakeSeed(), jobs: make(chan job, o.Waiting),
		hosts: map[source]*host{}}
}

// Due reports whether a frame with this header is one that Put takes: the first of its interval. The intervals of hosts
// begin at different times, so that not all of them are due at once. A nil Deriver takes none.
func (d *Deriver) Due(tenant string, h *frame.Header) bool {
	if d == nil {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.due(source{tenant, h.Host}, h)
}

func (d *Deriver) due(of source, h *frame.Header) bool {
	known := d.hosts[of]
	if known == nil {
		return len(d.hosts) < d.options.MaxHosts
	}
	shift := time.Duration(maphash.String(d.seed, h.Host) % uint64(d.options.Every))
	interval := func(t time.Time) time.Time { return t.Add(shift).Truncate(d.options.Every) }
	return h.Time.After(known.last) && (h.Epoch != known.epoch || interval(h.Time).After(interval(known.last)))
}

// Put takes a frame if it is due. It does not wait: where too many frames do, the next one of the host is due instead.
func (d *Deriver) Put(tenant string, f *frame.Frame) {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	of := source{tenant, f.Host}
	if !d.due(of, &f.Header) {
		return
	}
	known := d.hosts[of]
	if known == nil {
		known = &host{}
	}
	select {
	case d.jobs <- job{of, known, f}:
		known.epoch, known.last = f.Epoch, f.Time
		d.hosts[of] = known
		d.forget(f.Time)
	default:
		d.counts.Dropped++
	}
}

// forget forgets hosts that are idle, once in a while; mu is held.
func (d *Deriver) forget(now time.Time) {
	if now.After(d.newest) {
		d.newest = now
	}
	if d.newest.Sub(d.swept) < idle/3 {
		return
	}
	d.swept = d.newest
	for of, known := range d.hosts {
		if d.newest.Sub(known.last) > idle {
			delete(d.hosts, of)
		}
	}
}

// Run stores the series of what was put until ctx ends.
func (d *Deriver) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case j := <-d.jobs:
			d.derive(ctx, &j)
		}
	}
}

func (d *Deriver) derive(ctx context.Context, j *job) {
	series, err := d.seriesOf(j)
	if err == nil && d.options.Name != nil {
		series = d.options.Name(series)
	}
	if err == nil {
		err = d.store.Append(ctx, series)
	}
	rejected := uint64(0)
	var some *store.RejectedError
	if errors.As(err, &some) {
		rejected = min(some.Samples, uint64(len(series)))
		d.options.Logger.Debug("the store refused some series of a frame", "host", j.name, "error", err)
		err = nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil {
		d.counts.Dropped++
		if ctx.Err() == nil {
			d.options.Logger.Warn("the series of a frame are not stored: there is a gap in them", "host", j.name, "error", err)
		}
		return
	}
	d.counts.Derived++
	d.counts.Series += uint64(len(series)) - rejected
	d.counts.Rejected += rejected
}

// seriesOf makes series with panics turned into errors: one host's frames must not end the server.
func (d *Deriver) seriesOf(j *job) (series []model.Series, err error) {
	defer func() {
		if p := recover(); p != nil {
			j.series = nil
			err = fmt.Errorf("making series: panic: %v", p)
		}
	}()
	if j.series == nil || j.of != j.frame.Epoch {
		j.series, j.of = d.options.Begin(j.tenant), j.frame.Epoch
	}
	return j.series(j.frame), nil
}

// Tenants are those of whose hosts frames have come of late, "" for the one without a name, in order.
func (d *Deriver) Tenants() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	known := map[string]bool{}
	for of := range d.hosts {
		known[of.tenant] = true
	}
	return slices.Sorted(maps.Keys(known))
}

// Stats are the counts.
func (d *Deriver) Stats() Stats {
	if d == nil {
		return Stats{}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.counts
	s.Hosts, s.Waiting, s.MaxWaiting = len(d.hosts), len(d.jobs), cap(d.jobs)
	return s
}

// Drops are the bounds.
func (d *Deriver) Drops() []model.Drop {
	s := d.Stats()
	return []model.Drop{
		{Name: "derive/frames", Count: s.Dropped, Used: uint64(s.Waiting), Capacity: uint64(s.MaxWaiting)},
		{Name: "derive/refused-series", Count: s.Rejected},
	}
}

// Projection is what is decoded of frames for series: of containers and hosts, or in full, which is nil.
func Projection(full bool) *frame.Projection {
	if full {
		return nil
	}
	return containersOnly
}

var containersOnly = frame.NewProjection(map[frame.TableID][]string{frame.Hosts: nil, frame.Containers: nil,
	frame.Labelled: nil, frame.Features: nil, frame.Addresses: nil, frame.Listeners: nil, frame.Translations: nil})
