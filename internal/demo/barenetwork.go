package demo

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"sync"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// bareNetwork is a bridge in a network namespace of its own, with a cable to each part. The
// host's network sees nothing of it: no address can clash, no firewall rule of the host applies,
// and it ends with the launcher, however that ends.
type bareNetwork struct {
	namespace netns.NsHandle
	handle    *netlink.Handle

	mu     sync.Mutex // guards cables, and the handle, which answers one at a time
	bridge netlink.Link
	cables int
}

func newBareNetwork() (*bareNetwork, error) {
	n := &bareNetwork{}
	var err error
	if n.namespace, err = newNamespace(); err != nil {
		return nil, fmt.Errorf("making a network namespace: %w", err)
	}
	if n.handle, err = netlink.NewHandleAt(n.namespace); err != nil {
		return nil, errors.Join(fmt.Errorf("opening netlink: %w", err), n.namespace.Close())
	}
	n.bridge = &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "shop"}}
	if err = n.handle.LinkAdd(n.bridge); err == nil {
		err = n.handle.LinkSetUp(n.bridge)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("making a bridge: %w", err), n.close())
	}
	return n, nil
}

// newNamespace makes a network namespace that nobody is in.
func newNamespace() (netns.NsHandle, error) {
	runtime.LockOSThread()
	before, err := netns.Get()
	if err != nil {
		runtime.UnlockOSThread()
		return 0, err
	}
	defer before.Close()
	made, err := netns.New()
	if back := netns.Set(before); back != nil {
		// The thread stays locked, and so ends with the goroutine instead of serving others.
		return 0, errors.Join(err, fmt.Errorf("returning from it: %w", back))
	}
	runtime.UnlockOSThread()
	return made, err
}

// connect lays a cable from the bridge into the namespace of a process and gives it an address.
func (n *bareNetwork) connect(pid int, address netip.Addr) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cables++
	cable := &netlink.Veth{
		LinkAttrs:     netlink.LinkAttrs{Name: fmt.Sprintf("shop%d", n.cables), MasterIndex: n.bridge.Attrs().Index},
		PeerName:      "eth0",
		PeerNamespace: netlink.NsPid(pid),
	}
	if err := n.handle.LinkAdd(cable); err != nil {
		return fmt.Errorf("connecting process %d: %w", pid, err)
	}
	if err := n.handle.LinkSetUp(cable); err != nil {
		return fmt.Errorf("connecting process %d: %w", pid, err)
	}
	if err := configureInside(pid, address); err != nil {
		return fmt.Errorf("giving process %d the address %v: %w", pid, address, err)
	}
	return nil
}

func configureInside(pid int, address netip.Addr) error {
	ns, err := netns.GetFromPid(pid)
	if err != nil {
		return err
	}
	defer ns.Close()
	inside, err := netlink.NewHandleAt(ns)
	if err != nil {
		return err
	}
	defer inside.Close()
	loopback, err := inside.LinkByName("lo")
	if err != nil {
		return err
	}
	eth, err := inside.LinkByName("eth0")
	if err != nil {
		return err
	}
	mask := &netlink.Addr{IPNet: &net.IPNet{IP: address.AsSlice(), Mask: net.CIDRMask(24, 32)}}
	if err := inside.AddrAdd(eth, mask); err != nil {
		return err
	}
	return errors.Join(inside.LinkSetUp(loopback), inside.LinkSetUp(eth))
}

func (n *bareNetwork) close() error {
	if n.handle != nil {
		n.handle.Close()
	}
	return n.namespace.Close()
}
