package otlp

import (
	"testing"

	colpb "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	"google.golang.org/protobuf/proto"

	"outsight/internal/frame"
	"outsight/internal/model"
)

// What Encode writes is what OpenTelemetry's own types read, point by point.
func TestEncodeIsOTLP(t *testing.T) {
	series := FromFrame(frame.Of(testSnapshot()), SeriesOptions{})
	var m colpb.ExportMetricsServiceRequest
	if err := proto.Unmarshal(Encode(nil, series), &m); err != nil {
		t.Fatal(err)
	}
	if len(m.ResourceMetrics) != 1 || len(m.ResourceMetrics[0].ScopeMetrics) != 1 {
		t.Fatalf("got %d resources", len(m.ResourceMetrics))
	}
	about := m.ResourceMetrics[0].Resource.Attributes
	if len(about) != 1 || about[0].Key != "host.name" || about[0].Value.GetStringValue() != "node-1" {
		t.Errorf("the resource is %v", about)
	}
	scope := m.ResourceMetrics[0].ScopeMetrics[0]
	if scope.Scope.Name != Scope {
		t.Errorf("the scope is %q", scope.Scope.Name)
	}
	next := 0
	take := func(name string) *model.Series {
		t.Helper()
		if next == len(series) {
			t.Fatalf("a point of %s is one too many", name)
		}
		s := &series[next]
		next++
		if s.Name != name {
			t.Fatalf("point %d is of %s, want %s", next, name, s.Name)
		}
		return s
	}
	number := func(name string, p *metricspb.NumberDataPoint) {
		s := take(name)
		if p.GetAsDouble() != s.Value || p.TimeUnixNano != uint64(s.Time.UnixNano()) || len(p.Attributes) != len(s.Labels)-1 {
			t.Errorf("%s: got %v, want %+v", name, p, s)
		}
		if s.Start.IsZero() != (p.StartTimeUnixNano == 0) || !s.Start.IsZero() &&
			p.StartTimeUnixNano != uint64(s.Start.UnixNano()) {
			t.Errorf("%s: start %d, want %v", name, p.StartTimeUnixNano, s.Start)
		}
	}
	for _, metric := range scope.Metrics {
		for _, p := range metric.GetGauge().GetDataPoints() {
			number(metric.Name, p)
		}
		if sum := metric.GetSum(); sum != nil {
			if !sum.IsMonotonic || sum.AggregationTemporality != metricspb.AggregationTemporality_AGGREGATION_TEMPORALITY_CUMULATIVE {
				t.Errorf("%s: not a cumulative counter", metric.Name)
			}
			for _, p := range sum.DataPoints {
				number(metric.Name, p)
			}
		}
		if h := metric.GetExponentialHistogram(); h != nil {
			if h.AggregationTemporality != metricspb.AggregationTemporality_AGGREGATION_TEMPORALITY_CUMULATIVE {
				t.Errorf("%s: not cumulative", metric.Name)
			}
			for _, p := range h.DataPoints {
				s := take(metric.Name)
				offset, counts := s.Histogram.Dense()
				if p.Scale != model.Scale || p.Count != s.Histogram.Count || p.ZeroCount != s.Histogram.ZeroCount ||
					p.GetSum() != float64(s.Histogram.SumNS)/1e9 || len(p.Positive.GetBucketCounts()) != len(counts) ||
					len(counts) > 0 && p.Positive.Offset != offset-1 || p.ZeroThreshold != model.ZeroThreshold.Seconds() {
					t.Errorf("%s: got %v, want %+v", metric.Name, p, s.Histogram)
				}
			}
		}
	}
	if next != len(series) {
		t.Errorf("%d points, want %d", next, len(series))
	}
}
