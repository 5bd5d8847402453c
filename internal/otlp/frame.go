package otlp

import (
	"hash/maphash"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"outsight/internal/frame"
	"outsight/internal/model"
)

// SeriesOptions say which series are made of frames.
type SeriesOptions struct {
	// WithoutEdges leaves out those of edges and endpoints.
	WithoutEdges bool
	// Labels that all series have beside their own.
	Labels []model.Label
}

// toldAfterEnd is for how long a row that has ended has series in FromFrame.
const toldAfterEnd = 2 * time.Second

// FromFrame is all that a frame holds as series: in the order of Metrics, all at the frame's time in whole milliseconds.
// Equal frames give equal series, so that sending them twice is harmless. No two series have the same name and labels.
func FromFrame(f *frame.Frame, o SeriesOptions) []model.Series {
	if f == nil {
		return nil
	}
	return inOrder(newMaker(o).series(f))
}

// SparseSeries makes the series of one epoch of a host, of one frame after the other. A counter that is 0 since its row
// began is left out until it moves; it has a start then, at which it was 0. A row that has ended has series once more,
// which are its last. Their order is that of rows.
func SparseSeries(o SeriesOptions) func(*frame.Frame) []model.Series {
	m := newMaker(o)
	m.sparse = true
	return m.series
}

func newMaker(o SeriesOptions) *maker {
	m := &maker{options: o, unique: map[uint64]struct{}{}, seed: maphash.MakeSeed()}
	for t := range m.rows {
		m.rows[t] = map[uint32]*row{}
	}
	return m
}

// metricOrder is where each metric is in Metrics, by its name.
var metricOrder = sync.OnceValue(func() map[string]int {
	order := map[string]int{}
	for i, m := range Metrics() {
		order[m.Name] = i
	}
	return order
})

// inOrder puts series in the order of Metrics; those of one metric stay in theirs.
func inOrder(all []model.Series) []model.Series {
	order := metricOrder()
	next := make([]int, len(order)+1)
	all, own := applicationsLast(all)
	known := len(all) - own
	for i := range all[:known] {
		next[order[all[i].Name]+1]++
	}
	for i := range next[1:] {
		next[i+1] += next[i]
	}
	ordered := make([]model.Series, known, len(all))
	for i := range all[:known] {
		at := &next[order[all[i].Name]]
		ordered[*at] = all[i]
		*at++
	}
	return append(ordered, all[known:]...)
}

// maker makes series of the frames of an epoch, one after the other.
type maker struct {
	options SeriesOptions
	sparse  bool
	rows    [frame.NumTables]map[uint32]*row
	// last is the time of the frame before; frames counts them.
	last   time.Time
	frames uint64

	f    *frame.Frame
	out  []model.Series
	time time.Time
	// renamed: a row has other labels than in the frame before, and so have those of later tables that are about it.
	renamed bool
	// unique are the hashes of the rows of a table that have series.
	unique map[uint64]struct{}
	seed   maphash.Seed
}

// row is what is known of a row of a table.
type row struct {
	labels []model.Label
	// name is that of an application's own metric; empty for others.
	name  string
	start time.Time
	// attributes is a hash of the row's attributes, which labels are made of.
	attributes uint64
	// hash is of the labels, and of the metric in Labelled.
	hash uint64
	// keys is the first of the numbers that stand for its series.
	keys uint64
	// told are the columns, and behind them the histograms, that have a series.
	told []uint64
	// seen is the number of the last frame that has the row, ended that it had series for the last time.
	seen  uint64
	ended bool
	// since is the number of the first frame that has the row.
	since uint64
}

// seriesKeys counts the numbers that were given to series.
var seriesKeys atomic.Uint64

// firstKey is far from what the decoders of other senders count from.
const firstKey = 1 << 62

func (m *maker) series(f *frame.Frame) []model.Series {
	m.f, m.time, m.out = f, f.Time.Truncate(time.Millisecond), make([]model.Series, 0, cap(m.out))
	m.frames++
	m.renamed = false
	m.table(frame.Hosts, m.hostRow)
	m.table(frame.Containers, m.containerRow)
	if !m.options.WithoutEdges {
		m.table(frame.Edges, m.edgeRow)
		m.table(frame.Endpoints, m.endpointRow)
	}
	m.table(frame.Labelled, m.labelledRow)
	for t := range m.rows {
		for id, r := range m.rows[t] {
			if r.seen != m.frames {
				delete(m.rows[t], id)
			}
		}
	}
	m.last = m.time
	out := m.out
	m.f = nil
	return out
}

// table makes the series of a table. begin finds out the labels and the start of a row that is new; it answers no labels
// for a row without series.
func (m *maker) table(t frame.TableID, begin func(r *row, i int)) {
	table := &m.f.Tables[t]
	clear(m.unique)
	first, ownersRenamed := len(m.out), m.renamed
	var gone []int
	for i, id := range table.IDs {
		state := frame.Live
		if t != frame.Hosts {
			state = table.Attributes[frame.State][i]
		}
		if state == frame.Summed {
			continue
		}
		r := m.rows[t][id]
		if attributes := attributesOf(table, i); r == nil {
			r = m.newRow(t, i, begin)
			r.attributes, m.rows[t][id] = attributes, r
		} else if r.attributes != attributes || ownersRenamed {
			m.rename(r, t, i, begin)
			r.attributes = attributes
		}
		r.seen = m.frames
		switch {
		case r.labels == nil || r.ended:
		case state == frame.Gone && !m.sparse && m.time.Sub(instant(table.Attributes[frame.Ended][i])) > toldAfterEnd:
		case state == frame.Gone:
			r.ended = true
			gone = append(gone, i)
		default:
			_, twice := m.unique[r.hash]
			m.unique[r.hash] = struct{}{}
			before := len(m.out)
			m.row(t, table, i, r)
			if twice {
				m.out = merge(m.out[:before], first, m.out[before:])
			}
		}
	}
	// Of a row that has ended and one that lives with the same labels, the series are those of the one that lives.
	for _, i := range gone {
		if r := m.rows[t][table.IDs[i]]; !m.has(r.hash) {
			m.unique[r.hash] = struct{}{}
			m.row(t, table, i, r)
		}
	}
}

func (m *maker) has(hash uint64) bool {
	_, ok := m.unique[hash]
	return ok
}

// attributesOf is a hash of the attributes of a row that are not about its end.
func attributesOf(table *frame.Table, i int) (hash uint64) {
	for a := range table.Attributes {
		if a := frame.Attribute(a); a != frame.State && a != frame.Sum && a != frame.Ended {
			hash = (hash ^ table.Attributes[a][i]) * 0x9e3779b97f4a7c15
			hash ^= hash >> 32
		}
	}
	return hash
}

func (m *maker) newRow(t frame.TableID, i int, begin func(r *row, i int)) *row {
	r := &row{since: m.frames}
	if begin(r, i); r.labels == nil {
		return r
	}
	r.told = make([]uint64, (columnsOf(t)+63)/64)
	m.label(r, t, i)
	return r
}

// rename finds out the labels of a row again. Where they are others, as when a container's pod is learnt after it has
// started, its series go on as others: what has been counted has been counted for these.
func (m *maker) rename(r *row, t frame.TableID, i int, begin func(r *row, i int)) {
	before := *r
	if r.labels = nil; before.labels == nil {
		*r = *m.newRow(t, i, begin)
		return
	}
	if begin(r, i); r.labels == nil {
		*r = before
		return
	}
	if m.label(r, t, i); r.hash == before.hash && slices.Equal(r.labels, before.labels) {
		r.labels, r.keys = before.labels, before.keys
		return
	}
	m.renamed = true
}

func columnsOf(t frame.TableID) int {
	return len(frame.Schema[t].Columns) + len(frame.Schema[t].Histograms)
}

// label completes the labels of a row, and what is known by them.
func (m *maker) label(r *row, t frame.TableID, i int) {
	if m.sparse {
		columns := uint64(columnsOf(t))
		r.keys = firstKey + seriesKeys.Add(columns) - columns
	}
	if len(m.options.Labels) > 0 && t != frame.Endpoints && t != frame.Labelled { // these have it of their owners
		r.labels = model.SortedLabels(append(slices.Clone(r.labels), m.options.Labels...)...)
	}
	var h maphash.Hash
	h.SetSeed(m.seed)
	switch {
	case r.name != "":
		h.WriteString(r.name)
	case t == frame.Labelled:
		h.WriteString(m.text(t, frame.LabelledMetric, i))
	}
	for _, l := range r.labels {
		h.WriteString(l.Name)
		h.WriteByte(0)
		h.WriteString(l.Value)
		h.WriteByte(0)
	}
	r.hash = h.Sum64()
}

// merge adds series to those from first on: counters and histograms of the same name and labels are added up, of gauges
// the first stays.
func merge(all []model.Series, first int, more []model.Series) []model.Series {
	for _, s := range more {
		i := slices.IndexFunc(all[first:], func(k model.Series) bool {
			return k.Name == s.Name && slices.Equal(k.Labels, s.Labels)
		})
		switch {
		case i < 0:
			all = append(all, s)
		case s.Kind == model.Counter:
			all[first+i].Value += s.Value
		case s.Kind == model.HistogramSeries:
			all[first+i].Histogram.Merge(s.Histogram)
		}
	}
	return all
}

// row makes the series of a row.
func (m *maker) row(t frame.TableID, table *frame.Table, i int, r *row) {
	if t == frame.Labelled {
		m.labelled(table, i, r)
		return
	}
	info := &frame.Schema[t]
	for c := range table.Columns {
		column := &info.Columns[c]
		if column.Kind == frame.Integral || column.Kind == frame.Highest {
			continue
		}
		n, ok := table.Columns[c].At(i)
		if !ok {
			continue
		}
		s := model.Series{Name: column.Metric, Kind: model.Counter, Value: float64(n) / column.Per}
		switch column.Kind {
		case frame.Level:
			s.Kind = model.Gauge
		case frame.LevelFloat:
			s.Kind, s.Value = model.Gauge, frame.Float(n)
		}
		m.add(s, r, c, column.Label, n == 0)
	}
	for h := range table.Histograms {
		column := &info.Histograms[h]
		histogram := table.Histograms[h].At(i)
		if histogram == nil {
			continue
		}
		m.add(model.Series{Name: column.Metric, Kind: model.HistogramSeries, Histogram: histogram}, r,
			len(table.Columns)+h, column.Label, false)
	}
}

// add adds a series, unless it is a counter that has not moved yet.
func (m *maker) add(s model.Series, r *row, column int, label model.Label, zero bool) {
	told := &r.told[column>>6]
	bit := uint64(1) << (column & 63)
	s.Time, s.Labels = m.time, r.labels
	if m.sparse {
		s.Key = r.keys + uint64(column)
	}
	switch {
	case s.Kind == model.Gauge:
	case !m.sparse:
		s.Start = r.start
	default:
		if zero && *told&bit == 0 {
			return
		}
		s.Start = r.start
		// A row that was there did not count it then, and one that began since was not.
		if known := m.frames > 1 && *told&bit == 0; known && s.Start.Before(m.last) && r.since < m.frames {
			s.Start = m.last
		} else if known && s.Start.IsZero() {
			s.Start = m.last
		}
	}
	*told |= bit
	if label.Name != "" {
		s.Labels = model.SortedLabels(append(slices.Clone(r.labels), label)...)
	}
	m.out = append(m.out, s)
}

func (m *maker) text(t frame.TableID, a frame.Attribute, i int) string { return m.f.Text(t, a, i) }

func (m *maker) hostRow(r *row, _ int) {
	r.labels = model.SortedLabels(model.NewLabel(LabelHost, m.f.Host))
}

func instant(milliseconds uint64) time.Time {
	if milliseconds == 0 {
		return time.Time{}
	}
	return time.UnixMilli(int64(milliseconds))
}

// container is that of a row, nil for none.
func (m *maker) container(id uint32) *model.Container {
	table := &m.f.Tables[frame.Containers]
	i, ok := table.Find(id)
	if !ok {
		return nil
	}
	text := func(a frame.Attribute) string { return m.text(frame.Containers, a, i) }
	return &model.Container{ID: text(frame.ContainerKey), Name: text(frame.ContainerName),
		Image: text(frame.ContainerImage), Runtime: model.Runtime(text(frame.ContainerRuntime)),
		PodNamespace: text(frame.ContainerNamespace), PodName: text(frame.ContainerPod), PodUID: text(frame.ContainerPodUID),
		Workload: text(frame.ContainerWorkload), WorkloadKind: text(frame.ContainerWorkloadKind),
		Started: instant(table.Attributes[frame.ContainerStarted][i])}
}

func (m *maker) containerRow(r *row, i int) {
	c := m.container(m.f.Tables[frame.Containers].IDs[i])
	r.labels, r.start = ContainerLabels(m.f.Host, c), c.Started
}

func (m *maker) edgeRow(r *row, i int) {
	table := &m.f.Tables[frame.Edges]
	number := func(a frame.Attribute) uint64 { return table.Attributes[a][i] }
	text := func(a frame.Attribute) string { return m.text(frame.Edges, a, i) }
	peer := func(container, address, process frame.Attribute) model.Peer {
		a, _ := netip.ParseAddr(text(address)) // there is none of an end in a container
		return model.Peer{Container: m.container(uint32(number(container))), Address: a, Process: text(process)}
	}
	e := &model.Edge{Side: model.Role(number(frame.EdgeSide)), Transport: model.Transport(number(frame.EdgeTransport)),
		Client: peer(frame.EdgeClient, frame.EdgeClientAddress, frame.EdgeClientProcess),
		Server: peer(frame.EdgeServer, frame.EdgeServerAddress, frame.EdgeServerProcess),
		Via:    text(frame.EdgeVia), Start: instant(number(frame.EdgeStart))}
	e.Service, _ = netip.ParseAddrPort(text(frame.EdgeService))
	r.labels, r.start = EdgeLabels(m.f.Host, e), edgeStart(e)
}

func (m *maker) endpointRow(r *row, i int) {
	edge := m.rows[frame.Edges][uint32(m.f.Tables[frame.Endpoints].Attributes[frame.EndpointEdge][i])]
	if edge == nil || edge.labels == nil {
		return
	}
	text := func(a frame.Attribute) string { return m.text(frame.Endpoints, a, i) }
	e := &model.Endpoint{EndpointKey: model.EndpointKey{Protocol: model.Protocol(text(frame.EndpointProtocol)),
		Name: text(frame.EndpointName), Status: text(frame.EndpointStatus)}}
	r.labels, r.start = EndpointLabels(edge.labels, e), edge.start
}

func (m *maker) labelledRow(r *row, i int) {
	table := &m.f.Tables[frame.Labelled]
	of := frame.TableID(table.Attributes[frame.LabelledTable][i])
	owner := m.rows[of][uint32(table.Attributes[frame.LabelledOwner][i])]
	metric, ok := m.f.Metric(m.text(frame.Labelled, frame.LabelledMetric, i))
	if owner == nil || owner.labels == nil || !ok {
		return
	}
	if model.IsApplication(metric.Name) {
		m.applicationRow(r, owner, i)
		return
	}
	all := slices.Clone(owner.labels)
	for l, name := range metric.Labels {
		all = append(all, model.NewLabel(name, m.text(frame.Labelled, frame.LabelledLabels+frame.Attribute(l), i)))
	}
	r.labels, r.start = model.SortedLabels(all...), owner.start
}

// labelled makes the series of a row of Labelled, whose metric is an attribute.
func (m *maker) labelled(table *frame.Table, i int, r *row) {
	metric, _ := m.f.Metric(m.text(frame.Labelled, frame.LabelledMetric, i))
	s := model.Series{Name: metric.Name, Kind: metric.Kind}
	if metric.Kind == model.HistogramSeries {
		if s.Histogram = table.Histograms[0].At(i); s.Histogram != nil {
			m.add(s, r, len(table.Columns), model.Label{}, false)
		}
		return
	}
	if r.name != "" {
		s.Name = r.name
	}
	if value, ok := frame.LabelledLevel(table, i, metric.Per); ok {
		s.Value = value
		m.add(s, r, 0, model.Label{}, value == 0)
	}
}
