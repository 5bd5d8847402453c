package tcp

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"outsight/internal/region"
)

// Bounds of one message.
const (
	MaxReads = 1024
	MaxBytes = 8 << 20
)

const (
	version        = 1
	challengeBytes = 32
	nonceBytes     = 16
	macBytes       = sha256.Size
	helloBytes     = 8 + 4 + 4 + challengeBytes
	requestBytes   = 24 + nonceBytes
	readBytes      = 16
	replyBytes     = 24
	// OfferBytes is how much a reader tells of its end of a connection by another transport: a message that asks for one
	// has it where others have reads.
	OfferBytes = 2 * readBytes
)

var (
	helloMagic   = [8]byte{'O', 'S', 'R', 'E', 'A', 'D', 'E', 'R'}
	requestMagic = [4]byte{'O', 'S', 'R', 'Q'}
	connectMagic = [4]byte{'O', 'S', 'R', 'C'}
	replyMagic   = [4]byte{'O', 'S', 'R', 'P'}
)

// status of a reply.
type status uint32

// The statuses. After those of a malformed message and of a wrong key the host ends the connection.
const (
	statusOK status = iota
	statusMalformed
	statusKey
	statusRegion
	statusBounds
	statusRate
	statusTransport
	statuses
)

// The names of the statuses in messages and counters.
var statusNames = [statuses]string{"ok", "malformed", "key", "region", "bounds", "rate", "transport"}

func (s status) err(read uint32) error {
	switch s {
	case statusOK:
		return nil
	case statusRegion:
		return fmt.Errorf("read %d: %w", read, region.ErrGone)
	case statusBounds:
		return fmt.Errorf("read %d: %w", read, region.ErrBounds)
	case statusKey:
		return fmt.Errorf("%w: the host does not know the key", region.ErrRefused)
	case statusTransport:
		return fmt.Errorf("%w: the host has no other transport, or no room in it", region.ErrRefused)
	case statusRate:
		return fmt.Errorf("%w: more than the host lets read in a second", region.ErrRefused)
	}
	return fmt.Errorf("%w: status %d", region.ErrRefused, s)
}

// wanted is one read of a request.
type wanted struct {
	region, length uint32
	offset         uint64
}

// request is a message without its MAC.
type request struct {
	key      uint32
	sequence uint64
	nonce    [nonceBytes]byte
	reads    []wanted
	// offer is there instead of reads where a connection by another transport is asked for.
	offer []byte
}

var errMalformed = errors.New("malformed message")

// parseCount is how many reads follow the beginning of a request, or as many as an offer takes the place of.
func parseCount(b []byte) (int, error) {
	if len(b) < requestBytes {
		return 0, errMalformed
	}
	n := binary.LittleEndian.Uint32(b[16:])
	if [4]byte(b) == requestMagic && n <= MaxReads || [4]byte(b) == connectMagic && n == OfferBytes/readBytes {
		return int(n), nil
	}
	return 0, errMalformed
}

// parseRequest reads a whole request without its MAC. Its reads are appended to those of into.
func parseRequest(b []byte, into []wanted) (r request, err error) {
	n, err := parseCount(b)
	if err != nil || len(b) != requestBytes+n*readBytes {
		return r, errMalformed
	}
	r.key, r.sequence = binary.LittleEndian.Uint32(b[4:]), binary.LittleEndian.Uint64(b[8:])
	r.nonce = [nonceBytes]byte(b[24:])
	if [4]byte(b) == connectMagic {
		r.offer = b[requestBytes:]
		return r, nil
	}
	var total uint64
	r.reads = into
	for i := range n {
		at := b[requestBytes+i*readBytes:]
		w := wanted{binary.LittleEndian.Uint32(at), binary.LittleEndian.Uint32(at[4:]), binary.LittleEndian.Uint64(at[8:])}
		total += uint64(w.length)
		r.reads = append(r.reads, w)
	}
	if total > MaxBytes {
		return r, errMalformed
	}
	return r, nil
}

func (r *request) append(b []byte) []byte {
	magic, count := requestMagic, len(r.reads)
	if r.offer != nil {
		magic, count = connectMagic, len(r.offer)/readBytes
	}
	b = append(b, magic[:]...)
	b = binary.LittleEndian.AppendUint32(b, r.key)
	b = binary.LittleEndian.AppendUint64(b, r.sequence)
	b = binary.LittleEndian.AppendUint32(b, uint32(count))
	b = binary.LittleEndian.AppendUint32(b, 0)
	b = append(append(b, r.nonce[:]...), r.offer...)
	for _, w := range r.reads {
		b = binary.LittleEndian.AppendUint32(b, w.region)
		b = binary.LittleEndian.AppendUint32(b, w.length)
		b = binary.LittleEndian.AppendUint64(b, w.offset)
	}
	return b
}

// reply is the beginning of a reply.
type reply struct {
	status   status
	sequence uint64
	length   uint32
	// read is the number of the read that the status is about.
	read uint32
}

func (r *reply) append(b []byte) []byte {
	b = append(b, replyMagic[:]...)
	b = binary.LittleEndian.AppendUint32(b, uint32(r.status))
	b = binary.LittleEndian.AppendUint64(b, r.sequence)
	b = binary.LittleEndian.AppendUint32(b, r.length)
	return binary.LittleEndian.AppendUint32(b, r.read)
}

func parseReply(b []byte) (r reply, err error) {
	if len(b) < replyBytes || [4]byte(b) != replyMagic {
		return r, errMalformed
	}
	return reply{status(binary.LittleEndian.Uint32(b[4:])), binary.LittleEndian.Uint64(b[8:]),
		binary.LittleEndian.Uint32(b[16:]), binary.LittleEndian.Uint32(b[20:])}, nil
}

// mac is the HMAC-SHA-256 (RFC 2104) of a message: of what kind it is, the host's challenge, the reader's nonce where it
// is a reply, and the message.
func mac(secret []byte, kind string, parts ...[]byte) []byte {
	h := hmac.New(sha256.New, secret)
	h.Write([]byte(kind))
	for _, p := range parts {
		h.Write(p)
	}
	return h.Sum(nil)
}
