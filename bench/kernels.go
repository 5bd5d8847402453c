package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// kernelBudget is in percent of a program's run time.
const kernelBudget = 0.5

// computations are programs that only compute, in the manner of three of the NAS Parallel Benchmarks: EP (random
// numbers, no memory), CG (a sparse matrix at irregular places) and MG (stencils on grids of several
// sizes). Each thread does the whole work for itself.
var computations = map[string]func(seed int) float64{"EP": embarrassinglyParallel, "CG": conjugateGradient, "MG": multigrid}

// runKernel runs one on each CPU and prints the seconds that it took, and those of CPU time.
func runKernel(name string) error {
	kernel := computations[name]
	if kernel == nil {
		return fmt.Errorf("there is no work %q", name)
	}
	begun := time.Now()
	var all sync.WaitGroup
	results := make([]float64, runtime.NumCPU())
	for i := range results {
		all.Go(func() { results[i] = kernel(i + 1) })
	}
	all.Wait()
	for _, r := range results {
		if math.IsNaN(r) || math.IsInf(r, 0) {
			return fmt.Errorf("%s went wrong: %v", name, results)
		}
	}
	took := time.Since(begun).Seconds()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return err
	}
	fmt.Println(took, float64(usage.Utime.Nano()+usage.Stime.Nano())/1e9)
	return nil
}

// embarrassinglyParallel counts pairs of normal deviates, made by the polar method of a linear
// congruential generator, as EP does.
func embarrassinglyParallel(seed int) float64 {
	x, sum := uint64(seed)*271828183, 0.0
	next := func() float64 {
		x = x * 1220703125 & (1<<46 - 1)
		return 2*float64(x)/(1<<46) - 1
	}
	for range 120_000_000 {
		a, b := next(), next()
		if t := a*a + b*b; t <= 1 && t > 0 {
			f := math.Sqrt(-2 * math.Log(t) / t)
			sum += math.Abs(a*f) + math.Abs(b*f)
		}
	}
	return sum
}

// conjugateGradient solves equations of a sparse symmetric matrix with entries at irregular places.
func conjugateGradient(seed int) float64 {
	const n, perRow, rounds = 75_000, 11, 1100
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
	for range rounds {
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
func multigrid(seed int) float64 {
	const size, cycles = 128, 35
	var grids, scratch [][]float64
	for n := size; n >= 4; n /= 2 {
		grids, scratch = append(grids, make([]float64, n*n*n)), append(scratch, make([]float64, n*n*n))
	}
	for i := range grids[0] {
		grids[0][i] = float64((i*seed)%17) / 17
	}
	for range cycles {
		n := size
		for level := range grids[:len(grids)-1] {
			smooth(grids[level], scratch[level], n)
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
			smooth(fine, scratch[level], n)
		}
	}
	return grids[0][len(grids[0])/2]
}

// smooth makes each point the mean of its neighbours, twice.
func smooth(field, scratch []float64, n int) {
	for range 2 {
		for z := 1; z < n-1; z++ {
			for y := 1; y < n-1; y++ {
				for x := 1; x < n-1; x++ {
					i := (z*n+y)*n + x
					scratch[i] = (field[i] + field[i-1] + field[i+1] + field[i-n] + field[i+n] + field[i-n*n] + field[i+n*n]) / 7
				}
			}
		}
		copy(field, scratch)
	}
}

// ofCPU marks what a computation used of the CPUs itself: others beside it change that less than its run
// time, and the agent's own threads are not in it.
const ofCPU = ", CPU time"

// measureKernels compares their run times without an agent, with one, and with one that counts software
// events at each switch to another control group, in turns (A B C C B A).
func measureKernels(ctx context.Context, o options) ([]row, error) {
	names := []string{"EP", "CG", "MG"}
	agents := []string{"", "outsight-agent", "outsight-agent --counters software"}
	if _, err := os.Stat(filepath.Join(o.binaries, "outsight-agent")); err != nil {
		return nil, fmt.Errorf("looking for the agent: %w (make build)", err)
	}
	seconds := make([]map[string][]float64, len(agents))
	for i := range seconds {
		seconds[i] = map[string][]float64{}
	}
	for turn := range o.pairs * len(agents) {
		with := turn % len(agents)
		if turn/len(agents)%2 == 1 {
			with = len(agents) - 1 - with
		}
		progress("kernels: run %d of %d, with %q", turn+1, o.pairs*len(agents), agents[with])
		if err := runKernels(ctx, o, agents[with], names, seconds[with]); err != nil {
			return nil, err
		}
	}
	var rows []row
	for with, agent := range agents[1:] {
		for _, name := range []string{"EP", "CG", "MG", "EP" + ofCPU, "CG" + ofCPU, "MG" + ofCPU} {
			var slower []float64
			for i, s := range seconds[with+1][name] {
				slower = append(slower, 100*(s/seconds[0][name][i]-1))
			}
			budget := 0.0
			if with == 0 {
				budget = kernelBudget
			}
			rows = append(rows, row{what: name + " with " + agent, value: median(slower), unit: "%", budget: budget,
				low: quartile(slower, 1), high: quartile(slower, 3),
				detail: fmt.Sprintf("more; median of %d pairs, quartiles %.2f to %.2f; %.2f s without, on %d CPUs", len(slower),
					quartile(slower, 1), quartile(slower, 3), median(seconds[0][name]), runtime.NumCPU())})
		}
	}
	return rows, nil
}

// runKernels runs each once, beside an agent if one is named.
func runKernels(ctx context.Context, o options, program string, names []string, to map[string][]float64) error {
	if program != "" {
		a, err := startAgent(ctx, o, program)
		if err != nil {
			return err
		}
		defer a.stop()
		time.Sleep(2 * time.Second) // what it does once is done
	}
	executable, err := os.Executable()
	if err != nil {
		return err
	}
	for _, name := range names {
		c := exec.CommandContext(ctx, executable)
		c.Env, c.Stderr = append(os.Environ(), workVariable+"="+name), os.Stderr
		out, err := c.Output()
		if err != nil {
			return fmt.Errorf("running %s: %w", name, err)
		}
		var took, ran float64
		if _, err := fmt.Sscan(string(out), &took, &ran); err != nil {
			return fmt.Errorf("running %s: %w", name, err)
		}
		to[name], to[name+ofCPU] = append(to[name], took), append(to[name+ofCPU], ran)
	}
	return nil
}
