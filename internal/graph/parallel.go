package graph

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
