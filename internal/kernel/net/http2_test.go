package net

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"outsight/internal/kernel/kerneltest"
	"outsight/internal/model"
)

// echoes is a gRPC service: Sleep sleeps for so many milliseconds, Fail fails with that status, Count
// sends so many messages, and Talk sends back what it gets.
var echoes = grpc.ServiceDesc{
	ServiceName: "test.Echoes", HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{
		{MethodName: "Sleep", Handler: func(_ any, ctx context.Context, decode func(any) error,
			_ grpc.UnaryServerInterceptor) (any, error) {
			in := new(wrapperspb.Int32Value)
			if err := decode(in); err != nil {
				return nil, err
			}
			select {
			case <-time.After(time.Duration(in.Value) * time.Millisecond):
			case <-ctx.Done():
				time.Sleep(500 * time.Millisecond) // the deadline is the client's too, who is to be the first to give up
			}
			return in, nil
		}},
		{MethodName: "Fail", Handler: func(_ any, _ context.Context, decode func(any) error,
			_ grpc.UnaryServerInterceptor) (any, error) {
			in := new(wrapperspb.Int32Value)
			if err := decode(in); err != nil {
				return nil, err
			}
			return nil, status.Error(codes.Code(in.Value), "as asked")
		}},
	},
	Streams: []grpc.StreamDesc{
		{StreamName: "Count", ServerStreams: true, Handler: func(_ any, s grpc.ServerStream) error {
			in := new(wrapperspb.Int32Value)
			if err := s.RecvMsg(in); err != nil {
				return err
			}
			for i := range in.Value {
				if err := s.SendMsg(wrapperspb.Int32(i)); err != nil {
					return err
				}
			}
			return nil
		}},
		{StreamName: "Talk", ServerStreams: true, ClientStreams: true, Handler: func(_ any, s grpc.ServerStream) error {
			for {
				in := new(wrapperspb.Int32Value)
				if err := s.RecvMsg(in); err != nil {
					if err == io.EOF {
						return nil
					}
					return err
				}
				if err := s.SendMsg(in); err != nil {
					return err
				}
			}
		}},
	},
}

// serveEchoes serves until the test ends.
func serveEchoes(t testing.TB) net.Addr {
	t.Helper()
	l := kerneltest.Listen(t, "127.0.0.1")
	server := grpc.NewServer()
	server.RegisterService(&echoes, nil)
	var done sync.WaitGroup
	done.Go(func() { server.Serve(l) })
	t.Cleanup(func() { server.Stop(); done.Wait() })
	return l.Addr()
}

func callEchoes(t testing.TB, at net.Addr) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+at.String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func call(ctx context.Context, conn *grpc.ClientConn, method string, n int) error {
	return conn.Invoke(ctx, "/test.Echoes/"+method, wrapperspb.Int32(int32(n)), new(wrapperspb.Int32Value))
}

func portOf(a net.Addr) uint16 { return a.(*net.TCPAddr).AddrPort().Port() }

// http2Drops are what could not be followed.
func http2Drops(p *Net) (n uint64) {
	for _, d := range p.Drops() {
		if d.Name == "http2_streams" || d.Name == "http2_connections" {
			n += d.Count
		}
	}
	return n
}

// settledStreams are the counters of an end when each of so many streams has ended, or when nothing changes any more.
func settledStreams(t *testing.T, p *Net, at net.Addr, role model.Role, requests uint64) model.EdgeCounters {
	t.Helper()
	return kerneltest.ReadUntil(func() model.EdgeCounters { return counters(t, p, at, role) },
		func(c model.EdgeCounters) bool {
			return c.Requests > requests || c.Requests == requests && c.Transactions()+c.Aborts >= requests
		})
}

// expectStreams waits until both ends have counted so many streams, all of them finished but aborts.
func expectStreams(t *testing.T, p *Net, at net.Addr, requests, aborts uint64) {
	t.Helper()
	for _, role := range []model.Role{model.RoleClient, model.RoleServer} {
		c := settledStreams(t, p, at, role, requests)
		if c.Requests != requests || c.Aborts != aborts || c.Transactions() != requests-aborts ||
			c.Replies != requests-aborts || c.Lost != 0 || c.InFlight() != 0 {
			t.Errorf("%v: %d requests, %d replies, %d transactions, %d aborts, %d lost, %d in flight; want %d requests, %d aborts",
				role, c.Requests, c.Replies, c.Transactions(), c.Aborts, c.Lost, c.InFlight(), requests, aborts)
		}
		if c.TimeToFirstByte == nil || c.TimeToFirstByte.Count != c.Replies {
			t.Errorf("%v: %v times to the first byte of %d replies", role, c.TimeToFirstByte, c.Replies)
		}
	}
	if n := http2Drops(p); n != 0 {
		t.Errorf("%d drops", n)
	}
}

func TestGRPCCalls(t *testing.T) {
	p := openShared(t)
	at := serveEchoes(t)
	conn := callEchoes(t, at)
	for _, c := range []struct {
		method string
		n      int
		times  int
	}{{"Sleep", 0, 30}, {"Fail", 5, 4}, {"Fail", 14, 3}, {"Nothing", 1, 2}} {
		for range c.times {
			call(t.Context(), conn, c.method, c.n)
		}
	}
	expect(t, p, portOf(at), map[string]uint64{"POST /test.Echoes/Sleep ok": 30, "POST /test.Echoes/Fail not_found": 4,
		"POST /test.Echoes/Fail unavailable": 3, "POST /test.Echoes/Nothing unimplemented": 2})
	expectStreams(t, p, at, 39, 0)
}

// Many calls at a time share connections: each is counted once, with its own time.
func TestGRPCMultiplexed(t *testing.T) {
	const connections, callers, each = 3, 32, 60
	p := openShared(t)
	at := serveEchoes(t)
	var done sync.WaitGroup
	for range connections {
		conn := callEchoes(t, at)
		for range callers {
			done.Go(func() {
				for range each {
					if err := call(t.Context(), conn, "Sleep", 0); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
	}
	done.Wait()
	expect(t, p, portOf(at), map[string]uint64{"POST /test.Echoes/Sleep ok": connections * callers * each})
	expectStreams(t, p, at, connections*callers*each, 0)
	for _, role := range []model.Role{model.RoleClient, model.RoleServer} {
		if c := edge(t, p, at, role).Counters; c.Latency.ZeroCount > c.Latency.Count/1000 {
			t.Errorf("%v: %d of %d calls took no time", role, c.Latency.ZeroCount, c.Latency.Count)
		}
	}
}

// A slow call among fast ones is the only slow one.
func TestGRPCSlowAmongFast(t *testing.T) {
	const slow, fast = 20, 50
	p := openShared(t)
	at := serveEchoes(t)
	conn := callEchoes(t, at)
	var done sync.WaitGroup
	done.Go(func() {
		for range slow {
			call(t.Context(), conn, "Sleep", 20)
		}
	})
	for range 10 {
		done.Go(func() {
			for range fast / 10 {
				call(t.Context(), conn, "Fail", 3)
				time.Sleep(5 * time.Millisecond)
			}
		})
	}
	done.Wait()
	expect(t, p, portOf(at), map[string]uint64{"POST /test.Echoes/Sleep ok": slow,
		"POST /test.Echoes/Fail invalid_argument": fast})
	for _, role := range []model.Role{model.RoleClient, model.RoleServer} {
		for _, e := range edge(t, p, at, role).Endpoints {
			median := time.Duration(e.Latency.Quantile(0.5) * float64(time.Second))
			if isSlow := e.Status == "ok"; isSlow != (median > 19*time.Millisecond) || median > 60*time.Millisecond {
				t.Errorf("%v: %s %s took %v", role, e.Name, e.Status, median)
			}
		}
	}
}

// Both ends of a connection find out that it is HTTP/2 when they send and when they receive, which may be at once.
func TestHTTP2BegunByBothDirections(t *testing.T) {
	const connections = 3000
	p := openShared(t)
	at := serveEchoes(t)
	for range connections {
		conn := callEchoes(t, at)
		if err := call(t.Context(), conn, "Sleep", 0); err != nil {
			t.Fatal(err)
		}
		conn.Close()
	}
	expectStreams(t, p, at, connections, 0)
}

// Streams of messages are one transaction each, and are not slow because they are long.
func TestGRPCStreams(t *testing.T) {
	p := openShared(t)
	at := serveEchoes(t)
	conn := callEchoes(t, at)
	count, err := conn.NewStream(t.Context(), &echoes.Streams[0], "/test.Echoes/Count")
	if err != nil {
		t.Fatal(err)
	}
	count.SendMsg(wrapperspb.Int32(500))
	count.CloseSend()
	for n := 0; ; n++ {
		if err := count.RecvMsg(new(wrapperspb.Int32Value)); err != nil {
			if err != io.EOF || n != 500 {
				t.Fatalf("%d messages, then %v", n, err)
			}
			break
		}
	}
	talk, err := conn.NewStream(t.Context(), &echoes.Streams[1], "/test.Echoes/Talk")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		if err := talk.SendMsg(wrapperspb.Int32(int32(i))); err != nil {
			t.Fatal(err)
		}
		if err := talk.RecvMsg(new(wrapperspb.Int32Value)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(300 * time.Millisecond)
	}
	talk.CloseSend()
	if err := talk.RecvMsg(new(wrapperspb.Int32Value)); err != io.EOF {
		t.Fatal(err)
	}
	expect(t, p, portOf(at), map[string]uint64{"POST /test.Echoes/Count ok": 1, "POST /test.Echoes/Talk ok": 1})
	expectStreams(t, p, at, 2, 0)
	for _, role := range []model.Role{model.RoleClient, model.RoleServer} {
		if c := edge(t, p, at, role).Counters; c.Transfers != 1 || c.Latency.Count != 1 || c.Pushes != 0 {
			t.Errorf("%v: %d transfers, %d in the latency, %d pushes", role, c.Transfers, c.Latency.Count, c.Pushes)
		}
	}
}

// Calls that the client gives up, and calls whose connection ends.
func TestGRPCAborts(t *testing.T) {
	p := openShared(t)
	at := serveEchoes(t)
	conn := callEchoes(t, at)
	for range 7 {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		if err := call(ctx, conn, "Sleep", 5000); status.Code(err) != codes.DeadlineExceeded {
			t.Fatal(err)
		}
		cancel()
	}
	if err := call(t.Context(), conn, "Sleep", 0); err != nil {
		t.Fatal(err)
	}
	expectStreams(t, p, at, 8, 7)
	var done sync.WaitGroup
	for range 5 {
		done.Go(func() { call(t.Context(), conn, "Sleep", 3000) })
	}
	counts(t, p, at, model.RoleServer, "all wait", func(c model.EdgeCounters) bool { return c.InFlight() == 5 })
	conn.Close()
	done.Wait()
	expectStreams(t, p, at, 13, 12)
}

// A connection that was there before is followed from some call on, and says what it does not know.
func TestGRPCJoined(t *testing.T) {
	at := serveEchoes(t)
	conn := callEchoes(t, at)
	for range 10 {
		if err := call(t.Context(), conn, "Sleep", 0); err != nil {
			t.Fatal(err)
		}
	}
	p := open(t, Options{})
	for range 50 {
		call(t.Context(), conn, "Sleep", 0)
	}
	for range 20 { // told anew, it has a name; its status is told with a name from before
		call(t.Context(), conn, "Fail", 5)
	}
	for _, role := range []model.Role{model.RoleClient, model.RoleServer} {
		named := kerneltest.ReadUntil(func() map[string]uint64 { return asked(t, p, portOf(at), role) },
			func(named map[string]uint64) bool {
				return named["POST /test.Echoes/Fail"] >= 20
			})
		if n := named["unknown"]; n < 45 || n > 50 || named["POST /test.Echoes/Fail"] != 20 || len(named) != 2 {
			t.Errorf("%v: %v", role, named)
		}
		if c := edge(t, p, at, role).Counters; c.InFlight() != 0 || c.Lost > 1 {
			t.Errorf("%v: %d in flight, %d lost", role, c.InFlight(), c.Lost)
		}
	}
}

// Requests of HTTP/2 are found behind a long upload, which looks like one request without an end.
func TestHTTP2JoinedDuringAnUpload(t *testing.T) {
	const parts, unanswered, followed = 500, 100, 50
	service := kerneltest.Serve(t, func(conn *net.TCPConn) {
		defer conn.Close()
		io.CopyN(io.Discard, conn, int64(len(http2.ClientPreface)))
		frames, heads := http2.NewFramer(conn, conn), 0
		for {
			frame, err := frames.ReadFrame()
			if err != nil {
				return
			}
			if _, ok := frame.(*http2.HeadersFrame); !ok {
				continue
			}
			if heads++; heads == 1+unanswered {
				frames.WriteSettings()
			}
		}
	})
	conn, err := net.Dial("tcp", service.String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, http2.ClientPreface)
	client := http2.NewFramer(conn, conn)
	client.WriteSettings()
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	stream := uint32(1)
	request := func(whole bool) {
		block.Reset()
		encoder.WriteField(hpack.HeaderField{Name: ":path", Value: "/upload"})
		if err := client.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, EndHeaders: true, EndStream: whole,
			BlockFragment: block.Bytes()}); err != nil {
			t.Fatal(err)
		}
		stream += 2
	}
	request(false)
	p := open(t, Options{})
	for range parts {
		if err := client.WriteData(1, false, []byte("part")); err != nil {
			t.Fatal(err)
		}
	}
	for range unanswered {
		request(true)
	}
	if _, err := client.ReadFrame(); err != nil { // from here on both directions are followed
		t.Fatal(err)
	}
	for range followed {
		request(true)
	}
	c := kerneltest.ReadUntil(func() model.EdgeCounters { return counters(t, p, service, model.RoleClient) },
		func(c model.EdgeCounters) bool {
			return c.Requests >= 1+followed // the upload was taken for one
		})
	if c.Requests != 1+followed || c.Lost != 1 || c.Replies != 0 {
		t.Errorf("%d requests, %d lost, %d replies", c.Requests, c.Lost, c.Replies)
	}
}

// Plain HTTP/2, by other implementations at both ends. A file's bytes pass no buffer that could be read.
func TestHTTP2OfNginx(t *testing.T) {
	port, dir := freePort(t), t.TempDir()
	for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		os.Chmod(d, 0o755)
	}
	config := filepath.Join(dir, "nginx.conf")
	os.WriteFile(filepath.Join(dir, "page"), make([]byte, 300_000), 0o644)
	os.WriteFile(config, fmt.Appendf(nil, `
daemon off; worker_processes 1; pid %[1]s/pid; error_log stderr; user root;
events {}
http {
	access_log off; sendfile on; client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy; fastcgi_temp_path %[1]s/f; uwsgi_temp_path %[1]s/u; scgi_temp_path %[1]s/s;
	server {
		listen 127.0.0.1:%[2]d http2; root %[1]s;
		location /users { return 200 "hi"; }
		location /moved { return 302 /; }
	}
}`, dir, port), 0o644)
	daemon(t, port, "nginx", "-c", config, "-p", dir)
	p := openShared(t)
	url := "http://" + address(port)
	arguments := []string{"-s", "-o", "/dev/null", "--http2-prior-knowledge"}
	for i := range 40 {
		execute(t, "curl", append(arguments, fmt.Sprintf("%s/users/%d/orders?page=%d", url, i, i))...)
	}
	execute(t, "curl", append(arguments, url+"/page")...)
	execute(t, "curl", append(arguments, url+"/missing")...)
	execute(t, "curl", append(arguments, "-X", "DELETE", url+"/users/7")...)
	execute(t, "curl", append(arguments, url+"/moved")...)
	expect(t, p, port, map[string]uint64{"GET /users/{}/orders 2xx": 40, "GET /page 2xx": 1, "GET /missing 4xx": 1,
		"DELETE /users/{} 2xx": 1, "GET /moved 3xx": 1})
	if n := http2Drops(p); n != 0 {
		t.Errorf("%d drops", n)
	}
}

// What says that it is HTTP/2, and is not, is a stream of bytes.
func TestHTTP2Nonsense(t *testing.T) {
	p := openShared(t)
	for _, turns := range [][]turn{
		{{[]string{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"}, []string{"\x00\x00\x00"}},
			{[]string{"\x00\x00\x01\x01\x00\x00\x00\x00\x01\x82\x00\x00\x00\x00\x00\x00\x00\x00\x00"}, []string{"what?"}}},
		{{[]string{"PRI * HTTP/2.0\r\n\r\nWHAT?"}, []string{"what?"}}, {[]string{"GET / HTTP/1.1\r\n\r\n"}, []string{okay}}},
	} {
		before := http2Drops(p)
		port := say(t, turns...)
		if n := kerneltest.ReadUntil(func() uint64 { return http2Drops(p) - before }, func(n uint64) bool {
			return n >= 2
		}); n != 2 {
			t.Errorf("%d ends give up, want 2", n)
		}
		expect(t, p, port, map[string]uint64{})
	}
}

// A call may send or receive as many frames as fit into it.
func TestHTTP2Burst(t *testing.T) {
	const streams = 1500
	p := openShared(t)
	var requests, replies, block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	fields := func(fields ...string) []byte {
		block.Reset()
		for i := 0; i < len(fields); i += 2 {
			encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
		}
		return block.Bytes()
	}
	client, server := http2.NewFramer(&requests, nil), http2.NewFramer(&replies, nil)
	requests.WriteString(http2.ClientPreface)
	client.WriteSettings()
	for i := range uint32(streams) {
		client.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*i + 1, EndHeaders: true, EndStream: true,
			BlockFragment: fields(":method", "GET", ":scheme", "http", ":path", "/burst", ":authority", "here")})
	}
	encoder = hpack.NewEncoder(&block)
	server.WriteSettings()
	for i := range uint32(streams) {
		server.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*i + 1, EndHeaders: true,
			BlockFragment: fields(":status", "200", "server", "a")})
		server.WriteData(2*i+1, true, []byte("hello"))
	}
	port := say(t, turn{[]string{requests.String()}, []string{replies.String()}})
	expect(t, p, port, map[string]uint64{"GET /burst 2xx": streams})
	if n := http2Drops(p); n != 0 {
		t.Errorf("%d drops", n)
	}
}

// oneStream is a connection of HTTP/2 with one request, which has these fields besides, and its reply.
func oneStream(t *testing.T, path string, fields ...string) (request, reply string) {
	t.Helper()
	var requests, replies, block bytes.Buffer
	encode := func(fields ...string) []byte {
		block.Reset()
		encoder := hpack.NewEncoder(&block)
		for i := 0; i < len(fields); i += 2 {
			encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
		}
		return block.Bytes()
	}
	client, server := http2.NewFramer(&requests, nil), http2.NewFramer(&replies, nil)
	requests.WriteString(http2.ClientPreface)
	client.WriteSettings()
	client.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndHeaders: true, EndStream: true,
		BlockFragment: encode(append([]string{":method", "POST", ":scheme", "http", ":path", path, ":authority",
			"here"}, fields...)...)})
	server.WriteSettings()
	server.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndHeaders: true,
		BlockFragment: encode(append([]string{":status", "200"}, fields...)...)})
	server.WriteData(1, true, []byte("hello"))
	return requests.String(), replies.String()
}

// A socket that is connected again has nothing to do with its first connection, of whatever protocol.
func TestSocketConnectedAgain(t *testing.T) {
	p := openShared(t)
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	request, reply := oneStream(t, "/first")
	again, _ := oneStream(t, "/again")
	for _, c := range []struct{ say, hear, want string }{
		{request, reply, "POST /first 2xx"},
		{"GET /users/7 HTTP/1.1\r\n\r\n", okay, "GET /users/{} 2xx"},
		{again, reply, "POST /again 2xx"},
	} {
		service := kerneltest.Serve(t, func(conn *net.TCPConn) {
			defer conn.Close()
			buffer := make([]byte, 4096)
			if _, err := io.ReadFull(conn, buffer[:len(c.say)]); err != nil {
				return
			}
			io.WriteString(conn, c.hear)
			conn.Read(buffer)
		})
		to := &syscall.SockaddrInet4{Port: int(portOf(service)), Addr: [4]byte{127, 0, 0, 1}}
		if err := syscall.Connect(fd, to); err != nil {
			t.Fatal(err)
		}
		if _, err := syscall.Write(fd, []byte(c.say)); err != nil {
			t.Fatal(err)
		}
		for heard, buffer := 0, make([]byte, 4096); heard < len(c.hear); {
			n, err := syscall.Read(fd, buffer)
			if err != nil || n == 0 {
				t.Fatal(n, err)
			}
			heard += n
		}
		var unspecified syscall.RawSockaddrInet4 // disconnects
		if _, _, err := syscall.Syscall(syscall.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&unspecified)),
			unsafe.Sizeof(unspecified)); err != 0 {
			t.Fatal(err)
		}
		expect(t, p, portOf(service), map[string]uint64{c.want: 1})
	}
	if n := http2Drops(p); n != 0 {
		t.Errorf("%d drops", n)
	}
}

// The status of gRPC-web is in the data, where nobody looks: it is HTTP/2 as any other.
func TestGRPCWeb(t *testing.T) {
	p := openShared(t)
	for _, kind := range []string{"application/grpc-web", "application/grpc-web+proto", "application/grpc-web-text"} {
		request, reply := oneStream(t, "/shop.Cart/Add", "content-type", kind)
		port := say(t, turn{[]string{request}, []string{reply}})
		expect(t, p, port, map[string]uint64{"POST /shop.Cart/Add 2xx": 1})
		for _, role := range []model.Role{model.RoleClient, model.RoleServer} {
			at := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: int(port)}
			for _, e := range edge(t, p, at, role).Endpoints {
				if e.Protocol != model.HTTP2 {
					t.Errorf("%s at the %v: %v", kind, role, e.Protocol)
				}
			}
		}
	}
}
