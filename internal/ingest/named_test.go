package ingest

import (
	"slices"
	"testing"
	"time"

	"outsight/internal/model"
	"outsight/internal/otlp"
)

// Series that got names have keys of their own, the same from batch to batch until a name changes.
func TestNamedSeriesHaveKeys(t *testing.T) {
	const metrics, containers = 6, 5
	pod := "first"
	i := &Ingest{options: Options{Now: func() time.Time { return t0 }, Name: func(series []model.Series) []model.Series {
		// As a cluster does it: all series of a set have the same slice, another one in each batch.
		named, made := slices.Clone(series), map[*model.Label][]model.Label{}
		for n := range named {
			s := &named[n]
			if id := s.Labels[len(s.Labels)-1]; id.Name != "id" || id.Value == "0" {
				continue // who is in no pod
			}
			first := &s.Labels[0]
			if made[first] == nil {
				made[first] = append(slices.Clone(s.Labels), model.Label{Name: "pod", Value: pod})
			}
			s.Labels = made[first]
		}
		return named
	}}, names: names{most: 100}}
	d := NewDecoder(Limits{})
	of := map[uint64]string{}
	batch := func(add ...model.Series) (keys []uint64) {
		t.Helper()
		b, err := d.Decode(otlp.Encode(nil, append(manyMetrics(metrics, containers), add...)), "", t0)
		if err != nil {
			t.Fatal(err)
		}
		named, err := i.name(t.Context(), b.Series)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range named {
			what := line(&s)
			if known, ok := of[s.Key]; ok && known != what || s.Key == 0 {
				t.Fatalf("key %d stood for %s and stands for %s", s.Key, known, what)
			}
			of[s.Key] = what
			keys = append(keys, s.Key)
		}
		return keys
	}
	first := batch()
	if again := batch(); !slices.Equal(first, again) || len(of) != metrics*containers {
		t.Errorf("keys were %v and are %v", first, again)
	}
	pod = "second"
	changed := batch()
	for n := range changed {
		if same := changed[n] == first[n]; same != (n%containers == 0) {
			t.Errorf("series %d: the key was %d and is %d", n, first[n], changed[n])
		}
	}
	i.names.most = 2
	for range 3 {
		batch()
		if len(i.names.sets) > containers {
			t.Errorf("%d sets are remembered", len(i.names.sets))
		}
	}
	s := model.Series{Labels: hostLabels("h")}
	if i.names.one(&s); s.Key != 0 {
		t.Error("a series without a key got one")
	}
}
