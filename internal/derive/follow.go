package derive

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"outsight/internal/model"
	"outsight/internal/store"
)

// PartStore is where series of a Follower go.
type PartStore interface {
	// AppendPart stores some series, as store.Store does.
	AppendPart(context.Context, []model.Series) error
}

// Compute makes all series that there are of a tenant at a time, "" without tenants. They need no time, and no label of
// the tenant.
type Compute func(ctx context.Context, tenant string, now time.Time) ([]model.Series, error)

// FollowOptions of NewFollower. Zero values are the defaults.
type FollowOptions struct {
	// Name is what is computed, for the log.
	Name string
	// Every is how often it is computed (5 min). Where that is seldom, what was computed is stored again each minute:
	// PromQL does not know a series any more that has had no sample for five minutes.
	Every time.Duration
	// Timeout bounds a computation for one tenant (1 min).
	Timeout time.Duration
	// Tenants are those that there are now; nil for the one without a name.
	Tenants func() []string
	Now     func() time.Time
	Logger  *slog.Logger
}

// Follower computes series of what a server keeps, again and again, and stores them: of many frames and hosts, where a
// Deriver makes those of each frame.
type Follower struct {
	compute Compute
	store   PartStore
	o       FollowOptions
	tenants map[string]*followed
	newest  atomic.Pointer[[]model.Series]
}

// followed is a tenant.
type followed struct {
	computed time.Time
	series   []model.Series
	// stored are those that have not ended in the store, by name and labels.
	stored map[string]model.Series
}

// again is how often what was computed is stored.
const again = time.Minute

// NewFollower makes a Follower. Nothing is computed before Run.
func NewFollower(compute Compute, s PartStore, o FollowOptions) *Follower {
	o.Every = cmp.Or(o.Every, 5*time.Minute)
	o.Timeout = cmp.Or(o.Timeout, time.Minute)
	if o.Tenants == nil {
		o.Tenants = func() []string { return []string{""} }
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Follower{compute: compute, store: s, o: o, tenants: map[string]*followed{}}
}

// Run computes and stores until ctx ends. What fails is logged and tried again, so that the series have a gap.
func (f *Follower) Run(ctx context.Context) {
	tick := time.NewTicker(min(f.o.Every, again))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if err := f.once(ctx); err != nil && ctx.Err() == nil {
				f.o.Logger.Warn("computing series failed: there is a gap in them", "of", f.o.Name, "error", err)
			}
		}
	}
}

// once computes what is due, and stores all.
func (f *Follower) once(ctx context.Context) error {
	now := f.o.Now()
	known := f.o.Tenants()
	var errs []error
	for _, tenant := range known {
		t := f.tenants[tenant]
		if t == nil {
			t = &followed{stored: map[string]model.Series{}}
			f.tenants[tenant] = t
		}
		// Ticks are not exactly apart.
		if now.Sub(t.computed) >= f.o.Every-again/2 || f.o.Every <= again {
			t.series, t.computed = nil, time.Time{}
			series, err := f.seriesOf(ctx, tenant, now)
			if err != nil {
				errs = append(errs, fmt.Errorf("tenant %q: %w", tenant, err))
				continue
			}
			t.series, t.computed = series, now
		}
		if err := f.append(ctx, t, now); err != nil {
			errs = append(errs, fmt.Errorf("tenant %q: %w", tenant, err))
		}
	}
	var all []model.Series
	for tenant, t := range f.tenants {
		if !slices.Contains(known, tenant) {
			delete(f.tenants, tenant) // no frame of it has come for a while
			continue
		}
		all = append(all, t.series...)
	}
	slices.SortStableFunc(all, func(a, b model.Series) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), slices.CompareFunc(a.Labels, b.Labels, compareLabels))
	})
	f.newest.Store(&all)
	return errors.Join(errs...)
}

func compareLabels(a, b model.Label) int {
	return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Value, b.Value))
}

func (f *Follower) seriesOf(ctx context.Context, tenant string, now time.Time) ([]model.Series, error) {
	ctx, cancel := context.WithTimeout(ctx, f.o.Timeout)
	defer cancel()
	series, err := f.compute(ctx, tenant, now)
	if err != nil || tenant == "" {
		return series, err
	}
	for i := range series {
		series[i].Labels = model.SortedLabels(append(slices.Clone(series[i].Labels),
			model.NewLabel(store.TenantLabel, tenant))...)
	}
	return series, nil
}

// append stores the series of a tenant, and ends those that it has no more.
func (f *Follower) append(ctx context.Context, t *followed, now time.Time) error {
	live := make(map[string]model.Series, len(t.series))
	batch := make([]model.Series, 0, len(t.series))
	for _, s := range t.series {
		s.Time = now
		batch = append(batch, s)
		live[keyOf(&s)] = s
	}
	for key, s := range t.stored {
		if _, ok := live[key]; !ok {
			s.Time, s.Value = now, model.Stale()
			batch = append(batch, s)
		}
	}
	if len(batch) == 0 {
		return nil
	}
	err := f.store.AppendPart(ctx, batch)
	if err == nil || errors.Is(err, store.ErrRejected) {
		t.stored = live
	}
	return err
}

func keyOf(s *model.Series) string {
	var key strings.Builder
	key.WriteString(s.Name)
	for _, l := range s.Labels {
		key.WriteString("\x00" + l.Name + "\x00" + l.Value)
	}
	return key.String()
}

// Newest are the series as they were computed last, in order of their names. They are not to be changed.
func (f *Follower) Newest() []model.Series {
	if f == nil || f.newest.Load() == nil {
		return nil
	}
	return *f.newest.Load()
}
