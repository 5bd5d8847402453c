package region

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
)

// table are the records of an index that have an owner, as they are followed from one reading to the next.
type table struct {
	region *Region
	owner  *Field
	// begun is the region that tells which records have begun; nil where the host has none (RoleBegun).
	begun          *Region
	count, records *Field
	// counted is how many had begun when this reading began, seen how many of them used has.
	counted, seen uint64
	complete      bool
	// used are in order.
	used []uint32
	turn int
}

// scanEvery is in how many thorough readings all records are looked at where nothing tells which have begun.
const scanEvery = 10

// tableOf is nil where the host has none.
func (c *Collector) tableOf(of Index) *table {
	t := &table{}
	if t.region, t.owner = c.directory(of); t.region == nil {
		return nil
	}
	for i := range c.control.Regions {
		r := &c.control.Regions[i]
		count, records := r.field(RoleBegun, ""), r.field(RoleBegunRecords, "")
		if count != nil && records != nil && count.Refers == t.region.ID && records.Refers == t.region.ID &&
			count.Type == TypeU64 && records.Type == TypeU64 && count.Offset%8 == 0 && records.Offset%8 == 0 {
			t.begun, t.count, t.records = r, count, records
		}
	}
	return t
}

// asks are the reads that tell how many records have begun, one for each of the tables that have a count.
func asks(tables []*table) (reads []Read) {
	for _, t := range tables {
		if t.begun != nil {
			reads = append(reads, Read{Region: t.begun.ID, Offset: uint64(t.count.Offset), Into: make([]byte, 8)})
		}
	}
	return reads
}

// hear is what they read.
func hear(tables []*table, reads []Read) {
	for _, t := range tables {
		if t.begun != nil {
			t.counted, reads = binary.LittleEndian.Uint64(reads[0].Into), reads[1:]
		}
	}
}

// look reads the records that may have an owner: those that had one, and those that have begun since. Then forget those
// that have none.
func (c *Collector) look(ctx context.Context, t *table) (records, error) {
	look, err := c.candidates(ctx, t)
	if err != nil {
		return records{}, err
	}
	read, err := c.readRecords(ctx, t.region, look)
	if err != nil {
		return read, err
	}
	t.used = slices.DeleteFunc(look, func(index uint32) bool { return t.owner.number(read.of[index], 0) == 0 })
	return read, nil
}

func (c *Collector) candidates(ctx context.Context, t *table) ([]uint32, error) {
	if t.begun == nil {
		if c.thorough {
			t.turn++
		}
		if c.thorough && t.turn%scanEvery == 1 {
			return t.all()
		}
		return t.used, nil
	}
	if t.complete && t.counted == t.seen {
		return t.used, nil
	}
	if t.counted-t.seen <= uint64(t.records.Count) && (t.complete || t.seen == 0) {
		begun, seen, whole, err := c.readBegun(ctx, t)
		if err != nil {
			return nil, err
		}
		if whole {
			t.seen, t.complete = seen, true
			begun = append(begun, t.used...)
			slices.Sort(begun)
			return slices.Compact(begun), nil
		}
	}
	t.seen, t.complete = t.counted, true
	return t.all()
}

// all are all records of a table.
func (t *table) all() ([]uint32, error) {
	if t.region.Bytes() > maxReading {
		return nil, fmt.Errorf("reading the region %s: %w: %d bytes", t.region.Name, ErrDamaged, t.region.Bytes())
	}
	all := make([]uint32, t.region.Records/t.region.Lanes)
	for i := range all {
		all[i] = uint32(i)
	}
	return all, nil
}

// readBegun reads the indexes of records seen+1 to counted, up to the first that is not written yet: seen is the last that
// was. They are not whole where one of them was overwritten meanwhile.
func (c *Collector) readBegun(ctx context.Context, t *table) (indexes []uint32, seen uint64, whole bool, err error) {
	b := make([]byte, 8*int(t.records.Count))
	if err := c.read(ctx, t.begun.ID, uint64(t.records.Offset), b); err != nil {
		return nil, 0, false, fmt.Errorf("reading the region %s: %w", t.begun.Name, err)
	}
	for n := t.seen + 1; n <= t.counted; n++ {
		w := binary.LittleEndian.Uint64(b[8*(n%uint64(t.records.Count)):])
		switch index := uint32(w); {
		case int32(uint32(w>>32)-uint32(n)) < 0:
			return indexes, n - 1, true, nil
		case uint32(w>>32) != uint32(n):
			return nil, 0, false, nil
		case index >= t.region.Records/t.region.Lanes:
			return nil, 0, false, fmt.Errorf("reading the region %s: %w: record %d of %d", t.begun.Name, ErrDamaged, index,
				t.region.Records)
		default:
			indexes = append(indexes, index)
		}
	}
	return indexes, t.counted, true, nil
}
