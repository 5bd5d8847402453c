package frame

import (
	"encoding/binary"
	"slices"
)

func (w *writer) writeHistograms(now, old *Histograms) (some bool) {
	if len(now.End) == 0 {
		w.part = append(w.part, 0)
		return len(old.End) > 0
	}
	total := 0
	for _, n := range now.Count {
		if n != 0 {
			total++
		}
	}
	w.part = append(w.part, hasValues)
	w.part = binary.AppendUvarint(w.part, uint64(total))
	some = len(old.End) == 0 || !w.identical
	at := 0
	same, begin, count := w.same, 0, 0
	for row := range w.rows {
		was := -1
		if len(old.End) > 0 {
			for len(same) > 0 && same[0].to+same[0].n <= row {
				same = same[1:]
			}
			if len(same) > 0 && same[0].to <= row {
				was = same[0].from + row - same[0].to
			}
		}
		if equalHistograms(now, old, row, was) {
			continue
		}
		if some = true; count == 0 || row != at {
			w.endRun(begin, count)
			w.part = binary.AppendUvarint(w.part, uint64(row-at))
			begin, count = len(w.part), 0
		}
		w.writeHistogram(now, old, row, was)
		at = row + 1
		count++
	}
	w.endRun(begin, count)
	return some
}

// endRun puts the number of rows of a run in front of them.
func (w *writer) endRun(begin, count int) {
	if count > 0 {
		var number [binary.MaxVarintLen64]byte
		w.part = slices.Insert(w.part, begin, number[:binary.PutUvarint(number[:], uint64(count))]...)
	}
}

func equalHistograms(now, old *Histograms, row, was int) bool {
	index, counts := now.Buckets(row)
	if was < 0 {
		return now.SumNS[row]|now.Zero[row]|now.Overflow[row] == 0 && len(index) == 0
	}
	oldIndex, oldCounts := old.Buckets(was)
	return now.SumNS[row] == old.SumNS[was] && now.Zero[row] == old.Zero[was] && now.Overflow[row] == old.Overflow[was] &&
		slices.Equal(index, oldIndex) && slices.Equal(counts, oldCounts)
}

// writeHistogram appends what a row gained: the number of runs and which of the counts follow, the counts, and runs of
// buckets, where a bucket that gained nothing may be within a run.
func (w *writer) writeHistogram(now, old *Histograms, row, was int) {
	zero, overflow, sum := now.Zero[row], now.Overflow[row], now.SumNS[row]
	index, counts := now.Buckets(row)
	var oldIndex []int32
	var oldCounts []uint64
	if was >= 0 {
		zero, overflow, sum = zero-old.Zero[was], overflow-old.Overflow[was], sum-old.SumNS[was]
		oldIndex, oldCounts = old.Buckets(was)
	}
	w.gains = w.gains[:0]
	runs := 0
	for len(index)+len(oldIndex) > 0 {
		var g gain
		take := len(oldIndex) == 0 || len(index) > 0 && index[0] <= oldIndex[0]
		leave := len(index) == 0 || len(oldIndex) > 0 && oldIndex[0] <= index[0]
		if take {
			g = gain{index[0], counts[0]}
			index, counts = index[1:], counts[1:]
		}
		if leave {
			g = gain{oldIndex[0], g.count - oldCounts[0]}
			oldIndex, oldCounts = oldIndex[1:], oldCounts[1:]
		}
		if g.count == 0 {
			continue
		}
		if last := len(w.gains) - 1; last < 0 || g.bucket-w.gains[last].bucket > maxHole {
			runs++
		}
		w.gains = append(w.gains, g)
	}
	head := uint64(runs) << 2
	if zero != 0 {
		head |= 1
	}
	if overflow != 0 {
		head |= 2
	}
	w.part = binary.AppendUvarint(w.part, head)
	if zero != 0 {
		w.part = binary.AppendUvarint(w.part, zero)
	}
	if overflow != 0 {
		w.part = binary.AppendUvarint(w.part, overflow)
	}
	w.part = binary.AppendUvarint(w.part, sum)
	w.writeGains()
}

// gain is what a bucket gained.
type gain struct {
	bucket int32
	count  uint64
}

// maxHole is how far apart two buckets of a run are at most.
const maxHole = 3

func (w *writer) writeGains() {
	next := int32(minBucket)
	for i := 0; i < len(w.gains); {
		end := i + 1
		for end < len(w.gains) && w.gains[end].bucket-w.gains[end-1].bucket <= maxHole {
			end++
		}
		first, last := w.gains[i].bucket, w.gains[end-1].bucket
		w.part = binary.AppendUvarint(w.part, uint64(first-next))
		w.part = binary.AppendUvarint(w.part, uint64(last-first+1))
		for at := first; at <= last; at++ {
			if w.gains[i].bucket != at {
				w.part = append(w.part, 0)
				continue
			}
			w.part = binary.AppendUvarint(w.part, w.gains[i].count)
			i++
		}
		next = last + 1
	}
}
