package main

import "testing"

// TestEdgesOfAContainer: both flags raise what one container may add in an hour, each as far as the other allows.
func TestEdgesOfAContainer(t *testing.T) {
	for _, c := range []struct{ maxEdges, newEdges, want int }{
		{0, upSeries * newEdgeShare / 100 / seriesOfAnEdge, 256},
		{0, 100_000, 256},
		{16_384, 100_000, 2048},
		{16_384, 4000, 1000},
		{16_384, 3, 1},
	} {
		if got := containerEdges(c.maxEdges, c.newEdges); got != c.want {
			t.Errorf("with --max-edges %d and %d new edges of all: %d, want %d", c.maxEdges, c.newEdges, got, c.want)
		}
	}
}
