package frame

import (
	"encoding/binary"
	"math/bits"

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
	r := &reader{b: t.bytes, at: 1}
	t.total = r.count(MaxValues)
	row := 0
	for r.left() > 0 {
		skip, n := r.count(len(t.at)), r.count(len(t.at))
		if row += skip; r.failed || row+n > len(t.at) {
			return false
		}
		for end := row + n; row < end; row++ {
			t.at[row] = uint32(r.at)
			head := r.uvarint()
			r.skip(1 + int(head&1) + int(head>>1&1))
			next := uint64(0)
			for runs := head >> 2; runs > 0; runs-- {
				skip, n := r.uvarint(), r.uvarint()
				if next += skip + n; r.failed || skip > allBuckets || n > allBuckets || next > allBuckets {
					return false
				}
				r.skip(int(n))
			}
		}
	}
	return !r.failed
}

// skip passes over n numbers.
func (r *reader) skip(n int) {
	b, at := r.b, r.at
	for n > 0 && len(b)-at >= 8 {
		last := ^binary.LittleEndian.Uint64(b[at:]) & tops
		if found := bits.OnesCount64(last); found < n {
			n, at = n-found, at+8
			continue
		}
		for ; n > 1; n-- {
			last &= last - 1
		}
		r.at = at + bits.TrailingZeros64(last)/8 + 1
		return
	}
	for ; n > 0 && at < len(b); at++ {
		if b[at] < 0x80 {
			n--
		}
	}
	if r.at = at; n > 0 {
		r.fail()
	}
}

const allBuckets = maxBucket - minBucket + 1

// tally is what a row has, or gained. Numbers are modulo 2^64.
type tally struct {
	sumNS, zero, overflow uint64
	// first and end bound the buckets that may not be 0, counted from minBucket.
	first, end int
	buckets    [allBuckets]uint64
}

// add adds a row so many times.
func (t *tally) add(h *Histograms, row int, times uint64) {
	for i := range h.told {
		if at := h.told[i].at[row]; at > 0 {
			t.read(h.told[i].bytes[at:], times)
		}
	}
}

// read adds the histogram at the begin of b, of a section that was checked.
func (t *tally) read(b []byte, times uint64) {
	r := reader{b: b}
	head := r.uvarint()
	if head&1 != 0 {
		t.zero += times * r.uvarint()
	}
	if head&2 != 0 {
		t.overflow += times * r.uvarint()
	}
	t.sumNS += times * r.uvarint()
	next := 0
	for runs := head >> 2; runs > 0; runs-- {
		first := next + int(r.uvarint())
		next = first + int(r.uvarint())
		if t.end == 0 {
			t.first = first
		}
		t.first, t.end = min(t.first, first), max(t.end, next)
		r.at = addCounts(t.buckets[first:next], b, r.at, times)
	}
}

// addCounts adds a number to each bucket so many times. It answers where what follows begins.
func addCounts(buckets []uint64, b []byte, at int, times uint64) int {
	for len(buckets) > 0 {
		some := buckets[:min(8, len(buckets))]
		buckets = buckets[len(some):]
		if len(some) == 8 && len(b)-at >= 8 {
			if w := binary.LittleEndian.Uint64(b[at:]); w&tops == 0 { // each is a number
				eight := (*[8]uint64)(some)
				for i := range eight {
					eight[i] += times * (w >> (8 * i) & 0x7f)
				}
				at += 8
				continue
			}
		}
		for i := range some {
			if at < len(b) && b[at] < 0x80 {
				some[i] += times * uint64(b[at])
				at++
				continue
			}
			r := reader{b: b, at: at}
			some[i] += times * r.long()
			at = r.at
		}
	}
	return at
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

// gains are what the histograms of all rows of a column gained.
type gains struct {
	rows []rowGain
	// bucket has the buckets of all rows that gained something, counted from minBucket, and count what that is.
	bucket []uint32
	count  []uint64
}

type rowGain struct {
	sumNS, zero, overflow uint64
	// counted is the sum of counts, of which the row has those up to end.
	counted    uint64
	begin, end uint32
}

// AddUp adds up what all rows gained of histograms, at once: worth it where most are asked for, and some several times.
// Nothing else may use d meanwhile.
func (d *Difference) AddUp() {
	d.gains = make([]gains, len(d.After.Histograms))
	var t tally
	for column := range d.gains {
		if h := &d.After.Histograms[column]; len(h.told) > 0 {
			d.gains[column].add(d, column, h.told[0].total, &t)
		}
	}
}

// add adds up a column with so many buckets in After.
func (g *gains) add(d *Difference, column, total int, t *tally) {
	g.rows = make([]rowGain, len(d.After.IDs))
	g.bucket, g.count = d.memory.takeNumbers(total), d.memory.takeWords(total)
	at := 0
	for row := range g.rows {
		d.tally(t, column, row)
		one := &g.rows[row]
		*one = rowGain{sumNS: positive(t.sumNS), zero: positive(t.zero), overflow: positive(t.overflow), begin: uint32(at)}
		for i := t.first; i < t.end; i++ {
			n := positive(t.buckets[i])
			t.buckets[i] = 0
			if at < total {
				g.bucket[at], g.count[at] = uint32(i), n
				one.counted += n
			}
			if n > 0 {
				at++
			}
		}
		at = min(at, total) // the frame may say too little
		one.end = uint32(at)
		t.empty()
	}
}

// addTo adds what a row gained to h.
func (g *gains) addTo(h *Durations, row int) {
	one := &g.rows[row]
	if one.end > one.begin {
		bucket := g.bucket[one.begin:one.end]
		count := g.count[one.begin:one.end][:len(bucket)]
		for i, at := range bucket {
			h.buckets[at] += count[i]
		}
		h.widen(int32(bucket[0])+minBucket, int32(bucket[len(bucket)-1])+minBucket)
	}
	h.SumNS, h.Zero, h.Overflow = h.SumNS+one.sumNS, h.Zero+one.zero, h.Overflow+one.overflow
	h.Count += one.counted + one.zero + one.overflow
}

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
