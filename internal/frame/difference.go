package frame

import (
	"slices"
	"sync"

	"outsight/internal/model"
)

// Difference says what the rows of one table gained between two frames of an epoch.
type Difference struct {
	Before, After *Table
	// BeforeRow is, for each row of After, that of Before with the same number; -1 where there is none: its counters
	// were 0.
	BeforeRow []int32
	info      *TableInfo
	// removed are, by the row of After that they were added to, the rows of Before that are not in After any more.
	removed map[int32]*removed
	// gains are, by column, what the histograms of rows gained, as far as that was added up. memory is that of After.
	gains  []gains
	memory *Memory
}

// removed are rows of Before: their sums by column.
type removed struct {
	rows    []int32
	columns []uint64
}

var noRows Table

// Since matches the rows of a table. Without before, all that a row has is what it gained.
func Since(t TableID, before, after *Frame) *Difference {
	d := &Difference{Before: &noRows, After: &after.Tables[t], info: &Schema[t], memory: after.memory}
	if before != nil {
		d.Before = &before.Tables[t]
	}
	d.BeforeRow = make([]int32, len(d.After.IDs))
	was, now := 0, 0
	var gone []int32
	for now < len(d.After.IDs) {
		switch {
		case was == len(d.Before.IDs) || d.Before.IDs[was] > d.After.IDs[now]:
			d.BeforeRow[now] = -1
			now++
		case d.Before.IDs[was] < d.After.IDs[now]:
			gone = append(gone, int32(was))
			was++
		default:
			d.BeforeRow[now] = int32(was)
			was, now = was+1, now+1
		}
	}
	for ; was < len(d.Before.IDs); was++ {
		gone = append(gone, int32(was))
	}
	if len(gone) > 0 && len(d.info.Attributes) > int(Sum) && d.info.Attributes[Sum].Name == lasting[Sum].Name {
		d.remove(t, before, gone)
	}
	return d
}

// remove subtracts rows of Before from the rows of After that they were added to.
func (d *Difference) remove(t TableID, before *Frame, gone []int32) {
	d.removed = map[int32]*removed{}
	var sums []int32
	for i, state := range d.After.Attributes[State] {
		if state == Summed {
			sums = append(sums, int32(i))
		}
	}
	if len(sums) == 0 {
		return
	}
	for _, row := range gone {
		if t == Labelled && isLevel(before.Text(t, LabelledMetric, int(row))) { // it was added to none
			continue
		}
		if d.removeFrom(row, uint32(d.Before.Attributes[Sum][row])) || d.removeFrom(row, OthersRow) || t == Labelled {
			continue
		}
		// Its kind was another one when it ended: its name became known.
		for _, into := range sums {
			if (t != Edges || d.Before.Attributes[EdgeSide][row] == d.After.Attributes[EdgeSide][into]) &&
				d.removeFrom(row, d.After.IDs[into]) {
				break
			}
		}
	}
}

// removeFrom subtracts a row of Before from a row of After, if that sums rows and gained as much.
func (d *Difference) removeFrom(row int32, id uint32) bool {
	found, ok := d.After.Find(id)
	if !ok || d.After.Attributes[State][found] != Summed {
		return false
	}
	into := int32(found)
	for i := range d.info.Columns {
		if was := value(d.Before, i, row); was > 0 && d.adds(i) && was > d.gain(i, into) {
			return false
		}
	}
	r := d.removed[into]
	if r == nil {
		r = &removed{columns: make([]uint64, len(d.info.Columns))}
		d.removed[into] = r
	}
	r.rows = append(r.rows, row)
	for i := range d.info.Columns {
		if d.adds(i) {
			r.columns[i] += value(d.Before, i, row)
		}
	}
	return true
}

// adds reports whether a column is added up when rows are.
func (d *Difference) adds(column int) bool {
	kind := d.info.Columns[column].Kind
	return kind == Counter || kind == Integral
}

// value is 0 where there is none.
func value(t *Table, column int, row int32) uint64 {
	if column >= len(t.Columns) {
		return 0
	}
	n, _ := t.Columns[column].At(int(row))
	return n
}

func (d *Difference) gain(column int, row int32) uint64 {
	now, was := value(d.After, column, row), uint64(0)
	if before := d.BeforeRow[row]; before >= 0 {
		was = value(d.Before, column, before)
	}
	if r := d.removed[row]; r != nil {
		was += r.columns[column]
	}
	if was > now {
		return 0
	}
	return now - was
}

// Gain is what a counter of a row of After gained; ok is false where it has no value, or where that is not known: a
// file's counter that was not read yet in Before, of a row that was there.
func (d *Difference) Gain(column, row int) (n uint64, ok bool) {
	if column >= len(d.After.Columns) {
		return 0, false
	}
	if _, ok = d.After.Columns[column].At(row); !ok {
		return 0, false
	}
	if before := d.BeforeRow[row]; before >= 0 && d.info.Columns[column].File && column < len(d.Before.Columns) {
		if _, known := d.Before.Columns[column].At(int(before)); !known {
			return 0, false
		}
	}
	return d.gain(column, int32(row)), true
}

// HasRemoved reports whether rows of Before were added to a row of After.
func (d *Difference) HasRemoved(row int) bool { return d.removed[int32(row)] != nil }

// Durations is a histogram in dense form, to which the gains of rows are added. The zero value is empty.
type Durations struct {
	Count, SumNS, Zero, Overflow uint64
	// First and Last bound the buckets that are not empty, of those from model.MinBucket to model.MaxBucket; Last is less
	// than First where there is none.
	First, Last int32
	some        bool
	buckets     [allBuckets]uint64
	// row is what a row gained, while that is added.
	row tally
}

// At is the count of a bucket.
func (h *Durations) At(bucket int32) uint64 { return h.buckets[bucket-model.MinBucket] }

// Reset makes it empty.
func (h *Durations) Reset() {
	if h.some {
		clear(h.buckets[h.First-model.MinBucket : h.Last-model.MinBucket+1])
	}
	h.Count, h.SumNS, h.Zero, h.Overflow, h.First, h.Last, h.some = 0, 0, 0, 0, 0, -1, false
}

func (h *Durations) add(bucket int32, n uint64) {
	bucket = min(max(bucket, model.MinBucket), model.MaxBucket)
	h.widen(bucket, bucket)
	h.buckets[bucket-model.MinBucket] += n
	h.Count += n
}

// widen makes the bounds at least these.
func (h *Durations) widen(first, last int32) {
	if !h.some {
		h.First, h.Last, h.some = first, last, true
		return
	}
	h.First, h.Last = min(h.First, first), max(h.Last, last)
}

// addSparse adds the counts of buckets less what they were before.
func (h *Durations) addSparse(index []int32, count []uint64, wasIndex []int32, wasCount []uint64) {
	if len(index) == 0 {
		return
	}
	if index[0] < model.MinBucket || index[len(index)-1] > model.MaxBucket {
		for i, n := range count { // it is none of the registry's
			if k, ok := slices.BinarySearch(wasIndex, index[i]); ok {
				n = less(n, wasCount[k])
			}
			if n > 0 {
				h.add(index[i], n)
			}
		}
		return
	}
	sum, same := uint64(0), 0
	count = count[:len(index)]
	if len(wasIndex) == len(index) { // mostly the buckets are those of before
		wasCount = wasCount[:len(index)]
		for same < len(index) && wasIndex[same] == index[same] {
			n := count[same] - wasCount[same]
			if wasCount[same] > count[same] {
				n = 0
			}
			h.buckets[index[same]-model.MinBucket] += n
			sum += n
			same++
		}
	}
	for i, k := same, same; i < len(index); i++ {
		n := count[i]
		for k < len(wasIndex) && wasIndex[k] < index[i] {
			k++
		}
		if k < len(wasIndex) && wasIndex[k] == index[i] {
			n = less(n, wasCount[k])
			k++
		}
		h.buckets[index[i]-model.MinBucket] += n
		sum += n
	}
	if sum > 0 {
		h.widen(index[0], index[len(index)-1])
		h.Count += sum
	}
}

var rowDurations = sync.Pool{New: func() any { return &Durations{} }}

// Gained reports whether a histogram of a row of After has other counts than before.
func (d *Difference) Gained(column, row int) bool {
	if column >= len(d.After.Histograms) {
		return false
	}
	after := &d.After.Histograms[column]
	if d.removed[int32(row)] == nil && len(after.told) == 0 {
		before := d.BeforeRow[row]
		if before < 0 || column >= len(d.Before.Histograms) {
			return after.total(row) > 0
		}
		return after.total(row) != d.Before.Histograms[column].total(int(before))
	}
	if words := d.gained(column, row); words != nil {
		return words[1]+words[2]+words[3] > 0
	}
	gained := rowDurations.Get().(*Durations)
	defer rowDurations.Put(gained)
	gained.Reset()
	d.AddHistogram(gained, column, row)
	return gained.Count > 0
}

// AddHistogram adds what a histogram of a row of After gained.
func (d *Difference) AddHistogram(to *Durations, column, row int) {
	if column >= len(d.After.Histograms) || d.After.Histograms[column].isEmpty() {
		return
	}
	if len(d.After.Histograms[column].told) > 0 {
		if words := d.gained(column, row); words != nil {
			to.addGained(words)
			return
		}
		d.tally(&to.row, column, row)
		to.row.addTo(to)
		return
	}
	if d.removed[int32(row)] != nil {
		d.addSummed(to, column, row)
		return
	}
	after := &d.After.Histograms[column]
	index, count := after.Buckets(row)
	sum, zero, overflow := after.SumNS[row], after.Zero[row], after.Overflow[row]
	before := d.BeforeRow[row]
	if before >= 0 && column < len(d.Before.Histograms) && len(d.Before.Histograms[column].End) > 0 {
		was := &d.Before.Histograms[column]
		wasIndex, wasCount := was.Buckets(int(before))
		sum, zero, overflow = less(sum, was.SumNS[before]), less(zero, was.Zero[before]), less(overflow, was.Overflow[before])
		to.addSparse(index, count, wasIndex, wasCount)
	} else {
		to.addSparse(index, count, nil, nil)
	}
	to.SumNS, to.Zero, to.Overflow = to.SumNS+sum, to.Zero+zero, to.Overflow+overflow
	to.Count += zero + overflow
}

func less(now, was uint64) uint64 {
	if was > now {
		return 0
	}
	return now - was
}

// addSummed is AddHistogram for a row to which others were added.
func (d *Difference) addSummed(to *Durations, column, row int) {
	gained := d.After.Histograms[column].At(row)
	if gained == nil {
		return
	}
	var was model.Histogram
	if column < len(d.Before.Histograms) {
		before := &d.Before.Histograms[column]
		if b := d.BeforeRow[row]; b >= 0 {
			was.Merge(before.At(int(b)))
		}
		for _, b := range d.removed[int32(row)].rows {
			was.Merge(before.At(int(b)))
		}
	}
	for i, n := range gained.Buckets {
		if at := int(gained.Offset-was.Offset) + i; at >= 0 && at < len(was.Buckets) {
			n = less(n, was.Buckets[at])
		}
		if n != 0 {
			to.add(gained.Offset+int32(i), n)
		}
	}
	zero, overflow := less(gained.ZeroCount, was.ZeroCount), less(gained.OverflowCount, was.OverflowCount)
	to.SumNS, to.Zero, to.Overflow = to.SumNS+less(gained.SumNS, was.SumNS), to.Zero+zero, to.Overflow+overflow
	to.Count += zero + overflow
}
