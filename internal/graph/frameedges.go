package graph

import (
	"slices"
	"sync"

	"outsight/internal/frame"
	"outsight/internal/model"
)

// edgeColumn says where a field of an edge is in a frame.
type edgeColumn struct {
	containerColumn
	lasting, least bool
	// integral grows while a level is there, though nothing happens.
	integral bool
}

// edgeColumns are the numbers of an edge, edgeHistograms the columns of its histograms in the order of sums.
var (
	edgeColumns    = edgeNumbers()
	edgeHistograms = [...]int{frame.Histogram(frame.Edges, "latency"), frame.Histogram(frame.Edges, "first_byte"),
		frame.Histogram(frame.Edges, "rtt"), frame.Histogram(frame.Edges, "duration"),
		frame.Histogram(frame.Edges, "network_delay")}
)

func edgeNumbers() (all []edgeColumn) {
	for _, c := range columnsOf(edgeTable, frame.Edges) {
		if c.histogram {
			continue
		}
		integral := c.kind == frame.Integral
		if integral { // it gains
			c.kind = frame.Counter
		}
		all = append(all, edgeColumn{c, abouts[c.field].lasting(), abouts[c.field].least, integral})
	}
	return all
}

// mapRow is an edge's row in which something happened: one side of an edge.
type mapRow struct {
	part, row int32
	relation  int32
	side      model.Role
	transport model.Transport
	sum       bool // it sums rows that ended
	now       bool // its levels are those of the end of the window
	// found: an end was found on another host, so surely; pairedThere: that host counted it, too.
	found, pairedThere bool
	confidence         model.Confidence
	client, server     mapEnd
	// request, response and unseen are bytes.
	request, response, unseen uint64
}

// mapEnd is an end of a row. Pairing may give it a container of another host.
type mapEnd struct {
	// container is an index, -1 where the end is in none; address then is that of its address.
	container, address int32
	process            string
	// kube is what Kubernetes says of an end that is in no container of its host; settled says that it knows its pod.
	kube    *kube
	settled bool
	group   *Node
}

func (e *mapEnd) outside() bool { return e.container < 0 && e.group == nil }

// mapAddress is an address outside, or "others".
type mapAddress struct {
	text string
	// serves: it is a server of some row, with so many bytes.
	serves bool
	bytes  uint64
	// client and server are the nodes of ends with the address; -1 before they have one.
	client, server int32
}

// edgeView are the columns of a part's edges by the index of their field.
type edgeView struct {
	columns                                      [maxFields]columnView
	state, side, transport                       []uint64
	client, server, clientAddress, serverAddress []uint64
	opened, closed, inFlight                     *columnView
	// moved are the counters (indexes of edgeColumns) that gained something in some row, or that some row does not have;
	// still has a bit for each other field. levels are the gauges.
	moved, levels []uint8
	still         uint64
}

// columnView is a column in two frames. An empty one has no values.
type columnView struct {
	now, was               []uint64
	nowMissing, wasMissing []uint64
}

func isMissing(bits []uint64, row int) bool { return bits != nil && bits[row>>6]>>(row&63)&1 == 1 }

func (v *edgeView) of(p *part) {
	d := p.edges
	for i := range edgeColumns {
		c := &edgeColumns[i]
		if c.column >= len(d.After.Columns) {
			continue
		}
		now := &d.After.Columns[c.column]
		view := columnView{now: now.Of, nowMissing: now.Missing}
		if c.column < len(d.Before.Columns) {
			was := &d.Before.Columns[c.column]
			view.was, view.wasMissing = was.Of, was.Missing
		}
		v.columns[c.field.index()] = view
	}
	v.opened, v.closed = &v.columns[ConnectionsOpened.index()], &v.columns[ConnectionsClosed.index()]
	v.inFlight = &v.columns[InFlight.index()]
	if len(d.After.IDs) == 0 {
		return
	}
	of := d.After.Attributes
	v.state, v.side, v.transport = of[frame.State], of[frame.EdgeSide], of[frame.EdgeTransport]
	v.client, v.clientAddress = of[frame.EdgeClient], of[frame.EdgeClientAddress]
	v.server, v.serverAddress = of[frame.EdgeServer], of[frame.EdgeServerAddress]
}

// value is 0 where there is none.
func (v *columnView) value(row int) uint64 {
	if len(v.now) == 0 || isMissing(v.nowMissing, row) {
		return 0
	}
	return v.now[row]
}

// gain is what a counter gained in a row to which none was added; before is the row in the frame before, or -1.
func (v *columnView) gain(row int, before int32) uint64 {
	if len(v.now) == 0 || isMissing(v.nowMissing, row) {
		return 0
	}
	n := v.now[row]
	if before < 0 || len(v.was) == 0 || isMissing(v.wasMissing, int(before)) {
		return n
	}
	return since(v.was[before], n)
}

// mapMemory is memory for rows, of which a graph keeps none.
type mapMemory struct {
	rows       []mapRow
	relations  []mapRelation
	relationAt map[uint64]int32
}

var mapMemories sync.Pool

func newMapMemory() *mapMemory {
	if m, _ := mapMemories.Get().(*mapMemory); m != nil {
		return m
	}
	return &mapMemory{relationAt: map[uint64]int32{}}
}

func (m *frameMap) release() {
	memory := m.mapMemory
	m.mapMemory = nil
	parallelFor(len(memory.rows), func(from, to int) { clear(memory.rows[from:to]) })
	clear(memory.relations)
	clear(memory.relationAt)
	memory.rows, memory.relations = memory.rows[:0], memory.relations[:0]
	mapMemories.Put(memory)
}

// readEdges finds the rows in which something happened.
func (m *frameMap) readEdges() {
	parallelEach(len(m.parts), func(i int) {
		p := &m.parts[i]
		p.edges = frame.Since(frame.Edges, p.Before, p.After)
		p.view.of(p)
	})
	n := 0
	for i := range m.parts {
		n += len(m.parts[i].edges.After.IDs)
	}
	if cap(m.rows) < n {
		m.rows = make([]mapRow, n)
	}
	m.rows = m.rows[:n]
	at := make([]int, len(m.parts)+1)
	counts := make([]int, len(m.parts))
	for i := range m.parts {
		at[i+1] = at[i] + len(m.parts[i].edges.After.IDs)
	}
	parallelEach(len(m.parts), func(i int) { counts[i] = m.readRows(i, m.rows[at[i]:at[i]:at[i+1]]) })
	kept := 0
	for i := range m.parts {
		if from := at[i]; from != kept {
			copy(m.rows[kept:], m.rows[from:from+counts[i]])
		}
		m.parts[i].rows = [2]int{kept, kept + counts[i]}
		kept += counts[i]
	}
	clear(m.rows[kept:])
	m.rows = m.rows[:kept]
}

// addUp adds up what a part's rows gained of histograms, which several sums ask for: those of wanted rows.
func (m *frameMap) addUp(index int, histograms []int, wanted func(r *mapRow) bool) {
	p := &m.parts[index]
	all := m.rows[p.rows[0]:p.rows[1]]
	rows := make([]int32, 0, len(all))
	for i := range all {
		if wanted(&all[i]) {
			rows = append(rows, all[i].row)
		}
	}
	for _, column := range histograms {
		p.edges.AddUp(column, rows)
	}
}

// readRows appends the rows of a part to rows, which has room for them.
func (m *frameMap) readRows(index int, rows []mapRow) (count int) {
	p := &m.parts[index]
	d, v := p.edges, &p.view
	active := v.active(d)
	request, response := &v.columns[RequestBytes.index()], &v.columns[ResponseBytes.index()]
	unseen := &v.columns[UnseenBytes.index()]
	for row := range d.After.IDs {
		one := mapRow{part: int32(index), row: int32(row), side: model.Role(v.side[row]),
			transport: model.Transport(v.transport[row]), sum: v.state[row] == frame.Summed,
			now: v.state[row] == frame.Live && p.newest && !p.silent}
		if !one.sum {
			one.client.container = p.containerIn(v.client[row])
			one.server.container = p.containerIn(v.server[row])
			if !m.mayBeAsked(one.client.container, one.server.container) {
				continue
			}
		}
		if !active[row] && !(one.now && (v.opened.value(row) > v.closed.value(row) || v.inFlight.value(row) > 0)) &&
			!d.Gained(edgeHistograms[0], row) {
			continue
		}
		if d.HasRemoved(row) {
			one.request, _ = d.Gain(requestColumn, row)
			one.response, _ = d.Gain(responseColumn, row)
			one.unseen, _ = d.Gain(unseenColumn, row)
		} else {
			one.request = request.gain(row, d.BeforeRow[row])
			one.response = response.gain(row, d.BeforeRow[row])
			one.unseen = unseen.gain(row, d.BeforeRow[row])
		}
		rows = append(rows, one)
	}
	return len(rows)
}

var (
	requestColumn  = frame.Column(frame.Edges, "request_bytes")
	responseColumn = frame.Column(frame.Edges, "response_bytes")
)

// active says of each row whether a counter gained something.
func (v *edgeView) active(d *frame.Difference) []bool {
	active := make([]bool, len(d.After.IDs))
	for i := range edgeColumns {
		c := &edgeColumns[i]
		view := &v.columns[c.field.index()]
		if len(view.now) == 0 {
			continue
		}
		if c.kind != frame.Counter {
			v.levels = append(v.levels, uint8(i))
			continue
		}
		if view.nowMissing == nil && view.wasMissing == nil && len(view.was) > 0 {
			moved := false
			now := view.now
			if len(now) == len(view.was) && &now[0] == &view.was[0] {
				now = nil // it is shared: the rows are the same, or all have 0
			}
			for row, n := range now {
				was := uint64(0)
				if before := d.BeforeRow[row]; before >= 0 {
					was = view.was[before]
				}
				if n != was {
					active[row], moved = active[row] || !c.integral, true
				}
			}
			if moved {
				v.moved = append(v.moved, uint8(i))
			} else {
				v.still |= 1 << c.field.index()
			}
			continue
		}
		v.moved = append(v.moved, uint8(i))
		for row := range view.now {
			if !c.integral && view.gain(row, d.BeforeRow[row]) > 0 {
				active[row] = true
			}
		}
	}
	for row := range active {
		if active[row] && d.HasRemoved(row) {
			active[row] = false
			for i := range edgeColumns {
				if c := &edgeColumns[i]; c.kind == frame.Counter && !c.integral {
					n, _ := d.Gain(edgeColumns[i].column, row)
					active[row] = active[row] || n > 0
				}
			}
		}
	}
	return active
}

// containerIn is the index of a container by the number of its row, -1 for none.
func (p *part) containerIn(number uint64) int32 {
	if number == 0 {
		return -1
	}
	row, ok := p.containers.After.Find(uint32(number))
	if !ok {
		return -1
	}
	return p.containerOf[row]
}

// mayBeAsked reports whether a row between two containers may be one of those that are asked for; -1 is an address.
func (m *frameMap) mayBeAsked(client, server int32) bool {
	if !m.limited || client < 0 || server < 0 {
		return true
	}
	return m.only.wants(m.idOf(client), m.idOf(server)) || m.o.By == ByProcess
}

// idOf is the ID of the node of a container, but for its processes.
func (m *frameMap) idOf(container int32) string {
	c := &m.containers[container]
	if c.group != nil {
		return c.group.ID
	}
	return c.nodeID
}

// findEnds finds the ends of rows that are in no container or are those of a sum, and their processes.
func (m *frameMap) findEnds() {
	for i := range m.rows {
		m.findEndsOf(&m.rows[i])
	}
}

func (m *frameMap) findEndsOf(r *mapRow) {
	p := &m.parts[r.part]
	v := &p.view
	if r.sum {
		r.client.container, r.server.container = -1, -1
		if p.edges.After.IDs[r.row] == frame.OthersRow {
			r.client.container = m.sumOf(p, frame.OthersRow)
			r.server.container = r.client.container
		}
		if n := v.client[r.row]; n != 0 {
			r.client.container = m.sumOf(p, uint32(n))
		}
		if n := v.server[r.row]; n != 0 {
			r.server.container = m.sumOf(p, uint32(n))
		}
	}
	r.client.address, r.server.address = -1, -1
	if r.client.container < 0 {
		r.client.address = m.address(p, v.clientAddress[r.row])
	}
	if r.server.container < 0 {
		r.server.address = m.address(p, v.serverAddress[r.row])
	}
	if m.o.By == ByProcess {
		r.client.process = p.After.Text(frame.Edges, frame.EdgeClientProcess, int(r.row))
		r.server.process = p.After.Text(frame.Edges, frame.EdgeServerProcess, int(r.row))
	}
}

// pair finds the ends of rows that are on other hosts.
func (m *frameMap) pair() {
	isOpen := func(r mapRow) bool {
		return r.side == model.RoleClient && r.server.container < 0 || r.side == model.RoleServer && r.client.container < 0
	}
	if len(m.window.Hosts) < 2 || !slices.ContainsFunc(m.rows, isOpen) {
		return
	}
	partAt := make([]int, len(m.window.Hosts))
	for i := len(m.parts) - 1; i >= 0; i-- {
		partAt[m.parts[i].hostAt] = i
	}
	pairs := pairHosts(m.window)
	defer pairs.release()
	for i := range m.rows {
		r := &m.rows[i]
		if !isOpen(*r) {
			continue
		}
		p := &m.parts[r.part]
		end, ok := pairs.end(p.hostAt, p.spanAt, int(r.row))
		if !ok {
			continue
		}
		e := &r.server
		if r.side == model.RoleServer {
			e = &r.client
		}
		e.container = m.parts[partAt[end.Host]+end.Span].containerOf[end.Row]
		if m.o.By == ByProcess {
			e.process = end.Process
		}
		r.found, r.pairedThere, r.confidence = true, end.Paired, end.Confidence
	}
}

// sumOf is containerOfSum, remembered.
func (m *frameMap) sumOf(p *part, sum uint32) int32 {
	index, ok := p.sums[sum]
	if !ok {
		index = m.containerOfSum(p, sum)
		c := &m.containers[index]
		c.node.Gone, c.group = !c.live, m.groupOf(c)
		p.sums[sum] = index
	}
	return index
}

// address is the index of the address that a string of a part is.
func (m *frameMap) address(p *part, text uint64) int32 {
	if p.addressOf == nil {
		p.addressOf = make([]int32, len(p.After.Strings))
		for i := range p.addressOf {
			p.addressOf[i] = -1
		}
	}
	index := p.addressOf[text]
	if index < 0 {
		index = m.addressWith(p.After.Strings[text])
		p.addressOf[text] = index
	}
	return index
}

// noAddress is the address of ends that were put together.
const noAddress = "others"

func (m *frameMap) addressWith(text string) int32 {
	if text == "" {
		text = noAddress
	}
	index, ok := m.addressAt[text]
	if !ok {
		index = int32(len(m.addresses))
		m.addressAt[text] = index
		m.addresses = append(m.addresses, mapAddress{text: text, client: -1, server: -1})
	}
	return index
}
