package frame

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"time"

	"outsight/internal/model"
)

// Linger is for how long a row stays after it has ended.
const Linger = 10 * time.Minute

// KeyInterval is how often a key frame is made: the first one in each interval of the wall clock.
const KeyInterval = time.Minute

// Bounds of a frame. Past them a row that ended is added to OthersRow, the one that ended first first.
const (
	// maxSums bounds the kinds of rows that are summed apart, in each table.
	maxSums = 8192
	// maxGone bounds the rows that have ended and are still there, in each table.
	maxGone = 8192
	// maxStrings bounds the texts of a key frame and those after it.
	maxStrings = 1 << 18
)

// Builder makes frames of the snapshots of one agent. It is for one goroutine.
type Builder struct {
	header Header
	before *Frame
	forced bool
	// only are the columns that the snapshots have; nil is all.
	only   *Projection
	texts  texts
	tables [NumTables]rows
	// What is known of the rows of each table while they live.
	containers index[string, containerKind]
	edges      index[edgeKey, edgeKind]
	endpoints  index[endpointKey, endpointKind]
	labelled   index[labelledKey, labelledKind]
	// restarts is what counters had that fell.
	restarts map[cell]uint64
	merged   map[cell]*model.Histogram
	// sink and what is spare is memory for what is read, and of no frame.
	sink           model.Sink
	spare          [NumTables]planned
	spareEndpoints []liveEndpoint
	spareLabelled  []liveLabelled
	// overflow counts rows that ended and were summed under OthersRow, or before their time.
	overflow uint64
}

// cell is a counter of a row.
type cell struct {
	table  TableID
	id     uint32
	column int
}

// rows are what a Builder knows of the rows of a table.
type rows struct {
	// next is the number of the next row.
	next uint32
	gone int
	// totals are how many durations the histograms have in the frame before, by column and row; spare is memory for the
	// next ones.
	totals, spare [][]uint64
	scratch       scratch
	index         forgetter
}

// NewBuilder makes a Builder of an agent that began at epoch.
func NewBuilder(epoch time.Time) *Builder {
	b := &Builder{header: Header{Epoch: uint64(epoch.UnixNano())}, restarts: map[cell]uint64{},
		merged: map[cell]*model.Histogram{}}
	for i := range b.tables {
		b.tables[i].next = OthersRow + 1
	}
	b.tables[Containers].index = b.containers.open()
	b.tables[Edges].index = b.edges.open()
	b.tables[Endpoints].index = b.endpoints.open()
	b.tables[Labelled].index = b.labelled.open()
	return b
}

// Of is the frame of an agent that has seen this alone.
func Of(s *model.Snapshot) *Frame { return NewBuilder(s.Time).Build(s) }

// ForceKey makes the next frame a key frame: one that is told completely.
func (b *Builder) ForceKey() { b.forced = true }

// Limit leaves columns out of the frames that the Builder makes: those that the source of its snapshots does not know,
// which is not the same as 0.
func (b *Builder) Limit(only *Projection) { b.only = only }

// Drops are the Builder's bounds.
func (b *Builder) Drops() []model.Drop {
	used := 0
	for i := range b.tables {
		used = max(used, b.tables[i].gone)
		if x := b.tables[i].index; x != nil {
			used = max(used, x.kinds())
		}
	}
	return []model.Drop{{Name: "frame/ended-rows", Count: b.overflow, Used: uint64(used), Capacity: maxSums}}
}

// bootOf distinguishes boots of a host.
func bootOf(h *model.Host) uint64 {
	switch {
	case h.BootID != "":
		sum := sha256.Sum256([]byte(h.BootID))
		return max(binary.LittleEndian.Uint64(sum[:]), 1)
	case !h.BootTime.IsZero():
		return uint64(h.BootTime.Unix())
	}
	return 0
}

// Build makes the next frame. Snapshots are to come in the order of their times.
func (b *Builder) Build(s *model.Snapshot) *Frame {
	f := &Frame{Header: b.header}
	f.Host, f.Time, f.ClockError = s.Host.Name, s.Time, s.ClockError
	f.Boot = bootOf(&s.Host)
	f.Number++
	if b.before == nil || b.forced || len(b.texts.all) >= maxStrings ||
		!f.Time.Truncate(KeyInterval).Equal(b.before.Time.Truncate(KeyInterval)) {
		f.Key = f.Number
		b.forced = false
		b.texts.begin()
	}
	b.header = f.Header
	b.build(f, s)
	f.Strings = slices.Clip(b.texts.all)
	b.before = f
	for i := range b.tables {
		if x := b.tables[i].index; x != nil {
			x.turn()
		}
	}
	return f
}
