package net

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"

	"outsight/internal/kernel/kerneltest"
	"outsight/internal/model"
)

// largeSizes of messages lie around the sizes of the programs' own buffers, and far beyond them.
var largeSizes = []int{100, 127, 128, 129, 191, 192, 193, 255, 256, 257, 511, 512, 513, 4095, 4096, 4097,
	65535, 65536, 65537, 1<<20 - 1, 1 << 20, 1<<20 + 1, 4 << 20, 8 << 20}

// filled is a message of that size, or just its beginning where that is longer.
func filled(head string, size int) []byte {
	return append([]byte(head), bytes.Repeat([]byte("x"), max(0, size-len(head)))...)
}

// sendIn sends a message with one call: of one buffer, or of two, the first of which is so long.
func sendIn(fd int, message []byte, first int) error {
	n, err := 0, error(nil)
	if first == 0 || first >= len(message) {
		n, err = uninterrupted(func() (int, error) { return syscall.Write(fd, message) })
	} else {
		n, err = uninterrupted(func() (int, error) { return unix.Writev(fd, [][]byte{message[:first], message[first:]}) })
	}
	if err == nil && n != len(message) {
		err = fmt.Errorf("%d bytes of %d were sent", n, len(message))
	}
	return err
}

// receiveIn receives a message with calls of so many bytes, and the rest of it into two buffers at a time.
func receiveIn(fd, size int, pieces ...int) error {
	buffer := make([]byte, size)
	for len(buffer) > 0 {
		n, err := 0, error(nil)
		if len(pieces) > 0 && pieces[0] < len(buffer) {
			n, err = syscall.Read(fd, buffer[:pieces[0]])
			pieces = pieces[1:]
		} else {
			n, err = unix.Readv(fd, [][]byte{buffer[:min(16, len(buffer))], buffer[min(16, len(buffer)):]})
		}
		if err == nil && n <= 0 {
			err = fmt.Errorf("the connection ended %d bytes before the message did", len(buffer))
		}
		if err != nil {
			return err
		}
		buffer = buffer[n:]
	}
	return nil
}

// TestLargeTransfers: however long messages are, and in however many parts a call hands them over, the programs look at
// their beginnings alone, and both ends count each.
func TestLargeTransfers(t *testing.T) {
	p := openShared(t)
	for _, c := range []struct {
		name           string
		most           int // bytes of a message, if there is a limit
		request, reply func(size int) []byte
		want           string
	}{
		{"HTTP", 0, func(size int) []byte { return filled("POST /large HTTP/1.1\r\nHost: here\r\n\r\n", size) },
			func(size int) []byte { return filled("HTTP/1.1 200 OK\r\n\r\n", size) }, "POST /large 2xx"},
		{"Redis", 0, func(size int) []byte {
			return filled(fmt.Sprintf("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$%d\r\n", size), size)
		}, func(size int) []byte { return filled("+", size) }, "SET ok"},
		{"PostgreSQL", 0, func(size int) []byte {
			return filled("Q"+string(binary.BigEndian.AppendUint32(nil, uint32(size-1)))+"SELECT '", size)
		}, func(size int) []byte {
			return filled("D"+string(binary.BigEndian.AppendUint32(nil, uint32(size-1))), size)
		}, "query SELECT ok"},
		{"MySQL", 0, func(size int) []byte {
			return filled(string([]byte{byte(size - 4), byte((size - 4) >> 8), byte((size - 4) >> 16), 0, 3})+"SELECT '", size)
		}, func(size int) []byte {
			return filled(string([]byte{byte(size - 4), byte((size - 4) >> 8), byte((size - 4) >> 16), 1, 1}), size)
		}, "query SELECT ok"},
		{"Kafka", 0, func(size int) []byte {
			length := string(binary.BigEndian.AppendUint32(nil, uint32(size-4)))
			return filled(length+"\x00\x00\x00\x09\x00\x00\x00\x01\x00\x06tester", size)
		}, func(size int) []byte {
			return filled(string(binary.BigEndian.AppendUint32(nil, uint32(size-4)))+"\x00\x00\x00\x01", size)
		}, "0"},
		{"memcached", 0, func(size int) []byte { return filled(fmt.Sprintf("set large 0 0 %d\r\n", size), size) },
			func(size int) []byte { return filled("STORED\r\n", size) }, "set ok"},
		{"DNS", 1<<16 + 1, func(size int) []byte { return largeQuery(t, size, 0) },
			func(size int) []byte { return largeQuery(t, size, 0x80) }, "A large.example ok"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var requests, replies [][]byte
			want := 0
			for _, size := range largeSizes {
				if c.most == 0 || size <= c.most {
					requests, replies = append(requests, c.request(size)), append(replies, c.reply(size))
					want += size
				}
			}
			service := exchangeLarge(t, requests, replies)
			for _, role := range []model.Role{model.RoleClient, model.RoleServer} {
				counts(t, p, service, role, "each message is counted", func(e model.EdgeCounters) bool {
					return e.Requests == uint64(len(requests)) && e.Replies == e.Requests && e.Transactions() == e.Requests &&
						e.SentBytes == uint64(want) && e.ReceivedBytes == uint64(want) && e.Pushes == 0 && e.Lost == 0
				})
			}
			expect(t, p, portOf(service), map[string]uint64{c.want: uint64(len(requests))})
		})
	}
	t.Run("HTTP/2", func(t *testing.T) {
		client, server := newHTTP2Sender(), newHTTP2Sender()
		client.greetAsClient()
		server.greetAsServer()
		var requests, replies [][]byte
		for i, size := range largeSizes {
			client.request(uint32(2*i+1), false, "/large")
			server.head(uint32(2*i+1), false, ":status", "200")
			for _, s := range []*http2Sender{client, server} {
				for left := size; left > 0; left -= 1 << 14 {
					s.WriteData(uint32(2*i+1), left <= 1<<14, make([]byte, min(left, 1<<14)))
				}
			}
			requests, replies = append(requests, []byte(client.take())), append(replies, []byte(server.take()))
		}
		service := exchangeLarge(t, requests, replies)
		for _, role := range []model.Role{model.RoleClient, model.RoleServer} {
			counted(t, p, service, role, uint64(len(largeSizes)), 0)
		}
		expect(t, p, portOf(service), map[string]uint64{"POST /large 2xx": uint64(len(largeSizes))})
		if n := http2Drops(p); n != 0 {
			t.Errorf("%d drops", n)
		}
	})
	t.Run("DNS over UDP", func(t *testing.T) { largeDatagrams(t, p) })
}

// exchangeLarge sends requests and replies one after the other on a connection, each with one call; how they are split
// between buffers and between the calls that receive them differs from one to the next.
func exchangeLarge(t *testing.T, requests, replies [][]byte) net.Addr {
	t.Helper()
	firsts := []int{0, 1, 63, 64, 127}
	pieces := [][]int{{1 << 30}, {1}, {5, 64}, {}, {60, 60, 60}, {128}}
	failed := make(chan error, 1)
	service := kerneltest.Serve(t, func(conn *net.TCPConn) {
		defer conn.Close()
		fd, release := waiting(t, conn)
		defer release()
		conn.SetWriteBuffer(1 << 20)
		for i := range requests {
			err := receiveIn(fd, len(requests[i]), pieces[i%len(pieces)]...)
			if err == nil {
				err = sendIn(fd, replies[i], firsts[i%len(firsts)])
			}
			if err != nil {
				failed <- fmt.Errorf("message %d at the server: %w", i, err)
				return
			}
		}
		failed <- nil
		syscall.Read(fd, make([]byte, 1))
	})
	conn := kerneltest.Dial(t, service.String()).(*net.TCPConn)
	defer conn.Close()
	fd, release := waiting(t, conn)
	defer release()
	conn.SetWriteBuffer(1 << 20)
	for i := range requests {
		if err := sendIn(fd, requests[i], firsts[i%len(firsts)]); err != nil {
			t.Fatalf("message %d: %v", i, err)
		}
		if err := receiveIn(fd, len(replies[i]), pieces[(i+1)%len(pieces)]...); err != nil {
			t.Fatalf("reply %d: %v", i, err)
		}
	}
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
	syscall.Shutdown(fd, syscall.SHUT_RDWR)
	return service
}

// largeQuery is a query over TCP, or with that flag its reply, with an addition as long as it takes.
func largeQuery(t *testing.T, size int, flag byte) []byte {
	t.Helper()
	m := query(t, 7, "large.example.", dnsmessage.TypeA)
	m[2] |= flag
	m[11] = 1
	return withLength(filled(string(m), size-2))
}

// Datagrams of DNS as long as they can be, also as one of several of a call.
func largeDatagrams(t *testing.T, p *Net) {
	server, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 53, 6), Port: 53})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	at := server.LocalAddr().(*net.UDPAddr).AddrPort()
	client, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(at))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	client.SetWriteBuffer(1 << 20)
	server.SetWriteBuffer(1 << 20)
	sizes := []int{64, 127, 128, 129, 255, 256, 257, 4096, 32767, 32768, 65000, 65507}
	bytes := uint64(0)
	buffer := make([]byte, 1<<16)
	for i, size := range sizes {
		m := filled(string(query(t, uint16(i), "large.example.", dnsmessage.TypeA)), size)
		if i%2 == 0 {
			_, err = client.Write(m)
		} else {
			_, err = ipv4.NewPacketConn(client).WriteBatch([]ipv4.Message{{Buffers: [][]byte{m}}}, 0)
		}
		if err != nil {
			t.Fatalf("sending %d bytes: %v", size, err)
		}
		n, from, err := server.ReadFromUDPAddrPort(buffer)
		if err != nil {
			t.Fatal(err)
		}
		buffer[2] |= 0x80
		if _, err := server.WriteToUDPAddrPort(buffer[:n], from); err != nil {
			t.Fatal(err)
		}
		if _, err := client.Read(buffer); err != nil {
			t.Fatal(err)
		}
		bytes += uint64(size)
	}
	for _, role := range []model.Role{model.RoleClient, model.RoleServer} {
		edges := udpEdgesAt(t, p, at, role)
		if len(edges) != 1 {
			t.Fatalf("%d edges of the %v, want one", len(edges), role)
		}
		want := map[string]uint64{"A large.example ok": uint64(len(sizes))}
		if got := answered(&edges[0]); got["A large.example ok"] != uint64(len(sizes)) || len(got) != 1 {
			t.Errorf("the %v counted\n%v, want\n%v", role, listed(got), listed(want))
		}
		if c := edges[0].Counters; c.SentBytes != bytes || c.ReceivedBytes != bytes {
			t.Errorf("the %v counted %d bytes sent and %d received, want %d", role, c.SentBytes, c.ReceivedBytes, bytes)
		}
	}
}

// TestLargeTLSTransfers: the same of what programs hand to a TLS library.
func TestLargeTLSTransfers(t *testing.T) {
	cert, key := certificate(t)
	peer := filepath.Join(t.TempDir(), "tlspeer")
	execute(t, "go", "build", "-o", peer, "./testdata/tlspeer")
	port := freePort(t)
	daemon(t, port, peer, "serve", address(port), cert, key)
	post := []string{"post", address(port)}
	for _, size := range largeSizes {
		post = append(post, strconv.Itoa(size))
	}
	expectTLS(t, port, 1, func() { execute(t, peer, post...) },
		map[string]uint64{"POST /large 2xx": uint64(len(largeSizes))})
}
