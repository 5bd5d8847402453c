package ingest

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	"google.golang.org/protobuf/proto"

	"outsight/internal/model"
	"outsight/internal/otlp"
)

// manyMetrics are so many counters of each of some containers.
func manyMetrics(metrics, containers int) (all []model.Series) {
	for m := range metrics {
		for c := range containers {
			all = append(all, model.Series{Name: fmt.Sprintf("m%d_total", m),
				Labels: hostLabels("web-1", "id", fmt.Sprint(c)), Kind: model.Counter, Time: t0, Value: 1})
		}
	}
	return all
}

// All metrics of a container have one set of labels in memory, and keys of their own, which stay the same.
func TestMetricsShareLabels(t *testing.T) {
	const metrics, containers = 30, 7
	d := NewDecoder(Limits{})
	body := otlp.Encode(nil, manyMetrics(metrics, containers))
	var before []uint64
	for range 3 {
		b, err := d.Decode(body, "", t0)
		if err != nil || len(b.Series) != metrics*containers {
			t.Fatal(err)
		}
		sets, keys := map[*model.Label]bool{}, []uint64{}
		for _, s := range b.Series {
			sets[&s.Labels[0]] = true
			keys = append(keys, s.Key)
		}
		if len(sets) != containers {
			t.Errorf("%d sets of labels, want %d", len(sets), containers)
		}
		if before != nil && !slices.Equal(keys, before) {
			t.Errorf("keys were %v and are %v", before, keys)
		}
		before = slices.Clone(keys)
		slices.Sort(keys)
		if keys[0] == 0 || len(slices.Compact(keys)) != metrics*containers {
			t.Errorf("keys %v of %d series", keys, metrics*containers)
		}
	}
	if len(d.recent) != containers {
		t.Errorf("%d sets are remembered, want %d", len(d.recent), containers)
	}
}

// Past the bounds, the sets are made anew, and no key comes to stand for another series.
func TestKeysStayTheirOwn(t *testing.T) {
	d := NewDecoder(Limits{Remembered: 10})
	of := map[uint64]string{}
	for round := range 40 {
		// Each round has another container besides the same ones, so that sets come and go.
		all := append(manyMetrics(5, 4),
			model.Series{Name: "m0_total", Labels: hostLabels("web-1", "id", fmt.Sprint("round", round)),
				Kind: model.Counter, Time: t0})
		if round == 20 { // names beyond what is remembered: all starts over
			for i := range cachedOrigins + 1 {
				all = append(all, model.Series{Name: fmt.Sprintf("n%d_total", i), Labels: hostLabels("web-1"),
					Kind: model.Counter, Time: t0})
			}
		}
		b, err := d.Decode(otlp.Encode(nil, all), "", t0)
		if err != nil || len(b.Series) != len(all) {
			t.Fatalf("%d of %d series, %v", len(b.Series), len(all), err)
		}
		for i := range b.Series {
			s := line(&b.Series[i])
			if known, ok := of[b.Series[i].Key]; ok && known != s || b.Series[i].Key == 0 {
				t.Fatalf("key %d stood for %s and stands for %s", b.Series[i].Key, known, s)
			}
			of[b.Series[i].Key] = s
		}
		if len(d.recent) > 10+6 {
			t.Fatalf("%d sets are remembered", len(d.recent))
		}
	}
}

// What is remembered of classic histograms, whose metrics may share a set, has the same bound.
func TestPartsAreBounded(t *testing.T) {
	d := NewDecoder(Limits{Remembered: 50})
	for round := range 30 {
		var all []*metricspb.Metric
		for i := range 20 {
			all = append(all, &metricspb.Metric{Name: fmt.Sprintf("h%d", round*20+i),
				Data: &metricspb.Metric_Histogram{Histogram: &metricspb.Histogram{
					AggregationTemporality: cumulative,
					DataPoints: []*metricspb.HistogramDataPoint{{TimeUnixNano: ns(t0), Count: 6, Sum: pointer(2),
						BucketCounts: []uint64{1, 2, 3}, ExplicitBounds: []float64{0.1, float64(round + 1)},
						Attributes: []*commonpb.KeyValue{text("a", "b")}}}}}})
		}
		body, err := proto.Marshal(foreignRequest(all...))
		if err != nil {
			t.Fatal(err)
		}
		b, err := d.Decode(body, "", t0)
		if err != nil || len(b.Series) != 20*5+1 {
			t.Fatalf("%d series, %v", len(b.Series), err)
		}
		held := 0
		for _, s := range d.recent {
			held += len(s.parts)
		}
		if held != d.divided || held > 50+20 {
			t.Fatalf("round %d: %d are held, %d are counted", round, held, d.divided)
		}
	}
}

// A batch that was given back and is used again has nothing of the one before, and takes as little.
func TestBatchesAreUsedAgain(t *testing.T) {
	at := func(round int) []model.Series {
		when := t0.Add(time.Duration(round) * time.Second)
		all := batchAt(fmt.Sprint("web-", round%2), when)
		for i := range 50 {
			h := &model.Histogram{Count: uint64(round + 31), Offset: int32(-300 + i), Buckets: make([]uint64, 31)}
			for n := range h.Buckets {
				h.Buckets[n] = 1
			}
			h.Buckets[round%31] += uint64(round)
			all = append(all, model.Series{Name: "x_seconds", Labels: hostLabels("web-1", "id", fmt.Sprint(i)),
				Kind: model.HistogramSeries, Time: when, Histogram: h})
		}
		return all[:len(all)-round%3]
	}
	used, fresh := NewDecoder(Limits{}), NewDecoder(Limits{})
	for round := range 20 {
		want := at(round)
		body := otlp.Encode(nil, want)
		// One that is held meanwhile must not be touched.
		held, err := fresh.Decode(body, "", t0.Add(time.Duration(round)*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		b, err := used.Decode(body, "", t0.Add(time.Duration(round)*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		same(t, b.Series, want)
		if b.Points != uint64(len(want)) || b.Rejected.Total() != 0 {
			t.Errorf("%d points, %v", b.Points, b.Rejected.String())
		}
		b.release()
		if _, err := used.Decode(otlp.Encode(nil, at(round+1)), "", t0); err != nil {
			t.Fatal(err)
		}
		same(t, held.Series, want)
	}
	var none *Batch
	none.release()
	great := newBatch(maxPooledSeries + 1)
	great.counts = make([]uint64, 0, maxPooledCounts+1)
	great.release()
	if b := newBatch(0); cap(b.Series) > maxPooledSeries || cap(b.counts) > maxPooledCounts ||
		!reflect.DeepEqual(*b, Batch{Series: b.Series, counts: b.counts, ours: true}) {
		t.Errorf("a great batch stayed: %d series, %d counts", cap(b.Series), cap(b.counts))
	}
}
