package ingest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"outsight/internal/model"
)

// Names are added to a batch once, before it is queued, and are part of its message: after a restart it is appended
// with the same labels, whatever the cluster is like by then. They follow the request in a frame that every zstd
// decoder skips; headerNames has its length.
const (
	skippableFrame = 0x184d2a50
	frameHeader    = 8
	// maxNamed bounds the labels that a set adds to one series.
	maxNamed = 64
)

// nameable is how old samples may be to get names: addresses are reassigned.
const nameable = 5 * time.Minute

// name adds names to the series of an agent's batch whose labels are in the cluster of Options.Name and recent. A named
// series has another key. It waits until Named is closed.
func (i *Ingest) name(ctx context.Context, series []model.Series) ([]model.Series, error) {
	if i.options.Name == nil || len(series) == 0 {
		return series, nil
	}
	if i.options.Named != nil {
		select {
		case <-i.options.Named:
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for the names of pods: %w", ctx.Err())
		}
	}
	if i.options.Now().Sub(series[0].Time) > nameable {
		return series, nil
	}
	named := i.options.Name(series)
	i.names.settle(series, named)
	return named, nil
}

// labelsKey identifies a slice of labels: most series of a batch share theirs with others.
type labelsKey struct {
	first *model.Label
	count int
}

func keyOf(labels []model.Label) labelsKey {
	if len(labels) == 0 {
		return labelsKey{}
	}
	return labelsKey{&labels[0], len(labels)}
}

// appendNames appends to a message's data, compressed, how named differs from series. It appends nothing if they are
// equal.
func appendNames(data []byte, series, named []model.Series, encoder *zstd.Encoder) (_ []byte, length int) {
	names := encodeNames(series, named)
	if names == nil {
		return data, 0
	}
	names = encoder.EncodeAll(names, nil)
	data = binary.LittleEndian.AppendUint32(data, skippableFrame)
	data = binary.LittleEndian.AppendUint32(data, uint32(len(names)))
	return append(data, names...), frameHeader + len(names)
}

// encodeNames encodes sets of labels, which series got which, and the values that changed; nil if none did.
func encodeNames(series, named []model.Series) []byte {
	type pair struct{ before, after labelsKey }
	// A set has a number from 1 on, by its bytes; 0 is none.
	numbers, known := map[string]uint64{}, map[pair]uint64{}
	var sets, runs, values []byte
	var last, run, changed, previous uint64
	for n := range series {
		before, after := series[n].Labels, named[n].Labels
		number := uint64(0)
		if p := (pair{keyOf(before), keyOf(after)}); p.before != p.after {
			var ok bool
			if number, ok = known[p]; !ok {
				if set := addedLabels(before, after); len(set) > 0 {
					if number = numbers[string(set)]; number == 0 {
						number = uint64(len(numbers) + 1)
						numbers[string(set)] = number
						sets = append(sets, set...)
					}
				}
				known[p] = number
			}
		}
		if number != last && run > 0 {
			runs = binary.AppendUvarint(binary.AppendUvarint(runs, last), run)
			run = 0
		}
		last, run = number, run+1
		if math.Float64bits(series[n].Value) != math.Float64bits(named[n].Value) {
			values = binary.AppendUvarint(values, uint64(n)-previous)
			values = binary.BigEndian.AppendUint64(values, math.Float64bits(named[n].Value))
			previous = uint64(n)
			changed++
		}
	}
	if len(numbers) == 0 && changed == 0 {
		return nil
	}
	runs = binary.AppendUvarint(binary.AppendUvarint(runs, last), run)
	payload := binary.AppendUvarint(nil, uint64(len(series)))
	payload = append(binary.AppendUvarint(payload, uint64(len(numbers))), sets...)
	payload = append(payload, runs...)
	return append(binary.AppendUvarint(payload, changed), values...)
}

// addedLabels are those of after that before does not have; nil if there are none.
func addedLabels(before, after []model.Label) []byte {
	var b []byte
	n := uint64(0)
	for _, l := range after {
		if slices.Contains(before, l) {
			continue
		}
		n++
		for _, text := range []string{l.Name, l.Value} {
			b = append(binary.AppendUvarint(b, uint64(len(text))), text...)
		}
	}
	if n == 0 {
		return nil
	}
	return append(binary.AppendUvarint(nil, n), b...)
}

var (
	errNames = errors.New("the names in it cannot be read")
	// errOtherSeries: the request was read otherwise when it was named, by another release of this program, say.
	errOtherSeries = errors.New("the names in it are of other series")
)

// applyNames reverses appendNames. The frame is the end of the data, and of this length.
func applyNames(data []byte, length string, series []model.Series, decoder *zstd.Decoder) ([]model.Series, error) {
	n, err := strconv.Atoi(length)
	if err != nil || n < frameHeader || n > len(data) {
		return nil, fmt.Errorf("%w: they have %q bytes of %d", errNames, length, len(data))
	}
	names, err := decoder.DecodeAll(data[len(data)-n+frameHeader:], nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNames, err)
	}
	return decodeNames(names, series)
}

// decodeNames reverses encodeNames.
func decodeNames(names []byte, series []model.Series) ([]model.Series, error) {
	r := nameReader{remaining: names}
	if count := r.number(); count != uint64(len(series)) {
		return nil, fmt.Errorf("%w: they are of %d, and there are %d", errOtherSeries, count, len(series))
	}
	sets := make([][]model.Label, r.count())
	for n := range sets {
		labels := make([]model.Label, min(r.count(), maxNamed))
		for l := range labels {
			labels[l] = model.Label{Name: r.text(), Value: r.text()}
		}
		sets[n] = labels
	}
	named := slices.Clone(series)
	type key struct {
		of     labelsKey
		number uint64
	}
	merged := map[key][]model.Label{}
	for at := 0; at < len(named) && !r.bad; {
		number, run := r.number(), r.number()
		if number > uint64(len(sets)) || run == 0 || run > uint64(len(named)-at) {
			r.bad = true
			break
		}
		for ; run > 0; run, at = run-1, at+1 {
			if number == 0 {
				continue
			}
			k := key{keyOf(named[at].Labels), number}
			labels, ok := merged[k]
			if !ok {
				labels = withLabels(named[at].Labels, sets[number-1])
				merged[k] = labels
			}
			named[at].Labels, named[at].Key = labels, 0
		}
	}
	at := uint64(0)
	for changed := r.count(); changed > 0 && !r.bad; changed-- {
		at += r.number()
		if bits := r.fixed(); !r.bad && at < uint64(len(named)) {
			named[at].Value = math.Float64frombits(bits)
		} else {
			r.bad = true
		}
	}
	if r.bad || len(r.remaining) > 0 {
		return nil, errNames
	}
	return named, nil
}

// withLabels is labels with those added, in the order of their names. One that is there already is replaced.
func withLabels(labels, added []model.Label) []model.Label {
	merged := append(make([]model.Label, 0, len(labels)+len(added)), labels...)
	for _, l := range added {
		at, known := slices.BinarySearchFunc(merged, l, func(a, b model.Label) int { return strings.Compare(a.Name, b.Name) })
		if known {
			merged[at] = l
		} else {
			merged = slices.Insert(merged, at, l)
		}
	}
	return merged
}

// nameReader reads what appendNames wrote.
type nameReader struct {
	remaining []byte
	bad       bool
}

func (r *nameReader) number() uint64 {
	v, n := binary.Uvarint(r.remaining)
	if n <= 0 {
		r.bad, r.remaining = true, nil
		return 0
	}
	r.remaining = r.remaining[n:]
	return v
}

// count is the number of things that follow, each of a byte at least.
func (r *nameReader) count() uint64 {
	n := r.number()
	if n > uint64(len(r.remaining)) {
		r.bad, r.remaining = true, nil
		return 0
	}
	return n
}

func (r *nameReader) text() string {
	n := r.count()
	text := string(r.remaining[:n])
	r.remaining = r.remaining[n:]
	return text
}

func (r *nameReader) fixed() uint64 {
	if len(r.remaining) < 8 {
		r.bad, r.remaining = true, nil
		return 0
	}
	v := binary.BigEndian.Uint64(r.remaining)
	r.remaining = r.remaining[8:]
	return v
}
