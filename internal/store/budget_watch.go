package store

import (
	"fmt"
	"runtime/metrics"
	"time"
)

// watchPause is how often the memory of the process is looked at while queries run. Between two looks a query can build no more than its
// budget lets it, since the engine asks its context before each node and each step of an expression.
const watchPause = 10 * time.Millisecond

// watchRest is for how many looks no other query is ended, so that the memory of the last one can be collected.
const watchRest = 25

// watch ends the query that holds most where the process has more memory than it may. It returns when no query is left.
func (b *Budget) watch() {
	m := newMemoryReader()
	ticker := time.NewTicker(watchPause)
	defer ticker.Stop()
	rest := 0
	for range ticker.C {
		rest--
		over := rest < 0 && m.bytes() > b.process
		b.mu.Lock()
		if b.watching = b.hasQueries(); !b.watching {
			b.mu.Unlock()
			return
		}
		if over && b.stopLargest() {
			rest = watchRest
		}
		b.mu.Unlock()
	}
}

// hasQueries is whether any account is of a query.
func (b *Budget) hasQueries() bool {
	for a := range b.accounts {
		if a.stop != nil {
			return true
		}
	}
	return false
}

// stopLargest ends the query that holds most of those that were not ended yet; false where there is none.
func (b *Budget) stopLargest() bool {
	var largest *account
	for a := range b.accounts {
		if a.stop != nil && !a.stopped && (largest == nil || a.held > largest.held) {
			largest = a
		}
	}
	if largest == nil {
		return false
	}
	largest.stopped = true
	b.stopped++
	largest.stop(&queryError{ErrExecution, fmt.Errorf("the query was ended because the server has no memory left, of which it held most (about %d MiB): "+
		"ask for fewer series or steps", largest.held>>20)})
	return true
}

// memoryReader reads how much memory the process has.
type memoryReader struct{ samples [2]metrics.Sample }

func newMemoryReader() *memoryReader {
	return &memoryReader{[2]metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}}
}

func (m *memoryReader) bytes() int64 {
	metrics.Read(m.samples[:])
	return int64(m.samples[0].Value.Uint64() - m.samples[1].Value.Uint64())
}
