package graph

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"sync"

	"outsight/internal/model"
)

// appendNumber appends a number with its key to an object of JSON. A duration may be past the end of its histogram, as
// Seconds.
func appendNumber(b []byte, n *model.Shown, v float64) ([]byte, error) {
	if b[len(b)-1] != '{' {
		b = append(b, ',')
	}
	b = append(b, '"')
	b = append(b, n.Key...)
	b = append(b, '"', ':')
	return appendValue(b, n.Key, n.Unit, v)
}

func appendValue(b []byte, key, unit string, v float64) ([]byte, error) {
	switch {
	case math.IsInf(v, 1) && unit == "s":
		return append(b, `"+Inf"`...), nil
	case math.IsInf(v, 0) || math.IsNaN(v):
		return b, fmt.Errorf("writing %s: JSON has no %v", key, v)
	case unit == "s":
		if text, ok := middles().text(v); ok {
			return append(b, text...), nil
		}
	}
	return appendFloat(b, v), nil
}

// middleTexts are the middles of buckets as JSON: most durations are quantiles, and to write their digits takes longer
// than to find them.
type middleTexts struct {
	numbers *numbers // of their bits
	texts   []string
}

var middles = sync.OnceValue(func() *middleTexts {
	m := &middleTexts{numbers: newNumbers(model.MaxBucket - model.MinBucket + 1)}
	for i := int32(model.MinBucket); i <= model.MaxBucket; i++ {
		v := model.BucketMiddle(i)
		m.numbers.of(math.Float64bits(v))
		m.texts = append(m.texts, string(appendFloat(nil, v)))
	}
	return m
})

func (m *middleTexts) text(v float64) (text string, ok bool) {
	bits := math.Float64bits(v)
	if bits == 0 { // which is none, and no key
		return "", false
	}
	i, ok := m.numbers.find(bits)
	if !ok {
		return "", false
	}
	return m.texts[i], true
}

func appendFloat(b []byte, v float64) []byte {
	if n := int64(v); float64(n) == v && n != 0 && -1<<53 < n && n < 1<<53 { // most are counts
		return strconv.AppendInt(b, n, 10)
	}
	format := byte('f')
	if abs := math.Abs(v); abs != 0 && (abs < 1e-6 || abs >= 1e21) {
		format = 'e'
	}
	return strconv.AppendFloat(b, v, format, -1, 64)
}

func eachNumber(n *model.Shown, v float64, f func(*model.Shown, json.RawMessage)) error {
	b, err := appendValue(nil, n.Key, n.Unit, v)
	if err == nil {
		f(n, b)
	}
	return err
}

// fields are those of columns, by their names.
func (t *table[T]) fields(columns []string) (all []Field) {
	for _, name := range columns {
		all = append(all, t.field(name))
	}
	return all
}
