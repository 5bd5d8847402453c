// Package parquet adds the format Parquet to package csvy, to be linked where it is wanted:
//
//	import _ "outsight/internal/csvy/parquet"
//
// A file of Parquet can't be read before its footer is written, which is at its end. So that a
// recording whose writer was killed loses no more than its last row group, each row group is
// written as a small Parquet file of its own, a piece, one after the other. When the recording
// ends, a footer is appended that describes the row groups of all pieces: the whole is then one
// ordinary Parquet file. A recording without that footer is read piece by piece, by this package.
package parquet

import (
	"fmt"
	"math"

	pq "github.com/parquet-go/parquet-go"

	"outsight/internal/csvy"
)

func init() {
	csvy.Register(csvy.Codec{Format: csvy.Parquet, Create: create, Magic: magic, Read: read})
}

const (
	// magic is at the begin and the end of a Parquet file.
	magic = "PAR1"
	// headKey is the key of the head in a file's metadata.
	headKey = "outsight.head"
	// timeColumn is the time of a row, in ns since 1970.
	timeColumn = "read"
	// noLimit stands for +Inf in a column of integers.
	noLimit = math.MaxInt64
)

// isInteger reports how a column is stored: counters, times and bytes as INT64, other gauges as
// DOUBLE.
func isInteger(c csvy.Column) bool {
	return c.Type == csvy.Counter || c.Unit == "ns" || c.Unit == "By"
}

// schemaOf is the columns of a head, each optional, and the time.
func schemaOf(columns []csvy.Column) *pq.Schema {
	group := pq.Group{timeColumn: pq.Compressed(pq.Encoded(pq.Timestamp(pq.Nanosecond), &pq.DeltaBinaryPacked), &pq.Zstd)}
	for _, c := range columns {
		node := pq.Leaf(pq.DoubleType)
		if isInteger(c) {
			node = pq.Encoded(pq.Leaf(pq.Int64Type), &pq.DeltaBinaryPacked)
		}
		group[c.Name] = pq.Compressed(pq.Optional(node), &pq.Zstd)
	}
	return pq.NewSchema("recording", group)
}

// positions is, for each leaf of the schema, the index of the column in the list, -1 for the time.
func positions(schema *pq.Schema, columns []csvy.Column) ([]int, error) {
	h := csvy.Head{Columns: columns}
	var list []int
	for _, path := range schema.Columns() {
		at := h.Index(path[0])
		if len(path) != 1 || at < 0 && path[0] != timeColumn {
			return nil, fmt.Errorf("the column %q is not in the recording's head", path)
		}
		list = append(list, at)
	}
	return list, nil
}

func valueOf(v float64, integer bool) pq.Value {
	switch {
	case math.IsNaN(v):
		return pq.NullValue()
	case !integer:
		return pq.DoubleValue(v)
	case v >= noLimit:
		return pq.Int64Value(noLimit)
	}
	return pq.Int64Value(int64(math.Round(v)))
}

func numberOf(v pq.Value) float64 {
	switch {
	case v.IsNull():
		return math.NaN()
	case v.Kind() == pq.Double:
		return v.Double()
	case v.Kind() != pq.Int64:
		return math.NaN()
	case v.Int64() == noLimit:
		return math.Inf(1)
	}
	return float64(v.Int64())
}
