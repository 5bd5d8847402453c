package frame

import (
	"math"
	"net/netip"
	"time"

	"outsight/internal/model"
)

func fromBits(n uint64) float64 { return math.Float64frombits(n) }

// What distinguishes rows while they live: a container by its ID, an edge by its Instance or else by its ends, an endpoint
// by its edge's row, a series by its owner and labels.
type (
	// edgeKey has the instance alone where there is one.
	edgeKey struct {
		instance                     uint64
		side                         model.Role
		client, server               string
		clientProcess, serverProcess string
		service                      netip.AddrPort
		transport                    model.Transport
	}
	endpointKey struct {
		edge uint32
		model.EndpointKey
	}
	labelledKey struct {
		table  TableID
		owner  uint32
		metric string
		labels [MaxLabels]string
	}
)

// What distinguishes the kinds of rows that are summed when they are gone.
type (
	containerKind struct {
		name, runtime, namespace, workload, workloadKind string
	}
	edgeKind struct {
		side                         model.Role
		transport                    model.Transport
		client, server               uint64 // the sums of their containers
		clientAddress, serverAddress netip.Addr
		clientProcess, serverProcess string
		service                      netip.AddrPort
		via                          string
	}
	endpointKind struct {
		edge uint64
		model.EndpointKey
	}
	labelledKind struct {
		table  TableID
		owner  uint64
		metric string
		labels [MaxLabels]string
	}
)

// build fills in the tables: first it is decided which rows there are, then what is in them.
func (b *Builder) build(f *Frame, s *model.Snapshot) {
	containers := b.planContainers(s)
	edges, endpoints := b.planEdges(s, containers)
	labelled := b.planLabelled(s, containers)
	now := s.Time

	edges.rest(now, nil, nil)
	containers.rest(now, func(row int) bool { return containers.used[containers.old.IDs[row]] }, nil)
	// What is of a row that is removed is removed with it.
	there := func(id uint32) bool { return id == 0 || containers.keeps(id) }
	edges.removeOrphans(func(row int) bool {
		return there(edges.oldReference(EdgeClient, row)) && there(edges.oldReference(EdgeServer, row))
	})
	endpoints.rest(now, nil, nil)
	endpoints.removeOrphans(func(row int) bool { return edges.keeps(endpoints.oldReference(EndpointEdge, row)) })
	// A level that is told no more says nothing.
	labelled.rest(now, nil, func(row int) bool { return isLevel(labelled.oldText(LabelledMetric, row)) })
	labelled.removeOrphans(func(row int) bool {
		return labelled.old.Attributes[LabelledTable][row] != uint64(Containers) ||
			there(labelled.oldReference(LabelledOwner, row))
	})

	b.makeHost(f, s)
	containers.make(f, func(d *draft, of *plan) { b.fillContainer(d, containers.samples[of.live], of.live) })
	edges.make(f, func(d *draft, of *plan) { b.fillEdge(d, &s.Edges[of.live], of.live, containers) })
	b.makeConnections(f, s, edges)
	b.makePacketSamples(f, s, edges)
	at := &f.Tables[Edges]
	endpoints.make(f, func(d *draft, of *plan) { b.fillEndpoint(d, &endpoints.all[of.live], of.live, at) })
	labelled.make(f, func(d *draft, of *plan) { b.fillLabelled(d, &labelled.all[of.live], of.live, f) })
	b.makeAddresses(f, s, containers)
	b.makeFeatures(f, s)
}

// list makes a table without states of rows of attributes.
func (b *Builder) list(t TableID, rows [][]uint64) Table {
	d := newDraft(t, len(rows), &b.tables[t].scratch)
	for i, row := range rows {
		d.IDs[i] = uint32(i + 1)
		for a, v := range row {
			d.Attributes[a][i] = v
		}
	}
	old := &Table{}
	if b.before != nil {
		old = &b.before.Tables[t]
	}
	return d.finish(old)
}

func (b *Builder) makeHost(f *Frame, s *model.Snapshot) {
	p := b.plan(Hosts)
	before := -1
	if b.before != nil {
		before = 0
	}
	p.plans = []plan{{id: 1, live: 0, before: before}}
	p.make(f, func(d *draft, _ *plan) {
		d.Attributes[HostKernel][0] = b.texts.id(s.Host.Kernel)
		d.Attributes[HostCgroupLayout][0] = b.texts.id(s.Host.CgroupLayout)
		fillColumns(d, model.HostRows, s)
	})
}

// fillColumns reads the columns of the registry, in the order of the schema.
func fillColumns[T any](d *draft, rows []model.Row[T], of *T) {
	column, histogram := 0, 0
	for i := range rows {
		for j := range rows[i].Columns {
			c := &rows[i].Columns[j]
			switch {
			case c.Histogram != nil:
				if h, ok := c.Histogram(of); ok && d.only.histogram(int(d.table), histogram) {
					d.setHistogram(histogram, h)
				}
				histogram++
				continue
			case !d.only.column(int(d.table), column):
			case c.Value != nil:
				if v, ok := c.Value(of); ok && !isInfinite(math.Float64bits(v)) {
					d.set(column, math.Float64bits(v))
				}
			default:
				if n, ok := c.Count(of); ok {
					d.set(column, n)
				}
			}
			column++
			if c.Mean {
				column += 2
			}
		}
	}
}

// plannedContainers know the rows of containers.
type plannedContainers struct {
	*planned
	samples []*model.ContainerSample
	// rows are by the container's ID, those that only edges name too. used are rows that edges name.
	rows map[string]uint32
	used map[uint32]bool
	sums map[uint32]uint64 // by the number of a row
	// ends are the rows of the ends of edges.
	ends [][2]uint32
}

func (b *Builder) planContainers(s *model.Snapshot) *plannedContainers {
	p := &plannedContainers{planned: b.plan(Containers), rows: map[string]uint32{}, used: map[uint32]bool{},
		sums: map[uint32]uint64{}}
	// Of a container that ended and began again, the one that ended first.
	for _, ended := range []bool{true, false} {
		for i := range s.Containers {
			if sample := &s.Containers[i]; sample.Container != nil && sample.Container.Ended.IsZero() != ended {
				p.add(sample)
			}
		}
	}
	return p
}

func (p *plannedContainers) add(sample *model.ContainerSample) uint32 {
	c := sample.Container
	e := live(p.planned, &p.b.containers, c.ID)
	p.samples = append(p.samples, sample)
	p.rows[c.ID] = e.id
	p.sums[e.id] = sumOf(p.b, Containers, &p.b.containers, e, kindOf(c))
	if !c.Ended.IsZero() {
		p.b.containers.end(e)
	}
	return e.id
}

func kindOf(c *model.Container) containerKind {
	return containerKind{c.Name, string(c.Runtime), c.PodNamespace, c.Workload, c.WorkloadKind}
}

// rowOf is the row of an end's container, which gets one where the snapshot lists it no more.
func (p *plannedContainers) rowOf(c *model.Container) uint32 {
	if c == nil {
		return 0
	}
	if id, ok := p.rows[c.ID]; ok {
		p.used[id] = true
		return id
	}
	// It ended a while ago: its row is that of then, with what it counted.
	if p.b.before != nil {
		old := p.old
		for i := len(old.IDs) - 1; i >= 0; i-- {
			if old.Attributes[State][i] != Summed && p.b.before.Strings[old.Attributes[ContainerKey][i]] == c.ID {
				p.rows[c.ID], p.sums[old.IDs[i]], p.used[old.IDs[i]] = old.IDs[i], old.Attributes[Sum][i], true
				return old.IDs[i]
			}
		}
	}
	ended := *c
	if ended.Ended.IsZero() {
		ended.Ended = time.UnixMilli(1)
	}
	return p.add(&model.ContainerSample{Container: &ended})
}

func millis(t time.Time) uint64 {
	if t.IsZero() {
		return 0
	}
	return uint64(max(t.UnixMilli(), 0))
}

func (b *Builder) fillContainer(d *draft, sample *model.ContainerSample, at int) {
	c := sample.Container
	set := func(a Attribute, v uint64) { d.Attributes[a][d.row] = v }
	set(Sum, uint64(b.containers.now[at].sum))
	if !c.Ended.IsZero() {
		set(State, Gone)
		set(Ended, millis(c.Ended))
	}
	for i, text := range [...]string{c.ID, c.Name, c.Image, string(c.Runtime), c.PodNamespace, c.PodName, c.PodUID,
		c.Workload, c.WorkloadKind} {
		d.text(&b.texts, ContainerKey+Attribute(i), text)
	}
	set(ContainerStarted, millis(c.Started))
	d.text(&b.texts, ContainerPlacement, c.Placement)
	fillColumns(d, model.ContainerRows, sample)
}

// plannedEndpoints know the endpoints of all edges.
type plannedEndpoints struct {
	*planned
	all []liveEndpoint
}

type liveEndpoint struct {
	*model.Endpoint
	edge uint32
}

func keyOfEdge(e *model.Edge) edgeKey {
	if e.Instance != 0 {
		return edgeKey{instance: e.Instance}
	}
	return edgeKey{0, e.Side, e.Client.ID(), e.Server.ID(), e.Client.Process, e.Server.Process, e.Service, e.Transport}
}

func (b *Builder) planEdges(s *model.Snapshot, containers *plannedContainers) (*planned, *plannedEndpoints) {
	edges, endpoints := b.plan(Edges), &plannedEndpoints{planned: b.plan(Endpoints), all: b.spareEndpoints[:0]}
	for i := range s.Edges {
		e := &s.Edges[i]
		containers.ends = append(containers.ends, [2]uint32{containers.rowOf(e.Client.Container),
			containers.rowOf(e.Server.Container)})
		id := live(edges, &b.edges, keyOfEdge(e)).id
		for j := range e.Endpoints {
			live(endpoints.planned, &b.endpoints, endpointKey{id, e.Endpoints[j].EndpointKey})
			endpoints.all = append(endpoints.all, liveEndpoint{&e.Endpoints[j], id})
		}
	}
	b.spareEndpoints = endpoints.all
	return edges, endpoints
}

func (b *Builder) fillEdge(d *draft, e *model.Edge, at int, containers *plannedContainers) {
	set := func(a Attribute, v uint64) { d.Attributes[a][d.row] = v }
	client, server := containers.ends[at][0], containers.ends[at][1]
	set(Sum, sumOf(b, Edges, &b.edges, b.edges.now[at], edgeKind{e.Side, e.Transport, containers.sums[client],
		containers.sums[server], addressOf(&e.Client), addressOf(&e.Server), e.Client.Process, e.Server.Process, e.Service,
		e.Via}))
	set(EdgeSide, uint64(e.Side))
	set(EdgeTransport, uint64(e.Transport))
	set(EdgeClient, uint64(client))
	set(EdgeClientAddress, b.texts.address(e.Client.Address))
	d.text(&b.texts, EdgeClientProcess, e.Client.Process)
	set(EdgeServer, uint64(server))
	set(EdgeServerAddress, b.texts.address(e.Server.Address))
	d.text(&b.texts, EdgeServerProcess, e.Server.Process)
	set(EdgeService, b.texts.addressPort(e.Service))
	set(EdgeBackend, b.texts.addressPort(e.Backend))
	d.text(&b.texts, EdgeVia, e.Via)
	set(EdgeStart, millis(e.Start))
	fillColumns(d, model.EdgeRows, e)
}

// text sets an attribute that is a text: most are what they were.
func (d *draft) text(t *texts, a Attribute, text string) {
	if d.before != nil && d.texts {
		if v := d.before.Attributes[a][d.at]; t.all[v] == text {
			d.Attributes[a][d.row] = v
			return
		}
	}
	d.Attributes[a][d.row] = t.id(text)
}

// addressOf is the address of an end that is in no container.
func addressOf(p *model.Peer) netip.Addr {
	if p.Container != nil {
		return netip.Addr{}
	}
	return p.Address
}

func (b *Builder) fillEndpoint(d *draft, e *liveEndpoint, at int, edges *Table) {
	set := func(a Attribute, v uint64) { d.Attributes[a][d.row] = v }
	edge, _ := edges.Find(e.edge)
	set(Sum, sumOf(b, Endpoints, &b.endpoints, b.endpoints.now[at],
		endpointKind{edges.Attributes[Sum][edge], e.EndpointKey}))
	set(EndpointEdge, uint64(e.edge))
	d.text(&b.texts, EndpointProtocol, string(e.Protocol))
	d.text(&b.texts, EndpointName, e.Name)
	d.text(&b.texts, EndpointStatus, e.Status)
	fillColumns(d, model.EndpointRows, e.Endpoint)
}

// summed makes the attributes of a row, which are those of the first row that it sums, those of a sum.
func (b *Builder) summed(d *draft, t TableID, id uint32) {
	set := func(a Attribute, v uint64) { d.Attributes[a][d.row] = v }
	set(State, Summed)
	set(Ended, 0)
	old := &b.before.Tables
	sumOf := func(table TableID, row uint64) uint64 {
		if i, ok := old[table].Find(uint32(row)); ok {
			return old[table].Attributes[Sum][i]
		}
		return OthersRow
	}
	set(Sum, uint64(id))
	if id == OthersRow {
		side := uint64(0)
		if t == Edges {
			side = d.Attributes[EdgeSide][d.row]
		}
		for a := Ended; int(a) < len(d.info.Attributes); a++ {
			set(a, 0)
		}
		if t == Edges {
			set(EdgeSide, side)
		}
		return
	}
	switch t {
	case Containers:
		for _, a := range []Attribute{ContainerKey, ContainerImage, ContainerPod, ContainerPodUID, ContainerStarted,
			ContainerPlacement} {
			set(a, 0)
		}
	case Edges:
		for _, end := range [][2]Attribute{{EdgeClient, EdgeClientAddress}, {EdgeServer, EdgeServerAddress}} {
			if row := d.Attributes[end[0]][d.row]; row != 0 {
				set(end[0], sumOf(Containers, row))
				set(end[1], 0)
			}
		}
		set(EdgeBackend, 0)
		set(EdgeStart, 0)
	case Endpoints:
		set(EndpointEdge, sumOf(Edges, d.Attributes[EndpointEdge][d.row]))
	case Labelled:
		set(LabelledOwner, sumOf(TableID(d.Attributes[LabelledTable][d.row]), d.Attributes[LabelledOwner][d.row]))
	}
}

func (b *Builder) makeAddresses(f *Frame, s *model.Snapshot, containers *plannedContainers) {
	var addresses, listeners, translations [][]uint64
	for i := range s.Containers {
		c := s.Containers[i].Container
		if c == nil || !c.Ended.IsZero() {
			continue
		}
		row := uint64(containers.rows[c.ID])
		for _, a := range c.Addresses {
			addresses = append(addresses, []uint64{row, b.texts.address(a)})
		}
		for _, l := range c.Listeners {
			listeners = append(listeners, []uint64{row, b.texts.addressPort(l)})
		}
	}
	for _, t := range s.Translations {
		translations = append(translations, []uint64{b.texts.address(t.Client), b.texts.addressPort(t.Dialled),
			b.texts.addressPort(t.Reached)})
	}
	f.Tables[Addresses], f.Tables[Listeners] = b.list(Addresses, addresses), b.list(Listeners, listeners)
	f.Tables[Translations] = b.list(Translations, translations)
}

func (b *Builder) makeFeatures(f *Frame, s *model.Snapshot) {
	var all [][]uint64
	for _, feature := range s.Self.Features {
		required := uint64(0)
		if feature.Required {
			required = 1
		}
		all = append(all, []uint64{b.texts.id(feature.Name), b.texts.id(feature.Purpose), b.texts.id(string(feature.State)),
			b.texts.id(feature.Reason), b.texts.id(feature.Remedy), required})
	}
	f.Tables[Features] = b.list(Features, all)
}
