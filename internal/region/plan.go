package region

import (
	"encoding/binary"
	"fmt"
)

// plan says where the figures of the records of all regions go. It follows from the control region alone, so that a
// reading looks no field up by its name.
type plan struct {
	// counting are the regions that have metrics, by their index.
	counting map[Index][]*recordPlan
	// containers, and edges of a client's and of a server's end, have figures of these metrics, in this order.
	containers, client, server shape
	// disk, syncs and endpoint are the same of these.
	disk, syncs, endpoint shape
	// slots is the region that says which of its records are in use, nil where there is none.
	slots *directory
}

// shape are the metrics of one kind of container or edge.
type shape struct {
	// empty are the figures before anything is read.
	empty Figures
	// places are where they are, by their series.
	places map[string]int
}

// directory is a region with a field that says whether a record is in use.
type directory struct {
	region *Region
	owner  *Field
	parts  recordParts
	keys   recordKeys
}

// recordPlan says where the fields of a region's records go.
type recordPlan struct {
	region *Region
	parts  recordParts
	// fields are those that have metrics; in the records of a server's end of an edge, and of synchronised files, they are
	// other.
	fields, other []fieldPlan
}

// fieldPlan says that a field is a part of the figure with number place.
type fieldPlan struct {
	*Field
	place int
	// pool has the histogram of a sum.
	pool *Region
}

// recordParts are the fields of a region's records that say something of the whole record; nil where there is none.
type recordParts struct{ head, tail, generation, known *Field }

// newPlan is the plan of what a control region says.
func newPlan(c *Control) *plan {
	p := &plan{counting: map[Index][]*recordPlan{}, slots: directoryOf(c, IndexSlot)}
	for i := range c.Regions {
		r := &c.Regions[i]
		of := &recordPlan{region: r, parts: r.parts()}
		switch r.Index {
		case IndexSlot, IndexFigures:
			of.fields = p.containers.place(c, r, func(f *Field) int { return f.Metric })
		case IndexEdge:
			of.fields = p.client.place(c, r, func(f *Field) int { return f.Metric })
			of.other = p.server.place(c, r, func(f *Field) int { return f.ServerMetric })
		case IndexDisk:
			of.fields = p.disk.place(c, r, func(f *Field) int { return f.Metric })
			of.other = p.syncs.place(c, r, func(f *Field) int { return f.ServerMetric })
		case IndexEndpoint:
			of.fields = p.endpoint.place(c, r, func(f *Field) int { return f.Metric })
		}
		if len(of.fields) > 0 {
			p.counting[r.Index] = append(p.counting[r.Index], of)
		}
	}
	return p
}

// place gives each field of a region that has a metric its place among figures.
func (s *shape) place(c *Control, r *Region, metric func(*Field) int) (all []fieldPlan) {
	for i := range r.Fields {
		field := &r.Fields[i]
		at := metric(field)
		if at < 0 || !field.Type.isNumber() || !field.Role.isFigure() {
			continue
		}
		one := fieldPlan{Field: field, place: s.placeOf(&c.Metrics[at])}
		if field.Role == RoleSum {
			s.empty[one.place].sum = true
			if pool := c.region(field.Refers); pool != nil && (field.Via == None || uint64(field.Via)+4 <= uint64(r.RecordBytes)) {
				one.pool = pool
			}
		}
		all = append(all, one)
	}
	return all
}

func (s *shape) placeOf(m *Metric) int {
	at, known := s.places[m.Series()]
	if !known {
		if s.places == nil {
			s.places = map[string]int{}
		}
		at = len(s.empty)
		s.places[m.Series()] = at
		s.empty = append(s.empty, Figure{Metric: m})
	}
	return at
}

// maxFigures is of how many figures a reading is at most.
const maxFigures = 1 << 24

// figures are empty ones of n containers or edges.
func (s *shape) figures(m *readingMemory, n int) ([]Figures, error) {
	each := len(s.empty)
	if n*each > maxFigures {
		return nil, fmt.Errorf("%w: %d times %d figures", ErrDamaged, n, each)
	}
	room, all := Figures(m.figures.take(n*each)), m.lists.take(n)
	for i := range all {
		all[i] = room[i*each : (i+1)*each : (i+1)*each]
		copy(all[i], s.empty)
	}
	return all, nil
}

// add adds the numbers of one index, of all of its lanes, to figures. known are the bits of the figures that are there.
func (p *recordPlan) add(to Figures, fields []fieldPlan, b []byte, known uint32) {
	for i := range fields {
		f := &fields[i]
		if known&f.Mask != f.Mask {
			continue
		}
		figure, n := &to[f.place], f.total(p.region, b)
		figure.there = true
		switch f.Role {
		case RoleLess:
			figure.Less += n
			figure.Count -= min(figure.Count, n)
		case RoleDatagrams:
			figure.datagrams += n
		default:
			figure.Count += n
		}
	}
}

// histograms appends the histograms that the sums of a record are of.
func (p *recordPlan) histograms(wanted []wantedHistogram, to Figures, fields []fieldPlan, index uint32,
	b []byte) []wantedHistogram {
	for i := range fields {
		f := &fields[i]
		if f.pool == nil || !to[f.place].there {
			continue
		}
		at := index
		if f.Via != None {
			if at = binary.LittleEndian.Uint32(b[f.Via:]); at == 0 {
				continue
			}
		}
		wanted = append(wanted, wantedHistogram{histogramKey{f.pool.ID, at}, f.total(p.region, b), &to[f.place], f.pool})
	}
	return wanted
}

// directoryOf is the region that says which records of an index have an owner, nil where there is none.
func directoryOf(c *Control, of Index) *directory {
	for i := range c.Regions {
		if r := &c.Regions[i]; r.Index == of {
			if f := r.field(RoleOwner); f != nil {
				return &directory{r, f, r.parts(), r.keys()}
			}
		}
	}
	return nil
}

func (c *Control) region(id uint32) *Region {
	for i := range c.Regions {
		if c.Regions[i].ID == id {
			return &c.Regions[i]
		}
	}
	return nil
}

// field is the first one with a role; nil if there is none.
func (r *Region) field(role Role) *Field {
	for i := range r.Fields {
		if f := &r.Fields[i]; f.Role == role {
			return f
		}
	}
	return nil
}

func (r *Region) parts() recordParts {
	return recordParts{r.field(RoleHead), r.field(RoleTail), r.field(RoleGeneration), r.field(RoleKnown)}
}

// generationOf a record; 0 where the region's records have none.
func (p *recordParts) generationOf(b []byte) uint32 {
	if p.generation != nil {
		return uint32(p.generation.number(b, 0))
	}
	return 0
}

// knownOf are the bits of the figures of a record that are there, and are trusted.
func (p *recordParts) knownOf(b []byte, trusted uint32) uint32 {
	if p.known != nil {
		return uint32(p.known.number(b, 0)) & trusted
	}
	return ^uint32(0)
}

// sums are all values of a field, added up over the lanes of an index.
func (f *Field) sums(r *Region, b []byte) []uint64 {
	all := make([]uint64, f.Count)
	for lane := range r.Lanes {
		for i := range all {
			all[i] += f.number(b[lane*r.RecordBytes:], i)
		}
	}
	return all
}

// total is the first value of a field, added up over the lanes of an index.
func (f *Field) total(r *Region, b []byte) (n uint64) {
	for lane := range r.Lanes {
		n += f.number(b[lane*r.RecordBytes:], 0)
	}
	return n
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
