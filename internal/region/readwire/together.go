package readwire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxTogether is how many requests of one packet a host answers at most (READ_MOST of bpf/region/region.h). Where
// sender and host are on one machine the kernel may hand over what one system call sends as one packet.
const maxTogether = 16

// maxUnanswered is how many batches in a row may be unanswered, once one was answered, before requests are sent alone.
const maxUnanswered = 3

// together is what is known of requests that are sent by one system call.
type together struct {
	// alone says that they are not to be.
	alone bool
	// worked says that one was answered, unanswered how many batches were not since then.
	worked     bool
	unanswered int
	// lengths are how long the packets of a system call are, as a control message.
	lengths []byte
}

// batch are requests that were sent by one system call.
type batch struct{ isAnswered, isMissed bool }

func (t *together) answered(b *batch) {
	if b != nil {
		b.isAnswered, t.worked, t.unanswered = true, true, 0
	}
}

// missed takes note of a request that was not answered in time. Who does not answer several has no need to be asked for
// them again: a host of an earlier release drops those that the kernel hands over as one packet.
func (c *Client) missed(b *batch) {
	if b == nil || b.isAnswered || b.isMissed {
		return
	}
	b.isMissed = true
	c.counters.unanswered.Add(1)
	c.together.unanswered++
	c.together.alone = c.together.alone || !c.together.worked || c.together.unanswered >= maxUnanswered
}

// inOrder appends the indexes of the reads that are valid in the order in which they are sent: the longest requests first,
// so that those of a length follow each other. The others have their error.
func inOrder(order []int, reads []Read) []int {
	for i := range reads {
		if reads[i].Err = valid(&reads[i]); reads[i].Err == nil {
			reads[i].Err = ErrNoAnswer // until it is answered
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(i, j int) int { return reads[j].packetBytes() - reads[i].packetBytes() })
	return order
}

// packetBytes is how long the read's packets are.
func (r *Read) packetBytes() int {
	q, _ := r.request()
	return HeaderBytes + int(q.Length)
}

// hasRoom reports whether requests may be sent of which so many are left: where several are to be sent by one system
// call it waits for room for them.
func (c *Client) hasRoom(left int) bool {
	room := c.options.Window - len(c.waiting)
	return left > 0 && room > 0 && (c.together.alone || room >= min(left, maxTogether, (c.options.Window+1)/2))
}

// nextTogether is how many of the reads that are left are sent by one system call: as long as the first, but for the
// last one, which may be shorter.
func (c *Client) nextTogether(reads []Read, left []int) int {
	if c.together.alone {
		return 1
	}
	most := min(len(left), c.options.Window-len(c.waiting), maxTogether)
	for n := 1; n < most; n++ {
		if reads[left[n]].packetBytes() != reads[left[0]].packetBytes() {
			return n + 1
		}
	}
	return most
}

// sendTogether sends the requests of some reads for the first time, by one system call.
func (c *Client) sendTogether(reads []Read, indexes []int) error {
	c.packet = c.packet[:0]
	now, of := time.Now(), (*batch)(nil)
	if len(indexes) > 1 {
		of = &batch{}
	}
	for _, i := range indexes {
		a := &c.attempts[i]
		a.read, a.batch = &reads[i], of
		c.append(a, now)
	}
	if of == nil {
		return c.write(c.packet)
	}
	each := reads[indexes[0]].packetBytes()
	_, _, err := c.conn.WriteMsgUDPAddrPort(c.packet, c.together.of(each), netip.AddrPort{})
	if err == nil || isRefused(err) {
		c.counters.batches.Add(1)
		return nil
	}
	if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EMSGSIZE) && !errors.Is(err, unix.EIO) {
		return fmt.Errorf("sending to %v: %w", c.conn.RemoteAddr(), err)
	}
	// The path's packets are shorter, or its interface makes no checksums.
	c.together.alone = true
	for one := range slices.Chunk(c.packet, each) {
		if err := c.write(one); err != nil {
			return err
		}
	}
	return nil
}

// of is the control message that has the kernel make packets of so many bytes (UDP_SEGMENT, include/uapi/linux/udp.h).
func (t *together) of(each int) []byte {
	if t.lengths == nil {
		t.lengths = make([]byte, unix.CmsgSpace(2))
		h := (*unix.Cmsghdr)(unsafe.Pointer(&t.lengths[0]))
		h.Level, h.Type = unix.IPPROTO_UDP, unix.UDP_SEGMENT
		h.SetLen(unix.CmsgLen(2))
	}
	binary.NativeEndian.PutUint16(t.lengths[unix.CmsgLen(0):], uint16(each))
	return t.lengths
}

// takeTogether lets the kernel hand over several packets at a time, where it knows how (UDP_GRO, Linux 5.0).
func (c *Client) takeTogether() {
	raw, err := c.conn.SyscallConn()
	if err == nil {
		_ = raw.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_GRO, 1) })
	}
}

// read takes packets, each of so many bytes but for the last one, which may be shorter.
func (c *Client) read() (packets []byte, each int, err error) {
	var control [64]byte
	n, m, _, _, err := c.conn.ReadMsgUDPAddrPort(c.packet[:cap(c.packet)], control[:])
	if err != nil {
		return nil, 0, err
	}
	each = n
	if m >= unix.CmsgLen(4) {
		h := (*unix.Cmsghdr)(unsafe.Pointer(&control[0]))
		if h.Level == unix.IPPROTO_UDP && h.Type == unix.UDP_GRO {
			each = int(binary.NativeEndian.Uint32(control[unix.CmsgLen(0):]))
		}
	}
	return c.packet[:n], max(each, 1), nil
}
