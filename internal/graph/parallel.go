package graph

import (
	"runtime"
	"sync/atomic"
)

// worthParallel is how many things take longer than a goroutine for half of them.
const worthParallel = 1000

// parallelFor calls f for all of n things, on two goroutines where they are many.
func parallelFor(n int, f func(from, to int)) {
	if n < worthParallel {
		f(0, n)
		return
	}
	both(func() { f(0, n/2) }, func() { f(n/2, n) })
}

// both calls both at once. If the second panics, so does both.
func both(first, second func()) {
	var failed any
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { failed = recover() }()
		second()
	}()
	defer func() {
		<-done // also where the first panics: the second may still write to what they share
		if failed != nil {
			panic(failed)
		}
	}()
	first()
}

// parallelEach calls f for each of n things that take long, on as many goroutines as there are processors.
func parallelEach(n int, f func(i int)) { parallelWith(n, f, func() {}) }

// parallelWith is parallelEach with something that is done first, while other processors begin.
func parallelWith(n int, f func(i int), first func()) {
	var next atomic.Int64
	work := func() {
		for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
			f(int(i))
		}
	}
	all := func() {
		first()
		work()
	}
	for range min(runtime.GOMAXPROCS(0)-1, n) {
		others := all
		all = func() { both(others, work) }
	}
	all()
}

// each is something to do for each of n things.
type each struct {
	n int
	f func(i int)
}

// parallelInTurn is parallelWith for several kinds of things, of which those of one kind are begun before those of the next.
func parallelInTurn(first func(), all ...each) {
	n := 0
	for _, kind := range all {
		n += kind.n
	}
	parallelWith(n, func(i int) {
		for _, kind := range all {
			if i < kind.n {
				kind.f(i)
				return
			}
			i -= kind.n
		}
	}, first)
}
