package derive

import (
	"context"
	"errors"
	"maps"
	"testing"
	"time"

	"outsight/internal/model"
	"outsight/internal/store"
)

// values are those of a metric that PromQL knows at a time, by the label name and the tenant.
func values(t *testing.T, s *store.Store, metric string, at time.Time) map[string]float64 {
	t.Helper()
	results, err := s.Instant(t.Context(), metric, at)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]float64{}
	for _, r := range results {
		found[r.Labels["tenant"]+"/"+r.Labels["name"]] = r.Points[0].Value
	}
	return found
}

func gauge(name string, v float64) model.Series {
	return model.Series{Name: model.RunOutUsed, Kind: model.Gauge, Value: v,
		Labels: model.SortedLabels(model.NewLabel("host", "a"), model.NewLabel("name", name))}
}

// What is computed seldom is there in PromQL all the time, ends when it is computed no more, and has a gap while it cannot
// be computed.
func TestFollow(t *testing.T) {
	kept := openStore(t)
	at, computed, fail := began, 0, false
	f := NewFollower(func(_ context.Context, tenant string, when time.Time) ([]model.Series, error) {
		if fail {
			return nil, errors.New("no frames")
		}
		if !when.Equal(at) {
			t.Errorf("asked at %v", when)
		}
		if tenant == "shop" {
			return []model.Series{gauge("web", 0.5)}, nil
		}
		if computed++; computed > 2 {
			return []model.Series{gauge("stays", float64(computed))}, nil
		}
		return []model.Series{gauge("ends", 7), gauge("stays", float64(computed))}, nil
	}, kept, FollowOptions{Now: func() time.Time { return at }, Tenants: func() []string { return []string{"", "shop"} }})
	// expect goes on by minutes, and asks just before and after each.
	expect := func(minutes int, want map[string]float64) {
		t.Helper()
		for range minutes {
			at = at.Add(time.Minute)
			if err := f.once(t.Context()); (err != nil) != fail {
				t.Fatal(err)
			}
			for _, later := range []time.Duration{0, 59 * time.Second} {
				if got := values(t, kept, model.RunOutUsed, at.Add(later)); !maps.Equal(got, want) {
					t.Errorf("at %v: %v, want %v", at.Add(later).Sub(began), got, want)
				}
			}
		}
	}
	expect(5, map[string]float64{"/ends": 7, "/stays": 1, "shop/web": 0.5})
	expect(5, map[string]float64{"/ends": 7, "/stays": 2, "shop/web": 0.5})
	if n := f.Newest(); len(n) != 3 || n[0].Labels[1].Value != "ends" {
		t.Errorf("newest %v", n)
	}
	expect(5, map[string]float64{"/stays": 3, "shop/web": 0.5})
	fail = true
	expect(4, map[string]float64{"/stays": 3, "shop/web": 0.5})
	if n := f.Newest(); len(n) != 0 {
		t.Errorf("newest %v", n)
	}
	at = at.Add(time.Minute)
	if got := values(t, kept, model.RunOutUsed, at); len(got) != 0 {
		t.Errorf("five minutes after the last: %v", got)
	}
	fail = false
	expect(5, map[string]float64{"/stays": 4, "shop/web": 0.5})
}

// Those that are computed as often as they are stored, and tenants that are there no more.
func TestFollowOften(t *testing.T) {
	kept := openStore(t)
	at, tenants, n := began, []string{"a", "b"}, 0.0
	f := NewFollower(func(context.Context, string, time.Time) ([]model.Series, error) {
		n++
		return []model.Series{gauge("x", n)}, nil
	}, kept, FollowOptions{Every: 15 * time.Second, Now: func() time.Time { return at }, Tenants: func() []string { return tenants }})
	for range 3 {
		at = at.Add(15 * time.Second)
		if err := f.once(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got := values(t, kept, model.RunOutUsed, at); n != 6 || got["a/x"] != 5 || got["b/x"] != 6 {
		t.Errorf("%v after %v computations", got, n)
	}
	tenants, at = tenants[:1], at.Add(15*time.Second)
	if err := f.once(t.Context()); err != nil || len(f.Newest()) != 1 || len(f.tenants) != 1 {
		t.Errorf("%v, newest %v", err, f.Newest())
	}
	if (*Follower)(nil).Newest() != nil {
		t.Error("of none there is something")
	}
}

// Run computes until its context ends.
func TestFollowRuns(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	f := NewFollower(func(context.Context, string, time.Time) ([]model.Series, error) {
		end()
		return []model.Series{gauge("x", 1)}, nil
	}, openStore(t), FollowOptions{Every: time.Millisecond})
	f.Run(ctx)
	if len(f.Newest()) != 1 {
		t.Errorf("newest %v", f.Newest())
	}
}
