package host

import (
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"outsight/internal/model"
)

// Table is an array map's memory: reading it takes no system call.
type Table[T any] struct {
	Entries []T
	mapped  []byte
}

// MapTable maps an array map whose value is T.
func MapTable[T any](m *ebpf.Map) (*Table[T], error) {
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
	return &Table[T]{
		Entries: unsafe.Slice((*T)(unsafe.Pointer(&mapped[0])), m.MaxEntries()),
		mapped:  mapped,
	}, nil
}

func (t *Table[T]) Close() error { return unix.Munmap(t.mapped) }

// Load reads a counter that the kernel may be changing.
func Load(counter *uint64) uint64 { return atomic.LoadUint64(counter) }

// Store sets a counter that the kernel may be reading.
func Store(counter *uint64, n uint64) { atomic.StoreUint64(counter, n) }

// kernelHistogram is struct histogram of histogram.h.
type kernelHistogram struct{ Cells [HistogramCells]uint64 }

// noHistogram is one that counted nothing.
var noHistogram kernelHistogram

// HistogramCells is HISTOGRAM_CELLS: the cells of a histogram in the kernel, some of them unused.
const HistogramCells = model.HistogramCells

// Histograms is an array map of histograms. It is read by system calls, one for each histogram
// that changed, and not mapped: all of a mapping counts as the process's resident memory, and
// most of these are empty.
type Histograms struct {
	Cells *ebpf.Map
	// sum and buffer are where lookups go.
	sum, buffer kernelHistogram
}

// Read sums the cells of count histograms from index on; sumNS is the sum that belongs to them.
func (h *Histograms) Read(index, count int, sumNS uint64) (*model.Histogram, error) {
	to := &h.sum
	for i := range count {
		if err := h.Cells.Lookup(uint32(index+i), to); err != nil {
			return nil, fmt.Errorf("reading histogram %d of %v: %w", index+i, h.Cells, err)
		}
		if i > 0 {
			for c, n := range h.buffer.Cells {
				h.sum.Cells[c] += n
			}
		}
		to = &h.buffer
	}
	return HistogramOf(&h.sum.Cells, sumNS), nil
}

// HistogramOf is what the cells of a histogram in the kernel mean; sumNS is the sum that belongs to them.
func HistogramOf(cells *[HistogramCells]uint64, sumNS uint64) *model.Histogram {
	return model.HistogramOfCells(cells[:], sumNS)
}

// Clear empties count histograms from index on.
func (h *Histograms) Clear(index, count int) error {
	for i := range count {
		if err := h.Cells.Update(uint32(index+i), &noHistogram, ebpf.UpdateExist); err != nil {
			return fmt.Errorf("emptying histogram %d of %v: %w", index+i, h.Cells, err)
		}
	}
	return nil
}

// CachedHistogram is a histogram with the counter by which a change of it shows.
type CachedHistogram struct {
	version   uint64
	histogram *model.Histogram
}

// Read is what from holds, read again only if the version has changed. Where that fails it is what
// was read before.
func (c *CachedHistogram) Read(from *Histograms, index, count int, version, sumNS uint64) *model.Histogram {
	if c.histogram != nil && c.version == version {
		return c.histogram
	}
	if h, err := from.Read(index, count, sumNS); err == nil {
		*c = CachedHistogram{version, h}
	}
	return c.histogram
}

// Drops are the counters of a per-CPU array of drops, by an enumeration that is generated from the kernel programs'.
type Drops[E ~uint32] struct {
	Counts *ebpf.Map
	// Names are those that users see.
	Names map[E]string
}

// Count is how much was dropped.
func (d Drops[E]) Count(which E) uint64 { return SumDrops(d.Counts, uint32(which)) }

// Drop is the same with its name.
func (d Drops[E]) Drop(which E) model.Drop {
	return model.Drop{Name: d.Names[which], Count: d.Count(which)}
}

// Of is the same of a table that has a capacity and a use.
func (d Drops[E]) Of(which E, capacity, used uint64) model.Drop {
	drop := d.Drop(which)
	drop.Capacity, drop.Used = capacity, used
	return drop
}

// SumDrops reads one counter of a per-CPU array of drops.
func SumDrops(m *ebpf.Map, which uint32) uint64 {
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

// Text is the text of characters in the kernel, up to the first zero.
func Text(name []int8) string {
	b := make([]byte, 0, len(name))
	for _, c := range name {
		if c == 0 {
			break
		}
		b = append(b, byte(c))
	}
	return string(b)
}
