package net

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"outsight/internal/kernel/kerneltest"
	"outsight/internal/model"
)

// inTwoThreads reads on one thread of the system and writes on another what read asks for, until read ends.
func inTwoThreads(conn *net.TCPConn, read func(lines *bufio.Reader, write chan<- string)) {
	texts := make(chan string, 1)
	go func() {
		runtime.LockOSThread()
		for text := range texts {
			io.WriteString(conn, text)
		}
	}()
	runtime.LockOSThread()                     // not unlocked: the thread ends with it
	read(bufio.NewReaderSize(conn, 32), texts) // a head takes more than one call
	close(texts)
}

// skipHead reads to the end of a head, and gives its first line.
func skipHead(lines *bufio.Reader) (first string, err error) {
	for line := ""; line != "\r\n"; {
		if line, err = lines.ReadString('\n'); err != nil {
			return "", err
		}
		if first == "" {
			first = line
		}
	}
	return first, nil
}

// The thread that reads a reply is often seen before the thread that has sent the request, and a server's next
// request before its last reply: each transaction is counted all the same, with its name and its own status.
func TestThreadsThatOvertakeEachOther(t *testing.T) {
	p := openShared(t)
	const connections, rounds, paths = 4, 400, 8
	service := kerneltest.Serve(t, func(conn *net.TCPConn) {
		defer conn.Close()
		inTwoThreads(conn, func(lines *bufio.Reader, write chan<- string) {
			for {
				first, err := skipHead(lines)
				if err != nil {
					return
				}
				status := "200 OK"
				if path := strings.Fields(first)[1]; (path[1]-'a')%2 == 1 {
					status = "404 Not Found"
				}
				write <- "HTTP/1.1 " + status + "\r\nContent-Length: 0\r\n\r\n"
			}
		})
	})
	want := map[string]uint64{}
	for i := range paths {
		want[fmt.Sprintf("GET /%c %s", 'a'+i, []string{"2xx", "4xx"}[i%2])] = connections * rounds
	}
	failed := make(chan error, connections)
	for range connections {
		conn := kerneltest.Dial(t, service.String()).(*net.TCPConn)
		go func() {
			defer conn.Close()
			inTwoThreads(conn, func(lines *bufio.Reader, write chan<- string) {
				for i := range rounds * paths {
					write <- fmt.Sprintf("GET /%c HTTP/1.1\r\n\r\n", 'a'+i%paths)
					if _, err := skipHead(lines); err != nil {
						failed <- err
						return
					}
				}
				failed <- nil
			})
		}()
	}
	for range connections {
		if err := <-failed; err != nil {
			t.Fatal(err)
		}
	}
	port := service.(*net.TCPAddr).AddrPort().Port()
	expect(t, p, port, want)
	for _, role := range []model.Role{model.RoleClient, model.RoleServer} {
		if c := edge(t, p, service, role).Counters; c.Requests != connections*rounds*paths || c.Replies != c.Requests ||
			c.Pushes != 0 || c.Aborts != 0 || c.Lost != 0 {
			t.Errorf("%v: %d requests, %d replies, %d pushes, %d aborts, %d lost", role, c.Requests, c.Replies,
				c.Pushes, c.Aborts, c.Lost)
		}
	}
}

// waiting makes calls on a connection wait in the kernel until they are done. Whoever calls them ends the use of fd by
// release: closed by another, its number may be that of the next connection while a call is yet to be made.
func waiting(t *testing.T, conn *net.TCPConn) (fd int, release func()) {
	t.Helper()
	file, err := conn.File()
	if err != nil {
		t.Fatal(err)
	}
	conn.SetWriteBuffer(1 << 14)
	return int(file.Fd()), func() { file.Close() }
}

// uninterrupted makes a call that waits within. The runtime's signal to a thread that it wants back would end a call that
// has sent a part of its bytes.
func uninterrupted(call func() (int, error)) (int, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	set := unix.Sigset_t{}
	set.Val[0] = 1 << (unix.SIGURG - 1)
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &set, nil); err != nil {
		return 0, err
	}
	defer unix.PthreadSigmask(unix.SIG_UNBLOCK, &set, nil)
	return call()
}

// A server refuses an upload at its head, while the one call that sends it waits for room. Its time is that of the
// refusal, not that of the call.
func TestReplyBeforeTheRequestIsSent(t *testing.T) {
	p := openShared(t)
	const delay = 2500 * time.Millisecond // longer than a sweep waits
	const refused = 200 * time.Millisecond
	service := kerneltest.Serve(t, func(conn *net.TCPConn) {
		defer conn.Close()
		conn.SetReadBuffer(1 << 14)
		if _, err := skipHead(bufio.NewReader(conn)); err != nil {
			return
		}
		time.Sleep(refused)
		io.WriteString(conn, "HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\n\r\n")
		time.Sleep(delay)
		io.Copy(io.Discard, conn)
	})
	conn, release := waiting(t, kerneltest.Dial(t, service.String()).(*net.TCPConn))
	defer release()
	sent := make(chan error)
	go func() {
		_, err := syscall.Write(conn, []byte("POST /upload HTTP/1.1\r\nContent-Length: 4194304\r\n\r\n"+strings.Repeat("x", 4<<20)))
		sent <- err
	}()
	if n, err := syscall.Read(conn, make([]byte, 1000)); err != nil || n == 0 {
		t.Fatal(n, err)
	}
	for end := time.Now().Add(delay * 4 / 5); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if _, err := p.ReadEdges(); err != nil { // it sweeps
			t.Fatal(err)
		}
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	port := service.(*net.TCPAddr).AddrPort().Port()
	expectAt(t, p, port, model.RoleClient, map[string]uint64{"POST /upload 4xx": 1})
	c := edge(t, p, service, model.RoleClient).Counters
	if c.Requests != 1 || c.Replies != 1 || c.Pushes != 0 || c.Aborts != 0 {
		t.Errorf("%d requests, %d replies, %d pushes, %d aborts", c.Requests, c.Replies, c.Pushes, c.Aborts)
	}
	if took := c.Latency.Quantile(1); took <= 0 || took >= delay.Seconds() {
		t.Errorf("it took %v s", took)
	}
}

// A client asks again while the one call that sends the first reply waits for room.
func TestRequestBeforeTheReplyIsSent(t *testing.T) {
	p := openShared(t)
	const delay = 2500 * time.Millisecond // longer than a sweep waits
	body := strings.Repeat("x", 4<<20)
	first := "HTTP/1.1 200 OK\r\nContent-Length: 4194304\r\n\r\n" + body
	second := "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
	service := kerneltest.Serve(t, func(conn *net.TCPConn) {
		defer conn.Close()
		fd, release := waiting(t, conn)
		defer release()
		request := make([]byte, 1000)
		if n, _ := syscall.Read(fd, request); n <= 0 {
			return
		}
		written := make(chan struct{})
		go func() {
			uninterrupted(func() (int, error) { return syscall.Write(fd, []byte(first)) })
			close(written)
		}()
		if n, _ := syscall.Read(fd, request); n <= 0 {
			return
		}
		<-written
		io.WriteString(conn, second)
		syscall.Read(fd, request)
	})
	conn := kerneltest.Dial(t, service.String())
	conn.(*net.TCPConn).SetReadBuffer(1 << 14)
	io.WriteString(conn, "GET /long HTTP/1.1\r\n\r\n")
	reply := make([]byte, len(first)+len(second))
	if _, err := io.ReadFull(conn, reply[:1000]); err != nil {
		t.Fatal(err)
	}
	io.WriteString(conn, "GET /missing HTTP/1.1\r\n\r\n")
	for end := time.Now().Add(delay); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if _, err := p.ReadEdges(); err != nil { // it sweeps
			t.Fatal(err)
		}
	}
	if _, err := io.ReadFull(conn, reply[1000:]); err != nil {
		t.Fatal(err)
	}
	conn.Close()
	port := service.(*net.TCPAddr).AddrPort().Port()
	expectAt(t, p, port, model.RoleServer, map[string]uint64{"GET /long 2xx": 1, "GET /missing 4xx": 1})
	if c := edge(t, p, service, model.RoleServer).Counters; c.Requests != 2 || c.Replies != 2 || c.Aborts != 0 {
		t.Errorf("%d requests, %d replies, %d aborts", c.Requests, c.Replies, c.Aborts)
	}
}

// optionOf reads something of a connection's socket.
func optionOf(t *testing.T, conn *net.TCPConn, read func(fd int) (int, error)) int {
	t.Helper()
	raw, err := conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var value int
	if controlErr := raw.Control(func(fd uintptr) { value, err = read(int(fd)) }); controlErr != nil || err != nil {
		t.Fatal(controlErr, err)
	}
	return value
}

func tcpState(fd int) (int, error) {
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return 0, err
	}
	return int(info.State), nil
}

func unreadBytes(fd int) (int, error) { return unix.IoctlGetInt(fd, unix.TIOCINQ) }

// The end of what a client sends counts as a byte in the kernel, and is no call that is still to return.
func TestReplyAfterTheClientHasEnded(t *testing.T) {
	p := openShared(t)
	service := kerneltest.Serve(t, func(conn *net.TCPConn) {
		defer conn.Close()
		io.Copy(io.Discard, conn)
		io.WriteString(conn, okay)
	})
	const times = 20
	for i := range times {
		conn := kerneltest.Dial(t, service.String()).(*net.TCPConn)
		io.WriteString(conn, "GET /last HTTP/1.1\r\n\r\n")
		conn.CloseWrite()
		if i%2 == 0 {
			kerneltest.Eventually(t, "both ends have ended, and the kernel has closed the connection", func() bool {
				return optionOf(t, conn, tcpState) == unix.BPF_TCP_CLOSE
			})
		}
		if _, err := skipHead(bufio.NewReader(conn)); err != nil {
			t.Fatal(err)
		}
		conn.Close()
	}
	expect(t, p, service.(*net.TCPAddr).AddrPort().Port(), map[string]uint64{"GET /last 2xx": times})
	if c := edge(t, p, service, model.RoleClient).Counters; c.Requests != times || c.Replies != times ||
		c.Pushes != 0 || c.Aborts != 0 {
		t.Errorf("%d requests, %d replies, %d pushes, %d aborts", c.Requests, c.Replies, c.Pushes, c.Aborts)
	}
}

// A client that gives up has no transaction: not while it waits, and not with a reply that it has not read.
func TestClientThatGivesUp(t *testing.T) {
	p := openShared(t)
	answers := make(chan bool) // without a buffer: each connection takes its own before the next one begins
	service := kerneltest.Serve(t, func(conn *net.TCPConn) {
		defer conn.Close()
		lines := bufio.NewReader(conn)
		skipHead(lines)
		if <-answers {
			io.WriteString(conn, okay)
		}
		lines.ReadByte() // until the client has closed
		lines.ReadByte()
	})
	for _, answered := range []bool{false, true, true} {
		conn := kerneltest.Dial(t, service.String()).(*net.TCPConn)
		io.WriteString(conn, "GET /slow HTTP/1.1\r\n\r\n")
		answers <- answered
		if answered {
			kerneltest.Eventually(t, "the reply is there", func() bool { return optionOf(t, conn, unreadBytes) > 0 })
		}
		conn.Close()
	}
	counts(t, p, service, model.RoleClient, "the client has given up three requests", func(c model.EdgeCounters) bool {
		return c.Aborts == 3
	})
}
