package graph

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"outsight/internal/model"
)

// Analysis is operational analysis of a window: how near each part of the application is to its limit,
// and at which rate of requests the first of them reaches it (paper 000, equations 3 to 5). It takes for
// granted that CPU time grows in proportion to the rate, which holds the better the less Extrapolation is.
type Analysis struct {
	// Entries are where requests come into the application, the busiest first.
	Entries []Entry `json:"entries"`
	// ArrivalRate is λ, the requests per second at all entries.
	ArrivalRate float64 `json:"arrival_rate"`
	// SaturationRate is λ_sat = 1 / max D (eq. 5), requests per second at the entries at which
	// Bottleneck, the ID of a resource, is used up. Nil where no CPU time or no request was seen.
	SaturationRate *float64 `json:"saturation_rate,omitempty"`
	Bottleneck     string   `json:"bottleneck,omitempty"`
	// Extrapolation is how many times the observed rate SaturationRate is.
	Extrapolation *float64 `json:"extrapolation,omitempty"`
	// Resources in order of utilisation: what the entries reach, and the hosts.
	Resources []Resource `json:"resources"`
	// Connections are those over which what the entries reach calls others, in order of the client and the server; of
	// AnalyseWithConnections alone.
	Connections []Connections `json:"-"`
}

// Connections are those of a client to a server, over which requests go.
type Connections struct {
	// Client and Server are nodes, Name says which.
	Client, Server, Name string
	// Requests are those of the window. Busy is how many are under way on average (Little's law: their rate times their
	// mean duration), Open how many connections there are at its end.
	Requests, Busy, Open float64
	// Rate is of requests per second. Spread is the standard deviation of how long they take, as a share of their mean.
	Rate, Spread float64
	// Sent are the requests on their way to Server, Received those that the client itself has of the one of its own clients
	// that sends it most.
	Sent, Received InFlightRequests
}

// InFlightRequests are requests that wait for their reply to begin.
type InFlightRequests struct {
	// Requests are those of the window, Mean how many are in flight on average, at its readings.
	Requests, Mean float64
	// Most is how many were at any moment of the last Seconds of the window or longer, of that of Parts which had most; 0 parts
	// are that it is not known.
	Most, Seconds float64
	Parts         int
}

// Entry is a server that is called from outside of the application.
type Entry struct {
	Node string `json:"node"`
	Name string `json:"name"`
	// ArrivalRate counts the requests from Clients, which are IDs of nodes outside.
	ArrivalRate float64  `json:"arrival_rate"`
	Clients     []string `json:"clients"`
	// Mean, P50, P95 and P99 are how long requests of all clients took, as the better counted ends saw it; nil where no
	// duration is known.
	Mean *Seconds `json:"mean,omitempty"`
	P50  *Seconds `json:"p50,omitempty"`
	P95  *Seconds `json:"p95,omitempty"`
	P99  *Seconds `json:"p99,omitempty"`

	// Asked are requests per second by endpoint, of those that were asked for most; nil where none is known.
	Asked map[string]float64 `json:"-"`
	// Hosts have the nodes that its requests reach, by AnalyseWithConnections alone.
	Hosts map[string]bool `json:"-"`

	latency model.FloatHistogram
}

// Resource is a node, or a host's CPUs, that requests use.
type Resource struct {
	// Node is the node's ID; that of the CPUs of host h is "cpus/h".
	Node string `json:"node"`
	Name string `json:"name"`
	Host string `json:"host"`
	// CPUCores is the CPU time per second; Parallel is how much it could at most be, because of
	// ParallelBy: "cores", "quota" or "threads". For the CPUs of a host they are what the
	// application and its clients there take, and what everything else leaves ("left").
	CPUCores   float64 `json:"cpu_cores"`
	Parallel   float64 `json:"parallel"`
	ParallelBy string  `json:"parallel_by"`
	// Utilisation is U = CPUCores / Parallel (eq. 3), 0 to 1.
	Utilisation float64 `json:"utilisation"`
	// Demand is D = U / λ (eq. 4), seconds of the resource for one request at the entries.
	Demand *float64 `json:"demand,omitempty"`
	// ArrivalRate is what the node itself serves, per second; MaxArrivalRate is what it could serve.
	ArrivalRate    *float64 `json:"arrival_rate,omitempty"`
	MaxArrivalRate *float64 `json:"max_arrival_rate,omitempty"`
	Threads        *float64 `json:"threads,omitempty"`
	// Latency is the mean time in which the node answers.
	Latency *Seconds `json:"latency,omitempty"`
	// Waits is the part of it in which the node neither runs nor waits for a CPU or for those whom it calls: for a disk, a
	// timer, a lock, or a connection that is free. Where it calls several at a time it is too low. Nil where it is not known.
	Waits *Seconds `json:"waits,omitempty"`
	// PollingCores is the part of CPUCores after which threads slept for a time that they chose: they look for something now
	// and then, and no request woke them up. 0 where it is not known.
	PollingCores float64 `json:"-"`
	// Requests are those that it served in the window.
	Requests float64 `json:"-"`
	// Queued is how many of its threads wait for a CPU on average.
	Queued float64 `json:"-"`
	// Cores is how many cores its threads could use without a quota: no more than the host has, or threads are busy.
	Cores float64 `json:"-"`
}

// CPUsOf is the resource of a host's CPUs.
func CPUsOf(host string) string { return "cpus/" + host }

// CPUsName is the name of that resource.
func CPUsName(host string) string { return "CPUs of " + host }

// Analyse does operational analysis. cores is how many CPUs each host has.
func (g *Graph) Analyse(cores map[string]float64) *Analysis {
	a, _, _ := g.analyse(cores)
	return a
}

// AnalyseWithConnections is Analyse with Connections, which takes as long again.
func (g *Graph) AnalyseWithConnections(cores map[string]float64) *Analysis {
	a, reached, calls := g.analyse(cores)
	calls.findHosts(a.Entries)
	received := make([]InFlightRequests, len(g.Nodes))
	for i := range calls.ends {
		e := &calls.ends[i]
		if of := e.inFlight(); e.client != e.server && of.Requests > received[e.server].Requests {
			received[e.server] = of
		}
	}
	for _, e := range calls.ends {
		if !reached[e.client] || e.client == e.server || !e.isTimed() {
			continue
		}
		client, server := g.Nodes[e.client], g.Nodes[e.server]
		mean, variance := spread(&e.best.latency)
		a.Connections = append(a.Connections, Connections{Client: client.ID, Server: server.ID,
			Name: client.Name + " to " + server.Name, Requests: e.best.Of(Transactions), Busy: e.busy(), Open: e.best.Open,
			Rate: *e.best.TransactionsPerSecond, Spread: math.Sqrt(variance) / mean,
			Sent: e.inFlight(), Received: received[e.client]})
	}
	return a
}

// analyse also says of each node whether requests at the entries get to it.
func (g *Graph) analyse(cores map[string]float64) (a *Analysis, reached []bool, calls *callGraph) {
	calls = g.calls()
	a = &Analysis{Entries: calls.entries(), Resources: []Resource{}}
	reached = calls.reach(a.Entries)
	clients := make([]bool, len(g.Nodes))
	for _, e := range a.Entries {
		a.ArrivalRate += e.ArrivalRate
		for _, id := range e.Clients {
			clients[calls.at[id]] = true
		}
	}
	called := make([]float64, len(g.Nodes)) // requests under way to those whom a node calls, on average
	for _, e := range calls.ends {
		if reached[e.client] && e.isTimed() {
			called[e.client] += e.busy()
		}
	}
	used, polling, others := map[string]float64{}, map[string]float64{}, map[string]float64{}
	for i, n := range g.Nodes {
		if n.Usage == nil || n.Usage.CPUCores == nil {
			continue
		}
		if n.Kind == KindHost || !reached[i] && !clients[i] {
			others[n.Host] += *n.Usage.CPUCores
			continue
		}
		used[n.Host] += *n.Usage.CPUCores
		polling[n.Host] += n.Usage.polling
		if reached[i] {
			r := resourceOf(n, cores[n.Host])
			r.Waits, r.Queued = waitsOf(&r, n, called[i]), n.Usage.runQueue
			r.PollingCores = n.Usage.polling
			a.Resources = append(a.Resources, r)
		}
	}
	for host, cpu := range used {
		if n := cores[host] - others[host]; n > 0 {
			a.Resources = append(a.Resources, Resource{Node: CPUsOf(host), Name: CPUsName(host), Host: host, CPUCores: cpu,
				Parallel: n, ParallelBy: "left", PollingCores: polling[host]})
		}
	}
	a.finish()
	return a, reached, calls
}

// resourceOf finds how much of the host's cores a node could use: no more than it has busy threads,
// and no more than its quota.
func resourceOf(n *Node, cores float64) Resource {
	u := n.Usage
	r := Resource{Node: n.ID, Name: n.Name, Host: n.Host, CPUCores: *u.CPUCores, Parallel: cores, ParallelBy: "cores",
		Threads: u.Threads}
	threads := u.BusyThreads
	if threads == nil {
		threads = u.Threads
	}
	if threads != nil && *threads > 0 && (r.Parallel == 0 || *threads < r.Parallel) {
		r.Parallel, r.ParallelBy = *threads, "threads"
	}
	r.Cores = r.Parallel
	if quota := u.CPUQuotaCores; quota != nil && (cores == 0 || *quota < cores) && (r.Parallel == 0 || *quota <= r.Parallel) {
		r.Parallel, r.ParallelBy = *quota, "quota"
	}
	if n.Served != nil {
		r.ArrivalRate, r.Latency, r.Requests = n.Served.TransactionsPerSecond, n.Served.Mean, n.Served.Of(Transactions)
	}
	return r
}

// waitsOf finds Waits of a node that has so many requests under way to others, on average.
func waitsOf(r *Resource, n *Node, called float64) *Seconds {
	if r.Latency == nil || r.ArrivalRate == nil || *r.ArrivalRate <= 0 {
		return nil
	}
	waits := max(*r.Latency-Seconds((r.CPUCores+n.Usage.runQueue+called)/(*r.ArrivalRate)), 0)
	return &waits
}

func (a *Analysis) finish() {
	for i := range a.Resources {
		a.Resources[i].finish(a.ArrivalRate)
	}
	slices.SortFunc(a.Resources, func(x, y Resource) int {
		return cmp.Or(cmp.Compare(y.Utilisation, x.Utilisation), cmp.Compare(x.Node, y.Node))
	})
	if len(a.Resources) == 0 || a.ArrivalRate == 0 || a.Resources[0].Utilisation == 0 {
		return
	}
	most := &a.Resources[0]
	rate, times := 1 / *most.Demand, 1/most.Utilisation
	a.SaturationRate, a.Extrapolation, a.Bottleneck = &rate, &times, most.Node
}

// finish computes what follows from the CPU time and what it could at most be; rate is that of the
// requests at the entries.
func (r *Resource) finish(rate float64) {
	if r.Parallel <= 0 {
		return
	}
	// More than one is a measurement's error: a thread began and ended between two looks.
	r.Utilisation = min(r.CPUCores/r.Parallel, 1)
	if rate > 0 {
		demand := r.Utilisation / rate
		r.Demand = &demand
	}
	if r.ArrivalRate != nil && *r.ArrivalRate > 0 && r.Utilisation > 0 {
		most := *r.ArrivalRate / r.Utilisation
		r.MaxArrivalRate = &most
	}
}

// Entries finds where requests come in: servers that are called by a node that nobody calls (a user
// outside, a load generator), unless what another entry reaches calls them as well. What only polls a
// server of the application, as a worker polls its queue, makes that server no entry.
func (g *Graph) Entries() []Entry { return g.calls().entries() }

func (g *Graph) byID() map[string]*Node {
	nodes := make(map[string]*Node, len(g.Nodes))
	for _, n := range g.Nodes {
		nodes[n.ID] = n
	}
	return nodes
}

// Limit says why a resource can't use more than it can: "1.0 busy threads", "2 cores".
func (r *Resource) Limit() string {
	switch r.ParallelBy {
	case "threads":
		return fmt.Sprintf("%.1f busy threads", r.Parallel)
	case "quota":
		return fmt.Sprintf("a quota of %.4g cores", r.Parallel)
	case "left":
		return fmt.Sprintf("%.2f cores that others leave", r.Parallel)
	}
	if r.Parallel == 1 {
		return "1 core"
	}
	return fmt.Sprintf("%.0f cores", math.Round(r.Parallel))
}
