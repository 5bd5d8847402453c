package main

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"outsight/internal/model"
	"outsight/internal/region"
)

// What a histogram cannot tell apart, from model.OverflowThreshold on, is a number that JSON does not have. Of how long
// connections lasted it is usual.
func TestCollectedPercentilesPastTheHistogram(t *testing.T) {
	var h model.Histogram
	h.Add(2 * model.OverflowThreshold)
	var e collectedEntry
	e.fill(region.Figures{{Metric: &region.Metric{Name: "duration", Per: uint64(time.Second)}, Histogram: &h}})
	text, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	if want := `"p99_seconds":"+Inf"`; !strings.Contains(string(text), want) {
		t.Errorf("%s: want %s in it", text, want)
	}
	var back collectedEntry
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	for series, h := range back.Histograms {
		if !math.IsInf(float64(*h.P99Seconds), 1) {
			t.Errorf("%s: p99 is %v after it was written and read", series, *h.P99Seconds)
		}
	}
}
