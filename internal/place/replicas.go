package place

import (
	"cmp"
	"slices"
)

// averageUse is the use of each container; of replicas, the mean of theirs, and the highest peak.
func (p *Problem) averageUse() (cpu, peak, memory []float64) {
	for _, c := range p.Containers {
		cpu = append(cpu, c.CPU.Mean)
		peak = append(peak, max(c.CPU.Peak, c.CPU.Mean))
		memory = append(memory, max(c.Memory.Peak, c.Memory.Mean))
	}
	for _, some := range p.Replicas {
		sum, highestCPU, highestMemory := 0.0, 0.0, 0.0
		for _, i := range some {
			sum += cpu[i]
			highestCPU, highestMemory = max(highestCPU, peak[i]), max(highestMemory, memory[i])
		}
		for _, i := range some {
			cpu[i], peak[i], memory[i] = sum/float64(len(some)), highestCPU, highestMemory
		}
	}
	return cpu, peak, memory
}

// maxSpread bounds the pairs between two sets of replicas over which their traffic is spread; that of larger ones stays
// where it was measured.
const maxSpread = 10000

// averageTraffic is the traffic of each pair. What two sets of replicas exchange is spread evenly over their pairs, as a
// load balancer does: where one of them goes, the others' clients follow.
func (p *Problem) averageTraffic() []Traffic {
	set := make([]int, len(p.Containers))
	for i := range set {
		set[i] = -1 - i
	}
	for n, some := range p.Replicas {
		for _, i := range some {
			set[i] = n
		}
	}
	members := func(n int) []int {
		if n < 0 {
			return []int{-1 - n}
		}
		return p.Replicas[n]
	}
	sums := map[[2]int]*Traffic{}
	pairs := map[[2]int]*Traffic{}
	add := func(a, b int, bytes, requests float64, to map[[2]int]*Traffic) {
		key := [2]int{min(a, b), max(a, b)}
		if to[key] == nil {
			to[key] = &Traffic{A: key[0], B: key[1]}
		}
		to[key].Bytes += bytes
		to[key].Requests += requests
	}
	for _, t := range p.Traffic {
		a, b := set[t.A], set[t.B]
		switch {
		case t.A == t.B:
		case a < 0 && b < 0 || a == b || len(members(a))*len(members(b)) > maxSpread:
			add(t.A, t.B, t.Bytes, t.Requests, pairs)
		default:
			add(a, b, t.Bytes, t.Requests, sums)
		}
	}
	for key, t := range sums {
		first, second := members(key[0]), members(key[1])
		n := float64(len(first) * len(second))
		for _, a := range first {
			for _, b := range second {
				add(a, b, t.Bytes/n, t.Requests/n, pairs)
			}
		}
	}
	all := make([]Traffic, 0, len(pairs))
	for _, t := range pairs {
		all = append(all, *t)
	}
	slices.SortFunc(all, func(x, y Traffic) int { return cmp.Or(cmp.Compare(x.A, y.A), cmp.Compare(x.B, y.B)) })
	return all
}

// fewestMoves gives the places of interchangeable containers to those that are there already.
func (c *compiled) fewestMoves(at []int) {
	for _, some := range c.Replicas {
		want := map[int]int{}
		for _, i := range some {
			want[at[i]]++
		}
		var away []int
		for _, i := range some {
			if home := c.Containers[i].Host; want[home] > 0 {
				want[home]--
				at[i] = home
			} else {
				away = append(away, i)
			}
		}
		var free []int
		for host, n := range want {
			for range n {
				free = append(free, host)
			}
		}
		slices.Sort(free)
		for k, i := range away {
			at[i] = free[k]
		}
	}
}
