package kernel

import (
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"outsight/internal/model"
)

// table is an array map's memory: reading it takes no system call.
type table[T any] struct {
	entries []T
	mapped  []byte
}

// mapTable maps an array map whose value is T.
func mapTable[T any](m *ebpf.Map) (*table[T], error) {
	var zero T
	if m.ValueSize() != uint32(unsafe.Sizeof(zero)) {
		return nil, fmt.Errorf("BUG: map %v has values of %d bytes, want %d", m, m.ValueSize(), unsafe.Sizeof(zero))
	}
	page := os.Getpagesize()
	size := (int(m.ValueSize())*int(m.MaxEntries()) + page - 1) / page * page
	mapped, err := unix.Mmap(m.FD(), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mapping the memory of %v: %w", m, err)
	}
	return &table[T]{
		entries: unsafe.Slice((*T)(unsafe.Pointer(&mapped[0])), m.MaxEntries()),
		mapped:  mapped,
	}, nil
}

func (t *table[T]) Close() error { return unix.Munmap(t.mapped) }

// load reads a counter that the kernel may be changing.
func load(counter *uint64) uint64 { return atomic.LoadUint64(counter) }

// store sets a counter that the kernel may be reading.
func store(counter *uint64, n uint64) { atomic.StoreUint64(counter, n) }

// The cells of a histogram; see histogram.h.
const (
	zeroCell     = 0
	firstCell    = 1
	overflowCell = firstCell + int(model.MaxBucket-model.MinBucket) + 1
)

// histograms is an array map of histograms. It is read by system calls, one for each histogram
// that changed, and not mapped: all of a mapping counts as the process's resident memory, and
// most of these are empty.
type histograms struct {
	cells *ebpf.Map
	// buffer is where lookups go.
	buffer cgroupsHistogram
}

// read sums the cells of count histograms from place on; sumNS is the sum that belongs to them.
func (h *histograms) read(place, count int, sumNS uint64) (*model.Histogram, error) {
	var cells [len(h.buffer.Cells)]uint64
	for i := range count {
		if err := h.cells.Lookup(uint32(place+i), &h.buffer); err != nil {
			return nil, fmt.Errorf("reading histogram %d of %v: %w", place+i, h.cells, err)
		}
		for c, n := range h.buffer.Cells {
			cells[c] += n
		}
	}
	first, end := firstCell, overflowCell
	for first < end && cells[first] == 0 {
		first++
	}
	for end > first && cells[end-1] == 0 {
		end--
	}
	r := &model.Histogram{
		SumNS: sumNS, ZeroCount: cells[zeroCell], OverflowCount: cells[overflowCell],
		Offset: model.MinBucket + int32(first-firstCell), Buckets: slices.Clone(cells[first:end]),
	}
	r.Count = r.ZeroCount + r.OverflowCount
	for _, n := range r.Buckets {
		r.Count += n
	}
	return r, nil
}

// clear empties count histograms from place on.
func (h *histograms) clear(place, count int) error {
	for i := range count {
		if err := h.cells.Update(uint32(place+i), &cgroupsHistogram{}, ebpf.UpdateExist); err != nil {
			return fmt.Errorf("emptying histogram %d of %v: %w", place+i, h.cells, err)
		}
	}
	return nil
}

// cachedHistogram is a histogram with the counter by which a change of it shows.
type cachedHistogram struct {
	version   uint64
	histogram *model.Histogram
}

// read is what from holds, read again only if the version has changed. Where that fails it is what
// was read before.
func (c *cachedHistogram) read(from *histograms, place, count int, version, sumNS uint64) *model.Histogram {
	if c.histogram != nil && c.version == version {
		return c.histogram
	}
	if h, err := from.read(place, count, sumNS); err == nil {
		*c = cachedHistogram{version, h}
	}
	return c.histogram
}

// sumDrops reads one counter of a per-CPU array of drops.
func sumDrops(m *ebpf.Map, which uint32) uint64 {
	var perCPU []uint64
	if err := m.Lookup(which, &perCPU); err != nil {
		return 0
	}
	var sum uint64
	for _, n := range perCPU {
		sum += n
	}
	return sum
}
