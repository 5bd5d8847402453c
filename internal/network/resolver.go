// Package network turns what the kernel counted per control group and address into edges
// between containers: it finds the owner of each end, pairs the two ends of one relation, and
// keeps the sums of an edge from going down when the kernel forgets a part of it.
//
// What it cannot know it does not guess: an end that several containers could be keeps its
// address. Of connections within the host the kernel knows both ends, through any translation of
// addresses on the way (a published port, a virtual service address, masquerading): the service
// is then the address that the client dials, at both ends.
package network

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"outsight/internal/model"
)

// Options of a Resolver. The zero value works.
type Options struct {
	// WithoutHostEdges leaves out edges whose two ends are the host container.
	WithoutHostEdges bool
	// MaxEdges bounds the edges that are remembered after the kernel has forgotten them
	// (default 16384). What is past it is added to the edge of "others".
	MaxEdges int
	// MaxContainerEdges bounds the edges that one container may add in an hour, at its own end (default 256; a
	// quarter more where processes are left out); further ones count on its edge of "others". Of endpoints it may add
	// twice as many; further ones count as "other".
	MaxContainerEdges int
	// MaxNewEdges bounds the edges that all containers together may add in an hour (default 4096), but for the
	// first of each, and four times as many endpoints.
	MaxNewEdges int
	// MaxIdentities bounds the remembered owners of control groups that are gone (default 8192).
	MaxIdentities int
}

// View is what one reading found.
type View struct {
	// Time of the reading; edges that are first seen in a view began after the one before.
	Time      time.Time
	Edges     []model.KernelEdge
	Listeners []model.Listener
	// Container finds the container of a control group; nil where it is not, or no longer, known.
	Container func(model.CgroupID) *model.Container
	// Process is the name to show for a process: of a control group, by the name and the id that
	// the kernel knows, the id 0 for any of that name. The name itself where Process is nil.
	Process func(id model.CgroupID, name string, pid int) string
	// Translations as ReadTranslations found them lately, or none: they complete edges of which
	// the kernel programs saw one end alone.
	Translations []model.Translation
	// Containers are those that run, those that ended since the view before, and the host
	// container. Only edges that one of them counted are in the answer.
	Containers []*model.Container
}

// Resolver makes edges of kernel edges. It remembers what it has seen from one view to the
// next. It is for one goroutine.
type Resolver struct {
	options    Options
	identities *identities
	ledger     *ledger
	// addresses are those of the containers of the last view, or of the last call of Holders.
	addresses  *addresses
	containers []*model.Container
	// onBehalf are the edges whose sockets the host holds on behalf of a container.
	onBehalf map[lineKey]*heldEdge
	// view counts the calls of Resolve.
	view uint64
	// peers, seen and beyond are memory that each view uses again.
	peers        peers
	seen, beyond []sighting
}

// New makes a Resolver.
func New(o Options) *Resolver {
	o.MaxEdges = cmp.Or(o.MaxEdges, 16384)
	o.MaxContainerEdges = cmp.Or(o.MaxContainerEdges, 256)
	o.MaxNewEdges = cmp.Or(o.MaxNewEdges, 4096)
	o.MaxIdentities = cmp.Or(o.MaxIdentities, 8192)
	return &Resolver{options: o, identities: newIdentities(o.MaxIdentities), ledger: newLedger(o),
		onBehalf: make(map[lineKey]*heldEdge)}
}

// keptSightings is for how many edges more than there are memory is kept.
const keptSightings = 1024

// Resolve makes the edges of a view, in order of client, server, service and side. The
// counters of an edge never go down while its counting end is among the view's containers. What
// found no room in the kernel's table is an edge, too: of RoleUnknown, between unknown ends. The answer is the caller's
// until the view after the next one.
func (r *Resolver) Resolve(v View) []model.Edge {
	known := r.addressesOf(v.Containers)
	r.view++
	if cap(r.seen) > 2*len(v.Edges)+keptSightings {
		r.peers, r.seen, r.beyond = peers{}, nil, nil // there were many more
	}
	p := &r.peers
	p.begin()
	p.addresses, p.listeners, p.process, p.translated = known, r.listeners(v, known), v.process, byDialled(v.Translations)
	p.container = func(id model.CgroupID) *model.Container { return r.identities.find(id, v.Container) }
	seen, beyond := r.seen[:0], r.beyond[:0] // the latter have no other end to be found
	var unplaced []model.Edge
	for i := range v.Edges {
		e := &v.Edges[i]
		if e.Key.Forwarder {
			p.forwarders.add(&e.Key, &v, p.addresses, p.container)
		} else if e.Key.Overflow {
			unplaced = append(unplaced, model.Edge{Side: model.RoleUnknown, Counters: e.Counters})
		} else if s, ok := r.sight(e, v, p.addresses); ok && e.Key.Others {
			beyond = append(beyond, s)
		} else if ok {
			seen = append(seen, s)
		}
	}
	maps.DeleteFunc(r.onBehalf, func(_ lineKey, held *heldEdge) bool { return held.view != r.view })
	settleUDP(seen, p.addresses)
	p.find(seen)
	seen = append(seen, beyond...)
	present := make(map[string]bool, len(v.Containers))
	for _, c := range v.Containers {
		present[c.ID] = true
	}
	edges := r.ledger.enter(v.Time, seen, present)
	// What they point to is of this view.
	clear(seen)
	clear(beyond)
	r.seen, r.beyond = seen, beyond
	if r.options.WithoutHostEdges {
		edges = slices.DeleteFunc(edges, func(e model.Edge) bool { return isHost(e.Client) && isHost(e.Server) })
	}
	for _, e := range unplaced {
		at, _ := slices.BinarySearchFunc(edges, e, compareEnds)
		edges = slices.Insert(edges, at, e)
	}
	return edges
}

func compareEnds(a, b model.Edge) int {
	return cmp.Or(cmp.Compare(a.Client.ID(), b.Client.ID()), cmp.Compare(a.Server.ID(), b.Server.ID()))
}

// Drops reports how full the resolver's tables are and what found no room in them.
func (r *Resolver) Drops() []model.Drop {
	return append([]model.Drop{r.ledger.drop(), r.identities.drop()}, r.ledger.drops()...)
}

// heldEdge is the container, by its ID, in whose namespace an edge was seen to count, and what it counted then.
type heldEdge struct {
	container string
	counters  model.EdgeCounters
	// view is the last that had the edge.
	view uint64
}

// sight finds the container that counted an edge. It answers false for connections whose role was
// never seen. It adds to those that the host holds on a container's behalf.
func (r *Resolver) sight(e *model.KernelEdge, v View, a *addresses) (sighting, bool) {
	if e.Key.Role == model.RoleUnknown {
		return sighting{}, false
	}
	owner := r.identities.find(e.Key.Owner, v.Container)
	if owner == nil {
		owner = hostOf(v.Containers)
	}
	if owner == nil {
		return sighting{}, false
	}
	owner, onBehalf := a.holder(owner, e.Key.NetNS)
	s := sighting{
		edge: e, owner: owner, process: v.process(e.Key.Owner, e.Key.Process, e.PID),
		service: plain(e.Key.Service), client: plainAddr(e.Key.Client), stale: r.isStale(e, owner, onBehalf),
	}
	if e.Key.Role == model.RoleServer && e.Key.Far.IsValid() {
		s.service, s.backend = plain(e.Key.Far), s.service
	}
	switch {
	case e.Key.Forwarded:
		s.via = forwarderName
	case onBehalf:
		s.via = s.process
	}
	return s, true
}

// isStale reports whether an edge that the host holds, or held, on a container's behalf has counted nothing since its
// namespace was another container's. It notes the edge.
func (r *Resolver) isStale(e *model.KernelEdge, owner *model.Container, onBehalf bool) bool {
	if len(r.onBehalf) == 0 && !onBehalf {
		return false
	}
	line := lineKey{e.Key, e.Instance}
	held := r.onBehalf[line]
	switch {
	case held == nil && !onBehalf:
		return false
	case held == nil:
		held = &heldEdge{}
		r.onBehalf[line] = held
	case held.container != owner.ID && e.Counters.Precedes(&held.counters):
		held.view = r.view
		return true
	}
	*held = heldEdge{owner.ID, e.Counters, r.view}
	return false
}

// forwarderName is that of the only forwarder that the kernel programs know.
const forwarderName = "docker-proxy"

// maxProcessName is more than the kernel keeps of a name, in bytes.
const maxProcessName = 64

func (v *View) process(id model.CgroupID, name string, pid int) string {
	if v.Process == nil || name == "" {
		return model.Printable(name, maxProcessName)
	}
	return v.Process(id, name, pid)
}

// listeners attaches containers to the sockets that listen, by port.
func (r *Resolver) listeners(v View, a *addresses) map[uint16][]listener {
	found := make(map[uint16][]listener, len(v.Listeners))
	for _, l := range v.Listeners {
		owner := r.identities.find(l.Owner, v.Container)
		if owner == nil {
			owner = hostOf(v.Containers)
		}
		if owner != nil {
			owner, _ = a.holder(owner, l.NetNS)
			at := plain(l.Address)
			found[at.Port()] = append(found[at.Port()],
				listener{netns: l.NetNS, address: at, owner: owner, process: v.process(l.Owner, l.Process, l.PID)})
		}
	}
	return found
}

// addressesOf are the addresses of containers, which do not change while these are the same.
func (r *Resolver) addressesOf(containers []*model.Container) *addresses {
	if r.addresses == nil || !slices.Equal(containers, r.containers) {
		r.addresses, r.containers = newAddresses(containers), slices.Clone(containers)
	}
	return r.addresses
}

// Holders reports whose a socket is that a control group's container holds in a network namespace; see
// addresses.holder.
func (r *Resolver) Holders(containers []*model.Container) func(owner *model.Container, netns uint32) *model.Container {
	a := r.addressesOf(containers)
	return func(owner *model.Container, netns uint32) *model.Container {
		c, _ := a.holder(owner, netns)
		return c
	}
}

func hostOf(containers []*model.Container) *model.Container {
	for _, c := range containers {
		if c.Runtime == model.HostRuntime {
			return c
		}
	}
	return nil
}

func isHost(p model.Peer) bool {
	return p.Container != nil && p.Container.Runtime == model.HostRuntime
}
