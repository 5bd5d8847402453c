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

// Append writes the request.
func (r *Request) Append(to []byte, key Key) []byte {
	begin := len(to)
	if key == nil {
		to = append(to, make([]byte, openLength)...)
		b := to[begin:]
		binary.BigEndian.PutUint32(b, r.Sequence)
		putTime(b[4:], r.Sent, r.Error.Format)
		r.Error.put(b[12:])
		binary.BigEndian.PutUint16(b[14:], r.Session)
	} else {
		to = append(to, make([]byte, authenticatedLength)...)
		b := to[begin:]
		binary.BigEndian.PutUint32(b, r.Sequence)
		putTime(b[16:], r.Sent, r.Error.Format)
		r.Error.put(b[24:])
		binary.BigEndian.PutUint16(b[26:], r.Session)
		copy(b[authenticatedLength-hmacLength:], key.sign(b[:authenticatedLength-hmacLength]))
	}
	return r.Extensions.append(to, to[begin:begin+4], key, Unrecognized)
}

// ParseRequest reads a request. Its times are those nearest to now.
func ParseRequest(b []byte, key Key, now time.Time) (r Request, err error) {
	if key == nil {
		if len(b) < leastRequest {
			return r, fmt.Errorf("%w: a request has %d bytes, want %d", ErrShort, len(b), leastRequest)
		}
		r.Sequence, r.Error = binary.BigEndian.Uint32(b), readErrorEstimate(b[12:])
		r.Sent = readTime(b[4:], r.Error.Format, now)
		if len(b) < openLength {
			return r, nil // of TWAMP-Light
		}
		r.Session = binary.BigEndian.Uint16(b[14:])
		r.Extensions, err = parseExtensions(b[openLength:], b[:4], nil)
		return r, err
	}
	if len(b) < authenticatedLength {
		return r, fmt.Errorf("%w: an authenticated request has %d bytes, want %d", ErrShort, len(b), authenticatedLength)
	}
	if !key.check(b[authenticatedLength-hmacLength:authenticatedLength], b[:authenticatedLength-hmacLength]) {
		return r, ErrHMAC
	}
	r.Sequence, r.Error = binary.BigEndian.Uint32(b), readErrorEstimate(b[24:])
	r.Sent, r.Session = readTime(b[16:], r.Error.Format, now), binary.BigEndian.Uint16(b[26:])
	r.Extensions, err = parseExtensions(b[authenticatedLength:], b[:4], key)
	return r, err
}

// Append writes the reply.
func (r *Reply) Append(to []byte, key Key) []byte {
	begin := len(to)
	if key == nil {
		to = append(to, make([]byte, openLength)...)
		b := to[begin:]
		binary.BigEndian.PutUint32(b, r.Sequence)
		putTime(b[4:], r.Sent, r.Error.Format)
		r.Error.put(b[12:])
		binary.BigEndian.PutUint16(b[14:], r.Session)
		putTime(b[16:], r.Received, r.Error.Format)
		binary.BigEndian.PutUint32(b[24:], r.Request.Sequence)
		putTime(b[28:], r.Request.Sent, r.Request.Error.Format)
		r.Request.Error.put(b[36:])
		b[40] = r.TTL
	} else {
		to = append(to, make([]byte, authenticatedLength)...)
		b := to[begin:]
		binary.BigEndian.PutUint32(b, r.Sequence)
		putTime(b[16:], r.Sent, r.Error.Format)
		r.Error.put(b[24:])
		binary.BigEndian.PutUint16(b[26:], r.Session)
		putTime(b[32:], r.Received, r.Error.Format)
		binary.BigEndian.PutUint32(b[48:], r.Request.Sequence)
		putTime(b[64:], r.Request.Sent, r.Request.Error.Format)
		r.Request.Error.put(b[72:])
		b[80] = r.TTL
		copy(b[authenticatedLength-hmacLength:], key.sign(b[:authenticatedLength-hmacLength]))
	}
	return r.Extensions.append(to, to[begin:begin+4], key, 0)
}

// ParseReply reads a reply. Its times are those nearest to now.
func ParseReply(b []byte, key Key, now time.Time) (r Reply, err error) {
	if key == nil {
		if len(b) < leastReply {
			return r, fmt.Errorf("%w: a reply has %d bytes, want %d", ErrShort, len(b), leastReply)
		}
		r.Sequence, r.Error = binary.BigEndian.Uint32(b), readErrorEstimate(b[12:])
		r.Sent, r.Received = readTime(b[4:], r.Error.Format, now), readTime(b[16:], r.Error.Format, now)
		r.Session = binary.BigEndian.Uint16(b[14:])
		r.Request.Sequence, r.Request.Error = binary.BigEndian.Uint32(b[24:]), readErrorEstimate(b[36:])
		r.Request.Sent, r.TTL = readTime(b[28:], r.Request.Error.Format, now), b[40]
		if len(b) > openLength {
			r.Extensions, err = parseExtensions(b[openLength:], b[:4], nil)
		}
		return r, err
	}
	if len(b) < authenticatedLength {
		return r, fmt.Errorf("%w: an authenticated reply has %d bytes, want %d", ErrShort, len(b), authenticatedLength)
	}
	if !key.check(b[authenticatedLength-hmacLength:authenticatedLength], b[:authenticatedLength-hmacLength]) {
		return r, ErrHMAC
	}
	r.Sequence, r.Error = binary.BigEndian.Uint32(b), readErrorEstimate(b[24:])
	r.Sent, r.Received = readTime(b[16:], r.Error.Format, now), readTime(b[32:], r.Error.Format, now)
	r.Session = binary.BigEndian.Uint16(b[26:])
	r.Request.Sequence, r.Request.Error = binary.BigEndian.Uint32(b[48:]), readErrorEstimate(b[72:])
	r.Request.Sent, r.TTL = readTime(b[64:], r.Request.Error.Format, now), b[80]
	r.Extensions, err = parseExtensions(b[authenticatedLength:], b[:4], key)
	return r, err
}
