package otlp

import (
	"google.golang.org/protobuf/encoding/protowire"

	"outsight/internal/model"
)

// Scope is the name of the instrumentation scope of what Encode writes. A receiver that knows it takes
// names of metrics and labels as they are, and has the very series that were encoded.
const Scope = "outsight"

// HostAttribute is the attribute of a resource that holds the label host.
const HostAttribute = "host.name"

// Field numbers of opentelemetry.proto, as far as this package writes them.
const (
	requestResources                                  = 1
	resourceMetricsResource, resourceMetricsScope     = 1, 2
	resourceAttributes                                = 1
	scopeMetricsScope, scopeMetricsMetrics            = 1, 2
	scopeName                                         = 1
	metricName, metricGaugeData, metricSumData        = 1, 5, 7
	metricExponential                                 = 10
	dataPoints, dataTemporality, dataMonotonic        = 1, 2, 3
	pointStart, pointTime, pointDouble, pointLabels   = 2, 3, 4, 7
	expLabels, expStart, expTime, expCount, expSum    = 1, 2, 3, 4, 5
	expScale, expZeroCount, expPositive               = 6, 7, 8
	expZeroThreshold                                  = 14
	bucketsOffset, bucketsCounts                      = 1, 2
	attributeKey, attributeValue, attributeStringType = 1, 2, 1

	temporalityCumulative = 2
)

// Encode appends series to b as an ExportMetricsServiceRequest of OpenTelemetry: a resource for each run of series of
// one host, a metric for each run of one name. What Convert returns makes one resource. The names are those that are
// stored, so that a receiver of any make has the same ones. Counters are cumulative sums, histograms exponential ones
// of model.Scale; the sum of a histogram is in seconds, which is exact up to 26 days.
func Encode(b []byte, series []model.Series) []byte {
	e := encoder{}
	for len(series) > 0 {
		host := hostOf(&series[0])
		n := 1
		for n < len(series) && hostOf(&series[n]) == host {
			n++
		}
		b = appendBytes(b, requestResources, e.resource(host, series[:n]))
		series = series[n:]
	}
	return b
}

func hostOf(s *model.Series) string {
	for i := range s.Labels {
		if s.Labels[i].Name == LabelHost {
			return s.Labels[i].Value
		}
	}
	return ""
}

// encoder keeps a buffer for each level of nesting, since a message's length goes before it.
type encoder struct {
	all, scope, metric, data, point, small, value []byte
}

func (e *encoder) resource(host string, series []model.Series) []byte {
	e.all = e.all[:0]
	if host != "" {
		e.all = appendBytes(e.all, resourceMetricsResource, e.attribute(nil, resourceAttributes, HostAttribute, host))
	}
	e.scope = appendBytes(e.scope[:0], scopeMetricsScope, appendString(nil, scopeName, Scope))
	for len(series) > 0 {
		n := 1
		for n < len(series) && series[n].Name == series[0].Name && series[n].Kind == series[0].Kind {
			n++
		}
		e.scope = appendBytes(e.scope, scopeMetricsMetrics, e.named(series[:n]))
		series = series[n:]
	}
	e.all = appendBytes(e.all, resourceMetricsScope, e.scope)
	return e.all
}

// named is the metric of series that share a name and a kind.
func (e *encoder) named(series []model.Series) []byte {
	e.data = e.data[:0]
	for i := range series {
		if series[i].Kind == model.HistogramSeries {
			e.exponential(&series[i])
		} else {
			e.number(&series[i])
		}
		e.data = appendBytes(e.data, dataPoints, e.point)
	}
	kind := protowire.Number(metricGaugeData)
	switch series[0].Kind {
	case model.Counter:
		kind = metricSumData
		e.data = appendUint(e.data, dataTemporality, temporalityCumulative)
		e.data = appendUint(e.data, dataMonotonic, 1)
	case model.HistogramSeries:
		kind = metricExponential
		e.data = appendUint(e.data, dataTemporality, temporalityCumulative)
	}
	e.metric = appendString(e.metric[:0], metricName, series[0].Name)
	e.metric = appendBytes(e.metric, kind, e.data)
	return e.metric
}

func (e *encoder) number(s *model.Series) {
	e.point = e.labels(e.point[:0], pointLabels, s)
	e.times(s, pointStart, pointTime)
	e.point = appendDouble(e.point, pointDouble, s.Value)
}

func (e *encoder) exponential(s *model.Series) {
	h := s.Histogram
	if h == nil {
		h = &model.Histogram{}
	}
	e.point = e.labels(e.point[:0], expLabels, s)
	e.times(s, expStart, expTime)
	e.point = appendFixed(e.point, expCount, h.Count)
	e.point = appendDouble(e.point, expSum, seconds(h.SumNS))
	e.point = appendUint(e.point, expScale, protowire.EncodeZigZag(model.Scale))
	e.point = appendFixed(e.point, expZeroCount, h.ZeroCount)
	if offset, counts := h.Dense(); len(counts) > 0 {
		e.value = e.value[:0]
		for _, n := range counts {
			e.value = protowire.AppendVarint(e.value, n)
		}
		e.small = appendUint(e.small[:0], bucketsOffset, protowire.EncodeZigZag(int64(offset)-1))
		e.small = appendBytes(e.small, bucketsCounts, e.value)
		e.point = appendBytes(e.point, expPositive, e.small)
	}
	e.point = appendDouble(e.point, expZeroThreshold, model.ZeroThreshold.Seconds())
}

func (e *encoder) times(s *model.Series, start, at protowire.Number) {
	if !s.Start.IsZero() {
		e.point = appendFixed(e.point, start, uint64(s.Start.UnixNano()))
	}
	e.point = appendFixed(e.point, at, uint64(s.Time.UnixNano()))
}

// labels are encoded first and contiguously, so that a receiver can recognise known ones by one comparison. The host is
// the resource's.
func (e *encoder) labels(b []byte, field protowire.Number, s *model.Series) []byte {
	for i := range s.Labels {
		if l := &s.Labels[i]; l.Name != LabelHost {
			b = e.attribute(b, field, l.Name, l.Value)
		}
	}
	return b
}

func (e *encoder) attribute(b []byte, field protowire.Number, name, value string) []byte {
	e.value = appendString(e.value[:0], attributeStringType, value)
	e.small = appendString(e.small[:0], attributeKey, name)
	e.small = appendBytes(e.small, attributeValue, e.value)
	return appendBytes(b, field, e.small)
}

func appendFixed(b []byte, field protowire.Number, v uint64) []byte {
	return protowire.AppendFixed64(protowire.AppendTag(b, field, protowire.Fixed64Type), v)
}

// Headers of a request from one of the project's own agents.
const (
	// BatchHeader names a batch: the agent's life, a slash, and BatchNumberDigits digits that count up. Such a
	// request holds all series that a host has at one time.
	BatchHeader = "X-Outsight-Batch"
	// TenantHeader names the tenant that the series belong to.
	TenantHeader = "X-Outsight-Tenant"

	BatchNumberDigits = 12
)
