package ingest

import (
	"math"
	"time"

	"outsight/internal/model"
)

// point has the fields common to all kinds of data points.
type point struct {
	labels        []byte
	set           *labelSet
	start, at     uint64
	value         float64
	count         uint64
	sum           float64
	hasSum        bool
	flags         uint64
	zero          uint64
	zeroThreshold float64
	scale         int32
	positive      []byte
	negative      []byte
}

// noRecordedValue is the flag of a point that marks the end of a series.
const noRecordedValue = 1

func (r *reading) point(kind uint8, b []byte) error {
	var p point
	f := fields{remaining: b}
	field := int32(7)
	switch kind {
	case histogramData:
		field = 9
	case exponentialData:
		field = 1
	}
	// The labels are nearly always a single stretch of bytes; where they are not, they are put together.
	first, end, apart := -1, -1, false
	for f.next() {
		if f.typ == 2 && int32(f.num) == field {
			from, to := len(b)-f.start, len(b)-len(f.remaining)
			switch {
			case first < 0:
				first = from
			case from != end:
				apart = true
			}
			end = to
			continue
		}
		p.read(kind, &f)
	}
	if err := check(&f); err != nil {
		return err
	}
	switch {
	case apart:
		p.labels = gather(b, field)
	case first >= 0:
		p.labels = b[first:end]
	}
	why, ok := r.timely(&p)
	if !ok && why == Future && p.at <= math.MaxInt64 && int64(p.at/1e6) <= r.doubtful {
		return errClock
	}
	if !ok {
		r.reject(why)
		return nil
	}
	set, err := r.set(p.labels, field)
	if err != nil {
		return err
	}
	if set.bad {
		r.reject(BadLabels)
		return nil
	}
	p.set = set
	switch kind {
	case gaugeData, sumData:
		r.number(&p)
	case histogramData:
		return r.histogram(&p, b)
	case exponentialData:
		return r.exponential(&p)
	case summaryData:
		return r.summary(&p, b)
	}
	return nil
}

// gather puts the attributes of a point together.
func gather(b []byte, field int32) (all []byte) {
	f := fields{remaining: b}
	for f.next() {
		if f.typ == 2 && int32(f.num) == field {
			all = append(all, b[len(b)-f.start:len(b)-len(f.remaining)]...)
		}
	}
	return all
}

// read reads a field of a point. The field numbers differ between kinds.
func (p *point) read(kind uint8, f *fields) {
	switch {
	case f.fixed(2):
		p.start = f.number
	case f.fixed(3):
		p.at = f.number
	case f.fixed(4) && (kind == gaugeData || kind == sumData):
		p.value = f.double()
	case f.fixed(6) && (kind == gaugeData || kind == sumData):
		p.value = float64(int64(f.number))
	case f.fixed(4):
		p.count = f.number
	case f.fixed(5):
		p.sum, p.hasSum = f.double(), true
	case f.varint(8) && kind != exponentialData, f.varint(10):
		p.flags = f.number
	case kind != exponentialData:
	case f.varint(6):
		p.scale = int32(uint32(f.number)>>1) ^ -int32(f.number&1)
	case f.fixed(7):
		p.zero = f.number
	case f.message(8):
		p.positive = f.bytes
	case f.message(9):
		p.negative = f.bytes
	case f.fixed(14):
		p.zeroThreshold = f.double()
	}
}

func (r *reading) timely(p *point) (Reason, bool) {
	ms := int64(p.at / 1e6)
	switch {
	case p.at > math.MaxInt64 || ms > r.newest:
		return Future, false
	case ms < r.oldest:
		return TooOld, false
	}
	r.last = max(r.last, ms)
	return 0, true
}

func (p *point) time() time.Time { return time.UnixMilli(int64(p.at / 1e6)) }

func (p *point) startTime() time.Time {
	if p.start == 0 || p.start > math.MaxInt64 {
		return time.Time{}
	}
	return time.Unix(0, int64(p.start))
}

func (r *reading) number(p *point) {
	s := model.Series{Name: r.metric.name, Labels: p.set.labels, Kind: model.Gauge, Time: p.time(), Value: p.value,
		Key: p.set.key(r.metric)}
	if r.monotonic {
		s.Kind, s.Start = model.Counter, p.startTime()
	}
	if p.flags&noRecordedValue != 0 {
		s.Value = model.Stale()
	}
	r.batch.labels += p.set.bytes
	r.add(s)
}
