package store

import (
	"context"
	"fmt"
	"testing"
	"time"

	"outsight/internal/model"
)

func partAt(seconds, v float64, name string) model.Series {
	return model.Series{Name: name, Labels: []model.Label{{Name: "job", Value: "j"}}, Kind: model.Gauge,
		Time: at(seconds), Value: v}
}

func appendPart(t testing.TB, s *Store, series ...model.Series) {
	t.Helper()
	if err := s.AppendPart(context.Background(), series); err != nil {
		t.Fatal(err)
	}
}

// What comes in parts ends by nobody's silence but by its own marker; what agents send is not touched by it.
func TestParts(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	appendPart(t, s, partAt(0, 1, "a"))
	appendAll(t, s, counterAt(0, 1, "c"))
	appendPart(t, s, partAt(1, 2, "b"))
	appendAll(t, s, counterAt(1, 2, "c"))
	want(t, s, "a", 2, "__name__=a job=j 2:1")
	want(t, s, "b", 2, "__name__=b job=j 2:2")
	want(t, s, "c", 2, "__name__=c 2:2")
	appendPart(t, s, partAt(3, model.Stale(), "a"))
	want(t, s, "a", 4)
	// A host that a part names has not sent a batch by that.
	foreign := counterAt(5, 9, "x")
	appendPart(t, s, foreign)
	want(t, s, "c", 5, "__name__=c 5:2")
	if stats := s.Stats(); stats.Ended != 0 || stats.Sources != 2 {
		t.Errorf("got %+v", stats)
	}
}

// A part that nobody sends any more is forgotten after a while; what others send goes on.
func TestPartsAreForgotten(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	appendPart(t, s, partAt(0, 1, "gone"), partAt(0, 1, "kept"))
	for minute := range 20 {
		appendPart(t, s, partAt(float64(60*minute+60), 1, "kept"))
	}
	if stats := s.Stats(); stats.Live != 1 {
		t.Errorf("got %+v", stats)
	}
	appendPart(t, s, partAt(1201, 5, "gone"))
	want(t, s, "gone", 1201, "__name__=gone job=j 1201:5")
}

// A batch of which nothing has room forgets nothing.
func TestPartsWithoutRoom(t *testing.T) {
	s := open(t, t.TempDir(), Options{MaxSeries: 1})
	appendPart(t, s, partAt(0, 1, "first"))
	if err := s.AppendPart(context.Background(), []model.Series{partAt(1, 1, "second")}); err == nil {
		t.Error("a second series was taken")
	}
	appendPart(t, s, partAt(2, 3, "first"))
	want(t, s, "first", 2, "__name__=first job=j 2:3")
}

// Hosts of two tenants that have one name are two.
func TestTenantsHosts(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	appendAll(t, s, counterAt(0, 1, "c", "tenant", "a"), counterAt(0, 1, "d", "tenant", "a"))
	appendAll(t, s, counterAt(1, 1, "c", "tenant", "b"))
	want(t, s, "d", 1, "__name__=d tenant=a 1:1")
	appendAll(t, s, counterAt(2, 1, "c", "tenant", "a"))
	want(t, s, "d", 2)
}

func TestForeignHistogramIsStored(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	h := &model.ForeignHistogram{Scale: 0, Count: 11, ZeroCount: 1, Sum: 40, ZeroThreshold: 0.5,
		PositiveOffset: 2, Positive: []uint64{3, 0, 5}, NegativeOffset: 1, Negative: []uint64{2}}
	appendPart(t, s, model.Series{Name: "bytes", Kind: model.HistogramSeries, Time: at(0), Foreign: h})
	want(t, s, "histogram_count(bytes)", 0, "0:11")
	want(t, s, "histogram_sum(bytes)", 0, "0:40")
	// Bucket 2 of scale 0 ends at 4, bucket 4 at 16; six of eleven are up to 4.
	want(t, s, "histogram_fraction(-Inf, 4, bytes) * 11", 0, "0:6")
	want(t, s, "histogram_fraction(8, 16, bytes) * 11", 0, "0:5")
}

// Sync writes while batches come, and fails for nothing.
func TestSync(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	for i := range 200 {
		var batch []model.Series
		for n := range 500 {
			batch = append(batch, counterAt(float64(i), float64(i), fmt.Sprint("c", n, "_", time.Duration(n)), "id", "x"))
		}
		appendAll(t, s, batch...)
		if err := s.Sync(); err != nil {
			t.Fatal(err)
		}
	}
}
