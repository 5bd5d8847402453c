package main

import (
	"time"

	"outsight/internal/fleet"
	"outsight/internal/frame"
	"outsight/internal/graph"
	"outsight/internal/model"
)

// look is what happened between two frames.
type look struct {
	from, to *frame.Frame
	graph    *graph.Graph
	host     fleet.Host
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

func newLook(from, to *frame.Frame) look {
	w := between(from, to)
	l := look{from: from, to: to, graph: graph.FromFrames(w, graph.Options{}), host: fleet.Hosts(w)[0],
		seconds: to.Time.Sub(from.Time).Seconds()}
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
	l.otherCores, l.idleCores, l.stealCores = number(l.host.Other), number(l.host.Idle), number(l.host.Steal)
	l.agentCores = number(l.host.AgentCPUCores)
	before, now := fleet.StatusOf(between(from, from)), fleet.StatusOf(w)
	spent := make(map[string]float64)
	for _, p := range before.Programs {
		spent[p.Name] = p.RunSeconds
	}
	for _, p := range now.Programs {
		if l.seconds > 0 {
			l.agentCores += max(p.RunSeconds-spent[p.Name], 0) / l.seconds
		}
		l.programsKnown = l.programsKnown || p.RunSeconds > 0
	}
	l.dropped = newDrops(before.Drops, now.Drops)
	l.addWaits(w)
	return l
}

func (l *look) addWaits(w *frame.Window) {
	l.waits = map[string]*graph.Wait{}
	l.waitsKnown = countsWaits(l.to)
	// The longest first.
	for _, w := range graph.WaitsFromFrames(w).Containers {
		id := w.ID
		if id == model.HostContainerID {
			id = "host/" + w.Host
		} else if l.longest == nil {
			l.longest = w
		}
		l.waits[id] = w
	}
}

// countsWaits reports whether it is counted what containers wait for a CPU behind.
func countsWaits(f *frame.Frame) bool {
	t := &f.Tables[frame.Labelled]
	for row := range t.IDs {
		if f.Text(frame.Labelled, frame.LabelledMetric, row) == "container_run_queue_wait_by_seconds_total" {
			return true
		}
	}
	return false
}

// newDrops are the drops since before.
func newDrops(before, now []fleet.Drop) []model.Drop {
	counts := make(map[string]uint64)
	for _, d := range before {
		counts[d.Name] = d.Count
	}
	var dropped []model.Drop
	for _, d := range now {
		if d.Count > counts[d.Name] {
			d.Count -= counts[d.Name]
			dropped = append(dropped, d.Drop)
		}
	}
	return dropped
}

// accounted is the share of all CPU time that is accounted for: used, idle, or stolen. Kernel programs count stolen
// time for whoever was on the CPU, files leave it out; it adds to what is missing from the whole, and no more.
func (l look) accounted() float64 {
	whole, sum := max(l.host.Cores, 1), l.cores+l.otherCores+l.idleCores
	return max(sum, min(whole, sum+l.stealCores)) / whole
}

// stolen is the share of all CPU time that the hypervisor took.
func (l look) stolen() float64 { return l.stealCores / max(l.host.Cores, 1) }

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
	h := &l.host
	d := document{
		Time: l.to.Time, WindowSeconds: l.seconds,
		Host: reportHost{Name: h.Name, Kernel: h.Kernel, Cores: int(h.Cores), MemoryBytes: uint64(number(h.MemoryBytes)),
			CgroupLayout: h.CgroupLayout},
		CPUCores: l.cores + l.otherCores, IdleCores: l.idleCores, StealCores: l.stealCores, Accounted: l.accounted(),
		Dropped: []documentBin{},
		Agent: documentSelf{CPUCores: l.agentCores, KernelPrograms: l.programsKnown, MemoryBytes: uint64(h.AgentMemoryBytes),
			ReadSeconds: h.Numbers["agent_read_seconds"]},
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
