package ingest

import (
	"bytes"

	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// allocated is how many bytes f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// A few kilobytes that decompress to millions of empty messages build next to nothing, and are refused.
func TestEmptyMessages(t *testing.T) {
	const n = 10_500_000
	refused := func(what string, most uint64, f func() error) {
		t.Helper()
		var err error
		if bytes := allocated(func() { err = f() }); bytes > most {
			t.Errorf("%s: %d MiB were allocated, want at most %d", what, bytes>>20, most>>20)
		}
		if classify(err) != TooLarge {
			t.Errorf("%s: got %v, want a request that is too large", what, err)
		}
	}
	inJSON := []byte(`{"resourceMetrics":[{"scopeMetrics":[` + strings.Repeat("{},", n-1) + `{}]}]}`)
	refused("JSON scopes", 96<<20, func() error { _, err := jsonToProto(inJSON); return err })
	nested := func(fields ...protowire.Number) []byte {
		inner := bytes.Repeat([]byte{byte(fields[len(fields)-1]<<3 | 2), 0}, n)
		for _, field := range slices.Backward(fields[:len(fields)-1]) {
			inner = protowire.AppendBytes(protowire.AppendTag(nil, field, protowire.BytesType), inner)
		}
		return inner
	}
	for what, fields := range map[string][]protowire.Number{"resources": {1}, "scopes": {1, 2}, "metrics": {1, 2, 2},
		"points": {1, 2, 2, 5, 1}} {
		body := nested(fields...)
		refused(what, 64<<20, func() error { _, err := NewDecoder(Limits{}).Decode(body, "", t0); return err })
	}
}

// A request with little in it that becomes much is refused by what it becomes.
func TestBuiltBytesAreBounded(t *testing.T) {
	// 24 points of 4,096 bounds: each is 4,099 series with 60 labels of their own.
	var attributes []*commonpb.KeyValue
	for i := range 60 {
		attributes = append(attributes, text(fmt.Sprint("l", i), "v"))
	}
	p := &metricspb.HistogramDataPoint{TimeUnixNano: ns(t0), Attributes: attributes, BucketCounts: make([]uint64, 4097)}
	for i := range 4096 {
		p.ExplicitBounds = append(p.ExplicitBounds, float64(i))
	}
	var metrics []*metricspb.Metric
	for i := range 24 {
		metrics = append(metrics, &metricspb.Metric{Name: fmt.Sprint("h", i),
			Data: &metricspb.Metric_Histogram{Histogram: &metricspb.Histogram{
				AggregationTemporality: cumulative, DataPoints: []*metricspb.HistogramDataPoint{p}}}})
	}
	body, err := proto.Marshal(foreignRequest(metrics...))
	if err != nil {
		t.Fatal(err)
	}
	if bytes := allocated(func() { _, err = NewDecoder(Limits{}).Decode(body, "", t0) }); bytes > 128<<20 ||
		classify(err) != TooLarge {
		t.Errorf("%d MiB were allocated, %v", bytes>>20, err)
	}
	// Packed counts of buckets: a byte of the request is eight in memory.
	exponential := &metricspb.ExponentialHistogramDataPoint{TimeUnixNano: ns(t0),
		Positive: &metricspb.ExponentialHistogramDataPoint_Buckets{BucketCounts: make([]uint64, 4000)}}
	var points []*metricspb.ExponentialHistogramDataPoint
	for range 8000 {
		points = append(points, exponential)
	}
	body, err = proto.Marshal(foreignRequest(&metricspb.Metric{Name: "e", Data: &metricspb.Metric_ExponentialHistogram{
		ExponentialHistogram: &metricspb.ExponentialHistogram{AggregationTemporality: cumulative, DataPoints: points}}}))
	if err != nil {
		t.Fatal(err)
	}
	if bytes := allocated(func() { _, err = NewDecoder(Limits{}).Decode(body, "", t0) }); bytes > 160<<20 ||
		classify(err) != TooLarge {
		t.Errorf("%d MiB were allocated, %v", bytes>>20, err)
	}
}

// What a decoder remembers is bounded in bytes, however long the labels are.
func TestRememberedBytesAreBounded(t *testing.T) {
	d := NewDecoder(Limits{RememberedBytes: 4 << 20})
	for round := range 40 {
		var points []*metricspb.NumberDataPoint
		for i := range 100 {
			points = append(points, pointAt(t0, 1, text("long", fmt.Sprint(round, "-", i, strings.Repeat("x", 10_000)))))
		}
		m := foreignRequest(gauge("g", "", points...))
		m.ResourceMetrics[0].Resource.Attributes = append(m.ResourceMetrics[0].Resource.Attributes,
			text("big", fmt.Sprint(round, strings.Repeat("y", 60_000))))
		body, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		b, err := d.Decode(body, "", t0)
		if err != nil || len(b.Series) != 101 {
			t.Fatal(len(b.Series), err)
		}
		held := 0
		for _, sets := range []map[uint64]*labelSet{d.recent, d.older} {
			for _, s := range sets {
				held += len(s.raw)
			}
		}
		for key := range d.origins {
			held += len(key)
		}
		if held > 12<<20 {
			t.Fatalf("round %d: %d bytes are remembered", round, held)
		}
	}
}

// A resource that is large, in many scopes, is read once.
func TestManyScopesOfALargeResource(t *testing.T) {
	m := foreignRequest()
	m.ResourceMetrics[0].Resource.Attributes = append(m.ResourceMetrics[0].Resource.Attributes,
		text("big", strings.Repeat("x", 60_000)))
	for i := range 20_000 {
		m.ResourceMetrics[0].ScopeMetrics = append(m.ResourceMetrics[0].ScopeMetrics,
			&metricspb.ScopeMetrics{Metrics: []*metricspb.Metric{gauge("g", "", pointAt(t0, 1, text("i", fmt.Sprint(i))))}})
	}
	body, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	if bytes := allocated(func() { _, err = NewDecoder(Limits{}).Decode(body, "", t0) }); bytes > 100<<20 || err != nil {
		t.Errorf("%d MiB were allocated, %v", bytes>>20, err)
	}
}

// Labels of too many bytes, and values that are lists of too much, are rejected by point; the rest is taken.
func TestLabelBytes(t *testing.T) {
	deep := &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: "x"}}
	for range 2000 {
		deep = &commonpb.AnyValue{Value: &commonpb.AnyValue_ArrayValue{ArrayValue: &commonpb.ArrayValue{Values: []*commonpb.AnyValue{deep}}}}
	}
	wide := &commonpb.KeyValueList{}
	for range 20_000 {
		wide.Values = append(wide.Values, &commonpb.KeyValue{})
	}
	var many, long []*commonpb.KeyValue
	for i := range 60 {
		long = append(long, text(fmt.Sprint("l", i), strings.Repeat("x", 1000)))
	}
	for range 30_000 {
		many = append(many, &commonpb.KeyValue{})
	}
	body, err := proto.Marshal(foreignRequest(gauge("g", "", pointAt(t0, 1, long...), pointAt(t0, 1, many...),
		pointAt(t0, 1, &commonpb.KeyValue{Key: "deep", Value: deep}),
		pointAt(t0, 1, &commonpb.KeyValue{Key: "wide",
			Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_KvlistValue{KvlistValue: wide}}}),
		pointAt(t0, 7))))
	if err != nil {
		t.Fatal(err)
	}
	b := decode(t, body, "")
	if b.Rejected[BadLabels] != 4 || len(b.Series) != 2 || b.Series[0].Value != 7 {
		t.Errorf("got %d series, %s", len(b.Series), b.Rejected.String())
	}
}

// An exponential histogram whose counts do not fit, or whose buckets lie where no number does, contradicts itself.
func TestExponentialOverflow(t *testing.T) {
	type buckets = metricspb.ExponentialHistogramDataPoint_Buckets
	f := func(want int, p *metricspb.ExponentialHistogramDataPoint) {
		t.Helper()
		p.TimeUnixNano = ns(t0)
		body, err := proto.Marshal(foreignRequest(&metricspb.Metric{Name: "h", Data: &metricspb.Metric_ExponentialHistogram{
			ExponentialHistogram: &metricspb.ExponentialHistogram{AggregationTemporality: cumulative,
				DataPoints: []*metricspb.ExponentialHistogramDataPoint{p}}}},
			gauge("beside", "", pointAt(t0, 1))))
		if err != nil {
			t.Fatal(err)
		}
		b := decode(t, body, "")
		if got := int(b.Rejected[BadHistogram]); got != want || len(b.Series) != 3-want {
			t.Errorf("%v: %d rejected, %d series", p, got, len(b.Series))
		}
	}
	const half = 1 << 63
	f(1, &metricspb.ExponentialHistogramDataPoint{Positive: &buckets{BucketCounts: []uint64{half, half}}})
	f(1, &metricspb.ExponentialHistogramDataPoint{Count: 5, Positive: &buckets{BucketCounts: []uint64{half, half, 5}}})
	f(1, &metricspb.ExponentialHistogramDataPoint{ZeroCount: math.MaxUint64, Count: 0,
		Negative: &buckets{BucketCounts: []uint64{1}}})
	f(1, &metricspb.ExponentialHistogramDataPoint{Count: 1, Positive: &buckets{Offset: math.MinInt32,
		BucketCounts: []uint64{1}}})
	f(1, &metricspb.ExponentialHistogramDataPoint{Count: 1, Negative: &buckets{Offset: math.MaxInt32,
		BucketCounts: []uint64{1}}})
	f(1, &metricspb.ExponentialHistogramDataPoint{Count: 1, Scale: math.MinInt32,
		Positive: &buckets{BucketCounts: []uint64{1}}})
	f(1, &metricspb.ExponentialHistogramDataPoint{Count: 1, Scale: math.MaxInt32,
		Positive: &buckets{BucketCounts: []uint64{1}}})
	f(1, &metricspb.ExponentialHistogramDataPoint{Count: 1, Positive: &buckets{Offset: 2000, BucketCounts: []uint64{1}}})
	f(1, &metricspb.ExponentialHistogramDataPoint{Count: 1, ZeroCount: 1, ZeroThreshold: math.NaN()})
	f(1, &metricspb.ExponentialHistogramDataPoint{Count: 1, ZeroCount: 1, ZeroThreshold: -1})
	f(0, &metricspb.ExponentialHistogramDataPoint{Count: math.MaxUint64,
		Positive: &buckets{BucketCounts: []uint64{half, half - 1}}})
	// The finest scale has buckets of great numbers for ordinary values: 100,000 is in bucket 17,416,531.
	f(0, &metricspb.ExponentialHistogramDataPoint{Count: 1, Scale: 20, Positive: &buckets{Offset: 17_416_531,
		BucketCounts: []uint64{1}}})
	f(0, &metricspb.ExponentialHistogramDataPoint{Count: 1, Scale: 8, Positive: &buckets{Offset: -1074 << 8,
		BucketCounts: []uint64{1}}})
}

// Counts of a histogram with bounds that are more than there are, or do not fit, contradict it.
func TestClassicOverflow(t *testing.T) {
	for want, p := range []*metricspb.HistogramDataPoint{
		{Count: 3, BucketCounts: []uint64{1, 2}, ExplicitBounds: []float64{1}},
		{Count: 1, BucketCounts: []uint64{1 << 63, 1<<63 + 1}, ExplicitBounds: []float64{1}},
	} {
		p.TimeUnixNano = ns(t0)
		body, err := proto.Marshal(foreignRequest(&metricspb.Metric{Name: "h",
			Data: &metricspb.Metric_Histogram{Histogram: &metricspb.Histogram{
				AggregationTemporality: cumulative, DataPoints: []*metricspb.HistogramDataPoint{p}}}}))
		if err != nil {
			t.Fatal(err)
		}
		if b := decode(t, body, ""); int(b.Rejected[BadHistogram]) != want {
			t.Errorf("%v: %s", p, b.Rejected.String())
		}
	}
}
