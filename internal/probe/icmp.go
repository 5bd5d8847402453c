package probe

import (
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Types of ICMP messages.
const (
	echoRequest4 = 8
	echoReply4   = 0
	echoRequest6 = 128
	echoReply6   = 129
	exceeded4    = 11
	exceeded6    = 3
)

const icmpHeader = 8

// echoRequest is a message of ICMP echo with so many bytes behind its header. The kernel fills in the checksum of IPv6.
func echoRequest(to netip.Addr, id, number uint16, bytes int) []byte {
	b := make([]byte, icmpHeader+bytes)
	b[0] = echoRequest4
	if to.Is6() {
		b[0] = echoRequest6
	}
	binary.BigEndian.PutUint16(b[4:], id)
	binary.BigEndian.PutUint16(b[6:], number)
	if to.Is4() {
		binary.BigEndian.PutUint16(b[2:], checksum(b))
	}
	return b
}

// checksum is that of the internet (RFC 1071) over an even number of bytes.
func checksum(b []byte) uint16 {
	sum := uint32(0)
	for i := 0; i < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

// echoNumber reads a message of ICMP echo of this kind and identifier.
func echoNumber(b []byte, kind byte, id uint16) (number uint16, ok bool) {
	if len(b) < icmpHeader || b[0] != kind || binary.BigEndian.Uint16(b[4:]) != id {
		return 0, false
	}
	return binary.BigEndian.Uint16(b[6:]), true
}

// packetConn is a UDP socket or a raw one.
type packetConn interface {
	net.PacketConn
	syscall.Conn
	ReadMsg(b, oob []byte) (n, oobn int, from netip.Addr, err error)
}

// udpConn and ipConn give the two kinds one form.
type udpConn struct{ *net.UDPConn }

func (c udpConn) ReadMsg(b, oob []byte) (n, oobn int, from netip.Addr, err error) {
	n, oobn, _, at, err := c.ReadMsgUDPAddrPort(b, oob)
	return n, oobn, at.Addr().Unmap(), err
}

type ipConn struct{ *net.IPConn }

func (c ipConn) ReadMsg(b, oob []byte) (n, oobn int, from netip.Addr, err error) {
	n, oobn, _, at, err := c.ReadMsgIP(b, oob)
	if err != nil {
		return 0, 0, from, err
	}
	from, _ = netip.AddrFromSlice(at.IP)
	if from = from.Unmap(); from.Is4() && n > 0 { // with the header of IP, unlike IPv6
		header := min(int(b[0]&15)*4, n)
		n = copy(b, b[header:n])
	}
	return n, oobn, from, nil
}

// options asks a socket for the kernel's times of packets and, where errors is set, for ICMP errors of the way.
func options(c syscall.Conn, to netip.Addr, errors bool) error {
	list := [][3]int{{unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1}}
	if errors && to.Is4() {
		list = append(list, [3]int{unix.IPPROTO_IP, unix.IP_RECVERR, 1})
	} else if errors {
		list = append(list, [3]int{unix.IPPROTO_IPV6, unix.IPV6_RECVERR, 1})
	}
	return setOptions(c, list)
}

// setTTL is for the packets that are sent from now on.
func setTTL(c syscall.Conn, to netip.Addr, ttl int) error {
	if to.Is4() {
		return setOptions(c, [][3]int{{unix.IPPROTO_IP, unix.IP_TTL, ttl}})
	}
	return setOptions(c, [][3]int{{unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, ttl}})
}

func setOptions(c syscall.Conn, list [][3]int) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	if e := raw.Control(func(fd uintptr) {
		for _, o := range list {
			if err = unix.SetsockoptInt(int(fd), o[0], o[1], o[2]); err != nil {
				err = os.NewSyscallError("setsockopt", err)
				return
			}
		}
	}); e != nil {
		return e
	}
	return err
}

// packetTime is the kernel's time of a packet, from the control messages that came with it, else now.
func packetTime(messages []unix.SocketControlMessage) time.Time {
	for _, m := range messages {
		if m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SCM_TIMESTAMPNS &&
			len(m.Data) >= int(unsafe.Sizeof(unix.Timespec{})) {
			return time.Unix(int64(binary.NativeEndian.Uint64(m.Data)), int64(binary.NativeEndian.Uint64(m.Data[8:])))
		}
	}
	return time.Now()
}

// wayError is an ICMP error that a packet met.
type wayError struct {
	from netip.Addr
	at   time.Time
	// exceeded is whether its time to live ended there; else it could not be delivered.
	exceeded bool
	// to is where the packet was sent, payload what it had, without its own headers of IP and UDP, of ICMP with the header.
	to      netip.AddrPort
	payload []byte
}

// readErrors calls f for each error that waits at a socket.
func readErrors(c syscall.Conn, f func(wayError)) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	b, oob := make([]byte, 2048), make([]byte, 512)
	return raw.Control(func(fd uintptr) {
		for {
			n, oobn, _, to, err := unix.Recvmsg(int(fd), b, oob, unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
			if err == unix.EINTR {
				continue
			}
			if err != nil {
				return
			}
			messages, err := unix.ParseSocketControlMessage(oob[:oobn])
			if err != nil {
				continue
			}
			for _, m := range messages {
				if e, ok := parseError(m); ok {
					e.at, e.payload = packetTime(messages), b[:n]
					switch to := to.(type) {
					case *unix.SockaddrInet4:
						e.to = netip.AddrPortFrom(netip.AddrFrom4(to.Addr), uint16(to.Port))
					case *unix.SockaddrInet6:
						e.to = netip.AddrPortFrom(netip.AddrFrom16(to.Addr).Unmap(), uint16(to.Port))
					}
					f(e)
				}
			}
		}
	})
}

// parseError reads struct sock_extended_err, of 16 bytes (errno, origin, type, code, padding, info, data), and behind it
// the address of whoever sent the error.
func parseError(m unix.SocketControlMessage) (e wayError, ok bool) {
	const head = 16
	v4 := m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_RECVERR
	v6 := m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_RECVERR
	if !v4 && !v6 || len(m.Data) < head+8 {
		return e, false
	}
	origin, kind := m.Data[4], m.Data[5]
	switch from := m.Data[head:]; {
	case origin == unix.SO_EE_ORIGIN_ICMP:
		e.from, e.exceeded = netip.AddrFrom4([4]byte(from[4:8])), kind == exceeded4
	case origin == unix.SO_EE_ORIGIN_ICMP6 && len(from) >= unix.SizeofSockaddrInet6:
		e.from, e.exceeded = netip.AddrFrom16([16]byte(from[8:24])), kind == exceeded6
	default:
		return e, false // of this host
	}
	return e, true
}
