package api

import (
	"slices"
	"testing"

	"outsight/internal/otlp"
)

// TestWindowNames: each series of a graph is asked for once, and what takes the longest first, so that two readers
// share it.
func TestWindowNames(t *testing.T) {
	for key := range fields {
		if !slices.Contains(windowNames, key[0]) {
			t.Errorf("%s is not asked for", key[0])
		}
	}
	if sorted := slices.Sorted(slices.Values(windowNames)); len(slices.Compact(sorted)) != len(windowNames) {
		t.Errorf("some are asked for twice: %q", windowNames)
	}
	histograms := []string{otlp.ContainerRunQueueLatency, otlp.EdgeTransactionDuration, otlp.EdgeFirstByte,
		otlp.EdgeRoundTrip, otlp.EdgeConnectionDuration, otlp.EndpointDuration}
	first := slices.Clone(windowNames[:len(histograms)])
	slices.Sort(first)
	slices.Sort(histograms)
	if !slices.Equal(first, histograms) {
		t.Errorf("the first are %q, want %q", first, histograms)
	}
}
