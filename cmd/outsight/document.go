package main

import (
	"time"

	"outsight/internal/graph"
)

// document is what --output json prints.
type document struct {
	Time          time.Time     `json:"time"`
	WindowSeconds float64       `json:"window_seconds"`
	Host          reportHost    `json:"host"`
	CPUCores      float64       `json:"cpu_cores"`
	IdleCores     float64       `json:"idle_cores"`
	StealCores    float64       `json:"steal_cores"`
	Accounted     float64       `json:"cpu_accounted_share"`
	Dropped       []documentBin `json:"dropped"`
	Agent         documentSelf  `json:"agent"`
	Containers    []documentRow `json:"containers"`
}

// documentRow is a container, and what it waited for a CPU behind, nil where it did not.
type documentRow struct {
	*graph.Node
	Contention *graph.Wait `json:"contention,omitempty"`
}

type documentBin struct {
	Name  string `json:"name"`
	Count uint64 `json:"count"`
}

type documentSelf struct {
	CPUCores float64 `json:"cpu_cores"`
	// KernelPrograms reports whether CPUCores has the kernel programs in it: their time is known
	// only while the kernel's program statistics are on.
	KernelPrograms bool    `json:"cpu_cores_with_kernel_programs"`
	MemoryBytes    uint64  `json:"memory_bytes"`
	ReadSeconds    float64 `json:"read_seconds"`
}

func (l look) document(o topOptions) document {
	h, self := l.to.Host, l.to.Self
	d := document{
		Time: l.to.Time, WindowSeconds: l.seconds,
		Host: reportHost{Name: h.Name, Kernel: h.Kernel, Cores: h.Cores, MemoryBytes: h.MemoryBytes,
			CgroupLayout: h.CgroupLayout},
		CPUCores: l.cores + l.otherCores, IdleCores: l.idleCores, StealCores: l.stealCores, Accounted: l.accounted(),
		Dropped: []documentBin{},
		Agent: documentSelf{CPUCores: l.agentCores, KernelPrograms: l.programsKnown, MemoryBytes: self.RSSBytes,
			ReadSeconds: float64(self.ReadNS) / 1e9},
		Containers: []documentRow{},
	}
	for _, drop := range l.dropped {
		d.Dropped = append(d.Dropped, documentBin{drop.Name, drop.Count})
	}
	t := table{look: l, sort: columnNamed(o.sort), filter: o.filter}
	for _, r := range t.rows() {
		d.Containers = append(d.Containers, documentRow{r.Node, r.wait})
	}
	return d
}
