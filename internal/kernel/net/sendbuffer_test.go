package net

import (
	"io"
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"outsight/internal/kernel/kerneltest"
	"outsight/internal/model"
)

// A sender whose buffer is smaller than what it writes at a time is held up by it for as long as the kernel says,
// which is until its data are acknowledged.
func TestSendBufferLimitIsTheKernels(t *testing.T) {
	p := open(t, Options{})
	ownNetwork(t)
	command(t, "tc", "qdisc", "add", "dev", "lo", "root", "tbf", "rate", "8mbit", "burst", "70kb", "limit", "1mb")
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
	kerneltest.Eventually(t, "the buffer holds the sender up", func() bool {
		if _, err := conn.Write(make([]byte, 64<<10)); err != nil {
			t.Fatal(err)
		}
		return info().Sndbuf_limited > 20_000
	})
	kerneltest.Eventually(t, "all is acknowledged", func() bool { return info().Unacked == 0 && info().Notsent_bytes == 0 })
	want := info().Sndbuf_limited * 1000
	conn.Close()
	counts(t, p, address, model.RoleClient, "the time of the send buffer", func(c model.EdgeCounters) bool { return c.SendLimitedNS == want })
}
