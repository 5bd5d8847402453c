package frame

import (
	"math"

	"outsight/internal/model"
)

// makeConnections makes the table of connections, of the edges of which an end was not found on this host: by these the
// other host's half is found. An edge that has ended keeps what it had.
func (b *Builder) makeConnections(f *Frame, s *model.Snapshot, edges *planned) {
	var rows [][]uint64
	var old *Table
	next := 0
	if b.before != nil {
		old = &b.before.Tables[Connections]
	}
	for i := range edges.plans {
		of := &edges.plans[i]
		if of.live >= 0 {
			e := &s.Edges[of.live]
			if e.Client.Container == nil || e.Server.Container == nil {
				for _, hash := range e.Connections {
					rows = append(rows, []uint64{uint64(of.id), hash & math.MaxUint32, hash >> 32})
				}
			}
			continue
		}
		if old == nil {
			continue
		}
		// Both are in the order of edges.
		for ; next < len(old.IDs) && old.Attribute(ConnectionEdge, next) <= uint64(of.id); next++ {
			if old.Attribute(ConnectionEdge, next) == uint64(of.id) {
				rows = append(rows, []uint64{uint64(of.id), old.Attribute(ConnectionHash, next),
					old.Attribute(ConnectionHashHigh, next)})
			}
		}
	}
	f.Tables[Connections] = b.list(Connections, rows)
}
