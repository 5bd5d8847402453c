package model

import (
	"math"
	"time"
)

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
	// Key is 0, or a number that in this process stands for this Name and these Labels and no others, so that
	// who meets them every second need not compare them.
	Key uint64
	// Foreign histogram of a histogram series that has none of ours; nil otherwise.
	Foreign *ForeignHistogram
}

// ForeignHistogram is a cumulative exponential histogram of another program's measurements, in the unit that the
// series' name ends with. Bucket i of Positive holds the values in (base^(i-1), base^i], where base is
// 2^(2^-Scale); those of Negative hold the values of the same size below zero.
type ForeignHistogram struct {
	// Scale from -4 to 8, which is what Prometheus can store.
	Scale            int32
	Count, ZeroCount uint64
	Sum              float64
	ZeroThreshold    float64
	// Offsets are the indexes of the first buckets.
	PositiveOffset, NegativeOffset int32
	Positive, Negative             []uint64
}

// Scales that a ForeignHistogram may have.
const (
	MinForeignScale = -4
	MaxForeignScale = 8
)

// Label is a name and its value.
type Label struct{ Name, Value string }

// SeriesKind says how the values of a series are to be read.
type SeriesKind uint8

// The kinds of series. Counter and HistogramSeries are cumulative.
const (
	Counter SeriesKind = iota + 1
	Gauge
	HistogramSeries
)

// Stale is the value that says of a series that it has ended, as Prometheus has it. It is a NaN of its own.
func Stale() float64 { return math.Float64frombits(0x7ff0000000000002) }
