package net

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"outsight/internal/kernel/kerneltest"
	"outsight/internal/model"
)

// TestFastOpen: with TCP Fast Open a request is sent and received before its connection is established. It is one
// transaction on one connection all the same, at both ends.
func TestFastOpen(t *testing.T) {
	p := openShared(t)
	ownNetwork(t)
	// Clients and servers, with data and without a cookie, all listeners.
	const everything = "1543"
	if err := os.WriteFile("/proc/sys/net/ipv4/tcp_fastopen", []byte(everything), 0); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		// lost is what the kernel drops until the server has received the first data.
		lost func(port string) []string
		// paired: the server's end knows the client's.
		paired bool
	}{
		{"the acknowledgment is late", func(port string) []string {
			return []string{"--dport", port, "--tcp-flags", "SYN,ACK,PSH", "ACK"}
		}, true},
		{"the answer is late", func(port string) []string {
			return []string{"--sport", port, "--tcp-flags", "SYN,ACK", "SYN,ACK"}
		}, false},
	} {
		// No test of its own: that would be on another thread.
		const times = 3
		service, err := fastOpenTimes(times, c.lost)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		for _, role := range []model.Role{model.RoleClient, model.RoleServer} {
			counts(t, p, service, role, c.name, func(c model.EdgeCounters) bool {
				return c.Opens == times && c.Closes == times && c.Requests == times && c.Replies == times &&
					c.Transactions() == times && c.Aborts == 0 && c.Lost == 0 && c.Pushes == 0 &&
					c.Duration != nil && c.Duration.Count == times
			})
		}
		if e := edge(t, p, service, model.RoleServer); c.paired && e.Key.Peer != kerneltest.OwnCgroup(t) {
			t.Errorf("%s: the server's clients are in group %d, want this one", c.name, e.Key.Peer)
		}
		expect(t, p, portOf(service), map[string]uint64{"GET /fast 2xx": times})
	}
}

// fastOpenTimes makes connections with half a request in the first packet.
func fastOpenTimes(n int, lost func(port string) []string) (*net.TCPAddr, error) {
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
		if err := fastOpen(listener, loopback, lost(fmt.Sprint(loopback.Port))); err != nil {
			return nil, err
		}
	}
	return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: loopback.Port}, nil
}

func fastOpen(listener int, at *unix.SockaddrInet4, lost []string) error {
	lose := func(what string) error {
		rule := slices.Concat([]string{what, "INPUT", "-i", "lo", "-p", "tcp"}, lost, []string{"-j", "DROP"})
		if out, err := exec.Command("iptables", rule...).CombinedOutput(); err != nil {
			return fmt.Errorf("iptables %s: %w: %s", what, err, out)
		}
		return nil
	}
	client, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(client)
	if err := lose("-A"); err != nil {
		return err
	}
	if err := unix.Sendto(client, []byte("GET /fast HTTP/1.1\r\n"), unix.MSG_FASTOPEN|unix.MSG_DONTWAIT, at); err != nil {
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
	if err := lose("-D"); err != nil {
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
