package store

import (
	"fmt"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// watchPause is the interval at which the memory of the process is read while queries run. In between, a query can
// allocate no more than its budget, since the engine checks its context before each node and each step of an
// expression.
const watchPause = 10 * time.Millisecond

// watchRest is for how many looks a query that was ended has time to go before another is ended, and watchAge for how
// many a query must have run: what was left behind by one before it is not its fault.
const watchRest, watchAge = 25, 3

// watch ends the query that holds most where the process has more memory than it may. It returns when no query is left.
func (b *Budget) watch() {
	m := newMemoryReader()
	ticker := time.NewTicker(watchPause)
	defer ticker.Stop()
	for range ticker.C {
		over := m.bytes() > b.process
		b.mu.Lock()
		if b.watching = b.hasQueries(false); !b.watching {
			b.mu.Unlock()
			return
		}
		for a := range b.accounts {
			a.checks++
		}
		ended := over && b.stopLargest()
		b.mu.Unlock()
		if ended {
			b.collect(ticker.C)
		}
	}
}

// collect waits for the query that was ended, and has its memory collected, so that no other has to end for it.
func (b *Budget) collect(ticks <-chan time.Time) {
	for range watchRest {
		<-ticks
		b.mu.Lock()
		going := b.hasQueries(true)
		b.mu.Unlock()
		if !going {
			debug.FreeOSMemory()
			return
		}
	}
}

// hasQueries reports whether any account is of a query, running or stopped.
func (b *Budget) hasQueries(ended bool) bool {
	for a := range b.accounts {
		if a.stop != nil && (a.stopped || !ended) {
			return true
		}
	}
	return false
}

// stopLargest ends the query that holds most of those that have run for a while and were not ended yet; false where
// there is none.
func (b *Budget) stopLargest() bool {
	var largest *account
	for a := range b.accounts {
		if a.stop != nil && !a.stopped && a.checks >= watchAge && (largest == nil || a.held > largest.held) {
			largest = a
		}
	}
	if largest == nil {
		return false
	}
	largest.stopped = true
	b.stopped++
	largest.stop(&queryError{ErrExecution,
		fmt.Errorf("the query was ended because the server has no memory left, of which it held most (about %d MiB): "+
			"ask for fewer series or steps", largest.held>>20)})
	return true
}

// memoryReader reads how much memory the process has.
type memoryReader struct{ samples [2]metrics.Sample }

func newMemoryReader() *memoryReader {
	return &memoryReader{[2]metrics.Sample{{Name: "/memory/classes/total:bytes"},
		{Name: "/memory/classes/heap/released:bytes"}}}
}

func (m *memoryReader) bytes() int64 {
	metrics.Read(m.samples[:])
	return int64(m.samples[0].Value.Uint64() - m.samples[1].Value.Uint64())
}
