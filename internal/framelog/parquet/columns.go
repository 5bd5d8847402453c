package parquet

import (
	"math"

	pq "github.com/parquet-go/parquet-go"

	"outsight/internal/frame"
	"outsight/internal/model"
)

// Tables are those that are written. The table of hosts is last: it has a row of every frame, and where its file is, the
// hour's other files are.
var Tables = []frame.TableID{frame.Containers, frame.Edges, frame.Endpoints, frame.Labelled, frame.Hosts}

// Column describes a column of a Parquet file.
type Column struct {
	Name, Type string
	// Optional says that it may be null.
	Optional bool
	node     pq.Node
	// value is null where a row has none; it is nil of a histogram.
	value     func(f *frame.Frame, row int) pq.Value
	histogram int
}

// The types of columns, as docs/format/parquet.md calls them.
const (
	textType      = "text"
	wholeType     = "int64"
	floatType     = "double"
	timeType      = "timestamp"
	histogramType = "histogram"
)

func scalar(name, of string, optional bool, value func(f *frame.Frame, row int) pq.Value) Column {
	c := Column{Name: name, Type: of, Optional: optional, value: value}
	switch of {
	case textType:
		c.node = pq.Encoded(pq.String(), &pq.RLEDictionary)
	case floatType:
		c.node = pq.Leaf(pq.DoubleType)
	case timeType:
		c.node = pq.Encoded(pq.Timestamp(pq.Nanosecond), &pq.DeltaBinaryPacked)
	default:
		c.node = pq.Encoded(pq.Leaf(pq.Int64Type), &pq.DeltaBinaryPacked)
	}
	c.node = pq.Compressed(c.node, &pq.Zstd)
	if optional {
		c.node = pq.Optional(c.node)
	}
	return c
}

func text(s string) pq.Value { return pq.ByteArrayValue([]byte(s)) }

// whole caps what INT64 has no room for: a limit that is none.
func whole(n uint64) pq.Value { return pq.Int64Value(int64(min(n, math.MaxInt64))) }

// Columns are those of a table, in order of docs/format/parquet.md.
func Columns(t frame.TableID) []Column {
	all := []Column{
		scalar("host", textType, false, func(f *frame.Frame, _ int) pq.Value { return text(f.Host) }),
		scalar("epoch", wholeType, false, func(f *frame.Frame, _ int) pq.Value { return whole(f.Epoch) }),
		scalar("number", wholeType, false, func(f *frame.Frame, _ int) pq.Value { return whole(f.Number) }),
		scalar("time", timeType, false, func(f *frame.Frame, _ int) pq.Value { return pq.Int64Value(f.Time.UnixNano()) }),
		scalar("row", wholeType, false, func(f *frame.Frame, row int) pq.Value {
			return whole(uint64(f.Tables[t].IDs[row]))
		}),
	}
	info := &frame.Schema[t]
	for a := range info.Attributes {
		all = append(all, attribute(t, frame.Attribute(a)))
	}
	for _, more := range resolved[t] {
		all = append(all, more.columns(t)...)
	}
	for i := range info.Columns {
		all = append(all, counter(t, i))
	}
	for i := range info.Histograms {
		all = append(all, histogram(info.Histograms[i].Name, i))
	}
	return all
}

// named are attributes that are numbers in a frame and have names.
var named = map[frame.TableID]map[frame.Attribute]func(uint64) string{
	frame.Edges: {
		frame.EdgeSide:      func(n uint64) string { return model.Role(n).String() },
		frame.EdgeTransport: func(n uint64) string { return model.Transport(n).String() },
	},
	frame.Labelled: {frame.LabelledTable: func(n uint64) string {
		if n < uint64(frame.NumTables) {
			return frame.Schema[n].Name
		}
		return ""
	}},
}

func stateName(n uint64) string {
	switch n {
	case frame.Live:
		return "live"
	case frame.Gone:
		return "gone"
	case frame.Summed:
		return "summed"
	}
	return ""
}

func attribute(t frame.TableID, a frame.Attribute) Column {
	info := &frame.Schema[t].Attributes[a]
	name := named[t][a]
	if info.Name == "state" {
		name = stateName
	}
	of := func(f *frame.Frame, row int) uint64 { return f.Tables[t].Attribute(a, row) }
	switch {
	case name != nil:
		return scalar(info.Name, textType, false, func(f *frame.Frame, row int) pq.Value { return text(name(of(f, row))) })
	case info.Kind == frame.Text:
		return scalar(info.Name, textType, false, func(f *frame.Frame, row int) pq.Value { return text(f.Text(t, a, row)) })
	case info.Kind == frame.Instant:
		return scalar(info.Name, timeType, true, func(f *frame.Frame, row int) pq.Value {
			if of(f, row) == 0 {
				return pq.NullValue()
			}
			return pq.Int64Value(int64(of(f, row)) * 1e6)
		})
	}
	return scalar(info.Name, wholeType, false, func(f *frame.Frame, row int) pq.Value { return whole(of(f, row)) })
}

func counter(t frame.TableID, i int) Column {
	info := &frame.Schema[t].Columns[i]
	// The highest of a level of floats has its bits.
	if info.Kind == frame.LevelFloat ||
		info.Kind == frame.Highest && frame.Schema[t].Columns[info.Of].Kind == frame.LevelFloat {
		return scalar(info.Name, floatType, true, func(f *frame.Frame, row int) pq.Value {
			if n, ok := valueAt(f, t, i, row); ok {
				return pq.DoubleValue(math.Float64frombits(n))
			}
			return pq.NullValue()
		})
	}
	return scalar(info.Name, wholeType, true, func(f *frame.Frame, row int) pq.Value {
		if n, ok := valueAt(f, t, i, row); ok {
			return whole(n)
		}
		return pq.NullValue()
	})
}

func valueAt(f *frame.Frame, t frame.TableID, i, row int) (uint64, bool) {
	if i >= len(f.Tables[t].Columns) {
		return 0, false
	}
	return f.Tables[t].Columns[i].At(row)
}

// The fields of a histogram, in the order in which a Parquet file has them.
const (
	bucketsField  = "buckets"
	bucketField   = "bucket"
	countField    = "count"
	overflowField = "overflow"
	sumField      = "sum_ns"
	zeroField     = "zero"
)

func histogram(name string, i int) Column {
	number := func() pq.Node { return pq.Compressed(pq.Leaf(pq.Int64Type), &pq.Zstd) }
	index := pq.Compressed(pq.Encoded(pq.Leaf(pq.Int32Type), &pq.DeltaBinaryPacked), &pq.Zstd)
	return Column{Name: name, Type: histogramType, Optional: true, histogram: i, node: pq.Optional(pq.Group{
		sumField: number(), zeroField: number(), overflowField: number(),
		bucketsField: pq.List(pq.Group{bucketField: index, countField: number()})})}
}

// resolution tells columns of a row of another table, to which an attribute refers.
type resolution struct {
	by     frame.Attribute
	table  frame.TableID
	prefix string
	what   []frame.Attribute
	// of restricts it to rows whose attribute LabelledTable is this table.
	of bool
}

var containerNames = []frame.Attribute{frame.ContainerKey, frame.ContainerName, frame.ContainerImage,
	frame.ContainerNamespace, frame.ContainerPod, frame.ContainerWorkload}

// resolved says whose names are beside a row number.
var resolved = map[frame.TableID][]resolution{
	frame.Edges: {
		{by: frame.EdgeClient, table: frame.Containers, prefix: "client_", what: containerNames},
		{by: frame.EdgeServer, table: frame.Containers, prefix: "server_", what: containerNames},
	},
	frame.Endpoints: {{by: frame.EndpointEdge, table: frame.Edges, prefix: "edge_", what: []frame.Attribute{
		frame.EdgeSide, frame.EdgeClient, frame.EdgeServer, frame.EdgeService}}},
	frame.Labelled: {{by: frame.LabelledOwner, table: frame.Containers, prefix: "owner_", of: true, what: containerNames}},
}

func (r resolution) columns(t frame.TableID) (all []Column) {
	for _, a := range r.what {
		of := attribute(r.table, a)
		all = append(all, scalar(r.prefix+of.Name, of.Type, true, func(f *frame.Frame, row int) pq.Value {
			if r.of && f.Tables[t].Attribute(frame.LabelledTable, row) != uint64(r.table) {
				return pq.NullValue()
			}
			found, ok := f.Tables[r.table].Find(uint32(f.Tables[t].Attribute(r.by, row)))
			if !ok {
				return pq.NullValue()
			}
			return of.value(f, found)
		}))
	}
	return all
}
