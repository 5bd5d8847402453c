package fleet

import (
	"math"
	"testing"
	"time"

	"outsight/internal/frame"
	"outsight/internal/model"
)

// measured is a session to a peer, of n packets that took so long there and back; one in ten was lost on the way there.
func measured(peer string, n uint64, there, back time.Duration) model.ProbeSession {
	of := func(d time.Duration) *model.Histogram {
		return &model.Histogram{Count: n, SumNS: n * uint64(d), Offset: model.BucketOf(d), Buckets: []uint64{n}}
	}
	return model.ProbeSession{Peer: peer, Interval: time.Second, Answered: true, Sent: n, Received: n - n/10, Lost: n / 10,
		LostThere: n / 10, RoundTrip: of(there + back), Variation: of((there + back) / 10), There: of(there), Back: of(back),
		AboveThere: of(there / 4), AboveBack: of(back / 4),
		ClockError: time.Microsecond}
}

// probed is a frame of an agent with sessions.
func (a *agent) probed(at time.Duration, sessions ...model.ProbeSession) *frame.Frame {
	return a.Build(&model.Snapshot{Time: start.Add(at), Host: a.host, Probes: &model.ProbeSample{Sessions: sessions}})
}

// TestBetween: every number of the registry is known of a measured pair of hosts, and there is there for whoever asks.
func TestBetween(t *testing.T) {
	a := newAgent("a", start)
	w := windowOf(hostSpans("a", frame.Span{Before: a.probed(0, measured("b", 10, 1e6, 3e6)),
		After: a.probed(10*time.Second, measured("b", 110, 1e6, 3e6))}))
	between := Between(Probes(w))
	for _, n := range model.ProbeNumbers {
		if v, ok := between("a", "b", n.Key); !ok || math.IsNaN(v) {
			t.Errorf("%s from a to b is %v (%v)", n.Key, v, ok)
		}
		for _, pair := range [][2]string{{"a", "c"}, {"a", "a"}} {
			if v, ok := between(pair[0], pair[1], n.Key); ok {
				t.Errorf("%s of %v is %v", n.Key, pair, v)
			}
		}
	}
	for _, c := range []struct {
		from, to, key string
		want          float64
	}{
		{"a", "b", "probe_round_trip_p50", 4e-3}, {"b", "a", "probe_round_trip_p99", 4e-3},
		{"a", "b", "probe_delay_there_p50", 1e-3}, {"b", "a", "probe_delay_there_p50", 3e-3},
		{"a", "b", "probe_delay_back_p99", 3e-3}, {"b", "a", "probe_delay_back_p99", 1e-3},
		{"a", "b", "probe_above_minimum_there_p99", 0.25e-3}, {"b", "a", "probe_above_minimum_there_p99", 0.75e-3},
		{"a", "b", "probe_jitter", 0.4e-3}, {"b", "a", "probe_loss_ratio", 0.1},
		{"a", "b", "probe_lost_there", 10}, {"b", "a", "probe_lost_there", 0},
		{"a", "b", "probe_lost_back", 0}, {"b", "a", "probe_lost_back", 10},
	} {
		if got, ok := between(c.from, c.to, c.key); !ok || math.Abs(got-c.want) > model.RelativeError*c.want {
			t.Errorf("%s from %s to %s is %v (%v), want %v", c.key, c.from, c.to, got, ok, c.want)
		}
	}
}
