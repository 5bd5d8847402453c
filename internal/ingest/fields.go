package ingest

import (
	"errors"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// errMalformed means that bytes are no message.
var errMalformed = errors.New("malformed protobuf")

// fields iterates over the fields of a protobuf message. The generated types would need an allocation for each
// attribute of each sample, which is most of the cost of decoding.
type fields struct {
	remaining []byte
	num       protowire.Number
	typ       protowire.Type
	// bytes of a length-delimited field, number of any other.
	bytes  []byte
	number uint64
	// start is where the field that was read began, counted from the message's end: len(rest) before it.
	start int
	bad   bool
}

// next reads a field. It returns false at the end, and if the message is malformed: see bad.
func (f *fields) next() bool {
	if len(f.remaining) == 0 || f.bad {
		return false
	}
	f.start = len(f.remaining)
	num, typ, n := protowire.ConsumeTag(f.remaining)
	if n < 0 {
		f.bad = true
		return false
	}
	f.num, f.typ, f.remaining = num, typ, f.remaining[n:]
	switch typ {
	case protowire.BytesType:
		f.bytes, n = protowire.ConsumeBytes(f.remaining)
	case protowire.VarintType:
		f.number, n = protowire.ConsumeVarint(f.remaining)
	case protowire.Fixed64Type:
		f.number, n = protowire.ConsumeFixed64(f.remaining)
	case protowire.Fixed32Type:
		var v uint32
		v, n = protowire.ConsumeFixed32(f.remaining)
		f.number = uint64(v)
	default:
		n = protowire.ConsumeFieldValue(num, typ, f.remaining)
	}
	if n < 0 {
		f.bad = true
		return false
	}
	f.remaining = f.remaining[n:]
	return true
}

// is reports whether the current field has this number and type. A known number with another type counts as unknown.
func (f *fields) is(num protowire.Number, typ protowire.Type) bool {
	return f.num == num && f.typ == typ
}

func (f *fields) message(num protowire.Number) bool { return f.is(num, protowire.BytesType) }
func (f *fields) fixed(num protowire.Number) bool   { return f.is(num, protowire.Fixed64Type) }
func (f *fields) varint(num protowire.Number) bool  { return f.is(num, protowire.VarintType) }
func (f *fields) double() float64                   { return math.Float64frombits(f.number) }

// appendVarints appends the numbers of a repeated field, packed or single, to to.
func (f *fields) appendVarints(to []uint64, most int) []uint64 {
	if f.typ == protowire.VarintType {
		if len(to) > most {
			f.bad = true
			return to
		}
		return append(to, f.number)
	}
	for b := f.bytes; len(b) > 0; {
		v, n := protowire.ConsumeVarint(b)
		if n < 0 || len(to) > most {
			f.bad = true
			return to
		}
		to, b = append(to, v), b[n:]
	}
	return to
}

// appendFixed is appendVarints for numbers of 8 bytes.
func (f *fields) appendFixed(to []uint64, most int) []uint64 {
	if f.typ == protowire.Fixed64Type {
		if len(to) > most {
			f.bad = true
			return to
		}
		return append(to, f.number)
	}
	if len(f.bytes)%8 != 0 || len(f.bytes)/8+len(to) > most+1 {
		f.bad = true
		return to
	}
	for b := f.bytes; len(b) > 0; b = b[8:] {
		v, _ := protowire.ConsumeFixed64(b)
		to = append(to, v)
	}
	return to
}
