package frame

import (
	"math/bits"
	"sync"
)

// Memory is what decoded frames take that are needed for a while: the numbers of a window of many hosts are some hundred
// megabytes, which are used again for the next one. It may be used by several goroutines. nil takes new memory each time.
type Memory struct {
	mu      sync.Mutex
	words   []*[]uint64
	numbers []*[]uint32
	bytes   []*[]byte
	parts   []*parts
}

// parts are lists of the columns of a frame, and of its texts.
type parts struct {
	strings []string
	lists   [][]uint64
	columns []Values
	charts  []Histograms
	told    []toldHistograms
}

// Release gives the memory back: no frame that was decoded into it may be read any more.
func (m *Memory) Release() {
	m.mu.Lock()
	defer m.mu.Unlock()
	spareWords.put(m.words)
	spareNumbers.put(m.numbers)
	spareBytes.put(m.bytes)
	for _, one := range m.parts {
		spareParts.Put(one)
	}
	m.words, m.numbers, m.bytes, m.parts = nil, nil, nil, nil
}

// take takes n of any contents, and notes that in taken.
func take[T any](m *Memory, from *spare[T], taken func(m *Memory) *[]*[]T, n int) []T {
	if m == nil || n == 0 {
		return make([]T, n)
	}
	one := from.take(n)
	m.mu.Lock()
	defer m.mu.Unlock()
	all := taken(m)
	*all = append(*all, one)
	return (*one)[:n]
}

func (m *Memory) takeWords(n int) []uint64 {
	return take(m, &spareWords, func(m *Memory) *[]*[]uint64 { return &m.words }, n)
}

func (m *Memory) takeNumbers(n int) []uint32 {
	return take(m, &spareNumbers, func(m *Memory) *[]*[]uint32 { return &m.numbers }, n)
}

func (m *Memory) takeBytes(n int) []byte {
	return take(m, &spareBytes, func(m *Memory) *[]*[]byte { return &m.bytes }, n)
}

// takeParts has none of what a frame needs; none is used by another frame.
func (m *Memory) takeParts() *parts {
	if m == nil {
		return &parts{}
	}
	one := spareParts.Get().(*parts)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.parts = append(m.parts, one)
	return one
}

// emptied has n that are empty, in the memory of all if there is enough.
func emptied[T any](all []T, n int) []T {
	if cap(all) < n {
		return make([]T, n)
	}
	all = all[:n]
	clear(all)
	return all
}

var spareParts = sync.Pool{New: func() any { return &parts{} }}

var (
	spareWords   spare[uint64]
	spareNumbers spare[uint32]
	spareBytes   spare[byte]
)

// spare has memory that nothing uses, by the logarithm of its size.
type spare[T any] [bits.UintSize]sync.Pool

func (s *spare[T]) take(n int) *[]T {
	size := bits.Len(uint(max(n, 1) - 1))
	if one, _ := s[size].Get().(*[]T); one != nil {
		return one
	}
	one := make([]T, 1<<size)
	return &one
}

func (s *spare[T]) put(all []*[]T) {
	for _, one := range all {
		s[bits.Len(uint(len(*one)-1))].Put(one)
	}
}
