package frame

import (
	"encoding/binary"
	"maps"
	"math"
	"slices"
	"sync"

	"outsight/internal/model"
)

// layout says what the tables of an encoded frame have, and what of this program's Schema that is.
type layout struct {
	tables []tableLayout
	// metrics are those of Labelled, by their names.
	metrics map[string]MetricInfo
}

// tableLayout has for each attribute, column and histogram of the sender its index in Schema; -1 for one that this program
// does not know.
type tableLayout struct {
	id                              int
	attributes, columns, histograms []int
}

// MetricInfo is a metric of the table Labelled.
type MetricInfo struct {
	model.Metric
	// Per is how many of a value are one of the metric's unit.
	Per float64
}

// Limits of a schema.
const (
	maxSchemaItems = 4096
	maxLayouts     = 64
)

// ownSchema is this program's schema: the block, and how it is read.
var ownSchema = sync.OnceValue(func() (own struct {
	block
	layout *layout
}) {
	raw := appendSchema(nil, Schema[:])
	own.block = block{compress(nil, raw), len(raw)}
	l, err := parseSchema(raw)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	own.layout = l
	return own
})

func appendSchema(dst []byte, schema []TableInfo) []byte {
	text := func(s string) {
		dst = binary.AppendUvarint(dst, uint64(len(s)))
		dst = append(dst, s...)
	}
	number := func(n int) { dst = binary.AppendUvarint(dst, uint64(n)) }
	float := func(f float64) { dst = binary.LittleEndian.AppendUint64(dst, math.Float64bits(f)) }
	columns := func(all []ColumnInfo) {
		number(len(all))
		for i := range all {
			c := &all[i]
			file := 0
			if c.File {
				file = 1
			}
			text(c.Name)
			number(int(c.Kind))
			number(c.Of)
			number(file)
			text(c.Metric)
			text(c.Unit)
			text(c.Label.Name)
			text(c.Label.Value)
			float(c.Per)
		}
	}
	number(len(schema))
	for i := range schema {
		t := &schema[i]
		text(t.Name)
		number(len(t.Attributes))
		for _, a := range t.Attributes {
			text(a.Name)
			number(int(a.Kind))
			number(int(a.Of))
		}
		columns(t.Columns)
		columns(t.Histograms)
	}
	number(len(LabelledMetrics))
	for _, name := range slices.Sorted(maps.Keys(LabelledMetrics)) {
		m := LabelledMetrics[name]
		text(m.Name)
		number(int(m.Kind))
		text(m.Unit)
		float(m.Per())
		number(len(m.Labels))
		for _, l := range m.Labels {
			text(l)
		}
	}
	return dst
}

// layouts are those that were read, by the block as it was received.
var layouts struct {
	sync.RWMutex
	byBlock map[string]*layout
}

// layoutOf is the layout that a block of a key frame tells.
func layoutOf(b block) (*layout, error) {
	own := ownSchema()
	if string(b.compressed) == string(own.compressed) {
		return own.layout, nil
	}
	layouts.RLock()
	l := layouts.byBlock[string(b.compressed)]
	layouts.RUnlock()
	if l != nil {
		return l, nil
	}
	raw, err := decompress(nil, b)
	if err != nil {
		return nil, err
	}
	if l, err = parseSchema(raw); err != nil {
		return nil, err
	}
	layouts.Lock()
	defer layouts.Unlock()
	if layouts.byBlock == nil || len(layouts.byBlock) >= maxLayouts {
		layouts.byBlock = map[string]*layout{}
	}
	layouts.byBlock[string(b.compressed)] = l
	return l, nil
}

// parseSchema reads what appendSchema wrote, of this or another version of the program.
func parseSchema(raw []byte) (*layout, error) {
	r := &reader{b: raw}
	l := &layout{metrics: map[string]MetricInfo{}}
	var known [NumTables]bool
	for range r.count(maxSchemaItems) {
		name := r.text()
		t := tableLayout{id: slices.IndexFunc(Schema[:], func(i TableInfo) bool { return i.Name == name })}
		var own TableInfo
		if t.id >= 0 {
			own = Schema[t.id]
			if known[t.id] {
				return nil, malformed("two tables %q", name)
			}
			known[t.id] = true
		}
		t.attributes = readAttributes(r, own.Attributes)
		t.columns = readColumns(r, own.Columns)
		t.histograms = readColumns(r, own.Histograms)
		l.tables = append(l.tables, t)
	}
	for range r.count(maxSchemaItems) {
		var m MetricInfo
		m.Name, m.Kind, m.Unit, m.Per = r.text(), model.SeriesKind(r.uvarint()), r.text(), r.float()
		for range r.count(maxSchemaItems) {
			m.Labels = append(m.Labels, r.text())
		}
		if len(m.Labels) > MaxLabels || m.Kind < model.Counter || m.Kind > model.HistogramSeries ||
			!(m.Per >= 1/maxFloat && m.Per <= maxFloat) {
			return nil, malformed("the metric %q", m.Name)
		}
		if own, ok := LabelledMetrics[m.Name]; ok {
			m.OTel, m.Help, m.Entity = own.OTel, own.Help, own.Entity
		}
		l.metrics[m.Name] = m
	}
	if r.failed || r.left() > 0 {
		return nil, malformed("its schema")
	}
	return l, nil
}

func readAttributes(r *reader, own []AttributeInfo) (at []int) {
	taken := make([]bool, len(own))
	for range r.count(maxSchemaItems) {
		name, kind := r.text(), r.uvarint()
		r.uvarint() // the table that it refers to: the name says that
		at = append(at, once(taken, slices.IndexFunc(own, func(i AttributeInfo) bool {
			return i.Name == name && uint64(i.Kind) == kind
		})))
	}
	return at
}

// readColumns matches columns by their names. One that has another kind or unit is another column.
func readColumns(r *reader, own []ColumnInfo) (at []int) {
	taken := make([]bool, len(own))
	for range r.count(maxSchemaItems) {
		name, kind := r.text(), r.uvarint()
		r.uvarint()
		r.uvarint()
		for range 4 {
			r.text()
		}
		per := r.float()
		at = append(at, once(taken, slices.IndexFunc(own, func(i ColumnInfo) bool {
			return i.Name == name && uint64(i.Kind) == kind && i.Per == per
		})))
	}
	return at
}

// once answers i, and -1 the second time.
func once(taken []bool, i int) int {
	if i < 0 || taken[i] {
		return -1
	}
	taken[i] = true
	return i
}

// Metric is what the sender of the frame says of a metric of its table Labelled, which may be one that this program does
// not know.
func (f *Frame) Metric(name string) (m MetricInfo, ok bool) {
	l := f.layout
	if l == nil {
		l = ownSchema().layout
	}
	m, ok = l.metrics[name]
	return m, ok
}
