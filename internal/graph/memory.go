package graph

import "sync"

// Memory is what the sides of a graph take, of which most of its memory is: it is used again for the next graph. It may be
// used by several goroutines. nil takes new memory each time.
type Memory struct {
	mu      sync.Mutex
	sides   []*[sidesTogether]Side
	buckets []*[bucketsTogether]float64
}

// What is taken at a time. A histogram has less than bucketsTogether buckets.
const (
	sidesTogether   = 16
	bucketsTogether = 1024
)

var (
	spareSides   = sync.Pool{New: func() any { return new([sidesTogether]Side) }}
	spareBuckets = sync.Pool{New: func() any { return new([bucketsTogether]float64) }}
)

// Release gives the memory back: the graph that it was given for may not be read any more.
func (m *Memory) Release() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, some := range m.sides {
		spareSides.Put(some)
	}
	for _, some := range m.buckets {
		spareBuckets.Put(some)
	}
	m.sides, m.buckets = nil, nil
}

// takeSides takes one or more sides, which are empty.
func (m *Memory) takeSides() []Side {
	if m == nil {
		return make([]Side, 1)
	}
	some := spareSides.Get().(*[sidesTogether]Side)
	clear(some[:])
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sides = append(m.sides, some)
	return some[:]
}

// takeBuckets takes buckets of any contents.
func (m *Memory) takeBuckets() []float64 {
	if m == nil {
		return make([]float64, 4*bucketsTogether)
	}
	some := spareBuckets.Get().(*[bucketsTogether]float64)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.buckets = append(m.buckets, some)
	return some[:]
}
