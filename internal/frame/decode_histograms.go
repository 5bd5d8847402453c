package frame

// readHistograms reads a column of histograms: those of the key frame, and what rows gained.
func (d *parser) readHistograms(to, old *Histograms, part []byte, s *tableSection) {
	total, r, ok := readTotal(old, part)
	if !ok || part[0] != hasValues {
		d.fail("a column of histograms")
		return
	}
	*to = Histograms{SumNS: d.gather(old.SumNS, s), Zero: d.gather(old.Zero, s), Overflow: d.gather(old.Overflow, s),
		End: cut(&d.numbers, s.rows), Count: cut(&d.counts, total), Bucket: cut(&d.indexes, total)}
	m := merger{to: to, old: old, same: d.same}
	if len(old.End) == 0 {
		m.same = nil
	}
	row := 0
	for r.left() > 0 {
		skip, n := r.count(s.rows), r.count(s.rows)
		if r.failed || row+skip+n > s.rows {
			d.fail("a run of %d histograms", n)
			return
		}
		for end := row + skip; row < end; {
			row = m.keep(row, end)
		}
		for end := row + n; row < end; row++ {
			m.change(row, &r)
		}
		if m.failed || r.failed {
			d.fail("the histogram of row %d", row)
			return
		}
	}
	for row < s.rows && !m.failed {
		row = m.keep(row, s.rows)
	}
	if m.failed || m.at != total {
		d.fail("%d buckets, not %d", m.at, total)
	}
}

// merger makes buckets of those of the key frame.
type merger struct {
	to, old *Histograms
	same    []segment
	// at is how many buckets there are.
	at     int
	failed bool
}

// was is the row in the key frame; n is how many rows from this one on are behind each other there, or are not there.
func (m *merger) was(row, end int) (was, n int) {
	for len(m.same) > 0 && m.same[0].to+m.same[0].n <= row {
		m.same = m.same[1:]
	}
	switch {
	case len(m.same) == 0:
		return -1, end - row
	case m.same[0].to > row:
		return -1, min(end, m.same[0].to) - row
	}
	return m.same[0].from + row - m.same[0].to, min(end, m.same[0].to+m.same[0].n) - row
}

// keep keeps rows as they are, up to end at most. It answers the row behind them.
func (m *merger) keep(row, end int) int {
	was, n := m.was(row, end)
	if was < 0 {
		for i := range n {
			m.to.End[row+i] = uint32(m.at)
		}
		return row + n
	}
	begin := uint32(0)
	if was > 0 {
		begin = m.old.End[was-1]
	}
	last := m.old.End[was+n-1]
	buckets := int(last - begin)
	if buckets > len(m.to.Bucket)-m.at {
		m.failed = true
		return end
	}
	copy(m.to.Bucket[m.at:], m.old.Bucket[begin:last])
	copy(m.to.Count[m.at:], m.old.Count[begin:last])
	for i := range n {
		m.to.End[row+i] = uint32(m.at) + m.old.End[was+i] - begin
	}
	m.at += buckets
	return row + n
}

// change reads what a row gained.
func (m *merger) change(row int, r *reader) {
	var index []int32
	var counts []uint64
	if was, _ := m.was(row, row+1); was >= 0 {
		index, counts = m.old.Buckets(was)
	}
	head := r.uvarint()
	if head&1 != 0 {
		m.to.Zero[row] += r.uvarint()
	}
	if head&2 != 0 {
		m.to.Overflow[row] += r.uvarint()
	}
	m.to.SumNS[row] += r.uvarint()
	next := uint64(0) // buckets above minBucket
	for runs := head >> 2; runs > 0; runs-- {
		skip, n := r.uvarint(), r.uvarint()
		if next += skip; r.failed || skip > allBuckets || n > allBuckets || next+n > allBuckets || n > uint64(r.left()) {
			m.failed = true
			return
		}
		first := int32(next) + minBucket
		kept := 0
		for kept < len(index) && index[kept] < first {
			kept++
		}
		m.copy(index[:kept], counts[:kept])
		kept += m.run(first, int(n), index[kept:], counts[kept:], r)
		index, counts = index[kept:], counts[kept:]
		if next += n; m.failed {
			return
		}
	}
	m.copy(index, counts)
	m.to.End[row] = uint32(m.at)
}

// copy keeps buckets as they are.
func (m *merger) copy(index []int32, counts []uint64) {
	if len(index) > len(m.to.Bucket)-m.at {
		m.failed = true
		return
	}
	copy(m.to.Bucket[m.at:], index)
	copy(m.to.Count[m.at:], counts)
	m.at += len(index)
}

// run reads what n buckets gained. It answers how many of those of the key frame are among them.
func (m *merger) run(first int32, n int, index []int32, counts []uint64, r *reader) (used int) {
	switch {
	case len(m.to.Bucket)-m.at < n:
	case len(index) == 0 || index[0] >= first+int32(n):
		m.sumRun(first, noCounts[:n], r)
		return 0
	case len(index) >= n && index[0] == first && index[n-1] == first+int32(n)-1:
		m.sumRun(first, counts[:n], r)
		return n
	}
	b, from, at := r.b, r.at, m.at
	bucket := m.to.Bucket
	count := m.to.Count[:len(bucket)]
	for i := range int32(n) {
		var v uint64
		if from < len(b) && b[from] < 0x80 {
			v = uint64(b[from])
			from++
		} else {
			r.at = from
			v = r.long()
			from = r.at
		}
		if used < len(index) && index[used] == first+i {
			v += counts[used]
			used++
		}
		if v == 0 {
			continue
		}
		if at >= len(bucket) {
			m.failed = true
			return used
		}
		bucket[at], count[at] = first+i, v
		at++
	}
	r.at, m.at = from, at
	return used
}

var noCounts [allBuckets]uint64

// sumRun reads what as many buckets gained as the key frame has in a row, or none of. There is room for them.
func (m *merger) sumRun(first int32, was []uint64, r *reader) {
	b, from, n := r.b, r.at, 0
	bucket, count := m.to.Bucket[m.at:][:len(was)], m.to.Count[m.at:][:len(was)]
	for i, v := range was {
		if from < len(b) && b[from] < 0x80 {
			v += uint64(b[from])
			from++
		} else {
			r.at = from
			v += r.long()
			from = r.at
		}
		if v != 0 {
			bucket[n], count[n] = first+int32(i), v
			n++
		}
	}
	r.at, m.at = from, m.at+n
}

// readTotal reads how many buckets a column has, all rows together: a new one takes a byte or more.
func readTotal(old *Histograms, part []byte) (total int, rest reader, ok bool) {
	rest = reader{b: part, at: 1}
	total = rest.count(len(old.Bucket) + len(part))
	return total, rest, !rest.failed
}
