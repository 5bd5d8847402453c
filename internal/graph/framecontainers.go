package graph

import (
	"strings"

	"outsight/internal/frame"
	"outsight/internal/model"
)

// containerColumn says where a field of a container is in a frame.
type containerColumn struct {
	field Field
	kind  frame.ColumnKind
	// column is the index of its column, or of its histogram if it is one.
	column    int
	per       float64
	histogram bool
}

var containerColumns = columnsOf(containerTable, frame.Containers)

func columnsOf[T any](t *table[T], of frame.TableID) (all []containerColumn) {
	for i, c := range t.columns {
		if c == nil {
			continue
		}
		one := containerColumn{field: t.kind | Field(i), histogram: c.Histogram != nil}
		if one.histogram {
			one.column = frame.Histogram(of, t.names[i])
		} else {
			one.column = frame.Column(of, t.names[i])
			one.kind, one.per = frame.Schema[of].Columns[one.column].Kind, frame.Schema[of].Columns[one.column].Per
		}
		all = append(all, one)
	}
	return all
}

// mapContainer is a container of a host, or what ended of a kind.
type mapContainer struct {
	containerChange
	// shown: it was there in the window. live: it is in the newest frame, and has not ended.
	shown, live bool
	// nodeID is the ID of its own node; group is the node of a Grouping, nil for its own. nodeIndex is that of the node
	// that its ends have, -1 before they have one.
	nodeID    string
	group     *Node
	nodeIndex int32
}

// containerID is the ID of a container's node. Services of several hosts have the same ID.
func (m *frameMap) containerID(host, id string) string {
	if strings.HasPrefix(id, "/") && len(m.window.Hosts) > 1 {
		return id + "@" + host
	}
	return nodeID(host, id)
}

// useContainers finds what the containers of all rows used.
func (m *frameMap) useContainers() {
	for i := range m.parts {
		p := &m.parts[i]
		for row := range p.containers.After.IDs {
			if c := &m.containers[p.containerOf[row]]; m.isAsked(c) {
				m.use(p, row, c)
			}
		}
	}
}

// findContainers finds the containers of all rows.
func (m *frameMap) findContainers() {
	n := 0
	for i := range m.parts {
		n += len(m.parts[i].containers.After.IDs)
	}
	m.containers = make([]mapContainer, 0, n)
	m.containerAt = make(map[string]int32, n)
	for i := range m.parts {
		p := &m.parts[i]
		rows := p.containers.After
		p.containerOf = make([]int32, len(rows.IDs))
		for row := range rows.IDs {
			if rows.Attribute(frame.State, row) != frame.Summed {
				p.containerOf[row] = m.containerOfRow(p, row)
			}
		}
		for row := range rows.IDs {
			if rows.Attribute(frame.State, row) == frame.Summed {
				p.containerOf[row] = m.containerOfSum(p, rows.IDs[row])
			}
		}
	}
	for i := range m.containers {
		c := &m.containers[i]
		c.node.Gone = !c.live
		c.group = m.groupOf(c)
	}
}

// groupOf is the node of a grouping that a container belongs to, nil for its own.
func (m *frameMap) groupOf(c *mapContainer) *Node {
	if by := m.o.By; c.isEnded() && c.node.PodNamespace != "" {
		switch {
		case by == ByNamespace:
			return namespaceGroup(c.node.PodNamespace)
		case by == ByWorkload && c.node.Workload != "":
			return workloadGroup(c.node.PodNamespace, c.node.WorkloadKind, c.node.Workload)
		}
	}
	return m.o.By.containerGroup(&c.node)
}

// isAsked reports whether what a container used is asked for.
func (m *frameMap) isAsked(c *mapContainer) bool {
	if !m.limited {
		return true
	}
	if m.only.edge != "" {
		return false
	}
	if group := m.groupOf(c); group != nil {
		return group.ID == m.only.node
	}
	return c.nodeID == m.only.node
}

func (m *frameMap) containerWith(id string) (c *mapContainer, index int32) {
	index, ok := m.containerAt[id]
	if !ok {
		index = int32(len(m.containers))
		m.containerAt[id] = index
		m.containers = append(m.containers, mapContainer{})
		m.containers[index].nodeIndex = -1
	}
	return &m.containers[index], index
}

// containerOfRow is the container of a row that sums none.
func (m *frameMap) containerOfRow(p *part, row int) int32 {
	text := func(a frame.Attribute) string { return p.After.Text(frame.Containers, a, row) }
	id := text(frame.ContainerKey)
	c, index := m.containerWith(m.containerID(p.host, id))
	live := p.containers.After.Attribute(frame.State, row) == frame.Live
	if c.node.ID != "" && !live && c.live && p.newest {
		return index // it began anew: the row that ended says no more of it
	}
	c.node = Node{ID: id, Name: text(frame.ContainerName), Host: p.host, Image: text(frame.ContainerImage),
		Runtime: text(frame.ContainerRuntime), PodName: text(frame.ContainerPod),
		PodNamespace: text(frame.ContainerNamespace), Workload: text(frame.ContainerWorkload),
		WorkloadKind: text(frame.ContainerWorkloadKind)}
	m.nameContainer(&c.node)
	c.nodeID, c.live = m.containerID(p.host, id), live && p.newest && !p.silent
	return index
}

// Of rows that ended and were removed.
const (
	endedPrefix = "ended/"
	othersEnded = "others that ended"
)

// containerOfSum is the container with which what ended of a kind is shown, by the number of the row that sums it,
// which need not be there: the one that goes on, if it is the only one of its kind; else a node of its own.
func (m *frameMap) containerOfSum(p *part, sum uint32) int32 {
	rows := p.containers.After
	if sum == frame.OthersRow {
		return m.ended(p, othersEnded, -1)
	}
	live, gone, member, ended := 0, 0, -1, -1
	for row, of := range rows.Attributes[frame.Sum] {
		if uint32(of) != sum || rows.IDs[row] == sum {
			continue
		}
		if rows.Attribute(frame.State, row) == frame.Live {
			live, member = live+1, row
		} else {
			gone, ended = gone+1, row
		}
	}
	switch {
	case live == 1:
		return p.containerOf[member]
	case live == 0 && gone == 1:
		return p.containerOf[ended]
	case live > 0:
		return m.ended(p, p.After.Text(frame.Containers, frame.ContainerName, member), member)
	case gone > 0:
		return m.ended(p, p.After.Text(frame.Containers, frame.ContainerName, ended), ended)
	}
	if row, ok := rows.Find(sum); ok {
		return m.ended(p, p.After.Text(frame.Containers, frame.ContainerName, row), row)
	}
	return m.ended(p, othersEnded, -1)
}

// ended is the node of containers of one name that ended. What else is known of them is that of a row, -1 for none.
func (m *frameMap) ended(p *part, name string, like int) int32 {
	c, index := m.containerWith(endedPrefix + p.host + "/" + name)
	if c.nodeID == "" {
		c.nodeID = endedPrefix + p.host + "/" + name
		c.node = Node{ID: c.nodeID, Name: name, Host: p.host}
		if like >= 0 {
			text := func(a frame.Attribute) string { return p.After.Text(frame.Containers, a, like) }
			c.node.Runtime, c.node.PodNamespace = text(frame.ContainerRuntime), text(frame.ContainerNamespace)
			c.node.Workload, c.node.WorkloadKind = text(frame.ContainerWorkload), text(frame.ContainerWorkloadKind)
		}
	}
	return index
}

// isEnded reports whether it stands for containers that ended and have no rows any more.
func (c *mapContainer) isEnded() bool {
	return c.node.ID == c.nodeID && strings.HasPrefix(c.nodeID, endedPrefix)
}

// use adds what the container of a row used, and says whether it was there in the window.
func (m *frameMap) use(p *part, row int, c *mapContainer) {
	d := p.containers
	state, before := d.After.Attribute(frame.State, row), d.BeforeRow[row]
	fileBase := p.fileRow(row)
	gained := false
	c.seconds = p.seconds
	for i := range containerColumns {
		column := &containerColumns[i]
		switch {
		case column.histogram:
			gained = m.addDurations(p, row, column, c) || gained
		case column.kind == frame.Counter:
			if n, ok := p.gain(column.column, row, fileBase); ok {
				gained = gained || n > 0
				c.set(column.field, c.of(column.field)+float64(n)/column.per)
			}
		case state != frame.Summed:
			if n, ok := d.After.Columns[column.column].At(row); ok {
				c.set(column.field, level(n, column.kind, column.per))
			}
		}
	}
	c.addMeans(d, row, state)
	ended := state == frame.Summed || state == frame.Gone && before >= 0 &&
		d.Before.Attribute(frame.State, int(before)) == frame.Gone || state == frame.Gone && p.Before == p.After
	c.shown = c.shown || gained || !ended
}

// level is a value of a gauge in its unit.
func level(n uint64, kind frame.ColumnKind, per float64) float64 {
	if kind == frame.LevelFloat {
		return frame.Float(n)
	}
	return float64(n) / per
}

// fileRow says from what counters of files are counted where the agent began in the window: the row in the last frame
// of the agent before with the same container; -1 for 0; unknown where an earlier value is not known.
func (p *part) fileRow(row int) int {
	if p.fileBase == nil || p.booted {
		return -1
	}
	id := p.After.Text(frame.Containers, frame.ContainerKey, row)
	base := &p.fileBase.Tables[frame.Containers]
	for i := len(base.IDs) - 1; i >= 0; i-- {
		if base.Attribute(frame.State, i) != frame.Summed && p.fileBase.Text(frame.Containers, frame.ContainerKey, i) == id {
			return i
		}
	}
	if started := p.After.Tables[frame.Containers].Attribute(frame.ContainerStarted, row); started != 0 &&
		started >= uint64(p.fileBase.Time.UnixMilli()) {
		return -1
	}
	return unknown
}

const unknown = -2

// gain is what a counter of a container gained; ok is false where that is not known. fileRow is that of the row.
func (p *part) gain(column, row, fileRow int) (gained uint64, ok bool) {
	n, ok := p.containers.Gain(column, row)
	if !ok || p.fileBase == nil || !frame.Schema[frame.Containers].Columns[column].File || fileRow == -1 {
		return n, ok
	}
	if fileRow == unknown {
		return 0, false
	}
	was, known := p.fileBase.Tables[frame.Containers].Columns[column].At(fileRow)
	if !known {
		return 0, false
	}
	return since(was, n), true
}

// addDurations adds what a histogram gained.
func (m *frameMap) addDurations(p *part, row int, column *containerColumn, c *mapContainer) bool {
	m.scratch.Reset()
	p.containers.AddHistogram(&m.scratch, column.column, row)
	if m.scratch.Count == 0 {
		return false
	}
	gained := floatDurations(&m.scratch, nil)
	c.durations.merge(durationNumbers[column.field], &gained)
	return true
}

// floatDurations is h with its buckets in room, or in memory of its own where that is not enough. What lies beyond the last
// bucket is in one behind it, so that its quantile is +Inf.
func floatDurations(h *frame.Durations, room []float64) model.FloatHistogram {
	f := model.FloatHistogram{Count: float64(h.Count), Sum: float64(h.SumNS) / model.Nanoseconds,
		ZeroCount: float64(h.Zero)}
	n := 0
	if h.Last >= h.First && h.Count > h.Zero+h.Overflow {
		f.Offset, n = h.First, int(h.Last-h.First)+1
	}
	if h.Overflow > 0 {
		if n == 0 {
			f.Offset = model.MaxBucket + 1
		}
		n = int(model.MaxBucket + 2 - f.Offset)
	}
	if n == 0 {
		return f
	}
	if len(room) >= n {
		f.Buckets = room[:n:n]
		clear(f.Buckets)
	} else {
		f.Buckets = make([]float64, n)
	}
	if h.Count > h.Zero+h.Overflow {
		for i := h.First; i <= h.Last; i++ {
			f.Buckets[i-f.Offset] = float64(h.At(i))
		}
	}
	if h.Overflow > 0 {
		f.Buckets[n-1] = float64(h.Overflow)
	}
	return f
}
