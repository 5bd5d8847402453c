package frame

import (
	"cmp"
	"slices"
	"time"

	"outsight/internal/model"
)

// Linger is for how long a row stays after it has ended.
const Linger = 10 * time.Minute

// KeyInterval is how often a key frame is made: the first one in each interval of the wall clock.
const KeyInterval = time.Minute

// Bounds of a frame. Past them a row that ended is added to OthersRow, the one that ended first first.
const (
	// maxSums bounds the kinds of rows that are summed apart, in each table.
	maxSums = 8192
	// maxGone bounds the rows that have ended and are still there, in each table.
	maxGone = 8192
	// maxStrings bounds the texts of a key frame and those after it.
	maxStrings = 1 << 18
)

// Builder makes frames of the snapshots of one agent. It is for one goroutine.
type Builder struct {
	header Header
	before *Frame
	forced bool
	texts  texts
	tables [NumTables]rows
	// What is known of the rows of each table while they live.
	containers index[string, containerKind]
	edges      index[edgeKey, edgeKind]
	endpoints  index[endpointKey, endpointKind]
	labelled   index[labelledKey, labelledKind]
	// restarts is what counters had that fell.
	restarts map[cell]uint64
	merged   map[cell]*model.Histogram
	// sink and what is spare is memory for what is read, and of no frame.
	sink           model.Sink
	spare          [NumTables]planned
	spareEndpoints []liveEndpoint
	spareLabelled  []liveLabelled
	// overflow counts rows that ended and were summed under OthersRow, or before their time.
	overflow uint64
}

// cell is a counter of a row.
type cell struct {
	table  TableID
	id     uint32
	column int
}

// rows are what a Builder knows of the rows of a table.
type rows struct {
	// next is the number of the next row.
	next uint32
	gone int
	// totals are how many durations the histograms have in the frame before, by column and row; spare is memory for the
	// next ones.
	totals, spare [][]uint64
	index         forgetter
}

// NewBuilder makes a Builder of an agent that began at epoch.
func NewBuilder(epoch time.Time) *Builder {
	b := &Builder{header: Header{Epoch: uint64(epoch.UnixNano())}, restarts: map[cell]uint64{},
		merged: map[cell]*model.Histogram{}}
	for i := range b.tables {
		b.tables[i].next = OthersRow + 1
	}
	b.tables[Containers].index = b.containers.open()
	b.tables[Edges].index = b.edges.open()
	b.tables[Endpoints].index = b.endpoints.open()
	b.tables[Labelled].index = b.labelled.open()
	return b
}

// ForceKey makes the next frame a key frame: one that is told completely.
func (b *Builder) ForceKey() { b.forced = true }

// Drops are the Builder's bounds.
func (b *Builder) Drops() []model.Drop {
	used := 0
	for i := range b.tables {
		used = max(used, b.tables[i].gone)
		if x := b.tables[i].index; x != nil {
			used = max(used, x.kinds())
		}
	}
	return []model.Drop{{Name: "frame/ended-rows", Count: b.overflow, Used: uint64(used), Capacity: maxSums}}
}

// Build makes the next frame. Snapshots are to come in the order of their times.
func (b *Builder) Build(s *model.Snapshot) *Frame {
	f := &Frame{Header: b.header}
	f.Host, f.Time, f.ClockError = s.Host.Name, s.Time, s.ClockError
	if !s.Host.BootTime.IsZero() {
		f.Boot = uint64(s.Host.BootTime.Unix())
	}
	f.Number++
	if b.before == nil || b.forced || len(b.texts.all) >= maxStrings ||
		!f.Time.Truncate(KeyInterval).Equal(b.before.Time.Truncate(KeyInterval)) {
		f.Key = f.Number
		b.forced = false
		b.texts.begin()
	}
	b.header = f.Header
	b.build(f, s)
	f.Strings = slices.Clip(b.texts.all)
	b.before = f
	for i := range b.tables {
		if x := b.tables[i].index; x != nil {
			x.turn()
		}
	}
	return f
}

// plan says what a row of the frame is made of.
type plan struct {
	id uint32
	// live is the index of what it is in the snapshot, before that of the row in the frame before; -1 for none.
	live, before int
	// ended says that the row has ended now. add are rows of the frame before that are removed and added to it.
	ended bool
	add   []int
}

// planned are the rows of a table.
type planned struct {
	b     *Builder
	table TableID
	old   *Table
	plans []plan
	// kept says of each row of the frame before whether it goes on.
	kept []bool
	sums map[uint32]int
}

func (b *Builder) plan(t TableID) *planned {
	p := &b.spare[t]
	*p = planned{b: b, table: t, old: &Table{}, plans: p.plans[:0], kept: p.kept[:0], sums: p.sums}
	if p.sums == nil {
		p.sums = map[uint32]int{}
	}
	clear(p.sums)
	if b.before != nil {
		p.old = &b.before.Tables[t]
	}
	p.kept = slices.Grow(p.kept, len(p.old.IDs))[:len(p.old.IDs)]
	clear(p.kept)
	return p
}

// live plans the row of what has this key in the snapshot, at the next index.
func live[K, S comparable](p *planned, x *index[K, S], key K) *entry[K, S] {
	return planLive(p, x, key, x.find(key))
}

// planLive does so with what was found of the key, nil for nothing.
func planLive[K, S comparable](p *planned, x *index[K, S], key K, e *entry[K, S]) *entry[K, S] {
	before := -1
	if e != nil {
		row, ok := e.row, true
		if row >= len(p.old.IDs) || p.old.IDs[row] != e.id { // other rows came or went
			row, ok = p.old.Find(e.id)
		}
		if ok && !p.kept[row] {
			e.row, before = row, row
			p.kept[row] = true
		} else {
			e = nil
		}
	}
	if e == nil {
		known := &p.b.tables[p.table]
		e = &entry[K, S]{key: key, id: known.next, began: p.b.header.Time}
		known.next++
		x.byKey[key], x.byID[e.id] = e, e
	}
	p.plans = append(p.plans, plan{id: e.id, live: x.add(e), before: before})
	return e
}

// forget forgets all that is known of a row that is removed.
func (p *planned) forget(id uint32) {
	if x := p.b.tables[p.table].index; x != nil {
		x.forget(id)
	}
	if len(p.b.restarts)+len(p.b.merged) == 0 {
		return
	}
	for column := range Schema[p.table].Columns {
		delete(p.b.restarts, cell{p.table, id, column})
	}
	for column := range Schema[p.table].Histograms {
		delete(p.b.merged, cell{p.table, id, column})
	}
}

// keeps reports whether the row of the frame before with this number goes on.
func (p *planned) keeps(id uint32) bool {
	row, ok := p.old.Find(id)
	return ok && p.kept[row]
}

func (p *planned) oldReference(a Attribute, row int) uint32 { return uint32(p.old.Attributes[a][row]) }

func (p *planned) oldText(a Attribute, row int) string {
	return p.b.before.Strings[p.old.Attributes[a][row]]
}

// removeOrphans removes the rows that ended for which owned says that what they are of is not there.
func (p *planned) removeOrphans(owned func(row int) bool) {
	var orphans []int
	kept := p.plans[:0]
	for _, of := range p.plans {
		if of.live < 0 && of.before >= 0 && p.old.Attributes[State][of.before] != Summed && !owned(of.before) {
			orphans = append(orphans, of.before)
			p.kept[of.before] = false
			continue
		}
		if _, ok := p.sums[of.id]; ok {
			p.sums[of.id] = len(kept)
		}
		kept = append(kept, of)
	}
	p.plans = kept
	for _, row := range orphans {
		p.remove(row)
	}
}

// rest plans the rows of the frame before that are not in the snapshot. A row is kept as long as keep says, whatever its
// age; one that drop says is of no use goes without a trace.
func (p *planned) rest(now time.Time, keep, drop func(row int) bool) {
	known := &p.b.tables[p.table]
	expired := uint64(now.Add(-Linger).UnixMilli())
	var gone []int
	for i, id := range p.old.IDs {
		switch state := p.old.Attributes[State][i]; {
		case p.kept[i]:
		case state == Summed:
			p.kept[i] = true
			p.sums[id] = len(p.plans)
			p.plans = append(p.plans, plan{id: id, live: -1, before: i})
		case drop != nil && drop(i):
			p.forget(id)
		default:
			gone = append(gone, i)
		}
	}
	ended := func(i int) uint64 {
		if p.old.Attributes[State][i] == Gone {
			return p.old.Attributes[Ended][i]
		}
		return uint64(now.UnixMilli())
	}
	slices.SortStableFunc(gone, func(x, y int) int { return cmp.Compare(ended(x), ended(y)) })
	known.gone = len(gone)
	for n, i := range gone {
		early := len(gone)-n > maxGone
		if !early && ended(i) > expired || keep != nil && keep(i) {
			p.kept[i] = true
			p.plans = append(p.plans, plan{id: p.old.IDs[i], live: -1, before: i, ended: p.old.Attributes[State][i] == Live})
			continue
		}
		if early {
			p.b.overflow++
		}
		p.remove(i)
		known.gone--
	}
}

// remove adds a row of the frame before to that of its sum.
func (p *planned) remove(row int) {
	id := uint32(p.old.Attributes[Sum][row])
	at, ok := p.sums[id]
	if !ok {
		at = len(p.plans)
		p.sums[id] = at
		p.plans = append(p.plans, plan{id: id, live: -1, before: -1})
	}
	p.plans[at].add = append(p.plans[at].add, row)
	p.forget(p.old.IDs[row])
}

// draft is a table that is being made.
type draft struct {
	*Table
	info *TableInfo
	row  int
	// any says of each histogram whether a row has one.
	any []bool
	// totals are how many durations histograms have, by column and row.
	totals [][]uint64
	// before is the table of the frame before, with the row that is being filled in at at; nil where the row is new. texts
	// says that texts have the numbers that they had.
	before       *Table
	at           int
	totalsBefore [][]uint64
	texts        bool
}

// make makes the table of all plans, in the order of their numbers. fill fills a live row in.
func (p *planned) make(f *Frame, fill func(d *draft, of *plan)) {
	slices.SortFunc(p.plans, func(x, y plan) int { return cmp.Compare(x.id, y.id) })
	d := newDraft(p.table, len(p.plans))
	p.prepare(d)
	d.texts, d.totalsBefore = !f.IsKey(), p.b.tables[p.table].totals
	seconds := 0.0
	if p.b.before != nil {
		seconds = f.Time.Sub(p.b.before.Time).Seconds()
	}
	for i := range p.plans {
		of := &p.plans[i]
		d.row = i
		d.IDs[i] = of.id
		if of.live >= 0 {
			if d.before = nil; of.before >= 0 {
				d.before, d.at = p.old, of.before
			}
			fill(d, of)
			for k := range d.Histograms {
				p.growHistogram(d, of, k)
			}
		} else {
			p.copy(d, of, f)
		}
		for k := range d.Histograms {
			d.Histograms[k].End[i] = uint32(len(d.Histograms[k].Bucket))
		}
	}
	for i := range d.info.Columns {
		switch kind := d.info.Columns[i].Kind; {
		case kind == Counter && d.some(i):
			p.grow(d, i)
		case (kind == Integral || kind == Highest) && d.some(d.info.Columns[i].Of):
			p.integrate(d, i, seconds)
		}
	}
	known := &p.b.tables[p.table]
	known.totals, known.spare = d.totals, known.totals
	f.Tables[p.table] = d.finish()
}

// prepare gets memory for as many buckets as the frame before had, and some more.
func (p *planned) prepare(d *draft) {
	d.totals = p.b.tables[p.table].spare
	if d.totals == nil {
		d.totals = make([][]uint64, len(d.Histograms))
	}
	for i := range d.totals {
		d.totals[i] = slices.Grow(d.totals[i][:0], len(d.IDs))[:len(d.IDs)]
		clear(d.totals[i])
		if len(p.old.Histograms) == 0 || len(p.old.Histograms[i].Bucket) == 0 {
			continue
		}
		n := len(p.old.Histograms[i].Bucket)
		n += n/16 + 64
		d.Histograms[i].Bucket, d.Histograms[i].Count = make([]int32, 0, n), make([]uint64, 0, n)
	}
}

func newDraft(t TableID, rows int) *draft {
	info := &Schema[t]
	d := &draft{Table: &Table{IDs: make([]uint32, rows), Attributes: make([][]uint64, len(info.Attributes)),
		Columns: make([]Values, len(info.Columns)), Histograms: make([]Histograms, len(info.Histograms))}, info: info,
		any: make([]bool, len(info.Histograms))}
	words := (rows + 63) / 64
	memory := make([]uint64, rows*(len(info.Attributes)+len(info.Columns)+3*len(info.Histograms))+words*len(info.Columns))
	take := func(n int) []uint64 {
		part := memory[:n:n]
		memory = memory[n:]
		return part
	}
	for i := range d.Attributes {
		d.Attributes[i] = take(rows)
	}
	for i := range d.Columns {
		d.Columns[i] = Values{take(rows), take(words)}
		for w := range d.Columns[i].Missing {
			d.Columns[i].Missing[w] = ^uint64(0)
		}
	}
	ends := make([]uint32, rows*len(info.Histograms))
	for i := range d.Histograms {
		d.Histograms[i] = Histograms{SumNS: take(rows), Zero: take(rows), Overflow: take(rows), End: ends[i*rows : (i+1)*rows]}
	}
	return d
}

// finish drops columns that are empty, and marks that mark nothing.
func (d *draft) finish() Table {
	for i := range d.Columns {
		c := &d.Columns[i]
		if !d.some(i) {
			*c = Values{}
			continue
		}
		missing := uint64(0)
		for w := range c.Missing {
			missing |= c.Missing[w] & d.rowsOf(w)
		}
		if missing == 0 {
			c.Missing = nil
		}
	}
	for i := range d.Histograms {
		if !d.any[i] {
			d.Histograms[i] = Histograms{}
		}
	}
	return *d.Table
}

// rowsOf has a bit for each row that a word of marks is of.
func (d *draft) rowsOf(word int) uint64 {
	if rest := len(d.IDs) - word<<6; rest < 64 {
		return 1<<rest - 1
	}
	return ^uint64(0)
}

// some reports whether a row has a value.
func (d *draft) some(column int) bool {
	for w, missing := range d.Columns[column].Missing {
		if ^missing&d.rowsOf(w) != 0 {
			return true
		}
	}
	return false
}

func (d *draft) set(column int, n uint64) {
	c := &d.Columns[column]
	c.Of[d.row] = n
	c.Missing[d.row>>6] &^= 1 << (d.row & 63)
}

func (d *draft) has(column int) bool { return d.Columns[column].Missing[d.row>>6]>>(d.row&63)&1 == 0 }

func (d *draft) setHistogram(column int, h *model.Histogram) {
	if h == nil || h.Count == 0 {
		return
	}
	to := &d.Histograms[column]
	d.any[column] = true
	to.SumNS[d.row], to.Zero[d.row], to.Overflow[d.row] = h.SumNS, h.ZeroCount, h.OverflowCount
	if d.same(column, h) {
		index, count := d.before.Histograms[column].Buckets(d.at)
		to.Bucket, to.Count = append(to.Bucket, index...), append(to.Count, count...)
		d.totals[column][d.row] = h.Count
		return
	}
	bucket, count, total := to.Bucket, to.Count, h.ZeroCount+h.OverflowCount
	for i, n := range h.Buckets {
		if n != 0 {
			bucket, count, total = append(bucket, h.Offset+int32(i)), append(count, n), total+n
		}
	}
	to.Bucket, to.Count, d.totals[column][d.row] = bucket, count, total
}

// same reports whether a histogram is what the row had in the frame before. Counts only grow: if their sum is equal, so
// is each.
func (d *draft) same(column int, h *model.Histogram) bool {
	return d.before != nil && h.Count == d.totalsBefore[column][d.at] && h.SumNS == d.before.Histograms[column].SumNS[d.at]
}

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
		if d.row = i; of.live < 0 || !d.has(info.Of) {
			continue
		}
		level := d.Columns[info.Of].Of[i]
		was, known := uint64(0), false
		if of.before >= 0 {
			was, known = p.old.Columns[column].At(of.before)
		}
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
