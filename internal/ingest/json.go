package ingest

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	colpb "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// jsonLimits bound what a request in JSON becomes.
type jsonLimits struct {
	// bytes of the same request in protobuf.
	bytes int
	// elements are its resources, scopes, metrics and data points.
	elements int
	// grow is called with the number of bytes to reserve; nil for none.
	grow func(n int64) error
}

// maxJSONDepth bounds how deep values are nested. A request has ten levels, and lists in attributes are followed for
// eight more.
const maxJSONDepth = 64

var requestType = (*colpb.ExportMetricsServiceRequest)(nil).ProtoReflect().Descriptor()

// fromJSON converts OTLP's JSON to protobuf, token by token: the generated types would take a hundred bytes for an
// empty message of two.
func fromJSON(b []byte, limits jsonLimits) ([]byte, error) {
	r := &jsonReader{tokens: json.NewDecoder(bytes.NewReader(b)), limits: limits}
	r.tokens.UseNumber()
	err := r.begin(json.Delim('{'))
	if err == nil {
		err = r.message(requestType, 1)
	}
	if err == nil {
		if _, end := r.tokens.Token(); end != io.EOF {
			err = errors.New("more follows the request")
		}
	}
	if err != nil && !errors.Is(err, errTooLarge) && !errors.Is(err, ErrTooManyPoints) && !errors.Is(err, errBusy) {
		err = fmt.Errorf("%w: JSON: %w", ErrMalformed, err)
	}
	return r.out, err
}

type jsonReader struct {
	tokens   *json.Decoder
	limits   jsonLimits
	out      []byte
	reserved int
	elements int
}

func (r *jsonReader) begin(want json.Delim) error {
	t, err := r.tokens.Token()
	if err == nil && t != want {
		err = fmt.Errorf("got %.40v, want %v", t, want)
	}
	return err
}

// message reads the fields of an object, of which the brace has been read.
func (r *jsonReader) message(of protoreflect.MessageDescriptor, depth int) error {
	if depth > maxJSONDepth {
		return fmt.Errorf("values nested deeper than %d", maxJSONDepth)
	}
	switch of.Name() {
	case "ResourceMetrics", "ScopeMetrics", "Metric", "NumberDataPoint", "HistogramDataPoint",
		"ExponentialHistogramDataPoint", "SummaryDataPoint":
		if r.elements++; r.elements > r.limits.elements {
			return fmt.Errorf("%w: more than %d resources, scopes, metrics and points", ErrTooManyPoints, r.limits.elements)
		}
	}
	// Fields and alternatives seen so far, as bits of their index: no message here has 64 of either.
	var seen, chosen uint64
	for r.tokens.More() {
		t, err := r.tokens.Token()
		if err != nil {
			return err
		}
		name, _ := t.(string)
		field := of.Fields().ByJSONName(name)
		if field == nil {
			field = of.Fields().ByTextName(name)
		}
		if field == nil || name == "exemplars" { // which nobody reads here
			if err := r.skip(depth); err != nil {
				return err
			}
			continue
		}
		if seen&(1<<field.Index()) != 0 {
			return fmt.Errorf("field %q comes twice", name)
		}
		seen |= 1 << field.Index()
		if t, err = r.tokens.Token(); err != nil {
			return err
		}
		if t == nil {
			continue
		}
		if one := field.ContainingOneof(); one != nil && !one.IsSynthetic() {
			if chosen&(1<<one.Index()) != 0 {
				return fmt.Errorf("field %q is one too many of %s", name, one.Name())
			}
			chosen |= 1 << one.Index()
		}
		if err := r.field(field, t, depth); err != nil {
			return err
		}
	}
	_, err := r.tokens.Token()
	return err
}

// field appends a field, the first token of which is t.
func (r *jsonReader) field(field protoreflect.FieldDescriptor, t json.Token, depth int) error {
	if !field.IsList() {
		if field.Message() == nil {
			r.out = protowire.AppendTag(r.out, field.Number(), wireType(field.Kind()))
		}
		return r.value(field, t, depth)
	}
	if t != json.Delim('[') {
		return fmt.Errorf("field %q: got %.40v, want a list", field.JSONName(), t)
	}
	at := len(r.out)
	for r.tokens.More() {
		t, err := r.tokens.Token()
		if err != nil {
			return err
		}
		if field.Message() == nil && !field.IsPacked() {
			r.out = protowire.AppendTag(r.out, field.Number(), wireType(field.Kind()))
		}
		if err := r.value(field, t, depth); err != nil {
			return err
		}
	}
	if field.IsPacked() && len(r.out) > at {
		r.wrap(field.Number(), at)
	}
	_, err := r.tokens.Token()
	return err
}

// value appends a value without its tag, or a message with it.
func (r *jsonReader) value(field protoreflect.FieldDescriptor, t json.Token, depth int) error {
	if of := field.Message(); of != nil {
		if t != json.Delim('{') {
			return fmt.Errorf("field %q: got %.40v, want an object", field.JSONName(), t)
		}
		at := len(r.out)
		if err := r.message(of, depth+1); err != nil {
			return err
		}
		r.wrap(field.Number(), at)
		return r.bound()
	}
	out, ok := appendScalar(r.out, field, t)
	if !ok {
		return fmt.Errorf("field %q: %.40v is no %v", field.JSONName(), t, field.Kind())
	}
	r.out = out
	return r.bound()
}

// wrap makes a length-delimited field of what was appended since at.
func (r *jsonReader) wrap(number protowire.Number, at int) {
	var head [16]byte
	before := protowire.AppendVarint(protowire.AppendTag(head[:0], number, protowire.BytesType), uint64(len(r.out)-at))
	r.out = append(r.out, before...)
	copy(r.out[at+len(before):], r.out[at:])
	copy(r.out[at:], before)
}

func (r *jsonReader) bound() error {
	if len(r.out) > r.limits.bytes {
		return fmt.Errorf("%w: more than %d bytes as protobuf", errTooLarge, r.limits.bytes)
	}
	if more := cap(r.out) - r.reserved; more > 0 && r.limits.grow != nil {
		if err := r.limits.grow(int64(more)); err != nil {
			return err
		}
		r.reserved += more
	}
	return nil
}

// skip reads a value of an unknown field.
func (r *jsonReader) skip(depth int) error {
	for open := 0; ; {
		t, err := r.tokens.Token()
		if err != nil {
			return err
		}
		switch t {
		case json.Delim('{'), json.Delim('['):
			open++
		case json.Delim('}'), json.Delim(']'):
			open--
		}
		if depth+open > maxJSONDepth {
			return fmt.Errorf("values nested deeper than %d", maxJSONDepth)
		}
		if open == 0 {
			return nil
		}
	}
}

func wireType(kind protoreflect.Kind) protowire.Type {
	switch kind {
	case protoreflect.StringKind, protoreflect.BytesKind:
		return protowire.BytesType
	case protoreflect.DoubleKind, protoreflect.Fixed64Kind, protoreflect.Sfixed64Kind:
		return protowire.Fixed64Type
	case protoreflect.FloatKind, protoreflect.Fixed32Kind, protoreflect.Sfixed32Kind:
		return protowire.Fixed32Type
	}
	return protowire.VarintType
}

// appendScalar appends a value that is no message. OTLP's metrics have the kinds that are here.
func appendScalar(out []byte, field protoreflect.FieldDescriptor, t json.Token) (_ []byte, ok bool) {
	text, isText := t.(string)
	number, isNumber := t.(json.Number)
	if isNumber {
		text = string(number)
	}
	switch kind := field.Kind(); kind {
	case protoreflect.StringKind:
		return protowire.AppendString(out, text), isText
	case protoreflect.BytesKind:
		b, err := decodeBase64(text)
		return protowire.AppendBytes(out, b), isText && err == nil
	case protoreflect.BoolKind:
		v, ok := t.(bool)
		return protowire.AppendVarint(out, protowire.EncodeBool(v)), ok
	case protoreflect.EnumKind:
		if named := field.Enum().Values().ByName(protoreflect.Name(text)); isText {
			if named == nil { // of a later version
				return protowire.AppendVarint(out, 0), true
			}
			return protowire.AppendVarint(out, uint64(named.Number())), true
		}
		v, ok := integer(text, 32, true)
		return protowire.AppendVarint(out, v), ok && isNumber
	case protoreflect.DoubleKind:
		v, ok := double(text, isText)
		return protowire.AppendFixed64(out, math.Float64bits(v)), ok && (isText || isNumber)
	case protoreflect.Sint32Kind:
		v, ok := integer(text, 32, true)
		return protowire.AppendVarint(out, protowire.EncodeZigZag(int64(v))), ok
	case protoreflect.Uint32Kind, protoreflect.Uint64Kind:
		bits := 32
		if kind == protoreflect.Uint64Kind {
			bits = 64
		}
		v, ok := integer(text, bits, false)
		return protowire.AppendVarint(out, v), ok
	case protoreflect.Int32Kind, protoreflect.Int64Kind:
		bits := 32
		if kind == protoreflect.Int64Kind {
			bits = 64
		}
		v, ok := integer(text, bits, true)
		return protowire.AppendVarint(out, v), ok
	case protoreflect.Fixed64Kind, protoreflect.Sfixed64Kind:
		v, ok := integer(text, 64, kind == protoreflect.Sfixed64Kind)
		return binary.LittleEndian.AppendUint64(out, v), ok
	case protoreflect.Fixed32Kind:
		v, ok := integer(text, 32, false)
		return binary.LittleEndian.AppendUint32(out, uint32(v)), ok
	}
	return out, false
}

// integer reads a whole number, which may be written as 1e3 or 7.0.
func integer(text string, bits int, signed bool) (v uint64, ok bool) {
	if signed {
		if n, err := strconv.ParseInt(text, 10, bits); err == nil {
			return uint64(n), true
		}
	} else if n, err := strconv.ParseUint(text, 10, bits); err == nil {
		return n, true
	}
	// Whole numbers to 2^53 are exact as a float; greater ones are not written so.
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 || !signed && f < 0 ||
		strings.ContainsAny(text, "xXpP_nN") {
		return 0, false
	}
	if bits == 32 && (signed && (f < math.MinInt32 || f > math.MaxInt32) || !signed && f > math.MaxUint32) {
		return 0, false
	}
	return uint64(int64(f)), true
}

func double(text string, quoted bool) (float64, bool) {
	if quoted {
		switch text {
		case "NaN":
			return math.NaN(), true
		case "Infinity":
			return math.Inf(1), true
		case "-Infinity":
			return math.Inf(-1), true
		}
		if strings.ContainsAny(text, "xXpP_nNiI") {
			return 0, false
		}
	}
	v, err := strconv.ParseFloat(text, 64)
	return v, err == nil
}

// decodeBase64 accepts both alphabets, with or without padding.
func decodeBase64(text string) ([]byte, error) {
	encoding := base64.RawStdEncoding
	if strings.ContainsAny(text, "-_") {
		encoding = base64.RawURLEncoding
	}
	return encoding.DecodeString(strings.TrimRight(text, "="))
}
