package clickhouse

import (
	"fmt"
	"strings"

	"outsight/internal/frame"
)

// Versions of ClickHouse, as number of the year and of the release, from which it has what is used where it is there.
var (
	hasTTL      = version{20, 3} // and codecs, cheap types of few texts, and fsync
	hasAsync    = version{21, 11}
	leastTested = version{18, 16}
)

type version [2]int

func (v version) atLeast(of version) bool { return v[0] > of[0] || v[0] == of[0] && v[1] >= of[1] }

func (v version) String() string { return fmt.Sprintf("%d.%d", v[0], v[1]) }

// Classes of frames, by how long they are kept.
const (
	classKey    = 0 // key frames
	classMiddle = 1 // the first in each Every of the wall clock
	classFine   = 2
)

// framesTable has the headers.
const framesTable = "frames"

// kind is how a value of a column is stored.
type kind uint8

const (
	kindUint8 kind = iota
	kindUint32
	kindUint64
	kindInstant // seconds since 1970
	kindText    // few different ones
	kindBytes
	kindNullable // a number that may be missing
	kindFloat    // a fraction that may be missing
	kindIndexes  // Array(Int32)
	kindCounts   // Array(UInt64)
)

// column is one of a table in ClickHouse.
type column struct {
	name string
	kind kind
	// codec is for versions that have them.
	codec string
}

// key are the columns that each row begins with. at is the instant of the frame, frame its number.
var key = []column{{"tenant", kindText, ""}, {"host", kindText, ""}, {"epoch", kindUint64, ""},
	{"frame", kindUint64, ""}, {"row", kindUint32, "Delta, ZSTD"}, {"at", kindInstant, ""}, {"class", kindUint8, ""},
	{"removed", kindUint8, ""}}

var headerColumns = []column{{"tenant", kindText, ""}, {"host", kindText, ""}, {"epoch", kindUint64, ""},
	{"frame", kindUint64, "Delta, ZSTD"}, {"key_frame", kindUint64, "Delta, ZSTD"}, {"boot", kindUint64, ""},
	{"time_ns", kindUint64, "Delta, ZSTD"}, {"clock_error_ns", kindUint64, ""}, {"at", kindInstant, ""},
	{"class", kindUint8, ""}, {"data", kindBytes, ""}}

// names of columns of ClickHouse: a dot would make a nested one.
func columnName(name string) string { return strings.ReplaceAll(name, ".", "_") }

// columnsOf are all columns of a table of frames: the key, attributes, columns, and five for each histogram.
func columnsOf(t frame.TableID) []column {
	info := &frame.Schema[t]
	all := append([]column(nil), key...)
	for _, a := range info.Attributes {
		one := column{name: a.Name, kind: kindUint64}
		if a.Kind == frame.Text {
			one.kind = kindText
		}
		all = append(all, one)
	}
	for i := range info.Columns {
		one := column{name: columnName(info.Columns[i].Name), kind: kindNullable}
		if isFloat(info, i) {
			one.kind = kindFloat
		}
		all = append(all, one)
	}
	for i := range info.Histograms {
		name := columnName(info.Histograms[i].Name)
		all = append(all, column{name + "_sum_ns", kindUint64, ""}, column{name + "_zero", kindUint64, ""},
			column{name + "_overflow", kindUint64, ""}, column{name + "_buckets", kindIndexes, "Delta, ZSTD"},
			column{name + "_counts", kindCounts, ""})
	}
	return all
}

// isFloat reports whether a column has fractions: a level that is one, and its greatest value.
func isFloat(info *frame.TableInfo, i int) bool {
	c := &info.Columns[i]
	return c.Kind == frame.LevelFloat || c.Kind == frame.Highest && info.Columns[c.Of].Kind == frame.LevelFloat
}

func (c *column) typeIn(v version) string {
	name := [...]string{"UInt8", "UInt32", "UInt64", "DateTime('UTC')", "LowCardinality(String)", "String", "Nullable(UInt64)",
		"Nullable(Float64)", "Array(Int32)", "Array(UInt64)"}[c.kind]
	if !v.atLeast(hasTTL) {
		if c.kind == kindText {
			return "String"
		}
		return name
	}
	codec := c.codec
	if codec == "" {
		codec = "ZSTD"
	}
	return name + " CODEC(" + codec + ")"
}

// partition has the rows of one class and day, or hour, which expire together.
const partition = "(class, if(class = 2, toStartOfHour(at), toDateTime(toDate(at))))"

// create is the statement that makes a table.
func (l *Log) create(table string, columns []column, order string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "CREATE TABLE IF NOT EXISTS %s (", l.table(table))
	for i := range columns {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(quoted(columns[i].name) + " " + columns[i].typeIn(l.version))
	}
	fmt.Fprintf(&b, ") ENGINE = ReplacingMergeTree PARTITION BY %s ORDER BY (%s)", partition, order)
	if l.version.atLeast(hasTTL) {
		fmt.Fprintf(&b, " TTL %s SETTINGS ttl_only_drop_parts = 1, fsync_after_insert = 1, fsync_part_directory = 1", l.ttl())
	}
	return b.String()
}

// ttl says when a row expires.
func (l *Log) ttl() string {
	return fmt.Sprintf("at + toIntervalSecond(multiIf(class = %d, %d, class = %d, %d, %d))", classFine,
		seconds(l.options.Fine), classMiddle, seconds(l.options.Middle), seconds(l.options.Keep))
}

func quoted(name string) string { return "`" + name + "`" }

func (l *Log) table(name string) string { return quoted(l.database) + "." + quoted(name) }

// literal is a text in SQL.
func literal(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(s) + "'"
}
