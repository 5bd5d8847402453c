package recorder

import (
	"slices"
	"testing"

	"outsight/internal/model"
)

// BenchmarkFlight takes in ten seconds of ticks, of a hundred containers that are all busy.
func BenchmarkFlight(b *testing.B) {
	s := newScript()
	var samples []model.TickSample
	for i := range model.CgroupID(100) {
		s.add(&model.Container{ID: string(rune('a' + i)), Cgroup: 1000 + i})
		samples = append(samples, sample(1000+i, 1000))
	}
	f := NewFlight(s, s, FlightOptions{})
	b.ReportAllocs()
	for b.Loop() {
		for range 200 {
			for i := range samples {
				samples[i].CPUNS += 23_456_789
				samples[i].Waits += 12
				samples[i].SentBytes += 1234
			}
			s.tick(slices.Clone(samples)...)
		}
		f.drain()
	}
	b.ReportMetric(float64(f.bytes)/float64(max(s.next-f.blocks[0].FirstNumber, 1))/100, "B/sample")
}
