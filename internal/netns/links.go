package netns

import (
	"encoding/binary"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// Link is a network interface of the current network namespace.
type Link struct {
	Index int
	Name  string
	Up    bool
	// Loopback and Ethernet are what it looks like to IP.
	Loopback, Ethernet bool
	// Virtual is of one that the kernel made, and no driver of hardware: a bridge, one end of a veth, TUN, a VLAN.
	Virtual bool
	// Peered is one whose other end, or what it is on top of, is in another network namespace: the one with this number
	// here.
	Peered    bool
	Namespace int32
	// Veth is one end of a pair.
	Veth bool
	// Enslaved is a port of a bridge or a bond.
	Enslaved bool
}

// Links are the interfaces of the current network namespace.
func Links() ([]Link, error) {
	messages, err := dump(unix.RTM_GETLINK, "interfaces")
	if err != nil {
		return nil, err
	}
	var all []Link
	for i := range messages {
		m := &messages[i]
		if m.Header.Type != unix.RTM_NEWLINK || len(m.Data) < unix.SizeofIfInfomsg {
			continue
		}
		attributes, err := syscall.ParseNetlinkRouteAttr(m)
		if err != nil {
			return nil, fmt.Errorf("listing interfaces: %w", err)
		}
		// struct ifinfomsg: family, type (16 bits), index and flags (32 bits)
		flags := binary.NativeEndian.Uint32(m.Data[8:])
		l := Link{Index: int(binary.NativeEndian.Uint32(m.Data[4:])), Up: flags&unix.IFF_UP != 0,
			Loopback: flags&unix.IFF_LOOPBACK != 0,
			Ethernet: binary.NativeEndian.Uint16(m.Data[2:]) == unix.ARPHRD_ETHER}
		for _, a := range attributes {
			switch a.Attr.Type &^ unix.NLA_F_NESTED {
			case unix.IFLA_IFNAME:
				l.Name = unix.ByteSliceToString(a.Value)
			case unix.IFLA_LINK_NETNSID:
				l.Peered = true
				if len(a.Value) >= 4 {
					l.Namespace = int32(binary.NativeEndian.Uint32(a.Value))
				}
			case unix.IFLA_LINKINFO:
				l.Virtual = true
				eachAttribute(a.Value, func(kind uint16, value []byte) {
					l.Veth = l.Veth || kind == infoKind && unix.ByteSliceToString(value) == "veth"
				})
			case unix.IFLA_MASTER:
				l.Enslaved = true
			}
		}
		all = append(all, l)
	}
	return all, nil
}

// DefaultRoutes are the indices of the interfaces by which default routes of the current network namespace lead, of IPv4
// and IPv6 and of all tables. Those that forbid (unreachable, prohibit) lead nowhere.
func DefaultRoutes() (map[int]bool, error) {
	messages, err := dump(unix.RTM_GETROUTE, "routes")
	if err != nil {
		return nil, err
	}
	by := map[int]bool{}
	for i := range messages {
		m := &messages[i]
		// struct rtmsg: family, destination's length, source's length, TOS, table, protocol, scope, type
		if m.Header.Type != unix.RTM_NEWROUTE || len(m.Data) < unix.SizeofRtMsg || m.Data[1] != 0 ||
			m.Data[7] != unix.RTN_UNICAST {
			continue
		}
		attributes, err := syscall.ParseNetlinkRouteAttr(m)
		if err != nil {
			return nil, fmt.Errorf("listing routes: %w", err)
		}
		for _, a := range attributes {
			switch a.Attr.Type &^ unix.NLA_F_NESTED {
			case unix.RTA_OIF:
				if len(a.Value) >= 4 {
					by[int(binary.NativeEndian.Uint32(a.Value))] = true
				}
			case unix.RTA_MULTIPATH:
				addNextHops(by, a.Value)
			}
		}
	}
	return by, nil
}

// addNextHops adds the interfaces of a list of struct rtnexthop: length with attributes, flags, hops, index.
func addNextHops(by map[int]bool, list []byte) {
	for len(list) >= unix.SizeofRtNexthop {
		length := int(binary.NativeEndian.Uint16(list))
		if length < unix.SizeofRtNexthop {
			return
		}
		by[int(binary.NativeEndian.Uint32(list[4:]))] = true
		list = list[min((length+3)&^3, len(list)):]
	}
}

func dump(request int, what string) ([]syscall.NetlinkMessage, error) {
	table, err := syscall.NetlinkRIB(request, unix.AF_UNSPEC)
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", what, err)
	}
	messages, err := syscall.ParseNetlinkMessage(table)
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", what, err)
	}
	return messages, nil
}
