package main

import (
	"strings"
	"testing"
	"time"

	"outsight/internal/frame"
	"outsight/internal/model"
	"outsight/internal/otlp"
	"outsight/internal/store"
)

// TestStoreTellsOfItsClock: that nothing is stored, why, and what to do, is among what is missing.
func TestStoreTellsOfItsClock(t *testing.T) {
	now := time.Now().AddDate(5, 0, 0)
	kept, err := store.Open(t.TempDir(), store.Options{Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	report := newStoreReport(kept)
	if f := report.Features(); len(f) != 0 {
		t.Errorf("got %+v", f)
	}
	_, snapshot := twoSeconds()
	snapshot.Time = now
	err = kept.Append(t.Context(), otlp.FromFrame(frame.Of(snapshot), otlp.SeriesOptions{}))
	report.update()
	if err != nil {
		t.Fatal(err)
	}
	now = time.Now()
	f := report.Features()
	if len(f) != 1 || f[0].State != model.FeatureAbsent || !strings.Contains(f[0].Reason, "set-future-aside") ||
		f[0].Remedy == "" {
		t.Errorf("got %+v", f)
	}
}

// TestStoreTellsItsBounds: what found no room in the store is among the agent's drops.
func TestStoreTellsItsBounds(t *testing.T) {
	kept, err := store.Open(t.TempDir(), store.Options{MaxSeries: 10})
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	report := newStoreReport(kept)
	series := func() (d model.Drop) {
		for _, d := range report.Drops() {
			if d.Name == "store/series" {
				return d
			}
		}
		return d
	}
	if d := series(); d != (model.Drop{Name: "store/series", Capacity: 10}) {
		t.Errorf("an empty store tells %+v", d)
	}
	_, snapshot := twoSeconds()
	snapshot.Time = time.Now()
	err = kept.Append(t.Context(), otlp.FromFrame(frame.Of(snapshot), otlp.SeriesOptions{}))
	report.update()
	if err == nil {
		t.Error("a store of ten series took a whole snapshot")
	}
	if d := series(); d.Used != 10 || d.Count == 0 || d.Count != kept.Stats().NoRoom {
		t.Errorf("a full store tells %+v", d)
	}
}
