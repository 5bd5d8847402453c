package probe

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"outsight/internal/clocks/simulated"
	"outsight/internal/model"
	"outsight/internal/stamp"
)

// TestAboveLeast has packets between hosts whose clocks are far apart, drift and are set. What a queue there adds is told
// there and not back, to within 20 µs beside what the histogram rounds.
func TestAboveLeast(t *testing.T) {
	t.Parallel()
	const jitter = 100e-6 // of five in a thousand packets a direction, about
	fills := func(at float64) float64 { return math.Mod(at, 7) * 1e-3 }
	for name, c := range map[string]struct {
		simulated.Hosts
		// setAt is when the second host's clock is set, by so many seconds.
		setAt, by           float64
		wantThere, wantBack float64
	}{
		"far apart":       {Hosts: simulated.Hosts{Offset: -3600, There: 1e-3, Back: 5e-3}},
		"drifting":        {Hosts: simulated.Hosts{Offset: 0.2, Drift: 50.3e-6, There: 1e-3, Back: 1e-3}},
		"drifting back":   {Hosts: simulated.Hosts{Drift: -149e-6, There: 200e-6, Back: 10e-3}},
		"a queue":         {Hosts: simulated.Hosts{Drift: 33e-6, There: 1e-3, Back: 1e-3, Queue: fills}, wantThere: 7e-3},
		"set":             {Hosts: simulated.Hosts{Drift: 33e-6, There: 1e-3, Back: 1e-3}, setAt: 31, by: -1},
		"set, and queues": {Hosts: simulated.Hosts{There: 1e-3, Back: 5e-3, Queue: fills}, setAt: 31, by: 20e-3, wantThere: 7e-3},
	} {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			var a aboveLeast
			start := time.Unix(1_800_000_000, 0)
			const packets = 1800
			exact := model.Histogram{}
			for i := range packets {
				at := float64(i) * 0.1
				there, back := c.Take(r, at)
				if c.setAt > 0 && at > c.setAt {
					c.Offset += c.by
					c.setAt = 0
				}
				time := func(at float64) time.Time { return start.Add(time.Duration(at * 1e9)) }
				arrived := at + there
				s := stamp.Sample{Sent: time(at), ReflectorReceived: time(arrived + c.Ahead(arrived)),
					ReflectorSent: time(arrived + c.Ahead(arrived)), Received: time(arrived + back)}
				a.add(&s)
				if c.Queue != nil {
					exact.Add(durationOf(c.Queue(at)))
				}
			}
			for _, way := range []struct {
				name string
				got  *model.Histogram
				want float64
			}{{"there", &a.there, c.wantThere}, {"back", &a.back, c.wantBack}} {
				if missing := packets - int(way.got.Count); missing < 0 || missing > 120 {
					t.Errorf("%s: %d of %d packets are told", way.name, way.got.Count, packets)
				}
				if p99 := way.got.Quantile(0.99); p99 < way.want*0.98-20e-6 || p99 > way.want*(1+model.RelativeError)+jitter+20e-6 {
					t.Errorf("%s: the p99 is %v above the least, want %v", way.name, p99, way.want)
				}
			}
			if c.Queue != nil {
				if got, want := a.there.Quantile(0.5), exact.Quantile(0.5); math.Abs(got-want) > 40e-6+want*2*model.RelativeError {
					t.Errorf("there: the median is %v above the least, want %v", got, want)
				}
			}
		})
	}
}

func durationOf(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }
