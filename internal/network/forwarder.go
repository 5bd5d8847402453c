package network

import (
	"net/netip"

	"outsight/internal/model"
)

// forwarders know the containers to which forwarding processes on the host pass connections on,
// by the forwarder's control group and the address at which it is dialled. Each forwards to one
// backend alone. The kernel tells the backend's end who dialled the forwarder, so that a
// forwarder is no end of an edge: who dials it reaches the backend, "via" it.
type forwarders map[dialledAt]candidate

type dialledAt struct {
	forwarder model.CgroupID
	address   netip.AddrPort
}

// add adds one of the forwarder's own edges: its client end has the address of its backend.
func (f forwarders) add(k *model.KernelEdgeKey, v *View, a *addresses,
	container func(model.CgroupID) *model.Container) {
	if k.Role != model.RoleClient || !k.Far.IsValid() {
		return
	}
	service := plain(k.Service)
	c := candidate{container: container(k.Peer), process: v.process(k.Peer, k.PeerProcess, 0), backend: service}
	if c.container == nil {
		c.container = a.owner(service.Addr())
	}
	at := dialledAt{k.Owner, plain(k.Far)}
	if known := f[at]; c.container != nil && (known.container == nil || known.process == "") {
		f[at] = c
	}
}
