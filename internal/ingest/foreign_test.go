package ingest

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	colpb "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"outsight/internal/model"
)

func text(key, value string) *commonpb.KeyValue {
	return &commonpb.KeyValue{Key: key, Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: value}}}
}

const (
	cumulative = metricspb.AggregationTemporality_AGGREGATION_TEMPORALITY_CUMULATIVE
	delta      = metricspb.AggregationTemporality_AGGREGATION_TEMPORALITY_DELTA
)

func foreignRequest(metrics ...*metricspb.Metric) *colpb.ExportMetricsServiceRequest {
	return &colpb.ExportMetricsServiceRequest{ResourceMetrics: []*metricspb.ResourceMetrics{{
		Resource: &resourcepb.Resource{Attributes: []*commonpb.KeyValue{
			text("service.name", "cart"), text("service.namespace", "shop"), text("service.instance.id", "i-1"),
			text("host.name", "web-1"),
		}},
		ScopeMetrics: []*metricspb.ScopeMetrics{{Scope: &commonpb.InstrumentationScope{Name: "some.library"},
			Metrics: metrics}},
	}}}
}

func gauge(name, unit string, points ...*metricspb.NumberDataPoint) *metricspb.Metric {
	return &metricspb.Metric{Name: name, Unit: unit,
		Data: &metricspb.Metric_Gauge{Gauge: &metricspb.Gauge{DataPoints: points}}}
}

func sum(name, unit string, monotonic bool, temporality metricspb.AggregationTemporality,
	points ...*metricspb.NumberDataPoint) *metricspb.Metric {
	return &metricspb.Metric{Name: name, Unit: unit, Data: &metricspb.Metric_Sum{Sum: &metricspb.Sum{
		IsMonotonic: monotonic, AggregationTemporality: temporality, DataPoints: points}}}
}

func pointAt(at time.Time, v float64, attributes ...*commonpb.KeyValue) *metricspb.NumberDataPoint {
	return &metricspb.NumberDataPoint{TimeUnixNano: uint64(at.UnixNano()), Attributes: attributes,
		Value: &metricspb.NumberDataPoint_AsDouble{AsDouble: v}}
}

func ns(at time.Time) uint64 { return uint64(at.UnixNano()) }

func pointer(v float64) *float64 { return &v }

func allKinds() *colpb.ExportMetricsServiceRequest {
	whole := &metricspb.NumberDataPoint{TimeUnixNano: ns(t0), Value: &metricspb.NumberDataPoint_AsInt{AsInt: -5}}
	list := &commonpb.KeyValue{Key: "list",
		Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_ArrayValue{ArrayValue: &commonpb.ArrayValue{
			Values: []*commonpb.AnyValue{{Value: &commonpb.AnyValue_IntValue{IntValue: 1}},
				{Value: &commonpb.AnyValue_BoolValue{BoolValue: true}}}}}}}
	number := &commonpb.KeyValue{Key: "http.status",
		Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_IntValue{IntValue: 200}}}
	return foreignRequest(
		gauge("queue.length", "{item}", whole),
		gauge("room.temperature", "Cel", pointAt(t0, 21.5, list, number)),
		sum("http.requests", "1", true, cumulative, pointAt(t0, 7, number)),
		sum("active", "", false, cumulative, pointAt(t0, 3)),
		sum("changes", "", true, delta, pointAt(t0, 3), pointAt(t0, 4)),
		&metricspb.Metric{Name: "rpc.duration", Unit: "s", Data: &metricspb.Metric_Histogram{Histogram: &metricspb.Histogram{
			AggregationTemporality: cumulative, DataPoints: []*metricspb.HistogramDataPoint{{
				TimeUnixNano: ns(t0), Count: 6, Sum: pointer(2.5), BucketCounts: []uint64{1, 2, 3},
				ExplicitBounds: []float64{0.1, 2}}}}}},
		&metricspb.Metric{Name: "payload", Unit: "By",
			Data: &metricspb.Metric_ExponentialHistogram{ExponentialHistogram: &metricspb.ExponentialHistogram{
				AggregationTemporality: cumulative, DataPoints: []*metricspb.ExponentialHistogramDataPoint{{
					TimeUnixNano: ns(t0), Count: 7, Sum: pointer(9), Scale: 9, ZeroCount: 1,
					Positive: &metricspb.ExponentialHistogramDataPoint_Buckets{Offset: -3, BucketCounts: []uint64{1, 1, 1, 2}},
					Negative: &metricspb.ExponentialHistogramDataPoint_Buckets{Offset: 4, BucketCounts: []uint64{1}}}}}}},
		&metricspb.Metric{Name: "gc.pause", Unit: "s", Data: &metricspb.Metric_Summary{Summary: &metricspb.Summary{
			DataPoints: []*metricspb.SummaryDataPoint{{TimeUnixNano: ns(t0), Count: 4, Sum: 8,
				QuantileValues: []*metricspb.SummaryDataPoint_ValueAtQuantile{{Quantile: 0.5, Value: 1},
					{Quantile: 0.99, Value: 3}}}}}}},
	)
}

func foreign(t testing.TB) []byte {
	t.Helper()
	b, err := proto.Marshal(allKinds())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// line is a series as people write it.
func line(s *model.Series) string {
	var labels []string
	for _, l := range s.Labels {
		labels = append(labels, fmt.Sprintf("%s=%q", l.Name, l.Value))
	}
	kind := map[model.SeriesKind]string{model.Counter: "counter", model.Gauge: "gauge",
		model.HistogramSeries: "histogram"}[s.Kind]
	value := fmt.Sprint(s.Value)
	if s.Foreign != nil {
		value = fmt.Sprintf("%+v", *s.Foreign)
	}
	return fmt.Sprintf("%s{%s} %s %s", s.Name, strings.Join(labels, ","), kind, value)
}

const who = `instance="i-1",job="shop/cart"`

var allKindsWanted = []string{
	`queue_length{` + who + `} gauge -5`,
	`room_temperature_celsius{http_status="200",` + who + `,list="[1,true]"} gauge 21.5`,
	`http_requests_total{http_status="200",` + who + `} counter 7`,
	`active{` + who + `} gauge 3`,
	`rpc_duration_seconds_bucket{` + who + `,le="0.1"} counter 1`,
	`rpc_duration_seconds_bucket{` + who + `,le="2"} counter 3`,
	`rpc_duration_seconds_bucket{` + who + `,le="+Inf"} counter 6`,
	`rpc_duration_seconds_count{` + who + `} counter 6`,
	`rpc_duration_seconds_sum{` + who + `} counter 2.5`,
	// Buckets -3, -2, -1, 0 of scale 9 are -2, -1, -1, 0 of scale 8, which Prometheus counts from 1.
	`payload_bytes{` + who + `} histogram {Scale:8 Count:7 ZeroCount:1 Sum:9 ZeroThreshold:0 PositiveOffset:-1 NegativeOffset:3 Positive:[1 2 2] Negative:[1]}`,
	`gc_pause_seconds{` + who + `,quantile="0.5"} gauge 1`,
	`gc_pause_seconds{` + who + `,quantile="0.99"} gauge 3`,
	`gc_pause_seconds_count{` + who + `} counter 4`,
	`gc_pause_seconds_sum{` + who + `} counter 8`,
	`target_info{host_name="web-1",` + who + `} gauge 1`,
}

func TestForeignKinds(t *testing.T) {
	check := func(b *Batch) {
		t.Helper()
		var got []string
		for i := range b.Series {
			got = append(got, line(&b.Series[i]))
			if !b.Series[i].Time.Equal(t0) {
				t.Errorf("%s is of %v", got[i], b.Series[i].Time)
			}
		}
		if !slices.Equal(got, allKindsWanted) {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(allKindsWanted, "\n"))
		}
		if b.Rejected[Delta] != 2 || b.Rejected.Total() != 2 || b.Points != 9 || b.ours {
			t.Errorf("%d points, rejected: %v", b.Points, b.Rejected.String())
		}
	}
	check(decode(t, foreign(t), ""))
	asJSON, err := protojson.MarshalOptions{UseEnumNumbers: true}.Marshal(allKinds())
	if err != nil {
		t.Fatal(err)
	}
	body, err := jsonToProto(asJSON)
	if err != nil {
		t.Fatal(err)
	}
	check(decode(t, body, ""))
}

func TestRejections(t *testing.T) {
	f := func(want Reason, m *metricspb.Metric) {
		t.Helper()
		body, err := proto.Marshal(foreignRequest(m))
		if err != nil {
			t.Fatal(err)
		}
		b := decode(t, body, "")
		if b.Rejected[want] != 1 || b.Rejected.Total() != 1 || len(b.Series) > 1 {
			t.Errorf("want one %v: got %v and %d series", want, b.Rejected, len(b.Series))
		}
	}
	f(TooOld, gauge("g", "", pointAt(time.Unix(0, 0), 1)))
	f(TooOld, gauge("g", "", pointAt(t0.Add(-25*time.Hour), 1)))
	f(Future, gauge("g", "", pointAt(t0.Add(time.Hour), 1)))
	f(Future, gauge("g", "", &metricspb.NumberDataPoint{TimeUnixNano: math.MaxUint64}))
	f(BadName, gauge("", "", pointAt(t0, 1)))
	f(BadName, gauge(strings.Repeat("g", 600), "", pointAt(t0, 1)))
	f(BadLabels, gauge("g", "", pointAt(t0, 1, text("", "x"))))
	f(BadLabels, gauge("g", "", pointAt(t0, 1, text(strings.Repeat("l", 600), "x"))))
	var many []*commonpb.KeyValue
	for i := range 65 {
		many = append(many, text(fmt.Sprint("l", i), "x"))
	}
	f(BadLabels, gauge("g", "", pointAt(t0, 1, many...)))
	explicit := func(p *metricspb.HistogramDataPoint) *metricspb.Metric {
		p.TimeUnixNano = ns(t0)
		return &metricspb.Metric{Name: "h", Data: &metricspb.Metric_Histogram{Histogram: &metricspb.Histogram{
			AggregationTemporality: cumulative, DataPoints: []*metricspb.HistogramDataPoint{p}}}}
	}
	f(BadHistogram, explicit(&metricspb.HistogramDataPoint{BucketCounts: []uint64{1, 2}}))
	f(BadHistogram, explicit(&metricspb.HistogramDataPoint{BucketCounts: []uint64{1, 2, 3},
		ExplicitBounds: []float64{2, 1}}))
	f(BadHistogram, explicit(&metricspb.HistogramDataPoint{BucketCounts: []uint64{1, 2},
		ExplicitBounds: []float64{math.NaN()}}))
	exponential := func(p *metricspb.ExponentialHistogramDataPoint) *metricspb.Metric {
		p.TimeUnixNano = ns(t0)
		return &metricspb.Metric{Name: "h",
			Data: &metricspb.Metric_ExponentialHistogram{ExponentialHistogram: &metricspb.ExponentialHistogram{
				AggregationTemporality: cumulative, DataPoints: []*metricspb.ExponentialHistogramDataPoint{p}}}}
	}
	f(BadHistogram, exponential(&metricspb.ExponentialHistogramDataPoint{Scale: -5}))
	f(BadHistogram, exponential(&metricspb.ExponentialHistogramDataPoint{Scale: 21}))
	f(BadHistogram, exponential(&metricspb.ExponentialHistogramDataPoint{Count: 2, ZeroCount: 1}))
	f(BadHistogram, exponential(&metricspb.ExponentialHistogramDataPoint{Count: 1,
		Positive: &metricspb.ExponentialHistogramDataPoint_Buckets{Offset: math.MaxInt32, BucketCounts: []uint64{1}}}))
}
