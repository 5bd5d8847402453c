package stamp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// socket is a UDP socket whose packets have the kernel's time of sending and receiving.
type socket struct {
	conn *net.UDPConn
	oob  []byte
	// stamped is whether the kernel gives times; sent counts packets, as the kernel does for their identification.
	stamped bool
	sent    uint32
}

const stampFlags = unix.SOF_TIMESTAMPING_RX_SOFTWARE | unix.SOF_TIMESTAMPING_TX_SOFTWARE | unix.SOF_TIMESTAMPING_SOFTWARE |
	unix.SOF_TIMESTAMPING_OPT_ID | unix.SOF_TIMESTAMPING_OPT_TSONLY

// newSocket asks the kernel for what comes with a packet. What it refuses is not there.
func newSocket(conn *net.UDPConn) (*socket, error) {
	s := &socket{conn: conn, oob: make([]byte, 512)}
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("using a UDP socket: %w", err)
	}
	err = raw.Control(func(fd uintptr) {
		s.stamped = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TIMESTAMPING, stampFlags) == nil
		for _, option := range [][2]int{{unix.IPPROTO_IP, unix.IP_RECVTTL}, {unix.IPPROTO_IP, unix.IP_RECVTOS},
			{unix.IPPROTO_IPV6, unix.IPV6_RECVHOPLIMIT}, {unix.IPPROTO_IPV6, unix.IPV6_RECVTCLASS},
			{unix.IPPROTO_IP, unix.IP_PKTINFO}, {unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO}} {
			_ = unix.SetsockoptInt(int(fd), option[0], option[1], 1) // the other family's fail
		}
	})
	return s, err
}

// arrival is how a packet came.
type arrival struct {
	from netip.AddrPort
	at   time.Time
	// stamped is whether at is the kernel's.
	stamped bool
	// ttl and tos are those of the packet; 255 and 0 where they are not known.
	ttl, tos uint8
	// info4 or info6 says to which of this host's addresses it came, so that the answer leaves from there.
	info4 *unix.Inet4Pktinfo
	info6 *unix.Inet6Pktinfo
}

func (s *socket) receive(b []byte) (n int, a arrival, err error) {
	n, oob, _, from, err := s.conn.ReadMsgUDPAddrPort(b, s.oob)
	if err != nil {
		return 0, a, err
	}
	a = arrival{from: netip.AddrPortFrom(from.Addr().Unmap(), from.Port()), at: time.Now(), ttl: 255}
	messages, err := unix.ParseSocketControlMessage(s.oob[:oob])
	if err != nil {
		return n, a, nil
	}
	for _, m := range messages {
		switch {
		case m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SCM_TIMESTAMPING:
			if t, ok := kernelTime(m.Data); ok {
				a.at, a.stamped = t, true
			}
		case m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_TTL,
			m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_HOPLIMIT:
			if len(m.Data) >= 4 {
				a.ttl = uint8(binary.NativeEndian.Uint32(m.Data))
			}
		case m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_TOS && len(m.Data) > 0:
			a.tos = m.Data[0]
		case m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_TCLASS && len(m.Data) >= 4:
			a.tos = uint8(binary.NativeEndian.Uint32(m.Data))
		case m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_PKTINFO && len(m.Data) >= unix.SizeofInet4Pktinfo:
			// The interface is left to the routes.
			a.info4 = &unix.Inet4Pktinfo{Spec_dst: [4]byte(m.Data[4:8])}
		case m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_PKTINFO && len(m.Data) >= unix.SizeofInet6Pktinfo:
			a.info6 = &unix.Inet6Pktinfo{Addr: [16]byte(m.Data[:16])}
			if netip.AddrFrom16(a.info6.Addr).IsLinkLocalUnicast() {
				a.info6.Ifindex = binary.NativeEndian.Uint32(m.Data[16:])
			}
		}
	}
	// A socket of IPv6 takes the second also for packets of IPv4, and has both of these.
	if a.info6 != nil {
		a.info4 = nil
	}
	return n, a, nil
}

// kernelTime reads struct scm_timestamping: three times, of which the first is the kernel's and the third the card's.
func kernelTime(b []byte) (t time.Time, ok bool) {
	const one = int(unsafe.Sizeof(unix.Timespec{}))
	for _, at := range []int{2 * one, 0} {
		if len(b) >= at+one {
			seconds := int64(binary.NativeEndian.Uint64(b[at:]))
			nanoseconds := int64(binary.NativeEndian.Uint64(b[at+8:]))
			if seconds != 0 {
				return time.Unix(seconds, nanoseconds), true
			}
		}
	}
	return t, false
}

// send sends a packet with this type of service to where one came from, and from the address to which that came. It
// answers the packet's identification for departures.
func (s *socket) send(b []byte, to arrival, tos uint8) (id uint32, err error) {
	var oob []byte
	if tos != 0 {
		oob = serviceMessage(to.from.Addr(), tos)
	}
	if to.info4 != nil {
		oob = append(oob, unix.PktInfo4(to.info4)...)
	}
	if to.info6 != nil {
		oob = append(oob, unix.PktInfo6(to.info6)...)
	}
	if s.conn.RemoteAddr() != nil {
		_, _, err = s.conn.WriteMsgUDPAddrPort(b, oob, netip.AddrPort{})
	} else {
		_, _, err = s.conn.WriteMsgUDPAddrPort(b, oob, to.from)
	}
	if err == nil {
		id = s.sent
		s.sent++
	}
	return id, err
}

func serviceMessage(to netip.Addr, tos uint8) []byte {
	level, kind := int32(unix.IPPROTO_IP), int32(unix.IP_TOS)
	if to.Unmap().Is6() {
		level, kind = unix.IPPROTO_IPV6, unix.IPV6_TCLASS
	}
	oob := make([]byte, unix.CmsgSpace(4))
	header := (*unix.Cmsghdr)(unsafe.Pointer(&oob[0]))
	header.Level, header.Type = level, kind
	header.SetLen(unix.CmsgLen(4))
	binary.NativeEndian.PutUint32(oob[unix.CmsgLen(0):], uint32(tos))
	return oob
}

// departures calls f for each packet of which the kernel has told when it left. It does not wait.
func (s *socket) departures(f func(id uint32, at time.Time)) {
	if !s.stamped {
		return
	}
	raw, err := s.conn.SyscallConn()
	if err != nil {
		return
	}
	oob := make([]byte, 512)
	_ = raw.Control(func(fd uintptr) {
		for {
			_, n, _, _, err := unix.Recvmsg(int(fd), nil, oob, unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
			if err != nil {
				return
			}
			messages, err := unix.ParseSocketControlMessage(oob[:n])
			if err != nil {
				continue
			}
			var at time.Time
			var id uint32
			stamped, identified := false, false
			for _, m := range messages {
				if m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SCM_TIMESTAMPING {
					at, stamped = kernelTime(m.Data)
				}
				// struct sock_extended_err: errno, origin, type, code, pad, info, data
				if (m.Header.Type == unix.IP_RECVERR || m.Header.Type == unix.IPV6_RECVERR) && len(m.Data) >= 16 &&
					m.Data[4] == unix.SO_EE_ORIGIN_TIMESTAMPING {
					id, identified = binary.NativeEndian.Uint32(m.Data[12:]), true
				}
			}
			if stamped && identified {
				f(id, at)
			}
		}
	})
}

// Transient reports whether sending or reading may go on after an error: the other end's port was closed, a deadline
// passed, or a packet was dropped on this host, by a rule (EPERM) or a full queue (ENOBUFS).
func Transient(err error) bool {
	for _, one := range []error{os.ErrDeadlineExceeded, unix.ECONNREFUSED, unix.EHOSTUNREACH, unix.ENETUNREACH, unix.EPERM,
		unix.ENOBUFS} {
		if errors.Is(err, one) {
			return true
		}
	}
	return false
}
