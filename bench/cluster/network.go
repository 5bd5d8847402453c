package cluster

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"

	"outsight/internal/bridge"
)

const (
	uplinkName = "uplink"
	// uplinkBurst is what an idle uplink sends at once, in bytes, and uplinkQueue what waits before it at most.
	uplinkBurst = 32 << 10
	uplinkQueue = 16 << 20
	// headerBytes are what an interface counts of a packet besides what is in a TCP connection: Ethernet (14), IPv4 (20,
	// RFC 791), and TCP with time stamps (32, RFC 9293 and RFC 7323).
	headerBytes = 14 + 20 + 32
)

// network is a switch and the hosts that it connects.
type network struct {
	center *bridge.Bridge
	hosts  []*bridge.Bridge
}

// newNetwork makes hosts with uplinks that carry so many bytes per second each way.
func newNetwork(hosts int, rate int64) (*network, error) {
	center, err := bridge.New()
	if err != nil {
		return nil, err
	}
	n := &network{center: center}
	for i := range hosts {
		host, err := bridge.New()
		if err == nil {
			n.hosts = append(n.hosts, host)
			err = n.addUplink(host, fmt.Sprintf("host%d", i), rate)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("making host %d: %w", i, err), n.close())
		}
	}
	return n, nil
}

func (n *network) addUplink(host *bridge.Bridge, port string, rate int64) error {
	link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: uplinkName, MasterIndex: host.Link.Attrs().Index},
		PeerName: port, PeerNamespace: netlink.NsFd(n.center.Namespace.Fd())}
	if err := host.Handle.LinkAdd(link); err != nil {
		return err
	}
	other, err := n.center.Handle.LinkByName(port)
	if err != nil {
		return err
	}
	if err := n.center.Handle.LinkSetMasterByIndex(other, n.center.Link.Attrs().Index); err != nil {
		return err
	}
	return errors.Join(limit(host.Handle, link, rate), limit(n.center.Handle, other, rate))
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

// Sent is what left hosts by their uplinks, by the interfaces' own counters.
type Sent struct{ Bytes, Packets uint64 }

// Payload is what the packets have without their headers, in bytes: what programs sent, and what TCP sent again.
func (s Sent) Payload() float64 { return float64(s.Bytes) - headerBytes*float64(s.Packets) }

// sent reads the counters of all uplinks, tx_bytes and tx_packets of /sys/class/net/uplink/statistics on each host, over
// netlink.
func (n *network) sent() (all Sent, err error) {
	for _, h := range n.hosts {
		link, err := h.Handle.LinkByName(uplinkName)
		if err != nil {
			return all, fmt.Errorf("reading an uplink's counters: %w", err)
		}
		all.Bytes += link.Attrs().Statistics.TxBytes
		all.Packets += link.Attrs().Statistics.TxPackets
	}
	return all, nil
}

// close takes the interfaces of the containers and removes the rest.
func (n *network) close() error {
	var errs []error
	for _, h := range n.hosts {
		errs = append(errs, h.Disconnect(), h.Close())
	}
	return errors.Join(append(errs, n.center.Close())...)
}
