package model

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Entity is what a metric is about: each has its own table of rows.
type Entity string

// The entities. The metrics of a disk, a process and a listener of a container are rows of the container, with more
// labels.
const (
	OfContainer Entity = "container"
	OfEdge      Entity = "edge"
	OfEndpoint  Entity = "endpoint"
	OfHost      Entity = "host"
)

// Metric is what is said of a metric: a row of the registry without the ways to its values.
type Metric struct {
	// Name under which the metric is stored and exposed.
	Name string
	// OTel is the OpenTelemetry name, Unit its unit in UCUM ("s", "By", "{thread}"). One OTel
	// metric may be several rows, distinguished by an attribute that is part of Name here.
	OTel, Unit string
	Kind       SeriesKind
	// Help says what is counted, without the name and the unit.
	Help   string
	Entity Entity
	// Labels of its series besides those of the entity.
	Labels []string
}

// Row is a metric of the entity T and the ways to its values. It has Columns or Each.
type Row[T any] struct {
	Name, OTel, Unit string
	Kind             SeriesKind
	Help             string
	// Labels besides those of the entity: those of Columns need not be named.
	Labels []string
	// Graph says that the columns are inputs of the service map. Those that are shown are anyway.
	Graph bool
	// Columns are the series whose labels are known beforehand: each is a column of a table of entities.
	Columns []Column[T]
	// Real says that the values of Each are gauges of any sign and with fractions, which frames keep as floats.
	Real bool
	// Each adds series whose labels are only known when they are read: one for each device, process and so on.
	Each func(*T, *Sink)
}

// Column is one number of an entity: a series of its metric, and a column of a table of entities.
type Column[T any] struct {
	// Name is unique among the columns of the entity.
	Name string
	// Label distinguishes the columns of one metric.
	Label Label
	// Exactly one of these reads the value; ok is false where it could not be had.
	Count     func(*T) (n uint64, ok bool)
	Value     func(*T) (v float64, ok bool)
	Histogram func(*T) (h *Histogram, ok bool)
	// Per is how many of Count are one of the metric's unit; 0 is 1.
	Per float64
	// Fold is how the values of several entities become that of their group.
	Fold Fold
	// Dense says that a counter which stands at 0 is not the same as none: its last value counts too.
	Dense bool
	// File says that the kernel keeps the counter in a file: it goes on when the agent restarts, where what kernel
	// programs count begins at 0.
	File bool
	// Mean says that a gauge's mean and greatest value are told beside the last one.
	Mean bool
	// Shown are the numbers of the JSON and the page that are made of the column first of all.
	Shown []Number
}

// Fold is how the values of several entities become that of a group of them. Over time a counter and a histogram gain,
// and a gauge has its last value.
type Fold uint8

// The ways to fold. Histograms are merged, whatever is said.
const (
	Sum Fold = iota
	Least
)

// Per is how many of the whole numbers in which the values of Each are kept are one of the metric's unit.
func (m *Metric) Per() float64 {
	switch m.Unit {
	case "s", "1":
		return Nanoseconds
	case "J":
		return 1e6
	}
	return 1
}

// Nanoseconds is for columns in nanoseconds of metrics in seconds.
const Nanoseconds = 1e9

// Microcores are so many to a core.
const Microcores = 1e6

// Metric is what the row says of the metric.
func (r *Row[T]) Metric(of Entity) Metric {
	labels := slices.Clone(r.Labels)
	for i := range r.Columns {
		if name := r.Columns[i].Label.Name; name != "" && !slices.Contains(labels, name) {
			labels = append(labels, name)
		}
	}
	return Metric{r.Name, r.OTel, r.Unit, r.Kind, r.Help, of, labels}
}

// Metrics are all metrics in the order of the registry: of containers, edges, endpoints, of hosts with their agents, and
// those that a server computes.
func Metrics() []Metric {
	all := metricsOf(nil, ContainerRows, OfContainer)
	all = metricsOf(all, EdgeRows, OfEdge)
	all = metricsOf(all, EndpointRows, OfEndpoint)
	return append(metricsOf(all, HostRows, OfHost), ComputedMetrics...)
}

func metricsOf[T any](all []Metric, rows []Row[T], of Entity) []Metric {
	for i := range rows {
		all = append(all, rows[i].Metric(of))
	}
	return all
}

// Sink turns the values that rows read into series.
type Sink struct {
	Series []Series
	// Name, Kind and Time are of the metric that is being read, Base and Start of the entity: the labels and the start
	// of its series.
	Name  string
	Kind  SeriesKind
	Time  time.Time
	Base  []Label
	Start time.Time
}

// Add adds a series; extra labels come on top of those of the entity.
func (s *Sink) Add(v float64, extra ...Label) {
	s.add(Series{Labels: with(s.Base, extra), Value: v})
}

// AddHistogram adds a histogram series, or nothing where h is nil; extra labels come on top.
func (s *Sink) AddHistogram(h *Histogram, extra ...Label) {
	if h != nil {
		s.add(Series{Labels: with(s.Base, extra), Histogram: h})
	}
}

func (s *Sink) add(one Series) {
	one.Name, one.Kind, one.Time = s.Name, s.Kind, s.Time
	if one.Kind != Gauge {
		one.Start = s.Start
	}
	s.Series = append(s.Series, one)
}

// typed is the label that distinguishes kinds of one metric.
func typed(kind string) Label { return Label{TypeLabel, kind} }

// seconds turns nanoseconds into seconds.
func seconds(ns uint64) float64 { return float64(ns) / Nanoseconds }

func boolean(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// Number is a number of the JSON and the page: what is shown, and how it is computed of columns.
type Number struct {
	// Key is its name in the JSON, Title its name on the page.
	Key, Title string
	// Unit is "cores", "s", "B", "B/s", "/s", "ratio" or "" for a plain count.
	Unit string
	// Group is under which heading the page has it, and Order where in it: 0 is after those that have one.
	Group string
	Order int
	// Meaning is for people who do not know what the title stands for; empty where the title says it.
	Meaning string
	// Formula and what it is of: names of columns, the column of the number itself if there are none.
	Formula  Formula
	Of       []string
	Quantile float64
	// Query is the PromQL where it is not that of the formula: $match stands for label matchers, $window for a duration.
	Query string
	// Always says that the JSON has the number though it is 0. Trouble says that more of it is worse.
	Always, Trouble bool
	// TCP says that edges of UDP alone have no such number.
	TCP bool
	// Ends says that the number is of both ends of an edge together, and Side whose columns it is of; RoleUnknown for
	// both.
	Ends bool
	Side Role
}

// withMean are the last value of a gauge, its mean over the window, and its highest value of late.
func withMean(level Number) []Number {
	mean, peak := level, level
	mean.Key, mean.Title, mean.Formula = level.Key+"_mean", level.Title+" (mean)", MeanLevel
	mean.Meaning = "Mean over the covered time of the window; where it was not there it counts as none"
	peak.Key, peak.Title, peak.Formula = level.Key+"_highest", level.Title+" (highest)", PeakLevel
	peak.Meaning = "Highest value since the last full minute before the end of the window; of several containers the sum " +
		"of theirs"
	mean.Order, peak.Order = 0, 0
	return []Number{level, mean, peak}
}

// Formula is how a number is computed of columns.
type Formula uint8

// The formulas.
const (
	// Gain is what a counter gained in the window, Rate the same per second; several columns are added up.
	Gain Formula = iota
	Rate
	// Level is the last value of a gauge; Limit as well, where 0 stands for no limit.
	Level
	Limit
	// MeanLevel is the mean of a gauge over the window, PeakLevel its highest value of late: Column.Mean.
	MeanLevel
	PeakLevel
	// LeastLevel is the least of the gauges of several series.
	LeastLevel
	// Share is what one counter gained over what another did.
	Share
	// QuantileOf a histogram, and its mean.
	QuantileOf
	MeanOf
	// Derived numbers are computed of more than that: by internal/graph, and by Query.
	Derived
)

// Shown is a number with the query that charts it.
type Shown struct {
	Number
	PromQL string
}

// Headings under which the page has numbers.
var (
	UsageGroups = []string{GroupCPU, GroupMemory, GroupNetwork, GroupDisk}
	SideGroups  = []string{GroupRequests, GroupLatency, GroupPath, GroupConnections, GroupTrouble, GroupNotTimed,
		GroupCompleteness}
	HostGroups = []string{GroupHost}
	// EndsGroups are of numbers of both ends of an edge together, ProbeGroups of those of two hosts, and of two containers
	// of one.
	EndsGroups  = []string{GroupBetween, GroupStacks, GroupSplit}
	ProbeGroups = []string{GroupProbes, GroupCapacity}
)

// The groups.
const (
	GroupCPU          = "CPU"
	GroupMemory       = "Memory"
	GroupNetwork      = "Network"
	GroupDisk         = "Disk"
	GroupRequests     = "Requests"
	GroupLatency      = "Latency"
	GroupPath         = "Path"
	GroupConnections  = "Connections"
	GroupTrouble      = "What went wrong"
	GroupNotTimed     = "Not timed as requests"
	GroupCompleteness = "Completeness"
	GroupHost         = "Host"
	GroupBetween      = "Between the ends"
	GroupStacks       = "The hosts’ stacks and the wire"
	GroupSplit        = "Where the time goes"
	GroupProbes       = "Measured between the two"
	GroupCapacity     = "Capacity, measured on request"
)

// Numbers are those that are made of the columns of rows, but for those of both ends of an edge, in the order of groups,
// with their queries. They panic where a number names what is not there.
func Numbers[T any](rows []Row[T], groups []string) []Shown { return numbersOf(rows, groups, false) }

// EndsNumbers are those of both ends of an edge together.
func EndsNumbers() []Shown { return numbersOf(EdgeRows, EndsGroups, true) }

func numbersOf[T any](rows []Row[T], groups []string, ends bool) []Shown {
	type series struct{ name, matchers string }
	known := map[string]series{}
	for i := range rows {
		for j := range rows[i].Columns {
			c := &rows[i].Columns[j]
			s := series{name: rows[i].Name, matchers: "$match"}
			if c.Label.Name != "" {
				s.matchers += fmt.Sprintf(",%s=%q", c.Label.Name, c.Label.Value)
			}
			if _, twice := known[c.Name]; twice {
				panic("BUG: two columns " + c.Name)
			}
			known[c.Name] = s
		}
	}
	all := []Shown{}
	for i := range rows {
		for _, c := range rows[i].Columns {
			for _, n := range c.Shown {
				if n.Ends != ends {
					continue
				}
				if len(n.Of) == 0 {
					n.Of = []string{c.Name}
				}
				selectors := make([]string, len(n.Of))
				for k, name := range n.Of {
					s, ok := known[name]
					if !ok {
						panic(fmt.Sprintf("BUG: the number %s is made of the column %s, which is not there", n.Key, name))
					}
					if n.Side != RoleUnknown {
						s.matchers += fmt.Sprintf(",side=%q", n.Side)
					}
					selectors[k] = s.name + "{" + s.matchers + "}"
				}
				if !slices.Contains(groups, n.Group) {
					panic(fmt.Sprintf("BUG: the number %s is in group %q, which is not there", n.Key, n.Group))
				}
				all = append(all, Shown{n, n.promQL(selectors)})
			}
		}
	}
	rank := func(n Shown) int {
		order := n.Order
		if order == 0 {
			order = len(all)
		}
		return slices.Index(groups, n.Group)*2*len(all) + order
	}
	slices.SortStableFunc(all, func(a, b Shown) int { return rank(a) - rank(b) })
	return all
}

// promQL is the query of a number of these selectors; empty where there is none.
func (n *Number) promQL(of []string) string {
	each := func(function string) string {
		parts := make([]string, len(of))
		for i, selector := range of {
			parts[i] = fmt.Sprintf("sum(%s(%s[$window]))", function, selector)
		}
		return strings.Join(parts, " + ")
	}
	switch {
	case n.Query != "":
		return n.Query
	case n.Formula == Gain:
		return each("increase")
	case n.Formula == Rate:
		return each("rate")
	case n.Formula == Level || n.Formula == Limit:
		return "sum(" + of[0] + ")"
	case n.Formula == MeanLevel:
		return each("avg_over_time")
	case n.Formula == PeakLevel:
		return each("max_over_time")
	case n.Formula == LeastLevel:
		return "min(" + of[0] + ")"
	case n.Formula == Share:
		return fmt.Sprintf("sum(rate(%s[$window])) / sum(rate(%s[$window]))", of[0], of[1])
	case n.Formula == QuantileOf:
		return fmt.Sprintf("histogram_quantile(%v, sum(rate(%s[$window])))", n.Quantile, of[0])
	case n.Formula == MeanOf:
		return fmt.Sprintf("histogram_avg(sum(rate(%s[$window])))", of[0])
	}
	return ""
}
