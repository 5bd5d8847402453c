package ingest

import (
	"fmt"
	"testing"
	"time"

	"outsight/internal/model"
	"outsight/internal/otlp"
)

// One operation is a batch of 5,000 series of one host, a tenth of them histograms, as it comes every second.
func BenchmarkDecode(b *testing.B) {
	var series []model.Series
	for i := range 5000 {
		s := model.Series{Name: fmt.Sprint("m", i/100, "_total"), Kind: model.Counter, Time: t0, Value: float64(i),
			Labels: hostLabels("web-1", "id", fmt.Sprintf("%064d", i%100), "image", "registry.example/shop/cart:1.2.3",
				"name", "cart", "runtime", "docker")}
		if i%10 == 0 {
			s.Kind, s.Histogram = model.HistogramSeries, &model.Histogram{Count: 30, Offset: -300, Buckets: make([]uint64, 30)}
			for n := range s.Histogram.Buckets {
				s.Histogram.Buckets[n] = 1
			}
			s.Name = "h" + s.Name
		}
		series = append(series, s)
	}
	body := otlp.Encode(nil, series)
	d := NewDecoder(Limits{})
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		batch, err := d.Decode(body, "", t0.Add(time.Second))
		if err != nil || len(batch.Series) != len(series) {
			b.Fatal(err)
		}
		batch.release()
	}
	b.ReportMetric(float64(b.N)*float64(len(series))/b.Elapsed().Seconds(), "samples/s")
}
