package net

import (
	"fmt"
	"io"
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"outsight/internal/kernel/kerneltest"
	"outsight/internal/model"
)

// A sender that has sent all that its buffer has room for, and waits for room, is held up by it until that is
// acknowledged: for as long as the kernel says.
func TestSendBufferLimitIsTheKernels(t *testing.T) {
	p := openShared(t)
	ownNetwork(t)
	address := kerneltest.Serve(t, func(conn *net.TCPConn) { io.Copy(io.Discard, conn) })
	conn := kerneltest.Dial(t, address.String()).(*net.TCPConn)
	if err := conn.SetWriteBuffer(4608); err != nil {
		t.Fatal(err)
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	info := func() (tcp *unix.TCPInfo) {
		raw.Control(func(fd uintptr) { tcp, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) })
		if err != nil {
			t.Fatal(err)
		}
		return tcp
	}
	if err := conn.SetNoDelay(false); err != nil {
		t.Fatal(err)
	}
	// No acknowledgment arrives. The second message is held back for that of the first one, until the kernel sends it
	// as a probe of what was lost: then nothing is left to send, and there is no room for more.
	rule := []string{"INPUT", "-i", "lo", "-p", "tcp", "--sport", fmt.Sprint(portOf(address)), "--tcp-flags", "ALL",
		"ACK", "-j", "DROP"}
	command(t, append([]string{"iptables", "-A"}, rule...)...)
	for _, size := range []int{100, 20_000} {
		if _, err := conn.Write(make([]byte, size)); err != nil {
			t.Fatal(err)
		}
	}
	room := 1
	raw.Control(func(fd uintptr) { room, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, 0) })
	if err != nil || room != 0 {
		t.Fatalf("%d sockets have room for more (%v), want none", room, err)
	}
	kerneltest.Eventually(t, "the buffer holds the sender up", func() bool { return info().Sndbuf_limited > 20_000 })
	command(t, append([]string{"iptables", "-D"}, rule...)...)
	kerneltest.Eventually(t, "all is acknowledged", func() bool {
		return info().Unacked == 0 &&
			info().Notsent_bytes == 0
	})
	want := info().Sndbuf_limited * 1000
	conn.Close()
	counts(t, p, address, model.RoleClient, "the time of the send buffer",
		func(c model.EdgeCounters) bool { return c.SendLimitedNS == want })
}
