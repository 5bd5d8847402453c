package main

import (
	"time"

	"outsight/internal/graph"
	"outsight/internal/model"
)

// look is what happened between two snapshots.
type look struct {
	from, to *model.Snapshot
	graph    *graph.Graph
	// seconds between the two.
	seconds float64
	// cores are CPU seconds per second: used by containers and host, by groups that found no
	// room in the table, idle, taken by the hypervisor.
	cores, otherCores, idleCores, stealCores float64
	memory, requests                         float64
	// agentCores is what the agent's process uses, and where programsKnown the kernel programs.
	agentCores    float64
	programsKnown bool
	// dropped are the tables that had no room for something in the time.
	dropped []model.Drop
	// waits are what nodes waited for a CPU behind, by their IDs, longest the greatest of those in a container;
	// waitsKnown is whether that is counted.
	waits      map[string]*graph.Wait
	longest    *graph.Wait
	waitsKnown bool
}

func newLook(from, to *model.Snapshot) look {
	l := look{from: from, to: to, graph: graph.FromSnapshots(from, to), seconds: to.Time.Sub(from.Time).Seconds()}
	for _, n := range l.graph.Nodes {
		if n.Usage != nil {
			l.cores += number(n.Usage.CPUCores)
			l.memory += number(n.Usage.WorkingSetBytes)
		}
		// Each transaction once: where it was served, or called from here if served elsewhere.
		if n.Served != nil && n.Kind != graph.KindOutside {
			l.requests += number(n.Served.TransactionsPerSecond)
		}
	}
	for _, e := range l.graph.Edges {
		if n := l.graph.Node(e.Server); n != nil && n.Kind == graph.KindOutside {
			l.requests += number(e.Best().TransactionsPerSecond)
		}
	}
	perSecond := func(before, now uint64) float64 { return gained(before, now) / l.seconds / 1e9 }
	l.otherCores = perSecond(from.Self.OtherNS, to.Self.OtherNS)
	l.idleCores = perSecond(from.Self.IdleNS, to.Self.IdleNS)
	l.stealCores = perSecond(from.Self.StealNS, to.Self.StealNS)
	l.agentCores = perSecond(from.Self.CPUNS, to.Self.CPUNS)
	before := make(map[string]uint64)
	for _, p := range from.Self.Programs {
		before[p.Name] = p.RunTimeNS
	}
	for _, p := range to.Self.Programs {
		l.agentCores += perSecond(before[p.Name], p.RunTimeNS)
		l.programsKnown = l.programsKnown || p.RunTimeNS > 0
	}
	l.dropped = newDrops(from.Self.Drops, to.Self.Drops)
	l.addWaits()
	return l
}

func (l *look) addWaits() {
	l.waits = map[string]*graph.Wait{}
	for i := range l.to.Containers {
		l.waitsKnown = l.waitsKnown || l.to.Containers[i].Contention != nil
	}
	// The longest first.
	for _, w := range graph.WaitsFromSnapshots(l.from, l.to).Containers {
		id := w.ID
		if id == model.HostContainerID {
			id = "host/" + w.Host
		} else if l.longest == nil {
			l.longest = w
		}
		l.waits[id] = w
	}
}

// newDrops are the drops since before.
func newDrops(before, now []model.Drop) []model.Drop {
	counts := make(map[string]uint64)
	for _, d := range before {
		counts[d.Name] = d.Count
	}
	var dropped []model.Drop
	for _, d := range now {
		if d.Count > counts[d.Name] {
			d.Count -= counts[d.Name]
			dropped = append(dropped, d)
		}
	}
	return dropped
}

func gained(before, now uint64) float64 {
	if now < before {
		return float64(now)
	}
	return float64(now - before)
}

// accounted is the share of all CPU time that is accounted for: used, idle, or stolen. Kernel programs count stolen
// time for whoever was on the CPU, files leave it out; it adds to what is missing from the whole, and no more.
func (l look) accounted() float64 {
	whole, sum := float64(max(l.to.Host.Cores, 1)), l.cores+l.otherCores+l.idleCores
	return max(sum, min(whole, sum+l.stealCores)) / whole
}

// stolen is the share of all CPU time that the hypervisor took.
func (l look) stolen() float64 { return l.stealCores / float64(max(l.to.Host.Cores, 1)) }

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
