package ingest_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"outsight/internal/model"
	"outsight/internal/otlp"
	"outsight/internal/queue"
)

// One operation is a batch of 5,000 series, from the socket until it is acknowledged; the store follows beside it, and
// the last batch is in it when the clock stops.
func BenchmarkIngest(b *testing.B) {
	s := start(b, b.TempDir(), setup{queue: queue.Options{MaxBytes: 200 << 20}})
	var series []model.Series
	for i := range 5000 {
		v := model.Series{Name: fmt.Sprintf("m%02d_total", i/100), Kind: model.Counter, Value: float64(i),
			Labels: []model.Label{
				{Name: "host", Value: "web-1"}, {Name: "id", Value: fmt.Sprintf("%064d", i%100)},
				{Name: "image", Value: "registry.example/shop/cart:1.2.3"},
				{Name: "name", Value: "cart"}, {Name: "runtime", Value: "docker"}}}
		if i/100%10 == 0 {
			v.Kind, v.Histogram = model.HistogramSeries, &model.Histogram{Count: 30, Offset: -300, Buckets: make([]uint64, 30)}
			for n := range v.Histogram.Buckets {
				v.Histogram.Buckets[n] = 1
			}
		}
		series = append(series, v)
	}
	at, n := time.Now().Add(-20*time.Hour).Truncate(time.Second), 0
	var plain []byte
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		at, n = at.Add(time.Second), n+1
		for i := range series {
			series[i].Time = at
			series[i].Value += float64(i % 7)
		}
		plain = otlp.Encode(plain[:0], series)
		body := zstandard(b, plain, false)
		b.StartTimer()
		answer, text := s.post(b, body, header{"Content-Encoding": "zstd", otlp.BatchHeader: fmt.Sprintf("bench/%0*d",
			otlp.BatchNumberDigits, n)})
		if answer.StatusCode != http.StatusOK {
			b.Fatalf("%s %q", answer.Status, text)
		}
	}
	s.drained(b)
	b.ReportMetric(float64(b.N)*float64(len(series))/b.Elapsed().Seconds(), "samples/s")
}
