package region

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"outsight/internal/model"
)

const (
	// bridge is how many bytes that nobody wants are read where that saves a read.
	bridge = 512
	// orderedBytes are read at once at most where each record is to be of one moment: they fit into one packet, wherever
	// they begin, of which there is a moment (docs/format/region-read.md).
	orderedBytes = 896
)

// records are those of some indexes of a region.
type records struct {
	region  *Region
	indexes []uint32
	// of are the bytes of each index, of all of its lanes. reads fill them in.
	of    [][]byte
	reads []Read
}

// recordsOf are those of indexes, which are in order: neighbours are one read.
func recordsOf(r *Region, indexes []uint32) (records, error) {
	size := uint64(r.RecordBytes) * uint64(r.Lanes)
	if uint64(len(indexes))*size > maxReading {
		return records{}, fmt.Errorf("reading the region %s: %w: %d times %d bytes", r.Name, ErrDamaged, len(indexes), size)
	}
	all := records{region: r, indexes: indexes, of: make([][]byte, len(indexes))}
	ordered, most := r.field(RoleHead) != nil, uint64(maxReading)
	if ordered {
		most = orderedBytes
	}
	for at := 0; at < len(indexes); {
		first, end := uint64(indexes[at]), at+1
		for end < len(indexes) && uint64(indexes[end]-indexes[end-1])*size <= size+bridge &&
			(uint64(indexes[end])+1-first)*size <= most {
			end++
		}
		length := (uint64(indexes[end-1]) + 1 - first) * size
		if first*size+length > r.Bytes() {
			return records{}, fmt.Errorf("reading the region %s: %w: index %d", r.Name, ErrDamaged, indexes[end-1])
		}
		b := make([]byte, length)
		all.reads = append(all.reads, Read{Region: r.ID, Offset: first * size, Into: b, Ordered: ordered})
		for ; at < end; at++ {
			from := (uint64(indexes[at]) - first) * size
			all.of[at] = b[from : from+size]
		}
	}
	return all, nil
}

// wantedRecords are what each reading reads: once they are found they stay the same, as do their bytes' places, until
// somebody has begun or ended.
type wantedRecords struct {
	// usual are figures, and after them owners and the control region's header. A thorough reading reads all: with the
	// figures what is for thorough readings alone.
	usual, all []Read
	header     []byte
	// counts are how many records of tables have begun, which is read with figures.
	counts []countRead
	// slots and edges are the records that say who has them, disks and endpoints those that have figures too, in the order
	// of those that are known.
	slots, edges, disks, endpoints records
	records                        []wantedRegion
}

// wantedRegion are the records of a region that has metrics.
type wantedRegion struct {
	records
	plan *recordPlan
	// thorough says that they are read at thorough readings alone.
	thorough bool
	// owners are the containers that records of IndexFigures are of.
	owners []int
}

// countRead is how many records of a table have begun.
type countRead struct {
	table *table
	into  []byte
}

// want lays out what is read of all that is known.
func (c *Collector) want() (*wantedRecords, error) {
	w := &wantedRecords{header: make([]byte, headerBytes)}
	owned := []Read{{Region: ControlID, Into: w.header, After: true}}
	indexes := map[Index][]uint32{}
	for _, s := range c.slots {
		indexes[IndexSlot] = append(indexes[IndexSlot], s.slot)
	}
	for _, e := range c.edges {
		indexes[IndexEdge] = append(indexes[IndexEdge], e.index)
	}
	owners := c.ownersOfFigures()
	for _, at := range owners {
		indexes[IndexFigures] = append(indexes[IndexFigures], c.dictionary.Containers[at].Figures)
	}
	indexes[IndexDisk], indexes[IndexEndpoint] = c.disks.indexes(), c.endpoints.indexes()
	var errs [4]error
	if d := c.plan.slots; d != nil {
		w.slots, errs[0] = recordsOf(d.region, indexes[IndexSlot])
	}
	if d := c.edgeTable; d != nil {
		w.edges, errs[1] = recordsOf(d.region, indexes[IndexEdge])
	}
	if n := c.disks; n != nil {
		w.disks, errs[2] = recordsOf(n.table.region, indexes[IndexDisk])
	}
	if n := c.endpoints; n != nil {
		w.endpoints, errs[3] = recordsOf(n.table.region, indexes[IndexEndpoint])
	}
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	thorough, figures := slices.Concat(w.disks.reads, w.endpoints.reads), []Read(nil)
	for _, t := range c.tables() {
		if t.begun != nil {
			one := countRead{t, make([]byte, 8)}
			w.counts, figures = append(w.counts, one), append(figures, t.ask(one.into))
		}
	}
	owned = append(append(owned, w.slots.reads...), w.edges.reads...)
	for _, index := range []Index{IndexSlot, IndexFigures, IndexEdge, IndexDisk, IndexEndpoint} {
		for _, p := range c.plan.counting[index] {
			one := wantedRegion{plan: p, owners: owners}
			switch p.region {
			case w.edges.region:
				one.records = w.edges
			case w.slots.region:
				one.records = w.slots
			case w.disks.region:
				one.records, one.thorough = w.disks, true
			case w.endpoints.region:
				one.records, one.thorough = w.endpoints, true
			default:
				var err error
				if one.records, err = recordsOf(p.region, indexes[index]); err != nil {
					return nil, err
				}
				if one.thorough = index == IndexDisk || index == IndexEndpoint; one.thorough {
					thorough = append(thorough, one.reads...)
				} else {
					figures = append(figures, one.reads...)
				}
			}
			w.records = append(w.records, one)
		}
	}
	w.usual, w.all = slices.Concat(figures, owned), slices.Concat(figures, thorough, owned)
	return w, nil
}

// ownersOfFigures are the containers that have figures of their own, in the order of these.
func (c *Collector) ownersOfFigures() (all []int) {
	for i := range c.dictionary.Containers {
		if c.dictionary.Containers[i].Figures != None {
			all = append(all, i)
		}
	}
	slices.SortFunc(all, func(a, b int) int {
		return cmp.Compare(c.dictionary.Containers[a].Figures, c.dictionary.Containers[b].Figures)
	})
	return all
}

type wantedHistogram struct {
	key  histogramKey
	sum  uint64
	into *Figure
	r    *Region
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
		got, err := recordsOf(r, sortedOnce(indexes))
		if err == nil {
			err = c.readAll(ctx, got.reads)
		}
		if err != nil {
			return fmt.Errorf("reading the region %s: %w", r.Name, err)
		}
		read[r.ID] = got
	}
	for _, w := range wanted {
		state, known := c.histograms[w.key]
		if !known || state.sum != w.sum {
			cells := w.r.field(RoleCells)
			if cells == nil || cells.Count != model.HistogramCells || cells.Type != TypeU64 {
				continue // a histogram of a kind that this program does not know
			}
			got := read[w.r.ID]
			at, _ := slices.BinarySearch(got.indexes, w.key.index)
			state = histogramState{w.sum, model.HistogramOfCells(cells.sums(w.r, got.of[at]), w.sum)}
			c.histograms[w.key] = state
		}
		w.into.Histogram = merged(w.into.Histogram, state.histogram)
	}
	return nil
}
