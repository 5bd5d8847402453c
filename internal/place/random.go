package place

import (
	"fmt"
	"math/rand/v2"
)

// Random makes a problem: containers in groups that talk mostly among themselves, and a little with others, where Kubernetes'
// default spreading would put them. It is for tests and benchmarks, and the same for a seed.
func Random(containers, hosts int, seed uint64) *Problem {
	random := rand.New(rand.NewPCG(seed, 1))
	p := &Problem{}
	for h := range hosts {
		p.Hosts = append(p.Hosts, Host{Name: fmt.Sprintf("host-%d", h+1), Cores: float64(int(8) << random.IntN(2)),
			MemoryBytes: 32 << 30, IdleWatts: 60 + 60*random.Float64(), WattsPerCore: 4 + 4*random.Float64()})
	}
	each := float64(hosts*10) / float64(containers) // cores
	for i := range containers {
		cpu := each * 0.6 * random.Float64()
		memory := float64(hosts) * (32 << 30) / float64(containers) * random.Float64()
		p.Containers = append(p.Containers, Container{ID: fmt.Sprintf("c%d", i), Name: fmt.Sprintf("app%d-%d", i/8, i%8),
			CPU: Use{cpu, cpu * (1 + 0.5*random.Float64())}, Memory: Use{memory, memory * 1.1}})
	}
	for i := range containers {
		for range 1 + random.IntN(4) {
			other := i/8*8 + random.IntN(8)
			if random.IntN(6) == 0 {
				other = random.IntN(containers)
			}
			if other == i || other >= containers {
				continue
			}
			rate := 1e6 * random.ExpFloat64()
			p.Traffic = append(p.Traffic, Traffic{A: i, B: other, Bytes: rate, Requests: rate / 1000 * random.Float64()})
		}
	}
	Spread(p)
	return p
}
