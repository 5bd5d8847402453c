package bpf

import (
	"fmt"
	"os"
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

// The cells of a histogram; see histogram.h.
const (
	zeroCell     = 0
	firstCell    = 1
	overflowCell = firstCell + int(model.MaxBucket-model.MinBucket) + 1
)

// readHistogram sums the cells of several histograms up; sumNS is the sum that belongs to them.
func readHistogram(hs []cgroupsHistogram, sumNS uint64) *model.Histogram {
	cell := func(i int) (n uint64) {
		for l := range hs {
			n += load(&hs[l].Cells[i])
		}
		return n
	}
	first, last := 0, -1
	for i := firstCell; i < overflowCell; i++ {
		if cell(i) == 0 {
			continue
		}
		if last < 0 {
			first = i
		}
		last = i
	}
	r := &model.Histogram{SumNS: sumNS, ZeroCount: cell(zeroCell), OverflowCount: cell(overflowCell)}
	r.Count = r.ZeroCount + r.OverflowCount
	if last < 0 {
		return r
	}
	r.Offset = model.MinBucket + int32(first-firstCell)
	r.Buckets = make([]uint64, last-first+1)
	for i := range r.Buckets {
		r.Buckets[i] = cell(first + i)
		r.Count += r.Buckets[i]
	}
	return r
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
