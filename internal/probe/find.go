package probe

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"outsight/internal/container"
	"outsight/internal/model"
)

// Errors of looking for places.
var (
	ErrUnknown   = errors.New("is no container that runs here, and no address")
	ErrAmbiguous = errors.New("is the name of several containers")
)

// settleTime is how long a container is looked for: names come from the runtime, and the namespace of one that has just
// begun is known a moment later. leastID is how many digits of an ID are enough to name one.
const (
	settleTime = 3 * time.Second
	leastID    = 4
)

// Finder knows the places of this host.
type Finder struct {
	registry *container.Registry
	stop     context.CancelFunc
	stopped  chan struct{}
}

// NewFinder begins to look at the containers of this host. It loads no kernel program.
func NewFinder(o container.Options) (*Finder, error) {
	layout, err := container.Detect(o)
	if err != nil {
		return nil, err
	}
	registry, err := container.New(layout, o)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	f := &Finder{registry, stop, make(chan struct{})}
	go func() {
		defer close(f.stopped)
		registry.Run(ctx)
	}()
	return f, nil
}

// Close ends looking. Places that were found stay.
func (f *Finder) Close() {
	f.stop()
	<-f.stopped
}

// Find finds a place: a container by its name, its pod and name as in shop/web, or the beginning of its ID; this host by
// "host"; else an address, which is the container's that has it here. The error is ErrUnknown, ErrAmbiguous or ErrEnded.
func (f *Finder) Find(ctx context.Context, name string) (*Place, error) {
	address, notAddress := netip.ParseAddr(name)
	address = address.Unmap()
	isAddress := notAddress == nil
	deadline := time.Now().Add(settleTime)
	named := f.registry.Named()
	for {
		found := f.match(name, address, isAddress)
		switch {
		case len(found) == 1 && found[0].NetNS != 0:
			return f.place(found[0], address, isAddress)
		case len(found) > 1:
			return nil, fmt.Errorf("%q %w: %s; name one by its ID", name, ErrAmbiguous, strings.Join(shortIDs(found), ", "))
		}
		if time.Now().After(deadline) {
			break
		}
		if isAddress && f.settled() {
			break
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-named:
			named = nil
		case <-time.After(10 * time.Millisecond):
		}
	}
	if isAddress {
		return Address(address), nil
	}
	return nil, fmt.Errorf("%q %w; \"outsight top --once\" lists the names", name, ErrUnknown)
}

// settled reports whether the addresses of all containers are known.
func (f *Finder) settled() bool {
	return !slices.ContainsFunc(f.registry.Containers(), func(c *model.Container) bool { return c.NetNS == 0 })
}

func (f *Finder) match(name string, address netip.Addr, isAddress bool) (found []*model.Container) {
	for _, c := range f.registry.Containers() {
		isHost := c.ID == model.HostContainerID
		switch {
		case isAddress && slices.Contains(c.Addresses, address) || isAddress && address.IsLoopback() && isHost:
			// Those that share a namespace have the same addresses: any of them will do, best the host.
			if isHost {
				return []*model.Container{c}
			}
			if len(found) == 0 || found[0].NetNS != c.NetNS {
				found = append(found, c)
			}
		case isAddress:
		case c.Name == name || c.PodName != "" && c.PodName+"/"+c.Name == name,
			!isHost && len(name) >= leastID && strings.HasPrefix(c.ID, name):
			found = append(found, c)
		}
	}
	return found
}

func shortIDs(all []*model.Container) (ids []string) {
	for _, c := range all {
		ids = append(ids, c.ID[:min(len(c.ID), 12)])
	}
	return ids
}

func (f *Finder) place(c *model.Container, address netip.Addr, isAddress bool) (*Place, error) {
	process, err := f.registry.OpenProcess(c)
	if errors.Is(err, container.ErrEnded) {
		return nil, fmt.Errorf("%s: %w", c.Name, ErrEnded)
	}
	if err != nil {
		return nil, err
	}
	p := At(c.Name, process, c.Addresses...)
	if c.ID != model.HostContainerID {
		p.ID = c.ID
	}
	if isAddress {
		p.Addresses = []netip.Addr{address}
	}
	if len(p.Addresses) == 0 {
		p.Addresses = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})} // its own alone
	}
	return p, nil
}
