package ingest

import (
	"math"
	"slices"
	"strconv"

	"outsight/internal/model"
)

// histogram makes the classic series of a histogram with explicit bounds.
func (r *reading) histogram(p *point, b []byte) error {
	var counts, bounds []uint64
	f := fields{remaining: b}
	for f.next() {
		switch f.num {
		case 6:
			counts = f.appendFixed(counts, maxBuckets)
		case 7:
			bounds = f.appendFixed(bounds, maxBuckets)
		}
	}
	if f.bad || len(counts) > 0 && len(counts) != len(bounds)+1 {
		r.reject(BadHistogram)
		return nil
	}
	// If bucket counts exceeded the total count, cumulative buckets would not be monotonic.
	if _, ok := rest(p.count, counts); !ok {
		r.reject(BadHistogram)
		return nil
	}
	parts := r.parts(p.set, bounds, func() []part { return classicParts(r.metric.name, p.set.labels, bounds) })
	if parts == nil {
		r.reject(BadHistogram)
		return nil
	}
	seen := uint64(0)
	for i := range bounds {
		if i < len(counts) {
			seen += counts[i]
		}
		r.part(p, parts[i], float64(seen))
	}
	r.part(p, parts[len(bounds)], float64(p.count))
	r.part(p, parts[len(bounds)+1], float64(p.count))
	if p.hasSum {
		r.part(p, parts[len(bounds)+2], p.sum)
	}
	return nil
}

func (r *reading) summary(p *point, b []byte) error {
	var quantiles, values []uint64
	f := fields{remaining: b}
	for f.next() {
		if !f.message(6) {
			continue
		}
		q, v := uint64(0), uint64(0)
		at := fields{remaining: f.bytes}
		for at.next() {
			switch {
			case at.fixed(1):
				q = at.number
			case at.fixed(2):
				v = at.number
			}
		}
		f.bad = f.bad || at.bad
		if quantiles, values = append(quantiles, q), append(values, v); len(quantiles) > maxBuckets {
			break
		}
	}
	if f.bad || len(quantiles) > maxBuckets {
		r.reject(BadHistogram)
		return nil
	}
	parts := r.parts(p.set, quantiles, func() []part { return summaryParts(r.metric.name, p.set.labels, quantiles) })
	if parts == nil {
		r.reject(BadHistogram)
		return nil
	}
	for i, v := range values {
		r.part(p, parts[i], math.Float64frombits(v))
	}
	r.part(p, parts[len(values)], float64(p.count))
	r.part(p, parts[len(values)+1], p.sum)
	return nil
}

// partBytes is the memory of a part without its labels: itself, its name and its bound.
const partBytes = 96

// part is one series of several that a point is stored as.
type part struct {
	name   string
	labels []model.Label
	kind   model.SeriesKind
}

func (r *reading) part(p *point, to part, v float64) {
	s := model.Series{Name: to.name, Labels: to.labels, Kind: to.kind, Time: p.time(), Value: v}
	if s.Kind == model.Counter {
		s.Start = p.startTime()
	}
	if p.flags&noRecordedValue != 0 {
		s.Value = model.Stale()
	}
	r.batch.labels += p.set.bytes
	r.add(s)
}

// parts are the series that a set's points are stored as, made anew where the bounds are others than before. They are
// nil for bounds that are not in order.
func (r *reading) parts(set *labelSet, bounds []uint64, build func() []part) []part {
	known := set.parts[r.metric]
	if known == nil || !slices.Equal(known.bounds, bounds) {
		known = &partSet{slices.Clone(bounds), build()}
		if set.parts == nil {
			set.parts = map[*metric]*partSet{}
		}
		if set.parts[r.metric] == nil {
			r.divided++
		}
		r.hold(setBytes + 8*len(bounds) + len(known.parts)*(partBytes+labelBytes*(len(set.labels)+1)))
		set.parts[r.metric] = known
	}
	return known.parts
}

func classicParts(name string, labels []model.Label, bounds []uint64) []part {
	parts := make([]part, 0, len(bounds)+3)
	last := math.Inf(-1)
	for _, bits := range bounds {
		bound := math.Float64frombits(bits)
		if !(bound > last) {
			return nil
		}
		last = bound
		parts = append(parts, part{name + "_bucket", insert(labels, "le", number(bound)), model.Counter})
	}
	if math.IsInf(last, 1) {
		return nil
	}
	return append(parts, part{name + "_bucket", insert(labels, "le", "+Inf"), model.Counter},
		part{name + "_count", labels, model.Counter}, part{name + "_sum", labels, model.Counter})
}

func summaryParts(name string, labels []model.Label, quantiles []uint64) []part {
	parts := make([]part, 0, len(quantiles)+2)
	seen := map[uint64]bool{}
	for _, bits := range quantiles {
		q := math.Float64frombits(bits)
		if !(q >= 0 && q <= 1) || seen[bits] {
			return nil
		}
		seen[bits] = true
		parts = append(parts, part{name, insert(labels, "quantile", number(q)), model.Gauge})
	}
	return append(parts, part{name + "_count", labels, model.Counter}, part{name + "_sum", labels, model.Counter})
}

// number is how Prometheus writes a bound.
func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// buckets are one side of an exponential histogram.
type buckets struct {
	offset int32
	counts []uint64
}

func (r *reading) buckets(b []byte) (s buckets, ok bool) {
	// Each count has at least one byte.
	all := r.batch.capacity(min(len(b), maxBuckets+1))
	from := len(all)
	f := fields{remaining: b}
	for f.next() {
		switch {
		case f.varint(1):
			s.offset = int32(uint32(f.number)>>1) ^ -int32(f.number&1)
		case f.num == 2:
			all = f.appendVarints(all, from+maxBuckets)
		}
	}
	r.batch.counts = all
	if len(all) > from {
		s.counts = all[from:len(all):len(all)]
	}
	return s, !f.bad && len(s.counts) <= maxBuckets
}

// rest is whole without the counts; ok means that they do not exceed it.
func rest(whole uint64, counts []uint64) (_ uint64, ok bool) {
	for _, n := range counts {
		if n > whole {
			return 0, false
		}
		whole -= n
	}
	return whole, true
}

// finite reports whether the bounds of the buckets are float64 values, from 2^-1074 to 2^1024.
func (s *buckets) finite(scale int32) bool {
	exponent := func(bucket int64) float64 { return math.Ldexp(float64(bucket), -int(scale)) }
	return len(s.counts) == 0 || exponent(int64(s.offset)) >= -1100 &&
		exponent(int64(s.offset)+int64(len(s.counts))) <= 1100
}

func (r *reading) exponential(p *point) error {
	positive, ok := r.buckets(p.positive)
	negative, alsoOK := r.buckets(p.negative)
	// The remainder of the count: 0 if the parts add up to it without an overflow.
	left, zeroFits := rest(p.count, []uint64{p.zero})
	left, positiveFit := rest(left, positive.counts)
	left, negativeFit := rest(left, negative.counts)
	if !ok || !alsoOK || p.flags&noRecordedValue != 0 || p.scale < model.MinForeignScale || p.scale > 20 ||
		!zeroFits || !positiveFit || !negativeFit || left != 0 || !positive.finite(p.scale) || !negative.finite(p.scale) ||
		!(p.zeroThreshold >= 0 && p.zeroThreshold <= math.MaxFloat64) {
		r.reject(BadHistogram)
		return nil
	}
	r.batch.labels += p.set.bytes
	s := model.Series{Name: r.metric.name, Labels: p.set.labels, Kind: model.HistogramSeries, Time: p.time(),
		Start: p.startTime(), Key: p.set.key(r.metric)}
	if r.origin.ours && p.scale == model.Scale && len(negative.counts) == 0 &&
		p.zeroThreshold == model.ZeroThreshold.Seconds() && p.sum >= 0 && p.sum < 1.8e10 {
		if h, ok := model.NewDense(positive.offset+1, positive.counts, p.count, p.zero, uint64(math.Round(p.sum*1e9))); ok {
			s.Histogram = h
			r.add(s)
			return nil
		}
	}
	for ; p.scale > model.MaxForeignScale; p.scale-- {
		positive, negative = positive.downscaled(), negative.downscaled()
	}
	s.Foreign = &model.ForeignHistogram{
		Scale: p.scale, Count: p.count, ZeroCount: p.zero, Sum: p.sum, ZeroThreshold: p.zeroThreshold,
		PositiveOffset: positive.offset + 1, Positive: positive.counts, NegativeOffset: negative.offset + 1,
		Negative: negative.counts,
	}
	r.add(s)
	return nil
}

// downscaled is the same at the next lower scale: each two buckets are one.
func (s buckets) downscaled() buckets {
	if len(s.counts) == 0 {
		return s
	}
	first := s.offset >> 1
	out := buckets{offset: first, counts: make([]uint64, (s.offset+int32(len(s.counts))-1)>>1-first+1)}
	for i, n := range s.counts {
		out.counts[(s.offset+int32(i))>>1-first] += n
	}
	return out
}
