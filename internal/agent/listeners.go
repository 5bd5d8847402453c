package agent

import (
	"net/netip"
	"slices"

	"outsight/internal/model"
)

// listeners adds the addresses on which containers listen to what is told of them.
type listeners struct {
	addresses map[string][]netip.AddrPort
	// attached are the containers handed out, by ID, so that a container that did not change
	// stays the same value.
	attached map[string]attachment
}

type attachment struct{ from, to *model.Container }

func newListeners() *listeners { return &listeners{attached: make(map[string]attachment)} }

func (l *listeners) update(found []model.Listener, lookup func(model.CgroupID) *model.Container) {
	l.addresses = make(map[string][]netip.AddrPort)
	for _, f := range found {
		if c := lookup(f.Owner); c != nil {
			l.addresses[c.ID] = append(l.addresses[c.ID], f.Address)
		}
	}
	for id, all := range l.addresses {
		slices.SortFunc(all, netip.AddrPort.Compare)
		l.addresses[id] = slices.Compact(all)
	}
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

// keep forgets all other containers.
func (l *listeners) keep(containers []*model.Container) {
	if len(l.attached) == len(containers) {
		return
	}
	present := make(map[string]bool, len(containers))
	for _, c := range containers {
		present[c.ID] = true
	}
	for id := range l.attached {
		if !present[id] {
			delete(l.attached, id)
		}
	}
}
