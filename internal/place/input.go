package place

import (
	"cmp"
	"slices"

	"outsight/internal/fleet"
	"outsight/internal/frame"
	"outsight/internal/graph"
	"outsight/internal/model"
)

// Why a container may not move, as far as frames tell.
const (
	ofHost        = "runs in no container"
	isService     = "is a service of its host"
	isDaemonSet   = "a DaemonSet has one on each node"
	isStatic      = "is a static pod of its node"
	onHostNetwork = "has its host's network"
)

// leastSeconds bounds how urgent a request is: one that is answered faster counts as this.
const leastSeconds = 1e-4

// FromFrames is the problem of a window: g is its graph by containers, hosts are those of it. A pod is placed as a whole.
// What is not of a host, or ended, is left out.
func FromFrames(w *frame.Window, g *graph.Graph, hosts []fleet.Host, peaks *Peaks) *Problem {
	p := &Problem{}
	hostOf := map[string]int{}
	sharesNetwork, seen := hostNetworked(w), placementsOf(w)
	watts, busy := fleet.PowerOf(w), map[string]float64{}
	for _, n := range g.Nodes {
		if n.Usage != nil {
			busy[n.Host] += value(n.Usage.CPUCores)
		}
	}
	for _, h := range hosts {
		if h.Cores > 0 && h.MemoryBytes != nil {
			hostOf[h.Name] = len(p.Hosts)
			host := Host{Name: h.Name, Cores: h.Cores, MemoryBytes: *h.MemoryBytes}
			if used := busy[h.Name]; used > 0 {
				host.IdleWatts, host.WattsPerCore = watts[h.Name].Idle, watts[h.Name].Work/used
			}
			for _, l := range seen[[2]string{h.Name, model.HostContainerID}] {
				if l.Name == model.PlaceHostLabel {
					host.label([]string{l.Value})
				}
			}
			p.Hosts = append(p.Hosts, host)
		}
	}
	of, pods := map[string]int{}, map[[3]string]int{}
	for _, n := range g.Nodes {
		host, known := hostOf[n.Host]
		if !known || n.Usage == nil || n.Gone || n.Kind != graph.KindContainer && n.Kind != graph.KindHost {
			continue
		}
		c := containerOf(n, host, peaks)
		if c.Pinned == "" && sharesNetwork[[2]string{n.Host, n.SeriesID}] {
			c.Pinned = onHostNetwork
		}
		c.seen = seen[[2]string{n.Host, n.SeriesID}]
		pod := [3]string{n.Host, n.PodNamespace, n.PodName}
		if at, ok := pods[pod]; ok && n.PodName != "" {
			p.Containers[at].join(c)
			of[n.ID] = at
			continue
		}
		of[n.ID], pods[pod] = len(p.Containers), len(p.Containers)
		p.Containers = append(p.Containers, c)
	}
	for _, e := range g.Edges {
		a, knownA := of[e.Client]
		b, knownB := of[e.Server]
		if s := e.Best(); knownA && knownB && a != b && s != nil {
			p.Traffic = append(p.Traffic, trafficOf(a, b, s))
		}
	}
	p.findReplicas()
	return p
}

func value(v *float64) float64 {
	if v == nil {
		return 0
	}
	return *v
}

func containerOf(n *graph.Node, host int, peaks *Peaks) Container {
	c := Container{ID: n.ID, Name: n.Name, Namespace: n.PodNamespace, Pod: n.PodName, Workload: n.Workload,
		WorkloadKind: n.WorkloadKind, Host: host}
	if c.Pod != "" {
		c.Name = c.Pod
	}
	memory, ok := n.Usage.Number("working_set_bytes_mean")
	if !ok {
		memory = value(cmp.Or(n.Usage.WorkingSetBytes, n.Usage.MemoryBytes))
	}
	peak := peaks.of[[2]string{n.Host, n.SeriesID}]
	c.CPU = Use{value(n.Usage.CPUCores), max(value(n.Usage.CPUCores), peak.cores)}
	c.Memory = Use{memory, max(memory, peak.memory)}
	switch {
	case n.Kind == graph.KindHost:
		c.Pinned, c.OfHost = ofHost, true
	case n.Runtime == string(model.Systemd):
		c.Pinned, c.OfHost = isService, true
	case n.WorkloadKind == "DaemonSet":
		c.Pinned, c.OfHost = isDaemonSet, true
	case n.WorkloadKind == "Node":
		c.Pinned, c.OfHost = isStatic, true
	}
	return c
}

// join adds another container of the same pod.
func (c *Container) join(other Container) {
	c.CPU.Mean += other.CPU.Mean
	c.CPU.Peak += other.CPU.Peak
	c.Memory.Mean += other.Memory.Mean
	c.Memory.Peak += other.Memory.Peak
	c.Pinned = cmp.Or(c.Pinned, other.Pinned)
	c.OfHost = c.OfHost && other.OfHost
	for _, l := range other.seen {
		if !slices.Contains(c.seen, l) {
			c.seen = append(c.seen[:len(c.seen):len(c.seen)], l)
		}
	}
}

func trafficOf(a, b int, s *graph.Side) Traffic {
	t := Traffic{A: a, B: b, Bytes: value(s.RequestBytesPerSecond) + value(s.ResponseBytesPerSecond)}
	if requests := value(s.TransactionsPerSecond); requests > 0 && s.Mean != nil {
		t.Requests = requests * 1e-3 / max(float64(*s.Mean), leastSeconds)
	}
	return t
}

// findReplicas finds the pods of each Deployment. Those of a StatefulSet have data of their own each.
func (p *Problem) findReplicas() {
	of := map[[2]string]int{}
	for i, c := range p.Containers {
		if c.Workload == "" || c.Pinned != "" || c.WorkloadKind != "Deployment" && c.WorkloadKind != "ReplicaSet" {
			continue
		}
		key := [2]string{c.Namespace, c.Workload}
		n, ok := of[key]
		if !ok {
			n = len(p.Replicas)
			of[key] = n
			p.Replicas = append(p.Replicas, nil)
		}
		p.Replicas[n] = append(p.Replicas[n], i)
	}
	p.Replicas = slices.DeleteFunc(p.Replicas, func(some []int) bool { return len(some) < 2 })
}

// hostNetworked are the containers, by host and ID, that have an address of their host.
func hostNetworked(w *frame.Window) map[[2]string]bool {
	found := map[[2]string]bool{}
	for i := range w.Hosts {
		spans := w.Hosts[i].Spans
		if len(spans) == 0 {
			continue
		}
		f := spans[len(spans)-1].After
		t, containers := &f.Tables[frame.Addresses], &f.Tables[frame.Containers]
		owners := map[string][]string{}
		for row := range t.IDs {
			if at, ok := containers.Find(uint32(t.Attribute(frame.AddressOf, row))); ok {
				address := f.Text(frame.Addresses, frame.Address, row)
				owners[address] = append(owners[address], f.Text(frame.Containers, frame.ContainerKey, at))
			}
		}
		for _, ids := range owners {
			if !slices.Contains(ids, model.HostContainerID) {
				continue
			}
			for _, id := range ids {
				found[[2]string{w.Hosts[i].Host, id}] = true
			}
		}
	}
	return found
}
