package parsertest

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

const (
	joining  = 0
	greets   = 1
	followed = 2
)

// connections numbers the connections of all tests.
var connections atomic.Uint64

// part is one of a vector that a program hands over.
type part struct {
	at   uintptr
	size uint64
}

// following runs http2.h in the kernel on the calls of one direction of a connection. Of each call
// there may be several parts, as in a vector.
type following func(t testing.TB, state uint8, calls [][][]byte) []finding

func kernelHTTP2(t testing.TB) (following, *http2testObjects) {
	t.Helper()
	if err := rlimit.RemoveMemlock(); err != nil {
		t.Fatal(err)
	}
	var objects http2testObjects
	if err := loadHttp2testObjects(&objects, nil); err != nil {
		t.Fatalf("loading: %v", err)
	}
	t.Cleanup(func() { objects.Close() })
	return func(t testing.TB, state uint8, calls [][][]byte) []finding {
		t.Helper()
		if err := objects.Half.Set(http2testHttp2Direction{Connection: connections.Add(1), State: state}); err != nil {
			t.Fatal(err)
		}
		if err := objects.Found.Set(uint32(0)); err != nil {
			t.Fatal(err)
		}
		for _, call := range calls {
			parts := make([]part, 0, len(call)+1)
			size := 0
			for _, p := range call {
				parts = append(parts, part{uintptr(unsafe.Pointer(unsafe.SliceData(p))), uint64(len(p))})
				size += len(p)
			}
			source := http2testHttp2Source{Vector: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(parts)))),
				Parts: uint64(len(parts)), Left: uint32(size)}
			if err := objects.Source.Set(source); err != nil {
				t.Fatal(err)
			}
			if _, err := objects.Follow.Run(&ebpf.RunOptions{}); err != nil {
				t.Fatalf("running the program: %v", err)
			}
			kept = parts // the kernel has read it: it must not have been collected
		}
		var n uint32
		if err := objects.Found.Get(&n); err != nil {
			t.Fatal(err)
		}
		raw := make([]http2testFinding, 1024)
		if err := objects.Findings.Get(raw); err != nil {
			t.Fatal(err)
		}
		var all []finding
		for _, r := range raw[:n] {
			f := finding{event: int(r.Event), stream: r.Stream}
			switch f.event {
			case blockEvent, pushEvent:
				f.ends, f.broken, f.grpc = r.Ends != 0, r.Broken != 0, r.Grpc != 0
				f.status, f.grpcStatus = int(r.Status), int(r.GrpcStatus)
				if f.event == blockEvent {
					f.name = strings.TrimRight(string(r.Name[:]), "\x00")
				}
			case lostEvent:
				f.stream = 0
			}
			all = append(all, f)
		}
		return all
	}, &objects
}

var kept []part

// cut divides bytes at random, into calls and parts of calls.
func cut(random *rand.Rand, b []byte) [][][]byte {
	var calls [][][]byte
	for len(b) > 0 {
		var call [][]byte
		for range 1 + random.IntN(3) {
			n := random.IntN(len(b) + 1)
			if random.IntN(2) == 0 {
				n = min(len(b), random.IntN(12))
			}
			call, b = append(call, b[:n]), b[n:]
		}
		calls = append(calls, call)
	}
	return calls
}

// compare holds the kernel against the model, whole and in pieces.
func compare(t testing.TB, run following, random *rand.Rand, b []byte) []finding {
	t.Helper()
	want := (&follower{}).follow(b)
	for i, calls := range [][][][]byte{{{b}}, cut(random, b)} {
		got := run(t, followed, calls)
		// What is within a last frame that is not whole, the model does not look at.
		if len(got) == len(want)+1 && got[len(want)].event == lostEvent {
			got = got[:len(want)]
		}
		if !slices.Equal(got, want) {
			for j := range max(len(got), len(want)) {
				if j >= len(got) || j >= len(want) || got[j] != want[j] {
					t.Errorf("differs from %d on", j)
					break
				}
			}
			t.Fatalf("(pieces: %v) %q\nkernel: %+v\nmodel:  %+v", i == 1, b, got, want)
		}
		for _, f := range got {
			if len(f.name) > 96 || f.name != strings.Trim(f.name, "\x00") || !printable(strings.ReplaceAll(f.name, " ", "")) {
				t.Fatalf("%q is named %q", b, f.name)
			}
		}
	}
	return want
}

// talk is one direction of a connection, written by another implementation.
type talk struct {
	bytes.Buffer
	framer  *http2.Framer
	encoder *hpack.Encoder
	block   bytes.Buffer
}

func newTalk() *talk {
	c := &talk{}
	c.framer, c.encoder = http2.NewFramer(&c.Buffer, nil), hpack.NewEncoder(&c.block)
	c.framer.AllowIllegalWrites = true
	return c
}

func (c *talk) headers(random *rand.Rand, stream uint32, end bool, fields ...string) {
	c.block.Reset()
	for i := 0; i < len(fields); i += 2 {
		c.encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1], Sensitive: random.IntN(8) == 0})
	}
	b := c.block.Bytes()
	n := len(b)
	if random.IntN(4) == 0 {
		n = random.IntN(len(b) + 1)
	}
	p := http2.HeadersFrameParam{StreamID: stream, EndStream: end, EndHeaders: n == len(b), BlockFragment: b[:n]}
	if random.IntN(4) == 0 {
		p.PadLength = uint8(random.IntN(256))
	}
	if random.IntN(4) == 0 {
		p.Priority = http2.PriorityParam{StreamDep: 3, Weight: 7}
	}
	c.framer.WriteHeaders(p)
	for b = b[n:]; len(b) > 0; b = b[n:] {
		n = 1 + random.IntN(len(b))
		c.framer.WriteContinuation(stream, n == len(b), b[:n])
	}
}

func text(random *rand.Rand, n int) string {
	const alphabet = "abcdefghij/-_.:~ABC0123456789"
	b := make([]byte, n)
	for i := range b {
		b[i] = alphabet[random.IntN(len(alphabet))]
	}
	return string(b)
}

// Requests as clients make them, of which it is known what must be found.
func TestHTTP2Requests(t *testing.T) {
	run, _ := kernelHTTP2(t)
	random := rand.New(rand.NewPCG(3, 4))
	paths := []string{"/shop.Cart/Add", "/shop.Cart/Get", "/hipstershop.ProductCatalogService/GetProduct"}
	for range 20 {
		paths = append(paths, "/"+text(random, 4+random.IntN(60)))
	}
	for round := range 60 {
		c := newTalk()
		if round%3 == 1 {
			c.encoder.SetMaxDynamicTableSizeLimit(256)
		}
		var want []finding
		for i := range 100 {
			stream := uint32(2*i + 1)
			p, kind := paths[random.IntN(len(paths))], "application/grpc"+[]string{"", "", "", "+proto", ";x=y", "-web",
				"-web+proto", "-web-text"}[random.IntN(8)]
			grpc := !strings.Contains(kind, "-web")
			if !grpc {
				p = paths[random.IntN(2)] // the others are long, or may have ids
			}
			c.headers(random, stream, false, ":method", "POST", ":scheme", "http", ":path", p, ":authority", "here:80",
				"content-type", kind, "user-agent", "grpc-go/1.83.1", "te", "trailers", "grpc-timeout", text(random, 5),
				"authorization", text(random, random.IntN(900)))
			want = append(want, finding{event: blockEvent, stream: stream, grpc: grpc, name: "POST " + p})
			switch random.IntN(5) {
			case 0:
				c.framer.WriteWindowUpdate(0, 100)
			case 1:
				c.framer.WriteRSTStream(stream, http2.ErrCodeCancel)
				want = append(want, finding{event: resetEvent, stream: stream})
				continue
			case 2:
				c.framer.WriteDataPadded(stream, false, bytes.Repeat([]byte{0}, random.IntN(3000)), make([]byte, random.IntN(200)))
			}
			c.framer.WriteData(stream, true, make([]byte, random.IntN(20)))
			want = append(want, finding{event: endEvent, stream: stream})
		}
		if got := compare(t, run, random, c.Bytes()); !slices.Equal(got, want) {
			t.Fatalf("model: %+v\nwant:  %+v", got, want)
		}
	}
}

func TestHTTP2Replies(t *testing.T) {
	run, _ := kernelHTTP2(t)
	random := rand.New(rand.NewPCG(5, 6))
	for range 60 {
		c := newTalk()
		var want []finding
		for i := range 60 {
			stream := uint32(2*i + 1)
			status := []string{"200", "201", "204", "302", "404", "418", "500", "503"}[random.IntN(8)]
			if random.IntN(9) == 0 {
				c.headers(random, stream, false, ":status", "103")
				want = append(want, finding{event: blockEvent, stream: stream, status: 1, name: "unknown"})
			}
			c.headers(random, stream, false, ":status", status, "content-type", "application/grpc", "date", text(random, 20))
			want = append(want, finding{event: blockEvent, stream: stream, status: int(status[0] - '0'), grpc: true,
				name: "unknown"})
			c.framer.WriteData(stream, false, make([]byte, random.IntN(20000)))
			code := random.IntN(17)
			c.headers(random, stream, true, "grpc-status", []string{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9",
				"10", "11", "12", "13", "14", "15", "16"}[code], "grpc-message", text(random, random.IntN(300)))
			want = append(want, finding{event: blockEvent, stream: stream, ends: true, grpcStatus: code + 1, name: "unknown"})
		}
		if got := compare(t, run, random, c.Bytes()); !slices.Equal(got, want) {
			t.Fatalf("model: %+v\nwant:  %+v", got, want)
		}
	}
}

// captures are what clients and servers sent, each in one direction.
func captures(t testing.TB) map[string][]byte {
	t.Helper()
	paths, err := filepath.Glob("testdata/*.http2")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no fixtures: %v", err)
	}
	all := map[string][]byte{}
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all[strings.TrimSuffix(filepath.Base(path), ".http2")] = b
	}
	return all
}

// What real clients and servers sent is found, in any pieces.
func TestHTTP2Captures(t *testing.T) {
	run, _ := kernelHTTP2(t)
	random := rand.New(rand.NewPCG(9, 10))
	for name, b := range captures(t) {
		state := uint8(followed)
		if strings.HasSuffix(name, "-client") {
			state = greets
		}
		want := map[string][]string{
			"grpc-go-client": append(slices.Repeat([]string{"POST /grpc.health.v1.Health/Check"}, 6),
				"POST /grpc.health.v1.Health/Watch", "reset"),
			"grpc-go-server": {"ok", "ok", "not found", "ok", "ok", "ok"},
			"curl-client":    {"GET /users/{}/orders"},
			"nginx-server":   {"2xx"},
		}[name]
		for range 50 {
			var got []string
			for _, f := range run(t, state, cut(random, b)) {
				switch {
				case f.event == resetEvent:
					got = append(got, "reset")
				case f.event == lostEvent:
					got = append(got, "lost")
				case f.event == blockEvent && state == greets:
					got = append(got, f.name)
				case f.event == blockEvent && f.grpcStatus != 0:
					got = append(got, map[int]string{1: "ok", 6: "not found"}[f.grpcStatus])
				case f.event == blockEvent && name == "nginx-server" && f.status == 2:
					got = append(got, "2xx")
				}
			}
			if !slices.Equal(got, want) {
				t.Fatalf("%s: %q, want %q", name, got, want)
			}
		}
	}
}

// Bytes that are frames may be where a connection is joined, and others may not.
func TestHTTP2Joining(t *testing.T) {
	_, objects := kernelHTTP2(t)
	c := newTalk()
	c.headers(rand.New(rand.NewPCG(1, 1)), 7, true, ":method", "GET", ":path", "/")
	request := c.String()
	const settings, ping, data = "\x00\x00\x00\x04\x01\x00\x00\x00\x00", "\x00\x00\x08\x06\x00\x00\x00\x00\x0012345678",
		"\x00\x00\x02\x00\x01\x00\x00\x00\x07hi"
	for _, f := range []struct {
		bytes string
		want  uint32
	}{
		{settings + ping, 1}, {data, 1}, {"\x00\x00\x01\x01\x05\x00\x00\x00\x07\x82" + data, 2},
		{ping[:16], 0}, {data + "x", 0}, {"\x00\x00\x01\x01\x05\x00\x00\x00\x06\x82", 0},
		{"\x00\x00\x01\x06\x00\x00\x00\x00\x001", 0},
		{request[:9], 0}, {"GET / HTTP/1.1\r\n\r\n", 0}, {"\x05\x00\x00\x00\x03SELECT 1", 0},
		{"\x00\x00\x00\x10\x00\x03\x00\x00user\x00me\x00\x00", 0}, {strings.Repeat(settings, 40), 0},
	} {
		b := []byte(f.bytes)
		if err := objects.Source.Set(http2testHttp2Source{At: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))),
			Left: uint32(len(b))}); err != nil {
			t.Fatal(err)
		}
		if _, err := objects.Join.Run(&ebpf.RunOptions{}); err != nil {
			t.Fatal(err)
		}
		keptBytes = b
		var got uint32
		if err := objects.Chain.Get(&got); err != nil || got != f.want {
			t.Errorf("%q: %d, %v, want %d", f.bytes, got, err, f.want)
		}
	}
}

var keptBytes []byte

// hostileHTTP2 are what nobody well-behaved sends.
var hostileHTTP2 = []string{
	"\x00\x00\x05\x01\x04\x00\x00\x00\x01\xff\xff\xff\xff\xff", // a number without end
	"\x00\x00\x06\x01\x04\x00\x00\x00\x01\xff\xff\xff\xff\xff\x0f", "\x00\x00\x01\x01\x04\x00\x00\x00\x01\x80",
	// strings longer than the block
	"\x00\x00\x03\x01\x04\x00\x00\x00\x01\x44\x83/a", "\x00\x00\x04\x01\x04\x00\x00\x00\x01\x44\x7f\xff\x7f",
	"\xff\xff\xff\x01\x04\x00\x00\x00\x01\x82", "\x00\x00\x00\x01\x04\x00\x00\x00\x00",
	"\x00\x00\x01\x01\x0c\x00\x00\x00\x01\xff", "\x00\x00\x02\x01\x2c\x00\x00\x00\x01\x00\x00",
	// continuations of nothing, and none
	"\x00\x00\x01\x09\x04\x00\x00\x00\x01\x82",
	"\x00\x00\x01\x01\x00\x00\x00\x00\x01\x82\x00\x00\x01\x00\x00\x00\x00\x00\x01a",
	"\x00\x00\x01\x01\x00\x00\x00\x00\x01\x82" + strings.Repeat("\x00\x00\x00\x09\x00\x00\x00\x00\x01", 1000),
	strings.Repeat("\x00\x00\x00\x01\x04\x00\x00\x00\x01", 900),
	"\x00\x00\x05\x01\x05\x00\x00\x00\x01\x82\xfe\x84\xbe\xc0", strings.Repeat("\x00\x00\x00\x00\x01\x00\x00\x00\x01",
		900),
	"\x00\x00\x09\x01\x04\x00\x00\x00\x01\x82\x44\x06/\x00\x1b[0m",
	"\x00\x00\x06\x01\x04\x00\x00\x00\x01\x82\x44\x83\xff\xff\xff",
	"\x00\x00\x06\x01\x04\x00\x00\x00\x01\x82\x44\x83\x61\xff\xe7",
	"\x00\x00\x04\x05\x04\x00\x00\x00\x01\x00\x00\x00\x02", "\x00\x00\x01\x05\x04\x00\x00\x00\x01\x00",
	strings.Repeat("\x3f\xe1\x1f", 50),
	"\x00\x00\xc9\x01\x04\x00\x00\x00\x01\x44\x7f\x46/" + strings.Repeat("a/12", 49) + "b",
	// a path that claims to be longer than its block
	"\x00\x00\xc9\x01\x04\x00\x00\x00\x01\x44\x7f\x70/" + strings.Repeat("a/12", 49) + "b",
	"\x00\x00\x63\x01\x04\x00\x00\x00\x01\x04\x61/" + strings.Repeat("1/", 48),
}

func TestHTTP2FollowsTheModel(t *testing.T) {
	run, _ := kernelHTTP2(t)
	random := rand.New(rand.NewPCG(7, 8))
	var seeds [][]byte
	for _, b := range captures(t) {
		seeds = append(seeds, bytes.TrimPrefix(b, []byte(http2.ClientPreface)))
	}
	for _, s := range hostileHTTP2 {
		seeds = append(seeds, []byte(s))
	}
	for _, b := range seeds {
		for range 60 {
			compare(t, run, random, b)
			changed := bytes.Clone(b)
			for range 1 + random.IntN(3) {
				changed[random.IntN(min(200, len(changed)))] = byte(random.Uint32())
			}
			compare(t, run, random, changed)
		}
	}
	for range 3000 { // paths out of what matters in them, as they are and in the code
		const alphabet = "////aaabcvvxyz0123456789-_.~?#'\\ \x00\x7f\xc3H"
		p := []byte("/")
		for range random.IntN(140) {
			p = append(p, alphabet[random.IntN(len(alphabet)-9*random.IntN(2))])
		}
		coded := []byte{0x44, 0}
		if b := hpack.AppendHuffmanString(nil, string(p)); random.IntN(2) == 0 && len(b) < 127 {
			coded = append(coded, b...)
			coded[1] = byte(len(b)) | 0x80
		} else {
			coded = append(coded, p[:min(len(p), 126)]...)
			coded[1] = byte(len(coded) - 2)
		}
		block := append([]byte{0x82}, coded...)
		request := append([]byte{0, 0, byte(len(block)), 1, 4, 0, 0, 0, 1}, block...)
		// and once more, out of the table
		compare(t, run, random, append(request, "\x00\x00\x02\x01\x04\x00\x00\x00\x03\x82\xbe"...))
	}
}

func FuzzHTTP2(f *testing.F) {
	run, _ := kernelHTTP2(f)
	for _, b := range captures(f) {
		f.Add(bytes.TrimPrefix(b, []byte(http2.ClientPreface)), uint64(1))
	}
	for i, s := range hostileHTTP2 {
		f.Add([]byte(s), uint64(i))
	}
	f.Fuzz(func(t *testing.T, b []byte, seed uint64) {
		if len(b) == 0 || len(b) > 8000 {
			return
		}
		compare(t, run, rand.New(rand.NewPCG(seed, seed)), b)
	})
}
