package rdma

import (
	"encoding/binary"
	"fmt"

	"outsight/internal/region"
	"outsight/internal/region/tcp"
)

// Sizes of messages, in bytes.
const (
	endpointBytes = tcp.OfferBytes
	entryBytes    = 24
	pieceBytes    = 16
	replyBytes    = 8 + textBytes + endpointBytes + pieceBytes
	textBytes     = 112
	// maxPieces bounds the reads of one message to the helper.
	maxPieces = 1024
)

// command is what the helper is asked for.
type command uint32

// The commands, as in rdma/outsight-rdma.c.
const (
	commandRegister command = iota + 1
	commandOpen
	commandConnect
	commandClose
	commandRead
	commandForget
)

// endpoint is one end of a connection, as the helper tells it: GID, number of the queue pair, first sequence number, LID
// and MTU. The ends exchange it as it is.
type endpoint [endpointBytes]byte

func (e *endpoint) queue() uint32 { return binary.LittleEndian.Uint32(e[16:]) }

// entry is a region that a host has registered.
type entry struct {
	id, key         uint32
	address, length uint64
}

// appendAnswer is what a host tells a reader: its end, and its regions.
func appendAnswer(b []byte, own endpoint, entries []entry) []byte {
	b = append(b, own[:]...)
	for _, e := range entries {
		b = binary.LittleEndian.AppendUint32(b, e.id)
		b = binary.LittleEndian.AppendUint32(b, e.key)
		b = binary.LittleEndian.AppendUint64(b, e.address)
		b = binary.LittleEndian.AppendUint64(b, e.length)
	}
	return b
}

func parseAnswer(b []byte) (peer endpoint, regions map[uint32]entry, err error) {
	if len(b) < endpointBytes || (len(b)-endpointBytes)%entryBytes != 0 {
		return peer, nil, fmt.Errorf("%w: an end of %d bytes", region.ErrDamaged, len(b))
	}
	peer = endpoint(b)
	regions = map[uint32]entry{}
	for b = b[endpointBytes:]; len(b) > 0; b = b[entryBytes:] {
		e := entry{binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:]), binary.LittleEndian.Uint64(b[8:]),
			binary.LittleEndian.Uint64(b[16:])}
		if _, twice := regions[e.id]; twice || e.address+e.length < e.address {
			return peer, nil, fmt.Errorf("%w: region %d is there twice, or its %d bytes at %#x are not", region.ErrDamaged, e.id,
				e.length, e.address)
		}
		regions[e.id] = e
	}
	return peer, regions, nil
}

// piece is memory of the host, to be read.
type piece struct {
	address     uint64
	key, length uint32
}

// piece is a part of the region.
func (e *entry) piece(offset uint64, length int) (piece, error) {
	if offset%8 != 0 || length%8 != 0 || offset > e.length || uint64(length) > e.length-offset {
		return piece{}, fmt.Errorf("%w: %d bytes at %d of %d", region.ErrBounds, length, offset, e.length)
	}
	return piece{e.address + offset, e.key, uint32(length)}, nil
}

func appendCommand(b []byte, c command, queue uint32) []byte {
	return binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(b, uint32(c)), queue)
}

func appendRead(b []byte, queue, timeoutMS uint32, pieces []piece) []byte {
	b = appendCommand(b, commandRead, queue)
	b = binary.LittleEndian.AppendUint32(b, timeoutMS)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(pieces)))
	for _, p := range pieces {
		b = binary.LittleEndian.AppendUint64(b, p.address)
		b = binary.LittleEndian.AppendUint32(b, p.key)
		b = binary.LittleEndian.AppendUint32(b, p.length)
	}
	return b
}
