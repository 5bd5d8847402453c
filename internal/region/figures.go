package region

import (
	"cmp"

	"outsight/internal/model"
)

// Figure is one number of a container or an edge.
type Figure struct {
	Metric *Metric
	// Count is in Metric.Per of its unit.
	Count uint64
	// Histogram of a metric that has one; it must not be changed.
	Histogram *model.Histogram
	// Less is what was taken away from Count, of a gauge that is a difference.
	Less uint64
	// datagrams is what Count is of an edge of UDP.
	datagrams uint64
	// sum says that Count is the sum of a histogram, there that the host has the figure.
	sum, there bool
}

// IsHistogram says that the figure is a histogram, which is nil as long as nothing was counted in it.
func (f *Figure) IsHistogram() bool { return f.sum }

// Value is the number in the unit of its metric.
func (f *Figure) Value() float64 { return float64(f.Count) / float64(f.Metric.Per) }

// Figures are those of one container or edge, each metric once.
type Figures []Figure

// Of is the figure with a Metric.Series, nil where there is none.
func (f Figures) Of(series string) *Figure {
	for i := range f {
		if f[i].Metric.Series() == series {
			return &f[i]
		}
	}
	return nil
}

// add adds other figures up to them, which have the same metrics in the same places.
func (f Figures) add(other Figures) {
	for i := range other {
		to, more := &f[i], &other[i]
		to.Count += more.Count
		to.Histogram = merged(to.Histogram, more.Histogram)
		to.there = to.there || more.there
	}
}

// known are those that the host has.
func (f Figures) known() Figures {
	n := 0
	for i := range f {
		if !f[i].there {
			continue
		}
		if n != i {
			f[n] = f[i]
		}
		n++
	}
	return f[:n]
}

// merged is the sum of two histograms, which stay as they are. Either may be nil.
func merged(a, b *model.Histogram) *model.Histogram {
	if a == nil || b == nil {
		return cmp.Or(a, b)
	}
	sum := a.Clone()
	sum.Merge(b)
	return sum
}
