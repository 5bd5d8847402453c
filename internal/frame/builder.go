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
	// strings are those of the frames since the last key frame.
	strings   []string
	stringIDs map[string]uint64
	tables    [NumTables]rows
	// restarts is what counters had that fell.
	restarts map[cell]uint64
	merged   map[cell]*model.Histogram
	// sink has memory for series that are read.
	sink model.Sink
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
	next uint32
	// live are the numbers of rows by what distinguishes them while they live.
	live map[any]uint32
	keys map[uint32]any
	// sums are the numbers of rows by what distinguishes the rows that they sum.
	sums map[any]uint32
	gone int
}

// NewBuilder makes a Builder of an agent that began at epoch.
func NewBuilder(epoch time.Time) *Builder {
	b := &Builder{header: Header{Epoch: uint64(epoch.UnixNano())}, restarts: map[cell]uint64{},
		merged: map[cell]*model.Histogram{}}
	for i := range b.tables {
		b.tables[i] = rows{next: OthersRow + 1, live: map[any]uint32{}, keys: map[uint32]any{}, sums: map[any]uint32{}}
	}
	return b
}

// Drops are the Builder's bounds.
func (b *Builder) Drops() []model.Drop {
	used := 0
	for i := range b.tables {
		used = max(used, len(b.tables[i].sums), b.tables[i].gone)
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
	if b.before == nil || len(b.strings) >= maxStrings ||
		!f.Time.Truncate(KeyInterval).Equal(b.before.Time.Truncate(KeyInterval)) {
		f.Key = f.Number
		b.strings, b.stringIDs = []string{""}, map[string]uint64{"": 0}
	}
	b.header = f.Header
	b.build(f, s)
	f.Strings = slices.Clip(b.strings)
	b.before = f
	return f
}

// id is the index of a text.
func (b *Builder) id(text string) uint64 {
	id, ok := b.stringIDs[text]
	if !ok {
		id = uint64(len(b.strings))
		b.stringIDs[text] = id
		b.strings = append(b.strings, text)
	}
	return id
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
	// seen are the rows of the frame before that go on.
	seen map[uint32]bool
	sums map[uint32]int
}

func (b *Builder) plan(t TableID) *planned {
	p := &planned{b: b, table: t, seen: map[uint32]bool{}, sums: map[uint32]int{}}
	if b.before != nil {
		p.old = &b.before.Tables[t]
	} else {
		p.old = &Table{}
	}
	return p
}

// live plans the row of what has this key in the snapshot. It answers the row's number.
func (p *planned) live(key any, index int) uint32 {
	known := &p.b.tables[p.table]
	id, ok := known.live[key]
	before := -1
	if ok {
		before, ok = p.old.Find(id)
		ok = ok && !p.seen[id]
	}
	if !ok {
		id, before = known.next, -1
		known.next++
		known.live[key], known.keys[id] = id, key
	}
	p.seen[id] = true
	p.plans = append(p.plans, plan{id: id, live: index, before: before})
	return id
}

// end forgets the key of a row, so that the next one with it is another row.
func (p *planned) end(key any) { delete(p.b.tables[p.table].live, key) }

// forget forgets all that is known of a row that is removed.
func (p *planned) forget(id uint32) {
	known := &p.b.tables[p.table]
	if key, ok := known.keys[id]; ok {
		if known.live[key] == id {
			delete(known.live, key)
		}
		delete(known.keys, id)
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

// ids are the numbers of all rows that are planned.
func (p *planned) ids() map[uint32]bool {
	all := make(map[uint32]bool, len(p.plans))
	for i := range p.plans {
		all[p.plans[i].id] = true
	}
	return all
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
		case p.seen[id]:
		case state == Summed:
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

// sum is the number of the row that sums what has this key.
func (b *Builder) sum(t TableID, key any) uint64 {
	known := &b.tables[t]
	id, ok := known.sums[key]
	switch {
	case ok:
	case len(known.sums) >= maxSums:
		b.overflow++
		return OthersRow
	default:
		id = known.next
		known.next++
		known.sums[key] = id
	}
	return uint64(id)
}

// draft is a table that is being made.
type draft struct {
	*Table
	info *TableInfo
	row  int
	// some says of each column whether a row has a value, and any of each histogram.
	some, any []bool
}

// make makes the table of all plans, in the order of their numbers. fill fills a live row in.
func (p *planned) make(f *Frame, fill func(d *draft, of *plan)) {
	slices.SortFunc(p.plans, func(x, y plan) int { return cmp.Compare(x.id, y.id) })
	d := newDraft(p.table, len(p.plans))
	seconds := 0.0
	if p.b.before != nil {
		seconds = f.Time.Sub(p.b.before.Time).Seconds()
	}
	for i := range p.plans {
		of := &p.plans[i]
		d.row = i
		d.IDs[i] = of.id
		if of.live >= 0 {
			fill(d, of)
			p.grow(d, of)
			p.integrate(d, of, f, seconds)
		} else {
			p.copy(d, of, f)
		}
		for k := range d.Histograms {
			d.Histograms[k].End[i] = uint32(len(d.Histograms[k].Bucket))
		}
	}
	f.Tables[p.table] = d.finish()
}

func newDraft(t TableID, rows int) *draft {
	info := &Schema[t]
	d := &draft{Table: &Table{IDs: make([]uint32, rows), Attributes: make([][]uint64, len(info.Attributes)),
		Columns: make([]Values, len(info.Columns)), Histograms: make([]Histograms, len(info.Histograms))}, info: info,
		some: make([]bool, len(info.Columns)), any: make([]bool, len(info.Histograms))}
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
		if !d.some[i] {
			*c = Values{}
			continue
		}
		missing := false
		for row := range d.IDs {
			missing = missing || c.Missing[row>>6]>>(row&63)&1 != 0
		}
		if !missing {
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

func (d *draft) set(column int, n uint64) {
	d.Columns[column].Of[d.row] = n
	d.Columns[column].Missing[d.row>>6] &^= 1 << (d.row & 63)
	d.some[column] = true
}

func (d *draft) has(column int) bool { return d.Columns[column].Missing[d.row>>6]>>(d.row&63)&1 == 0 }

func (d *draft) setHistogram(column int, h *model.Histogram) {
	if h == nil || h.Count == 0 {
		return
	}
	to := &d.Histograms[column]
	to.SumNS[d.row], to.Zero[d.row], to.Overflow[d.row] = h.SumNS, h.ZeroCount, h.OverflowCount
	for i, n := range h.Buckets {
		if n != 0 {
			to.Bucket, to.Count = append(to.Bucket, h.Offset+int32(i)), append(to.Count, n)
		}
	}
	d.any[column] = true
}

// grow makes counters that fell go on from what they were: the source restarted and its row did not.
func (p *planned) grow(d *draft, of *plan) {
	for i := range d.info.Columns {
		if d.info.Columns[i].Kind != Counter || !d.has(i) {
			continue
		}
		c := cell{p.table, of.id, i}
		n := d.Columns[i].Of[d.row] + p.b.restarts[c]
		if of.before >= 0 && len(p.old.Columns) > 0 {
			if was, ok := p.old.Columns[i].At(of.before); ok && n < was && !p.isLevel(d) {
				n += was - p.b.restarts[c]
				p.b.restarts[c] = was
			}
		}
		d.Columns[i].Of[d.row] = n
	}
	if of.before < 0 {
		return
	}
	for i := range d.info.Histograms {
		p.growHistogram(d, of, i)
	}
}

func (p *planned) growHistogram(d *draft, of *plan, column int) {
	to, was, c := &d.Histograms[column], p.old.Histograms[column].total(of.before), cell{p.table, of.id, column}
	more := p.b.merged[c]
	begin := uint32(0)
	if d.row > 0 {
		begin = to.End[d.row-1]
	}
	now := to.Zero[d.row] + to.Overflow[d.row]
	for _, n := range to.Count[begin:] {
		now += n
	}
	fell := now < was
	if more != nil {
		fell = now+more.Count < was
	}
	if !fell && more == nil {
		return
	}
	if fell {
		more = p.old.Histograms[column].At(of.before)
		p.b.merged[c] = more
	}
	sum := more.Clone()
	to.End[d.row] = uint32(len(to.Bucket))
	sum.Merge(to.At(d.row))
	to.Bucket, to.Count = to.Bucket[:begin], to.Count[:begin]
	d.setHistogram(column, sum)
}

// isLevel reports whether the value of a row of Labelled is a gauge.
func (p *planned) isLevel(d *draft) bool {
	return p.table == Labelled && isLevel(p.b.strings[d.Attributes[LabelledMetric][d.row]])
}

// integrate fills in integrals and greatest values of levels.
func (p *planned) integrate(d *draft, of *plan, f *Frame, seconds float64) {
	for i := range d.info.Columns {
		info := &d.info.Columns[i]
		if info.Kind != Integral && info.Kind != Highest || !d.has(info.Of) {
			continue
		}
		level := d.Columns[info.Of].Of[d.row]
		was, known := uint64(0), false
		if of.before >= 0 {
			was, known = p.old.Columns[i].At(of.before)
		}
		float := d.info.Columns[info.Of].Kind == LevelFloat
		switch {
		case info.Kind == Integral && float:
			d.set(i, was+uint64(fromBits(level)*seconds*info.Per))
		case info.Kind == Integral:
			d.set(i, was+uint64(float64(level)*seconds*info.Per))
		case !known || p.b.before.Key == p.b.before.Number: // the key frame before ends a stretch
			d.set(i, level)
		case float && fromBits(was) > fromBits(level) || !float && was > level:
			d.set(i, was)
		default:
			d.set(i, level)
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
		if d.info.Attributes[a].Kind == Text {
			v = p.b.id(p.b.before.Strings[v])
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
			copyHistogram(d, i, &p.old.Histograms[i], first)
			continue
		}
		var sum model.Histogram
		for _, row := range sources {
			sum.Merge(p.old.Histograms[i].At(row))
		}
		d.setHistogram(i, &sum)
	}
}

func copyHistogram(d *draft, column int, from *Histograms, row int) {
	if len(from.End) == 0 {
		return
	}
	to := &d.Histograms[column]
	to.SumNS[d.row], to.Zero[d.row], to.Overflow[d.row] = from.SumNS[row], from.Zero[row], from.Overflow[row]
	index, count := from.Buckets(row)
	to.Bucket, to.Count = append(to.Bucket, index...), append(to.Count, count...)
	d.any[column] = d.any[column] || len(index) > 0 || from.Zero[row] > 0 || from.Overflow[row] > 0
}
