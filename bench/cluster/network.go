package cluster

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	vishvananda "github.com/vishvananda/netns"

	"outsight/internal/netns"
)

const (
	// uplinkBurst is what an idle uplink sends at once, in bytes, and uplinkQueue what waits before it at most.
	uplinkBurst = 32 << 10
	uplinkQueue = 16 << 20
	// headerBytes are those of a full frame that an interface counts besides the bytes of a TCP connection: Ethernet, IPv4
	// (RFC 791), and TCP with time stamps (RFC 7323).
	headerBytes = 14 + 20 + 32
)

// namespace is one of the network, with its bridge.
type namespace struct {
	file   *os.File
	handle *netlink.Handle
	bridge *netlink.Bridge
}

// network is a switch and hosts.
type network struct {
	uplink namespace // the switch
	hosts  []*namespace
	cables []cable
}

// cable is a container's, by the name of its end on a host.
type cable struct {
	host *namespace
	name string
}

func newNamespace() (*namespace, error) {
	file, err := netns.New()
	if err != nil {
		return nil, err
	}
	n := &namespace{file: file}
	if n.handle, err = netlink.NewHandleAt(vishvananda.NsHandle(file.Fd())); err != nil {
		return nil, errors.Join(fmt.Errorf("opening netlink: %w", err), file.Close())
	}
	n.bridge = &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "bridge"}}
	if err = n.handle.LinkAdd(n.bridge); err == nil {
		err = n.handle.LinkSetUp(n.bridge)
	}
	if err != nil {
		n.close()
		return nil, fmt.Errorf("making a bridge: %w", err)
	}
	return n, nil
}

func (n *namespace) close() {
	n.handle.Close()
	n.file.Close()
}

// newNetwork makes hosts with uplinks that carry so many bytes per second each way.
func newNetwork(hosts int, rate int64) (*network, error) {
	center, err := newNamespace()
	if err != nil {
		return nil, err
	}
	n := &network{uplink: *center}
	for i := range hosts {
		host, err := newNamespace()
		if err != nil {
			n.close()
			return nil, err
		}
		n.hosts = append(n.hosts, host)
		if err := n.addUplink(host, fmt.Sprintf("host%d", i), rate); err != nil {
			n.close()
			return nil, fmt.Errorf("making the uplink of host %d: %w", i, err)
		}
	}
	return n, nil
}

const uplinkName = "uplink"

func (n *network) addUplink(host *namespace, port string, rate int64) error {
	link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: uplinkName, MasterIndex: host.bridge.Index},
		PeerName: port, PeerNamespace: netlink.NsFd(n.uplink.file.Fd())}
	if err := host.handle.LinkAdd(link); err != nil {
		return err
	}
	other, err := n.uplink.handle.LinkByName(port)
	if err != nil {
		return err
	}
	if err := n.uplink.handle.LinkSetMasterByIndex(other, n.uplink.bridge.Index); err != nil {
		return err
	}
	return errors.Join(limit(host.handle, link, rate), limit(n.uplink.handle, other, rate))
}

// limit makes one end of an uplink carry so many bytes per second, in frames as they are on a wire: large segments are cut
// up before they are counted.
func limit(h *netlink.Handle, link netlink.Link, rate int64) error {
	if err := h.LinkSetGSOMaxSegs(link, 1); err != nil {
		return fmt.Errorf("cutting up segments: %w", err)
	}
	err := h.QdiscAdd(&netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(1, 0),
			Parent: netlink.HANDLE_ROOT},
		Rate: uint64(rate), Limit: uplinkQueue, Buffer: netlink.Xmittime(uint64(rate), uplinkBurst)})
	if err != nil {
		return fmt.Errorf("limiting the rate: %w", err)
	}
	return h.LinkSetUp(link)
}

// connect lays a cable from a host to a container, by the ID of its process.
func (n *network) connect(host, pid int, address netip.Addr) error {
	h := n.hosts[host]
	name := fmt.Sprintf("cable%d", len(n.cables))
	link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name, MasterIndex: h.bridge.Index},
		PeerName: "eth0", PeerNamespace: netlink.NsPid(pid)}
	if err := h.handle.LinkAdd(link); err != nil {
		return fmt.Errorf("connecting process %d: %w", pid, err)
	}
	n.cables = append(n.cables, cable{h, name})
	if err := h.handle.LinkSetUp(link); err != nil {
		return fmt.Errorf("connecting process %d: %w", pid, err)
	}
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
	eth, err := inside.LinkByName("eth0")
	if err != nil {
		return err
	}
	mask := &netlink.Addr{IPNet: &net.IPNet{IP: address.AsSlice(), Mask: net.CIDRMask(24, 32)}}
	return errors.Join(inside.AddrAdd(eth, mask), inside.LinkSetUp(eth))
}

// Sent is what left hosts by their uplinks, by the interfaces' own counters.
type Sent struct{ Bytes, Packets uint64 }

// Payload is without the headers of the packets, so about what programs sent.
func (s Sent) Payload() float64 { return float64(s.Bytes) - headerBytes*float64(s.Packets) }

// sent reads the counters of /sys/class/net/uplink/statistics of all hosts, over netlink.
func (n *network) sent() (all Sent, err error) {
	for _, h := range n.hosts {
		link, err := h.handle.LinkByName(uplinkName)
		if err != nil {
			return all, fmt.Errorf("reading an uplink's counters: %w", err)
		}
		all.Bytes += link.Attrs().Statistics.TxBytes
		all.Packets += link.Attrs().Statistics.TxPackets
	}
	return all, nil
}

// close removes the cables, which takes the containers' interfaces, and lets go of the namespaces, which end then.
func (n *network) close() error {
	var errs []error
	for _, c := range n.cables {
		link, err := c.host.handle.LinkByName(c.name)
		if errors.As(err, &netlink.LinkNotFoundError{}) {
			continue // its container has ended
		}
		if err == nil {
			err = c.host.handle.LinkDel(link)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("removing a cable: %w", err))
		}
	}
	for _, h := range n.hosts {
		h.close()
	}
	n.uplink.close()
	return errors.Join(errs...)
}
