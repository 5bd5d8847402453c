package e2e

import (
	"fmt"
	"math"
	"os"
	"slices"
	"testing"

	"outsight/bench/cluster"
	"outsight/internal/place"
)

// TestPlacement deploys a placement on hosts of their own, and holds what was predicted to go between them against the
// counters of the hosts' interfaces. It takes all CPUs for a while: nothing that is timed runs beside it.
func TestPlacement(t *testing.T) {
	o := shared(t)
	server := "http://" + o.address
	c, err := cluster.Start(t.Context(), cluster.Options{Name: fmt.Sprintf("outsight-e2e-%d-cluster", os.Getpid()),
		Label: ownLabel, Hosts: 3, Data: 3, Workers: 3, Partition: 16 << 20, Rows: 8 << 20, Rate: 50e6})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := c.Known(t.Context(), server); err != nil {
		t.Fatal(err)
	}
	job := cluster.Job{Name: "scan", Scan: 8 << 20, Shuffle: 1 << 20}
	present := c.Spread()
	before := deployed(t, c, job, present)
	p, seconds, err := c.Problem(t.Context(), server, before, present, 0.6)
	if err != nil {
		t.Fatal(err)
	}
	result, err := place.Solve(t.Context(), p, place.Options{Weights: place.Presets["least-traffic"], Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	if len(result.Moves) == 0 || slices.Equal(result.Placement, present) {
		t.Fatalf("nothing is to be moved of %v", present)
	}
	after := deployed(t, c, job, result.Placement)
	for _, of := range []struct {
		when      string
		predicted float64
		run       cluster.Run
	}{
		{"before", result.Before.CrossBytes * seconds, before},
		{"after", result.After.CrossBytes * seconds, after},
	} {
		t.Logf("%s: %.0f bytes predicted, %.0f by the interfaces, with headers %d; %v", of.when, of.predicted,
			of.run.Sent.Payload(), of.run.Sent.Bytes, of.run.Took)
		if off := of.predicted/of.run.Sent.Payload() - 1; !(math.Abs(off) <= 0.1) {
			t.Errorf("%s: the prediction is off by %.1f %%, want at most 10 %%", of.when, 100*off)
		}
	}
	if after.Sent.Bytes >= before.Sent.Bytes {
		t.Errorf("%d bytes between hosts before, %d after", before.Sent.Bytes, after.Sent.Bytes)
	}
}

func deployed(t *testing.T, c *cluster.Cluster, job cluster.Job, at []int) cluster.Run {
	t.Helper()
	if err := c.Deploy(at); err != nil {
		t.Fatal(err)
	}
	r, err := c.Run(job)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
