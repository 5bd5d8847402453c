package frame

// readHistograms reads a column of histograms: those of the key frame, and what rows gained.
func (d *parser) readHistograms(to, old *Histograms, part []byte, s *tableSection) {
	total, r, ok := readTotal(old, part)
	if !ok || part[0] != hasValues {
		d.fail("a column of histograms")
		return
	}
	*to = Histograms{SumNS: d.gather(old.SumNS, s), Zero: d.gather(old.Zero, s), Overflow: d.gather(old.Overflow, s),
		End: cut(&d.numbers, s.rows), Count: cut(&d.values, total), Bucket: cut(&d.indexes, total)}
	m := merger{to: to, old: old, same: d.same}
	if len(old.End) == 0 {
		m.same = nil
	}
	row := 0
	for len(r.b) > 0 {
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
	next := int64(minBucket)
	at, bucket, count := m.at, m.to.Bucket, m.to.Count
	for changes := head >> 2; changes > 0; changes-- {
		skip, gained := r.uvarint(), r.uvarint()
		if r.failed || skip > maxBucket-minBucket || next+int64(skip) > maxBucket {
			m.failed = true
			return
		}
		b := int32(next + int64(skip))
		next = int64(b) + 1
		kept := 0
		for kept < len(index) && index[kept] < b {
			kept++
		}
		if at+kept >= len(bucket) {
			// There must be room for what is kept and for this one, unless this one goes.
			if at+kept > len(bucket) {
				m.failed = true
				return
			}
		}
		copy(bucket[at:], index[:kept])
		copy(count[at:], counts[:kept])
		at += kept
		index, counts = index[kept:], counts[kept:]
		if len(index) > 0 && index[0] == b {
			gained += counts[0]
			index, counts = index[1:], counts[1:]
		}
		if gained == 0 {
			continue
		}
		if at == len(bucket) {
			m.failed = true
			return
		}
		bucket[at], count[at] = b, gained
		at++
	}
	if at+len(index) > len(bucket) {
		m.failed = true
		return
	}
	copy(bucket[at:], index)
	copy(count[at:], counts)
	m.at = at + len(index)
	m.to.End[row] = uint32(m.at)
}

// readTotal reads how many buckets a column has, all rows together: a new one takes two bytes.
func readTotal(old *Histograms, part []byte) (total int, rest reader, ok bool) {
	rest = reader{b: part[1:]}
	total = rest.count(len(old.Bucket) + len(part)/2)
	return total, rest, !rest.failed
}
