package region

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
)

// table is a directory whose records are followed from one reading to the next.
type table struct {
	*directory
	// begun is the region that tells which records have begun; nil where the host has none (RoleBegun).
	begun          *Region
	count, records *Field
	// counted is how many had begun when that was read last, and seen how many of them are known.
	counted, seen uint64
	complete      bool
	// turn counts looks at a table without such a region.
	turn int
}

// scanEvery is in how many thorough readings all records are looked at where nothing tells which have begun.
const scanEvery = 10

// tableOf is nil where there is no directory of an index.
func tableOf(c *Control, of Index) *table {
	d := directoryOf(c, of)
	if d == nil {
		return nil
	}
	t := &table{directory: d}
	for i := range c.Regions {
		r := &c.Regions[i]
		count, records := r.field(RoleBegun), r.field(RoleBegunRecords)
		if count != nil && records != nil && count.Refers == d.region.ID && records.Refers == d.region.ID &&
			count.Type == TypeU64 && records.Type == TypeU64 && count.Offset%8 == 0 && records.Offset%8 == 0 {
			t.begun, t.count, t.records = r, count, records
		}
	}
	return t
}

// ask is the read of how many records have begun.
func (t *table) ask(into []byte) Read {
	return Read{Region: t.begun.ID, Offset: uint64(t.count.Offset), Into: into}
}

// isKnown says that no record has begun that is not known.
func (t *table) isKnown() bool { return t.begun == nil || t.complete && t.counted == t.seen }

// news are the indexes of records that may have begun since they were asked for last; all says that it may be any.
func (c *Collector) news(ctx context.Context, t *table, thorough bool) (indexes []uint32, all bool, err error) {
	if t.begun == nil {
		if !thorough {
			return nil, false, nil
		}
		t.turn++
		return nil, t.turn%scanEvery == 1, nil
	}
	if !t.complete {
		b := make([]byte, 8)
		if err := c.readAll(ctx, []Read{t.ask(b)}); err != nil {
			return nil, false, fmt.Errorf("reading the region %s: %w", t.begun.Name, err)
		}
		t.counted = binary.LittleEndian.Uint64(b)
	}
	if t.isKnown() {
		return nil, false, nil
	}
	if t.counted-t.seen <= uint64(t.records.Count) {
		indexes, seen, whole, err := c.readBegun(ctx, t)
		if err != nil {
			return nil, false, err
		}
		if whole {
			t.seen, t.complete = seen, true
			return indexes, false, nil
		}
	}
	t.seen, t.complete = t.counted, true
	return nil, true, nil
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

// recordsThatBegan reads the records that may have begun since that was asked for last, by their index.
func (c *Collector) recordsThatBegan(ctx context.Context, t *table, thorough bool) (map[uint32][]byte, error) {
	indexes, all, err := c.news(ctx, t, thorough)
	if err != nil || !all && len(indexes) == 0 {
		return nil, err
	}
	found := map[uint32][]byte{}
	if all {
		b, err := c.readWhole(ctx, t.region)
		if err != nil {
			return nil, err
		}
		size := t.region.RecordBytes * t.region.Lanes
		for index := range t.region.Records / t.region.Lanes {
			if one := b[index*size : (index+1)*size]; t.owner.number(one, 0) != 0 {
				found[index] = one
			}
		}
		return found, nil
	}
	read, err := recordsOf(t.region, sortedOnce(indexes))
	if err == nil {
		err = c.readAll(ctx, read.reads)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the region %s: %w", t.region.Name, err)
	}
	for i, index := range read.indexes {
		if t.owner.number(read.of[i], 0) != 0 {
			found[index] = read.of[i]
		}
	}
	return found, nil
}

// withBegun are the known records of a table and those that have begun, in order of their indexes; of is one that has.
func withBegun[T interface{ at() uint32 }](known []T, began map[uint32][]byte, of func(index uint32, b []byte) T) []T {
	all := make([]T, 0, len(known)+len(began))
	for _, one := range known {
		if _, anew := began[one.at()]; !anew {
			all = append(all, one)
		}
	}
	for index, b := range began {
		all = append(all, of(index, b))
	}
	slices.SortFunc(all, func(x, y T) int { return cmp.Compare(x.at(), y.at()) })
	return all
}

func sortedOnce(indexes []uint32) []uint32 {
	slices.Sort(indexes)
	return slices.Compact(indexes)
}
