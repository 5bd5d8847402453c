package tcp

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"outsight/internal/region"
)

var key = region.Key{ID: 7, Secret: []byte("0123456789abcdef")}

// regionOf is a region whose words are their own numbers.
func regionOf(words int) []byte {
	m := make([]uint64, words)
	for i := range m {
		m[i] = uint64(i)
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&m[0])), 8*words)
}

const bigWords = (MaxBytes + 4096) / 8

// serve runs a Server on loopback until the test ends.
func serve(t testing.TB, o Options) (*Server, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer(l, map[uint32][]byte{0: regionOf(512), 3: regionOf(bigWords)}, []region.Key{{ID: 1, Secret: make([]byte, 16)},
		key}, o)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := errors.Join(<-ended, s.Close()); err != nil {
			t.Error(err)
		}
	})
	return s, l.Addr().String()
}

func dial(t testing.TB, address string, k region.Key) *Client {
	t.Helper()
	c, err := Dial(context.Background(), address, k)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// refusals of a kind, by its name.
func refusals(t *testing.T, s *Server, name string) uint64 {
	t.Helper()
	for _, d := range s.Drops() {
		if d.Name == "region/tcp/"+name {
			return d.Count
		}
	}
	t.Fatalf("nothing counts %s", name)
	return 0
}

func TestManyReadsInOneMessage(t *testing.T) {
	s, address := serve(t, Options{})
	c := dial(t, address, key)
	reads := make([]region.Read, 2*MaxReads+1)
	for i := range reads {
		reads[i] = region.Read{Region: 0, Offset: uint64(8 * (i % 500)), Into: make([]byte, 8*(i%12))}
	}
	// More than one message can have, and it does not end where a read does.
	all := make([]byte, 8*bigWords)
	reads = append(reads, region.Read{Region: 3, Into: all})
	if err := c.ReadAll(context.Background(), reads); err != nil {
		t.Fatal(err)
	}
	whole := regionOf(bigWords)
	for i, r := range reads {
		if want := whole[r.Offset : r.Offset+uint64(len(r.Into))]; !bytes.Equal(r.Into, want) {
			t.Fatalf("read %d is wrong", i)
		}
	}
	if n := s.replies[statusOK].Load(); n != 4 {
		t.Errorf("%d messages, want 4", n)
	}
}

func TestRefusals(t *testing.T) {
	s, address := serve(t, Options{BytesPerSecond: 1})
	ctx := context.Background()
	c := dial(t, address, key)
	refused := func(name string, want error, err error) {
		t.Helper()
		if !errors.Is(err, want) || refusals(t, s, name) != 1 {
			t.Errorf("%s: got %v, want %v; %d counted, want 1", name, err, want, refusals(t, s, name))
		}
	}
	refused("region", region.ErrGone, c.Read(ctx, 2, 0, make([]byte, 8)))
	refused("bounds", region.ErrBounds, c.Read(ctx, 0, 4096, make([]byte, 8)))
	// Neither ends the connection.
	if err := c.Read(ctx, 0, 4088, make([]byte, 8)); err != nil {
		t.Error(err)
	}
	refused("rate", region.ErrRefused, c.Read(ctx, 3, 0, make([]byte, MaxBytes)))
	refused("key", region.ErrRefused, dial(t, address, region.Key{ID: 7, Secret: []byte("0123456789abcdeF")}).
		Read(ctx, 0, 0, make([]byte, 8)))
	if err := dial(t, address, region.Key{ID: 8, Secret: key.Secret}).Read(ctx, 0, 0, make([]byte, 8)); !errors.Is(err,
		region.ErrRefused) {
		t.Errorf("an unknown key: %v", err)
	}
}

func TestAllowedNetworks(t *testing.T) {
	s, address := serve(t, Options{Allow: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}})
	if _, err := Dial(context.Background(), address, key); !errors.Is(err, region.ErrRefused) {
		t.Errorf("got %v, want %v", err, region.ErrRefused)
	}
	if n := refusals(t, s, "address"); n != 1 {
		t.Errorf("%d counted, want 1", n)
	}
}

// raw opens a connection and answers the host's greeting.
func raw(t *testing.T, address string) (net.Conn, []byte) {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	hello := make([]byte, helloBytes)
	if _, err := io.ReadFull(c, hello); err != nil {
		t.Fatal(err)
	}
	return c, hello[16:]
}

// signed is a request with its MAC.
func signed(q request, challenge []byte) []byte {
	b := q.append(nil)
	return append(b, mac(key.Secret, "request", challenge, b)...)
}

// statusOf sends bytes and answers the status of the reply.
func statusOf(t *testing.T, c net.Conn, b []byte) status {
	t.Helper()
	if _, err := c.Write(b); err != nil {
		t.Fatal(err)
	}
	head := make([]byte, replyBytes)
	if _, err := io.ReadFull(c, head); err != nil {
		t.Fatal(err)
	}
	r, err := parseReply(head)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(io.Discard, c, int64(r.length)+macBytes); err != nil {
		t.Fatal(err)
	}
	return r.status
}

// TestReplays: a message is not answered twice, neither on its connection nor on another one.
func TestReplays(t *testing.T) {
	_, address := serve(t, Options{})
	c, challenge := raw(t, address)
	message := signed(request{key: key.ID, sequence: 1, reads: []wanted{{0, 8, 0}}}, challenge)
	if got := statusOf(t, c, message); got != statusOK {
		t.Fatalf("status %d", got)
	}
	if got := statusOf(t, c, message); got != statusKey {
		t.Errorf("again on the same connection: status %d, want %d", got, statusKey)
	}
	other, _ := raw(t, address)
	if got := statusOf(t, other, message); got != statusKey {
		t.Errorf("on another one: status %d, want %d", got, statusKey)
	}
}

func TestMalformed(t *testing.T) {
	s, address := serve(t, Options{})
	f := func(b []byte) {
		t.Helper()
		c, challenge := raw(t, address)
		b = append(b, mac(key.Secret, "request", challenge, b)...)
		if got := statusOf(t, c, b); got != statusMalformed {
			t.Errorf("status %d, want %d", got, statusMalformed)
		}
		if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil {
			t.Error("the connection goes on")
		}
	}
	q := request{key: key.ID, sequence: 1, reads: []wanted{{0, 8, 0}}}
	b := q.append(nil)
	b[0] = 'X'
	f(b[:requestBytes])
	b = q.append(nil)
	binary.LittleEndian.PutUint32(b[16:], MaxReads+1)
	f(b[:requestBytes])
	f((&request{key: key.ID, sequence: 1, reads: []wanted{{3, MaxBytes, 0}, {3, 8, 0}}}).append(nil))
	if n := refusals(t, s, "malformed"); n != 3 {
		t.Errorf("%d counted, want 3", n)
	}
}

// TestForgedReplies: a reader takes nothing from a host that has not its key.
func TestForgedReplies(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		hello := append(helloMagic[:], 1, 0, 0, 0, 0, 0, 0, 0)
		_, _ = c.Write(append(hello, make([]byte, challengeBytes)...))
		_, _ = io.CopyN(io.Discard, c, requestBytes+readBytes+macBytes)
		b := (&reply{sequence: 1, length: 8}).append(nil)
		_, _ = c.Write(append(b, make([]byte, 8+macBytes)...))
	}()
	if err := dial(t, l.Addr().String(), key).Read(context.Background(), 0, 0, make([]byte, 8)); !errors.Is(err,
		region.ErrRefused) {
		t.Errorf("got %v, want %v", err, region.ErrRefused)
	}
	<-ended
}

// connector answers an offer with itself, the other way round.
type connector struct {
	ended  chan struct{}
	closed chan struct{}
}

func (c *connector) Connect(offer []byte) ([]byte, Connection, error) {
	if offer[0] == 0 {
		return nil, nil, errors.New("no room")
	}
	answer := bytes.Clone(offer)
	slices.Reverse(answer)
	return answer, c, nil
}

func (c *connector) Ended() <-chan struct{} { return c.ended }

func (c *connector) Close() error {
	close(c.closed)
	return nil
}

func offerOf(first byte) []byte {
	b := make([]byte, OfferBytes)
	for i := range b {
		b[i] = first + byte(i)
	}
	return b
}

// TestConnect: another transport's connection is made for who has a key, once, and lasts as long as that of TCP.
func TestConnect(t *testing.T) {
	other := &connector{make(chan struct{}), make(chan struct{})}
	s, address := serve(t, Options{Connector: other})
	c := dial(t, address, key)
	if _, err := c.Connect(t.Context(), offerOf(0)); !errors.Is(err, region.ErrRefused) {
		t.Errorf("where there is no room: %v", err)
	}
	got, err := c.Connect(t.Context(), offerOf(1))
	want := offerOf(1)
	slices.Reverse(want)
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("got %x, %v, want %x", got, err, want)
	}
	if _, err := c.Connect(t.Context(), offerOf(1)); !errors.Is(err, region.ErrRefused) {
		t.Errorf("a second one: %v", err)
	}
	if err := c.Read(t.Context(), 0, 0, make([]byte, 8)); err != nil {
		t.Errorf("reading beside it: %v", err)
	}
	if err := c.Alive(); err != nil {
		t.Errorf("alive: %v", err)
	}
	if n := refusals(t, s, "transport"); n != 2 {
		t.Errorf("%d were refused, want 2", n)
	}
	c.Close()
	<-other.closed
}

// TestConnectionEnds: the reader is told by the end of its TCP connection.
func TestConnectionEnds(t *testing.T) {
	other := &connector{make(chan struct{}), make(chan struct{})}
	_, address := serve(t, Options{Connector: other})
	c := dial(t, address, key)
	if _, err := c.Connect(t.Context(), offerOf(1)); err != nil {
		t.Fatal(err)
	}
	close(other.ended)
	<-other.closed
	if err := c.Read(t.Context(), 0, 0, make([]byte, 8)); !errors.Is(err, region.ErrGone) {
		t.Errorf("reading: %v", err)
	}
	if err := c.Alive(); !errors.Is(err, region.ErrGone) {
		t.Errorf("alive: %v", err)
	}
}

// TestConnectRefused: without a key, without another transport, and with an offer of another length.
func TestConnectRefused(t *testing.T) {
	s, address := serve(t, Options{})
	if _, err := dial(t, address, key).Connect(t.Context(), offerOf(1)); !errors.Is(err, region.ErrRefused) {
		t.Errorf("without another transport: %v", err)
	}
	stranger := dial(t, address, region.Key{ID: 7, Secret: []byte("another 16 bytes")})
	if _, err := stranger.Connect(t.Context(), offerOf(1)); !errors.Is(err, region.ErrRefused) {
		t.Errorf("with a wrong key: %v", err)
	}
	for name, want := range map[string]uint64{"transport": 1, "key": 1} {
		if n := refusals(t, s, name); n != want {
			t.Errorf("%s: %d were refused, want %d", name, n, want)
		}
	}
	if _, err := parseRequest((&request{offer: make([]byte, OfferBytes+readBytes)}).append(nil), nil); err == nil {
		t.Error("an offer that is too long was taken")
	}
}

func TestDeadline(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // nobody accepts
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(50*time.Millisecond, cancel)
	if _, err := Dial(ctx, l.Addr().String(), key); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}

func FuzzParseRequest(f *testing.F) {
	f.Add((&request{key: 7, sequence: 1, reads: []wanted{{0, 8, 16}, {3, 64, 0}}}).append(nil))
	f.Add([]byte("OSRQ"))
	f.Add((&request{key: 7, sequence: 1, offer: make([]byte, OfferBytes)}).append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		q, err := parseRequest(b, nil)
		if err != nil {
			return
		}
		back := q.append(nil)
		copy(back[20:24], b[20:24]) // not used
		if !bytes.Equal(back, b) {
			t.Errorf("%x is read as %+v", b, q)
		}
	})
}

func FuzzParseReply(f *testing.F) {
	f.Add((&reply{status: statusBounds, sequence: 9, length: 1, read: 2}).append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := parseReply(b); err == nil && !bytes.Equal(r.append(nil), b[:replyBytes]) {
			t.Errorf("%x is read as %+v", b, r)
		}
	})
}

// BenchmarkReads are 64 reads of 1 KB in one message.
func BenchmarkReads(b *testing.B) {
	_, address := serve(b, Options{BytesPerSecond: 1 << 40})
	c := dial(b, address, key)
	reads := make([]region.Read, 64)
	for i := range reads {
		reads[i] = region.Read{Region: 3, Offset: uint64(1024 * i), Into: make([]byte, 1024)}
	}
	for b.Loop() {
		if err := c.ReadAll(context.Background(), reads); errors.Is(err, region.ErrRefused) {
			b.StopTimer()
			c = dial(b, address, key) // a new connection may send as many messages again
			b.StartTimer()
		} else if err != nil {
			b.Fatal(err)
		}
	}
}

// TestFiles: regions that come and go are read as the others, and one that is gone says so and ends nothing.
func TestFiles(t *testing.T) {
	var gone atomic.Bool
	_, address := serve(t, Options{Files: func(id uint32, use func([]byte)) bool {
		if id != region.FirstFileID || gone.Load() {
			return false
		}
		use(regionOf(64))
		return true
	}})
	c := dial(t, address, key)
	into, always := make([]byte, 16), make([]byte, 8)
	both := []region.Read{{Region: region.FirstFileID, Offset: 80, Into: into}, {Region: 0, Offset: 24, Into: always}}
	if err := c.ReadAll(t.Context(), both); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(into, regionOf(64)[80:96]) || !bytes.Equal(always, regionOf(64)[24:32]) {
		t.Errorf("%x, %x", into, always)
	}
	for _, one := range []struct {
		id     uint32
		offset uint64
		want   error
	}{{region.FirstFileID, 64 * 8, region.ErrBounds}, {region.FirstFileID + 1, 0, region.ErrGone}} {
		if err := c.Read(t.Context(), one.id, one.offset, into); !errors.Is(err, one.want) {
			t.Errorf("region %d at %d: %v, want %v", one.id, one.offset, err, one.want)
		}
	}
	gone.Store(true)
	if err := c.ReadAll(t.Context(), both); !errors.Is(err, region.ErrGone) || c.Alive() != nil {
		t.Errorf("a file that is gone: %v, %v", err, c.Alive())
	}
	if err := c.ReadAll(t.Context(), both[1:]); err != nil {
		t.Errorf("and then: %v", err)
	}
}
