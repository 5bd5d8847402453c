package model

import "time"

// Series is one sample of one time series, named and labelled as it is stored and exported.
type Series struct {
	// Name in Prometheus form, with the unit: "container_cpu_usage_seconds_total".
	Name string
	// Labels in order of their names, without Name; values may be any UTF-8.
	Labels []Label
	Kind   SeriesKind
	Time   time.Time
	// Start is when a Counter or HistogramSeries was zero; the zero Time where that is not known.
	Start time.Time
	// Value of a counter or gauge, in the unit that Name ends with.
	Value float64
	// Histogram of a histogram series, in nanoseconds as everywhere in model; nil otherwise.
	Histogram *Histogram
}

// Label is a name and its value.
type Label struct{ Name, Value string }

// SeriesKind tells how the values of a series are to be read.
type SeriesKind uint8

// The kinds of series. Counter and HistogramSeries are cumulative.
const (
	Counter SeriesKind = iota + 1
	Gauge
	HistogramSeries
)
