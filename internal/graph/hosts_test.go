package graph

import (
	"fmt"
	"testing"
)

func hostOf(parts ...float64) *Graph {
	g := &Graph{}
	for i, cpu := range parts {
		g.Nodes = append(g.Nodes, &Node{ID: fmt.Sprint("c", i), Name: fmt.Sprint("c", i), Kind: KindContainer, Host: "vm",
			Usage: &Usage{CPUCores: ptr(cpu), MemoryBytes: ptr(100.0)}})
	}
	g.Nodes = append(g.Nodes, &Node{ID: "host/vm", Name: "host", Kind: KindHost, Host: "vm",
		Usage: &Usage{CPUCores: ptr(0.05), MemoryBytes: ptr(900.0)}},
		&Node{ID: "far", Name: "far", Kind: KindContainer, Host: "other", Usage: &Usage{CPUCores: ptr(9.0)}})
	return g
}

// A virtual machine's stolen time is a part of its own. Counters that took it for CPU time of who was on the CPU
// lose as much together; what files report leaves it out already.
func TestStolenTimeIsAPart(t *testing.T) {
	for _, c := range []struct {
		name                       string
		graph                      *Graph
		cpu                        HostCPU
		used, stolen, idle, untold float64
	}{
		{"counted for those that ran", hostOf(1.0, 0.75), HostCPU{"vm", 2, ptr(0.2), nil, ptr(0.3)}, 1.5, 0.3, 0.2, 0},
		{"left out by files", hostOf(0.55), HostCPU{"vm", 2, ptr(0.2), nil, ptr(0.3)}, 0.6, 0.3, 0.2, 0.9},
		{"counted for some", hostOf(1.0, 0.55), HostCPU{"vm", 2, ptr(0.2), nil, ptr(0.3)}, 1.5, 0.3, 0.2, 0},
		{"more than what ran", hostOf(), HostCPU{"vm", 2, ptr(1.95), nil, ptr(0.25)}, 0, 0.25, 1.75, 0},
		{"all of it", hostOf(), HostCPU{"vm", 2, ptr(1.95), nil, ptr(2.5)}, 0, 2, 0, 0},
		{"none", hostOf(1.95), HostCPU{"vm", 2, ptr(0.0), nil, ptr(0.0)}, 2, 0, 0, 0},
	} {
		use, sum := c.graph.Host(c.cpu), 0.0
		got := map[PartKind]float64{}
		for _, p := range use.Parts {
			got[p.Kind] += p.CPUCores
			sum += p.Share
		}
		if !near(use.CPUCores, c.used) || !near(got[PartContainer]+got[PartHost], c.used) ||
			!near(got[PartSteal], c.stolen) ||
			!near(got[PartIdle], c.idle) || !near(got[PartUnattributed], c.untold) || !near(sum, 1) {
			t.Errorf("%s: %v used, shares of %v: %+v", c.name, use.CPUCores, sum, use.Parts)
		}
	}
}

// The parts of a host are the whole of it, whatever is told of it.
func TestHostAddsUpToTheWhole(t *testing.T) {
	many := make([]float64, 40)
	for i := range many {
		many[i] = 0.01
	}
	for _, c := range []struct {
		name        string
		graph       *Graph
		cpu         HostCPU
		parts       int
		used, whole float64
	}{
		{"with idle", hostOf(0.5, 0.25), HostCPU{"vm", 2, ptr(1.1), ptr(0.1), nil}, 5 + 0, 0.9, 2},
		{"short of the whole", hostOf(0.5), HostCPU{"vm", 2, ptr(1.0), nil, nil}, 4, 0.55, 2},
		{"more than the whole", hostOf(1.5, 0.5), HostCPU{"vm", 2, ptr(0.2), nil, nil}, 4, 2.05, 2.25},
		{"without idle", hostOf(0.5), HostCPU{"vm", 2, nil, nil, nil}, 3, 0.55, 2},
		{"many", hostOf(many...), HostCPU{"vm", 2, ptr(1.55), nil, nil}, MaxHostParts + 2, 0.45, 2},
		{"unknown", hostOf(), HostCPU{Name: "vm"}, 1, 0.05, 0.05},
	} {
		use := c.graph.Host(c.cpu)
		share, sum := 0.0, 0.0
		for _, p := range use.Parts {
			share, sum = share+p.Share, sum+p.CPUCores
		}
		if len(use.Parts) != c.parts || !near(share, 1) || !near(use.CPUCores, c.used) || !near(sum, c.whole) {
			t.Errorf("%s: %d parts of %v used, %v in all, shares %v: %+v", c.name, len(use.Parts), use.CPUCores, sum,
				share, use.Parts)
		}
	}
	use := hostOf(many...).Host(HostCPU{"vm", 2, ptr(1.55), nil, nil})
	if use.Containers != 40 || *use.ContainersMemoryBytes != 4000 {
		t.Errorf("%d containers with %v bytes", use.Containers, *use.ContainersMemoryBytes)
	}
	more := use.Parts[MaxHostParts]
	if more.Kind != PartMore || !near(more.CPUCores, 0.01*float64(40-MaxHostParts+1)) ||
		more.Name != "29 more containers" {
		t.Errorf("the rest is %+v", more)
	}
}
