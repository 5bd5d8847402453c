package region

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"outsight/internal/model"
)

// Figure is one number of a container or an edge.
type Figure struct {
	Metric *Metric
	// Count is in Metric.Per of its unit.
	Count uint64
	// Histogram of a metric that has one; it must not be changed.
	Histogram *model.Histogram
	// Less is what was taken away from Count, of a gauge that is a difference.
	Less uint64
	// datagrams is what Count is of an edge of UDP.
	datagrams uint64
	// sum says that Count is the sum of a histogram.
	sum bool
}

// IsHistogram says that the figure is a histogram, which is nil as long as nothing was counted in it.
func (f *Figure) IsHistogram() bool { return f.sum }

// Value is the number in the unit of its metric.
func (f *Figure) Value() float64 { return float64(f.Count) / float64(f.Metric.Per) }

// Figures are those of one container or edge by Metric.Series.
type Figures map[string]*Figure

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
	if f := e.Figures[InFlightSeries]; f != nil && e.Key.Transport == model.UDP {
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
	// Disks are those of a thorough reading alone, of a host that has them.
	HasDisks bool
	Disks    []DiskFigures
	// Endpoints are those of a thorough reading too.
	Endpoints []EndpointFigures
	// Restarted says that the host's agent is another one than at the reading before: all counters began anew.
	Restarted bool
	// Reads and Bytes are what was read for it.
	Reads int
	Bytes int64
}

// Collector reads the figures of one host again and again, and only what has changed of names and histograms. It knows
// records by what the control region says of them alone. It is for one goroutine.
type Collector struct {
	// Thorough is the time of whose readings the first looks for new records and reads histograms, which are most of what
	// there is to read; 0 has all do so. The others have all counters and no histograms.
	Thorough time.Duration

	reader     Reader
	control    *Control
	dictionary *Dictionary
	// histograms as they were read last, with the sum of then.
	histograms map[histogramKey]histogramState
	// looked is when the last thorough reading was; slots are as they were then.
	looked   time.Time
	thorough bool
	slots    map[uint32]slotOwner
	// edges, disks and endpoints are nil where the host has none; tables are those that there are.
	edges, disks, endpoints *table
	tables                  []*table
	sample                  *Sample
}

type histogramKey struct {
	region, index uint32
}

type histogramState struct {
	sum       uint64
	histogram *model.Histogram
}

// NewCollector reads by r. Nothing is read before Collect.
func NewCollector(r Reader) *Collector { return &Collector{reader: r} }

// Collect reads. After an error the next one begins anew.
func (c *Collector) Collect(ctx context.Context) (*Sample, error) {
	c.sample = &Sample{}
	if err := c.refresh(ctx); err != nil {
		c.control = nil
		return nil, err
	}
	s := c.sample
	s.Control, s.Dictionary = c.control, c.dictionary
	if err := c.collect(ctx); err != nil {
		c.control = nil
		return nil, err
	}
	return s, nil
}

// refresh reads control and dictionary where their generations say that they have changed, and how many records of tables
// have begun.
func (c *Collector) refresh(ctx context.Context) error {
	if c.control == nil {
		c.tables = nil
	}
	first, counts := make([]byte, headerBytes), asks(c.tables)
	if err := c.readAll(ctx, append([]Read{{Region: ControlID, Into: first}}, counts...)); err != nil {
		return fmt.Errorf("reading the control region: %w", err)
	}
	h, err := decodeHeader(first)
	if err != nil {
		return err
	}
	hear(c.tables, counts)
	if c.control == nil || c.control.Generation != h.Generation || c.control.EpochNS != h.EpochNS {
		before := c.control
		if c.control, err = ReadControl(ctx, counting{c}); err != nil {
			return err
		}
		if before == nil || before.EpochNS != c.control.EpochNS {
			c.sample.Restarted = before != nil
			c.dictionary, c.looked = nil, time.Time{}
			c.histograms = map[histogramKey]histogramState{}
		}
		if err := c.begin(ctx); err != nil {
			return err
		}
	}
	if c.dictionary == nil || c.dictionary.Generation != h.DictionaryGeneration {
		c.dictionary, err = ReadDictionary(ctx, counting{c})
		c.slots = nil
	}
	return err
}

// begin follows the tables of a control region that was read.
func (c *Collector) begin(ctx context.Context) error {
	c.edges, c.disks, c.endpoints, c.tables = c.tableOf(IndexEdge), c.tableOf(IndexDisk), c.tableOf(IndexEndpoint), nil
	for _, t := range []*table{c.edges, c.disks, c.endpoints} {
		if t != nil {
			c.tables = append(c.tables, t)
		}
	}
	counts := asks(c.tables)
	if err := c.readAll(ctx, counts); err != nil {
		return fmt.Errorf("reading how many records have begun: %w", err)
	}
	hear(c.tables, counts)
	return nil
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

// records are those of some indexes of a region.
type records struct {
	region *Region
	of     map[uint32][]byte
}

// readRecords reads the records of indexes, which are in order, neighbours at once.
func (c *Collector) readRecords(ctx context.Context, r *Region, indexes []uint32) (records, error) {
	size := uint64(r.RecordBytes) * uint64(r.Lanes)
	if uint64(len(indexes))*size > maxReading {
		return records{}, fmt.Errorf("reading the region %s: %w: %d times %d bytes", r.Name, ErrDamaged, len(indexes), size)
	}
	read := records{r, make(map[uint32][]byte, len(indexes))}
	ordered := r.field(RoleHead, "") != nil
	var reads []Read
	for at := 0; at < len(indexes); {
		end := at + 1
		for end < len(indexes) && indexes[end] == indexes[end-1]+1 {
			end++
		}
		first := uint64(indexes[at])
		if (first+uint64(end-at))*size > r.Bytes() {
			return read, fmt.Errorf("reading the region %s: %w: index %d", r.Name, ErrDamaged, indexes[end-1])
		}
		b := make([]byte, uint64(end-at)*size)
		reads = append(reads, Read{Region: r.ID, Offset: first * size, Into: b, Ordered: ordered})
		for k := range end - at {
			read.of[indexes[at+k]] = b[uint64(k)*size : uint64(k+1)*size]
		}
		at = end
	}
	if err := c.readAll(ctx, reads); err != nil {
		return read, fmt.Errorf("reading the region %s: %w", r.Name, err)
	}
	return read, nil
}

// collect reads the records of all regions that have metrics, and then the histograms whose sums have changed.
func (c *Collector) collect(ctx context.Context) error {
	of := make([]Figures, len(c.dictionary.Containers))
	for i := range of {
		of[i] = Figures{}
	}
	now := time.Now()
	if c.thorough = c.Thorough == 0 || now.Truncate(c.Thorough).After(c.looked.Truncate(c.Thorough)); c.thorough {
		c.looked = now
	}
	slots, err := c.readSlots(ctx)
	if err != nil {
		return err
	}
	places := map[uint32]Figures{} // figures by their index
	for i, one := range c.dictionary.Containers {
		if one.Figures != None {
			places[one.Figures] = of[i]
		}
	}
	bySlot := make(map[uint32]Figures, len(slots))
	for slot := range slots {
		bySlot[slot] = Figures{}
	}
	edges, byEdge, edgeRecords, err := c.readEdges(ctx)
	if err != nil {
		return err
	}
	disks, byDisk, diskRecords, err := c.readDisks(ctx)
	if err != nil {
		return err
	}
	endpoints, byEndpoint, endpointRecords, err := c.readEndpoints(ctx)
	if err != nil {
		return err
	}
	by := map[Index]map[uint32]Figures{IndexSlot: bySlot, IndexFigures: places, IndexEdge: byEdge, IndexDisk: byDisk,
		IndexEndpoint: byEndpoint}
	var wanted []wantedHistogram
	for i := range c.control.Regions {
		r := &c.control.Regions[i]
		into := by[r.Index]
		if len(into) == 0 || !r.counts() {
			continue
		}
		var read records
		switch r {
		case edgeRecords.region:
			read = edgeRecords
		case diskRecords.region:
			read = diskRecords
		case endpointRecords.region:
			read = endpointRecords
		default:
			if read, err = c.readRecords(ctx, r, slices.Sorted(maps.Keys(into))); err != nil {
				return err
			}
		}
		parts := r.parts()
		for index := range into {
			b := read.of[index]
			other := false
			switch r.Index {
			case IndexDisk:
				other = disks[index].Syncs
			case IndexEdge:
				e, there := edges[index]
				if !there {
					continue
				}
				if parts.generationOf(b, e.Generation) != e.Generation {
					delete(edges, index) // its place is another one's now
					continue
				}
				other = e.Key.Role == model.RoleServer
			}
			if b, err = c.consistent(ctx, r, &parts, index, b); err != nil {
				return err
			}
			if b != nil {
				wanted = c.add(into[index], r, &parts, index, b, other, wanted)
			}
		}
	}
	if c.thorough {
		if err := c.readHistograms(ctx, wanted); err != nil {
			return err
		}
	}
	if err := c.addGroups(ctx, slots, bySlot, of); err != nil {
		return err
	}
	for i, one := range c.dictionary.Containers {
		c.sample.Containers = append(c.sample.Containers, ContainerFigures{one, of[i]})
	}
	if c.edges != nil {
		for _, index := range c.edges.used {
			if e, there := edges[index]; there {
				e.Figures = byEdge[index]
				e.waiting()
				c.sample.Edges = append(c.sample.Edges, *e)
			}
		}
	}
	c.sample.HasDisks = diskRecords.region != nil
	for _, index := range slices.Sorted(maps.Keys(disks)) {
		d := disks[index]
		d.Figures = byDisk[index]
		c.sample.Disks = append(c.sample.Disks, *d)
	}
	for _, index := range slices.Sorted(maps.Keys(endpoints)) {
		e := endpoints[index]
		e.Figures = byEndpoint[index]
		e.countTimed()
		c.sample.Endpoints = append(c.sample.Endpoints, *e)
	}
	return nil
}

// addGroups adds the figures of control groups to those of their containers, where the slots are still theirs.
func (c *Collector) addGroups(ctx context.Context, slots map[uint32]slotOwner, figures map[uint32]Figures,
	of []Figures) error {
	r, owner := c.directory(IndexSlot)
	if r == nil {
		return nil
	}
	used := slices.Sorted(maps.Keys(slots))
	now, err := c.readRecords(ctx, r, used)
	if err != nil {
		return err
	}
	for _, slot := range used {
		is := slots[slot]
		if model.CgroupID(owner.number(now.of[slot], 0)) != is.id {
			continue
		}
		c.sample.Groups = append(c.sample.Groups, GroupFigures{is.id, is.container, figures[slot]})
		of[is.container].add(figures[slot])
	}
	return nil
}

// add adds other figures up to them.
func (f Figures) add(other Figures) {
	for series, more := range other {
		to := f[series]
		if to == nil {
			sum := *more
			f[series] = &sum
			continue
		}
		to.Count += more.Count
		to.Histogram = merged(to.Histogram, more.Histogram)
	}
}

// merged is the sum of two histograms, which stay as they are. Either may be nil.
func merged(a, b *model.Histogram) *model.Histogram {
	if a == nil || b == nil {
		return cmp.Or(a, b)
	}
	sum := a.Clone()
	sum.Merge(b)
	return sum
}

// counts reports whether a region has metrics.
func (r *Region) counts() bool {
	return slices.ContainsFunc(r.Fields, func(f Field) bool { return f.Metric >= 0 })
}

// field is one by its role, or with a name by that; nil if there is none.
func (r *Region) field(role Role, name string) *Field {
	for i := range r.Fields {
		if f := &r.Fields[i]; f.Role == role && (name == "" || f.Name == name) {
			return f
		}
	}
	return nil
}

// directory is the region that says which records of an index have an owner.
func (c *Collector) directory(of Index) (*Region, *Field) {
	for i := range c.control.Regions {
		if r := &c.control.Regions[i]; r.Index == of {
			if f := r.field(RoleOwner, ""); f != nil {
				return r, f
			}
		}
	}
	return nil, nil
}

// slotOwner is whose a slot is: a control group, of a container by its index.
type slotOwner struct {
	id        model.CgroupID
	container int
}

// readSlots finds those of the control groups of known containers.
func (c *Collector) readSlots(ctx context.Context) (map[uint32]slotOwner, error) {
	if c.slots != nil && !c.thorough {
		return c.slots, nil
	}
	r, owner := c.directory(IndexSlot)
	found := map[uint32]slotOwner{}
	if r == nil {
		return found, nil
	}
	if r.Bytes() > maxReading {
		return nil, fmt.Errorf("reading the region %s: %w: %d bytes", r.Name, ErrDamaged, r.Bytes())
	}
	all := make([]byte, r.Bytes())
	if err := c.read(ctx, r.ID, 0, all); err != nil {
		return nil, fmt.Errorf("reading the region %s: %w", r.Name, err)
	}
	for slot := range r.Records {
		id := model.CgroupID(owner.number(all[slot*r.RecordBytes:], 0))
		if container, known := c.dictionary.Groups[id]; known && id != 0 {
			found[slot] = slotOwner{id, container}
		}
	}
	c.slots = found
	return found, nil
}

// readEdges finds the edges that there are, and reads who they are.
func (c *Collector) readEdges(ctx context.Context) (map[uint32]*EdgeFigures, map[uint32]Figures, records, error) {
	found, figures := map[uint32]*EdgeFigures{}, map[uint32]Figures{}
	if c.edges == nil {
		return found, figures, records{}, nil
	}
	read, err := c.look(ctx, c.edges)
	if err != nil {
		return nil, nil, records{}, err
	}
	r := c.edges.region
	parts, keys := r.parts(), r.keys()
	for _, index := range c.edges.used {
		b := read.of[index]
		e := &EdgeFigures{Index: index, Key: keys.read(b), Generation: parts.generationOf(b, 0)}
		found[index], figures[index] = e, Figures{}
	}
	return found, figures, read, nil
}

// recordParts are the fields of a region's records that say something of the whole record; nil where there is none.
type recordParts struct{ head, tail, generation, known *Field }

func (r *Region) parts() recordParts {
	return recordParts{r.field(RoleHead, ""), r.field(RoleTail, ""), r.field(RoleGeneration, ""), r.field(RoleKnown, "")}
}

// generationOf a record; otherwise where the region's records have none.
func (p *recordParts) generationOf(b []byte, otherwise uint32) uint32 {
	if p.generation != nil {
		return uint32(p.generation.number(b, 0))
	}
	return otherwise
}

// edgeKeys are the fields of the keys of edges, by their names.
type edgeKeys map[string]*Field

func (r *Region) keys() edgeKeys {
	keys := edgeKeys{}
	for i := range r.Fields {
		if name, of := strings.CutPrefix(r.Fields[i].Name, "key."); of && r.Fields[i].Role == RoleKey {
			keys[name] = &r.Fields[i]
		}
	}
	return keys
}

func (keys edgeKeys) read(b []byte) (k model.KernelEdgeKey) {
	number := func(name string) uint64 {
		if f := keys[name]; f != nil {
			return f.number(b, 0)
		}
		return 0
	}
	address := func(name string) netip.Addr {
		if f := keys[name]; f != nil && f.Type == TypeAddress {
			return netip.AddrFrom16([16]byte(b[f.Offset:])).Unmap()
		}
		return netip.Addr{}
	}
	name := func(name string) string {
		if f := keys[name]; f != nil && f.Type == TypeText {
			return textOf(b[f.Offset : f.Offset+uint32(f.Count)])
		}
		return ""
	}
	k = model.KernelEdgeKey{Owner: model.CgroupID(number("owner")), Peer: model.CgroupID(number("peer")),
		NetNS: uint32(number("netns")), Role: model.Role(number("role")), Transport: model.Transport(number("transport")),
		Others: number("others") != 0, Client: address("client"), Process: name("process"),
		PeerProcess: name("peer_process"), Forwarder: number("forwarder") == 1, Forwarded: number("forwarder") == 2}
	if !k.Others {
		k.Service = netip.AddrPortFrom(address("service"), uint16(number("port")))
	}
	if port := uint16(number("far_port")); port != 0 {
		k.Far = netip.AddrPortFrom(address("far"), port)
	}
	if k.Client == netip.IPv6Unspecified() {
		k.Client = netip.Addr{}
	}
	return k
}

// consistent is a record whose head and tail are equal, nil where its owner is gone.
func (c *Collector) consistent(ctx context.Context, r *Region, parts *recordParts, index uint32, b []byte) ([]byte, error) {
	head, tail := parts.head, parts.tail
	if head == nil || tail == nil {
		return b, nil
	}
	for range attempts {
		if head.number(b, 0) == tail.number(b, 0) {
			return b, nil
		}
		read, err := c.readRecords(ctx, r, []uint32{index})
		if err != nil {
			return nil, err
		}
		b = read.of[index]
	}
	return nil, fmt.Errorf("reading the region %s: %w: index %d", r.Name, ErrBusy, index)
}

type wantedHistogram struct {
	key  histogramKey
	sum  uint64
	into *Figure
	r    *Region
}

// add adds the numbers of one index, of all of its lanes, to figures. other says that its record is of the kind whose
// metrics are Field.ServerMetric. It answers the histograms that they are sums of.
func (c *Collector) add(figures Figures, r *Region, parts *recordParts, index uint32, b []byte, other bool,
	wanted []wantedHistogram) []wantedHistogram {
	known := ^uint32(0)
	if parts.known != nil {
		known = uint32(parts.known.number(b, 0)) & c.control.TrustedFigures
	}
	all := make([]Figure, 0, len(r.Fields)) // at once
	for i := range r.Fields {
		f := &r.Fields[i]
		metric := f.Metric
		if other {
			metric = f.ServerMetric
		}
		if metric < 0 || known&f.Mask != f.Mask {
			continue
		}
		var n uint64
		for lane := range r.Lanes {
			n += f.number(b[lane*r.RecordBytes:], 0)
		}
		m := &c.control.Metrics[metric]
		to := figures[m.Series()]
		if to == nil {
			all = append(all, Figure{Metric: m})
			to = &all[len(all)-1]
			figures[m.Series()] = to
		}
		switch f.Role {
		case RoleCounter, RoleGauge:
			to.Count += n
		case RoleLess:
			to.Less += n
			to.Count -= min(n, to.Count)
		case RoleDatagrams:
			to.datagrams += n
		case RoleSum:
			to.Count += n
			to.sum = true
			at, pool := index, c.region(f.Refers)
			if f.Via != None && uint64(f.Via)+4 <= uint64(len(b)) {
				at = binary.LittleEndian.Uint32(b[f.Via:])
			}
			if pool == nil || f.Via != None && at == 0 {
				continue
			}
			wanted = append(wanted, wantedHistogram{histogramKey{pool.ID, at}, n, to, pool})
		default:
			delete(figures, m.Series())
		}
	}
	return wanted
}

func (c *Collector) region(id uint32) *Region {
	for i := range c.control.Regions {
		if c.control.Regions[i].ID == id {
			return &c.control.Regions[i]
		}
	}
	return nil
}

// readHistograms reads those whose sums have changed, and adds all to their figures.
func (c *Collector) readHistograms(ctx context.Context, wanted []wantedHistogram) error {
	changed := map[*Region][]uint32{}
	for _, w := range wanted {
		if state, known := c.histograms[w.key]; !known || state.sum != w.sum {
			changed[w.r] = append(changed[w.r], w.key.index)
		}
	}
	read := map[uint32]records{}
	for r, indexes := range changed {
		slices.Sort(indexes)
		got, err := c.readRecords(ctx, r, slices.Compact(indexes))
		if err != nil {
			return err
		}
		read[r.ID] = got
	}
	for _, w := range wanted {
		state, known := c.histograms[w.key]
		if !known || state.sum != w.sum {
			cells := w.r.field(RoleCells, "")
			if cells == nil || cells.Count != model.HistogramCells || cells.Type != TypeU64 {
				continue // a histogram of a kind that this program does not know
			}
			state = histogramState{w.sum, model.HistogramOfCells(cells.sum(w.r, read[w.r.ID].of[w.key.index]), w.sum)}
			c.histograms[w.key] = state
		}
		w.into.Histogram = merged(w.into.Histogram, state.histogram)
	}
	return nil
}

// sum adds the values of a field up over the lanes of an index.
func (f *Field) sum(r *Region, b []byte) []uint64 {
	all := make([]uint64, f.Count)
	for lane := range r.Lanes {
		for i := range all {
			all[i] += f.number(b[lane*r.RecordBytes:], i)
		}
	}
	return all
}

// number is the value with number i of a field; 0 where its type has none.
func (f *Field) number(record []byte, i int) uint64 {
	at := int(f.Offset) + i*f.Type.size()
	switch f.Type {
	case TypeU64, TypeS64:
		return binary.LittleEndian.Uint64(record[at:])
	case TypeU32:
		return uint64(binary.LittleEndian.Uint32(record[at:]))
	case TypeU16:
		return uint64(binary.LittleEndian.Uint16(record[at:]))
	case TypeU8:
		return uint64(record[at])
	}
	return 0
}
