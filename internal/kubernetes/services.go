package kubernetes

// The tables of services, endpoint slices and nodes. c.mu must be held for writing.

func (c *Cluster) indexService(s, _ *service) {
	for _, e := range s.ports {
		for _, a := range s.addresses {
			c.byVirtual.add(spot{a, e}, s)
		}
	}
	for _, e := range s.nodePorts {
		c.byNodePort.add(e, s)
	}
}

func (c *Cluster) unindexService(s *service, _ bool) {
	for _, e := range s.ports {
		for _, a := range s.addresses {
			c.byVirtual.remove(spot{a, e}, s)
		}
	}
	for _, e := range s.nodePorts {
		c.byNodePort.remove(e, s)
	}
}

func (c *Cluster) indexSlice(s, _ *slice) {
	if s.service == "" {
		return
	}
	c.ofService.add(s.service, s)
	for _, t := range s.targets {
		for _, e := range s.ports {
			c.byEndpoint.add(spot{t.address, e}, s)
		}
	}
}

func (c *Cluster) unindexSlice(s *slice, _ bool) {
	c.ofService.remove(s.service, s)
	for _, t := range s.targets {
		for _, e := range s.ports {
			c.byEndpoint.remove(spot{t.address, e}, s)
		}
	}
}

func (c *Cluster) indexNode(n, _ *node) {
	for _, a := range n.addresses {
		c.nodeAddress.add(a, n)
	}
}

func (c *Cluster) unindexNode(n *node, _ bool) {
	for _, a := range n.addresses {
		c.nodeAddress.remove(a, n)
	}
}
