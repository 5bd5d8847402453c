package bridge

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"

	"github.com/vishvananda/netlink"
	vishvananda "github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"outsight/internal/netns"
)

// Bridge is one in a network namespace of its own. The host's network sees nothing of it: no address can clash, no
// firewall rule of the host applies, and it ends with the process that made it, however that ends.
type Bridge struct {
	Namespace *os.File
	// Link is the bridge, Handle asks its namespace. It answers one at a time.
	Link   netlink.Link
	Handle *netlink.Handle

	mu     sync.Mutex // guards cables, and Handle in Connect and Disconnect
	cables []string
}

// New makes a bridge with no cable.
func New() (*Bridge, error) {
	namespace, err := netns.New()
	if err != nil {
		return nil, err
	}
	b := &Bridge{Namespace: namespace, Link: &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "bridge"}}}
	if b.Handle, err = netlink.NewHandleAt(vishvananda.NsHandle(namespace.Fd())); err != nil {
		return nil, errors.Join(fmt.Errorf("opening netlink: %w", err), namespace.Close())
	}
	if err = b.Handle.LinkAdd(b.Link); err == nil {
		err = b.Handle.LinkSetUp(b.Link)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("making a bridge: %w", err), b.Close())
	}
	return b, nil
}

// Connect lays a cable from the bridge into the network namespace of a process, where its end is eth0, and gives that an
// address in a network of 24 bits. The loopback interface there is set up, too.
func (b *Bridge) Connect(pid int, address netip.Addr) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	cable := &netlink.Veth{
		LinkAttrs:     netlink.LinkAttrs{Name: fmt.Sprintf("cable%d", len(b.cables)+1), MasterIndex: b.Link.Attrs().Index},
		PeerName:      "eth0",
		PeerNamespace: netlink.NsPid(pid),
	}
	if err := b.Handle.LinkAdd(cable); err != nil {
		return fmt.Errorf("connecting process %d: %w", pid, err)
	}
	b.cables = append(b.cables, cable.Name)
	if err := b.Handle.LinkSetUp(cable); err != nil {
		return fmt.Errorf("connecting process %d: %w", pid, err)
	}
	if err := configureInside(pid, address); err != nil {
		return fmt.Errorf("giving process %d the address %v: %w", pid, address, err)
	}
	return nil
}

func configureInside(pid int, address netip.Addr) error {
	ns, err := vishvananda.GetFromPid(pid)
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

// Disconnect removes the cables, and with them the interfaces of the processes that they went to.
func (b *Bridge) Disconnect() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var errs []error
	for _, name := range b.cables {
		link, err := b.Handle.LinkByName(name)
		if err == nil {
			err = b.Handle.LinkDel(link)
		}
		// A cable is gone where the process was its namespace's last.
		if err != nil && !errors.As(err, &netlink.LinkNotFoundError{}) && !errors.Is(err, unix.ENODEV) {
			errs = append(errs, fmt.Errorf("removing a cable: %w", err))
		}
	}
	b.cables = nil
	return errors.Join(errs...)
}

// Close lets go of the namespace, which ends with what is in it.
func (b *Bridge) Close() error {
	b.Handle.Close()
	return b.Namespace.Close()
}
