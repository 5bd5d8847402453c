package parsertest

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"
)

const batch = 64

// parser runs the parsers of the kernel on up to batch heads: the heads as they are then, the
// states of the requests and the statuses of the replies.
type parser func(testing.TB, []headtestHead) ([]headtestHead, []int32, []int32)

func kernel(t testing.TB) parser {
	t.Helper()
	if err := rlimit.RemoveMemlock(); err != nil {
		t.Fatal(err)
	}
	var objects headtestObjects
	if err := loadHeadtestObjects(&objects, nil); err != nil {
		t.Fatalf("loading: %v", err)
	}
	t.Cleanup(func() { objects.Close() })
	return func(t testing.TB, in []headtestHead) ([]headtestHead, []int32, []int32) {
		t.Helper()
		heads, states, statuses := make([]headtestHead, batch), make([]int32, batch), make([]int32, batch)
		copy(heads, in)
		if err := objects.Heads.Set(heads); err != nil {
			t.Fatal(err)
		}
		if _, err := objects.Parse.Run(&ebpf.RunOptions{}); err != nil {
			t.Fatalf("running the program: %v", err)
		}
		for _, get := range []error{objects.Heads.Get(heads), objects.States.Get(states), objects.Statuses.Get(statuses)} {
			if get != nil {
				t.Fatal(get)
			}
		}
		return heads[:len(in)], states[:len(in)], statuses[:len(in)]
	}
}

func head(r request) headtestHead {
	h := headtestHead{Protocol: r.protocol, Size: r.size, Length: uint8(len(r.bytes))}
	copy(h.Bytes[:], r.bytes)
	for i := range h.Scratch { // what an earlier name has left
		h.Scratch[i] = '~'
	}
	return h
}

// check compares the kernel with the model. Whatever the bytes, the name is bounded and printable,
// and the bytes that are said to decide the name do so.
func check(t testing.TB, parse parser, requests []request) {
	t.Helper()
	for len(requests) > 0 {
		n := min(batch, len(requests))
		heads := make([]headtestHead, n)
		for i, r := range requests[:n] {
			heads[i] = head(r)
		}
		got, states, _ := parse(t, heads)
		var again []request
		for i, r := range requests[:n] {
			want, h := understand(r), &got[i]
			name := strings.TrimRight(string(h.Name[:]), "\x00")
			if states[i] != int32(want.state) || h.Protocol != want.protocol || name != want.name && isNamed(want.state) {
				t.Fatalf("protocol %d, %q (%d bytes in all):\nkernel: state %d, protocol %d, %q\nmodel:  state %d, protocol %d, %q",
					r.protocol, r.bytes, r.size, states[i], h.Protocol, name, want.state, want.protocol, want.name)
			}
			if isNamed(want.state) && (h.Streams != 0) != want.streams {
				t.Fatalf("%q: streams %d, want %v", r.bytes, h.Streams, want.streams)
			}
			for _, b := range []byte(name) {
				if b < 0x20 || b > 0x7e {
					t.Fatalf("%q is named %q", r.bytes, name)
				}
			}
			if used := int(h.Used); used > 0 && used <= len(r.bytes) && isNamed(want.state) {
				longer := append(bytes.Clone(r.bytes[:used]), bytes.Repeat([]byte{'x'}, headBytes-used)...)
				again = append(again, request{want.protocol, longer, r.size})
			} else {
				again = append(again, request{})
			}
		}
		for i, r := range again {
			if r.bytes == nil {
				continue
			}
			heads[i] = head(r)
		}
		longer, states2, _ := parse(t, heads)
		for i, r := range again {
			if r.bytes != nil && (longer[i].Name != got[i].Name || states2[i] != states[i]) {
				t.Fatalf("%q is %q by its first %d bytes, but %q is %q", requests[i].bytes, got[i].Name, got[i].Used,
					r.bytes, longer[i].Name)
			}
		}
		requests = requests[n:]
	}
}

func isNamed(state uint8) bool { return state == named || state == silent }

func newRequest(protocol uint8, b []byte, size uint32) request {
	if protocol > dns {
		protocol %= dns + 1
	}
	if len(b) == 0 {
		b = []byte{0}
	}
	r := request{protocol, b, size}
	if len(b) > headBytes {
		r.bytes = b[:headBytes]
	}
	r.size = max(size, uint32(len(b)))
	return r
}

// fixtures are the first bytes of requests of real clients.
func fixtures(t testing.TB) map[string][]byte {
	t.Helper()
	paths, err := filepath.Glob("testdata/*.request")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no fixtures: %v", err)
	}
	all := map[string][]byte{}
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all[strings.TrimSuffix(filepath.Base(path), ".request")] = b
	}
	return all
}

func seeds(t testing.TB) [][]byte {
	var all [][]byte
	for _, b := range fixtures(t) {
		all = append(all, b)
	}
	for _, s := range hostile {
		all = append(all, []byte(s))
	}
	return all
}

// hostile are requests that nobody well-behaved sends.
var hostile = []string{
	"GET", "GET ", strings.Repeat("A", 200), strings.Repeat("GET", 100) + " / HTTP/1.1\r\n",
	"GET /" + strings.Repeat("a", 1<<20) + " HTTP/1.1\r\n\r\n", "GET /a\x00b HTTP/1.1\r\n\r\n",
	"GET /\x1b[31m HTTP/1.1\r\n\r\n",
	"GET " + strings.Repeat("/", 300), "GET " + strings.Repeat("/abc", 100), "GET " + strings.Repeat("/12", 100),
	"GET /" + strings.Repeat("/x", 20) + "/123456789012345678901234567890 HTTP/1.1\r\n", "GET / HTTX/1.1\r\n\r\n",
	"GET http://", "GET https://host HTTP/1.1\r\n\r\n",
	"GET http://host/a/1/b?x HTTP/1.1\r\n\r\n", "OPTIONS * HTTP/1.1\r\n\r\n", "CONNECT host:443 HTTP/1.1\r\n\r\n",
	"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
	"GET /v1/v10/v100/oauth2/x-1/ab12cd34ef56ab12/deadbeefdeadbeef HTTP/1.1\r\n\r\n", "GET /\xff\xfe HTTP/1.1\r\n\r\n",
	"GET /%00 HTTP/1.1\r\n\r\n",
	"*1\r\n$4294967295\r\nGET\r\n", "*-1\r\n$3\r\nGET\r\n", "*1\r\n$3\r\n\x00\x00\x00\r\n", "*99999\r\n$3\r\nGET\r\n",
	"*1\r\n$24\r\nAAAAAAAAAAAAAAAAAAAAAAAA\r\n", "*1\r\n$25\r\nAAAAAAAAAAAAAAAAAAAAAAAAA\r\n",
	"Q\xff\xff\xff\xffSELECT 1\x00", "Q\x00\x00\x00\x0dSELECT 1\x00", "P\x00\x00\x00\x20" + strings.Repeat("n", 200),
	"Q\x00\x00\x00\x10/* /* /*/ */ \x00\x00",
	"\x00\x00\x00\x09\x00\x03\x00\x00\x00", "\x16\x03\x01\x02\x00\x01", "\xff\xff\xff\x00\x03SELECT",
	"\x09\x00\x00\x00\x03SELECT 1", "\x00\x00\x00\x00\x00",
	"\x00\x00\x00\x23\x00\x12\x00\x00\x00\x00\x00\x01\x00\x10client-with-name" + strings.Repeat("\x00", 10),
	"\x7f\xff\xff\xff\x00\x12\x00\x03\x00\x00\x00\x01\x00\x04name",
	"get \r\n", "get " + strings.Repeat("k", 300) + "\r\n", "get a\nb\r\n", "flush_all\r\n", "stats\r\n",
	"set k 0 0 1\r\nx\r\n", "quit\r\n", "______________",
	"\x00\x1d\x12\x34\x01\x20\x00\x01\x00\x00\x00\x00\x00\x00\x07example\x03com\x00\x00\x1c\x00\x01",
	// two at once
	"\x00\x1d\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x07example\x03com\x00\x00\x01\x00\x01\x00\x1d\x12\x35",
	// a reply
	"\x00\x1d\x12\x34\x81\x80\x00\x01\x00\x00\x00\x00\x00\x00\x07example\x03com\x00\x00\x01\x00\x01",
	// a pointer
	"\x00\x1d\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\xc0\x0cample\x03com\x00\x00\x01\x00\x01",
	"\x00\x1d\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x3fexample\x03com\x00\x00\x01\x00\x01",
	"\x00\x11\x12\x34\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\x01",
	"\x00\x24\x12\x34\x28\x00\x00\x01\x00\x00\x00\x01\x00\x00\x07example\x03com\x00\x00\x06\x00\x01",
	"\x00\x2b\x12\x34\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x014\x013\x012\x0210\x07in-addr\x04arpa\x00\x00\x0c\x00\x01" + "\x00\x00\x00",
	"\x00\x6b\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x01\x3f" + strings.Repeat("x", 63) +
		"\x03svc\x07cluster\x05local\x00\x00\x01\x00\x01\x00\x00\x29\x04\xd0\x00\x00\x00\x00\x00\x00",
	"\x00\xff\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x3f" + strings.Repeat("x", 63) + "\x3f" +
		strings.Repeat("y", 100),
}

func TestKernelFollowsTheModel(t *testing.T) {
	parse := kernel(t)
	random := rand.New(rand.NewPCG(1, 2))
	var all []request
	for protocol := range uint8(dns + 1) {
		for _, b := range seeds(t) {
			for n := 1; n <= min(len(b), headBytes+1); n++ { // as it comes, byte by byte
				all = append(all, newRequest(protocol, b[:n], uint32(n)))
			}
			all = append(all, newRequest(protocol, b, uint32(len(b))), newRequest(protocol, b, 1<<30))
			for range 40 { // and a little different
				changed := bytes.Clone(b[:min(len(b), 200)])
				for range 1 + random.IntN(3) {
					changed[random.IntN(len(changed))] = byte(random.Uint32())
				}
				all = append(all, newRequest(protocol, changed, uint32(len(changed))))
			}
		}
		for range 2000 { // targets out of what matters in them
			target := []byte("GET ")
			for range random.IntN(120) {
				const alphabet = "////aaabcvvxyz0123456789-_.?# \x00\x7f\xc3H"
				target = append(target, alphabet[random.IntN(len(alphabet)-5*random.IntN(2))])
			}
			all = append(all, newRequest(protocol, append(target, " HTTP/1.1\r\n\r\n"...), 1000))
		}
	}
	t.Logf("%d heads", len(all))
	check(t, parse, all)
}

func FuzzHead(f *testing.F) {
	parse := kernel(f)
	for _, b := range seeds(f) {
		for protocol := range uint8(dns + 1) {
			f.Add(protocol, b, uint32(len(b)))
		}
	}
	f.Fuzz(func(t *testing.T, protocol uint8, b []byte, size uint32) {
		check(t, parse, []request{newRequest(protocol, b, size)})
	})
}

func TestFixturesAreNamed(t *testing.T) {
	parse := kernel(t)
	want := map[string]string{
		"http-curl": "GET /users/{}/orders", "redis-benchmark": "SET", "postgresql-startup": "startup",
		"postgresql-tls":   "tls request",
		"postgresql-query": "query SELECT", "postgresql-parse": "parse SELECT", "postgresql-bind": "execute",
		"mysql-query": "query SELECT",
		"mysql-login": "login", "memcached-get": "get", "memcached-set": "set", "kafka-versions": "18", "kafka-metadata": "3",
		"dns-libc": "A db-1.shop.example",
	}
	for name, b := range fixtures(t) {
		protocol := uint8(unknown)
		if name == "mysql-login" { // known by the server's greeting
			protocol = mysql
		}
		heads, states, _ := parse(t, []headtestHead{head(newRequest(protocol, b, uint32(len(b))))})
		if got := strings.TrimRight(string(heads[0].Name[:]), "\x00"); got != want[name] || states[0] != named ||
			want[name] == "" {
			t.Errorf("%s is %q (state %d), want %q", name, got, states[0], want[name])
		}
	}
}

func TestReplies(t *testing.T) {
	parse := kernel(t)
	const partialReply, interim = 0x100, 0x200
	for _, c := range []struct {
		protocol uint8
		reply    string
		want     int32
	}{
		{http, "HTTP/1.1 200 OK\r\n", 2}, {http, "HTTP/1.0 404 Not Found\r\n", 4}, {http, "HTTP/1.1 503 x", 5},
		{http, "HTTP/1.1 301", 3},
		{http, "HTTP/1.1 20", partialReply}, {http, "HTTP/1.1 101 Switching Protocols\r\n", 8},
		{http, "HTTP/1.1 103 Early Hints\r\n", 1},
		{http, "HTTP/1.1 100 Continue\r\n\r\n", interim}, {http, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\n", 2},
		{http, "HTTP/1.1 999 x\r\n", 0}, {http, "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00", 0},
		{redis, "+OK\r\n", 6}, {redis, "-ERR no\r\n", 7}, {redis, "$-1\r\n", 6}, {redis, "*0\r\n", 6},
		{postgresql, "E\x00\x00\x00\x30SERROR", 7}, {postgresql, "1\x00\x00\x00\x042\x00\x00\x00\x04E\x00\x00\x00\x30", 7},
		{postgresql, "1\x00\x00\x00\x042\x00\x00\x00\x04T\x00\x00\x00\x30", 6}, {postgresql, "N", 6},
		{postgresql, "S", 6}, {postgresql, "\x31\xff\xff\xff\xffE", 6},
		{mysql, "\x01\x00\x00\x01\x05", 6}, {mysql, "\x20\x00\x00\x01\xff", 7}, {mysql, "\x01\x00\x00\x01", partialReply},
		{memcached, "STORED\r\n", 6}, {memcached, "SERVER_ERROR x\r\n", 7}, {memcached, "CLIENT_ERROR x\r\n", 7},
		{memcached, "ERROR\r\n", 7},
		{memcached, "END\r\n", 6}, {memcached, "5\r\n", 6}, {memcached, "EXISTS\r\n", 6}, {memcached, "E", partialReply},
		{dns, "\x00\x20\x00\x00\x81\x80", 6}, {dns, "\x00\x20\x00\x00\x81\x83", 16 + 3},
		{dns, "\x00\x20\x00\x00\x81", partialReply},
		{dns, "\x00\x20\x00\x07\x81\x80", 0}, {dns, "\x00\x20\x00\x00\x01\x80", 0},
		{kafka, "\x00\x00\x00\x10\x00\x00\x00\x01", 0},
	} {
		h := headtestHead{Protocol: c.protocol, ReplyLength: uint8(min(len(c.reply), replyBytes))}
		copy(h.Reply[:], c.reply)
		if _, _, statuses := parse(t, []headtestHead{h}); statuses[0] != c.want {
			t.Errorf("protocol %d, %q: status %#x, want %#x", c.protocol, c.reply, statuses[0], c.want)
		}
	}
}
