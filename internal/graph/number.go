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
	return appendValue(b, n, v)
}

func appendValue(b []byte, n *model.Shown, v float64) ([]byte, error) {
	switch {
	case math.IsInf(v, 1) && n.Unit == "s":
		return append(b, `"+Inf"`...), nil
	case math.IsInf(v, 0) || math.IsNaN(v):
		return b, fmt.Errorf("writing %s: JSON has no %v", n.Key, v)
	}
	return appendFloat(b, v), nil
}

func appendFloat(b []byte, v float64) []byte {
	format := byte('f')
	if abs := math.Abs(v); abs != 0 && (abs < 1e-6 || abs >= 1e21) {
		format = 'e'
	}
	return strconv.AppendFloat(b, v, format, -1, 64)
}

func eachNumber(n *model.Shown, v float64, f func(*model.Shown, json.RawMessage)) error {
	b, err := appendValue(nil, n, v)
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
