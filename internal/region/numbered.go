package region

import (
	"context"
	"slices"
)

// numbered are the records of a table with a number of their own (RoleGeneration) that are known: disks and endpoints. Whose
// they are and their figures are in the same record, whose parts may be read in any order: its figures count if it had its
// number before it was read.
type numbered struct {
	table *table
	known []numberedRecord
}

type numberedRecord struct {
	index  uint32
	number uint64
}

func (r numberedRecord) at() uint32 { return r.index }

func newNumbered(c *Control, of Index) *numbered {
	if t := tableOf(c, of); t != nil && t.parts.generation != nil {
		return &numbered{table: t}
	}
	return nil
}

// indexes are those of the known records, in order.
func (n *numbered) indexes() (all []uint32) {
	if n == nil {
		return nil
	}
	for _, one := range n.known {
		all = append(all, one.index)
	}
	return all
}

// find looks for records that have begun.
func (n *numbered) find(ctx context.Context, c *Collector) error {
	if n == nil {
		return nil
	}
	began, err := c.recordsThatBegan(ctx, n.table, true)
	if err != nil || len(began) == 0 {
		return err
	}
	n.known, c.wanted = withBegun(n.known, began, func(index uint32, b []byte) numberedRecord {
		return numberedRecord{index, n.table.parts.generation.number(b, 0)}
	}), nil
	return nil
}

// stayed reports of each known record whether it still is what it was, by what was read of them; those that have ended are
// forgotten, and others that have taken their places are known.
func (n *numbered) stayed(c *Collector, of [][]byte) []bool {
	same, left := make([]bool, len(n.known)), n.known[:0:0]
	for i, one := range n.known {
		if n.table.owner.number(of[i], 0) == 0 {
			continue
		}
		now := n.table.parts.generation.number(of[i], 0)
		same[i] = now == one.number && now != 0 // 0: not all of it is written yet
		left = append(left, numberedRecord{one.index, now})
	}
	if !slices.Equal(left, n.known) {
		n.known, c.wanted = left, nil
	}
	return same
}
