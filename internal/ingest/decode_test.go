package ingest

import (
	"bytes"
	"os"
	"reflect"
	"testing"
	"time"

	"outsight/internal/model"
	"outsight/internal/otlp"
)

var t0 = time.UnixMilli(1_790_000_000_000)

func decode(t testing.TB, body []byte, tenant string) *Batch {
	t.Helper()
	b, err := NewDecoder(Limits{}).Decode(body, tenant, t0)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// same compares series but for the representation of times.
func same(t testing.TB, got, want []model.Series) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("got %d series, want %d", len(got), len(want))
	}
	for i := range got {
		g, w := got[i], want[i]
		if !g.Time.Equal(w.Time) || !g.Start.Equal(w.Start) || g.Start.IsZero() != w.Start.IsZero() {
			t.Errorf("%s: times %v and %v, want %v and %v", w.Name, g.Start, g.Time, w.Start, w.Time)
		}
		if g.Key == 0 {
			t.Errorf("%s has no key", g.Name)
		}
		g.Key = 0
		g.Time, g.Start, w.Time, w.Start = time.Time{}, time.Time{}, time.Time{}, time.Time{}
		if w.Histogram != nil && len(w.Histogram.Buckets) == 0 {
			h := *w.Histogram
			h.Buckets, h.Offset = nil, 0
			w.Histogram = &h
		}
		if !reflect.DeepEqual(g, w) {
			t.Fatalf("series %d: got %+v (%+v), want %+v (%+v)", i, g, g.Histogram, w, w.Histogram)
		}
	}
}

func hostLabels(host string, pairs ...string) []model.Label {
	labels := []model.Label{{Name: "host", Value: host}}
	for i := 0; i < len(pairs); i += 2 {
		labels = append(labels, model.Label{Name: pairs[i], Value: pairs[i+1]})
	}
	sortLabels(labels)
	return labels
}

func histogram() *model.Histogram {
	return &model.Histogram{Count: 21, SumNS: 123_456_789_012, ZeroCount: 2, OverflowCount: 3, Offset: -100,
		Buckets: []uint64{7, 0, 0, 9}}
}

func batchAt(host string, at time.Time) []model.Series {
	return []model.Series{
		{Name: "c_total", Labels: hostLabels(host, "id", "a"), Kind: model.Counter, Time: at,
			Start: t0.Add(-time.Hour).Add(123), Value: 17.25},
		{Name: "c_total", Labels: hostLabels(host, "id", "b", "zz", "ü \x00"), Kind: model.Counter, Time: at, Value: 1e300},
		{Name: "g", Labels: hostLabels(host), Kind: model.Gauge, Time: at, Value: -3},
		{Name: "h_seconds", Labels: hostLabels(host, "id", "a"), Kind: model.HistogramSeries, Time: at,
			Start: t0.Add(-time.Hour), Histogram: histogram()},
		{Name: "h_seconds", Labels: hostLabels(host, "id", "b"), Kind: model.HistogramSeries, Time: at,
			Histogram: &model.Histogram{}},
		{Name: "h_seconds", Labels: hostLabels(host, "id", "c"), Kind: model.HistogramSeries, Time: at,
			Histogram: &model.Histogram{Count: 1, SumNS: 1 << 40, OverflowCount: 1}},
	}
}

// What Encode writes, Decode gives back: the very same series.
func TestRoundTrip(t *testing.T) {
	want := batchAt("web-1", t0)
	b := decode(t, otlp.Encode(nil, want), "")
	same(t, b.Series, want)
	if !b.ours || b.Points != 6 || b.Rejected.Total() != 0 {
		t.Errorf("got %+v", b)
	}
	// Again with the same decoder, from what it remembers, and with a tenant.
	d := NewDecoder(Limits{})
	for i := range 3 {
		at := t0.Add(time.Duration(i) * time.Second)
		b, err := d.Decode(otlp.Encode(nil, batchAt("web-1", at)), "shop", at)
		if err != nil {
			t.Fatal(err)
		}
		with := batchAt("web-1", at)
		for i := range with {
			with[i].Labels = insert(with[i].Labels, "tenant", "shop")
		}
		same(t, b.Series, with)
	}
	if len(d.recent) != 6 {
		t.Errorf("%d sets of labels are remembered, want 6", len(d.recent))
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(otlp.Encode(nil, batchAt("web-1", t0)))
	f.Add(foreign(f))
	f.Add([]byte{})
	if recorded, err := os.ReadFile("testdata/agent.otlp"); err == nil {
		f.Add(recorded)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		d := NewDecoder(Limits{Points: 1000})
		first, err := d.Decode(body, "x", t0)
		if err != nil {
			return
		}
		for i := range first.Series {
			s := &first.Series[i]
			if !isMetricName(s.Name) || len(s.Labels) > 66 {
				t.Fatalf("series %q with %d labels", s.Name, len(s.Labels))
			}
			for n, l := range s.Labels {
				if !isLabelName(l.Name) || l.Value == "" || len(l.Value) > otlp.MaxLabelBytes || n > 0 &&
					s.Labels[n-1].Name >= l.Name {
					t.Fatalf("labels %q", s.Labels)
				}
			}
			if s.Time.Before(t0.Add(-25*time.Hour)) || s.Time.After(t0.Add(time.Hour)) {
				t.Fatalf("time %v", s.Time)
			}
		}
		again, err := d.Decode(bytes.Clone(body), "x", t0)
		if err != nil || len(again.Series) != len(first.Series) || again.Rejected != first.Rejected {
			t.Fatalf("the second time: %+v, %v", again, err)
		}
	})
}
