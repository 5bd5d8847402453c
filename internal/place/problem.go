package place

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"outsight/internal/model"
)

// Bounds of a problem.
const (
	MaxContainers = 20000
	MaxHosts      = 5000
)

// Use is what something uses: the mean over the window, and the highest value over a minute of it. CPU is in cores,
// memory in bytes.
type Use struct {
	Mean float64 `json:"mean"`
	Peak float64 `json:"peak"`
}

// Host is where containers run.
type Host struct {
	Name string `json:"name"`
	// Cores and MemoryBytes are what it has for containers.
	Cores       float64 `json:"cores"`
	MemoryBytes float64 `json:"memory_bytes"`
	// IdleWatts are what it takes with nothing to do, WattsPerCore what a busy core takes besides; 0 where no meter tells.
	IdleWatts    float64 `json:"idle_watts,omitempty"`
	WattsPerCore float64 `json:"watts_per_core,omitempty"`
	// Labels are those that Docker and Kubernetes have for it, and that rules tell; nil where none are known.
	Labels map[string]string `json:"labels,omitempty"`
}

// Container is what is placed.
type Container struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	Namespace string `json:"namespace,omitempty"`
	Pod       string `json:"pod,omitempty"`
	// Workload is what it is a replica of, WorkloadKind what that is, as in "Deployment".
	Workload     string `json:"workload,omitempty"`
	WorkloadKind string `json:"workload_kind,omitempty"`
	// Host is where it runs now, as an index.
	Host   int `json:"host"`
	CPU    Use `json:"cpu_cores"`
	Memory Use `json:"memory_bytes"`
	// Pinned says why it may not move; empty where it may.
	Pinned string `json:"pinned,omitempty"`
	// OfHost says that it belongs to its host: a host that runs only such is not in use.
	OfHost bool `json:"of_host,omitempty"`
	// Rules are those that it has to keep besides, in words, as "requires the host labels disk=ssd".
	Rules []string `json:"rules,omitempty"`
	// seen is what is known of where it may run.
	seen []model.Label
}

// Traffic is between two containers, both ways, per second.
type Traffic struct {
	A, B int
	// Bytes are those of requests and replies.
	Bytes float64
	// Requests are weighted by how urgent they are: one that is answered in 1 ms loses ten times the share of its time to
	// a way between hosts that one answered in 10 ms loses.
	Requests float64
}

// Problem is what a placement is asked for. Containers that Together names run on one host, those that Apart names each on
// another; both are lists of indexes.
type Problem struct {
	Hosts      []Host
	Containers []Container
	Traffic    []Traffic
	Together   [][]int
	Apart      [][]int
	// Allowed are the hosts on which a container may run, by index; nil for all. It is empty where there is no rule.
	Allowed [][]bool
	// Replicas are containers that are interchangeable. Their use and their traffic are what they have on average.
	Replicas [][]int
	// restrictions say why a container may not be everywhere, by its index; apartRules why those of Apart are apart.
	restrictions [][]restriction
	apartRules   []string
}

// check refuses what is no problem.
func (p *Problem) check() error {
	switch {
	case len(p.Hosts) == 0:
		return errors.New("there is no host")
	case len(p.Hosts) > MaxHosts:
		return fmt.Errorf("there are %d hosts, at most %d are possible", len(p.Hosts), MaxHosts)
	case len(p.Containers) > MaxContainers:
		return fmt.Errorf("there are %d containers, at most %d are possible", len(p.Containers), MaxContainers)
	}
	for _, h := range p.Hosts {
		if h.Cores <= 0 || h.MemoryBytes <= 0 {
			return fmt.Errorf("host %q: its cores or its memory are not known", h.Name)
		}
	}
	for _, c := range p.Containers {
		if c.Host < 0 || c.Host >= len(p.Hosts) {
			return fmt.Errorf("container %q runs on host number %d, there are %d", c.Name, c.Host, len(p.Hosts))
		}
	}
	return nil
}

// Present is where containers run now, by index.
func (p *Problem) Present() []int {
	at := make([]int, len(p.Containers))
	for i, c := range p.Containers {
		at[i] = c.Host
	}
	return at
}

// Busiest are the pairs that talk, with the most bytes first, at most so many: two indexes and the bytes per second.
func (p *Problem) Busiest(most int) (pairs [][3]float64, omitted int) {
	all := p.averageTraffic()
	slices.SortStableFunc(all, func(x, y Traffic) int { return cmp.Compare(y.Bytes, x.Bytes) })
	pairs = [][3]float64{}
	for _, t := range all[:min(most, len(all))] {
		pairs = append(pairs, [3]float64{float64(t.A), float64(t.B), t.Bytes})
	}
	return pairs, len(all) - len(pairs)
}
