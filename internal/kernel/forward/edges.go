package forward

import (
	"encoding/binary"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// edges are the indices of the interfaces at which packets come into the current network namespace from outside, and leave
// it: hardware, and what has its other end in another namespace. Those between two programs, or on top of others (TUN,
// bridges, VLANs), are on the way through it.
func edges() ([]int, error) {
	table, err := syscall.NetlinkRIB(unix.RTM_GETLINK, unix.AF_UNSPEC)
	if err != nil {
		return nil, fmt.Errorf("listing interfaces: %w", err)
	}
	messages, err := syscall.ParseNetlinkMessage(table)
	if err != nil {
		return nil, fmt.Errorf("listing interfaces: %w", err)
	}
	var all []int
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
		index, flags := binary.NativeEndian.Uint32(m.Data[4:]), binary.NativeEndian.Uint32(m.Data[8:])
		if flags&unix.IFF_LOOPBACK == 0 && isEdge(attributes) {
			all = append(all, int(index))
		}
	}
	return all, nil
}

func isEdge(attributes []syscall.NetlinkRouteAttr) bool {
	hardware := true
	for _, a := range attributes {
		switch a.Attr.Type &^ unix.NLA_F_NESTED {
		case unix.IFLA_LINK_NETNSID:
			return true
		case unix.IFLA_LINKINFO:
			hardware = false
		}
	}
	return hardware
}
