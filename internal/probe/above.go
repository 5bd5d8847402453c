package probe

import (
	"math"
	"slices"
	"time"

	"outsight/internal/clocks"
	"outsight/internal/model"
	"outsight/internal/stamp"
)

const (
	// leastWithin is the time of whose packets the fastest is that with which others are compared; leastEvery is how often
	// they are.
	leastWithin = time.Minute
	leastEvery  = 5 * time.Second
	// leastPackets must have come before anything is told.
	leastPackets = 20
)

// aboveLeast finds by how much packets take longer than the fastest of the last minute in the same direction. The offset of
// the two clocks is in all of them alike, and their drift is taken out. It is for one goroutine.
type aboveLeast struct {
	// began is when the first packet was sent; times of ways are in seconds since then. They have packets there and back, of
	// which the last fresh ones are not in the histograms yet; told is when the others came there.
	began       time.Time
	ways        [2][]clocks.Point
	fresh       int
	told, drift float64
	there, back model.Histogram
}

// add takes a packet that was answered.
func (a *aboveLeast) add(s *stamp.Sample) {
	if a.began.IsZero() {
		a.began = s.Sent
	}
	sent, received := s.Sent.Sub(a.began).Seconds(), s.Received.Sub(a.began).Seconds()
	there := clocks.Point{At: sent, Took: s.ReflectorReceived.Sub(s.Sent).Seconds()}
	back := clocks.Point{At: received, Took: s.Received.Sub(s.ReflectorSent).Seconds()}
	if len(a.ways[0]) > 0 && stepped(newest(a.ways[0]), newest(a.ways[1]), there, back) {
		// Nothing of before compares with what comes.
		*a = aboveLeast{began: s.Sent, there: a.there, back: a.back}
		there.At, back.At, sent = 0, received-sent, 0
	}
	a.ways[0], a.ways[1] = append(a.ways[0], there), append(a.ways[1], back)
	a.fresh++
	if sent-a.told >= leastEvery.Seconds() && len(a.ways[0]) >= leastPackets {
		a.tell(sent)
	}
}

func newest(points []clocks.Point) clocks.Point { return points[len(points)-1] }

// stepped reports whether a clock was set between two packets: each of them bounds by how much the second clock is ahead.
func stepped(there, back, nextThere, nextBack clocks.Point) bool {
	ahead := func(there, back clocks.Point) float64 { return (there.Took - back.Took) / 2 }
	trips := there.Took + back.Took + nextThere.Took + nextBack.Took
	return math.Abs(ahead(nextThere, nextBack)-ahead(there, back)) >
		trips/2+clocks.MaxDrift*math.Abs(nextThere.At-there.At)
}

// tell adds the packets since the last time.
func (a *aboveLeast) tell(now float64) {
	a.drift = clocks.Drift(a.ways[0], a.ways[1], a.drift)
	for way, to := range []*model.Histogram{&a.there, &a.back} {
		sign, least := 1-2*float64(way), math.Inf(1)
		took := func(p clocks.Point) float64 { return p.Took - sign*a.drift*p.At }
		for _, p := range a.ways[way] {
			least = min(least, took(p))
		}
		for _, p := range a.ways[way][len(a.ways[way])-a.fresh:] {
			to.Add(time.Duration((took(p) - least) * float64(time.Second)))
		}
		a.ways[way] = slices.DeleteFunc(a.ways[way], func(p clocks.Point) bool { return p.At <= now-leastWithin.Seconds() })
	}
	a.told, a.fresh = now, 0
}
