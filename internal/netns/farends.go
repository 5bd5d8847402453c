package netns

import (
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// FarEnds tells whether interfaces of other network namespaces have counted anything, by those ends of their veth pairs
// that are in this one: what one end has sent, the other one has received (veth_get_stats64 of drivers/net/veth.c). All
// are asked for at once. It is for one goroutine, and of the network namespace of the thread that made it.
type FarEnds struct {
	fd int
	// request and buffer are memory of a request and of what the kernel says.
	request [unix.NLMSG_HDRLEN + statsMessageBytes]byte
	buffer  [32 << 10]byte
	// asked counts requests: an answer that is read has the number of its own.
	asked uint32
	// namespaceOf has the links with an end elsewhere, by their index; all is what the links were when they were listed.
	namespaceOf map[uint32]int32
	all, now    linkSet
	sums        map[int32]FarEnd
}

// linkSet distinguishes sets of interfaces. The kernel gives an index to no second interface before all others.
type linkSet struct{ links, indices uint64 }

// FarEnd is what the interfaces of a network namespace have counted, as their other ends tell.
type FarEnd struct {
	// Links is how many interfaces there are with the other end here. Sum adds up their packets, bytes, errors and drops.
	Links int
	Sum   uint64
}

// NewFarEnds asks for nothing yet.
func NewFarEnds() (*FarEnds, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("asking for interfaces: %w", err)
	}
	// The answer to a request is there when it has been sent: no reading waits for longer.
	timeout := unix.Timeval{Sec: 1}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
		_ = unix.Close(fd) // nothing was written
		return nil, fmt.Errorf("asking for interfaces: %w", err)
	}
	return &FarEnds{fd: fd, namespaceOf: map[uint32]int32{}, sums: map[int32]FarEnd{}}, nil
}

// Close ends it.
func (f *FarEnds) Close() error { return unix.Close(f.fd) }

// Of is what was read last of the namespace with that number.
func (f *FarEnds) Of(namespace int32) FarEnd { return f.sums[namespace] }

const (
	statsMessageBytes = 12 // struct if_stats_msg: family, padding, index and mask of 32 bits
	statsLink64       = 1  // IFLA_STATS_LINK_64
	netnsaNSID        = 1  // NETNSA_NSID, NETNSA_FD of linux/net_namespace.h
	netnsaFD          = 3
	infoKind          = 1 // IFLA_INFO_KIND
	// comparedCounters of struct rtnl_link_stats64: packets, bytes, errors and drops, received and sent.
	comparedCounters = 8
)

// ListAgain has the next Read list the links, also where there are no others: an interface's other end may be elsewhere now.
func (f *FarEnds) ListAgain() { f.all = linkSet{} }

// Read asks for all interfaces of this namespace.
func (f *FarEnds) Read() error {
	if err := f.readSums(); err != nil {
		return fmt.Errorf("asking for interfaces: %w", err)
	}
	if f.now == f.all {
		return nil
	}
	if err := f.list(); err != nil {
		return err
	}
	f.all = f.now
	if err := f.readSums(); err != nil {
		return fmt.Errorf("asking for interfaces: %w", err)
	}
	return nil
}

func (f *FarEnds) readSums() error {
	clear(f.sums)
	f.now = linkSet{}
	request := f.request[:unix.NLMSG_HDRLEN+statsMessageBytes]
	clear(request)
	binary.NativeEndian.PutUint32(request[unix.NLMSG_HDRLEN+8:], 1<<(statsLink64-1))
	return f.ask(request, unix.RTM_GETSTATS, unix.NLM_F_DUMP, func(kind uint16, body []byte) {
		if kind != unix.RTM_NEWSTATS || len(body) < statsMessageBytes {
			return
		}
		index := binary.NativeEndian.Uint32(body[4:])
		f.now.links++
		f.now.indices += uint64(index) * uint64(index)
		namespace, ok := f.namespaceOf[index]
		if !ok {
			return
		}
		end := f.sums[namespace]
		eachAttribute(body[statsMessageBytes:], func(kind uint16, value []byte) {
			if kind != statsLink64 || len(value) < 8*comparedCounters {
				return
			}
			end.Links++
			for i := range comparedCounters {
				end.Sum += binary.NativeEndian.Uint64(value[8*i:])
			}
		})
		f.sums[namespace] = end
	})
}

// list finds the interfaces that are ends of veth pairs with other namespaces.
func (f *FarEnds) list() error {
	links, err := Links()
	if err != nil {
		return err
	}
	clear(f.namespaceOf)
	for _, l := range links {
		if l.Veth && l.Peered {
			f.namespaceOf[uint32(l.Index)] = l.Namespace
		}
	}
	return nil
}

// NamespaceOf is the number that this namespace has for the one that a descriptor is of, which it keeps while it is there.
// It is an error where it has none: then nothing of it has an end here.
func (f *FarEnds) NamespaceOf(namespace int) (id int32, err error) {
	request := f.request[:unix.NLMSG_HDRLEN+4+8] // struct rtgenmsg, padded, and an attribute of 32 bits
	clear(request)
	attribute := request[unix.NLMSG_HDRLEN+4:]
	binary.NativeEndian.PutUint16(attribute, 8)
	binary.NativeEndian.PutUint16(attribute[2:], netnsaFD)
	binary.NativeEndian.PutUint32(attribute[4:], uint32(namespace))
	id = -1
	err = f.ask(request, unix.RTM_GETNSID, 0, func(kind uint16, body []byte) {
		if kind == unix.RTM_NEWNSID && len(body) > 4 {
			eachAttribute(body[4:], func(kind uint16, value []byte) {
				if kind == netnsaNSID && len(value) >= 4 {
					id = int32(binary.NativeEndian.Uint32(value))
				}
			})
		}
	})
	if err == nil && id < 0 {
		err = unix.ENOENT
	}
	if err != nil {
		return -1, fmt.Errorf("asking for the number of a network namespace: %w", err)
	}
	return id, nil
}

var errNetlinkCut = errors.New("a message of the kernel is cut off")

// ask sends a request, whose header it fills in, and gives take the answers.
func (f *FarEnds) ask(request []byte, kind, flags uint16, take func(kind uint16, body []byte)) error {
	header := (*unix.NlMsghdr)(unsafe.Pointer(&request[0]))
	f.asked++
	*header = unix.NlMsghdr{Len: uint32(len(request)), Type: kind, Flags: unix.NLM_F_REQUEST | flags, Seq: f.asked}
	if flags&unix.NLM_F_DUMP == 0 {
		header.Flags |= unix.NLM_F_ACK
	}
	if _, err := unix.Write(f.fd, request); err != nil {
		return err
	}
	for {
		n, err := unix.Read(f.fd, f.buffer[:])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		if done, err := eachAnswer(f.buffer[:n], f.asked, take); done || err != nil {
			return err
		}
	}
}

// eachAnswer goes through messages of the kernel, of which those to the request with the number asked are of interest. It is
// done behind the last one.
func eachAnswer(messages []byte, asked uint32, take func(kind uint16, body []byte)) (done bool, err error) {
	for len(messages) > 0 {
		if len(messages) < unix.NLMSG_HDRLEN {
			return false, errNetlinkCut
		}
		length := int(binary.NativeEndian.Uint32(messages))
		if length < unix.NLMSG_HDRLEN || length > len(messages) {
			return false, errNetlinkCut
		}
		kind, body := binary.NativeEndian.Uint16(messages[4:]), messages[unix.NLMSG_HDRLEN:length]
		switch {
		case binary.NativeEndian.Uint32(messages[8:]) != asked: // of one that was given up
		case kind == unix.NLMSG_DONE:
			return true, nil
		case kind == unix.NLMSG_ERROR:
			if len(body) < 4 {
				return false, errNetlinkCut
			}
			if code := int32(binary.NativeEndian.Uint32(body)); code != 0 {
				return false, syscall.Errno(-code)
			}
			return true, nil
		default:
			take(kind, body)
		}
		messages = messages[min((length+3)&^3, len(messages)):]
	}
	return false, nil
}

// eachAttribute goes through a list of struct nlattr.
func eachAttribute(list []byte, take func(kind uint16, value []byte)) {
	for len(list) >= unix.SizeofNlAttr {
		length := int(binary.NativeEndian.Uint16(list))
		if length < unix.SizeofNlAttr || length > len(list) {
			return
		}
		take(binary.NativeEndian.Uint16(list[2:])&^(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER), list[unix.SizeofNlAttr:length])
		list = list[min((length+3)&^3, len(list)):]
	}
}
