package store

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunks"

	"outsight/internal/model"
	"outsight/internal/quota"
)

// LabelOverhead is what a label counts beside its name and its value, in bytes: the index has an entry for each that no
// other series has. With it, memory is at most near two and a half times what labels count.
const LabelOverhead = 64

// seriesUsage counts the series in memory and the bytes of their labels, by tenant. The TSDB reports each series that
// it creates or removes, and those of its log when it is opened.
type seriesUsage struct {
	series, bytes *quota.Shares
	// tenants means that series have TenantLabel.
	tenants bool
	// replay bounds the bytes of labels while the log is read, 0 after that.
	replay atomic.Int64
	// unread counts series of the log that did not fit into memory when it was opened.
	unread atomic.Uint64
	// labelsRefused counts series refused because of the bytes of their labels.
	labelsRefused atomic.Uint64
}

func newSeriesUsage(series int, labelBytes int64, tenants *quota.Tenants, limits quota.Table) *seriesUsage {
	u := &seriesUsage{tenants: tenants != nil}
	var among quota.Tenants
	if u.tenants {
		among = *tenants
	}
	u.series = quota.NewShares(int64(series), among, func(tenant string) int64 { return limits.Of(tenant).Series })
	u.bytes = quota.NewShares(labelBytes, among, func(tenant string) int64 { return limits.Of(tenant).LabelBytes })
	return u
}

// of is the tenant of a series, and the bytes that its labels count.
func (u *seriesUsage) of(all labels.Labels) (tenant string, bytes int64) {
	all.Range(func(l labels.Label) { bytes += int64(len(l.Name)+len(l.Value)) + LabelOverhead })
	if u.tenants {
		tenant = all.Get(TenantLabel)
	}
	return tenant, bytes
}

// admit reports whether a series is within the limits, and counts a refusal if not.
func (u *seriesUsage) admit(all labels.Labels) bool {
	tenant, bytes := u.of(all)
	if u.series.Available(tenant) < 1 {
		u.series.Refuse(tenant, 1)
		return false
	}
	if u.bytes.Available(tenant) < bytes {
		u.bytes.Refuse(tenant, 1)
		u.labelsRefused.Add(1)
		return false
	}
	return true
}

// add counts a series, or with -1 its removal.
func (u *seriesUsage) add(all labels.Labels, sign int64) {
	tenant, bytes := u.of(all)
	u.series.Add(tenant, sign)
	u.bytes.Add(tenant, sign*bytes)
}

// errReplay means that the log has more labels than there may be in memory.
var errReplay = errors.New("labels of the log need too much memory")

// PreCreation implements tsdb.SeriesLifecycleCallback. While the log is read it ends the reading before memory does.
func (u *seriesUsage) PreCreation(all labels.Labels) error {
	if most := u.replay.Load(); most > 0 {
		if _, bytes := u.of(all); u.bytes.Used()+bytes > most {
			return errReplay
		}
	}
	return nil
}

// PostCreation implements tsdb.SeriesLifecycleCallback.
func (u *seriesUsage) PostCreation(all labels.Labels) { u.add(all, 1) }

// PostDeletion implements tsdb.SeriesLifecycleCallback.
func (u *seriesUsage) PostDeletion(gone map[chunks.HeadSeriesRef]labels.Labels) {
	for _, all := range gone {
		u.add(all, -1)
	}
}

// Available is how many more series a tenant may have, and how many more bytes of labels.
func (s *Store) Available(tenant string) (series, labelBytes int64) {
	return s.tracker.usage.available(tenant)
}

// Available is as that of Store.
func (r *Remote) Available(tenant string) (series, labelBytes int64) {
	return r.tracker.usage.available(tenant)
}

func (u *seriesUsage) available(tenant string) (series, labelBytes int64) {
	return u.series.Available(tenant), u.bytes.Available(tenant)
}

// NewSeries is which of some series a store does not have.
type NewSeries struct {
	// Series within the limits, and the bytes of their labels.
	Series, Bytes int64
	// Rejected are beyond the limits; FirstRejected is one of them.
	Rejected      int64
	FirstRejected *model.Series
	// Unknown means that the store could not tell: any of them may be new.
	Unknown bool
}

// CountNew counts the series that the store does not have: those within room and roomBytes of labels, and those beyond.
func (s *Store) CountNew(series []model.Series, room, roomBytes int64) NewSeries {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return NewSeries{Unknown: true}
	}
	app := s.db.AppenderV2(context.Background())
	defer app.Rollback()
	known, _ := app.(storage.GetRef)
	return s.tracker.countNew(series, known, room, roomBytes)
}

// NewSeries is as that of Store. While a batch is written, which may take long, the answer is unknown.
func (r *Remote) CountNew(series []model.Series, room, roomBytes int64) NewSeries {
	select {
	case r.writing <- struct{}{}:
		defer func() { <-r.writing }()
		return r.tracker.countNew(series, nil, room, roomBytes)
	default:
		return NewSeries{Unknown: true}
	}
}

func (k *tracker) countNew(series []model.Series, known storage.GetRef, room, roomBytes int64) (f NewSeries) {
	for i := range series {
		s := &series[i]
		if k.cache.has(s) {
			continue
		}
		all := k.cache.storedLabels(s)
		if known != nil {
			if ref, _ := known.GetRef(all, all.Hash()); ref != 0 {
				continue
			}
		}
		_, bytes := k.usage.of(all)
		if f.Series+1 > room || f.Bytes+bytes > roomBytes {
			if f.Rejected++; f.FirstRejected == nil {
				f.FirstRejected = s
			}
			continue
		}
		f.Series++
		f.Bytes += bytes
	}
	return f
}

// Usages are the series and the bytes of labels in memory, by tenant.
func (s *Store) Usages() (series, labelBytes []quota.Usage) { return s.tracker.usage.usages() }

// Usages are as those of Store.
func (r *Remote) Usages() (series, labelBytes []quota.Usage) { return r.tracker.usage.usages() }

func (u *seriesUsage) usages() (series, labelBytes []quota.Usage) {
	return u.series.Usages(), u.bytes.Usages()
}
