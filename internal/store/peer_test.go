package store

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"outsight/internal/model"
)

func waitFor(t testing.TB, what string, done func() error) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		err := done()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waiting until %s: %v", what, err)
		}
	}
}

func openRemote(t testing.TB, o RemoteOptions) *Remote {
	t.Helper()
	r, err := OpenRemote(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// sameResults compares answers, whatever their order; values to twelve digits, because a system may
// store decimal numbers.
func sameResults(got, want []model.QueryResult) error {
	if len(got) != len(want) {
		return fmt.Errorf("%d series, want %d:\n%v\n%v", len(got), len(want), got, want)
	}
	byLabels := map[string]model.QueryResult{}
	for _, r := range got {
		byLabels[keyOf(r.Labels, r.Labels[nameLabel])] = r
	}
	near := func(a, b float64) bool {
		return a == b || math.IsNaN(a) && math.IsNaN(b) || math.Abs(a-b) <= 1e-12*max(math.Abs(a), math.Abs(b))
	}
	for _, w := range want {
		g, ok := byLabels[keyOf(w.Labels, w.Labels[nameLabel])]
		if !ok || len(g.Points) != len(w.Points) {
			return fmt.Errorf("%v has %d points, want %d", w.Labels, len(g.Points), len(w.Points))
		}
		for i, p := range w.Points {
			q := g.Points[i]
			if !q.Time.Equal(p.Time) || !near(q.Value, p.Value) || (q.Histogram == nil) != (p.Histogram == nil) {
				return fmt.Errorf("%v: %v, want %v", w.Labels, q, p)
			}
			if h := p.Histogram; h != nil && (!near(q.Histogram.Count, h.Count) || !near(q.Histogram.Sum, h.Sum) ||
				q.Histogram.ZeroCount != h.ZeroCount || q.Histogram.Offset != h.Offset ||
				!slices.Equal(q.Histogram.Buckets, h.Buckets)) {
				return fmt.Errorf("%v at %v: histogram %+v, want %+v", w.Labels, p.Time, q.Histogram, h)
			}
		}
	}
	return nil
}
