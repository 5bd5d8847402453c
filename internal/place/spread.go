package place

// Spread places the containers of a problem one after the other as Kubernetes' scheduler does by default: each on the
// host that is least allocated then (NodeResourcesLeastAllocated and NodeResourcesBalancedAllocation), by what it uses at
// its peak. It is what placements are compared with.
func Spread(p *Problem) {
	cpu, memory := make([]float64, len(p.Hosts)), make([]float64, len(p.Hosts))
	for i := range p.Containers {
		c := &p.Containers[i]
		best, most := 0, -1e9
		for h, host := range p.Hosts {
			usedCPU, usedMemory := (cpu[h]+c.CPU.Peak)/host.Cores, (memory[h]+c.Memory.Peak)/host.MemoryBytes
			least := 1 - (usedCPU+usedMemory)/2
			balanced := 1 - max(usedCPU-usedMemory, usedMemory-usedCPU)/2
			if usedCPU > 1 || usedMemory > 1 {
				least -= 10
			}
			if score := least + balanced; score > most {
				best, most = h, score
			}
		}
		c.Host = best
		cpu[best] += c.CPU.Peak
		memory[best] += c.Memory.Peak
	}
}
