package otlp

import (
	"bufio"
	"io"
	"math"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"outsight/internal/frame"
	"outsight/internal/model"
)

// Field numbers of io.prometheus.client, the messages of Prometheus's protobuf exposition. They
// are written by hand because this is all that the agent needs of them.
const (
	familyName, familyHelp, familyType, familyMetric = 1, 2, 3, 4

	metricLabel, metricGauge, metricCounter, metricHistogram = 1, 2, 3, 7

	labelName, labelValue = 1, 2

	// Of Gauge and Counter.
	numberValue, counterCreated = 1, 3

	histogramCount, histogramSum, histogramBucket, histogramSchema       = 1, 2, 3, 5
	histogramZeroThreshold, histogramZeroCount, histogramSpan            = 6, 7, 12
	histogramDelta, histogramCreated                                     = 13, 15
	bucketCount, bucketBound, spanOffset, spanLength, stampSec, stampNan = 1, 2, 1, 2, 1, 2

	typeCounter, typeGauge, typeHistogram = 0, 1, 4
)

// writeProtobuf writes all that f holds as MetricFamily messages, each after its length.
// Histograms have their full resolution (native, schema model.Scale) and the classic buckets
// of the text formats for scrapers that take only those. Computed series come after that.
func writeProtobuf(w io.Writer, f *frame.Frame, computed ...model.Series) error {
	out := bufio.NewWriterSize(w, 64<<10)
	var family, metric, length []byte
	write := func(m *Metric, series []model.Series) {
		family = appendString(family[:0], familyName, m.Name)
		family = appendString(family, familyHelp, m.Help)
		family = appendUint(family, familyType, protobufType(m.Kind))
		for i := range series {
			metric = appendMetric(metric[:0], &series[i])
			family = appendBytes(family, familyMetric, metric)
		}
		length = protowire.AppendVarint(length[:0], uint64(len(family)))
		out.Write(length)
		out.Write(family)
	}
	eachFamily(f, write)
	eachComputed(computed, write)
	return out.Flush()
}

func protobufType(kind model.SeriesKind) uint64 {
	switch kind {
	case model.Counter:
		return typeCounter
	case model.HistogramSeries:
		return typeHistogram
	}
	return typeGauge
}

func appendMetric(b []byte, s *model.Series) []byte {
	for _, l := range s.Labels {
		b = appendBytes(b, metricLabel, appendString(appendString(nil, labelName, l.Name), labelValue, l.Value))
	}
	switch s.Kind {
	case model.Gauge:
		return appendBytes(b, metricGauge, appendDouble(nil, numberValue, s.Value))
	case model.Counter:
		return appendBytes(b, metricCounter, appendStart(appendDouble(nil, numberValue, s.Value), counterCreated, s.Start))
	}
	return appendBytes(b, metricHistogram, appendHistogram(nil, s))
}

func appendHistogram(b []byte, s *model.Series) []byte {
	h := s.Histogram
	spans, deltas, total := h.Sparse()
	b = appendUint(b, histogramCount, total)
	b = appendDouble(b, histogramSum, seconds(h.SumNS))
	counts, _ := classicBuckets(h)
	for i, n := range counts {
		b = appendBytes(b, histogramBucket, appendDouble(appendUint(nil, bucketCount, n), bucketBound, classicBound(i)))
	}
	b = appendUint(b, histogramSchema, protowire.EncodeZigZag(model.Scale))
	b = appendDouble(b, histogramZeroThreshold, model.ZeroThreshold.Seconds())
	b = appendUint(b, histogramZeroCount, h.ZeroCount)
	if len(spans) == 0 {
		// An empty span distinguishes a native histogram without buckets from a classic one.
		spans = []model.Span{{}}
	}
	for _, span := range spans {
		field := appendUint(nil, spanOffset, protowire.EncodeZigZag(int64(span.Offset)))
		b = appendBytes(b, histogramSpan, appendUint(field, spanLength, uint64(span.Length)))
	}
	var packed []byte
	for _, d := range deltas {
		packed = protowire.AppendVarint(packed, protowire.EncodeZigZag(d))
	}
	if len(packed) > 0 {
		b = appendBytes(b, histogramDelta, packed)
	}
	return appendStart(b, histogramCreated, s.Start)
}

// appendStart appends a google.protobuf.Timestamp, or nothing where the start is not known.
func appendStart(b []byte, field protowire.Number, start time.Time) []byte {
	if start.IsZero() {
		return b
	}
	stamp := appendUint(nil, stampSec, uint64(start.Unix()))
	return appendBytes(b, field, appendUint(stamp, stampNan, uint64(start.Nanosecond())))
}

func appendUint(b []byte, field protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), v)
}

func appendDouble(b []byte, field protowire.Number, v float64) []byte {
	return protowire.AppendFixed64(protowire.AppendTag(b, field, protowire.Fixed64Type), math.Float64bits(v))
}

func appendString(b []byte, field protowire.Number, v string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), v)
}

func appendBytes(b []byte, field protowire.Number, v []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), v)
}
