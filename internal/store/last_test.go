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
func asked(t *testing.T, m Moments, instant func(context.Context, string, time.Time) ([]model.QueryResult,
	error)) (all []model.NamedResult) {
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

// lastResults are the results of Last together.
func lastResults(t *testing.T, from Readable, m Moments) ([]model.NamedResult, error) {
	t.Helper()
	values, err := from.Last(t.Context(), m)
	if err != nil {
		return nil, err
	}
	return slices.Concat(values.Blocks...), nil
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
			batch = append(batch, counterAt(float64(i), float64(i), "requests", "id", "often"),
				counterAt(float64(i), float64(i), "bytes", "id", "often"))
		}
		if i/100%3 != 1 {
			observe(h, spent[i])
			batch = append(batch, histogramAt(float64(i), h, "latency", "id", "often"),
				counterAt(float64(i), float64(i), "requests", "id", "by turns", "type", "x"))
		}
		if i%200 < 20 {
			batch = append(batch, counterAt(float64(i), 1, "bytes", "id", "rarely", "tenant", "shop"),
				counterAt(float64(i), 1, "unasked", "id", "rarely"))
		}
		appendAll(t, s, batch...)
	}
	if err := s.db.Compact(t.Context()); err != nil || len(s.db.Blocks()) == 0 {
		t.Fatalf("%d blocks: %v", len(s.db.Blocks()), err)
	}
	for range 60 {
		m := Moments{Names: []string{"bytes", "latency", "requests", "none"},
			Recent: time.Duration(1+rnd.IntN(20_000)) * time.Millisecond}
		for range 1 + rnd.IntN(6) {
			m.Times = append(m.Times, at(rnd.Float64()*(seconds+20)-10).Truncate(time.Millisecond))
		}
		if rnd.IntN(2) == 0 {
			m.Times = append(m.Times, m.Times[0].Add(time.Duration(rnd.IntN(30_000))*time.Millisecond))
		}
		slices.SortFunc(m.Times, time.Time.Compare)
		got, err := lastResults(t, s, m)
		if err != nil {
			t.Fatal(err)
		}
		if expected := bySeries(asked(t, m, s.Instant)); !reflect.DeepEqual(bySeries(got), expected) {
			t.Fatalf("%+v: got %v, want %v", m, bySeries(got), expected)
		}
		shop := ForTenant(s, "shop")
		got, err = lastResults(t, shop, m)
		if err != nil {
			t.Fatal(err)
		}
		if expected := bySeries(asked(t, m, shop.Instant)); !reflect.DeepEqual(bySeries(got), expected) {
			t.Fatalf("%+v of a tenant: got %v, want %v", m, bySeries(got), expected)
		}
	}
}

// A series whose end lies behind the boundary of a block, or that has samples that came late, is what PromQL says it
// is.
func TestLastOverBoundaries(t *testing.T) {
	s := open(t, t.TempDir(), Options{Retention: 8 * time.Minute}) // a block is of four
	h := &model.Histogram{}
	for i := range 400 {
		second := float64(i)
		batch := []model.Series{counterAt(second, second, "always")}
		if i%61 > 3 {
			batch = append(batch, counterAt(second, second, "ends"))
		}
		if i%60 < 2 {
			batch = append(batch, counterAt(second, -second, "begins"))
		}
		observe(h, time.Millisecond)
		if i%7 < 3 {
			batch = append(batch, histogramAt(second, h, "mixed"))
		} else if i%7 < 6 {
			batch = append(batch, counterAt(second, second, "mixed"))
		}
		appendAll(t, s, batch...)
		if i%10 == 9 {
			// Late ones, in parts, since a batch is a whole.
			if err := s.AppendPart(t.Context(), []model.Series{counterAt(second-4.5, 1000+second, "always"),
				counterAt(second-20.25, second, "late")}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := s.db.Compact(t.Context()); err != nil || len(s.db.Blocks()) == 0 {
		t.Fatalf("%d blocks: %v", len(s.db.Blocks()), err)
	}
	for i := range 380 {
		m := Moments{Names: []string{"always", "begins", "ends", "late", "mixed"}, Recent: 10 * time.Second,
			Times: []time.Time{at(float64(i)), at(float64(i) + 1.5), at(float64(i) + 3), at(float64(i) + 3), at(float64(i) + 9)}}
		got, err := lastResults(t, s, m)
		if err != nil {
			t.Fatal(err)
		}
		if expected := bySeries(asked(t, m, s.Instant)); !reflect.DeepEqual(bySeries(got), expected) {
			t.Fatalf("at %d: got %v, want %v", i, bySeries(got), expected)
		}
	}
}

func TestLastSharesLabels(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	appendAll(t, s, counterAt(0, 1, "a", "id", "x"), counterAt(0, 1, "c", "id", "x", "type", "t"),
		counterAt(0, 1, "c", "id", "y"))
	results, err := lastResults(t, s, Moments{Names: []string{"a", "b", "c"}, Times: []time.Time{at(0)},
		Recent: time.Second})
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

// Labels are found, and shared, also where those of one name came in another order than those of the name before, and
// some are missing.
func TestLastFindsLabelsInAnyOrder(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	rnd := rand.New(rand.NewPCG(3, 4))
	m := Moments{Names: []string{"a", "b", "c", "d", "e"}, Times: []time.Time{at(0), at(1)}, Recent: time.Second}
	for second := range 2 {
		var batch []model.Series
		for _, name := range m.Names {
			for _, id := range rnd.Perm(50)[:10+rnd.IntN(40)] {
				batch = append(batch, counterAt(float64(second), rnd.Float64(), name, "id", fmt.Sprint(id), "type",
					fmt.Sprint(id%3)))
			}
		}
		appendAll(t, s, batch...)
	}
	got, err := lastResults(t, s, m)
	if err != nil {
		t.Fatal(err)
	}
	if expected := bySeries(asked(t, m, s.Instant)); !reflect.DeepEqual(bySeries(got), expected) {
		t.Errorf("got %v, want %v", bySeries(got), expected)
	}
	shared := map[string]uintptr{}
	for _, r := range got {
		id, labels := r.Labels["id"], reflect.ValueOf(r.Labels).Pointer()
		if known, ok := shared[id]; ok && known != labels {
			t.Errorf("series of %s do not share their labels", id)
		}
		shared[id] = labels
	}
}

func TestBoundsOfLast(t *testing.T) {
	s := open(t, t.TempDir(), Options{MaxSamples: 400})
	var batch []model.Series
	for i := range 100 {
		batch = append(batch, counterAt(0, 1, "many", "id", fmt.Sprint(i)))
	}
	h := &model.Histogram{Count: 800, Offset: -400, Buckets: slices.Repeat([]uint64{1}, 800)}
	appendAll(t, s, append(batch, counterAt(0, 1, "one"), histogramAt(0, h, "wide"))...)
	f := func(ctx context.Context, want error, names ...string) {
		t.Helper()
		_, err := s.Last(ctx, Moments{Names: names, Times: []time.Time{at(0)}, Recent: time.Second})
		if !errors.Is(err, want) {
			t.Errorf("%v: %v, want %v", names, err, want)
		}
		for _, other := range []error{ErrBadQuery, ErrExecution, ErrTimeout, ErrCanceled, ErrBusy, ErrStorage} {
			if other != want && errors.Is(err, other) {
				t.Errorf("%v: %v is %v as well as %v", names, err, other, want)
			}
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
