package network

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"outsight/internal/model"
)

// ErrTooManyTranslations says that the table had more entries than were asked for.
var ErrTooManyTranslations = errors.New("more translated connections than are looked at")

// The parts of the kernel's conntrack messages that are used; see linux/netfilter/nfnetlink_conntrack.h.
const (
	conntrackGet      = unix.NFNL_SUBSYS_CTNETLINK<<8 | 1 // IPCTNL_MSG_CT_GET
	attrTupleOriginal = 1
	attrTupleReply    = 2
	attrStatus        = 3
	attrStatusMask    = 26
	attrTupleIP       = 1
	attrTupleProto    = 2
	attrIPv4Source    = 1
	attrIPv4Dest      = 2
	attrIPv6Source    = 3
	attrIPv6Dest      = 4
	attrProtoNumber   = 1
	attrSourcePort    = 2
	attrDestPort      = 3
	attrTypeMask      = 0x3fff
	statusDstNAT      = 1 << 5
	netfilterHeader   = 4
)

// ReadTranslations reads the TCP connections whose server's address is translated in the network
// namespace of the calling thread, at most limit. It needs CAP_NET_ADMIN. Where there are more, it
// answers those and ErrTooManyTranslations.
func ReadTranslations(limit int) ([]model.Translation, error) {
	var found []model.Translation
	err := dumpConntrack(func(b []byte) (done bool, err error) {
		return parseConntrack(b, func(t model.Translation) bool {
			if len(found) == limit {
				return false
			}
			found = append(found, t)
			return true
		})
	})
	return found, err
}

// dumpConntrack hands the kernel's answer to read, part by part, until that is done.
func dumpConntrack(read func([]byte) (done bool, err error)) error {
	socket, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return fmt.Errorf("opening a netfilter socket: %w", err)
	}
	defer unix.Close(socket)
	// A dump that the kernel does not go on with must not hold the agent up.
	if err := unix.SetsockoptTimeval(socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 1}); err != nil {
		return fmt.Errorf("setting up a netfilter socket: %w", err)
	}
	if err := unix.Sendto(socket, conntrackRequest(), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("asking for translated connections: %w", err)
	}
	buffer := make([]byte, 64<<10)
	for {
		n, _, err := unix.Recvfrom(socket, buffer, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("reading translated connections: %w", err)
		}
		if done, err := read(buffer[:n]); done || err != nil {
			return err
		}
	}
}

// conntrackRequest asks for all entries with a translated destination. Kernels that do not know
// this filter send everything; the reader filters again.
func conntrackRequest() []byte {
	b := make([]byte, unix.SizeofNlMsghdr+netfilterHeader, 64)
	b[unix.SizeofNlMsghdr] = unix.AF_UNSPEC
	for _, attr := range []uint16{attrStatus, attrStatusMask} {
		b = binary.NativeEndian.AppendUint16(b, 8)
		b = binary.NativeEndian.AppendUint16(b, attr)
		b = binary.BigEndian.AppendUint32(b, statusDstNAT)
	}
	binary.NativeEndian.PutUint32(b, uint32(len(b)))
	binary.NativeEndian.PutUint16(b[4:], conntrackGet)
	binary.NativeEndian.PutUint16(b[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	return b
}

// parseConntrack reads the netlink messages of a datagram. It answers true after the last one.
// What is not understood is passed over: the kernel's format grows by new attributes.
func parseConntrack(b []byte, add func(model.Translation) bool) (done bool, err error) {
	for len(b) >= unix.SizeofNlMsghdr {
		length := binary.NativeEndian.Uint32(b)
		if length < unix.SizeofNlMsghdr || int64(length) > int64(len(b)) {
			return false, fmt.Errorf("reading translated connections: a message of %d bytes in %d", length, len(b))
		}
		message := b[unix.SizeofNlMsghdr:length]
		switch kind := binary.NativeEndian.Uint16(b[4:]); kind {
		case unix.NLMSG_DONE:
			return true, nil
		case unix.NLMSG_ERROR:
			if len(message) >= 4 {
				if code := int32(binary.NativeEndian.Uint32(message)); code != 0 {
					return true, os.NewSyscallError("reading translated connections", unix.Errno(-code))
				}
			}
			return true, nil
		default:
			if kind>>8 != unix.NFNL_SUBSYS_CTNETLINK || len(message) < netfilterHeader {
				break
			}
			if t, ok := parseTranslation(message[netfilterHeader:]); ok && !add(t) {
				return true, ErrTooManyTranslations
			}
		}
		b = b[min(align4(int(length)), len(b)):]
	}
	return false, nil
}

func align4(n int) int { return (n + 3) &^ 3 }

// attributes calls f for each attribute.
func attributes(b []byte, f func(kind uint16, value []byte)) {
	for len(b) >= 4 {
		length := int(binary.NativeEndian.Uint16(b))
		if length < 4 || length > len(b) {
			return
		}
		f(binary.NativeEndian.Uint16(b[2:])&attrTypeMask, b[4:length])
		b = b[min(align4(length), len(b)):]
	}
}

// tuple is one direction of a connection.
type tuple struct {
	source, dest         netip.Addr
	sourcePort, destPort uint16
	protocol             byte
}

// parseTranslation reads one entry; it answers false for what is not a TCP connection with a
// translated server.
func parseTranslation(b []byte) (model.Translation, bool) {
	var original, reply tuple
	translated := false
	attributes(b, func(kind uint16, value []byte) {
		switch kind {
		case attrTupleOriginal:
			original = parseTuple(value)
		case attrTupleReply:
			reply = parseTuple(value)
		case attrStatus:
			translated = len(value) == 4 && binary.BigEndian.Uint32(value)&statusDstNAT != 0
		}
	})
	t := model.Translation{
		Client:  original.source,
		Dialled: netip.AddrPortFrom(original.dest, original.destPort),
		Reached: netip.AddrPortFrom(reply.source, reply.sourcePort),
	}
	return t, translated && original.protocol == unix.IPPROTO_TCP && original.source.IsValid() &&
		original.dest.IsValid() &&
		reply.source.IsValid() && reply.dest.IsValid()
}

func parseTuple(b []byte) (t tuple) {
	attributes(b, func(kind uint16, value []byte) {
		switch kind {
		case attrTupleIP:
			attributes(value, func(kind uint16, value []byte) {
				addr, ok := netip.AddrFromSlice(value)
				switch {
				case !ok:
				case kind == attrIPv4Source, kind == attrIPv6Source:
					t.source = addr
				case kind == attrIPv4Dest, kind == attrIPv6Dest:
					t.dest = addr
				}
			})
		case attrTupleProto:
			attributes(value, func(kind uint16, value []byte) {
				switch {
				case kind == attrProtoNumber && len(value) == 1:
					t.protocol = value[0]
				case kind == attrSourcePort && len(value) == 2:
					t.sourcePort = binary.BigEndian.Uint16(value)
				case kind == attrDestPort && len(value) == 2:
					t.destPort = binary.BigEndian.Uint16(value)
				}
			})
		}
	})
	return t
}
