package control

import (
	"hash/maphash"
	"net/netip"
	"slices"
	"sync"

	"outsight/internal/frame"
)

// Addresses finds the hosts that have an address, or a container with it. It is an index of the newest frames, of which
// it takes in what has changed.
type Addresses struct {
	// hosts are Update's alone.
	hosts map[string]*indexedHost
	seed  maphash.Seed
	// mu guards at, which has the hosts of each address; most have one, and those of bridges all. It is held for a host at a
	// time, so that no look-up waits for long.
	mu sync.RWMutex
	at map[netip.Addr][]*indexedHost
}

type indexedHost struct {
	name string
	// sum is of the texts of the host's addresses, which are all.
	sum uint64
	all []netip.Addr
	// seen says that the window has the host.
	seen bool
}

// NewAddresses makes an empty index.
func NewAddresses() *Addresses {
	return &Addresses{hosts: map[string]*indexedHost{}, at: map[netip.Addr][]*indexedHost{}, seed: maphash.MakeSeed()}
}

// Lookup finds the hosts, in order of their names.
func (x *Addresses) Lookup(a netip.Addr) []string {
	x.mu.RLock()
	defer x.mu.RUnlock()
	found := x.at[a.Unmap()]
	if len(found) == 0 {
		return nil
	}
	names := make([]string, len(found))
	for i, h := range found {
		names[i] = h.name
	}
	slices.Sort(names)
	return names
}

// Update makes it the index of the newest frames of a window. It must not be called concurrently.
func (x *Addresses) Update(w *frame.Window) {
	for _, h := range x.hosts {
		h.seen = false
	}
	for i := range w.Hosts {
		if spans := w.Hosts[i].Spans; len(spans) > 0 {
			x.update(w.Hosts[i].Host, spans[len(spans)-1].After)
		}
	}
	for name, h := range x.hosts {
		if !h.seen {
			x.replace(h, nil)
			delete(x.hosts, name)
		}
	}
}

func (x *Addresses) update(name string, f *frame.Frame) {
	h := x.hosts[name]
	if h == nil {
		h = &indexedHost{name: name}
		x.hosts[name] = h
	}
	h.seen = true
	t := &f.Tables[frame.Addresses]
	sum := uint64(len(t.IDs))
	for row := range t.IDs {
		sum = sum*31 + maphash.String(x.seed, f.Text(frame.Addresses, frame.Address, row))
	}
	if sum == h.sum {
		return
	}
	h.sum = sum
	all := make([]netip.Addr, 0, len(t.IDs))
	for row := range t.IDs {
		if a, err := netip.ParseAddr(f.Text(frame.Addresses, frame.Address, row)); err == nil {
			all = append(all, a.Unmap())
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	x.replace(h, slices.Compact(all))
}

// replace gives a host other addresses. Both lists are sorted.
func (x *Addresses) replace(h *indexedHost, now []netip.Addr) {
	x.mu.Lock()
	defer x.mu.Unlock()
	was := h.all
	h.all = now
	for len(was) > 0 || len(now) > 0 {
		switch {
		case len(was) > 0 && (len(now) == 0 || was[0].Less(now[0])):
			left := slices.DeleteFunc(x.at[was[0]], func(one *indexedHost) bool { return one == h })
			if x.at[was[0]] = left; len(left) == 0 {
				delete(x.at, was[0])
			}
			was = was[1:]
		case len(was) == 0 || now[0].Less(was[0]):
			x.at[now[0]] = append(x.at[now[0]], h)
			now = now[1:]
		default:
			was, now = was[1:], now[1:]
		}
	}
}
