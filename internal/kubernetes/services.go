package kubernetes

// The tables of services, endpoint slices and nodes. c.mu must be held for writing.

func (c *Cluster) indexService(s, _ *service) {
	c.touch(kindService, s.key())
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
	c.touch(kindService, s.key())
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
	c.touch(kindSlice, s.key())
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
	c.touch(kindSlice, s.key())
	c.ofService.remove(s.service, s)
	for _, t := range s.targets {
		for _, e := range s.ports {
			c.byEndpoint.remove(spot{t.address, e}, s)
		}
	}
}

func (c *Cluster) indexNode(n, _ *node) {
	c.touch(kindNode, n.key())
	for _, a := range n.addresses {
		c.nodeAddress.add(a, n)
	}
}

func (c *Cluster) unindexNode(n *node, _ bool) {
	c.touch(kindNode, n.key())
	for _, a := range n.addresses {
		c.nodeAddress.remove(a, n)
	}
}
