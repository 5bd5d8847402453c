package store

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"outsight/internal/model"
)

// batchOf is what a host with n series reports at once: a tenth are histograms.
func batchOf(n int) []model.Series {
	batch := make([]model.Series, 0, n)
	h := &model.Histogram{ZeroCount: 1, Count: 31, Offset: -300, Buckets: make([]uint64, 30)}
	for i := range h.Buckets {
		h.Buckets[i] = 1
	}
	for i := range n {
		id := fmt.Sprintf("%064d", i)
		if i%10 == 0 {
			batch = append(batch, histogramAt(0, h, "container_run_queue_latency_seconds", "id", id, "image",
				"registry.example/shop/cart:1.2.3", "name", "cart", "runtime", "docker"))
		} else {
			batch = append(batch, counterAt(0, 0, "container_cpu_usage_seconds_total", "id", id, "image",
				"registry.example/shop/cart:1.2.3", "name", "cart", "runtime", "docker"))
		}
	}
	return batch
}

func advance(batch []model.Series, step int) {
	for i := range batch {
		batch[i].Time = t0.Add(time.Duration(step) * time.Second)
		if batch[i].Histogram == nil {
			batch[i].Value += float64(i % 7)
		} else if i == 0 {
			h := batch[i].Histogram
			h.Buckets[step%30]++
			h.Count++
		}
	}
}

// One operation is one batch of 5,000 series, a host with about 100 busy containers.
func BenchmarkAppend(b *testing.B) {
	s := open(b, b.TempDir(), Options{})
	batch := batchOf(5000)
	step := 0
	b.ReportAllocs()
	before := cpuTime(b)
	for b.Loop() {
		step++
		advance(batch, step)
		appendAll(b, s, batch...)
	}
	b.ReportMetric(float64(len(batch))*float64(b.N)/(cpuTime(b)-before).Seconds(), "samples/cpu-s")
}

// churningHost is a host of which 5 % of the containers and edges end and begin in a minute.
type churningHost struct {
	name   string
	things [][]model.Series
	// begun counts the things that there ever were.
	begun int
	batch []model.Series
}

// A host here has so many containers and edges, of so many series each.
const hostThings, thingSeries = 100, 25

func newChurningHost(name string) *churningHost {
	h := &churningHost{name: name, things: make([][]model.Series, hostThings)}
	for i := range h.things {
		h.begin(i)
	}
	return h
}

// begin puts a new thing in the place of one that ends.
func (h *churningHost) begin(i int) {
	h.begun++
	labels := []model.Label{{Name: "host", Value: h.name}, {Name: "id", Value: fmt.Sprintf("%064d", h.begun)},
		{Name: "name", Value: "cart"}}
	h.things[i] = nil
	for n := range thingSeries {
		h.things[i] = append(h.things[i], model.Series{Name: fmt.Sprintf("thing_%d_total", n), Kind: model.Counter,
			Labels: labels})
	}
}

// at is the host's batch of a second. Each minute as many things end as churn says, evenly.
func (h *churningHost) at(second, churn int) []model.Series {
	for ended := second * churn / 60; h.begun-hostThings < ended; {
		h.begin(h.begun % hostThings)
	}
	h.batch = h.batch[:0]
	for _, series := range h.things {
		for i := range series {
			series[i].Time = t0.Add(time.Duration(second) * time.Second)
			series[i].Value++
		}
		h.batch = append(h.batch, series...)
	}
	return h.batch
}

// One operation is one second of 50 hosts with 2,500 series each.
func BenchmarkAppendHosts(b *testing.B) {
	for _, churn := range []int{0, hostThings * 5 / 100} {
		b.Run(fmt.Sprintf("%d of %d end in a minute", churn, hostThings), func(b *testing.B) {
			s := open(b, b.TempDir(), Options{MaxSeries: 1_000_000})
			var hosts []*churningHost
			for i := range 50 {
				hosts = append(hosts, newChurningHost(fmt.Sprint("host-", i)))
			}
			second, samples := 0, 0
			round := func() {
				second++
				for i, h := range hosts {
					batch := h.at(second+i, churn) // not all at the same second
					samples += len(batch)
					appendAll(b, s, batch...)
				}
			}
			round()
			samples = 0
			before := cpuTime(b)
			for b.Loop() {
				round()
			}
			b.ReportMetric(float64(samples)/(cpuTime(b)-before).Seconds(), "samples/cpu-s")
		})
	}
}

// cpuTime is what the process has used, user and kernel: other work on the machine does not
// count.
func cpuTime(b *testing.B) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func BenchmarkQuery(b *testing.B) {
	s := open(b, b.TempDir(), Options{})
	batch := batchOf(5000)
	for step := range 120 {
		advance(batch, step)
		appendAll(b, s, batch...)
	}
	for _, query := range []string{
		"rate(container_cpu_usage_seconds_total[10s])",
		"increase(container_run_queue_latency_seconds[10s] anchored)",
		"histogram_quantile(0.99, sum(rate(container_run_queue_latency_seconds[1m])))",
	} {
		b.Run(query, func(b *testing.B) {
			for b.Loop() {
				if _, err := s.Instant(context.Background(), query, at(119)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
