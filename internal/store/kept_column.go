package store

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math"
	"slices"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/value"
)

// keptColumn are the values of a source at one moment, in blocks, which moments share between which nothing has
// changed.
type keptColumn struct {
	at         int64 // ms
	numbers    []*numberBlock
	histograms []*histogramBlock
}

const blockNumbers, blockHistograms = 256, 64

// numberBlock has a staleness marker where there is none.
type numberBlock [blockNumbers]float64

// histogramBlock has encoded histograms one after the other, and where each of them ends; of none there is nothing.
type histogramBlock struct {
	bytes []byte
	ends  [blockHistograms]uint32
}

// column are the newest values at the moment at.
func (s *keptSource) column(at int64) keptColumn {
	c := keptColumn{at: at}
	var before keptColumn
	if n := len(s.columns); n > 0 {
		before = s.columns[n-1]
	}
	none := math.Float64frombits(value.StaleNaN)
	var numbers numberBlock
	for from := 0; from < len(s.numbers.now); from += blockNumbers {
		part := s.numbers.now[from:min(from+blockNumbers, len(s.numbers.now))]
		for i := range part {
			numbers[i] = part[i].value
			if part[i].at <= at-keptRecent {
				numbers[i] = none
			}
		}
		for i := len(part); i < blockNumbers; i++ {
			numbers[i] = none
		}
		block := blockAt(before.numbers, len(c.numbers))
		if block == nil || !slices.EqualFunc(block[:], numbers[:],
			func(a, b float64) bool { return math.Float64bits(a) == math.Float64bits(b) }) {
			made := numbers
			block = &made
		}
		c.numbers = append(c.numbers, block)
	}
	var room []byte
	for from := 0; from < len(s.histograms.now); from += blockHistograms {
		part := s.histograms.now[from:min(from+blockHistograms, len(s.histograms.now))]
		made := histogramBlock{bytes: room[:0]}
		for i := range made.ends {
			if i < len(part) && part[i].at > at-keptRecent {
				made.bytes = encodeKept(made.bytes, part[i].value)
			}
			made.ends[i] = uint32(len(made.bytes))
		}
		room = made.bytes
		block := blockAt(before.histograms, len(c.histograms))
		if block == nil || block.ends != made.ends || !bytes.Equal(block.bytes, made.bytes) {
			made.bytes = bytes.Clone(made.bytes)
			block = &made
		}
		c.histograms = append(c.histograms, block)
	}
	return c
}

func blockAt[B any](blocks []*B, i int) *B {
	if i < len(blocks) {
		return blocks[i]
	}
	return nil
}

// encodeKept encodes h: its count, that of zeros, its sum, and if it has some the buckets: the first one, how many, and
// the count of each; after one that is empty, how many of those after it are, too.
func encodeKept(b []byte, h *histogram.Histogram) []byte {
	b = binary.AppendUvarint(b, h.Count)
	b = binary.AppendUvarint(b, h.ZeroCount)
	b = binary.LittleEndian.AppendUint64(b, math.Float64bits(h.Sum))
	first, width := extentOf(h)
	if width == 0 {
		return b
	}
	b = binary.AppendVarint(b, int64(first))
	b = binary.AppendUvarint(b, uint64(width))
	next := 0
	eachCount(h, func(i int32, count uint64) {
		if empty := int(i-first) - next; empty > 0 {
			b = binary.AppendUvarint(append(b, 0), uint64(empty-1))
		}
		b = binary.AppendUvarint(b, count)
		next = int(i-first) + 1
	})
	return b
}

// extentOf is the first bucket of h that is not empty, and how many there are up to the last such.
func extentOf(h *histogram.Histogram) (first int32, width int) {
	last := first - 1
	eachCount(h, func(i int32, _ uint64) {
		if last < first {
			first = i
		}
		last = i
	})
	return first, int(last-first) + 1
}

// eachCount calls f for each bucket of h that is not empty, in ascending order.
func eachCount(h *histogram.Histogram, f func(i int32, count uint64)) {
	i, count, rest := int32(0), int64(0), h.PositiveBuckets
	for _, span := range h.PositiveSpans {
		i += span.Offset
		for _, delta := range rest[:span.Length] {
			if count += delta; count != 0 {
				f(i, uint64(count))
			}
			i++
		}
		rest = rest[span.Length:]
	}
}

// keptView are the values of a source at one moment: of a column, or the newest.
type keptView struct {
	at     int64
	source *keptSource
	column *keptColumn
	// newest is whether nothing has come since.
	newest bool
}

// view is what the source had at a moment; false where that is not kept.
func (s *keptSource) view(at int64) (keptView, bool) {
	v := keptView{at: at, source: s}
	if v.newest = s.last <= at; v.newest {
		return v, true
	}
	if i, ok := slices.BinarySearchFunc(s.columns, at,
		func(c keptColumn, at int64) int { return cmp.Compare(c.at, at) }); ok {
		v.column = &s.columns[i]
	}
	return v, v.column != nil || at < s.first
}

// number is the value of a slot, false where there was none.
func (v *keptView) number(slot int32) (float64, bool) {
	switch {
	case v.newest:
		now := &v.source.numbers.now[slot]
		return now.value, now.at > v.at-keptRecent && now.at <= v.at
	case v.column == nil || int(slot)/blockNumbers >= len(v.column.numbers):
		return 0, false
	}
	n := v.column.numbers[slot/blockNumbers][slot%blockNumbers]
	return n, !value.IsStaleNaN(n)
}

// histogram is that of a slot, as it is or encoded; neither where there was none.
func (v *keptView) histogram(slot int32) (h *histogram.Histogram, encoded []byte) {
	switch {
	case v.newest:
		if now := &v.source.histograms.now[slot]; now.at > v.at-keptRecent && now.at <= v.at {
			return now.value, nil
		}
		return nil, nil
	case v.column == nil || int(slot)/blockHistograms >= len(v.column.histograms):
		return nil, nil
	}
	block, i, from := v.column.histograms[slot/blockHistograms], slot%blockHistograms, uint32(0)
	if i > 0 {
		from = block.ends[i-1]
	}
	return nil, block.bytes[from:block.ends[i]]
}
