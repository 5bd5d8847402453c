package main

import (
	"context"
	"reflect"
	"testing"
	"time"

	"outsight/internal/agent"
	"outsight/internal/frame"
	"outsight/internal/ingest"
	"outsight/internal/otlp"
)

// What an agent sees of this host is the same on the other side of OTLP: every series, label and bucket.
func TestRealFrameOverOTLP(t *testing.T) {
	host, err := agent.Open(agent.HostOptions{All: true})
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- host.Run(ctx) }()
	defer func() { stop(); <-ended }()
	var first, s *frame.Frame
	// The second frame has what happened since the first.
	for deadline := time.Now().Add(patience); s == nil || s == first; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("no two frames")
		}
		if s = host.Frame(); first == nil {
			first = s
		}
	}
	want := otlp.FromFrame(s, otlp.SeriesOptions{})
	b, err := ingest.NewDecoder(ingest.Limits{}).Decode(otlp.Encode(nil, want), "", time.Now())
	if err != nil || b.Rejected.Total() != 0 || len(b.Series) != len(want) {
		t.Fatalf("got %d of %d series, %v, %v", len(b.Series), len(want), b.Rejected, err)
	}
	histograms := 0
	for i := range want {
		g, w := b.Series[i], want[i]
		if !g.Time.Equal(w.Time) || !g.Start.Equal(w.Start) {
			t.Fatalf("%s: times %v and %v, want %v and %v", w.Name, g.Start, g.Time, w.Start, w.Time)
		}
		if w.Histogram != nil && len(w.Histogram.Buckets) > 0 {
			histograms++
		} else if w.Histogram != nil {
			g.Histogram.Buckets, g.Histogram.Offset = w.Histogram.Buckets, w.Histogram.Offset
		}
		g.Time, g.Start, g.Key = w.Time, w.Start, 0
		if !reflect.DeepEqual(g, w) {
			t.Fatalf("series %d: got %+v (%+v), want %+v (%+v)", i, g, g.Histogram, w, w.Histogram)
		}
	}
	if len(want) < 100 || histograms == 0 {
		t.Errorf("%d series and %d histograms show nothing", len(want), histograms)
	}
}
