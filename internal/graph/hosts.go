package graph

import (
	"cmp"
	"fmt"
	"slices"
)

// MaxHostParts is how many containers of a host are distinguished, those first that used the most
// CPU time. The others are one part.
const MaxHostParts = 12

// HostCPU is what a host's own counters say of its CPUs, in CPUs of the window's mean.
type HostCPU struct {
	Name  string
	Cores float64
	// Idle ran nothing, Other is of control groups that found no room in the kernel's table, Steal was
	// taken by a hypervisor; nil where not known.
	Idle, Other, Steal *float64
}

// PartKind says what a part of a host's CPU time is.
type PartKind string

// The kinds of parts. PartUnattributed is what is not counted: ticks of the two ends of the window, or
// CPU time of a kernel that does not let itself be watched.
const (
	PartContainer    PartKind = "container"
	PartHost         PartKind = "host" // what runs in no container
	PartMore         PartKind = "more" // containers beyond MaxHostParts
	PartOther        PartKind = "other"
	PartIdle         PartKind = "idle"
	PartSteal        PartKind = "steal"
	PartUnattributed PartKind = "unattributed"
)

// HostPart is a part of a host's CPU time. The shares of all parts of a host add up to 1.
type HostPart struct {
	Kind PartKind `json:"kind"`
	// Node is the ID in the graph by containers, empty for what is no node.
	Node     string  `json:"node,omitempty"`
	Name     string  `json:"name"`
	CPUCores float64 `json:"cpu_cores"`
	Share    float64 `json:"share"`
}

// HostUse is what a host's containers use of it.
type HostUse struct {
	// Containers that were there in the window.
	Containers int `json:"containers"`
	// CPUCores is all that ran, in containers or not.
	CPUCores float64    `json:"cpu_cores"`
	Parts    []HostPart `json:"parts"`
	// ContainersMemoryBytes is the sum over containers of which it is known; the rates are of their interfaces.
	// Nil where none is known.
	ContainersMemoryBytes *float64 `json:"containers_memory_bytes,omitempty"`
	NetworkReceiveBytes   *float64 `json:"network_receive_bytes,omitempty"`
	NetworkTransmitBytes  *float64 `json:"network_transmit_bytes,omitempty"`
	DiskReadBytes         *float64 `json:"disk_read_bytes,omitempty"`
	DiskWriteBytes        *float64 `json:"disk_write_bytes,omitempty"`
}

// Host splits a host's CPU time by containers. g must be by containers.
func (g *Graph) Host(h HostCPU) HostUse {
	use := HostUse{Parts: []HostPart{}}
	sum := func(to **float64, v *float64) {
		if v == nil {
			return
		}
		if *to == nil {
			*to = new(float64)
		}
		**to += *v
	}
	for _, n := range g.Nodes {
		if n.Host != h.Name || n.Usage == nil {
			continue
		}
		kind := PartContainer
		if n.Kind == KindHost {
			kind = PartHost
		} else {
			use.Containers++
			sum(&use.ContainersMemoryBytes, n.Usage.MemoryBytes)
			sum(&use.NetworkReceiveBytes, n.Usage.NetworkReceiveBytes)
			sum(&use.NetworkTransmitBytes, n.Usage.NetworkTransmitBytes)
		}
		sum(&use.DiskReadBytes, n.Usage.DiskReadBytes)
		sum(&use.DiskWriteBytes, n.Usage.DiskWriteBytes)
		if n.Usage.CPUCores != nil {
			use.Parts = append(use.Parts, HostPart{Kind: kind, Node: n.ID, Name: n.Name, CPUCores: *n.Usage.CPUCores})
		}
	}
	slices.SortFunc(use.Parts, func(a, b HostPart) int {
		return cmp.Or(-cmp.Compare(a.CPUCores, b.CPUCores), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Node, b.Node))
	})
	use.Parts = few(use.Parts)
	if h.Other != nil && *h.Other > 0 {
		use.Parts = append(use.Parts, HostPart{Kind: PartOther, Name: "groups that found no room in the table",
			CPUCores: *h.Other})
	}
	for _, p := range use.Parts {
		use.CPUCores += p.CPUCores
	}
	if h.Idle != nil {
		use.Parts = append(use.Parts, HostPart{Kind: PartIdle, Name: "idle", CPUCores: *h.Idle})
	}
	use.addSteal(h)
	whole := 0.0
	for _, p := range use.Parts {
		whole += p.CPUCores
	}
	if rest := h.Cores - whole; rest > 0 {
		use.Parts = append(use.Parts, HostPart{Kind: PartUnattributed, Name: "unattributed", CPUCores: rest})
		whole = h.Cores
	}
	for i := range use.Parts {
		use.Parts[i].Share = use.Parts[i].CPUCores / max(whole, 1e-9)
	}
	return use
}

// addSteal makes stolen time a part of its own. The kernel programs' clock goes on while the hypervisor runs others,
// so they count that time for whoever was on the CPU. Whose it was is not known: what is too much is taken
// from all that ran, in proportion, and then from idle time.
func (use *HostUse) addSteal(h HostCPU) {
	if h.Steal == nil || *h.Steal <= 0 || h.Cores <= 0 {
		return
	}
	used, idle, stolen := use.CPUCores, 0.0, min(*h.Steal, h.Cores)
	if h.Idle != nil {
		idle = *h.Idle
	}
	excess := max(0, used+idle+stolen-max(h.Cores, used+idle))
	left := max(0, used-excess)
	use.CPUCores = left
	for i := range use.Parts {
		p := &use.Parts[i]
		switch {
		case p.Kind == PartIdle:
			p.CPUCores -= max(0, excess-used)
		case used > 0:
			p.CPUCores *= left / used
		}
	}
	use.Parts = append(use.Parts, HostPart{Kind: PartSteal, Name: "taken by the hypervisor", CPUCores: stolen})
}

// few puts all containers but the first MaxHostParts into one part. What runs in no container
// stays apart, wherever it is.
func few(parts []HostPart) []HostPart {
	var first []HostPart
	more := HostPart{Kind: PartMore}
	n := 0
	for _, p := range parts {
		if p.Kind == PartHost || len(first) < MaxHostParts {
			first = append(first, p)
			continue
		}
		more.CPUCores += p.CPUCores
		n++
	}
	if n > 0 {
		more.Name = fmt.Sprintf("%d more containers", n)
		first = append(first, more)
	}
	return first
}
