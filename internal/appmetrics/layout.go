package appmetrics

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"
	"sync/atomic"
	"unicode/utf8"
	"unsafe"

	"outsight/internal/model"
)

// Layout of a file, see docs/format/appmetrics.md.
const (
	magic           = "OSAPPMET"
	version         = 1
	headerBytes     = 64
	descriptorBytes = 16

	offsetVersion     = 8
	offsetHeaderBytes = 10
	offsetBytes       = 12
	offsetDescriptors = 16
	offsetCapacity    = 20
	offsetCount       = 24
	offsetClosed      = 28
	offsetRefused     = 32
)

// Bounds of what is taken from a file.
const (
	maxFileBytes   = 16 << 20
	maxNameBytes   = 128
	maxUnitBytes   = 64
	maxHelpBytes   = 512
	maxTextBytes   = 4096
	maxLabels      = 8
	maxLabelsBytes = 512
)

// ValueType is how the 8 bytes of a value are a number.
type ValueType uint8

// The types of a value.
const (
	typeU64 ValueType = iota + 1
	typeI64
	typeF64
)

// Known says that it is one of them.
func (t ValueType) Known() bool { return t >= typeU64 && t <= typeF64 }

const (
	kindCounter = 1
	kindGauge   = 2
)

var (
	errVersion = errors.New("version not known")
	errLayout  = errors.New("not of the layout")
	errPages   = errors.New("too many pages")
)

// descriptor is a metric of a file.
type descriptor struct {
	model.ApplicationKey
	unit, help string
	value      uint32
	valueType  ValueType
}

// layout reads the bytes of a file, which may change at any time.
type layout struct {
	data []byte
	// descriptors is where they begin, capacity how many there is room for, read how many have been read.
	descriptors, capacity, read uint32
	// touched are the pages that were read, a bit each; mayTouch says whether that many more may be.
	touched  []uint64
	mayTouch func(pages int) bool
}

// newLayout checks the header of a file. data begins at a multiple of 8. What mayTouch has granted is given back where it
// fails.
func newLayout(data []byte, mayTouch func(pages int) bool) (_ *layout, err error) {
	if len(data) < headerBytes || len(data) > maxFileBytes {
		return nil, fmt.Errorf("%w: %d bytes", errLayout, len(data))
	}
	l := &layout{data: data, touched: make([]uint64, (len(data)/pageBytes+64)/64), mayTouch: mayTouch}
	if err := l.touch(0, headerBytes); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			mayTouch(-l.pages())
		}
	}()
	header := [headerBytes]byte(data[:headerBytes])
	if string(header[:len(magic)]) != magic {
		return nil, fmt.Errorf("%w: no magic", errLayout)
	}
	if v := binary.LittleEndian.Uint16(header[offsetVersion:]); v != version {
		return nil, fmt.Errorf("%w: %d", errVersion, v)
	}
	number := func(at int) uint32 { return binary.LittleEndian.Uint32(header[at:]) }
	l.descriptors, l.capacity = number(offsetDescriptors), number(offsetCapacity)
	end := uint64(l.descriptors) + uint64(l.capacity)*descriptorBytes
	if binary.LittleEndian.Uint16(header[offsetHeaderBytes:]) < headerBytes || number(offsetBytes) != uint32(len(data)) ||
		l.descriptors < headerBytes || l.descriptors%8 != 0 || end > uint64(len(data)) {
		return nil, fmt.Errorf("%w: lengths %x", errLayout, header[offsetHeaderBytes:offsetCount])
	}
	return l, nil
}

// pageBytes is the least size of a page.
const pageBytes = 4096

// touch notes that bytes will be read. A page that the process has not written is made when it is read, at the expense of
// who reads it: so they are bounded.
func (l *layout) touch(at, bytes uint32) error {
	var fresh []uint32
	for page := at / pageBytes; page <= (at+bytes-1)/pageBytes; page++ {
		if l.touched[page/64]>>(page%64)&1 == 0 {
			fresh = append(fresh, page)
		}
	}
	if len(fresh) == 0 {
		return nil
	}
	if !l.mayTouch(len(fresh)) {
		return errPages
	}
	for _, page := range fresh {
		l.touched[page/64] |= 1 << (page % 64)
	}
	return nil
}

// pages is how many were read.
func (l *layout) pages() (n int) {
	for _, word := range l.touched {
		n += bits.OnesCount64(word)
	}
	return n
}

func (l *layout) load(at uint32) uint64 {
	return atomic.LoadUint64((*uint64)(unsafe.Pointer(&l.data[at])))
}

func (l *layout) load32(at uint32) uint32 {
	return atomic.LoadUint32((*uint32)(unsafe.Pointer(&l.data[at])))
}

// closed says that nothing is written any more.
func (l *layout) closed() bool { return l.load32(offsetClosed) != 0 }

// refused is how many metrics found no room in the file.
func (l *layout) refused() uint64 { return l.load(offsetRefused) }

// fresh are the descriptors that came since the last call, at most so many. What is not of the layout counts as bad, what
// lies in too many pages as far.
func (l *layout) fresh(most int) (all []descriptor, bad, far int) {
	// The number is written after what it counts.
	count := min(l.load32(offsetCount), l.capacity)
	for ; l.read < count && most > 0; l.read++ {
		most--
		switch d, err := l.descriptor(l.read); {
		case errors.Is(err, errPages):
			far++
		case err != nil:
			bad++
		default:
			all = append(all, d)
		}
	}
	return all, bad, far
}

// more says whether there are descriptors that were not read.
func (l *layout) more() uint32 {
	return min(l.load32(offsetCount), l.capacity) - min(l.read, l.capacity)
}

func (l *layout) descriptor(i uint32) (d descriptor, err error) {
	at := l.descriptors + i*descriptorBytes
	if err := l.touch(at, descriptorBytes); err != nil {
		return d, err
	}
	// A copy: checked and used are the same bytes.
	raw := [descriptorBytes]byte(l.data[at : at+descriptorBytes])
	d.value = binary.LittleEndian.Uint32(raw[0:])
	text, length := binary.LittleEndian.Uint32(raw[4:]), binary.LittleEndian.Uint16(raw[8:])
	switch raw[10] {
	case kindCounter:
		d.Kind = model.Counter
	case kindGauge:
		d.Kind = model.Gauge
	default:
		return d, errLayout
	}
	d.valueType = ValueType(raw[11])
	size := uint64(len(l.data))
	if !d.valueType.Known() || d.value%8 != 0 || d.value < headerBytes ||
		uint64(d.value)+8 > size || length == 0 || length > maxTextBytes || uint64(text)+uint64(length) > size {
		return d, errLayout
	}
	if err := errors.Join(l.touch(text, uint32(length)), l.touch(d.value, 8)); err != nil {
		return d, err
	}
	// Another copy, by which a string is made.
	parts := strings.Split(string(l.data[text:text+uint32(length)]), "\x00")
	if last := len(parts) - 1; parts[last] != "" || last < 3 || last%2 == 0 {
		return d, errLayout
	}
	parts = parts[:len(parts)-1]
	d.unit, d.help = PrintableTexts(parts[1], parts[2])
	if d.Name, err = storedName(parts[0], d.Kind); err != nil {
		return d, err
	}
	d.Fine = d.Kind == model.Counter && d.valueType == typeF64
	d.Labels, err = encodeLabels(parts[3:])
	return d, err
}

// storedName is the name of a metric that an application calls name: no metric of Outsight has such a one.
func storedName(name string, kind model.SeriesKind) (string, error) {
	if len(name) > maxNameBytes || !isName(name, true) {
		return "", errLayout
	}
	switch total := strings.HasSuffix(name, "_total"); {
	case kind == model.Gauge && total:
		return "", errLayout // another container's counter may have this name
	case kind == model.Counter && !total:
		name += "_total"
	}
	return model.ApplicationPrefix + name, nil
}

func isName(s string, colon bool) bool {
	for i := range len(s) {
		c := s[i]
		if !(c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || colon && c == ':' || i > 0 && c >= '0' && c <= '9') {
			return false
		}
	}
	return s != ""
}

// encodeLabels makes one text of names and values in turn.
func encodeLabels(pairs []string) (string, error) {
	var all []model.Label
	for i := 0; i < len(pairs); i += 2 {
		all = append(all, model.Label{Name: pairs[i], Value: pairs[i+1]})
	}
	text := model.LabelText(all)
	if !areLabels(all) || len(text) > maxLabelsBytes {
		return "", errLayout
	}
	return text, nil
}

func areLabels(all []model.Label) bool {
	for i, l := range all {
		if !isName(l.Name, false) || strings.HasPrefix(l.Name, "__") || !utf8.ValidString(l.Value) ||
			slices.ContainsFunc(all[:i], func(other model.Label) bool { return other.Name == l.Name }) {
			return false
		}
	}
	return len(all) <= maxLabels
}

// PrintableTexts are the unit and the help of a metric as far as they may be shown.
func PrintableTexts(unit, help string) (string, string) {
	return model.Printable(unit, maxUnitBytes), model.Printable(help, maxHelpBytes)
}

// IsKey says that an application's metric may be called so: it has no name of Outsight's, and labels that are some.
func IsKey(k *model.ApplicationKey) bool {
	name, ok := strings.CutPrefix(k.Name, model.ApplicationPrefix)
	if len(name) > maxNameBytes {
		name = strings.TrimSuffix(name, "_total") // which the application may not have given it
	}
	if stored, err := storedName(name, k.Kind); !ok || err != nil || stored != k.Name {
		return false
	}
	labels, ok := model.ParseLabelText(k.Labels)
	return ok && areLabels(labels) && len(k.Labels) <= maxLabelsBytes && (k.Kind == model.Counter || k.Kind == model.Gauge && !k.Fine)
}

func (d *descriptor) number(raw uint64) uint64         { return d.valueType.Number(raw) }
func (d *descriptor) level(raw uint64) (float64, bool) { return d.valueType.Level(raw) }

// Number is a value of a counter, in parts of 1e-9 if it is a float; it is 0 where that is no number of a counter.
func (t ValueType) Number(raw uint64) uint64 {
	switch t {
	case typeI64:
		return uint64(max(int64(raw), 0))
	case typeF64:
		if f := math.Float64frombits(raw); f > 0 && f < maxFine {
			return uint64(f * model.ApplicationFine)
		}
		return 0
	}
	return raw
}

// maxFine is the greatest value of a counter that is a float.
const maxFine = float64(1<<63) / model.ApplicationFine

// Level is a value of a gauge; false where it is no number.
func (t ValueType) Level(raw uint64) (float64, bool) {
	switch t {
	case typeI64:
		return float64(int64(raw)), true
	case typeF64:
		f := math.Float64frombits(raw)
		return f, !math.IsNaN(f) && !math.IsInf(f, 0)
	}
	return float64(raw), true
}
