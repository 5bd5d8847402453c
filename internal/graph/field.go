package graph

import (
	"fmt"

	"outsight/internal/model"
)

// Field is a number of an entity: a column of the registry of metrics. Its upper bits
// say of which kind of entity it is, the others which of that kind's fields it is.
type Field uint8

// The kinds of entities that a field may be of.
const (
	ofContainer Field = iota << kindShift
	ofEdge
	ofEndpoint
	kinds     = 3
	kindShift = 6
	indexMask = ofEdge - 1
	// maxFields is how many fields an entity has at most.
	maxFields = 56
)

func (f Field) index() int { return int(f & indexMask) }

// fieldAbout is what the registry says of a field.
type fieldAbout struct {
	level, least bool
}

// lasting reports whether the field stays what it is when nothing happens.
func (a fieldAbout) lasting() bool { return a.level && a.least }

var abouts [kinds << kindShift]fieldAbout

// table is what the graph reads of one kind of entity.
type table[T any] struct {
	kind Field
	// columns by the index of their field; nil for series with labels of their own. names are those in frames.
	columns []*model.Column[T]
	names   []string
	byName  map[string]Field
}

var (
	containerTable = newTable(model.ContainerRows, ofContainer)
	edgeTable      = newTable(model.EdgeRows, ofEdge)
	endpointTable  = newTable(model.EndpointRows, ofEndpoint)
)

func newTable[T any](rows []model.Row[T], kind Field) *table[T] {
	t := &table[T]{kind: kind, byName: map[string]Field{}}
	add := func(name string, c *model.Column[T]) Field {
		f := kind | Field(len(t.columns))
		if len(t.columns) == maxFields {
			panic(fmt.Sprintf("BUG: %s is more than maxFields fields", name))
		}
		t.columns, t.names, t.byName[name] = append(t.columns, c), append(t.names, name), f
		return f
	}
	for i := range rows {
		r := &rows[i]
		shown := r.Graph
		for j := range r.Columns {
			shown = shown || len(r.Columns[j].Shown) > 0
		}
		if !shown {
			continue
		}
		for j := range r.Columns {
			c := &r.Columns[j]
			f := add(c.Name, c)
			abouts[f] = fieldAbout{level: r.Kind == model.Gauge, least: c.Fold == model.Least}
			if c.Mean && kind == ofEdge { // those of containers are containerMeans
				add(c.Name+".integral", c)
				abouts[add(c.Name+".highest", c)] = fieldAbout{level: true}
			}
		}
		if r.Each != nil {
			abouts[add(r.Name, nil)] = fieldAbout{level: r.Kind == model.Gauge}
		}
	}
	return t
}

func (t *table[T]) field(name string) Field {
	f, ok := t.byName[name]
	if !ok {
		panic("BUG: there is no column " + name)
	}
	return f
}

// The fields of a container that the code of this package asks for.
var (
	StartTime   = containerTable.field("start_time")
	Info        = containerTable.field("container_info")
	CPUSeconds  = containerTable.field("cpu")
	RunQueue    = containerTable.field("run_queue")
	Polling     = containerTable.field("polling")
	CPUQuota    = containerTable.field("cpu_quota")
	MemoryLimit = containerTable.field("memory_limit")
)

// The fields of an edge that the code asks for.
var (
	RequestBytes      = edgeTable.field("request_bytes")
	ResponseBytes     = edgeTable.field("response_bytes")
	RequestPackets    = edgeTable.field("request_packets")
	ResponsePackets   = edgeTable.field("response_packets")
	OneWay            = edgeTable.field("one_way")
	ConnectionsOpened = edgeTable.field("connections_opened")
	ConnectionsClosed = edgeTable.field("connections_closed")
	Retransmits       = edgeTable.field("retransmits")
	Aborted           = edgeTable.field("aborted")
	Transactions      = edgeTable.field("transactions")
	InFlight          = edgeTable.field("in_flight")
	inFlightSeconds   = edgeTable.field("in_flight.integral")
	mostInFlight      = edgeTable.field("in_flight_most.highest")
	UnseenBytes       = edgeTable.field("unseen_bytes")
	LostTransactions  = edgeTable.field("lost_transactions")

	Latency            = edgeTable.field("latency")
	FirstByte          = edgeTable.field("first_byte")
	RTT                = edgeTable.field("rtt")
	ConnectionDuration = edgeTable.field("duration")
	RTTDeviation       = edgeTable.field("rtt_deviation")
	RTTMin             = edgeTable.field("rtt_min")
	NetworkDelay       = edgeTable.field("network_delay")
	DelayVariation     = edgeTable.field("network_delay_variation")
	unreadSeconds      = edgeTable.field("network_unread")
	unreadRequests     = edgeTable.field("network_unread_requests")
	Paired             = edgeTable.field("paired")
	Confidence         = edgeTable.field("confidence") // a model.Confidence
)

// Failures are attempts to connect, by the reason for which they failed.
var failures = []Field{edgeTable.field("failures_refused"), edgeTable.field("failures_timed_out"),
	edgeTable.field("failures_unreachable"), edgeTable.field("failures_other")}

// The fields of an endpoint.
var (
	EndpointRequests = endpointTable.field("requests")
	EndpointLatency  = endpointTable.field("latency")
)

// values are numbers by Field, of one entity.
type values struct {
	numbers [maxFields]float64
	// known has a bit for each number that is there.
	known uint64
}

func (v *values) set(f Field, number float64) {
	v.numbers[f.index()] = number
	v.known |= 1 << f.index()
}

// of is 0 where there is no such number.
func (v *values) of(f Field) float64 { return v.numbers[f.index()] }

func (v *values) has(f Field) bool { return v.known&(1<<f.index()) != 0 }

func (v *values) remove(f Field) {
	v.numbers[f.index()] = 0
	v.known &^= 1 << f.index()
}

// add adds the numbers of another entity of the same kind.
func (v *values) add(other *values) {
	for i, n := range other.numbers {
		v.numbers[i] += n
	}
	v.known |= other.known
}
