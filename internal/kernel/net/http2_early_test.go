package net

import (
	"bytes"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"outsight/internal/kernel/kerneltest"
	"outsight/internal/model"
)

// http2Sender writes the frames of one direction of a connection.
type http2Sender struct {
	*http2.Framer
	out, block bytes.Buffer
	encoder    *hpack.Encoder
}

func newHTTP2Sender() *http2Sender {
	s := &http2Sender{}
	s.Framer = http2.NewFramer(&s.out, nil)
	s.encoder = hpack.NewEncoder(&s.block)
	return s
}

func (s *http2Sender) head(stream uint32, end bool, fields ...string) {
	s.block.Reset()
	for i := 0; i < len(fields); i += 2 {
		s.encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	s.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, EndHeaders: true, EndStream: end,
		BlockFragment: s.block.Bytes()})
}

func (s *http2Sender) request(stream uint32, end bool, path string) {
	s.head(stream, end, ":method", "POST", ":scheme", "http", ":path", path, ":authority", "here")
}

func (s *http2Sender) reply(stream uint32, status string) {
	s.head(stream, false, ":status", status)
	s.WriteData(stream, true, []byte("hello"))
}

func (s *http2Sender) greetAsClient() {
	s.out.WriteString(http2.ClientPreface)
	s.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30})
}

func (s *http2Sender) greetAsServer() {
	s.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 100})
}

// roomForAll is the buffer of a socket that is to read the rest of a body without waiting: where it is small, TCP sends
// again and again what found no room, which takes seconds.
const roomForAll = 1 << 20

// body is much more than two sockets with buffers of 16 KB hold.
func (s *http2Sender) body(stream uint32) {
	const frames, size = 32, 16 << 10
	for i := range frames {
		s.WriteData(stream, i == frames-1, make([]byte, size))
	}
}

// take hands out what was written since the last time.
func (s *http2Sender) take() string {
	defer s.out.Reset()
	return s.out.String()
}

func readFull(fd, size int, pieces ...int) bool {
	buffer := make([]byte, size)
	for size > 0 {
		n := size
		if len(pieces) > 0 {
			n, pieces = pieces[0], pieces[1:]
		}
		got, err := syscall.Read(fd, buffer[:n])
		if err != nil || got <= 0 {
			return false
		}
		size -= got
	}
	return true
}

// counted holds what an end has counted against what it should have.
func counted(t *testing.T, p *Net, at net.Addr, role model.Role, requests, aborts uint64) {
	t.Helper()
	c := settledStreams(t, p, at, role, requests)
	if c.Requests != requests || c.Replies != requests-aborts || c.Transactions() != requests-aborts ||
		c.Aborts != aborts ||
		c.Lost != 0 || c.InFlight() != 0 || c.Pushes != 0 {
		t.Errorf("%v: %d requests, %d replies, %d transactions, %d aborts, %d lost, %d in flight, %d pushes; want %d requests, %d aborts",
			role, c.Requests, c.Replies, c.Transactions(), c.Aborts, c.Lost, c.InFlight(), c.Pushes, requests, aborts)
	}
	if requests > aborts && (c.Latency == nil || c.Latency.ZeroCount != 0) {
		t.Errorf("%v: transactions took no time: %+v", role, c.Latency)
	}
}

// TestHTTP2EitherOrder: a call is seen when it returns, which is not the order in which it was
// transferred. Each stream is counted once all the same, with its name and status, at both ends.
func TestHTTP2EitherOrder(t *testing.T) {
	p := openShared(t)
	t.Run("replies before the requests are sent", func(t *testing.T) { repliesBeforeRequestsAreSent(t, p) })
	t.Run("requests before the replies are sent", func(t *testing.T) { requestsBeforeRepliesAreSent(t, p) })
	t.Run("replies before the requests are taken", func(t *testing.T) { repliesBeforeRequestsAreTaken(t, p) })
	if n := http2Drops(p); n != 0 {
		t.Errorf("%d drops", n)
	}
}

// A call that sends requests has not returned, and a reply is read on another thread.
func repliesBeforeRequestsAreSent(t *testing.T, p *Net) {
	for _, c := range []struct {
		name string
		// before is said and heard in order.
		before func(client, server *http2Sender)
		// late is one call, which is made to wait; its last stream has a long body.
		late func(client *http2Sender)
		// cut are calls before it, of so many bytes.
		cut []int
		// early is heard meanwhile, in pieces of so many bytes, and after when the call has returned.
		early  func(server *http2Sender)
		pieces []int
		after  func(server *http2Sender)
		// stays: a stream is open until the connection is closed.
		stays bool
		// breaks: the server does not read the rest, and resets the connection.
		breaks bool
		want   map[string]uint64
		aborts uint64
	}{
		{name: "first stream", before: func(client, server *http2Sender) {
			client.greetAsClient()
			server.greetAsServer()
		}, late: func(client *http2Sender) {
			client.request(1, false, "/first")
			client.body(1)
		}, early: func(server *http2Sender) {
			server.reply(1, "200")
		}, want: map[string]uint64{"POST /first 2xx": 1}},

		{name: "later stream", before: func(client, server *http2Sender) {
			client.greetAsClient()
			client.request(1, true, "/first")
			server.greetAsServer()
			server.reply(1, "200")
		}, late: func(client *http2Sender) {
			client.request(3, false, "/second")
			client.body(3)
		}, early: func(server *http2Sender) {
			server.reply(3, "404")
		}, want: map[string]uint64{"POST /first 2xx": 1, "POST /second 4xx": 1}},

		{name: "preface, settings and request in the call", late: func(client *http2Sender) {
			client.greetAsClient()
			client.request(1, false, "/first")
			client.body(1)
		}, early: func(server *http2Sender) {
			server.greetAsServer()
			server.reply(1, "200")
		}, want: map[string]uint64{"POST /first 2xx": 1}},

		{name: "settings in pieces", late: func(client *http2Sender) {
			client.greetAsClient()
			client.request(1, false, "/first")
			client.body(1)
		}, early: func(server *http2Sender) {
			server.greetAsServer()
			server.reply(1, "200")
		}, pieces: []int{9, 6, 9, 1, 4}, want: map[string]uint64{"POST /first 2xx": 1}},

		{name: "preface cut short", late: func(client *http2Sender) {
			client.greetAsClient()
			client.request(1, false, "/first")
			client.body(1)
		}, cut: []int{3}, early: func(server *http2Sender) {
			server.greetAsServer()
			server.reply(1, "200")
		}, want: map[string]uint64{"POST /first 2xx": 1}},

		{name: "preface cut twice", late: func(client *http2Sender) {
			client.greetAsClient()
			client.request(1, false, "/first")
			client.body(1)
		}, cut: []int{7, 10}, early: func(server *http2Sender) {
			server.greetAsServer()
			server.reply(1, "200")
		}, want: map[string]uint64{"POST /first 2xx": 1}},

		{name: "trailers only", before: func(client, server *http2Sender) {
			client.greetAsClient()
			server.greetAsServer()
		}, late: func(client *http2Sender) {
			client.head(1, false, ":method", "POST", ":scheme", "http", ":path", "/shop.Cart/Add", "content-type",
				"application/grpc")
			client.body(1)
		}, early: func(server *http2Sender) {
			server.head(1, true, ":status", "200", "content-type", "application/grpc", "grpc-status", "5")
		}, want: map[string]uint64{"POST /shop.Cart/Add not_found": 1}},

		{name: "reset", before: func(client, server *http2Sender) {
			client.greetAsClient()
			server.greetAsServer()
		}, late: func(client *http2Sender) {
			client.request(1, true, "/first")
			client.request(3, false, "/second")
			client.body(3)
		}, early: func(server *http2Sender) {
			server.WriteRSTStream(1, http2.ErrCodeRefusedStream)
		}, after: func(server *http2Sender) {
			server.reply(3, "200")
		}, want: map[string]uint64{"POST /second 2xx": 1}, aborts: 1},

		{name: "reply, and then a reset", before: func(client, server *http2Sender) {
			client.greetAsClient()
			server.greetAsServer()
		}, late: func(client *http2Sender) {
			client.request(1, false, "/first")
			client.body(1)
		}, early: func(server *http2Sender) {
			server.reply(1, "413")
			server.WriteRSTStream(1, http2.ErrCodeNo)
		}, want: map[string]uint64{"POST /first 4xx": 1}},

		{name: "several streams in any order", before: func(client, server *http2Sender) {
			client.greetAsClient()
			server.greetAsServer()
		}, late: func(client *http2Sender) {
			for stream := uint32(1); stream < 20; stream += 2 {
				client.request(stream, true, "/many")
			}
			client.request(21, false, "/long")
			client.body(21)
		}, early: func(server *http2Sender) {
			for _, stream := range []uint32{21, 7, 5, 9, 1} {
				server.reply(stream, "200")
			}
			server.head(3, false, ":status", "200")
		}, after: func(server *http2Sender) {
			server.WriteData(3, true, []byte("hello"))
			for _, stream := range []uint32{19, 11, 13, 17, 15} {
				server.reply(stream, "200")
			}
		}, want: map[string]uint64{"POST /many 2xx": 10, "POST /long 2xx": 1}},

		{name: "a word in between", before: func(client, server *http2Sender) {
			client.greetAsClient()
			server.greetAsServer()
		}, late: func(client *http2Sender) {
			client.request(1, false, "/first")
			client.body(1)
		}, early: func(server *http2Sender) {
			server.head(1, false, ":status", "100")
			server.head(1, false, ":status", "200")
		}, after: func(server *http2Sender) {
			server.WriteData(1, true, nil)
		}, want: map[string]uint64{"POST /first 2xx": 1}},

		{name: "the server goes away", before: func(client, server *http2Sender) {
			client.greetAsClient()
			client.request(1, true, "/first")
			server.greetAsServer()
			server.reply(1, "200")
		}, late: func(client *http2Sender) {
			client.request(3, true, "/second")
			client.request(5, false, "/third")
			client.body(5)
		}, early: func(server *http2Sender) {
			server.reply(3, "503")
			server.WriteGoAway(3, http2.ErrCodeNo, nil)
		}, want: map[string]uint64{"POST /first 2xx": 1, "POST /second 5xx": 1}, aborts: 1, stays: true},

		{name: "the server breaks off", before: func(client, server *http2Sender) {
			client.greetAsClient()
			server.greetAsServer()
		}, late: func(client *http2Sender) {
			client.request(1, true, "/first")
			client.request(3, false, "/second")
			client.body(3)
		}, early: func(server *http2Sender) {
			server.reply(1, "500")
			server.WriteGoAway(1, http2.ErrCodeInternal, nil)
		}, breaks: true, want: map[string]uint64{"POST /first 5xx": 1}, aborts: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			client, server := newHTTP2Sender(), newHTTP2Sender()
			if c.before != nil {
				c.before(client, server)
			}
			said, heard := client.take(), server.take()
			c.late(client)
			c.early(server)
			late, early, after := client.take(), server.take(), ""
			if c.after != nil {
				c.after(server)
				after = server.take()
			}
			const head = 1024 // of the call, and less than a socket holds
			read := make(chan struct{})
			service := kerneltest.Serve(t, func(conn *net.TCPConn) {
				defer conn.Close()
				conn.SetReadBuffer(1 << 14)
				if _, err := io.ReadFull(conn, make([]byte, len(said))); err != nil {
					return
				}
				io.WriteString(conn, heard)
				if _, err := io.ReadFull(conn, make([]byte, head)); err != nil {
					return
				}
				io.WriteString(conn, early)
				<-read
				if c.breaks {
					conn.SetLinger(0)
					return
				}
				conn.SetReadBuffer(roomForAll)
				if _, err := io.CopyN(io.Discard, conn, int64(len(late)-head)); err != nil {
					return
				}
				io.WriteString(conn, after)
				conn.Read(make([]byte, 1))
			})
			conn := kerneltest.Dial(t, service.String()).(*net.TCPConn)
			fd, release := waiting(t, conn)
			defer release()
			syscall.Write(fd, []byte(said))
			if !readFull(fd, len(heard)) {
				t.Fatal("the server has ended")
			}
			rest := late
			for _, n := range c.cut {
				syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1)
				syscall.Write(fd, []byte(rest[:n]))
				rest = rest[n:]
			}
			sent := make(chan int, 1)
			go func() {
				n, _ := uninterrupted(func() (int, error) { return syscall.Write(fd, []byte(rest)) })
				sent <- n
			}()
			if !readFull(fd, len(early), c.pieces...) {
				t.Fatal("the server has ended")
			}
			select {
			case n := <-sent:
				t.Fatalf("the call has sent its %d bytes, and did not wait", n)
			default:
			}
			close(read)
			if n := <-sent; n != len(rest) && (!c.breaks || n <= 0) {
				t.Fatalf("%d bytes of %d were sent", n, len(rest))
			}
			if !readFull(fd, len(after)) {
				t.Fatal("the server has ended")
			}
			requests := c.aborts
			for _, n := range c.want {
				requests += n
			}
			if !c.stays && !c.breaks { // also without the end of the connection
				counted(t, p, service, model.RoleClient, requests, c.aborts)
			}
			syscall.Shutdown(fd, syscall.SHUT_RDWR)
			counted(t, p, service, model.RoleClient, requests, c.aborts)
			if !c.breaks { // the server has not read what it was sent
				counted(t, p, service, model.RoleServer, requests, c.aborts)
				expect(t, p, portOf(service), c.want)
			} else if got := asked(t, p, portOf(service), model.RoleClient); len(got) != len(c.want) {
				t.Errorf("%v", got)
			}
		})
	}
}

// A call that sends replies has not returned, and requests are read on another thread.
func requestsBeforeRepliesAreSent(t *testing.T, p *Net) {
	for _, c := range []struct {
		name string
		// before is heard, and then late is sent in one call, which is made to wait while early is heard; then comes after.
		before, early func(client *http2Sender)
		late, after   func(server *http2Sender)
		want          map[string]uint64
		aborts        uint64
	}{
		{name: "reply", before: func(client *http2Sender) {
			client.greetAsClient()
			client.request(1, true, "/first")
		}, late: func(server *http2Sender) {
			server.greetAsServer()
			server.head(1, false, ":status", "200")
			server.body(1)
		}, early: func(client *http2Sender) {
			client.request(3, true, "/second")
			client.request(5, true, "/third")
			client.WriteRSTStream(5, http2.ErrCodeCancel)
		}, after: func(server *http2Sender) {
			server.reply(3, "404")
		}, want: map[string]uint64{"POST /first 2xx": 1, "POST /second 4xx": 1}, aborts: 1},

		{name: "greeting", late: func(server *http2Sender) {
			server.greetAsServer()
			for range 32 {
				server.WriteRawFrame(0xfe, 0, 0, make([]byte, 16<<10)) // of a kind that nobody knows
			}
		}, early: func(client *http2Sender) {
			client.greetAsClient()
			client.request(1, true, "/first")
		}, after: func(server *http2Sender) {
			server.reply(1, "200")
		}, want: map[string]uint64{"POST /first 2xx": 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			client, server := newHTTP2Sender(), newHTTP2Sender()
			if c.before != nil {
				c.before(client)
			}
			before := client.take()
			c.early(client)
			c.late(server)
			early, late := client.take(), server.take()
			c.after(server)
			after := server.take()
			read, waited := make(chan struct{}), make(chan bool, 1)
			service := kerneltest.Serve(t, func(conn *net.TCPConn) {
				defer conn.Close()
				fd, release := waiting(t, conn)
				defer release()
				if !readFull(fd, len(before)) {
					return
				}
				sent := make(chan struct{})
				go func() {
					uninterrupted(func() (int, error) { return syscall.Write(fd, []byte(late)) })
					close(sent)
				}()
				if !readFull(fd, len(early)) {
					return
				}
				select {
				case <-sent:
					waited <- false
				default:
					waited <- true
				}
				close(read)
				<-sent
				io.WriteString(conn, after)
				syscall.Read(fd, make([]byte, 1))
			})
			conn := kerneltest.Dial(t, service.String()).(*net.TCPConn)
			conn.SetReadBuffer(1 << 14)
			io.WriteString(conn, before)
			heard := make([]byte, len(late)+len(after))
			if _, err := io.ReadFull(conn, heard[:1000]); err != nil {
				t.Fatal(err)
			}
			io.WriteString(conn, early)
			if !<-waited {
				t.Fatal("the call did not wait")
			}
			<-read
			conn.SetReadBuffer(roomForAll)
			if _, err := io.ReadFull(conn, heard[1000:]); err != nil {
				t.Fatal(err)
			}
			conn.Close()
			requests := c.aborts
			for _, n := range c.want {
				requests += n
			}
			for _, role := range []model.Role{model.RoleClient, model.RoleServer} {
				counted(t, p, service, role, requests, c.aborts)
			}
			expect(t, p, portOf(service), c.want)
		})
	}
}

// A server that looks at requests without taking them answers before any call that receives them has returned.
func repliesBeforeRequestsAreTaken(t *testing.T, p *Net) {
	const streams = 5
	client, server := newHTTP2Sender(), newHTTP2Sender()
	client.greetAsClient()
	server.greetAsServer()
	var requests, replies []string
	for i := range uint32(streams) {
		client.request(2*i+1, true, "/peeked/"+strings.Repeat("x", int(i)))
		server.reply(2*i+1, "200")
		requests, replies = append(requests, client.take()), append(replies, server.take())
	}
	service := kerneltest.Serve(t, func(conn *net.TCPConn) {
		defer conn.Close()
		fd, release := waiting(t, conn)
		defer release()
		for i := range streams {
			buffer := make([]byte, len(requests[i]))
			if n, _, err := syscall.Recvfrom(fd, buffer, syscall.MSG_PEEK|syscall.MSG_WAITALL); err != nil || n != len(buffer) {
				return
			}
			io.WriteString(conn, replies[i])
			if !readFull(fd, len(buffer)) {
				return
			}
		}
		syscall.Read(fd, make([]byte, 1))
	})
	conn := kerneltest.Dial(t, service.String())
	for i := range streams {
		io.WriteString(conn, requests[i])
		if _, err := io.ReadFull(conn, make([]byte, len(replies[i]))); err != nil {
			t.Fatal(err)
		}
	}
	conn.Close()
	for _, role := range []model.Role{model.RoleClient, model.RoleServer} {
		c := settledStreams(t, p, service, role, streams)
		if c.Requests != streams || c.Replies != streams || c.Transactions() != streams || c.Aborts != 0 ||
			c.InFlight() != 0 || c.Pushes != 0 {
			t.Errorf("%v: %d requests, %d replies, %d transactions, %d aborts, %d in flight, %d pushes",
				role, c.Requests, c.Replies, c.Transactions(), c.Aborts, c.InFlight(), c.Pushes)
		}
	}
}

// A server of HTTP/2 greets whoever connects. Clients of other protocols are counted as such.
func TestHTTP2ServerOfOtherClients(t *testing.T) {
	p := openShared(t)
	server := newHTTP2Sender()
	server.greetAsServer()
	greeting := turn{nil, []string{server.take()}}
	const refusal = "HTTP/1.1 400 Bad Request\r\n\r\n"
	for _, c := range []struct {
		name string
		say  string
		want map[string]uint64
	}{
		{"HTTP/1", "GET /health HTTP/1.1\r\n\r\n", map[string]uint64{"GET /health 4xx": 1}},
		{"TLS", "\x16\x03\x01\x00\x05\x01aaaa", map[string]uint64{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			port := say(t, greeting, turn{[]string{c.say}, []string{refusal}})
			at := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: int(port)}
			for _, role := range []model.Role{model.RoleClient, model.RoleServer} {
				counts(t, p, at, role, "one transaction is counted", func(c model.EdgeCounters) bool {
					return c.Requests == 1 && c.Replies == 1 && c.Transactions() == 1 && c.Pushes == 0
				})
			}
			expect(t, p, port, c.want)
		})
	}
	if n := http2Drops(p); n != 0 {
		t.Errorf("%d drops", n)
	}
}
