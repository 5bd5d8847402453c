package graph

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"

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
	}
	return appendFloat(b, v), nil
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
