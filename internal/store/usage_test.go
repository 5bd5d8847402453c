package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"outsight/internal/model"
	"outsight/internal/quota"
)

// wideSeries are gauges of a tenant, each with labels of so many bytes.
func wideSeries(tenant string, from, n, labels, bytes int, seconds float64) (all []model.Series) {
	for i := range n {
		pairs := []string{TenantLabel, tenant}
		for l := range labels {
			pairs = append(pairs, fmt.Sprint("l", l), fmt.Sprintf("%d-%d-%s", from+i, l, strings.Repeat("x", bytes)))
		}
		s := counterAt(seconds, float64(i), "wide", pairs...)
		s.Kind = model.Gauge
		all = append(all, s)
	}
	return all
}

// appendSome appends what there is room for.
func appendSome(t testing.TB, s *Store, batch []model.Series) (rejected uint64) {
	t.Helper()
	err := s.AppendPart(context.Background(), batch)
	var some *RejectedError
	if err != nil && !errors.As(err, &some) {
		t.Fatal(err)
	}
	if some != nil {
		rejected = some.Samples
	}
	return rejected
}

// Labels of many bytes fill their bound long before that of series, and those that are there go on.
func TestLabelBytesAreBounded(t *testing.T) {
	const bound = 1 << 20
	dir := t.TempDir()
	s := open(t, dir, Options{LabelBytes: bound})
	appendAll(t, s, counterAt(0, 1, "before"))
	rejected := appendSome(t, s, wideSeries("", 0, 1000, 60, 100, 0))
	stats := s.Stats()
	if rejected < 800 || stats.NoRoom != rejected || stats.LabelBytes > bound || stats.LabelBytes < bound*9/10 ||
		stats.MaxLabelBytes != bound {
		t.Errorf("%d rejected, %+v", rejected, stats)
	}
	appendAll(t, s, counterAt(1, 2, "before"))
	want(t, s, "before", 1, "__name__=before 1:2")
	// After a restart the log's series count as before.
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir, Options{LabelBytes: bound})
	if again := s.Stats(); again.LabelBytes != stats.LabelBytes || again.Series != stats.Series || again.Unread != 0 {
		t.Errorf("got %+v, want %+v", again, stats)
	}
	if n := appendSome(t, s, wideSeries("", 0, 1000, 60, 100, 2)); n != rejected {
		t.Errorf("%d rejected after the restart, %d before", n, rejected)
	}
}

// A log with more labels than fit into memory, as one that was written without that bound, is opened without the
// largest of them.
func TestLogThatDoesNotFit(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	for i := range 20 {
		appendAll(t, s, counterAt(float64(i), float64(i), "small", "id", "a"), counterAt(float64(i), 1, "small", "id", "b"))
		if i%5 == 0 {
			appendSome(t, s, wideSeries("", i*100, 500, 40, 400, float64(i)))
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	small := Options{LabelBytes: 4 << 20}
	for range 2 { // the second time finds the log cut
		s = open(t, dir, small)
		stats := s.Stats()
		if stats.LabelBytes > replayFactor*small.LabelBytes || stats.Series < 100 {
			t.Errorf("got %+v", stats)
		}
		want(t, s, `count_over_time(small{id="a"}[1m])`, 19, "id=a 19:20")
		want(t, s, `small{id="a"}`, 19, "__name__=small id=a 19:19")
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	s = open(t, dir, small)
	if s.Stats().Unread != 0 {
		t.Errorf("got %+v", s.Stats())
	}
	appendAll(t, s, counterAt(30, 30, "small", "id", "a"))
	want(t, s, `count_over_time(small{id="a"}[1m])`, 30, "id=a 30:21")
}

// The series that are taken out of the log are counted.
func TestUnreadSeriesAreCounted(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	appendSome(t, s, wideSeries("", 0, 400, 40, 400, 0))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir, Options{LabelBytes: 1 << 20})
	if got := s.Stats(); got.Unread == 0 || got.Series+int(got.Unread) != 400 {
		t.Errorf("got %+v", got)
	}
}

// One tenant's flood of series leaves the others theirs, and is counted by tenant.
func TestTenantsShareTheStore(t *testing.T) {
	dir := t.TempDir()
	o := Options{MaxSeries: 1000, Tenants: &quota.Tenants{Names: []string{"flood", "shop", "small"}},
		Quotas: quota.Table{"small": {Series: 5}}}
	s := open(t, dir, o)
	appendSome(t, s, wideSeries("shop", 0, 50, 1, 1, 0))
	if n := appendSome(t, s, wideSeries("flood", 0, 5000, 1, 1, 0)); n != 5000-666 && n != 5000-667 && n != 5000-668 {
		t.Errorf("%d of the flood were rejected", n)
	}
	if n := appendSome(t, s, wideSeries("shop", 50, 100, 1, 1, 0)); n != 0 {
		t.Errorf("%d of another tenant were rejected", n)
	}
	if n := appendSome(t, s, wideSeries("small", 0, 8, 1, 1, 0)); n != 3 {
		t.Errorf("%d of a tenant with a limit of its own were rejected", n)
	}
	// After a restart the shares are as they were.
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir, o)
	series, labelBytes := s.Usages()
	if len(series) != 3 || series[1].Tenant != "shop" || series[1].Used != 150 || series[1].Guaranteed != 166 ||
		series[2].Used != 5 || labelBytes[1].Used == 0 {
		t.Errorf("got %+v, %+v", series, labelBytes)
	}
	room, roomBytes := s.Available("shop")
	if room < 16 || roomBytes < 1<<16 {
		t.Errorf("room for %d series, %d bytes", room, roomBytes)
	}
}

// What is new to the store is known before it is appended: series that it has, or had before a restart, are not.
func TestFresh(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	known := wideSeries("", 0, 10, 1, 1, 0)
	appendSome(t, s, known)
	for range 2 {
		all := append(wideSeries("", 0, 10, 1, 1, 1), wideSeries("", 100, 5, 1, 1, 1)...)
		f := s.CountNew(all, 3, 1<<20)
		if f.Series != 3 || f.Bytes == 0 || f.Rejected != 2 || f.FirstRejected != &all[13] || f.Unknown {
			t.Errorf("got %+v", f)
		}
		if f := s.CountNew(all, 100, f.Bytes); f.Series != 3 || f.Rejected != 2 {
			t.Errorf("got %+v", f)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = open(t, dir, Options{})
	}
}
