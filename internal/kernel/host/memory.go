package host

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
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

// Histograms is an array map of histograms. It is read by system calls, one for all histograms of what
// changed, and not mapped: all of a mapping counts as the process's resident memory, and most of these are
// empty.
type Histograms struct {
	Cells *ebpf.Map
	// keys and values are where look-ups go.
	keys   []uint32
	values []kernelHistogram
	// single: the kernel has no look-ups of several entries at once (before Linux 5.6).
	single bool
}

// Read sums the cells of count histograms from index on; sumNS is the sum that belongs to them.
func (h *Histograms) Read(index, count int, sumNS uint64) (*model.Histogram, error) {
	if len(h.values) < count {
		h.keys, h.values = make([]uint32, count), make([]kernelHistogram, count)
	}
	if err := h.read(index, count); err != nil {
		return nil, fmt.Errorf("reading %d histograms from %d on of %v: %w", count, index, h.Cells, err)
	}
	sum := &h.values[0]
	for i := 1; i < count; i++ {
		for c, n := range h.values[i].Cells {
			sum.Cells[c] += n
		}
	}
	return HistogramOf(&sum.Cells, sumNS), nil
}

// read reads count histograms from index on into values.
func (h *Histograms) read(index, count int) error {
	if count > 1 && !h.single {
		n, err := lookupBatch(h.Cells, uint32(index), h.keys[:count], h.values[:count])
		if err == nil && n == count {
			return nil
		}
		h.single = true
	}
	for i := range count {
		if err := h.Cells.Lookup(uint32(index+i), &h.values[i]); err != nil {
			return err
		}
	}
	return nil
}

// lookupBatch reads entries of an array map from one index on, and answers how many there were. Those of package ebpf
// begin at the first entry of a map, or where one before ended.
func lookupBatch(m *ebpf.Map, first uint32, keys []uint32, values []kernelHistogram) (int, error) {
	// What comes after this entry is read; after one that there is not comes the first (array_map_get_next_key of
	// kernel/bpf/arraymap.c).
	before, last := first-1, uint32(0)
	attr := struct { // of BPF_MAP_LOOKUP_BATCH, in union bpf_attr
		inBatch, outBatch, keys, values unsafe.Pointer
		count, fd                       uint32
		elemFlags, flags                uint64
	}{unsafe.Pointer(&before), unsafe.Pointer(&last), unsafe.Pointer(&keys[0]), unsafe.Pointer(&values[0]),
		uint32(len(keys)), uint32(m.FD()), 0, 0}
	_, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_MAP_LOOKUP_BATCH, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
	runtime.KeepAlive(m)
	if errno != 0 && errno != unix.ENOENT { // which is the end of the map
		return 0, errno
	}
	return int(attr.count), nil
}

// MappedHistograms is an array map of histograms most of which change from one reading to the next. They are read where they
// lie: of the map, the pages are mapped of what is read. Beyond mostMapped they are read by look-ups.
type MappedHistograms struct {
	Histograms
	// mapped are by the index of the first of histograms that are read together.
	mapped map[int]*mappedHistograms
	// bytes are mapped.
	bytes int
	// reading is the number of the present one.
	reading uint64
}

type mappedHistograms struct {
	cells [][HistogramCells]uint64
	pages []byte
	// read is when they were read last.
	read uint64
}

const (
	// mostMapped bounds the bytes that are mapped, which count as this process's memory: those of 256 groups on two CPUs, of two
	// histograms each, with pages of 4 KiB.
	mostMapped = 256 * 20 << 10
	// mappingKept is for how many readings pages stay mapped that are not read.
	mappingKept = 60
)

// MapHistograms makes a reader. Nothing is mapped before it is read.
func MapHistograms(m *ebpf.Map) *MappedHistograms {
	return &MappedHistograms{Histograms: Histograms{Cells: m}, mapped: make(map[int]*mappedHistograms)}
}

// Begin begins a reading of all histograms that are in use.
func (m *MappedHistograms) Begin() {
	if m.reading++; m.reading%mappingKept != 0 {
		return
	}
	for index, one := range m.mapped {
		if m.reading-one.read > mappingKept {
			m.bytes -= len(one.pages)
			_ = unix.Munmap(one.pages) // it is a mapping
			delete(m.mapped, index)
		}
	}
}

// Close unmaps all pages. Other methods map anew.
func (m *MappedHistograms) Close() (err error) {
	for index, one := range m.mapped {
		m.bytes -= len(one.pages)
		err = errors.Join(err, unix.Munmap(one.pages))
		delete(m.mapped, index)
	}
	return err
}

// cells are those of count histograms from index on; nil where they cannot be mapped.
func (m *MappedHistograms) cells(index, count int) [][HistogramCells]uint64 {
	one := m.mapped[index]
	if one == nil || len(one.cells) != count {
		if one = m.mapPages(index, count); one == nil {
			return nil
		}
	}
	one.read = m.reading
	return one.cells
}

func (m *MappedHistograms) mapPages(index, count int) *mappedHistograms {
	if m.mapped[index] != nil || index+count > int(m.Cells.MaxEntries()) {
		return nil
	}
	const size = int(unsafe.Sizeof(kernelHistogram{}))
	page := os.Getpagesize()
	begin, end := index*size/page*page, ((index+count)*size+page-1)/page*page
	if m.bytes+end-begin > mostMapped {
		return nil
	}
	pages, err := unix.Mmap(m.Cells.FD(), int64(begin), end-begin, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil
	}
	first := unsafe.Pointer(&pages[index*size-begin])
	one := &mappedHistograms{cells: unsafe.Slice((*[HistogramCells]uint64)(first), count), pages: pages}
	m.mapped[index] = one
	m.bytes += len(pages)
	return one
}

// ReadMapped is what count histograms from index on hold together, read again only if the version, how many durations they
// hold, has changed. An answer is not changed until the call after the next one with another version.
func (c *CachedHistogram) ReadMapped(from *MappedHistograms, index, count int, version, sumNS uint64) *model.Histogram {
	if c.histogram != nil && c.version == version {
		return c.histogram
	}
	if version == 0 {
		c.version, c.histogram = 0, &model.Histogram{SumNS: sumNS}
		return c.histogram
	}
	cells := from.cells(index, count)
	if cells == nil {
		return c.Read(&from.Histograms, index, count, version, sumNS)
	}
	if c.histogram, c.spare = c.spare, c.histogram; c.histogram == nil {
		c.histogram = &model.Histogram{}
	}
	c.histogram.SetCells(c.spare, cells, version, sumNS)
	c.version = version
	return c.histogram
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
	// spare is the histogram before, for ReadMapped.
	spare *model.Histogram
}

// Read is what from holds, read again only if the version has changed. Where that fails it is what
// was read before.
func (c *CachedHistogram) Read(from *Histograms, index, count int, version, sumNS uint64) *model.Histogram {
	if c.histogram != nil && c.version == version {
		return c.histogram
	}
	if h, err := from.Read(index, count, sumNS); err == nil {
		c.version, c.histogram, c.spare = version, h, nil
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

// possibleCPUs is how many values an entry of a per-CPU array has.
var possibleCPUs = sync.OnceValues(ebpf.PossibleCPU)

// SumDrops reads one counter of a per-CPU array of drops. Some dozens are read each second: look-ups of package ebpf take
// twice as long, for what they allocate.
func SumDrops(m *ebpf.Map, which uint32) (sum uint64) {
	cpus, err := possibleCPUs()
	if err != nil || m.ValueSize() != 8 {
		return 0
	}
	perCPU := make([]uint64, cpus)
	attr := struct { // of BPF_MAP_LOOKUP_ELEM, in union bpf_attr
		fd         uint32
		_          uint32
		key, value unsafe.Pointer
		flags      uint64
	}{fd: uint32(m.FD()), key: unsafe.Pointer(&which), value: unsafe.Pointer(&perCPU[0])}
	_, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_MAP_LOOKUP_ELEM, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
	runtime.KeepAlive(m)
	if errno != 0 {
		return 0
	}
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
