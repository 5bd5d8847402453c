package readwire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
)

// What docs/format/region-read.md says of sizes, in bytes. A request has as many as its reply.
const (
	HeaderBytes = 40
	BlockBytes  = 128
	MaxBytes    = 1024
)

const (
	magic   = 0x4452534f // "OSRD"
	version = 1

	kindRequest = 1
	kindReply   = 2
)

// Status is what a reply says of its request.
type Status uint16

// The statuses of version 1.
const (
	Done          Status = 0
	UnknownRegion Status = 1
	OutOfBounds   Status = 2
)

func (s Status) String() string {
	switch s {
	case Done:
		return "done"
	case UnknownRegion:
		return "the host has no such region"
	case OutOfBounds:
		return "out of the region's bounds"
	}
	return fmt.Sprintf("status %d", uint16(s))
}

// Key is a secret that a host shares with who may read it. Its id says which, so that keys can be changed while
// hosts are read.
type Key struct {
	ID     uint16
	Secret [16]byte
}

// Request asks for Length bytes at Offset, both multiples of BlockBytes, and Length at most MaxBytes.
type Request struct {
	Region uint32
	Length uint16
	Offset uint64
	// Nonce is repeated in the reply.
	Nonce uint64
}

// Reply is what a host answers. Data are as long as was asked for, of the packet's memory, and zeros unless Status is
// Done.
type Reply struct {
	Request
	Status Status
	Data   []byte
}

// ErrMalformed is that of packets that are no replies of this version.
var ErrMalformed = errors.New("malformed reply")

// AppendRequest appends the packet of a request that is sent from an address: the MAC is of it, too.
func AppendRequest(to []byte, r Request, from netip.AddrPort, key Key) []byte {
	begin := len(to)
	to = binary.LittleEndian.AppendUint32(to, magic)
	to = append(to, version, kindRequest)
	to = binary.LittleEndian.AppendUint16(to, key.ID)
	to = binary.LittleEndian.AppendUint32(to, r.Region)
	to = binary.LittleEndian.AppendUint16(to, r.Length)
	to = binary.LittleEndian.AppendUint16(to, 0)
	to = binary.LittleEndian.AppendUint64(to, r.Offset)
	to = binary.LittleEndian.AppendUint64(to, r.Nonce)
	to = binary.LittleEndian.AppendUint64(to, mac(to[begin:], from, key))
	return append(to, make([]byte, r.Length)...)
}

// mac is that of a header without its last field.
func mac(header []byte, from netip.AddrPort, key Key) uint64 {
	var message [56]byte
	address := from.Addr().As16()
	copy(message[:], address[:])
	binary.LittleEndian.PutUint64(message[16:], uint64(from.Port()))
	copy(message[24:], header[:32])
	return sipHash(key.Secret, message[:])
}

// DecodeReply decodes a packet of one reply.
func DecodeReply(packet []byte) (Reply, error) {
	r, rest, err := cutReply(packet)
	if err == nil && len(rest) > 0 {
		return Reply{}, fmt.Errorf("%w: %d bytes behind the data", ErrMalformed, len(rest))
	}
	return r, err
}

// cutReply decodes the first reply of a packet, and tells what follows it.
func cutReply(packet []byte) (r Reply, rest []byte, err error) {
	if len(packet) < HeaderBytes {
		return Reply{}, nil, fmt.Errorf("%w: %d bytes, want at least %d", ErrMalformed, len(packet), HeaderBytes)
	}
	le := binary.LittleEndian
	if got := le.Uint32(packet); got != magic || packet[4] != version || packet[5] != kindReply {
		return Reply{}, nil, fmt.Errorf("%w: magic %#x, version %d, kind %d, want %#x, %d, %d", ErrMalformed, got, packet[4],
			packet[5], magic, version, kindReply)
	}
	r = Reply{Request: Request{Region: le.Uint32(packet[8:]), Length: le.Uint16(packet[12:]),
		Offset: le.Uint64(packet[16:]), Nonce: le.Uint64(packet[24:])}, Status: Status(le.Uint16(packet[14:])),
		Data: packet[HeaderBytes:]}
	if len(r.Data) < int(r.Length) {
		return Reply{}, nil, fmt.Errorf("%w: %d bytes of data, want %d", ErrMalformed, len(r.Data), r.Length)
	}
	r.Data, rest = r.Data[:r.Length], r.Data[r.Length:]
	return r, rest, nil
}
