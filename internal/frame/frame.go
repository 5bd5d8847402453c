package frame

import (
	"slices"
	"strings"
	"time"

	"outsight/internal/model"
)

// Frame is what one host saw at one instant. It is immutable.
type Frame struct {
	Header
	// Strings are the texts of attributes, by their index; the first is empty.
	Strings []string
	Tables  [NumTables]Table
	// layout and only say how a frame was decoded: those that are told as changes of it are decoded in the same way. They
	// are nil where it was not.
	layout *layout
	only   *Projection
	// told says that its histograms are as they were told, and memory what they are in.
	told   bool
	memory *Memory
}

// Header says which frame it is.
type Header struct {
	Host string
	// Epoch is when the agent began, in nanoseconds since 1970: row numbers and counters are of one epoch.
	Epoch uint64
	// Boot is a hash of the kernel's name of this boot of the host, or when that began in seconds since 1970 where there is
	// no name; 0 where neither is known. Counters of files (Column.File) go on from one epoch to the next of the same boot.
	Boot uint64
	// Number counts the frames of an epoch from 1. Key is the number of the key frame that this one is told as changes
	// of; a key frame has its own.
	Number, Key uint64
	// Time at which the counters were read, by the host's clock.
	Time time.Time
	// ClockError bounds how far the host's clock is off, as its kernel estimates it; 0 where that is not known.
	ClockError time.Duration
}

// IsKey reports whether the frame is told completely.
func (h *Header) IsKey() bool { return h.Key == h.Number }

// IsOf reports whether key is the key frame that the frame is told as changes of. No frame is told as changes of nil.
func (h *Header) IsOf(key *Frame) bool {
	return key != nil && key.IsKey() && key.Host == h.Host && key.Epoch == h.Epoch && key.Number == h.Key
}

// AsKey is the frame as a key frame: one that needs no other to be read.
func (f *Frame) AsKey() *Frame {
	whole := *f
	whole.Key = whole.Number
	return &whole
}

// Table has the rows of one kind of entity.
type Table struct {
	// IDs are the numbers of the rows, ascending. They are stable in an epoch, and not used again; 0 is none.
	IDs []uint32
	// Attributes are by the index that Schema has them at; each is as long as IDs.
	Attributes [][]uint64
	Columns    []Values
	Histograms []Histograms
}

// Values is a column. It is empty where no row has a value.
type Values struct {
	// Of has a value for each row. A Float is stored as its bits.
	Of []uint64
	// Missing has a bit for each row without a value; nil if there are none.
	Missing []uint64
}

// At is the value in a row; ok is false where there is none.
func (v *Values) At(row int) (n uint64, ok bool) {
	if len(v.Of) == 0 || v.Missing != nil && v.Missing[row>>6]>>(row&63)&1 != 0 {
		return 0, false
	}
	return v.Of[row], true
}

// Histograms is a column of histograms in sparse form. It is empty where no row has one. Those of DecodeInto have no
// fields: they are for a Difference and At.
type Histograms struct {
	// SumNS, Zero and Overflow are those of model.Histogram, of each row.
	SumNS, Zero, Overflow []uint64
	// End is the index behind the last of a row's buckets.
	End []uint32
	// Bucket has the indexes of buckets that are not empty, ascending in each row, and Count what is in them.
	Bucket []int32
	Count  []uint64
	// told is what it is the sum of, where it was not decoded.
	told []toldHistograms
}

// isEmpty reports whether no row has a histogram.
func (h *Histograms) isEmpty() bool { return len(h.End) == 0 && len(h.told) == 0 }

// Buckets are those of a row.
func (h *Histograms) Buckets(row int) (index []int32, count []uint64) {
	if len(h.End) == 0 {
		return nil, nil
	}
	begin := uint32(0)
	if row > 0 {
		begin = h.End[row-1]
	}
	return h.Bucket[begin:h.End[row]], h.Count[begin:h.End[row]]
}

// total is how many durations a row has.
func (h *Histograms) total(row int) (n uint64) {
	if len(h.End) == 0 {
		return 0
	}
	_, counts := h.Buckets(row)
	for _, count := range counts {
		n += count
	}
	return n + h.Zero[row] + h.Overflow[row]
}

// At is the histogram of a row, nil where nothing was counted.
func (h *Histograms) At(row int) *model.Histogram {
	switch {
	case len(h.told) > 0:
		return h.toldAt(row)
	case len(h.End) == 0:
		return nil
	}
	index, count := h.Buckets(row)
	one := &model.Histogram{SumNS: h.SumNS[row], ZeroCount: h.Zero[row], OverflowCount: h.Overflow[row]}
	one.Count = one.ZeroCount + one.OverflowCount
	if len(index) > 0 {
		one.Offset = index[0]
		one.Buckets = make([]uint64, index[len(index)-1]-index[0]+1)
		for i, at := range index {
			one.Buckets[at-one.Offset] = count[i]
			one.Count += count[i]
		}
	}
	if one.Count == 0 {
		return nil
	}
	return one
}

// Find is the index of a row.
func (t *Table) Find(id uint32) (row int, ok bool) { return slices.BinarySearch(t.IDs, id) }

// Attribute is the value of an attribute of a row.
func (t *Table) Attribute(a Attribute, row int) uint64 { return t.Attributes[a][row] }

// Text is the value of an attribute that is a text.
func (f *Frame) Text(t TableID, a Attribute, row int) string {
	return f.Strings[f.Tables[t].Attributes[a][row]]
}

// ContainerTitle is what people call the container of a row: its name, or namespace/pod/name of a pod's.
func (f *Frame) ContainerTitle(row int) string {
	name, pod := f.Text(Containers, ContainerName, row), f.Text(Containers, ContainerPod, row)
	if pod == "" {
		return name
	}
	return strings.Join([]string{f.Text(Containers, ContainerNamespace, row), pod, name}, "/")
}
