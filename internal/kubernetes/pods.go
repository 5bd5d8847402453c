package kubernetes

import (
	"net/netip"
	"slices"
	"time"
)

// maxPast bounds the container runs of a pod that its status no longer has.
const maxPast = 16

// indexPod makes a pod findable. c.mu must be held for writing, as for all in this file that is not
// said to only look.
func (c *Cluster) indexPod(p, before *pod) {
	c.touch(kindPod, p.uid)
	h := &podEntry{pod: p}
	switch {
	case before != nil:
		p.keepRuns(before)
	case c.byUID[p.uid] != nil: // it was gone, and is there again
		c.forgetRetired(c.byUID[p.uid])
	}
	if p.ended {
		// How long ago is not known. If its end was not seen, its address may be another pod's.
		h.until = c.now()
		if before != nil && !before.ended {
			h.until = h.until.Add(c.options.Keep)
		} else if before != nil {
			h.until = c.heldUntil(before)
		}
	}
	delete(c.entryOf, before)
	c.hold(h)
	c.makeRoom()
	c.owners.ask(p, c.now())
}

// heldUntil is what the pod that is replaced had. unindexPod leaves it for this.
func (c *Cluster) heldUntil(before *pod) time.Time {
	if h := c.entryOf[before]; h != nil {
		return h.until
	}
	return c.now()
}

func (c *Cluster) hold(h *podEntry) {
	c.entryOf[h.pod] = h
	c.byUID[h.uid] = h
	if h.hash != "" {
		c.byUID[h.hash] = h
	}
	c.byName[h.namespace+"/"+h.name] = h
	for _, one := range h.containers {
		c.byContainer[one.id] = run{h, one.name}
	}
	h.eachAddress(func(a netip.Addr) { c.byAddress.add(a, h) }, func(s spot) { c.byHostPort.add(s, h) },
		func(a netip.Addr) { c.onNode.add(a, h) })
}

// eachAddress calls back with the addresses by which a pod is found: its own, or else its ports on its node's.
func (h *podEntry) eachAddress(own func(netip.Addr), port func(spot), node func(netip.Addr)) {
	ports := h.hostPorts
	if h.hostNetwork {
		ports = h.serving
	} else {
		for _, a := range h.addresses {
			own(a)
		}
	}
	hosts := h.nodeAddress
	if h.hostNetwork && len(hosts) == 0 {
		hosts = h.addresses
	}
	for _, a := range hosts {
		node(a)
		for _, e := range ports {
			port(spot{a, e})
		}
	}
}

// release undoes hold, where no other pod has replaced the entry.
func (c *Cluster) release(h *podEntry) {
	removeEntry(c.byUID, h.uid, h)
	if h.hash != "" {
		removeEntry(c.byUID, h.hash, h)
	}
	removeEntry(c.byName, h.namespace+"/"+h.name, h)
	for _, one := range h.containers {
		if c.byContainer[one.id].pod == h {
			delete(c.byContainer, one.id)
		}
	}
	h.eachAddress(func(a netip.Addr) { c.byAddress.remove(a, h) }, func(s spot) { c.byHostPort.remove(s, h) },
		func(a netip.Addr) { c.onNode.remove(a, h) })
}

func removeEntry(all map[string]*podEntry, key string, h *podEntry) {
	if all[key] == h {
		delete(all, key)
	}
}

// keepRuns takes over the container runs that the pod's status no longer has.
func (p *pod) keepRuns(before *pod) {
	past := 0
	for _, one := range before.containers {
		if past < maxPast && !slices.ContainsFunc(p.containers, func(c podContainer) bool { return c.id == one.id }) {
			p.containers = append(p.containers, one)
			past++
		}
	}
	if len(p.addresses) == 0 {
		p.addresses = before.addresses // a status is written in steps
	}
}

func (c *Cluster) unindexPod(p *pod, replaced bool) {
	h := c.entryOf[p]
	if h == nil {
		return
	}
	if replaced {
		c.release(h)
		return // indexPod forgets it
	}
	c.touch(kindPod, p.uid)
	h.gone, h.until = true, c.now().Add(c.options.Keep)
	c.retired = append(c.retired, h)
	c.makeRoom()
}

// makeRoom forgets those pods that are gone for the longest time while there are too many. They
// count as what found no room.
func (c *Cluster) makeRoom() {
	for len(c.retired) > 0 && len(c.pods.items)+len(c.retired) > c.options.MaxPods {
		c.forget(c.retired[0])
		c.retired = c.retired[1:]
		c.pods.full++
	}
}

// forget ends a pod that is gone.
func (c *Cluster) forget(h *podEntry) {
	c.release(h)
	delete(c.entryOf, h.pod)
}

func (c *Cluster) forgetRetired(h *podEntry) {
	if at := slices.Index(c.retired, h); at >= 0 {
		c.retired = slices.Delete(c.retired, at, at+1)
		c.forget(h)
	}
}

// one is the pod among several that runs, or else the one that ended last and is still named. It
// is nil where several run: then none is more likely. It only looks.
func one(all []*podEntry, now time.Time) *podEntry {
	var found *podEntry
	running := 0
	for _, h := range all {
		switch {
		case now.Before(h.began):
		case h.until.IsZero() || now.Before(h.ended):
			// An address is one pod's at a time: it is the last one's to begin, though the end of another was not seen.
			if running > 0 && !h.hostNetwork && !h.began.Equal(found.began) {
				if h.began.After(found.began) {
					found = h
				}
				continue
			}
			running++
			found = h
		case running > 0 || !h.until.After(now):
		case found == nil || h.until.After(found.until):
			found = h
		}
	}
	if running > 1 {
		return nil
	}
	return found
}
