package net

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"outsight/internal/kernel/kerneltest"
	"outsight/internal/model"
)

// Tests never run on the process's first thread: /proc/self/ns/net, which the probes take for the
// host's, is that of the first thread, and ownNetwork would move it for all later tests.
func init() { runtime.LockOSThread() }

// ownNetwork moves the test's thread to a new network namespace. The thread ends with the test.
func ownNetwork(t *testing.T) {
	t.Helper()
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	command(t, "ip", "link", "set", "lo", "up")
}

// listenDrops is what the kernel says of the namespace of the calling thread.
func listenDrops(t *testing.T) uint64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/net/netstat", unix.Gettid()))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	values := strings.Fields(lines[1])
	for i, name := range strings.Fields(lines[0]) {
		if name == "ListenDrops" {
			n, err := strconv.ParseUint(values[i], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatal("the kernel does not count ListenDrops")
	return 0
}

// crowd lets more clients connect to a listener of backlog 1, which nobody accepts from, than
// there is room for.
func crowd(t *testing.T, clients int) (fd int, address netip.AddrPort) {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err == nil {
		err = syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	}
	if err == nil {
		err = syscall.Listen(fd, 1)
	}
	if err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	address = netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(name.(*syscall.SockaddrInet4).Port))
	for range clients {
		client, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { syscall.Close(client) })
		if err := syscall.Connect(client, name); err != nil && err != syscall.EINPROGRESS {
			t.Fatal(err)
		}
	}
	return fd, address
}

// listenerAt sweeps, and reads the listener at an address.
func listenerAt(t *testing.T, p *Net, address netip.AddrPort) (found model.Listener, ok bool) {
	t.Helper()
	if _, err := p.ReadEdges(); err != nil {
		t.Fatal(err)
	}
	all, err := p.ReadListeners()
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(all, func(l model.Listener) bool { return l.Address == address })
	if at < 0 {
		return found, false
	}
	return all[at], true
}

// Connections that wait to be accepted are told at each reading, with how many may.
func TestAcceptQueue(t *testing.T) {
	p := openShared(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	raw, err := l.(*net.TCPListener).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	const backlog, waiting = 7, 3
	if controlError := raw.Control(func(fd uintptr) { err = syscall.Listen(int(fd), backlog) }); controlError != nil || err != nil {
		t.Fatal(controlError, err)
	}
	f := func(want uint64) {
		t.Helper()
		found, ok := listenerAt(t, p, l.Addr().(*net.TCPAddr).AddrPort())
		if !ok || found.AcceptQueue != (model.AcceptQueue{Queued: want, QueueLimit: backlog + 1}) {
			t.Errorf("known: %v; %+v, want %d of %d", ok, found, want, backlog+1)
		}
	}
	f(0)
	for range waiting {
		kerneltest.Dial(t, l.Addr().String())
	}
	f(waiting)
	for range waiting {
		conn, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
	}
	f(0)
}

// What listening sockets drop is what the kernel counts in their namespace.
func TestListenerDrops(t *testing.T) {
	p := openShared(t)
	drops := func(address netip.AddrPort) (n uint64, found bool) {
		t.Helper()
		l, found := listenerAt(t, p, address)
		return l.Drops, found
	}
	t.Run("crowded", func(t *testing.T) { // its thread, and the namespace with it, ends with it
		ownNetwork(t)
		fd, address := crowd(t, 10)
		defer syscall.Close(fd)
		// Clients try again after a second, so that it goes on.
		for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
			before := listenDrops(t)
			n, found := drops(address)
			after := listenDrops(t)
			if !found {
				t.Fatal("the listener is not known")
			}
			if n < before || n > after {
				t.Fatalf("%d drops, the kernel counts %d before and %d after", n, before, after)
			}
			if n > 8 {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%d drops after ten clients have tried for ten seconds", n)
			}
		}
	})
	// A listener that accepts drops nothing.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for range 10 {
		conn := kerneltest.Dial(t, l.Addr().String())
		conn.Close()
	}
	if n, found := drops(l.Addr().(*net.TCPAddr).AddrPort()); n != 0 || !found {
		t.Errorf("%d drops at a listener with room (known: %v)", n, found)
	}
}
