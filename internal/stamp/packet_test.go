package stamp

import (
	"bytes"
	"errors"
	"reflect"
	"testing"
	"time"
)

var testKey = Key("0123456789abcdef")

func TestTimes(t *testing.T) {
	b := make([]byte, 8)
	for _, want := range []time.Time{time.Unix(1_795_000_000, 123_456_789), time.Unix(0, 1), time.Unix(2_085_978_495, 999_999_999),
		time.Unix(2_085_978_496, 0), time.Unix(5_000_000_000, 5)} {
		for _, format := range []ClockFormat{NTP, PTP} {
			putTime(b, want, format)
			if got := readTime(b, format, want.Add(time.Hour)); !got.Equal(want) {
				t.Errorf("format %d: wrote %v, read %v", format, want, got)
			}
		}
	}
}

func TestErrorEstimateIsAnUpperBound(t *testing.T) {
	b := make([]byte, 2)
	for _, e := range []time.Duration{0, 1, 59, time.Microsecond, 250 * time.Microsecond, time.Millisecond, 3 * time.Second,
		time.Hour} {
		ErrorEstimate{Synchronized: true, Format: PTP, Error: e}.put(b)
		got := readErrorEstimate(b)
		if !got.Synchronized || got.Format != PTP || got.Error < e || float64(got.Error) > float64(e)*1.02+1 {
			t.Errorf("an error of %v is written as %+v", e, got)
		}
	}
}

// TestPacketBytes holds the places of fields against RFC 8762, figures 2, 4, 5 and 6.
func TestPacketBytes(t *testing.T) {
	now := time.Unix(1_795_000_000, 0)
	request := Request{Sequence: 0x01020304, Sent: now, Session: 0x0506, Error: ErrorEstimate{Format: PTP}}
	open, signed := request.Append(nil, nil), request.Append(nil, testKey)
	reply := Reply{Sequence: 7, Sent: now, Received: now, Session: 0x0506, Request: request, TTL: 63,
		Error: ErrorEstimate{Format: PTP}}
	openReply, signedReply := reply.Append(nil, nil), reply.Append(nil, testKey)
	for _, c := range []struct {
		name   string
		packet []byte
		length int
		at     int
		want   []byte
	}{
		{"request's sequence", open, 44, 0, []byte{1, 2, 3, 4}}, {"request's session", open, 44, 14, []byte{5, 6}},
		{"signed request's sequence", signed, 112, 0, []byte{1, 2, 3, 4}},
		{"signed request's session", signed, 112, 26, []byte{5, 6}},
		{"reply's sequence", openReply, 44, 0, []byte{0, 0, 0, 7}},
		{"sender's sequence", openReply, 44, 24, []byte{1, 2, 3, 4}}, {"TTL", openReply, 44, 40, []byte{63, 0, 0, 0}},
		{"signed sender's sequence", signedReply, 112, 48, []byte{1, 2, 3, 4}},
		{"signed TTL", signedReply, 112, 80, []byte{63, 0}},
	} {
		if len(c.packet) != c.length || !bytes.Equal(c.packet[c.at:c.at+len(c.want)], c.want) {
			t.Errorf("%s: %d bytes, %x at %d; want %d and %x", c.name, len(c.packet), c.packet[c.at:c.at+len(c.want)], c.at,
				c.length, c.want)
		}
	}
}

func TestPacketsAreReadAsWritten(t *testing.T) {
	now := time.Unix(1_795_000_000, 5_000_000)
	for _, key := range []Key{nil, testKey} {
		request := Request{Sequence: 9, Sent: now, Session: 77, Error: readErrorEstimate([]byte{0x95, 200}),
			Extensions: Extensions{Counters{SenderSent: 5}.Extension(), Service{Wanted: 46}.Extension(), Clocks{}.Extension()}}
		got, err := ParseRequest(request.Append(nil, key), key, now)
		if err != nil || !reflect.DeepEqual(got, request) {
			t.Errorf("request: %v, got %+v, want %+v", err, got, request)
		}
		plain := request
		plain.Session, plain.Extensions = 0, nil
		reply := Reply{Sequence: 3, Sent: now, Received: now.Add(-time.Millisecond), Session: 77, Request: plain, TTL: 61,
			Error: readErrorEstimate([]byte{0x14, 9}), Extensions: Extensions{Counters{5, 4, 3}.Extension()}}
		back, err := ParseReply(reply.Append(nil, key), key, now)
		if err != nil || !reflect.DeepEqual(back, reply) {
			t.Errorf("reply: %v, got %+v, want %+v", err, back, reply)
		}
	}
}

func TestBadPackets(t *testing.T) {
	now := time.Unix(1_795_000_000, 0)
	request := Request{Sequence: 1, Sent: now, Extensions: Extensions{Counters{1, 0, 0}.Extension()}}
	signed := request.Append(nil, testKey)
	for i := range authenticatedLength {
		forged := bytes.Clone(signed)
		forged[i] ^= 1
		if _, err := ParseRequest(forged, testKey, now); !errors.Is(err, ErrHMAC) {
			t.Fatalf("byte %d changed: %v, want a wrong HMAC", i, err)
		}
	}
	// A changed extension leaves the packet as it is, and is not believed.
	for i := authenticatedLength; i < len(signed)-hmacLength-tlvHeader; i++ {
		forged := bytes.Clone(signed)
		forged[i] ^= 1
		if r, err := ParseRequest(forged, testKey, now); err == nil {
			if _, ok := r.Extensions.Counters(); ok {
				t.Fatalf("byte %d of the extensions changed, and they count", i)
			}
		}
	}
	if _, err := ParseRequest(signed[:111], testKey, now); !errors.Is(err, ErrShort) {
		t.Errorf("111 bytes: %v, want too short", err)
	}
	if _, err := ParseRequest(make([]byte, 13), nil, now); !errors.Is(err, ErrShort) {
		t.Errorf("13 bytes: %v, want too short", err)
	}
	if _, err := ParseRequest(append(make([]byte, 44), 0x80, 1, 0xff, 0xff), nil, now); !errors.Is(err, ErrTLV) {
		t.Errorf("an extension past the end: %v, want malformed", err)
	}
}

func FuzzParse(f *testing.F) {
	now := time.Unix(1_795_000_000, 0)
	request := Request{Sequence: 1, Sent: now, Session: 2, Extensions: Extensions{Counters{1, 2, 3}.Extension(),
		Service{Wanted: 1}.Extension()}}
	reply := Reply{Sequence: 2, Sent: now, Received: now, Request: request, Extensions: request.Extensions}
	for _, key := range []Key{nil, testKey} {
		f.Add(request.Append(nil, key))
		f.Add(reply.Append(nil, key))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, key := range []Key{nil, testKey} {
			r, err := ParseRequest(b, key, now)
			if err == nil && len(r.Extensions) > maxExtensions {
				t.Errorf("%d extensions", len(r.Extensions))
			}
			_, _ = ParseReply(b, key, now)
		}
	})
}
