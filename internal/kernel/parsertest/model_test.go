package parsertest

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strconv"
	"strings"
)

// The numbers of endpoints.h and parse.h.
const (
	unknown    = 0
	http       = 1
	redis      = 2
	postgresql = 3
	mysql      = 4
	kafka      = 5
	memcached  = 6
	dns        = 7
	http2Known = 8
	opaque     = 255

	none    = 0
	partial = 1
	named   = 2
	silent  = 3
	preface = 4
	other   = 9

	headBytes  = 128
	replyBytes = 64
	nameLimit  = 48
	enough     = 64
)

// request is the beginning of a request, as the kernel has it.
type request struct {
	protocol uint8
	// bytes are at most headBytes of the size bytes that the request has so far.
	bytes []byte
	size  uint32
}

// answer is what the rules make of a request.
type answer struct {
	state, protocol uint8
	name            string
	streams         bool
}

func (r request) at(i int) byte {
	if i < len(r.bytes) {
		return r.bytes[i]
	}
	return 0
}

// understand is the model of parse_head.
func understand(r request) answer {
	a := answer{protocol: r.protocol}
	if r.protocol == opaque || isTLS(r) {
		a.protocol = opaque
		return a
	}
	if bytes.HasPrefix(r.bytes, []byte("PRI * HT")) {
		return answer{state: preface, protocol: http2Known}
	}
	if r.protocol != unknown {
		a.state = parsers[r.protocol](r, true, &a)
		if a.state == other {
			return answer{state: named, protocol: r.protocol, name: "invalid"}
		}
	} else {
		a.state = recognise(r, &a)
	}
	switch a.state {
	case partial:
		return answer{state: partial, protocol: r.protocol}
	case other:
		return answer{state: none, protocol: r.protocol}
	}
	return a
}

var parsers = map[uint8]func(r request, known bool, a *answer) uint8{
	http: parseHTTP, redis: parseRedis, postgresql: parsePostgreSQL, mysql: parseMySQL, kafka: parseKafka,
	memcached: parseMemcached, dns: parseDNS,
}

func isTLS(r request) bool {
	if t := r.at(0); t < 0x14 || t > 0x17 || r.at(1) != 3 || r.at(2) < 1 || r.at(2) > 4 {
		return false
	}
	return r.protocol != mysql || r.size != uint32(r.at(0))|3<<8|uint32(r.at(2))<<16+4
}

func recognise(r request, a *answer) uint8 {
	var try []uint8
	if len(r.bytes) >= 5 && r.at(3) == 0 {
		try = append(try, mysql)
	}
	switch first := r.at(0); {
	case isUpper(first):
		if try = append(try, http); r.at(1) == 0 {
			try = append(try, postgresql)
		}
	case first == '*':
		try = append(try, redis)
	case first >= 'a' && first <= 'z':
		try = append(try, memcached)
	case first == 0:
		try = append(try, postgresql, kafka, dns)
	}
	for _, protocol := range try {
		if state := parsers[protocol](r, false, a); state != other {
			if state != partial {
				a.protocol = protocol
			}
			return state
		}
		*a = answer{protocol: r.protocol}
	}
	if len(r.bytes) < 5 {
		return partial
	}
	return other
}

func isUpper(b byte) bool  { return b >= 'A' && b <= 'Z' }
func isLetter(b byte) bool { return isUpper(b &^ 0x20) }
func isDigit(b byte) bool  { return b >= '0' && b <= '9' }
func isPlain(b byte) bool  { return b > 0x20 && b < 0x7f }

func more(r request) uint8 {
	if len(r.bytes) < enough {
		return partial
	}
	return other
}

func parseHTTP(r request, _ bool, a *answer) uint8 {
	i := 0
	for i < 11 && i < len(r.bytes) && isUpper(r.bytes[i]) {
		i++
	}
	if i < 11 && i == len(r.bytes) {
		return partial
	}
	if i < 3 || i > 10 || r.at(i) != ' ' {
		return other
	}
	method := string(r.bytes[:i])
	i++
	if i+8 > len(r.bytes) {
		return partial
	}
	if method == "CONNECT" {
		a.name, a.streams = method, true
		return named
	}
	a.name = method + " "
	switch rest := r.bytes[i:]; {
	case rest[0] == '*':
		if rest[1] != ' ' {
			return other
		}
		a.name += "*"
		return named
	case bytes.HasPrefix(rest, []byte("http")):
		for slashes := 0; i < len(r.bytes) && isPlain(r.at(i)) && r.at(i) != '?' && r.at(i) != '#'; i++ {
			if r.at(i) == '/' {
				if slashes++; slashes == 3 {
					break
				}
			}
		}
	case rest[0] != '/':
		return other
	}
	return parsePath(r, i, a)
}

// parsePath makes a name of the target from byte i on.
func parsePath(r request, i int, a *answer) uint8 {
	start := i
	ended := false
	for ; i < len(r.bytes); i++ {
		if b := r.bytes[i]; b == ' ' || b == '?' || b == '#' {
			ended = true
			break
		} else if !isPlain(b) {
			break
		}
	}
	path := string(r.bytes[start:i])
	segments := strings.Split(path, "/")[min(1, len(path)):]
	for k, s := range segments {
		last := k == len(segments)-1
		before := a.name
		if a.name += "/"; last && !ended && i == len(r.bytes) {
			a.name += "..."
			break
		}
		if isID(s) {
			s = "{}"
		}
		if last && len(a.name+s) > nameLimit || !last && len(a.name+s) > 44 {
			a.name = before + "/..."
			if !last {
				// What comes behind is not looked at.
				return named
			}
			break
		}
		a.name += s
	}
	if len(segments) == 0 && path == "" {
		a.name += "/"
		if !ended {
			a.name = a.name[:len(a.name)-1] + "/..."
		}
	}
	if i < len(r.bytes) && !ended {
		return other
	}
	if !ended {
		if len(r.bytes) < enough {
			return partial
		}
		return named
	}
	if r.bytes[i] == ' ' {
		if i+5 >= len(r.bytes) && len(r.bytes) < enough {
			return partial
		}
		if i+5 < len(r.bytes) && string(r.bytes[i+1:i+6]) != "HTTP/" {
			return other
		}
	}
	return named
}

func isID(s string) bool {
	digits, hex := 0, 0
	for _, b := range []byte(s) {
		if isDigit(b) {
			digits++
		}
		if isDigit(b) || b == '-' || b|0x20 >= 'a' && b|0x20 <= 'f' {
			hex++
		}
	}
	switch n := len(s); {
	case n == 0:
		return false
	case digits == n, n >= 32, n >= 16 && hex == n:
		return true
	case n == 3 && digits == 2 && s[0] == 'v':
		return false
	}
	return digits >= 2
}

func parseRedis(r request, _ bool, a *answer) uint8 {
	if r.at(0) != '*' {
		return other
	}
	if len(r.bytes) < 11 {
		return partial
	}
	_, i := redisNumber(r, 1)
	if i == 0 || r.at(i) != '$' {
		return other
	}
	length, i := redisNumber(r, i+1)
	if i == 0 || length > 24 {
		return other
	}
	if i+length > len(r.bytes) {
		return more(r)
	}
	name := bytes.ToUpper(r.bytes[i : i+length])
	if !isLetter(name[0]) || bytes.ContainsFunc(name, func(c rune) bool {
		return c > 0x7f || !isUpper(byte(c)) && !isDigit(byte(c)) && c != '.' && c != '_' && c != '-'
	}) {
		return other
	}
	a.name = string(name)
	a.streams = slices.Contains([]string{"SYNC", "PSYNC", "MONITOR", "SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE"}, a.name)
	return named
}

// redisNumber is a number that is not 0, and the place behind its line end, or 0.
func redisNumber(r request, i int) (n, end int) {
	for range 4 {
		if !isDigit(r.at(i)) {
			break
		}
		n = n*10 + int(r.at(i)-'0')
		i++
	}
	if n == 0 || r.at(i) != '\r' || r.at(i+1) != '\n' {
		return 0, 0
	}
	return n, i + 2
}

var statements = []string{
	"SELECT", "INSERT", "UPDATE", "DELETE", "BEGIN", "START", "COMMIT", "ROLLBACK", "SET", "SHOW", "CREATE", "DROP",
	"ALTER", "WITH", "VALUES",
	"COPY", "LISTEN", "NOTIFY", "EXPLAIN", "TRUNCATE", "CALL", "REPLACE", "USE", "PREPARE", "EXECUTE", "END",
}

// parseSQL names a statement in the bytes from i to end.
func parseSQL(r request, i int, end uint32, known bool, a *answer) uint8 {
	stop := int(min(uint64(len(r.bytes)), uint64(end)))
	comment := false
	for ; i < stop; i++ {
		b := r.bytes[i]
		switch {
		case comment:
			comment = !(b == '/' && r.bytes[i-1] == '*')
			continue
		case b == '/' && r.at(i+1) == '*':
			comment = true
			continue
		case strings.IndexByte(" \n\r\t(;", b) >= 0:
			continue
		}
		break
	}
	start := i
	for i < stop && i-start < 16 && isLetter(r.bytes[i]) {
		i++
	}
	word := strings.ToUpper(string(r.bytes[min(start, len(r.bytes)):max(i, min(start, len(r.bytes)))]))
	a.name = strings.TrimSuffix(a.name+word, " ")
	if i >= len(r.bytes) && uint64(i) < uint64(end) && len(r.bytes) < enough {
		return partial
	}
	if !known && !slices.ContainsFunc(statements,
		func(s string) bool { return word[:min(8, len(word))] == s[:min(8, len(s))] }) {
		return other
	}
	return named
}

func parsePostgreSQL(r request, known bool, a *answer) uint8 {
	n := len(r.bytes)
	if n < 8 && !(known && n >= 5) {
		return partial
	}
	if r.at(0) == 0 {
		return parseStartup(r, a)
	}
	var header [8]byte
	copy(header[:], r.bytes)
	end := binary.BigEndian.Uint32(header[1:]) + 1
	if end < 5 || end > 1<<30 {
		return other
	}
	plain := map[byte]string{
		'E': "execute", 'D': "describe", 'C': "close", 'S': "sync", 'p': "password", 'F': "function", 'd': "copy data",
		'c': "copy data", 'f': "copy data",
	}
	switch t := r.at(0); t {
	case 'Q':
		if !known && end != r.size {
			if r.size < end {
				return partial
			}
			return other
		}
		a.name = "query "
		return parseSQL(r, 5, end, known, a)
	case 'P':
		zero := bytes.IndexByte(r.bytes[5:min(n, 5+64)], 0)
		if zero < 0 {
			return more(r)
		}
		a.name = "parse "
		return parseSQL(r, 5+zero+1, end, known, a)
	case 'B':
		a.name = "execute"
		if known {
			return named
		}
		if r.at(5) != 0 || end < 12 || int(end) >= n || r.at(int(end)) != 'D' && r.at(int(end)) != 'E' {
			return other
		}
		if i := int(end); i+4 < n && (r.at(i+1) != 0 || r.at(i+2) != 0 || r.at(i+3) != 0) {
			return other
		}
		return named
	case 'X':
		if a.name = "terminate"; known && end == 5 {
			return silent
		}
		return other
	default:
		if a.name = plain[t]; a.name != "" && known {
			return named
		}
		return other
	}
}

func parseStartup(r request, a *answer) uint8 {
	var header [9]byte
	copy(header[:], r.bytes)
	length, code := binary.BigEndian.Uint32(header[:]), binary.BigEndian.Uint32(header[4:])
	switch {
	case code == 80877103 && length == 8:
		a.name = "tls request"
	case code == 80877104 && length == 8:
		a.name = "gss request"
	case code == 80877102 && length == 16:
		a.name = "cancel"
		return silent
	case (code == 3<<16 || code == 3<<16+2) && length >= 9 && length <= 10000:
		if len(r.bytes) < 9 {
			return partial
		}
		if !isLetter(header[8]) {
			return other
		}
		a.name = "startup"
	default:
		return other
	}
	return named
}

func parseMySQL(r request, known bool, a *answer) uint8 {
	n := len(r.bytes)
	if n < 5 {
		return partial
	}
	length := uint32(r.at(0)) | uint32(r.at(1))<<8 | uint32(r.at(2))<<16
	if length == 0 {
		return other
	}
	if r.at(3) != 0 {
		if a.name = "login"; known {
			return named
		}
		return other
	}
	if !known && r.size != length+4 {
		if r.size < 8 && r.size < length+4 {
			return partial
		}
		return other
	}
	command := r.at(4)
	if command == 3 || command == 0x16 {
		if n < 8 && uint32(n) < length+4 {
			return partial
		}
		i := 5
		if a.name = "prepare "; command == 3 {
			if a.name = "query "; r.at(5) == 0 && r.at(6) == 1 {
				i = 7
			}
		}
		return parseSQL(r, i, length+4, known, a)
	}
	if !known {
		return other
	}
	a.name = map[byte]string{
		1: "quit", 2: "use", 0x0e: "ping", 0x11: "change user", 0x12: "binlog dump", 0x17: "execute", 0x18: "long data",
		0x19: "close",
		0x1a: "reset", 0x1c: "fetch", 0x1f: "reset connection",
	}[command]
	if a.name == "" {
		a.name = "command"
	}
	a.streams = command == 0x12
	if command == 1 || command == 0x18 || command == 0x19 && r.size <= length+4 {
		return silent
	}
	return named
}

func parseKafka(r request, known bool, a *answer) uint8 {
	if r.at(0) >= 0x80 {
		return other
	}
	if n := len(r.bytes); n < 18 && !(known && n >= 12) {
		return partial
	}
	length := binary.BigEndian.Uint32(r.bytes)
	if length < 10 || r.at(4) != 0 || r.at(5) > 127 || r.at(6) != 0 || r.at(7) > 31 || r.at(8) >= 0x80 {
		return other
	}
	if !known {
		client := uint32(r.at(12))<<8 | uint32(r.at(13))
		if length+4 != r.size || client < 4 || client > 255 || client+10 > length {
			return other
		}
		for _, b := range r.bytes[14:18] {
			if !isPlain(b) {
				return other
			}
		}
	}
	a.name = strconv.Itoa(int(r.at(5)))
	return named
}

var (
	keyVerbs = []string{"get", "gets", "gat", "gats", "set", "add", "replace", "append", "prepend", "cas", "delete",
		"incr", "decr",
		"touch", "mg", "ms", "md", "ma", "me"}
	aloneVerbs = []string{"stats", "version", "quit", "flush_al", "verbosit", "mn"}
)

func parseMemcached(r request, known bool, a *answer) uint8 {
	i := 0
	for i < 10 && i < len(r.bytes) && (r.bytes[i] >= 'a' && r.bytes[i] <= 'z' || r.bytes[i] == '_') {
		i++
	}
	if i < 10 && i == len(r.bytes) {
		return partial
	}
	a.name = string(r.bytes[:i])
	switch r.at(i) {
	case '\r':
		if i+1 >= len(r.bytes) {
			return partial
		}
		if r.at(i+1) != '\n' {
			return other
		}
	case ' ':
	default:
		return other
	}
	word := a.name[:min(8, i)]
	switch {
	case slices.Contains(keyVerbs, word):
		if r.at(i) != ' ' || i+1 < len(r.bytes) && !isPlain(r.at(i+1)) {
			return other
		}
	case !slices.Contains(aloneVerbs, word):
		return other
	}
	if !known {
		line := uint8(0)
		for k := 2; k < len(r.bytes) && line == 0; k++ {
			switch b := r.bytes[k]; {
			case b == '\n' && r.bytes[k-1] == '\r':
				line = named
			case b < 0x20 && b != '\r':
				line = other
			}
		}
		if line == other {
			return other
		}
		if line == 0 {
			return more(r)
		}
	}
	if word == "quit" {
		return silent
	}
	return named
}

var typeNames = map[uint16]string{
	1: "A", 2: "NS", 5: "CNAME", 6: "SOA", 12: "PTR", 15: "MX", 16: "TXT", 28: "AAAA", 33: "SRV", 64: "SVCB",
	65: "HTTPS", 255: "ANY",
}

func parseDNS(r request, known bool, a *answer) uint8 {
	n, length := len(r.bytes), int(r.at(0))<<8|int(r.at(1))
	if n >= 2 && length < 17 {
		return other
	}
	if n < 14 {
		return partial
	}
	if r.at(4)&0x80 != 0 || r.at(6) != 0 || r.at(7) != 1 {
		return other
	}
	additions := r.at(13)
	if !known && (r.at(4) > 1 || r.at(5)&^0x30 != 0 || r.at(8)|r.at(9)|r.at(10)|r.at(11)|r.at(12) != 0 || additions > 2) {
		return other
	}
	if int(r.size) > length+2 {
		if a.name = "pipelined"; known {
			return named
		}
		return other
	}
	switch r.at(4) >> 3 {
	case 0:
	case 4:
		a.name = "notify"
		return named
	case 5:
		a.name = "update"
		return named
	default:
		return other
	}
	var packet [headBytes]byte
	copy(packet[:headBytes-2], r.bytes[2:])
	end := 0
	a.name, end = nameDNS(packet, n-2)
	more := int(r.size) < length+2
	if more && n < enough && (end == 0 || !known) {
		return partial
	}
	if known {
		return named
	}
	if more || end == 0 || end+5 > headBytes-2 || packet[end+3] != 0 || !slices.Contains([]byte{1, 3, 255},
		packet[end+4]) {
		return other
	}
	if rest := length - end - 5; (rest > 0) != (additions > 0) || rest < 0 {
		return other
	}
	return named
}

// nameDNS is what a query is called, of which the first n bytes are there, and where its name ends.
func nameDNS(packet [headBytes]byte, n int) (string, int) {
	var text []byte
	end := 12
	for left := 0; ; end++ {
		if end >= headBytes-2 || end+2 >= n || left == 0 && packet[end] > 63 {
			return "invalid", 0
		}
		b := packet[end]
		switch {
		case left > 0:
			left--
			if b >= 'A' && b <= 'Z' {
				b += 'a' - 'A'
			}
			if b <= ' ' || b > '~' {
				b = '?'
			}
			text = append(text, b)
			continue
		case b > 0:
			left = int(b)
			text = append(text, '.')
			continue
		}
		break
	}
	kind := binary.BigEndian.Uint16(packet[end+1:])
	name := "? "
	if known := typeNames[kind]; known != "" {
		name = known + " "
	}
	if end == 12 {
		return name + ".", end
	}
	room := nameLimit - 1 - len(name)
	start := 1
	if kind == 12 && end > 21 && bytes.HasSuffix(text, []byte(".arpa")) {
		if start = len(text) - 13; text[len(text)-6] == '6' {
			start = len(text) - 9
		}
	} else if len(text)-1 > room {
		for i := 1; i < len(text); i++ {
			if text[i] == '.' && len(text)-i < room {
				start = i
				break
			}
		}
	}
	if text[start] == '.' {
		name += "*"
	}
	return (name + string(text[start:]))[:min(nameLimit-1, len(name)+len(text)-start)], end
}
