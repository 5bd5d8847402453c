package main

import (
	"math/rand/v2"
	"slices"
	"time"

	"outsight/internal/place"
)

// What the genetic algorithm of paper 001 is given: Pyevolve's defaults, but for the rate of mutation, which is a gene
// and a half of each genome on average.
const (
	geneticPopulation = 80
	geneticCrossover  = 0.9
	geneticMutations  = 1.5
)

// genetic searches for a placement as paper 001 does, for so long: a genome has the host of each container, and its
// fitness is the product of how fully CPU and memory of the hosts are used, with a larger penalty for those overused, and of
// how little of the traffic goes between hosts.
func genetic(p *place.Problem, length time.Duration) []int {
	random := rand.New(rand.NewPCG(1, 2))
	end := time.Now().Add(length)
	type individual struct {
		genome  []int
		fitness float64
	}
	population := make([]individual, geneticPopulation)
	for i := range population {
		genome := p.Present()
		for k := range genome {
			if i > 0 {
				genome[k] = random.IntN(len(p.Hosts))
			}
		}
		population[i] = individual{genome, fitness(p, genome)}
	}
	best := population[0]
	pick := func() individual { // the better of two
		a, b := population[random.IntN(len(population))], population[random.IntN(len(population))]
		if a.fitness > b.fitness {
			return a
		}
		return b
	}
	for time.Now().Before(end) {
		next := []individual{best}
		for len(next) < geneticPopulation {
			genome := slices.Clone(pick().genome)
			if random.Float64() < geneticCrossover {
				other, cut := pick().genome, random.IntN(len(genome))
				copy(genome[cut:], other[cut:])
			}
			for k := range genome {
				if random.Float64() < geneticMutations/float64(len(genome)) {
					genome[k] = random.IntN(len(p.Hosts))
				}
			}
			next = append(next, individual{genome, fitness(p, genome)})
		}
		population = next
		for _, i := range population {
			if i.fitness > best.fitness {
				best = i
			}
		}
	}
	return best.genome
}

// fitness is 1 for hosts in use that are fully used and no traffic between hosts.
func fitness(p *place.Problem, at []int) float64 {
	cpu, memory := make([]float64, len(p.Hosts)), make([]float64, len(p.Hosts))
	for i, h := range at {
		cpu[h] += p.Containers[i].CPU.Peak / p.Hosts[h].Cores
		memory[h] += p.Containers[i].Memory.Peak / p.Hosts[h].MemoryBytes
	}
	full := func(used []float64) float64 {
		sum, hosts := 0.0, 0.0
		for _, u := range used {
			switch {
			case u == 0:
				continue
			case u <= 1:
				sum += u
			default:
				sum += max(0, 1-3*(u-1))
			}
			hosts++
		}
		return sum / hosts
	}
	all, within := 0.0, 0.0
	for _, t := range p.Traffic {
		if all += t.Bytes; at[t.A] == at[t.B] {
			within += t.Bytes
		}
	}
	return full(cpu) * full(memory) * (0.01 + within/all)
}
