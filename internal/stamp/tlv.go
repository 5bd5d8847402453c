package stamp

import (
	"encoding/binary"
	"fmt"
)

// Types of extensions (RFC 8972 section 4).
const (
	ExtraPadding         = 1
	TimestampInformation = 3
	ClassOfService       = 4
	DirectMeasurement    = 5
	hmacExtension        = 8
)

// Flags of an extension in a reply (RFC 8972 section 4): the reflector does not know it, cannot read it, or found its HMAC
// wrong. In a request the first is set.
const (
	Unrecognized = 1 << 7
	Malformed    = 1 << 6
	Unverified   = 1 << 5
)

const (
	tlvHeader = 4
	// maxExtensions bounds those of one packet.
	maxExtensions = 16
)

// Extension is an optional part of a packet.
type Extension struct {
	Flags, Type uint8
	Value       []byte
}

// Extensions are those of a packet, without that which authenticates them.
type Extensions []Extension

// Of is the value of an extension that was understood at the other end; nil where there is none.
func (all Extensions) Of(kind uint8) []byte {
	for _, e := range all {
		if e.Type == kind && e.Flags&(Unrecognized|Malformed|Unverified) == 0 {
			return e.Value
		}
	}
	return nil
}

// append writes the extensions of a packet with that sequence number. With a key they are followed by one that has the HMAC
// of the number and of all of them (RFC 8972 section 4.8), with flags of its own.
func (all Extensions) append(to, sequence []byte, key Key, flags uint8) []byte {
	sequence = append([]byte(nil), sequence...) // to may move
	begin := len(to)
	for _, e := range all {
		to = append(to, e.Flags, e.Type, byte(len(e.Value)>>8), byte(len(e.Value)))
		to = append(to, e.Value...)
	}
	if key != nil && len(all) > 0 {
		mac := key.sign(sequence, to[begin:])
		to = append(to, flags, hmacExtension, 0, hmacLength)
		to = append(to, mac...)
	}
	return to
}

// parseExtensions reads the extensions of a packet with that sequence number, which share the bytes of b. With a key, those
// that are not authenticated are marked Unverified. Zeros are padding.
func parseExtensions(b, sequence []byte, key Key) (all Extensions, err error) {
	whole, verified := b, false
	for len(b) >= tlvHeader && !isZero(b[:tlvHeader]) {
		length := int(binary.BigEndian.Uint16(b[2:]))
		if length > len(b)-tlvHeader {
			return all, fmt.Errorf("%w: type %d has %d bytes, and %d are left", ErrTLV, b[1], length, len(b)-tlvHeader)
		}
		e := Extension{Flags: b[0], Type: b[1], Value: b[tlvHeader : tlvHeader+length : tlvHeader+length]}
		if e.Type == hmacExtension {
			if key != nil && length == hmacLength {
				verified = key.check(e.Value, sequence, whole[:len(whole)-len(b)])
			}
			break // only padding may follow
		}
		if len(all) == maxExtensions {
			return all, fmt.Errorf("%w: more than %d", ErrTLV, maxExtensions)
		}
		all = append(all, e)
		b = b[tlvHeader+length:]
	}
	if key != nil && !verified {
		for i := range all {
			all[i].Flags |= Unverified
		}
	}
	return all, nil
}

func isZero(b []byte) bool {
	for _, v := range b {
		if v != 0 {
			return false
		}
	}
	return true
}

// Counters are those of a direct measurement (RFC 8972 section 4.5): what the sender sent, what the reflector received of
// it and sent back.
type Counters struct{ SenderSent, ReflectorReceived, ReflectorSent uint32 }

// Extension writes the counters.
func (c Counters) Extension() Extension {
	value := make([]byte, 12)
	binary.BigEndian.PutUint32(value, c.SenderSent)
	binary.BigEndian.PutUint32(value[4:], c.ReflectorReceived)
	binary.BigEndian.PutUint32(value[8:], c.ReflectorSent)
	return Extension{Flags: Unrecognized, Type: DirectMeasurement, Value: value}
}

// Counters are those of a direct measurement; ok is false where there is none.
func (all Extensions) Counters() (c Counters, ok bool) {
	value := all.Of(DirectMeasurement)
	if len(value) != 12 {
		return c, false
	}
	return Counters{binary.BigEndian.Uint32(value), binary.BigEndian.Uint32(value[4:]),
		binary.BigEndian.Uint32(value[8:])}, true
}

// Service is a class of service (RFC 8972 section 4.4): the DSCP that the reflector is to use, and those with which the
// request came.
type Service struct{ Wanted, Received, ECN uint8 }

// Extension writes the class.
func (s Service) Extension() Extension {
	bits := uint16(s.Wanted&63)<<10 | uint16(s.Received&63)<<4 | uint16(s.ECN&3)<<2
	return Extension{Flags: Unrecognized, Type: ClassOfService, Value: []byte{byte(bits >> 8), byte(bits), 0, 0}}
}

// Service is the class of service; ok is false where there is none.
func (all Extensions) Service() (s Service, ok bool) {
	value := all.Of(ClassOfService)
	if len(value) != 4 {
		return s, false
	}
	bits := binary.BigEndian.Uint16(value)
	return Service{uint8(bits >> 10), uint8(bits >> 4 & 63), uint8(bits >> 2 & 3)}, true
}

// How a time was taken and how its clock is kept (RFC 8972 section 4.3).
const (
	ClockNTP     = 1
	ClockPTP     = 2
	ClockBITS    = 3 // a network operator's (SSU, BITS)
	ClockGNSS    = 4
	ClockFree    = 5 // by itself
	StampNIC     = 1 // by the network card
	StampKernel  = 2 // by its driver or the kernel
	StampProgram = 3
)

// Clocks say it of the times at which the reflector received and sent.
type Clocks struct{ ReceivedSource, ReceivedBy, SentSource, SentBy uint8 }

// Extension writes it.
func (c Clocks) Extension() Extension {
	return Extension{Flags: Unrecognized, Type: TimestampInformation,
		Value: []byte{c.ReceivedSource, c.ReceivedBy, c.SentSource, c.SentBy}}
}

// Clocks are those of the reflector; ok is false where it does not say.
func (all Extensions) Clocks() (c Clocks, ok bool) {
	value := all.Of(TimestampInformation)
	if len(value) != 4 {
		return c, false
	}
	return Clocks{value[0], value[1], value[2], value[3]}, true
}
