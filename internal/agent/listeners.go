package agent

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"outsight/internal/model"
)

const (
	// maxListeners bounds the addresses of one container whose drops are counted each by itself.
	maxListeners = 64
	// maxAttached bounds the addresses that are listed for one container.
	maxAttached = 256
)

// listeners adds to containers the addresses on which they listen.
type listeners struct {
	addresses map[string][]netip.AddrPort
	// attached are the containers handed out, by ID, so that a container that did not change
	// stays the same value.
	attached map[string]attachment
	// last are the drops of the kernel's listeners at the last reading.
	last map[listenerKey]uint64
	// drops are those of containers, by ID. Their sums do not go down when a socket is closed.
	drops map[string]*listenerDrops
}

type attachment struct{ from, to *model.Container }

type listenerKey struct {
	netns   uint32
	address netip.AddrPort
}

// listenerDrops are the drops at the addresses of one container.
type listenerDrops struct {
	boundedSums[netip.AddrPort]
	// queues are those of the addresses at which it listens.
	queues map[netip.AddrPort]model.AcceptQueue
	// published is what was handed out last; nil when it has changed.
	published []model.ListenerCounters
}

func newListeners() *listeners {
	return &listeners{attached: make(map[string]attachment), drops: make(map[string]*listenerDrops)}
}

func (l *listeners) update(now time.Time, found []model.Listener, lookup func(model.CgroupID) *model.Container,
	holder func(*model.Container, uint32) *model.Container) {
	l.addresses = make(map[string][]netip.AddrPort)
	last := make(map[listenerKey]uint64, len(found))
	queues := make(map[string]map[netip.AddrPort]model.AcceptQueue, len(l.drops))
	for _, f := range found {
		c := lookup(f.Owner)
		if c == nil {
			continue
		}
		c = holder(c, f.NetNS)
		l.addresses[c.ID] = append(l.addresses[c.ID], f.Address)
		key := listenerKey{f.NetNS, f.Address}
		last[key] = f.Drops
		gained := f.Drops
		if before := l.last[key]; before <= gained { // else it is a new socket
			gained -= before
		}
		l.of(c.ID).add(now, f.Address, gained)
		all := queues[c.ID]
		if all == nil {
			all = make(map[netip.AddrPort]model.AcceptQueue)
			queues[c.ID] = all
		}
		if f.IsFuller(all[f.Address]) {
			all[f.Address] = f.AcceptQueue
		}
	}
	l.last = last
	for id, all := range l.addresses {
		slices.SortFunc(all, netip.AddrPort.Compare)
		all = slices.Compact(all)
		l.addresses[id] = all[:min(len(all), maxAttached)]
	}
	for id, d := range l.drops {
		d.forget(l.addresses[id])
		if !maps.Equal(d.queues, queues[id]) {
			d.queues, d.published = queues[id], nil
		}
	}
}

func (l *listeners) of(id string) *listenerDrops {
	d := l.drops[id]
	if d == nil {
		d = &listenerDrops{boundedSums: newBoundedSums[netip.AddrPort](maxListeners)}
		l.drops[id] = d
	}
	return d
}

func (d *listenerDrops) add(now time.Time, address netip.AddrPort, n uint64) {
	if d.boundedSums.add(now, address, n) {
		d.published = nil
	}
}

// forget leaves out addresses without a listener where nothing was dropped.
func (d *listenerDrops) forget(present []netip.AddrPort) {
	for address, n := range d.total {
		if _, found := slices.BinarySearchFunc(present, address, netip.AddrPort.Compare); n == 0 && !found &&
			address.IsValid() {
			delete(d.total, address)
			d.published = nil
		}
	}
}

// counters are the drops at the addresses of a container.
func (l *listeners) counters(id string) []model.ListenerCounters {
	d := l.drops[id]
	if d == nil || len(d.total) == 0 {
		return nil
	}
	if d.published == nil {
		d.published = make([]model.ListenerCounters, 0, len(d.total))
		for address, n := range d.total {
			d.published = append(d.published, model.ListenerCounters{Address: address, Drops: n, AcceptQueue: d.queues[address]})
		}
		slices.SortFunc(d.published, func(a, b model.ListenerCounters) int { return a.Address.Compare(b.Address) })
	}
	return d.published
}

// attach is c with its listeners.
func (l *listeners) attach(c *model.Container) *model.Container {
	addresses := l.addresses[c.ID]
	if before := l.attached[c.ID]; before.from == c && slices.Equal(before.to.Listeners, addresses) {
		return before.to
	}
	copied := *c
	copied.Listeners = addresses
	l.attached[c.ID] = attachment{c, &copied}
	return &copied
}

// keep forgets all other containers, but for what they may not have again before its time.
func (l *listeners) keep(now time.Time, containers []*model.Container) {
	present := make(map[string]bool, len(containers))
	for _, c := range containers {
		present[c.ID] = true
	}
	for id := range l.attached {
		if !present[id] {
			delete(l.attached, id)
		}
	}
	forgetGone(now, l.drops, present)
}
