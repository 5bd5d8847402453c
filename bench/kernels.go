package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"
	"time"

	"outsight/internal/container"
	"outsight/internal/kernel"
)

// kernelBudget is in percent of a program's run time.
const kernelBudget = 0.5

// kernelTurns is how many pairs of turns are compared for each computation, and where there is a budget: fewer cannot
// tell half a percent.
const kernelTurns, budgetTurns = 150, 400

// ownProcess is for how long the agent's own process is watched beside a computation.
const ownProcess = 20 * time.Second

// computation works for ever, in a thread of its own, and tells after each small part how much that was, until
// it is told to stop. All parts of one computation that count the same are alike.
type computation func(seed int, did func(points int) bool) (result float64)

// computations are programs that only compute, in the manner of three of the NAS Parallel Benchmarks: EP (random
// numbers, no memory), CG (a sparse matrix at irregular places) and MG (stencils on grids of several
// sizes).
var computations = []struct {
	name    string
	compute computation
	// turns is how many times as many pairs of turns it needs: the speed of some changes more by itself.
	turns int
}{{"EP", embarrassinglyParallel, 1}, {"CG", conjugateGradient, 1}, {"MG", multigrid, 3}}

// embarrassinglyParallel counts pairs of normal deviates, made by the polar method of a linear
// congruential generator, as EP does.
func embarrassinglyParallel(seed int, did func(points int) bool) float64 {
	const pairsAtOnce = 10_000
	x, sum := uint64(seed)*271828183, 0.0
	next := func() float64 {
		x = x * 1220703125 & (1<<46 - 1)
		return 2*float64(x)/(1<<46) - 1
	}
	for did(pairsAtOnce) {
		for range pairsAtOnce {
			a, b := next(), next()
			if t := a*a + b*b; t <= 1 && t > 0 {
				f := math.Sqrt(-2 * math.Log(t) / t)
				sum += math.Abs(a*f) + math.Abs(b*f)
			}
		}
	}
	return sum
}

// conjugateGradient solves equations of a sparse symmetric matrix with entries at irregular places.
func conjugateGradient(seed int, did func(points int) bool) float64 {
	const n, perRow = 75_000, 11
	columns, values := make([]int32, n*perRow), make([]float64, n*perRow)
	state := uint64(seed) * 2654435761
	for i := range columns {
		state = state*6364136223846793005 + 1442695040888963407
		columns[i], values[i] = int32(state>>33%n), float64(state>>40)/(1<<26)
	}
	x, r, p, q := make([]float64, n), make([]float64, n), make([]float64, n), make([]float64, n)
	rho := 0.0
	for i := range r {
		r[i], p[i] = 1, 1
		rho++
	}
	for did(n) {
		pq := 0.0
		for i := range n {
			sum := 20 * p[i]
			for k := i * perRow; k < (i+1)*perRow; k++ {
				sum += values[k] * p[columns[k]]
			}
			q[i] = sum
			pq += p[i] * sum
		}
		alpha, before := rho/pq, rho
		rho = 0
		for i := range n {
			x[i] += alpha * p[i]
			r[i] -= alpha * q[i]
			rho += r[i] * r[i]
		}
		for i := range n {
			p[i] = r[i] + rho/before*p[i]
		}
		if rho < 1e-200 || rho > 1e200 { // not symmetric, so it may not converge
			rho = 1
		}
	}
	return x[n/2]
}

// multigrid smooths a field on grids that become coarser and finer again.
func multigrid(seed int, did func(points int) bool) float64 {
	const size = 128
	var grids, scratch [][]float64
	for n := size; n >= 4; n /= 2 {
		grids, scratch = append(grids, make([]float64, n*n*n)), append(scratch, make([]float64, n*n*n))
	}
	for i := range grids[0] {
		grids[0][i] = float64((i*seed)%17) / 17
	}
	for did(0) {
		n := size
		for level := range grids[:len(grids)-1] {
			smooth(grids[level], scratch[level], n, did)
			fine, coarse := grids[level], grids[level+1]
			n /= 2
			for z := range n {
				for y := range n {
					for x := range n {
						coarse[(z*n+y)*n+x] = fine[(2*z*2*n+2*y)*2*n+2*x]
					}
				}
			}
		}
		for level := len(grids) - 2; level >= 0; level-- {
			fine, coarse := grids[level], grids[level+1]
			n *= 2
			for i := range fine {
				z, y, x := i/(n*n), i/n%n, i%n
				fine[i] = (fine[i] + coarse[(z/2*(n/2)+y/2)*(n/2)+x/2]) / 2
			}
			smooth(fine, scratch[level], n, did)
		}
	}
	return grids[0][len(grids[0])/2]
}

// smooth makes each point the mean of its neighbours, twice.
func smooth(field, scratch []float64, n int, did func(points int) bool) {
	for range 2 {
		for z := 1; z < n-1; z++ {
			for y := 1; y < n-1; y++ {
				for x := 1; x < n-1; x++ {
					i := (z*n+y)*n + x
					scratch[i] = (field[i] + field[i-1] + field[i+1] + field[i-n] + field[i+n] + field[i-n*n] + field[i+n*n]) / 7
				}
			}
			did(n * n)
		}
		copy(field, scratch)
	}
}

// measureKernels takes what an agent takes from computations on every CPU. What its hooks and ticks take is compared
// in turns of a tenth of a second, since whole runs differ by more between themselves; what its own process takes is
// added, which the scheduler counts exactly.
func measureKernels(ctx context.Context, o options) ([]row, error) {
	l, err := container.Detect(container.Options{})
	if err != nil {
		return nil, err
	}
	var rows []row
	for _, config := range []struct {
		agent  string
		probes kernel.Options
		budget float64
		pairs  int
	}{
		{"outsight-agent", kernel.Options{}, kernelBudget, budgetTurns},
		{"outsight-agent --counters software", kernel.Options{Counters: "software"}, 0, kernelTurns},
	} {
		config.probes.Controller = l.Subsystem
		measured, err := kernelsWith(ctx, o, config.agent, config.probes, config.budget, config.pairs)
		if err != nil {
			return nil, err
		}
		rows = append(rows, measured...)
	}
	return rows, nil
}

func kernelsWith(ctx context.Context, o options, agent string, probes kernel.Options, budget float64,
	pairs int) (rows []row, err error) {
	var own []float64
	for _, c := range computations {
		share, err := ownShare(ctx, o, agent, c.compute)
		if err != nil {
			return nil, err
		}
		own = append(own, share)
	}
	p, err := kernel.Open(probes)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	r, err := p.Record(kernel.RecorderOptions{})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	for i, c := range computations {
		progress("kernels: %s with the hooks of %s, in %d pairs of turns", c.name, agent, c.turns*pairs)
		losses, err := effectOn(ctx, p, r, c.compute, c.turns*pairs)
		if err != nil {
			return nil, err
		}
		low, high := interval(losses)
		rows = append(rows, row{what: c.name + " with " + agent, value: median(losses) + own[i], unit: "%",
			budget: budget, low: low + own[i], high: high + own[i],
			detail: fmt.Sprintf("lost: hooks and ticks %.2f (%.2f to %.2f with 95 %% certainty, %d pairs of turns on %d CPUs), its process %.2f", median(losses), low, high,
				len(losses), runtime.NumCPU(), own[i])})
	}
	return rows, nil
}

// ownShare is what an agent's process takes of all CPUs, in percent, while each of them computes.
func ownShare(ctx context.Context, o options, program string, compute computation) (float64, error) {
	a, err := startAgent(ctx, o, program)
	if err != nil {
		return 0, err
	}
	defer a.stop()
	var share float64
	err = computing(ctx, compute, func(func() uint64) error {
		if err := sleep(ctx, 5*time.Second); err != nil { // what it does once is done
			return err
		}
		begun := time.Now()
		before, err := cpuTime(a.command.Process.Pid)
		if err != nil {
			return err
		}
		if err := sleep(ctx, ownProcess); err != nil {
			return err
		}
		after, err := cpuTime(a.command.Process.Pid)
		share = 100 * (after - before).Seconds() / time.Since(begun).Seconds() / float64(runtime.NumCPU())
		return err
	})
	return share, err
}

// computing runs a computation on each CPU while do runs, which is given a sum of what is done.
func computing(ctx context.Context, compute computation, do func(done func() uint64) error) error {
	ctx, cancel := context.WithCancel(ctx)
	counters := make([]counter, runtime.NumCPU())
	results := make([]float64, len(counters))
	var all sync.WaitGroup
	for i := range counters {
		all.Go(func() {
			results[i] = compute(i+1, func(points int) bool {
				counters[i].Add(uint64(points))
				return ctx.Err() == nil
			})
		})
	}
	err := do(func() (n uint64) {
		for i := range counters {
			n += counters[i].Load()
		}
		return n
	})
	cancel()
	all.Wait()
	for _, r := range results {
		if math.IsNaN(r) || math.IsInf(r, 0) {
			return errors.Join(err, fmt.Errorf("a computation went wrong: %v", results))
		}
	}
	return err
}
