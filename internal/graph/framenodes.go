package graph

import (
	"cmp"
	"slices"

	"outsight/internal/model"
)

// processOf is a process of a container.
type processOf struct {
	container int32
	process   string
}

// makeNodes finds the nodes of all ends. Containers that were there have theirs, whether or not they are an end.
func (m *frameMap) makeNodes() {
	m.settle()
	m.processNodes = map[processOf]int32{}
	m.findOutside()
	apart, whole := map[int32]bool{}, map[int32]bool{} // containers that have processes, and ends without one
	for i := range m.rows {
		r := &m.rows[i]
		if r.side == model.RoleUnknown {
			continue
		}
		for _, e := range []*mapEnd{&r.client, &r.server} {
			if e.container < 0 {
				continue
			}
			m.containers[e.container].shown = true
			if m.o.By != ByProcess {
				continue
			}
			if e.process != "" {
				apart[e.container] = true
			} else {
				whole[e.container] = true
			}
		}
	}
	m.addContainers(func(index int32) bool { return apart[index] && !whole[index] })
}

// addContainers makes the nodes of containers, but for those that leave says.
func (m *frameMap) addContainers(leave func(index int32) bool) {
	merged := map[string]*containerChange{}
	var order []*Node
	shown := func(i int) bool {
		c := &m.containers[i]
		return c.shown && !leave(int32(i)) && (!m.limited || m.isAsked(c))
	}
	own := make([]*Node, len(m.containers))
	parallelFor(len(own), func(from, to int) {
		for i := from; i < to; i++ {
			c := &m.containers[i]
			if c.group != nil || !shown(i) {
				continue
			}
			own[i] = m.ownNode(c)
			if c.known != 0 || c.live {
				own[i].Usage, own[i].StartedSeconds = usage(&c.change), c.value(StartTime)
			}
		}
	})
	for i := range m.containers {
		c := &m.containers[i]
		if own[i] != nil {
			c.nodeIndex = m.addNode(own[i])
		}
		if own[i] != nil || !shown(i) {
			continue
		}
		sum := merged[c.group.ID]
		if sum == nil {
			sum = &containerChange{change: c.change.clone(), node: *c.group}
			sum.node.Gone = c.node.Gone
			merged[c.group.ID] = sum
			order = append(order, &sum.node)
		} else {
			sum.add(&c.containerChange)
		}
		if sum.node.Kind == KindPod {
			sum.node.Members = append(sum.node.Members, c.node.ID)
		}
	}
	for _, n := range order {
		sum := merged[n.ID]
		n.Usage, n.StartedSeconds = usage(&sum.change), sum.value(StartTime)
		m.addNode(n)
	}
}

// ownNode is the node of a container.
func (m *frameMap) ownNode(c *mapContainer) *Node {
	n := c.node
	n.ID, n.SeriesID, n.Kind = c.nodeID, c.node.ID, kindOf(c.node.ID, c.node.Runtime)
	if c.isEnded() {
		n.SeriesID = ""
	}
	return &n
}

func (m *frameMap) addNode(n *Node) int32 {
	index := int32(len(m.nodes))
	m.nodes = append(m.nodes, n)
	m.nodeAt[n.ID] = index
	return index
}

// nodeWith is the node with an ID; make makes it where it is not there.
func (m *frameMap) nodeWith(id string, make func() *Node) int32 {
	if index, ok := m.nodeAt[id]; ok {
		return index
	}
	return m.addNode(make())
}

// settle gives ends that are in no container of their host the container or the node that Kubernetes has for them.
func (m *frameMap) settle() {
	var pods map[string][]*Node
	for i := range m.rows {
		for _, e := range []*mapEnd{&m.rows[i].client, &m.rows[i].server} {
			if e.container >= 0 || e.kube == nil {
				continue
			}
			if pods == nil {
				pods = m.containersOfPods()
			}
			e.settled = e.kube.pod != ""
			e.group = m.o.By.kubeGroup(e.kube, pods)
			if e.group != nil && e.group.SeriesID != "" {
				if index, ok := m.containerAt[m.containerID(e.group.Host, e.group.SeriesID)]; ok {
					e.container, e.group, e.process = index, nil, ""
				}
			}
		}
	}
}

func (m *frameMap) containersOfPods() map[string][]*Node {
	pods := map[string][]*Node{}
	for i := range m.containers {
		addToPod(pods, &m.containers[i].node)
	}
	return pods
}

// endNode is the index of an end's node.
func (m *frameMap) endNode(e *mapEnd, server bool) int32 {
	switch {
	case e.container >= 0:
		index := m.containerNode(e)
		if e.settled {
			m.addAddress(index, e.address)
		}
		return index
	case e.group != nil:
		index := m.nodeWith(e.group.ID, func() *Node {
			n := *e.group
			return &n
		})
		m.addAddress(index, e.address)
		return index
	}
	a := &m.addresses[e.address]
	at := &a.client
	if server {
		at = &a.server
	}
	if *at >= 0 {
		return *at
	}
	id := OutsideID
	if server || a.serves {
		id = cmp.Or(m.ownAddress[a.text], OutsideServersID)
	}
	*at = m.nodeWith(id, func() *Node {
		n := &Node{ID: id, Name: a.text, Kind: KindOutside}
		if id != OutsideID && id != OutsideServersID {
			n.SeriesID = a.text
		}
		return n
	})
	m.addAddress(*at, e.address)
	return *at
}

// addAddress lists an address with a node.
func (m *frameMap) addAddress(node, address int32) {
	key := uint64(node)<<32 | uint64(address)
	if m.listed[key] {
		return
	}
	if m.listed == nil {
		m.listed = map[uint64]bool{}
	}
	m.listed[key] = true
	m.nodes[node].Addresses = append(m.nodes[node].Addresses, m.addresses[address].text)
}

// containerNode is the node of an end in a container.
func (m *frameMap) containerNode(e *mapEnd) int32 {
	c := &m.containers[e.container]
	if m.o.By == ByProcess && e.process != "" {
		key := processOf{e.container, e.process}
		index, ok := m.processNodes[key]
		if !ok {
			index = m.nodeWith(c.nodeID+"/"+e.process, func() *Node {
				return &Node{ID: c.nodeID + "/" + e.process, Name: c.node.Name + "/" + e.process, Kind: KindProcess,
					Host: c.node.Host, SeriesID: c.node.ID, Process: e.process, in: m.ownNode(c)}
			})
			m.processNodes[key] = index
		}
		return index
	}
	if c.nodeIndex < 0 {
		if c.group != nil {
			c.nodeIndex = m.nodeWith(c.group.ID, func() *Node {
				n := *c.group
				return &n
			})
		} else {
			c.nodeIndex = m.nodeWith(c.nodeID, func() *Node { return m.ownNode(c) })
		}
	}
	return c.nodeIndex
}

// findOutside gives the busiest servers outside a node each. An address that serves is that node as a client, too.
func (m *frameMap) findOutside() {
	for i := range m.rows {
		if r := &m.rows[i]; r.side != model.RoleUnknown && r.server.outside() {
			a := &m.addresses[r.server.address]
			a.serves = true
			a.bytes += r.request + r.response
		}
	}
	var serve []*mapAddress
	for i := range m.addresses {
		if a := &m.addresses[i]; a.serves && a.text != noAddress {
			serve = append(serve, a)
		}
	}
	slices.SortFunc(serve, func(x, y *mapAddress) int {
		return cmp.Or(cmp.Compare(y.bytes, x.bytes), cmp.Compare(x.text, y.text))
	})
	m.ownAddress = map[string]string{}
	asked := []string{m.only.node, m.only.client, m.only.server}
	for i, a := range serve {
		if i < MaxOutsideServers || slices.Contains(asked, a.text) {
			m.ownAddress[a.text] = a.text
		}
	}
}
