package frame

import "outsight/internal/model"

// grow makes the counters of a column that fell go on from what they were: the source restarted and its row did not.
func (p *planned) grow(d *draft, column int) {
	now, old := &d.Columns[column], &Values{}
	if len(p.old.Columns) > 0 {
		old = &p.old.Columns[column]
	}
	if len(old.Of) == 0 {
		return
	}
	for i := range p.plans {
		of := &p.plans[i]
		if of.live < 0 || of.before < 0 || now.Missing[i>>6]>>(i&63)&1 != 0 {
			continue
		}
		n, restart := now.Of[i], uint64(0)
		if len(p.b.restarts) > 0 {
			restart = p.b.restarts[cell{p.table, of.id, column}]
			n += restart
		}
		was := old.Of[of.before]
		if old.Missing != nil {
			was, _ = old.At(of.before)
		}
		if n < was && !p.isLevel(d, i) {
			n += was - restart
			p.b.restarts[cell{p.table, of.id, column}] = was
		}
		now.Of[i] = n
	}
}

func (p *planned) growHistogram(d *draft, of *plan, column int) {
	if of.before < 0 {
		return
	}
	var more *model.Histogram
	now, was := d.totals[column][d.row], p.b.tables[p.table].totals[column][of.before]
	c := cell{p.table, of.id, column}
	if len(p.b.merged) > 0 {
		if more = p.b.merged[c]; more != nil {
			now += more.Count
		}
	}
	if now < was {
		more = p.old.Histograms[column].At(of.before)
		p.b.merged[c] = more
	}
	if more == nil {
		return
	}
	to := &d.Histograms[column]
	begin := uint32(0)
	if d.row > 0 {
		begin = to.End[d.row-1]
	}
	sum := more.Clone()
	to.End[d.row] = uint32(len(to.Bucket))
	sum.Merge(to.At(d.row))
	to.Bucket, to.Count = to.Bucket[:begin], to.Count[:begin]
	d.setHistogram(column, sum)
}

// isLevel reports whether the value of a row of Labelled is a gauge.
func (p *planned) isLevel(d *draft, row int) bool {
	return p.table == Labelled && isLevel(p.b.texts.all[d.Attributes[LabelledMetric][row]])
}

// integrate fills in a column of integrals or greatest values of a level.
func (p *planned) integrate(d *draft, column int, seconds float64) {
	info := &d.info.Columns[column]
	float := d.info.Columns[info.Of].Kind == LevelFloat
	for i := range p.plans {
		of := &p.plans[i]
		if d.row = i; of.live < 0 {
			continue
		}
		was, known := uint64(0), false
		if of.before >= 0 {
			was, known = p.old.Columns[column].At(of.before)
		}
		if !d.has(info.Of) { // the level is not known just now: what it gained so far does not fall
			if known && (info.Kind == Integral || !p.b.before.IsKey()) {
				d.set(column, was)
			}
			continue
		}
		level := d.Columns[info.Of].Of[i]
		switch {
		case info.Kind == Integral && float:
			d.set(column, was+uint64(fromBits(level)*seconds*info.Per))
		case info.Kind == Integral:
			d.set(column, was+uint64(float64(level)*seconds*info.Per))
		case !known || p.b.before.IsKey(): // the key frame before ends a stretch
			d.set(column, level)
		case float && fromBits(was) > fromBits(level) || !float && was > level:
			d.set(column, was)
		default:
			d.set(column, level)
		}
	}
}

// copy makes a row of one or more of the frame before.
func (p *planned) copy(d *draft, of *plan, f *Frame) {
	sources := of.add
	if of.before >= 0 {
		sources = append([]int{of.before}, sources...)
	}
	first := sources[0]
	isSum := of.before < 0 || p.old.Attributes[State][of.before] == Summed
	for a := range d.info.Attributes {
		v := p.old.Attributes[a][first]
		if f.IsKey() && d.info.Attributes[a].Kind == Text { // texts have other numbers now
			v = p.b.texts.id(p.b.before.Strings[v])
		}
		d.Attributes[a][d.row] = v
	}
	switch {
	case isSum && of.before < 0:
		p.b.summed(d, p.table, of.id)
	case of.ended:
		d.Attributes[State][d.row] = Gone
		d.Attributes[Ended][d.row] = uint64(f.Time.UnixMilli())
	}
	for i := range d.info.Columns {
		kind := d.info.Columns[i].Kind
		if isSum && kind != Counter && kind != Integral {
			continue
		}
		sum, some := uint64(0), false
		for _, row := range sources {
			if v, ok := p.old.Columns[i].At(row); ok {
				sum, some = sum+v, true
			}
		}
		if some {
			d.set(i, sum)
		}
	}
	for i := range d.info.Histograms {
		if len(sources) == 1 {
			p.copyHistogram(d, i, first)
			continue
		}
		var sum model.Histogram
		for _, row := range sources {
			sum.Merge(p.old.Histograms[i].At(row))
		}
		d.setHistogram(i, &sum)
	}
}

func (p *planned) copyHistogram(d *draft, column, row int) {
	from, to := &p.old.Histograms[column], &d.Histograms[column]
	if len(from.End) == 0 {
		return
	}
	to.SumNS[d.row], to.Zero[d.row], to.Overflow[d.row] = from.SumNS[row], from.Zero[row], from.Overflow[row]
	index, count := from.Buckets(row)
	to.Bucket, to.Count = append(to.Bucket, index...), append(to.Count, count...)
	total := p.b.tables[p.table].totals[column][row]
	d.totals[column][d.row] = total
	d.any[column] = d.any[column] || total > 0
}
