package parsertest

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// The events of http2.h.
const (
	blockEvent = 2
	endEvent   = 3
	resetEvent = 4
	pushEvent  = 5
	lostEvent  = 6
)

// finding is what is found in one direction of a connection.
type finding struct {
	event  int
	stream uint32
	// The rest is of blocks.
	ends, broken, grpc bool
	status, grpcStatus int
	name               string
}

// follower is the model of http2.h: it has all of the bytes at once.
type follower struct {
	// entries are of the peer's table, of which the first forgotten are not known.
	entries   []field
	forgotten int
}

// field is a kind of header field, and its value if the kind is of interest.
type field struct{ kind, value string }

func (f *follower) follow(stream []byte) []finding {
	var all []finding
	var block []byte
	var current finding
	open := false
	for len(stream) >= 9 {
		length, kind, flags := int(binary.BigEndian.Uint32(stream)>>8), http2.FrameType(stream[3]), http2.Flags(stream[4])
		id := binary.BigEndian.Uint32(stream[5:]) & (1<<31 - 1)
		if open != (kind == http2.FrameContinuation) || open && id != current.stream {
			return append(all, finding{event: lostEvent})
		}
		begins := kind == http2.FrameHeaders || kind == http2.FramePushPromise
		front := 0
		switch {
		case kind == http2.FramePushPromise:
			front = 4
		case kind == http2.FrameHeaders && flags.Has(http2.FlagHeadersPriority):
			front = 5
		}
		padded := begins && flags.Has(http2.FlagHeadersPadded)
		if padded {
			front++
		}
		if begins && (id == 0 || front > length) {
			return append(all, finding{event: lostEvent})
		}
		payload := stream[9:min(len(stream), 9+length)]
		pad := 0
		if padded && len(payload) > 0 {
			pad = int(payload[0])
			if front+pad > length {
				return append(all, finding{event: lostEvent})
			}
		}
		if len(stream) < 9+length {
			break
		}
		stream = stream[9+length:]
		switch kind {
		case http2.FrameData:
			if flags.Has(http2.FlagDataEndStream) {
				all = append(all, finding{event: endEvent, stream: id})
			}
		case http2.FrameRSTStream:
			all = append(all, finding{event: resetEvent, stream: id})
		case http2.FrameHeaders, http2.FramePushPromise:
			open, block = true, nil
			current = finding{event: blockEvent, stream: id, ends: kind == http2.FrameHeaders &&
				flags.Has(http2.FlagHeadersEndStream)}
			if kind == http2.FramePushPromise {
				current.event = pushEvent
			}
			fallthrough
		case http2.FrameContinuation:
			block = append(block, payload[front:length-pad]...)
			if flags.Has(http2.FlagHeadersEndHeaders) {
				open = false
				all = append(all, f.understand(current, block))
			}
		}
	}
	return all
}

// number reads one of RFC 7541, 5.1; those of more than five bytes are none.
func number(b []byte, mask byte) (n int, rest []byte, ok bool) {
	n = int(b[0] & mask)
	if n < int(mask) {
		return n, b[1:], true
	}
	for i := 1; i < len(b) && i <= 4; i++ {
		n += int(b[i]&0x7f) << (7 * (i - 1))
		if b[i]&0x80 == 0 {
			return n, b[i+1:], true
		}
	}
	return 0, nil, false
}

// encoded is a string as it came.
type encoded struct {
	huffman bool
	bytes   []byte
}

func str(b []byte) (s encoded, rest []byte, ok bool) {
	if len(b) == 0 {
		return s, nil, false
	}
	n, rest, ok := number(b, 0x7f)
	if !ok || n > len(rest) {
		return s, nil, false
	}
	return encoded{b[0]&0x80 != 0, rest[:n]}, rest[n:], true
}

func (f *follower) understand(current finding, block []byte) finding {
	fields := map[string]string{}
	current.broken = !f.walk(block, fields)
	if current.broken {
		f.entries = append(f.entries, make([]field, 128)...)
		f.forgotten = len(f.entries)
	}
	current.status, _ = strconv.Atoi(fields[":status"])
	current.grpcStatus, _ = strconv.Atoi(fields["grpc-status"])
	current.grpc = fields["content-type"] == "grpc"
	if current.event == blockEvent {
		current.name = name(fields, current.grpc)
	}
	return current
}

// walk reads a block's fields; it fails where the block is not valid.
func (f *follower) walk(block []byte, fields map[string]string) bool {
	for len(block) > 0 {
		b := block[0]
		var index int
		var ok bool
		switch {
		case b&0x80 != 0:
			if index, block, ok = number(block, 0x7f); !ok || index == 0 {
				return false
			}
			if found := f.entry(index); found.kind != "" {
				fields[found.kind] = found.value
			}
			continue
		case b&0xe0 == 0x20:
			if _, block, ok = number(block, 0x1f); !ok {
				return false
			}
			continue
		case b&0x40 != 0:
			index, block, ok = number(block, 0x3f)
		default:
			index, block, ok = number(block, 0x0f)
		}
		if !ok {
			return false
		}
		var entry field
		if index > 0 {
			entry.kind = f.entry(index).kind
		} else {
			var s encoded
			if s, block, ok = str(block); !ok {
				return false
			}
			if text, valid := s.plain(100); valid && text == "grpc-status" {
				entry.kind = "grpc-status"
			}
		}
		var s encoded
		if s, block, ok = str(block); !ok {
			return false
		}
		if entry.kind != "" {
			entry.value = value(entry.kind, s)
			fields[entry.kind] = entry.value
		}
		if b&0xc0 == 0x40 {
			f.entries = append(f.entries, entry)
		}
	}
	return true
}

// entry is that of an index; the empty one if it is of no interest or not known.
func (f *follower) entry(index int) field {
	switch {
	case index >= 62:
		n := len(f.entries) - (index - 62)
		if index-62 >= 128 || n <= f.forgotten {
			return field{}
		}
		return f.entries[n-1]
	case index >= 8 && index <= 14:
		return field{":status", "2223445"[index-8 : index-7]}
	}
	return map[int]field{2: {":method", "GET"}, 3: {":method", "POST"}, 4: {":path", "/"}, 5: {":path", "/index.html"},
		31: {"content-type", ""}}[index]
}

// codes are the symbols by their Huffman codes, written with 0 and 1.
var codes = func() map[string]byte {
	all := map[string]byte{}
	for symbol := range 256 {
		coded := hpack.AppendHuffmanString(nil, strings.Repeat(string([]byte{byte(symbol)}), 8))
		var digits strings.Builder
		for i := range coded {
			digits.WriteString(strconv.FormatInt(int64(coded[i])|256, 2)[1:])
		}
		all[digits.String()[:len(coded)]] = byte(symbol)
	}
	return all
}()

// plain decodes up to limit symbols. Codes of more than 15 bits are none.
func (s encoded) plain(limit int) (string, bool) {
	if !s.huffman {
		return string(s.bytes[:min(limit, len(s.bytes))]), true
	}
	var text []byte
	code := ""
	for _, b := range s.bytes {
		for bit := 7; bit >= 0; bit-- {
			if len(text) == limit {
				return string(text), true
			}
			code += string('0' + b>>bit&1)
			if symbol, ok := codes[code]; ok {
				text, code = append(text, symbol), ""
			}
			if len(code) >= 15 {
				return string(text), false
			}
		}
	}
	if len(text) == limit {
		return string(text), true
	}
	return string(text), len(code) < 8 && !strings.Contains(code, "0")
}

func printable(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r <= 0x20 || r >= 0x7f })
}

// value is what is remembered of a field's value.
func value(kind string, s encoded) string {
	whole := s
	s.bytes = s.bytes[:min(128, len(s.bytes))]
	if kind == ":path" {
		return path(s, len(whole.bytes) > 128)
	}
	text, valid := s.plain(18)
	if !valid { // what came before it counts
		text += "\x00"
	}
	if i := strings.IndexFunc(text, func(r rune) bool { return r <= 0x20 || r >= 0x7f || r == '?' || r == '#' }); i >= 0 {
		text = text[:i]
	}
	text = text[:min(len(text), 17)]
	switch kind {
	case ":method":
		return text
	case ":status":
		if len(text) == 3 && text[0] >= '1' && text[0] <= '5' {
			return text[:1]
		}
	case "content-type":
		if rest, found := strings.CutPrefix(text, "application/grpc"); found && (rest == "" || rest == "+" || rest == ";") {
			return "grpc"
		}
	case "grpc-status":
		if n, err := strconv.Atoi(text); err == nil && strconv.Itoa(n) == text && n <= 16 && n >= 0 {
			return strconv.Itoa(n + 1)
		}
	}
	return ""
}

// path is at most 88 bytes of one without its query; empty if it is not valid.
func path(s encoded, longer bool) string {
	text, valid := s.plain(89)
	cut := longer
	end := strings.IndexAny(text, "?#")
	if bad := strings.IndexFunc(text, func(r rune) bool { return r <= 0x20 || r >= 0x7f }); bad >= 0 &&
		(end < 0 || bad < end) {
		text, valid = text[:bad], false
		if end = strings.IndexAny(text, "?#"); end < 0 && !longer {
			return ""
		}
	}
	switch {
	case end >= 0:
		text, cut = text[:end], false
	case !valid && !longer:
		return ""
	case len(text) > 88:
		text, cut = text[:88], true
	}
	if cut {
		b := append([]byte(text), 0, 0, 0)
		copy(b[min(len(text), 85):], "...")
		text = string(bytes.TrimRight(b, "\x00"))
	}
	return text
}

var methods = []string{"GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"}

// name is the request's, by the rules of proto_http.h.
func name(fields map[string]string, grpc bool) string {
	path, known := fields[":path"]
	switch {
	case !known:
		return "unknown"
	case path == "" || path[0] != '/' && path[0] != '*':
		return "invalid"
	}
	var b strings.Builder
	if slices.Contains(methods, fields[":method"]) {
		b.WriteString(fields[":method"] + " ")
	}
	if grpc {
		return b.String() + path
	}
	for i, segment := range strings.Split(path, "/") {
		if i > 0 {
			if b.Len() >= 93 {
				return lastSegment(b.String()) + "..."
			}
			b.WriteString("/")
		}
		if strings.HasSuffix(segment, "...") && strings.HasSuffix(path, segment) || b.Len()+len(segment) > 93 {
			b.WriteString("...")
			return b.String()
		}
		b.WriteString(pattern(segment))
	}
	return b.String()
}

// lastSegment is the name without what follows its last slash.
func lastSegment(name string) string { return name[:strings.LastIndex(name, "/")+1] }

func pattern(segment string) string {
	digits, hex := 0, 0
	for _, c := range segment {
		if c >= '0' && c <= '9' {
			digits++
		}
		if strings.ContainsRune("0123456789abcdefABCDEF-\r", c) {
			hex++
		}
	}
	switch n := len(segment); {
	case n == 0:
		return ""
	case digits == n || n >= 32 || n >= 16 && hex == n:
		return "{}"
	case digits < 2 || n == 3 && digits == 2 && segment[0] == 'v':
		return segment
	}
	return "{}"
}
