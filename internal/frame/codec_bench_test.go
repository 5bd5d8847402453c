package frame

import (
	"fmt"
	"testing"
)

// mapProjection is what a service map reads.
var mapProjection = NewProjection(map[TableID][]string{Hosts: nil, Containers: {"cpu", "threads", "memory_usage"},
	Edges: {"request_bytes", "response_bytes", "transactions", "latency", "transfers", "held", "failures_refused", "resets",
		"retransmits"}})

func benchmarkSizes(b *testing.B, run func(b *testing.B, key, f *Frame)) {
	for _, edges := range []int{200, 1000} {
		key, f := sampleFrames(50, edges, 1)
		b.Run(fmt.Sprintf("edges=%d", edges), func(b *testing.B) {
			b.ReportAllocs()
			defer reportCPU(b)()
			run(b, key, f)
		})
	}
}

func BenchmarkEncodeKey(b *testing.B) {
	benchmarkSizes(b, func(b *testing.B, key, _ *Frame) {
		var data []byte
		for b.Loop() {
			data = Encode(data[:0], key, nil)
		}
		b.ReportMetric(float64(len(data)), "bytes")
	})
}

func BenchmarkEncodeDelta(b *testing.B) {
	benchmarkSizes(b, func(b *testing.B, key, f *Frame) {
		var data []byte
		for b.Loop() {
			data = Encode(data[:0], f, key)
		}
		b.ReportMetric(float64(len(data)), "bytes")
	})
}

func benchmarkDecode(b *testing.B, data []byte, key *Frame, only *Projection) {
	for b.Loop() {
		if _, err := DecodeOnly(data, key, only); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeKey(b *testing.B) {
	benchmarkSizes(b, func(b *testing.B, key, _ *Frame) { benchmarkDecode(b, Encode(nil, key, nil), nil, nil) })
}

func BenchmarkDecodeDelta(b *testing.B) {
	benchmarkSizes(b, func(b *testing.B, key, f *Frame) { benchmarkDecode(b, Encode(nil, f, key), key, nil) })
}

func BenchmarkDecodeKeyForMap(b *testing.B) {
	benchmarkSizes(b, func(b *testing.B, key, _ *Frame) { benchmarkDecode(b, Encode(nil, key, nil), nil, mapProjection) })
}

func BenchmarkDecodeDeltaForMap(b *testing.B) {
	benchmarkSizes(b, func(b *testing.B, key, f *Frame) {
		decoded, err := DecodeOnly(Encode(nil, key, nil), nil, mapProjection)
		if err != nil {
			b.Fatal(err)
		}
		benchmarkDecode(b, Encode(nil, f, key), decoded, mapProjection)
	})
}
