package frame

import (
	"fmt"

	"outsight/internal/model"
)

// TableID names a table.
type TableID uint8

// The tables.
const (
	Hosts TableID = iota // one row
	Containers
	Edges
	Endpoints
	// Labelled has the series whose labels are only known when they are read: one for each device, process and so on.
	Labelled
	// Addresses and Listeners are of containers, Translations of addresses on this host; Features are what works.
	Addresses
	Listeners
	Translations
	Features
	// Connections has some of the newest connections of edges, by what both ends see of them.
	Connections
	// PacketSamples has when some packets of edges were sent or received, by what both ends see of them.
	PacketSamples
	NumTables
)

// Attribute is the index of an attribute in its table.
type Attribute uint8

// The attributes of each table.
const (
	HostKernel Attribute = iota
	HostCgroupLayout
)

// Attributes of Containers. State and Sum are those of Edges, Endpoints and Labelled as well.
const (
	State Attribute = iota
	// Sum is the row to which a row is added when it is removed. That row may not be there yet.
	Sum
	// Ended is when the row ended, in milliseconds since 1970; 0 where it has not.
	Ended
	ContainerKey // the container's ID
	ContainerName
	ContainerImage
	ContainerRuntime
	ContainerNamespace
	ContainerPod
	ContainerPodUID
	ContainerWorkload
	ContainerWorkloadKind
	ContainerStarted // milliseconds since 1970
	// ContainerPlacement is a model.PlacementText.
	ContainerPlacement
)

// Attributes of Edges.
const (
	EdgeSide          Attribute = iota + 3 // a model.Role
	EdgeTransport                          // a model.Transport
	EdgeClient                             // a row of Containers, 0 for an end that is in none
	EdgeClientAddress                      // empty where there is none, or several
	EdgeClientProcess
	EdgeServer
	EdgeServerAddress
	EdgeServerProcess
	EdgeService // the address and port that the client dials
	EdgeBackend // the same as the server sees it
	EdgeVia
	EdgeStart // when its counters were 0, in milliseconds since 1970; 0 where that is not known
)

// Attributes of Endpoints.
const (
	EndpointEdge Attribute = iota + 3 // a row of Edges
	EndpointProtocol
	EndpointName
	EndpointStatus
)

// Attributes of Labelled.
const (
	LabelledTable  Attribute = iota + 3 // the TableID of the owner
	LabelledOwner                       // its row
	LabelledMetric                      // the metric's stored name
	// LabelledLabels is the first of MaxLabels values, in the order of the metric's Labels.
	LabelledLabels
	MaxLabels = 4
)

// Attributes of Addresses, Listeners and Translations.
const (
	AddressOf Attribute = iota // a row of Containers
	Address
)
const (
	TranslationClient Attribute = iota
	TranslationDialled
	TranslationReached
)

// Attributes of Features.
const (
	FeatureName Attribute = iota
	FeaturePurpose
	FeatureState // a model.FeatureState, as a text
	FeatureReason
	FeatureRemedy
	FeatureRequired
)

// Attributes of Connections.
const (
	ConnectionEdge Attribute = iota // a row of Edges
	// ConnectionHash is of the two initial sequence numbers, which no translation of addresses changes: both hosts of a
	// connection have the same.
	ConnectionHash
	// ConnectionHashHigh are the bits past 32, which is what a number of an attribute has.
	ConnectionHashHigh
)

// Attributes of PacketSamples.
const (
	PacketSampleEdge Attribute = iota // a row of Edges
	PacketSampleSent                  // 1, or 0 of a packet that was received
	// PacketSamplePacket identifies the packet among those of its edge, PacketSamplePacketHigh are the bits past 32.
	PacketSamplePacket
	PacketSamplePacketHigh
	// PacketSampleTime is in units of 100 ns, since 30 s before the frame's time.
	PacketSampleTime
	// PacketSampleStack is for how long the packet was between its socket and an uplink, in ns; 0: not known.
	PacketSampleStack
)

// States of a row.
const (
	Live uint64 = iota
	// Gone: it has ended, and is shown for Linger.
	Gone
	// Summed: it stands for all rows of its kind that were removed.
	Summed
)

// OthersRow is the row that sums what found no row of its kind.
const OthersRow = 1

// AttributeKind says what the value of an attribute is.
type AttributeKind uint8

// The kinds of attributes.
const (
	Number    AttributeKind = iota
	Text                    // an index of Strings
	Reference               // the number of a row of another table
	Instant                 // milliseconds since 1970
)

// AttributeInfo describes an attribute.
type AttributeInfo struct {
	Name string
	Kind AttributeKind
	// Of is the table of a Reference.
	Of TableID
}

// ColumnKind says how a column is read.
type ColumnKind uint8

// The kinds of columns.
const (
	Counter ColumnKind = iota
	// Level is a gauge, LevelFloat the bits of one that is no whole number.
	Level
	LevelFloat
	// Integral of a level over time: what it gained, over the time, is the level's mean. Of bytes it is in byte seconds,
	// of all others in thousandths.
	Integral
	// Highest is the greatest value of a level since the key frame before.
	Highest
)

// ColumnInfo describes a column.
type ColumnInfo struct {
	// Name is the registry's; with ".integral" or ".highest" for what is made of a level.
	Name string
	Kind ColumnKind
	// Metric is the stored name of the metric, Unit its unit; Per is how many of the value are one of the unit.
	Metric, Unit string
	Label        model.Label
	Per          float64
	// File says that the kernel keeps the counter in a file: it goes on when an agent restarts.
	File bool
	// Of is the index of the level that an Integral or Highest is of.
	Of int
}

// TableInfo describes a table.
type TableInfo struct {
	Name       string
	Attributes []AttributeInfo
	Columns    []ColumnInfo
	Histograms []ColumnInfo
}

// isFloat reports whether the values of a column are bits of floats.
func (t *TableInfo) isFloat(column int) bool {
	c := &t.Columns[column]
	return c.Kind == LevelFloat || c.Kind == Highest && t.Columns[c.Of].Kind == LevelFloat
}

// Schema describes all tables. It is not to be changed.
var Schema = newSchema()

// Column is the index of a column by its name. It panics where there is none: names are the program's own.
func Column(t TableID, name string) int { return indexOf(Schema[t].Name, Schema[t].Columns, name) }

// Histogram is the same of a column of histograms.
func Histogram(t TableID, name string) int {
	return indexOf(Schema[t].Name, Schema[t].Histograms, name)
}

func indexOf(table string, columns []ColumnInfo, name string) int {
	for i := range columns {
		if columns[i].Name == name {
			return i
		}
	}
	panic(fmt.Sprintf("BUG: the table %s has no column %s", table, name))
}

var lasting = []AttributeInfo{{Name: "state"}, {Name: "sum", Kind: Reference}, {Name: "ended", Kind: Instant}}

func newSchema() (all [NumTables]TableInfo) {
	text := func(names ...string) (attributes []AttributeInfo) {
		for _, name := range names {
			attributes = append(attributes, AttributeInfo{Name: name, Kind: Text})
		}
		return attributes
	}
	lasts := func(of TableID, more ...AttributeInfo) []AttributeInfo {
		attributes := append([]AttributeInfo(nil), lasting...)
		attributes[Sum].Of = of
		return append(attributes, more...)
	}
	all[Hosts] = TableInfo{Name: "hosts", Attributes: text("kernel", "cgroup_layout")}
	all[Containers] = TableInfo{Name: "containers", Attributes: lasts(Containers, append(
		text("id", "name", "image", "runtime", "namespace", "pod", "pod_uid", "workload", "workload_kind"),
		AttributeInfo{Name: "started", Kind: Instant}, AttributeInfo{Name: "placement", Kind: Text})...)}
	all[Edges] = TableInfo{Name: "edges", Attributes: lasts(Edges,
		AttributeInfo{Name: "side"}, AttributeInfo{Name: "transport"},
		AttributeInfo{Name: "client", Kind: Reference, Of: Containers},
		AttributeInfo{Name: "client_address", Kind: Text}, AttributeInfo{Name: "client_process", Kind: Text},
		AttributeInfo{Name: "server", Kind: Reference, Of: Containers},
		AttributeInfo{Name: "server_address", Kind: Text}, AttributeInfo{Name: "server_process", Kind: Text},
		AttributeInfo{Name: "service", Kind: Text}, AttributeInfo{Name: "backend", Kind: Text},
		AttributeInfo{Name: "via", Kind: Text}, AttributeInfo{Name: "start", Kind: Instant})}
	all[Endpoints] = TableInfo{Name: "endpoints", Attributes: lasts(Endpoints,
		append([]AttributeInfo{{Name: "edge", Kind: Reference, Of: Edges}}, text("protocol", "endpoint", "status")...)...)}
	all[Labelled] = TableInfo{Name: "labelled", Attributes: lasts(Labelled, append([]AttributeInfo{{Name: "owner_table"},
		{Name: "owner"}}, text("metric", "label_1", "label_2", "label_3", "label_4")...)...),
		Columns:    []ColumnInfo{{Name: "value"}, {Name: "real", Kind: LevelFloat}},
		Histograms: []ColumnInfo{{Name: "histogram", Unit: "s", Per: model.Nanoseconds}}}
	of := []AttributeInfo{{Name: "container", Kind: Reference, Of: Containers}}
	all[Addresses] = TableInfo{Name: "addresses", Attributes: append(of, text("address")...)}
	all[Listeners] = TableInfo{Name: "listeners", Attributes: append(of[:1:1], text("address")...)}
	all[Translations] = TableInfo{Name: "translations", Attributes: text("client", "dialled", "reached")}
	all[Features] = TableInfo{Name: "features", Attributes: append(text("name", "purpose", "state", "reason", "remedy"),
		AttributeInfo{Name: "required"})}
	all[Connections] = TableInfo{Name: "connections", Attributes: []AttributeInfo{{Name: "edge", Kind: Reference, Of: Edges},
		{Name: "hash"}, {Name: "hash_high"}}}
	all[PacketSamples] = TableInfo{Name: "packet_samples", Attributes: []AttributeInfo{
		{Name: "edge", Kind: Reference, Of: Edges}, {Name: "sent"}, {Name: "packet"}, {Name: "packet_high"}, {Name: "time"},
		{Name: "stack"}}}
	addColumns(&all[Hosts], model.HostRows)
	addColumns(&all[Containers], model.ContainerRows)
	addColumns(&all[Edges], model.EdgeRows)
	addColumns(&all[Endpoints], model.EndpointRows)
	return all
}

// addColumns adds the columns of rows. That of Row.Columns[j] is found at columnsOf's index.
func addColumns[T any](t *TableInfo, rows []model.Row[T]) {
	for i := range rows {
		for j := range rows[i].Columns {
			r, c := &rows[i], &rows[i].Columns[j]
			info := ColumnInfo{Name: c.Name, Metric: r.Name, Unit: r.Unit, Label: c.Label, Per: c.Per, File: c.File}
			if info.Per == 0 {
				info.Per = 1
			}
			switch {
			case c.Histogram != nil:
				info.Per = model.Nanoseconds
				t.Histograms = append(t.Histograms, info)
				continue
			case c.Value != nil:
				info.Kind = LevelFloat
			case r.Kind == model.Gauge:
				info.Kind = Level
			}
			t.Columns = append(t.Columns, info)
			if !c.Mean {
				continue
			}
			level := len(t.Columns) - 1
			integral, highest := info, info
			integral.Name, integral.Kind, integral.Of = info.Name+".integral", Integral, level
			integral.Per = float64(integralPerSecond(info.Unit))
			highest.Name, highest.Kind, highest.Of = info.Name+".highest", Highest, level
			t.Columns = append(t.Columns, integral, highest)
		}
	}
}

// integralPerSecond is how much the integral of a level that is 1 gains in a second: in 64 bits there is room for a
// terabyte over half a year, or a thousand million threads.
func integralPerSecond(unit string) uint64 {
	if unit == "By" {
		return 1
	}
	return 1000
}
