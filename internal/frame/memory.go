package frame

import (
	"math/bits"
	"sync"
)

// Memory is what decoded frames take that are needed for a while: the numbers of a window of many hosts are some hundred
// megabytes, which are used again for the next one. It may be used by several goroutines. nil takes new memory each time.
type Memory struct {
	mu     sync.Mutex
	words  []*[]uint64
	halves []*[]int32
}

// Release gives the memory back: no frame that was decoded into it may be read any more.
func (m *Memory) Release() {
	m.mu.Lock()
	defer m.mu.Unlock()
	spareWords.put(m.words)
	spareHalves.put(m.halves)
	m.words, m.halves = nil, nil
}

// takeWords answers n words with any contents.
func (m *Memory) takeWords(n int) []uint64 {
	if m == nil {
		return make([]uint64, n)
	}
	one := spareWords.take(n)
	m.mu.Lock()
	m.words = append(m.words, one)
	m.mu.Unlock()
	return (*one)[:n]
}

func (m *Memory) takeHalves(n int) []int32 {
	if m == nil {
		return make([]int32, n)
	}
	one := spareHalves.take(n)
	m.mu.Lock()
	m.halves = append(m.halves, one)
	m.mu.Unlock()
	return (*one)[:n]
}

var (
	spareWords  spare[uint64]
	spareHalves spare[int32]
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
