package store

import (
	"encoding/binary"
	"hash/crc32"
	"log/slog"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/tsdb/record"
	"github.com/prometheus/prometheus/util/compression"
)

// A segment of the TSDB's log is pages of 32 KiB. A page has fragments of records, and zeros after the last one:
//
//	type 1 (3 bits: full, first, middle, last; above them how it is compressed) | length 2 | checksum 4 | bytes
//
// Numbers are big-endian. No record reaches into the next segment.
const (
	pageBytes      = 32 << 10
	fragmentHeader = 7
	fragmentTypes  = 7
	snappyFlag     = 1 << 3
	zstdFlag       = 1 << 4
)

// castagnoli is the table of the checksums.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

const (
	fragmentNone = iota
	fragmentFull
	fragmentFirst
	fragmentMiddle
	fragmentLast
)

// logRecord is a record as it is in the file: compressed.
type logRecord struct {
	flags byte
	bytes []byte
	// afterDamage means that the part of the file before it is damaged.
	afterDamage bool
}

// segmentScan is what a segment has.
type segmentScan struct {
	records []logRecord
	// holes are the damaged parts, of together bytes; tail means that the last of them is at the end.
	holes, bytes int
	tail         bool
	// samples are those of the readable records, which have good bytes. The lost ones are of times from from to to,
	// each noSample if unknown.
	good, samples int
	from, to      int64
}

// scanSegment reads all records of a segment that can be read.
func scanSegment(b []byte) *segmentScan {
	s := &segmentScan{from: noSample, to: noSample}
	var whole []byte // of the record that has begun
	begun, flags, hole := -1, byte(0), false
	skip := func(from, to int) {
		if begun >= 0 {
			from, begun = begun, -1
		}
		s.bytes += to - from
		if !hole {
			s.holes++
		}
		hole = true
	}
	for at := 0; at < len(b); {
		page := min(len(b), (at/pageBytes+1)*pageBytes)
		kind := b[at] & fragmentTypes
		if kind == fragmentNone {
			for _, c := range b[at:page] {
				if c != 0 {
					skip(at, page)
					break
				}
			}
			at = page
			continue
		}
		end, ok := fragmentEnd(b[:page], at)
		if !ok {
			if end == 0 {
				end = page
			}
			skip(at, end)
			at = end
			continue
		}
		payload := b[at+fragmentHeader : end]
		if begins := kind == fragmentFull || kind == fragmentFirst; begins == (begun >= 0) || kind > fragmentLast {
			// A record without its begin, or the begin of one that has no end.
			skip(at, at)
			if !begins {
				skip(at, end)
				at = end
				continue
			}
		}
		switch kind {
		case fragmentFull, fragmentFirst:
			begun, flags, whole = at, b[at]&^fragmentTypes, payload[:len(payload):len(payload)]
		default:
			whole = append(whole, payload...)
		}
		at = end
		if kind == fragmentFull || kind == fragmentLast {
			s.records = append(s.records, logRecord{flags, whole, hole})
			s.good += len(whole)
			begun, hole = -1, false
		}
	}
	if begun >= 0 {
		skip(begun, len(b))
	}
	s.tail = hole
	return s
}

// fragmentEnd is the end of a fragment. Where it is damaged, it is where the next one begins, or 0.
func fragmentEnd(page []byte, at int) (end int, ok bool) {
	if end := wholeFragment(page, at); end > 0 {
		return end, true
	}
	for next := at + 1; next+fragmentHeader < len(page); next++ {
		kind := page[next] & fragmentTypes
		if (kind == fragmentFull || kind == fragmentFirst) && page[next]&^(fragmentTypes|snappyFlag|zstdFlag) == 0 &&
			wholeFragment(page, next) > next+fragmentHeader {
			return next, false
		}
	}
	return 0, false
}

// wholeFragment is the end of a fragment with the right checksum, or 0.
func wholeFragment(page []byte, at int) (end int) {
	b := page[at:]
	if len(b) < fragmentHeader {
		return 0
	}
	length := fragmentHeader + int(binary.BigEndian.Uint16(b[1:]))
	if length > len(b) || crc32.Checksum(b[fragmentHeader:length], castagnoli) != binary.BigEndian.Uint32(b[3:]) {
		return 0
	}
	return at + length
}

// encodeSegment is a segment with these records.
func encodeSegment(records []logRecord) (b []byte) {
	for _, r := range records {
		for first, rest := true, r.bytes; first || len(rest) > 0; first = false {
			left := pageBytes - len(b)%pageBytes
			if left <= fragmentHeader {
				b = append(b, make([]byte, left)...)
				left = pageBytes
			}
			part := rest[:min(len(rest), left-fragmentHeader)]
			rest = rest[len(part):]
			kind := byte(fragmentMiddle)
			switch {
			case first && len(rest) == 0:
				kind = fragmentFull
			case first:
				kind = fragmentFirst
			case len(rest) == 0:
				kind = fragmentLast
			}
			b = append(b, kind|r.flags)
			b = binary.BigEndian.AppendUint16(b, uint16(len(part)))
			b = binary.BigEndian.AppendUint32(b, crc32.Checksum(part, castagnoli))
			b = append(b, part...)
		}
	}
	if over := len(b) % pageBytes; over > 0 {
		b = append(b, make([]byte, pageBytes-over)...)
	}
	return b
}

// logReader decodes records.
type logReader struct {
	decoder record.Decoder
	buffer  compression.DecodeBuffer
	series  []record.RefSeries
	samples []record.RefSample
	hists   []record.RefHistogramSample
	floats  []record.RefFloatHistogramSample
}

func newLogReader() *logReader {
	return &logReader{decoder: record.NewDecoder(labels.NewSymbolTable(), slog.New(slog.DiscardHandler)),
		buffer: compression.NewSyncDecodeBuffer()}
}

// read calls series and sample for all in a record, and reports whether it is a marker of chunks on the disk. An
// undecodable record has none.
func (l *logReader) read(r logRecord, series func(chunks.HeadSeriesRef), sample func(ref chunks.HeadSeriesRef,
	at int64)) (marker bool) {
	kind := compression.None
	switch {
	case r.flags&snappyFlag != 0:
		kind = compression.Snappy
	case r.flags&zstdFlag != 0:
		kind = compression.Zstd
	}
	b, err := compression.Decode(kind, r.bytes, l.buffer)
	if err != nil {
		return false
	}
	switch l.decoder.Type(b) {
	case record.MmapMarkers:
		return true
	case record.Series:
		l.series, err = l.decoder.Series(b, l.series[:0])
		for _, s := range l.series {
			series(s.Ref)
		}
	case record.Samples, record.SamplesV2:
		l.samples, err = l.decoder.Samples(b, l.samples[:0])
		for _, s := range l.samples {
			sample(s.Ref, s.T)
		}
	case record.HistogramSamples, record.CustomBucketsHistogramSamples, record.HistogramSamplesV2:
		l.hists, err = l.decoder.HistogramSamples(b, l.hists[:0])
		for _, s := range l.hists {
			sample(s.Ref, s.T)
		}
	case record.FloatHistogramSamples, record.CustomBucketsFloatHistogramSamples, record.FloatHistogramSamplesV2:
		l.floats, err = l.decoder.FloatHistogramSamples(b, l.floats[:0])
		for _, s := range l.floats {
			sample(s.Ref, s.T)
		}
	}
	_ = err // what was decoded before it counts
	return false
}

// count finds out how many samples there are, and between which times the holes are.
func (s *segmentScan) count() {
	l, last, wait := newLogReader(), int64(noSample), false
	for _, r := range s.records {
		if r.afterDamage {
			if s.from == noSample {
				s.from = last
			}
			wait = true
		}
		l.read(r, func(chunks.HeadSeriesRef) {}, func(_ chunks.HeadSeriesRef, at int64) {
			s.samples++
			last = max(last, at)
			if wait {
				s.to, wait = at, false
			}
		})
	}
	if s.tail && s.from == noSample {
		s.from = last
	}
}

// lost estimates the samples in the holes from those of the readable parts.
func (s *segmentScan) lost() uint64 {
	if s.good == 0 {
		return 0
	}
	return uint64((float64(s.bytes)*float64(s.samples))/float64(s.good) + 0.5)
}

// orphans are samples of series that are in no log.
type orphans struct {
	reader   *logReader
	known    map[chunks.HeadSeriesRef]struct{}
	unknown  map[chunks.HeadSeriesRef]struct{}
	samples  uint64
	from, to int64
}

func newOrphans() *orphans {
	return &orphans{reader: newLogReader(), known: map[chunks.HeadSeriesRef]struct{}{},
		unknown: map[chunks.HeadSeriesRef]struct{}{}, from: noSample, to: noSample}
}

// add reads a record: all of them first for their series, then again for their samples.
func (o *orphans) add(r logRecord, samples bool) {
	o.reader.read(r, func(ref chunks.HeadSeriesRef) { o.known[ref] = struct{}{} },
		func(ref chunks.HeadSeriesRef, at int64) {
			if _, ok := o.known[ref]; ok || !samples {
				return
			}
			o.unknown[ref] = struct{}{}
			if o.samples == 0 {
				o.from = at
			}
			o.samples++
			o.from, o.to = min(o.from, at), max(o.to, at)
		})
}
