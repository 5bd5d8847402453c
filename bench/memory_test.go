//go:build long

package main

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"outsight/internal/model"
	"outsight/internal/store"
)

// TestMemoryPerSeries measures what a series takes in the memory of the embedded store, in bytes that a collection
// leaves, and compares it with store.SeriesBytes. The clock is the test's own: so chunks leave the heap and blocks are
// written when they are in an hour of use, whatever the speed of the machine.
func TestMemoryPerSeries(t *testing.T) {
	// A block is written after 45, 75, 105... minutes: most is in memory just before that.
	f := func(what string, labelBytes int, churn float64, minutes ...int) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			a := newSimulated(0)
			a.at, a.churn = time.Now(), churn
			lengthen(a.series, labelBytes)
			empty := heapBytes()
			st, err := store.Open(t.TempDir(), store.Options{MaxSeries: 100_000})
			if err != nil {
				t.Fatal(err)
			}
			defer st.Close()
			for _, minute := range minutes {
				for a.number <= minute*60 {
					a.grow()
					if err := st.Append(t.Context(), a.series); err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Second)
				}
				taken, stats := heapBytes()-empty, st.Stats()
				each := taken / int64(stats.Series)
				if labelBytes == 0 && each > store.SeriesBytes {
					t.Errorf("%s: a series takes %d B of memory after %d minutes, more than store.SeriesBytes, %d", what, each,
						minute, store.SeriesBytes)
				}
				fmt.Printf("memory: %s, %d min|%d|%d live and %d ended series, with %d B of labels each; %d B for each live one\n",
					what, minute, each, stats.Live, stats.Series-stats.Live, stats.LabelBytes/int64(stats.Series),
					taken/int64(stats.Live))
			}
			runtime.KeepAlive(a)
		})
	}
	f("no series ends", 0, 0, 0, 5, 74)
	f("a label of 1,000 B more", 1000, 0, 0)
	f("5 % of the edges end each minute", 0, benchChurn, 44)
}

// lengthen adds a label of n bytes, different for each set of labels, as an entity's are.
func lengthen(series []model.Series, n int) {
	if n == 0 {
		return
	}
	number := map[string]int{}
	for i := range series {
		s := &series[i]
		set := fmt.Sprint(s.Labels)
		if _, ok := number[set]; !ok {
			number[set] = len(number)
		}
		s.Labels = model.SortedLabels(append(s.Labels[:len(s.Labels):len(s.Labels)],
			model.Label{Name: "z", Value: fmt.Sprint(strings.Repeat("x", n-5), number[set]+10_000)})...)
	}
}

// heapBytes is what is in use on the heap after collections; the second one empties pools.
func heapBytes() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
