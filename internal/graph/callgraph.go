package graph

import (
	"cmp"
	"slices"
)

// callGraph says who calls whom, by the indexes of nodes.
type callGraph struct {
	graph *Graph
	at    map[string]int
	// ends are the client and the server of each edge with transactions.
	ends []callEnds
	// servers are whom each node calls.
	servers [][]int
}

type callEnds struct {
	client, server int
	// best counted, as Edge.Best.
	best *Side
	edge *Edge
}

// isTimed reports whether it is known how many requests there are and how long they take.
func (e *callEnds) isTimed() bool { return e.best.TransactionsPerSecond != nil && e.best.Mean != nil }

// busy is how many requests are under way on average (Little's law), of those that are timed.
func (e *callEnds) busy() float64 { return *e.best.TransactionsPerSecond * float64(*e.best.Mean) }

func (e *callEnds) inFlight() InFlightRequests {
	requests, rate := e.best.Of(Transactions), e.best.TransactionsPerSecond
	if rate == nil || requests <= 0 {
		return InFlightRequests{}
	}
	return InFlightRequests{Requests: requests, Mean: e.best.Of(inFlightSeconds) * *rate / requests, Most: e.best.most.greatest,
		Seconds: min(e.best.most.seconds, requests / *rate), Parts: e.best.most.rows}
}

func (g *Graph) calls() *callGraph {
	c := &callGraph{graph: g, at: nodeIndex(g), ends: make([]callEnds, 0, len(g.Edges)),
		servers: make([][]int, len(g.Nodes))}
	for _, e := range g.Edges {
		client, known := c.at[e.Client]
		server, too := c.at[e.Server]
		if best := e.Best(); known && too && best.Of(Transactions) > 0 {
			c.ends = append(c.ends, callEnds{client, server, best, e})
			c.servers[client] = append(c.servers[client], server)
		}
	}
	return c
}

// entries are Graph.Entries.
func (c *callGraph) entries() []Entry {
	nodes := c.graph.Nodes
	called := make([]bool, len(nodes))
	for _, e := range c.ends {
		called[e.server] = called[e.server] || e.client != e.server
	}
	of := make([]*Entry, len(nodes))
	for _, e := range c.ends {
		client, server := nodes[e.client], nodes[e.server]
		if e.client == e.server || e.best.TransactionsPerSecond == nil ||
			called[e.client] && client.Kind != KindOutside && client.Kind != KindHost || server.Kind == KindOutside ||
			server.Kind == KindHost {
			continue
		}
		if of[e.server] == nil {
			of[e.server] = &Entry{Node: server.ID, Name: server.Name}
		}
		of[e.server].ArrivalRate += *e.best.TransactionsPerSecond
		of[e.server].Clients = append(of[e.server].Clients, client.ID)
		for _, asked := range e.edge.Endpoints {
			if asked.RequestsPerSecond != nil {
				if of[e.server].Asked == nil {
					of[e.server].Asked = map[string]float64{}
				}
				of[e.server].Asked[asked.Name] += *asked.RequestsPerSecond
			}
		}
		of[e.server].latency.Merge(&e.best.latency)
	}
	inner := c.below(of)
	entries := []Entry{}
	for i, e := range of {
		if e != nil && !inner[i] {
			slices.Sort(e.Clients)
			e.finish()
			entries = append(entries, *e)
		}
	}
	slices.SortFunc(entries, func(x, y Entry) int {
		return cmp.Or(cmp.Compare(y.ArrivalRate, x.ArrivalRate), cmp.Compare(x.Node, y.Node))
	})
	return entries
}

// finish finds the durations of an entry.
func (e *Entry) finish() {
	if e.latency.Count <= 0 {
		return
	}
	mean := Seconds(e.latency.Sum / e.latency.Count)
	e.Mean = &mean
	quantiles(&e.latency, make([]Seconds, 3), []**Seconds{&e.P50, &e.P95, &e.P99}, 0.5, 0.95, 0.99)
}

// below finds the nodes that one of the starts, by their indexes, reaches, but not those that reach it as well.
func (c *callGraph) below(starts []*Entry) []bool {
	component, members := c.components()
	// A component has a lower number than those that reach it.
	reached, below := make([]bool, len(members)), make([]bool, len(starts))
	for i := len(members) - 1; i >= 0; i-- {
		reaches := reached[i]
		for _, node := range members[i] {
			below[node] = reached[i]
			reaches = reaches || starts[node] != nil
		}
		for _, node := range members[i] {
			for _, server := range c.servers[node] {
				if to := component[server]; to != i {
					reached[to] = reached[to] || reaches
				}
			}
		}
	}
	return below
}

// depths is the length of the longest chain of calls to each node, circles counted as one node.
func (c *callGraph) depths() []int {
	component, members := c.components()
	of := make([]int, len(members))
	for i := len(members) - 1; i >= 0; i-- {
		for _, client := range members[i] {
			for _, server := range c.servers[client] {
				if to := component[server]; to != i {
					of[to] = max(of[to], of[i]+1)
				}
			}
		}
	}
	depth := make([]int, len(component))
	for i, in := range component {
		depth[i] = of[in]
	}
	return depth
}

// components are the sets of nodes that all reach each other, numbered from the last ones on (Tarjan).
func (c *callGraph) components() (component []int, members [][]int) {
	type visit struct{ node, next int }
	n := len(c.servers)
	component = make([]int, n)
	order, low := make([]int, n), make([]int, n) // 0 for what was not visited
	for i := range component {
		component[i] = -1
	}
	var stack []int
	visited := 0
	for first := range n {
		if order[first] != 0 {
			continue
		}
		for visits := []visit{{node: first}}; len(visits) > 0; {
			v := &visits[len(visits)-1]
			if order[v.node] == 0 {
				visited++
				order[v.node], low[v.node] = visited, visited
				stack = append(stack, v.node)
			}
			if v.next < len(c.servers[v.node]) {
				to := c.servers[v.node][v.next]
				v.next++
				if order[to] == 0 {
					visits = append(visits, visit{node: to})
				} else if component[to] < 0 {
					low[v.node] = min(low[v.node], order[to])
				}
				continue
			}
			node := v.node
			if low[node] == order[node] {
				begin := len(stack) - 1
				for stack[begin] != node {
					begin--
				}
				for _, in := range stack[begin:] {
					component[in] = len(members)
				}
				members = append(members, slices.Clone(stack[begin:]))
				stack = stack[:begin]
			}
			visits = visits[:len(visits)-1]
			if len(visits) > 0 {
				caller := visits[len(visits)-1].node
				low[caller] = min(low[caller], low[node])
			}
		}
	}
	return component, members
}

// reach is what requests at the entries get to, themselves included.
func (c *callGraph) reach(entries []Entry) []bool {
	reached := make([]bool, len(c.servers))
	var todo []int
	for _, e := range entries {
		todo = append(todo, c.at[e.Node])
	}
	for len(todo) > 0 {
		node := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if !reached[node] {
			reached[node] = true
			todo = append(todo, c.servers[node]...)
		}
	}
	return reached
}

// findHosts finds the hosts of the nodes that requests of each entry reach, of 64 entries in one walk from the callers on.
func (c *callGraph) findHosts(entries []Entry) {
	component, members := c.components()
	for part := range slices.Chunk(entries, 64) {
		reachedBy := make([]uint64, len(members)) // a bit for each entry of the part
		for i := range part {
			part[i].Hosts = map[string]bool{}
			reachedBy[component[c.at[part[i].Node]]] |= 1 << i
		}
		hosts := map[string]uint64{}
		// A component has a lower number than those that reach it.
		for in, by := range slices.Backward(reachedBy) {
			if by == 0 {
				continue
			}
			for _, node := range members[in] {
				hosts[c.graph.Nodes[node].Host] |= by
				for _, server := range c.servers[node] {
					reachedBy[component[server]] |= by
				}
			}
		}
		for host, by := range hosts {
			for i := range part {
				if by&(1<<i) != 0 {
					part[i].Hosts[host] = true
				}
			}
		}
	}
}
