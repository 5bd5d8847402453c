package store

import (
	"math"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"google.golang.org/protobuf/encoding/protowire"
)

// The messages of remote write 1.0 (prometheus.WriteRequest) and 2.0
// (io.prometheus.write.v2.Request). The numbers are those of the fields in the specification.

// encodeWrite1 is a request of 1.0 with the first n series, and n.
func encodeWrite1(series []wireSeries) (body []byte, n int) {
	var one, part []byte
	for n < len(series) && n < maxRequestSeries && len(body) < maxRequestBytes {
		s := &series[n]
		one = one[:0]
		s.eachLabel(func(name, value string) {
			part = appendText(appendText(part[:0], 1, name), 2, value)
			one = appendMessage(one, 1, part)
		})
		one = s.appendSamples(one, 2, 4)
		body = appendMessage(body, 1, one)
		n++
	}
	return body, n
}

// encodeWrite2 is a request of 2.0 with the first n series, and n. Texts are in it once.
func encodeWrite2(series []wireSeries) (body []byte, n int) {
	symbols := map[string]uint32{"": 0}
	texts := []string{""}
	symbol := func(text string) uint32 {
		i, ok := symbols[text]
		if !ok {
			i = uint32(len(texts))
			symbols[text] = i
			texts = append(texts, text)
		}
		return i
	}
	var all, one, part []byte
	for n < len(series) && n < maxRequestSeries && len(all) < maxRequestBytes {
		s := &series[n]
		part = part[:0]
		s.eachLabel(func(name, value string) {
			part = protowire.AppendVarint(part, uint64(symbol(name)))
			part = protowire.AppendVarint(part, uint64(symbol(value)))
		})
		one = appendMessage(one[:0], 1, part)
		one = s.appendSamples(one, 2, 3)
		// The metadata must be there; what is said in it may be nothing.
		one = appendMessage(one, 5, nil)
		all = appendMessage(all, 5, one)
		n++
	}
	for _, text := range texts {
		body = appendText(body, 4, text)
	}
	return append(body, all...), n
}

// eachLabel calls f with the labels in order of their names, as both protocols want them.
func (s *wireSeries) eachLabel(f func(name, value string)) {
	le := s.le
	s.labels.Range(func(l labels.Label) {
		if le != "" && l.Name > leLabel {
			f(leLabel, le)
			le = ""
		}
		if l.Name == nameLabel {
			f(l.Name, l.Value+s.suffix)
			return
		}
		f(l.Name, l.Value)
	})
	if le != "" {
		f(leLabel, le)
	}
}

func (s *wireSeries) appendSamples(b []byte, numbers, histograms protowire.Number) []byte {
	for _, sample := range s.samples {
		if sample.h != nil {
			b = appendMessage(b, histograms, appendHistogram(nil, &sample))
			continue
		}
		var m [32]byte
		message := protowire.AppendTag(m[:0], 1, protowire.Fixed64Type)
		message = protowire.AppendFixed64(message, math.Float64bits(sample.v))
		message = appendNumber(message, 2, uint64(sample.at))
		b = appendMessage(b, numbers, message)
	}
	return b
}

// appendHistogram is the same in both protocols.
func appendHistogram(b []byte, s *wireSample) []byte {
	h := s.h
	b = appendNumber(b, 1, h.Count)
	b = protowire.AppendTag(b, 3, protowire.Fixed64Type)
	b = protowire.AppendFixed64(b, math.Float64bits(h.Sum))
	b = appendNumber(b, 4, protowire.EncodeZigZag(int64(h.Schema)))
	b = protowire.AppendTag(b, 5, protowire.Fixed64Type)
	b = protowire.AppendFixed64(b, math.Float64bits(h.ZeroThreshold))
	b = appendNumber(b, 6, h.ZeroCount)
	if len(h.NegativeSpans) > 0 {
		b = appendSpans(b, 8, h.NegativeSpans)
		b = appendMessage(b, 9, zigZags(h.NegativeBuckets))
	}
	b = appendSpans(b, 11, h.PositiveSpans)
	b = appendMessage(b, 12, zigZags(h.PositiveBuckets))
	return appendNumber(b, 15, uint64(s.at))
}

func zigZags(deltas []int64) (b []byte) {
	for _, d := range deltas {
		b = protowire.AppendVarint(b, protowire.EncodeZigZag(d))
	}
	return b
}

func appendSpans(b []byte, field protowire.Number, spans []histogram.Span) []byte {
	var message []byte
	for _, span := range spans {
		message = appendNumber(message[:0], 1, protowire.EncodeZigZag(int64(span.Offset)))
		message = appendNumber(message, 2, uint64(span.Length))
		b = appendMessage(b, field, message)
	}
	return b
}

func appendNumber(b []byte, field protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), v)
}

func appendText(b []byte, field protowire.Number, text string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), text)
}

func appendMessage(b []byte, field protowire.Number, message []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), message)
}
