package frame

import (
	"encoding/binary"
	"math/bits"
	"sync"

	"outsight/internal/model"
)

// toldHistograms is a section of histograms as it is encoded, which was checked: what rows gained.
type toldHistograms struct {
	bytes []byte
	// at is where the histogram of each row begins; 0 for one that gained nothing.
	at []uint32
	// total is how many buckets the rows of its frame have, as it says.
	total int
}

// keepHistograms keeps a column as it is told, behind that of the key frame: what a window of frames is made of is added
// up out of the encoded bytes, without the histograms of each frame.
func (d *parser) keepHistograms(to, old *Histograms, part []byte, s *tableSection) {
	if part[0] != hasValues {
		d.fail("a column of histograms")
		return
	}
	to.told = cut(&d.told, len(old.told)+1)
	own := toldHistograms{bytes: cut(&d.bytes, len(part)), at: cut(&d.numbers, s.rows)}
	copy(own.bytes, part)
	clear(own.at)
	if !own.index() {
		d.fail("a histogram")
		return
	}
	to.told[0] = own
	for i, was := range old.told {
		if !s.identical {
			at := cut(&d.numbers, s.rows)
			clear(at)
			for _, same := range d.same {
				copy(at[same.to:same.to+same.n], was.at[same.from:])
			}
			was.at = at
		}
		to.told[i+1] = was
	}
}

// index finds the histograms of rows. It reports whether all of the section can be read.
func (t *toldHistograms) index() bool {
	b, at := t.bytes, 1
	total, at := numberAt(b, at)
	t.total = int(min(total, MaxValues))
	row, rows := uint64(0), uint64(len(t.at))
	for at < len(b) {
		var skip, n uint64
		skip, at = numberAt(b, at)
		n, at = numberAt(b, at)
		if at > len(b) || skip > rows-row || n > rows-row-skip {
			return false
		}
		for row += skip; n > 0; n-- {
			t.at[row] = uint32(at)
			row++
			var head uint64
			if at < len(b) && b[at] < 0x80 { // numberAt, which is not inlined
				head, at = uint64(b[at]), at+1
			} else {
				head, at = longAt(b, at)
			}
			at = skipNumbers(b, at, 1+int(head&1)+int(head>>1&1))
			next := uint64(0)
			for runs := head >> 2; runs > 0; runs-- {
				var count uint64
				if first, n, _, ok := shortRun(b, at); ok {
					if next += uint64(first + n); next > allBuckets {
						return false
					}
					at += 2 + n
					continue
				}
				if at+1 < len(b) && b[at]|b[at+1] < 0x80 { // as mostly
					skip, count, at = uint64(b[at]), uint64(b[at+1]), at+2
				} else {
					skip, at = numberAt(b, at)
					count, at = numberAt(b, at)
				}
				if next += skip + count; at > len(b) || skip > allBuckets || count > allBuckets || next > allBuckets {
					return false
				}
				if len(b)-at >= 8 && count <= 8 && binary.LittleEndian.Uint64(b[at:])<<(64-8*count)&tops == 0 {
					at += int(count) // each byte is a number
				} else {
					at = skipNumbers(b, at, int(count))
				}
			}
			if at > len(b) {
				return false
			}
		}
	}
	return at == len(b)
}

// numberAt reads a number. It answers where the next one begins: behind the end of b where there is none.
func numberAt(b []byte, at int) (n uint64, next int) {
	if at < len(b) && b[at] < 0x80 {
		return uint64(b[at]), at + 1
	}
	return longAt(b, at)
}

// skipNumbers passes over n numbers. It answers as numberAt does.
func skipNumbers(b []byte, at, n int) (next int) {
	for n > 0 && len(b)-at >= 8 {
		last := ^binary.LittleEndian.Uint64(b[at:]) & tops
		if found := bits.OnesCount64(last); found < n {
			n, at = n-found, at+8
			continue
		}
		if last == tops { // each byte is a number
			return at + n
		}
		for ; n > 1; n-- {
			last &= last - 1
		}
		return at + bits.TrailingZeros64(last)/8 + 1
	}
	for ; n > 0 && at < len(b); at++ {
		if b[at] < 0x80 {
			n--
		}
	}
	if n > 0 {
		return len(b) + 1
	}
	return at
}

const allBuckets = maxBucket - minBucket + 1

// tally is what a row has, or gained. Numbers are modulo 2^64.
type tally struct {
	sumNS, zero, overflow uint64
	// first and end bound the buckets that may not be 0, counted from minBucket.
	first, end int
	// buckets has room behind for addCounts, which stays 0.
	buckets [allBuckets + 8]uint64
}

// add adds a row so many times.
func (t *tally) add(h *Histograms, row int, times uint64) {
	for i := range h.told {
		if at := h.told[i].at[row]; at > 0 {
			t.read(h.told[i].bytes, int(at), times)
		}
	}
}

// read adds the histogram at a place of a section that was checked.
func (t *tally) read(b []byte, at int, times uint64) {
	head, n := uint64(b[at]), uint64(0)
	if head < 0x80 { // numberAt, which is not inlined
		at++
	} else {
		head, at = longAt(b, at)
	}
	if head&1 != 0 {
		n, at = numberAt(b, at)
		t.zero += times * n
	}
	if head&2 != 0 {
		n, at = numberAt(b, at)
		t.overflow += times * n
	}
	if n = uint64(b[at]); n < 0x80 {
		at++
	} else {
		n, at = longAt(b, at)
	}
	t.sumNS += times * n
	next := 0
	for runs := head >> 2; runs > 0; runs-- {
		if skip, n, counts, ok := shortRun(b, at); ok {
			first := next + skip
			next = first + n
			t.widen(first, next)
			addBytes((*[8]uint64)(t.buckets[first:]), counts, times)
			at += 2 + n
			continue
		}
		var skip, count uint64
		if at+1 < len(b) && b[at]|b[at+1] < 0x80 {
			skip, count, at = uint64(b[at]), uint64(b[at+1]), at+2
		} else {
			skip, at = numberAt(b, at)
			count, at = numberAt(b, at)
		}
		first := next + int(skip)
		next = first + int(count)
		t.widen(first, next)
		at = addCounts(t.buckets[first:], int(count), b, at, times)
	}
}

// widen makes the bounds at least these.
func (t *tally) widen(first, end int) {
	if t.end == 0 {
		t.first = first
	}
	t.first, t.end = min(t.first, first), max(t.end, end)
}

// shortRun reads a run of buckets of which all numbers have one byte, and are in eight bytes: as most are. It answers how
// many buckets are passed over, how many follow, and a byte for each of these.
func shortRun(b []byte, at int) (skip, n int, counts uint64, ok bool) {
	if len(b)-at < 8 {
		return 0, 0, 0, false
	}
	w := binary.LittleEndian.Uint64(b[at:])
	follow := w >> 8 & 0xff
	behind := (48 - 8*follow) & 63 // bits that are not of the run
	if w <<= behind; follow > 6 || w&tops != 0 {
		return 0, 0, 0, false
	}
	w >>= behind
	return int(w & 0xff), int(follow), w >> 16, true
}

// addCounts adds a number to each of n buckets, behind which there are a few more, so many times. It answers where what
// follows begins.
func addCounts(buckets []uint64, n int, b []byte, at int, times uint64) (next int) {
	for n > 0 {
		some := min(8, n)
		if len(b)-at >= 8 {
			if w := binary.LittleEndian.Uint64(b[at:]) << (64 - 8*some); w&tops == 0 { // each byte is a number
				addBytes((*[8]uint64)(buckets), w>>(64-8*some), times)
				buckets, n, at = buckets[some:], n-some, at+some
				continue
			}
		}
		for i := range buckets[:some] {
			var v uint64
			switch {
			case at < len(b) && b[at] < 0x80:
				v, at = uint64(b[at]), at+1
			case at+1 < len(b) && b[at+1] < 0x80:
				v, at = uint64(b[at]&0x7f)|uint64(b[at+1])<<7, at+2
			default:
				v, at = longAt(b, at)
			}
			buckets[i] += times * v
		}
		buckets, n = buckets[some:], n-some
	}
	return at
}

// addBytes adds eight numbers of one byte each, times 1 or -1: those behind a run's end are 0, which is faster than to
// count, as it is not to multiply.
func addBytes(to *[8]uint64, w, times uint64) {
	if times == 1 {
		to[0] += w & 0x7f
		to[1] += w >> 8 & 0x7f
		to[2] += w >> 16 & 0x7f
		to[3] += w >> 24 & 0x7f
		to[4] += w >> 32 & 0x7f
		to[5] += w >> 40 & 0x7f
		to[6] += w >> 48 & 0x7f
		to[7] += w >> 56
		return
	}
	to[0] -= w & 0x7f
	to[1] -= w >> 8 & 0x7f
	to[2] -= w >> 16 & 0x7f
	to[3] -= w >> 24 & 0x7f
	to[4] -= w >> 32 & 0x7f
	to[5] -= w >> 40 & 0x7f
	to[6] -= w >> 48 & 0x7f
	to[7] -= w >> 56
}

// tally adds what a row of After gained to t.
func (d *Difference) tally(t *tally, column, row int) {
	t.add(&d.After.Histograms[column], row, 1)
	if column >= len(d.Before.Histograms) {
		return
	}
	before, minus := &d.Before.Histograms[column], ^uint64(0)
	if was := d.BeforeRow[row]; was >= 0 {
		t.add(before, int(was), minus)
	}
	if r := d.removed[int32(row)]; r != nil {
		for _, was := range r.rows {
			t.add(before, int(was), minus)
		}
	}
}

// gains are what the histograms of rows of a column gained.
type gains struct {
	// at is where each row begins in words, 0 for one that was not added up. A row is what its sum, its zero count and its
	// overflow gained, the sum of its counts, how many counts follow, and these: a bucket, counted from minBucket, in the
	// lowest bits, and what it gained in the others. All of a row is in one place, so that it comes out of memory at once.
	at    []uint32
	words []uint64
}

const (
	rowHead    = 5
	bucketBits = 10 // allBuckets is less than 1 << bucketBits; a bucket gains less than 1 << 54, which takes centuries
)

// AddUp adds up what rows gained of a histogram, at once: worth it for rows that are asked for several times. Nothing else
// may ask d for histograms meanwhile.
func (d *Difference) AddUp(column int, rows []int32) {
	if column >= len(d.After.Histograms) || len(d.After.Histograms[column].told) == 0 {
		return
	}
	if d.gains == nil {
		d.gains = make([]gains, len(d.After.Histograms))
	}
	d.gains[column].add(d, column, rows)
}

// gained is what was added up of a row; nil where it was not.
func (d *Difference) gained(column, row int) (words []uint64) {
	if d.gains == nil || d.gains[column].at == nil || d.gains[column].at[row] == 0 {
		return nil
	}
	g := &d.gains[column]
	return g.words[g.at[row]:]
}

// add adds rows up. In After they all have so many buckets as its frame says.
func (g *gains) add(d *Difference, column int, rows []int32) {
	total := d.After.Histograms[column].told[0].total
	g.at = d.memory.takeNumbers(len(d.After.IDs))
	clear(g.at)
	g.words = d.memory.takeWords(1 + rowHead*len(rows) + total + allBuckets)
	t, at := tallies.Get().(*tally), 1
	defer tallies.Put(t)
	for _, row := range rows {
		d.tally(t, column, int(row))
		if room := at + rowHead + t.end - t.first; room > len(g.words) { // the frame says too little
			g.words = append(g.words, make([]uint64, room)...)
		}
		g.at[row] = uint32(at)
		some := t.buckets[t.first:t.end]
		words := g.words[at:][:rowHead+len(some)]
		counted, kept := uint64(0), rowHead
		for i, n := range some {
			n = positive(n)
			some[i] = 0
			words[kept] = n<<bucketBits | uint64(t.first+i)
			counted += n
			kept += int(-n >> 63) // 1 where there are some
		}
		words[0], words[1], words[2] = positive(t.sumNS), positive(t.zero), positive(t.overflow)
		words[3], words[4] = counted, uint64(kept-rowHead)
		at += kept
		t.empty()
	}
}

// addGained adds what a row gained.
func (h *Durations) addGained(words []uint64) {
	if n := words[4]; n > 0 {
		counts := words[rowHead:][:n]
		for _, w := range counts {
			h.buckets[w&(1<<bucketBits-1)] += w >> bucketBits
		}
		bucket := func(w uint64) int32 { return int32(w&(1<<bucketBits-1)) + minBucket }
		h.widen(bucket(counts[0]), bucket(counts[n-1]))
	}
	h.SumNS, h.Zero, h.Overflow = h.SumNS+words[0], h.Zero+words[1], h.Overflow+words[2]
	h.Count += words[3] + words[1] + words[2]
}

// tallies are empty.
var tallies = sync.Pool{New: func() any { return &tally{} }}

// positive is 0 for what is less.
func positive(n uint64) uint64 { return n &^ uint64(int64(n)>>63) }

// empty makes it 0, but for the buckets, which are.
func (t *tally) empty() { t.sumNS, t.zero, t.overflow, t.first, t.end = 0, 0, 0, 0, 0 }

// addTo adds what was gained to h, and empties t.
func (t *tally) addTo(h *Durations) {
	buckets, sum := h.buckets[t.first:t.end], uint64(0)
	gained := t.buckets[t.first:t.end][:len(buckets)]
	for i, n := range gained {
		n = positive(n)
		buckets[i] += n
		sum += n
		gained[i] = 0
	}
	if sum > 0 {
		h.widen(int32(t.first)+minBucket, int32(t.end)+minBucket-1)
	}
	zero, overflow := positive(t.zero), positive(t.overflow)
	h.SumNS, h.Zero, h.Overflow = h.SumNS+positive(t.sumNS), h.Zero+zero, h.Overflow+overflow
	h.Count += sum + zero + overflow
	t.empty()
}

// toldAt is At of histograms that are as they were told.
func (h *Histograms) toldAt(row int) *model.Histogram {
	var t tally
	t.add(h, row, 1)
	one := &model.Histogram{SumNS: t.sumNS, ZeroCount: t.zero, OverflowCount: t.overflow, Count: t.zero + t.overflow}
	for t.first < t.end && t.buckets[t.first] == 0 {
		t.first++
	}
	for t.first < t.end && t.buckets[t.end-1] == 0 {
		t.end--
	}
	if t.first < t.end {
		one.Offset, one.Buckets = int32(t.first)+minBucket, append([]uint64(nil), t.buckets[t.first:t.end]...)
		for _, n := range one.Buckets {
			one.Count += n
		}
	}
	if one.Count == 0 {
		return nil
	}
	return one
}
