package stamp

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// Lengths of packets without extensions, in bytes.
const (
	openLength          = 44
	authenticatedLength = 112
	// leastRequest is what a TWAMP-Light sender sends at least, leastReply what its reflector answers.
	leastRequest = 14
	leastReply   = 41
	hmacLength   = 16
	// MaxLength bounds a packet that is read.
	MaxLength = 9000
)

// layout says where the fields of a packet are, in bytes; those of the sender are in a reply alone. The sequence number
// comes first.
type layout struct {
	length, sent, errorEstimate, session, received             int
	senderSequence, senderSent, senderErrorEstimate, senderTTL int
}

// The layouts of RFC 8762: figures 2 and 5 of open packets, 4 and 6 of authenticated ones, whose last bytes are the HMAC
// of the others.
var (
	openLayout          = layout{openLength, 4, 12, 14, 16, 24, 28, 36, 40}
	authenticatedLayout = layout{authenticatedLength, 16, 24, 26, 32, 48, 64, 72, 80}
)

// layout is that of packets with the key.
func (k Key) layout() *layout {
	if k == nil {
		return &openLayout
	}
	return &authenticatedLayout
}

// Errors of packets.
var (
	ErrShort = errors.New("STAMP packet is too short")
	ErrHMAC  = errors.New("STAMP packet has a wrong HMAC")
	ErrTLV   = errors.New("STAMP packet has a malformed extension")
)

// Request is what a session sender sends (RFC 8762 section 4.2; RFC 8972 section 3 for the session's number).
type Request struct {
	Sequence uint32
	Sent     time.Time
	Error    ErrorEstimate
	// Session is the sender's number of the session; 0 where it has none.
	Session uint16
	// Extensions follow the packet. Of a TWAMP-Light sender they are padding, and not read.
	Extensions Extensions
}

// Reply is what a reflector answers (RFC 8762 section 4.3).
type Reply struct {
	Sequence       uint32
	Sent, Received time.Time
	Error          ErrorEstimate
	Session        uint16
	// Request is the request that is answered, as the reflector read it; TTL is that with which it came.
	Request Request
	TTL     uint8
	// Extensions are the request's, filled in.
	Extensions Extensions
}

// Key authenticates packets by HMAC-SHA-256, cut to 128 bits; nil for open packets.
type Key []byte

// sign is the HMAC of parts.
func (k Key) sign(parts ...[]byte) []byte {
	h := hmac.New(sha256.New, k)
	for _, part := range parts {
		h.Write(part)
	}
	return h.Sum(nil)[:hmacLength]
}

func (k Key) check(mac []byte, parts ...[]byte) bool { return hmac.Equal(mac, k.sign(parts...)) }

// append adds a packet, filled in by fill and then signed, and its extensions with the flags of the last one.
func (k Key) append(to []byte, extensions Extensions, flags uint8, fill func(b []byte, at *layout)) []byte {
	begin, at := len(to), k.layout()
	to = append(to, make([]byte, at.length)...)
	b := to[begin:]
	fill(b, at)
	if k != nil {
		signed := at.length - hmacLength
		copy(b[signed:], k.sign(b[:signed]))
	}
	return extensions.append(to, to[begin:begin+4], k, flags)
}

// verify checks that a packet is as long as it must be, and its HMAC.
func (k Key) verify(b []byte, what string, least int) error {
	if k != nil {
		what, least = "authenticated "+what, authenticatedLength
	}
	if len(b) < least {
		return fmt.Errorf("%w: %s of %d bytes, want %d", ErrShort, what, len(b), least)
	}
	signed := authenticatedLength - hmacLength
	if k != nil && !k.check(b[signed:authenticatedLength], b[:signed]) {
		return ErrHMAC
	}
	return nil
}

// Append writes the request.
func (r *Request) Append(to []byte, key Key) []byte {
	return key.append(to, r.Extensions, Unrecognized, func(b []byte, at *layout) {
		binary.BigEndian.PutUint32(b, r.Sequence)
		putTime(b[at.sent:], r.Sent, r.Error.Format)
		r.Error.put(b[at.errorEstimate:])
		binary.BigEndian.PutUint16(b[at.session:], r.Session)
	})
}

// ParseRequest reads a request. Its times are those nearest to now.
func ParseRequest(b []byte, key Key, now time.Time) (r Request, err error) {
	if err := key.verify(b, "request", leastRequest); err != nil {
		return r, err
	}
	at := key.layout()
	r.Sequence, r.Error = binary.BigEndian.Uint32(b), readErrorEstimate(b[at.errorEstimate:])
	r.Sent = readTime(b[at.sent:], r.Error.Format, now)
	if len(b) < at.length {
		return r, nil // of TWAMP-Light
	}
	r.Session = binary.BigEndian.Uint16(b[at.session:])
	r.Extensions, err = parseExtensions(b[at.length:], b[:4], key)
	return r, err
}

// Append writes the reply.
func (r *Reply) Append(to []byte, key Key) []byte {
	return key.append(to, r.Extensions, 0, func(b []byte, at *layout) {
		binary.BigEndian.PutUint32(b, r.Sequence)
		putTime(b[at.sent:], r.Sent, r.Error.Format)
		r.Error.put(b[at.errorEstimate:])
		binary.BigEndian.PutUint16(b[at.session:], r.Session)
		putTime(b[at.received:], r.Received, r.Error.Format)
		binary.BigEndian.PutUint32(b[at.senderSequence:], r.Request.Sequence)
		putTime(b[at.senderSent:], r.Request.Sent, r.Request.Error.Format)
		r.Request.Error.put(b[at.senderErrorEstimate:])
		b[at.senderTTL] = r.TTL
	})
}

// ParseReply reads a reply. Its times are those nearest to now.
func ParseReply(b []byte, key Key, now time.Time) (r Reply, err error) {
	if err := key.verify(b, "reply", leastReply); err != nil {
		return r, err
	}
	at := key.layout()
	r.Sequence, r.Error = binary.BigEndian.Uint32(b), readErrorEstimate(b[at.errorEstimate:])
	r.Sent, r.Received = readTime(b[at.sent:], r.Error.Format, now), readTime(b[at.received:], r.Error.Format, now)
	r.Session = binary.BigEndian.Uint16(b[at.session:])
	r.Request.Sequence = binary.BigEndian.Uint32(b[at.senderSequence:])
	r.Request.Error = readErrorEstimate(b[at.senderErrorEstimate:])
	r.Request.Sent, r.TTL = readTime(b[at.senderSent:], r.Request.Error.Format, now), b[at.senderTTL]
	if len(b) > at.length {
		r.Extensions, err = parseExtensions(b[at.length:], b[:4], key)
	}
	return r, err
}
