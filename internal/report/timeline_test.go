package report

import (
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"outsight/internal/csvy"
)

// TestWholeRowsAreShared: rows without gaps are taken as they are, and are the same series as those that are copied
// because something is missing in one column. What comes after them does not change what they were made of.
func TestWholeRowsAreShared(t *testing.T) {
	recording := func(first int, memory float64) *csvy.Recording {
		r := &csvy.Recording{Head: csvy.Head{Started: time.Unix(100, 0), Part: first, Columns: []csvy.Column{
			csvy.ColumnNamed(csvy.DueNS), csvy.ColumnNamed(csvy.LatenessNS), csvy.ColumnNamed(csvy.CPUNS),
			csvy.ColumnNamed(csvy.MemoryBytes)}}, Values: make([][]float64, 4)}
		for i := range 4 {
			n := float64(first + i)
			r.At = append(r.At, 0) // the monotonic clock says when
			for c, v := range []float64{n * 1e9, 10, n * n, memory + n} {
				r.Values[c] = append(r.Values[c], v)
			}
		}
		return r
	}
	whole, missing := recording(1, 50), recording(1, 50)
	missing.Values[3][2] = math.NaN()
	shared, copied := newTimeline([]*csvy.Recording{whole}), newTimeline([]*csvy.Recording{missing})
	if &shared.of(csvy.CPUNS).v[0] != &whole.Values[2][0] || &copied.of(csvy.CPUNS).v[0] == &missing.Values[2][0] {
		t.Error("whole rows are copied, or rows with gaps are not")
	}
	if !slices.Equal(shared.t, copied.t) || !reflect.DeepEqual(shared.of(csvy.CPUNS), copied.of(csvy.CPUNS)) {
		t.Errorf("%v and %v, want the same", shared.of(csvy.CPUNS), copied.of(csvy.CPUNS))
	}
	if got := copied.of(csvy.MemoryBytes).t; len(got) != 3 || !shared.monotonic || !copied.monotonic {
		t.Errorf("the column with a gap has %d values, want 3", len(got))
	}
	both := newTimeline([]*csvy.Recording{whole, recording(5, math.NaN())})
	if len(both.t) != 8 || len(both.of(csvy.CPUNS).v) != 8 || len(both.of(csvy.MemoryBytes).v) != 4 || len(whole.Values[2]) != 4 {
		t.Errorf("two files have %d rows, %d and %d values", len(both.t), len(both.of(csvy.CPUNS).v), len(both.of(csvy.MemoryBytes).v))
	}
}

func TestUnion(t *testing.T) {
	f := func(a, b, want []int64) {
		t.Helper()
		if got := union(a, b); !slices.Equal(got, want) {
			t.Errorf("%v and %v are %v, want %v", a, b, got, want)
		}
	}
	f(nil, nil, nil)
	f(nil, []int64{1, 2}, []int64{1, 2})
	f([]int64{1, 2}, nil, []int64{1, 2})
	f([]int64{1, 2}, []int64{1, 2}, []int64{1, 2})
	f([]int64{1, 4, 5}, []int64{2, 4, 9}, []int64{1, 2, 4, 5, 9})
}
