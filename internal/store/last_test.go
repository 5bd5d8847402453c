package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"outsight/internal/model"
)

// asked is what PromQL says of the same moments.
func asked(t *testing.T, m Moments, instant func(context.Context, string, time.Time) ([]model.QueryResult, error)) (all []model.NamedResult) {
	t.Helper()
	for _, when := range m.Times {
		results, err := instant(t.Context(), m.query(), when)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range results {
			all = append(all, r.TakeName())
		}
	}
	return all
}

// bySeries are the points of each series in the order in which they came.
func bySeries(results []model.NamedResult) map[string][]model.Point {
	all := map[string][]model.Point{}
	for _, r := range results {
		key := r.Name + "," + r.Type
		for _, name := range slices.Sorted(maps.Keys(r.Labels)) {
			key += "," + name + "=" + r.Labels[name]
		}
		all[key] = append(all[key], r.Points...)
	}
	return all
}

func TestLastIsLastOverTime(t *testing.T) {
	s := open(t, t.TempDir(), Options{Retention: 40 * time.Minute})
	rnd := rand.New(rand.NewPCG(1, 2))
	const seconds = 3000 // more than a block
	spent := durations(3, seconds)
	h := &model.Histogram{}
	for i := range seconds {
		batch := []model.Series{counterAt(float64(i), float64(i*i), "requests", "id", "always")}
		if rnd.IntN(20) > 0 { // else it ends, for a while
			batch = append(batch, counterAt(float64(i), float64(i), "requests", "id", "often"), counterAt(float64(i), float64(i), "bytes", "id", "often"))
		}
		if i/100%3 != 1 {
			observe(h, spent[i])
			batch = append(batch, histogramAt(float64(i), h, "latency", "id", "often"), counterAt(float64(i), float64(i), "requests", "id", "by turns", "type", "x"))
		}
		if i%200 < 20 {
			batch = append(batch, counterAt(float64(i), 1, "bytes", "id", "rarely", "tenant", "shop"), counterAt(float64(i), 1, "unasked", "id", "rarely"))
		}
		appendAll(t, s, batch...)
	}
	for range 60 {
		m := Moments{Names: []string{"bytes", "latency", "requests", "none"}, Recent: time.Duration(1+rnd.IntN(20_000)) * time.Millisecond}
		for range 1 + rnd.IntN(6) {
			m.Times = append(m.Times, at(rnd.Float64()*(seconds+20)-10).Truncate(time.Millisecond))
		}
		if rnd.IntN(2) == 0 {
			m.Times = append(m.Times, m.Times[0].Add(time.Duration(rnd.IntN(30_000))*time.Millisecond))
		}
		slices.SortFunc(m.Times, time.Time.Compare)
		got, err := s.Last(t.Context(), m.Names, m.Times, m.Recent)
		if err != nil {
			t.Fatal(err)
		}
		if expected := bySeries(asked(t, m, s.Instant)); !reflect.DeepEqual(bySeries(got), expected) {
			t.Fatalf("%+v: got %v, want %v", m, bySeries(got), expected)
		}
		shop := ForTenant(s, "shop")
		got, err = shop.Last(t.Context(), m.Names, m.Times, m.Recent)
		if err != nil {
			t.Fatal(err)
		}
		if expected := bySeries(asked(t, m, shop.Instant)); !reflect.DeepEqual(bySeries(got), expected) {
			t.Fatalf("%+v of a tenant: got %v, want %v", m, bySeries(got), expected)
		}
	}
	if blocks := len(s.db.Blocks()); blocks == 0 {
		t.Error("everything was read from memory")
	}
}

func TestLastSharesLabels(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	appendAll(t, s, counterAt(0, 1, "a", "id", "x"), counterAt(0, 1, "c", "id", "x", "type", "t"), counterAt(0, 1, "c", "id", "y"))
	results, err := s.Last(t.Context(), []string{"a", "b", "c"}, []time.Time{at(0)}, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(results, func(a, b model.NamedResult) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Labels["id"], b.Labels["id"]))
	})
	one := func(i int) uintptr { return reflect.ValueOf(results[i].Labels).Pointer() }
	if len(results) != 3 || one(0) != one(1) || one(1) == one(2) {
		t.Errorf("%+v", results)
	}
}

func TestBoundsOfLast(t *testing.T) {
	s := open(t, t.TempDir(), Options{MaxSamples: 400})
	var batch []model.Series
	for i := range 100 {
		batch = append(batch, counterAt(0, 1, "many", "id", fmt.Sprint(i)))
	}
	h := &model.Histogram{Count: 1000, Buckets: slices.Repeat([]uint64{1}, 500)}
	appendAll(t, s, append(batch, counterAt(0, 1, "one"), histogramAt(0, h, "wide"))...)
	f := func(ctx context.Context, want error, names ...string) {
		t.Helper()
		if _, err := s.Last(ctx, names, []time.Time{at(0)}, time.Second); !errors.Is(err, want) {
			t.Errorf("%v: %v, want %v", names, err, want)
		}
	}
	f(t.Context(), nil, "one")
	f(t.Context(), nil)
	f(t.Context(), ErrExecution, "many")
	f(t.Context(), ErrExecution, "wide")
	f(t.Context(), ErrBadQuery, "(")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	f(ctx, ErrCanceled, "one")
	if got := s.Stats(); got.QueriesTooLarge != 2 {
		t.Errorf("%d queries were too large, want 2", got.QueriesTooLarge)
	}
	s.Close()
	f(t.Context(), ErrCanceled, "one")
}
