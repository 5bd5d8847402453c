package kernel

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"outsight/internal/model"
)

// TestFastOpen: with TCP Fast Open a request is sent and received before its connection is established. It is one
// transaction on one connection all the same, at both ends.
func TestFastOpen(t *testing.T) {
	p := openWith(t, Options{})
	ownNetwork(t)
	// Clients and servers, with data and without a cookie, all listeners.
	const everything = "1543"
	if err := os.WriteFile("/proc/sys/net/ipv4/tcp_fastopen", []byte(everything), 0); err != nil {
		t.Fatal(err)
	}
	const times = 3
	service, err := fastOpenTimes(times)
	if err != nil {
		t.Fatal(err)
	}
	for _, role := range []model.Role{model.RoleClient, model.RoleServer} {
		counts(t, p, service, role, "each connection has one transaction", func(c model.EdgeCounters) bool {
			return c.Opens == times && c.Closes == times && c.Requests == times && c.Replies == times &&
				c.Transactions() == times && c.Aborts == 0 && c.Lost == 0 && c.Pushes == 0 && c.Duration != nil && c.Duration.Count == times
		})
	}
	if e := edge(t, p, service, model.RoleServer); e.Key.Peer != ownCgroup(t) {
		t.Errorf("the server's clients are in group %d, want this one", e.Key.Peer)
	}
	expect(t, p, portOf(service), map[string]uint64{"GET /fast 2xx": times})
}

// fastOpenTimes makes connections with half a request in the first packet. The client's acknowledgment, which
// establishes the server's end, is lost until the server has received that.
func fastOpenTimes(n int) (*net.TCPAddr, error) {
	listener, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(listener)
	loopback := &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}
	if err := unix.Bind(listener, loopback); err != nil {
		return nil, err
	}
	if err := unix.Listen(listener, 16); err != nil {
		return nil, err
	}
	bound, err := unix.Getsockname(listener)
	if err != nil {
		return nil, err
	}
	loopback.Port = bound.(*unix.SockaddrInet4).Port
	for range n {
		if err := fastOpen(listener, loopback); err != nil {
			return nil, err
		}
	}
	return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: loopback.Port}, nil
}

func fastOpen(listener int, at *unix.SockaddrInet4) error {
	rule := []string{"INPUT", "-i", "lo", "-p", "tcp", "--dport", fmt.Sprint(at.Port),
		"--tcp-flags", "SYN,ACK,PSH", "ACK", "-j", "DROP"}
	acknowledgments := func(what string) error {
		if out, err := exec.Command("iptables", append([]string{what}, rule...)...).CombinedOutput(); err != nil {
			return fmt.Errorf("iptables %s: %w: %s", what, err, out)
		}
		return nil
	}
	client, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(client)
	if err := acknowledgments("-A"); err != nil {
		return err
	}
	if err := unix.Sendto(client, []byte("GET /fast HTTP/1.1\r\n"), unix.MSG_FASTOPEN, at); err != nil {
		return fmt.Errorf("sending with the first packet: %w", err)
	}
	server, _, err := unix.Accept(listener)
	if err != nil {
		return err
	}
	defer unix.Close(server)
	buffer := make([]byte, 1000)
	if _, err := syscall.Read(server, buffer); err != nil {
		return fmt.Errorf("receiving before the connection is established: %w", err)
	}
	info, err := unix.GetsockoptTCPInfo(server, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return err
	}
	if info.State != synReceived {
		return fmt.Errorf("the server's end is in state %d, want %d: nothing was received early", info.State, synReceived)
	}
	if err := acknowledgments("-D"); err != nil {
		return err
	}
	if _, err := syscall.Write(client, []byte("\r\n")); err != nil {
		return err
	}
	if _, err := syscall.Read(server, buffer); err != nil {
		return err
	}
	if _, err := syscall.Write(server, []byte(okay)); err != nil {
		return err
	}
	if _, err := syscall.Read(client, buffer); err != nil {
		return err
	}
	return nil
}

const synReceived = 3
