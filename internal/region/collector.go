package region

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"outsight/internal/model"
)

// ContainerFigures are those of a container, of its control groups that there are.
type ContainerFigures struct {
	Container
	Figures Figures
}

// EdgeFigures are those of an edge at one end.
type EdgeFigures struct {
	// Index of the edge, and the generation of its record.
	Index, Generation uint32
	Key               model.KernelEdgeKey
	Figures           Figures
}

// InFlightSeries is the gauge of edges whose Figure.Less is told.
const InFlightSeries = "outsight_edge_requests_in_flight"

// waiting corrects the requests in flight of UDP: those that will have no reply are not in flight for ever.
func (e *EdgeFigures) waiting() {
	if e.Key.Transport != model.UDP {
		return
	}
	if f := e.Figures.Of(InFlightSeries); f != nil {
		begun := f.Count + f.Less
		f.Count = min(f.datagrams, begun)
		f.Less = begun - f.Count
	}
}

// GroupFigures are those of a control group that there is, without what the figures of its container say.
type GroupFigures struct {
	ID model.CgroupID
	// Container is the index of its container in Dictionary.Containers.
	Container int
	Figures   Figures
}

// Sample is what a host's regions said at one reading.
type Sample struct {
	Control    *Control
	Dictionary *Dictionary
	// Containers have the sums of their Groups.
	Containers []ContainerFigures
	Groups     []GroupFigures
	Edges      []EdgeFigures
	// Disks are those of a thorough reading alone, of a host that has them (HasDisks), as are Endpoints.
	HasDisks  bool
	Disks     []DiskFigures
	Endpoints []EndpointFigures
	// HasApplications says that applications' own metrics were read, ApplicationsError why they could not be; neither is set
	// of a host that has none, and of a reading that is not thorough. ApplicationsRefused is how many were none that may be, or
	// too many, and ApplicationsLeftOut how many the host had no room for.
	HasApplications                          bool
	Applications                             []ApplicationFigure
	ApplicationsError                        error
	ApplicationsRefused, ApplicationsLeftOut int
	// Restarted says that the host's agent is another one than at the reading before: all counters began anew.
	Restarted bool
	// Reads and Bytes are what was read for it.
	Reads int
	Bytes int64
}

// Collector reads the figures of one host again and again, and only what has changed of names and histograms. It knows
// records by what the control region says of them alone. It is for one goroutine.
//
// Whose a record is stands in one place and its figures in others, so a reading has two parts. The first are the figures
// of those that were known before, the second, which is read when the first is there, says whether they still are the
// same: so no figure counts for another than its own, in whatever order the parts of a read come.
//
// A Sample is the caller's until the reading begins that follows the next one that succeeds: that one uses its memory.
type Collector struct {
	// Thorough is the time of whose readings the first looks for new records and reads histograms, which are most of what
	// there is to read; 0 has all do so. The others have all counters and no histograms.
	Thorough time.Duration

	reader     Reader
	control    *Control
	plan       *plan
	dictionary *Dictionary
	// seen is the control region's header when control and dictionary were read.
	seen header
	// histograms as they were read last, with the sum of then.
	histograms map[histogramKey]histogramState
	// looked is when the last thorough reading began.
	looked time.Time
	// slots and edges are those that are known, in order. wanted is what is read of them, nil where it has to be found anew.
	slots  []slotOwner
	edges  []knownEdge
	wanted *wantedRecords
	// memories are of the reading that goes on, and of the one that succeeded last.
	memories [2]*readingMemory
	// edgeTable, disks and endpoints are nil where the host has none.
	edgeTable        *table
	disks, endpoints *numbered
	applications     *applications
	sample           *Sample
}

// slotOwner is whose a slot is: a control group, of a container by its index.
type slotOwner struct {
	slot      uint32
	id        model.CgroupID
	container int
}

// knownEdge is an edge as its record said when it was found.
type knownEdge struct {
	index, generation uint32
	key               model.KernelEdgeKey
}

func (e knownEdge) at() uint32 { return e.index }

type histogramKey struct {
	region, index uint32
}

type histogramState struct {
	sum       uint64
	histogram *model.Histogram
}

// NewCollector reads by r. Nothing is read before Collect.
func NewCollector(r Reader) *Collector {
	return &Collector{reader: r, memories: [2]*readingMemory{{}, {}}}
}

// Collect reads. After an error the next one begins anew.
func (c *Collector) Collect(ctx context.Context) (*Sample, error) {
	m := c.memories[0]
	m.begin()
	c.sample = &m.sample
	err := c.collect(ctx)
	if err != nil {
		c.control = nil
		return nil, err
	}
	c.sample.Control, c.sample.Dictionary = c.control, c.dictionary
	c.memories = [2]*readingMemory{c.memories[1], m}
	return c.sample, nil
}

func (c *Collector) collect(ctx context.Context) error {
	now := time.Now()
	for attempt := range attempts {
		if c.control == nil {
			if err := c.refresh(ctx); err != nil {
				return err
			}
		}
		thorough := c.Thorough == 0 || now.Truncate(c.Thorough).After(c.looked.Truncate(c.Thorough))
		if err := c.find(ctx, thorough); err != nil {
			return err
		}
		same, err := c.readFigures(ctx, thorough, attempt == 0)
		if errors.Is(err, errBegun) {
			continue
		}
		if err != nil {
			return err
		}
		if same {
			if thorough {
				c.looked = now
				c.readApplications(ctx)
			}
			return nil
		}
		if err := c.refresh(ctx); err != nil {
			return err
		}
	}
	return fmt.Errorf("reading the control region: %w", ErrBusy)
}

// errBegun says that records have begun since the last look for such, which is to be made at once.
var errBegun = errors.New("records have begun")

// tables are those of the host.
func (c *Collector) tables() (all []*table) {
	if c.edgeTable != nil {
		all = append(all, c.edgeTable)
	}
	for _, n := range []*numbered{c.disks, c.endpoints} {
		if n != nil {
			all = append(all, n.table)
		}
	}
	return all
}

// refresh reads control and dictionary where their generations say that they have changed.
func (c *Collector) refresh(ctx context.Context) error {
	first := make([]byte, headerBytes)
	if err := c.read(ctx, ControlID, 0, first); err != nil {
		return fmt.Errorf("reading the control region: %w", err)
	}
	h, err := decodeHeader(first)
	if err != nil {
		return err
	}
	if c.control == nil || c.control.Generation != h.Generation || c.control.EpochNS != h.EpochNS {
		before := c.control
		if c.control, err = ReadControl(ctx, counting{c}); err != nil {
			return err
		}
		c.plan, c.wanted = newPlan(c.control), nil
		c.edges, c.edgeTable = nil, tableOf(c.control, IndexEdge)
		c.disks, c.endpoints = newNumbered(c.control, IndexDisk), newNumbered(c.control, IndexEndpoint)
		c.applications = applicationsOf(c.control)
		if before == nil || before.EpochNS != c.control.EpochNS {
			c.sample.Restarted = c.sample.Restarted || before != nil
			c.dictionary, c.slots, c.looked = nil, nil, time.Time{}
			c.histograms = map[histogramKey]histogramState{}
		}
	}
	if c.dictionary == nil || c.dictionary.Generation != h.DictionaryGeneration {
		c.dictionary, err = ReadDictionary(ctx, counting{c})
		c.slots, c.wanted = nil, nil
		if c.applications != nil {
			c.applications.known = nil // its containers have other places
		}
	}
	c.seen = h
	return err
}

// counting counts what a Collector reads.
type counting struct{ *Collector }

func (c counting) Read(ctx context.Context, region uint32, offset uint64, into []byte) error {
	return c.read(ctx, region, offset, into)
}

func (c counting) ReadAll(ctx context.Context, reads []Read) error { return c.readAll(ctx, reads) }

func (c *Collector) read(ctx context.Context, region uint32, offset uint64, into []byte) error {
	return c.readAll(ctx, []Read{{Region: region, Offset: offset, Into: into}})
}

func (c *Collector) readAll(ctx context.Context, reads []Read) error {
	if len(reads) == 0 {
		return nil
	}
	c.sample.Reads += len(reads)
	for _, r := range reads {
		c.sample.Bytes += int64(len(r.Into))
	}
	return c.reader.ReadAll(ctx, reads)
}

// find looks for slots that are in use, where that is due, and for records that have begun.
func (c *Collector) find(ctx context.Context, thorough bool) error {
	if c.slots == nil || thorough {
		if err := c.findSlots(ctx); err != nil {
			return err
		}
	}
	if err := c.findEdges(ctx, thorough); err != nil {
		return err
	}
	if thorough {
		if err := c.disks.find(ctx, c); err != nil {
			return err
		}
		if err := c.endpoints.find(ctx, c); err != nil {
			return err
		}
	}
	if c.wanted != nil {
		return nil
	}
	var err error
	c.wanted, err = c.want()
	return err
}

// findSlots finds those of the control groups of known containers.
func (c *Collector) findSlots(ctx context.Context) error {
	found := []slotOwner{}
	if d := c.plan.slots; d != nil {
		all, err := c.readWhole(ctx, d.region)
		if err != nil {
			return err
		}
		for slot := range d.region.Records {
			id := model.CgroupID(d.owner.number(all[slot*d.region.RecordBytes:], 0))
			if container, known := c.dictionary.Groups[id]; known && id != 0 {
				found = append(found, slotOwner{slot, id, container})
			}
		}
	}
	if c.slots == nil || !slices.Equal(found, c.slots) {
		c.slots, c.wanted = found, nil
	}
	return nil
}

// findEdges finds those that have begun, and reads who they are.
func (c *Collector) findEdges(ctx context.Context, thorough bool) error {
	t := c.edgeTable
	if t == nil {
		return nil
	}
	began, err := c.recordsThatBegan(ctx, t, thorough)
	if err != nil || len(began) == 0 {
		return err
	}
	c.edges, c.wanted = withBegun(c.edges, began, func(index uint32, b []byte) knownEdge {
		return knownEdge{index, t.parts.generationOf(b), t.keys.edge(b)}
	}), nil
	return nil
}

// numberedThatStayed are empty figures of disks and endpoints, nil in the place of those that are others than before.
func (c *Collector) numberedThatStayed(w *wantedRecords, thorough bool) (map[Index][]Figures, error) {
	if !thorough {
		return nil, nil
	}
	all := map[Index][]Figures{}
	for index, n := range map[Index]*numbered{IndexDisk: c.disks, IndexEndpoint: c.endpoints} {
		if n == nil {
			continue
		}
		of := w.disks.of
		if index == IndexEndpoint {
			of = w.endpoints.of
		}
		all[index] = make([]Figures, len(of))
		for i, same := range n.stayed(c, of) {
			shape := &c.plan.endpoint
			if index == IndexDisk {
				if shape = &c.plan.disk; n.table.isOfSyncs(of[i]) {
					shape = &c.plan.syncs
				}
			}
			if !same {
				continue
			}
			one, err := shape.figures(c.memories[0], 1)
			if err != nil {
				return nil, err
			}
			all[index][i] = one[0]
		}
	}
	return all, nil
}

// addNumbered adds disks and endpoints to the sample.
func (c *Collector) addNumbered(w *wantedRecords, figures map[Index][]Figures) {
	c.sample.HasDisks = figures[IndexDisk] != nil
	for i, f := range figures[IndexDisk] {
		if f != nil {
			d := c.disks.table.disk(w.disks.of[i])
			d.Figures = f.known()
			c.sample.Disks = append(c.sample.Disks, d)
		}
	}
	for i, f := range figures[IndexEndpoint] {
		if f != nil {
			e := c.endpoints.table.endpoint(w.endpoints.of[i])
			e.Figures = f.known()
			e.countTimed()
			c.sample.Endpoints = append(c.sample.Endpoints, e)
		}
	}
}

// readWhole reads all records of a region.
func (c *Collector) readWhole(ctx context.Context, r *Region) ([]byte, error) {
	if r.Bytes() > maxReading {
		return nil, fmt.Errorf("reading the region %s: %w: %d bytes", r.Name, ErrDamaged, r.Bytes())
	}
	all := make([]byte, r.Bytes())
	if err := c.read(ctx, r.ID, 0, all); err != nil {
		return nil, fmt.Errorf("reading the region %s: %w", r.Name, err)
	}
	return all, nil
}

// readFigures reads all counters, and what they are of. same is false where the control region or the dictionary is not
// the one any more by which that was known. The error is errBegun where records have begun that are not known, and first
// is set.
func (c *Collector) readFigures(ctx context.Context, thorough, first bool) (same bool, err error) {
	w, m := c.wanted, c.memories[0]
	reads := w.usual
	if thorough {
		reads = w.all
	}
	if err := c.readAll(ctx, reads); err != nil {
		return false, fmt.Errorf("reading figures, and whose they are: %w", err)
	}
	for _, one := range w.counts {
		one.table.counted = binary.LittleEndian.Uint64(one.into)
		if first && !one.table.isKnown() && (thorough || one.table == c.edgeTable) {
			err = errBegun
		}
	}
	if err != nil {
		return false, err
	}
	h, err := decodeHeader(w.header)
	if err != nil || h.Generation != c.seen.Generation || h.EpochNS != c.seen.EpochNS ||
		h.DictionaryGeneration != c.seen.DictionaryGeneration {
		return false, err
	}
	groups, err1 := c.plan.containers.figures(m, len(c.slots))
	containers, err2 := c.plan.containers.figures(m, len(c.dictionary.Containers))
	edges, err3 := c.edgesThatStayed()
	if err := errors.Join(err1, err2, err3); err != nil {
		return false, err
	}
	numbered, err := c.numberedThatStayed(w, thorough)
	if err != nil {
		return false, err
	}
	var histograms []wantedHistogram
	for i := range w.records {
		if w.records[i].thorough && !thorough {
			continue
		}
		if histograms, err = c.add(ctx, &w.records[i], groups, containers, edges, numbered, thorough, histograms); err != nil {
			return false, err
		}
	}
	if err := c.readHistograms(ctx, histograms); err != nil {
		return false, err
	}
	c.addGroups(w, groups, containers)
	for i, one := range c.dictionary.Containers {
		c.sample.Containers = append(c.sample.Containers, ContainerFigures{one, containers[i].known()})
	}
	for _, e := range edges {
		if e != nil {
			e.Figures = e.Figures.known()
			e.waiting()
			c.sample.Edges = append(c.sample.Edges, *e)
		}
	}
	c.addNumbered(w, numbered)
	return true, nil
}

// edgesThatStayed are the known edges whose records are still theirs, without their figures; nil in the place of others.
// Edges that have taken the places of others are known from now on.
func (c *Collector) edgesThatStayed() ([]*EdgeFigures, error) {
	d, w, m := c.edgeTable, c.wanted, c.memories[0]
	if d == nil {
		return nil, nil
	}
	var client, server int
	m.stayed, m.edges = slices.Grow(m.stayed[:0], len(c.edges)), slices.Grow(m.edges[:0], len(c.edges))
	for i, e := range c.edges {
		b := w.edges.of[i]
		var stays *EdgeFigures
		if d.owner.number(b, 0) != 0 && d.isSame(e, b) {
			m.edges = append(m.edges, EdgeFigures{Index: e.index, Key: e.key, Generation: e.generation})
			stays = &m.edges[len(m.edges)-1]
			if e.key.Role == model.RoleServer {
				server++
			} else {
				client++
			}
		}
		m.stayed = append(m.stayed, stays)
	}
	ofClients, err1 := c.plan.client.figures(m, client)
	ofServers, err2 := c.plan.server.figures(m, server)
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	for i := range m.edges {
		e, from := &m.edges[i], &ofClients
		if e.Key.Role == model.RoleServer {
			from = &ofServers
		}
		e.Figures, *from = (*from)[0], (*from)[1:]
	}
	if slices.Contains(m.stayed, nil) {
		c.forgetEdges()
	}
	return m.stayed, nil
}

// isSame says that a record is still an edge's.
func (t *table) isSame(e knownEdge, b []byte) bool {
	if t.parts.generation != nil {
		return t.parts.generationOf(b) == e.generation
	}
	return t.keys.edge(b) == e.key
}

// forgetEdges forgets those that have ended, and knows those that have taken the places of others.
func (c *Collector) forgetEdges() {
	d, left := c.edgeTable, c.edges[:0:0]
	for i, e := range c.edges {
		b := c.wanted.edges.of[i]
		if d.owner.number(b, 0) == 0 {
			continue
		}
		if !d.isSame(e, b) {
			e = knownEdge{e.index, d.parts.generationOf(b), d.keys.edge(b)}
		}
		left = append(left, e)
	}
	c.edges, c.wanted = left, nil
}

// add adds the figures of the records of a region to those of whom they are of. It answers the histograms that they are
// sums of, if the reading is to have them.
func (c *Collector) add(ctx context.Context, of *wantedRegion, groups, containers []Figures, edges []*EdgeFigures,
	numbered map[Index][]Figures, thorough bool, histograms []wantedHistogram) ([]wantedHistogram, error) {
	for i, b := range of.of {
		to, fields := Figures(nil), of.plan.fields
		switch of.plan.region.Index {
		case IndexSlot:
			to = groups[i]
		case IndexFigures:
			to = containers[of.owners[i]]
		case IndexEdge:
			e := edges[i]
			if e == nil {
				continue
			}
			if of.plan.parts.generation != nil && of.plan.parts.generationOf(b) != e.Generation {
				edges[i] = nil // its place is another one's now
				continue
			}
			if to = e.Figures; e.Key.Role == model.RoleServer {
				fields = of.plan.other
			}
		case IndexDisk, IndexEndpoint:
			if to = numbered[of.plan.region.Index][i]; to == nil {
				continue
			}
			if of.plan.region.Index == IndexDisk && c.disks.table.isOfSyncs(b) {
				fields = of.plan.other
			}
		}
		b, err := c.consistent(ctx, of, i, b)
		if err != nil {
			return nil, err
		}
		of.plan.add(to, fields, b, of.plan.parts.knownOf(b, c.control.TrustedFigures))
		if thorough {
			histograms = of.plan.histograms(histograms, to, fields, of.indexes[i], b)
		}
	}
	return histograms, nil
}

// addGroups adds the figures of control groups to those of their containers, where the slots are still theirs.
func (c *Collector) addGroups(w *wantedRecords, groups, containers []Figures) {
	d := c.plan.slots
	for i, is := range c.slots {
		if model.CgroupID(d.owner.number(w.slots.of[i], 0)) != is.id {
			continue
		}
		containers[is.container].add(groups[i])
		c.sample.Groups = append(c.sample.Groups, GroupFigures{is.id, is.container, groups[i].known()})
	}
}

// consistent is a record whose head and tail are equal.
func (c *Collector) consistent(ctx context.Context, of *wantedRegion, i int, b []byte) ([]byte, error) {
	head, tail := of.plan.parts.head, of.plan.parts.tail
	if head == nil || tail == nil {
		return b, nil
	}
	for range attempts {
		if head.number(b, 0) == tail.number(b, 0) {
			return b, nil
		}
		again, err := recordsOf(of.region, of.indexes[i:i+1])
		if err == nil {
			err = c.readAll(ctx, again.reads)
		}
		if err != nil {
			return nil, fmt.Errorf("reading the region %s: %w", of.region.Name, err)
		}
		b = again.of[0]
	}
	return nil, fmt.Errorf("reading the region %s: %w: index %d", of.region.Name, ErrBusy, of.indexes[i])
}
