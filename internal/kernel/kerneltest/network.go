package kerneltest

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"
	"testing"

	"outsight/internal/model"
)

// Dial is a connection to there until the end of the test.
func Dial(t *testing.T, address string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// Serve accepts connections and gives each to the handler, until the test ends.
func Serve(t *testing.T, handle func(*net.TCPConn)) net.Addr {
	t.Helper()
	listener := Listen(t, "127.0.0.1")
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go handle(conn.(*net.TCPConn))
		}
	}()
	return listener.Addr()
}

func OwnCgroup(t *testing.T) model.CgroupID {
	t.Helper()
	path := "/sys/fs/cgroup"
	f, err := os.Open("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var id int
		var rest string
		fmt.Sscanf(lines.Text(), "%d:%s", &id, &rest)
		if Controller() == "" && id == 0 {
			path += rest[1:]
		} else if prefix := Controller() + ":"; len(rest) > len(prefix) && rest[:len(prefix)] == prefix {
			path += "/" + Controller() + rest[len(prefix):]
		}
	}
	var stat syscall.Stat_t
	if err := syscall.Stat(path, &stat); err != nil {
		t.Fatal(err)
	}
	return model.CgroupID(stat.Ino)
}

// lastPort is below those that the kernel gives.
var lastPort atomic.Uint32

// Listen listens at an address, at a port that nothing in this process had before: tests find what was counted by its
// port, and the kernel may give the port of an earlier test, or of its clients, again.
func Listen(t testing.TB, address string) net.Listener {
	t.Helper()
	for range 10000 {
		at := netip.AddrPortFrom(netip.MustParseAddr(address), uint16(20000+lastPort.Add(1)%10000))
		listener, err := net.Listen("tcp", at.String())
		if err == nil {
			return listener
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			t.Fatal(err)
		}
	}
	t.Fatal("all ports are in use")
	return nil
}
