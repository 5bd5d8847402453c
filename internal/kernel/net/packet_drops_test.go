package net

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"outsight/internal/kernel/kerneltest"
	"outsight/internal/model"
)

// tellsReceiver: the kernel names the receiving socket of what it drops.
func tellsReceiver(t testing.TB) bool {
	t.Helper()
	_, tells, err := dropReasons(kerneltest.Kernel(t))
	if err != nil {
		t.Fatal(err)
	}
	return tells
}

// dropped are the packets that were dropped in a network namespace, by reason and device, but for what IPv6 sends by
// itself while a network is new.
func dropped(t *testing.T, p *Net, netns uint32) map[string]uint64 {
	t.Helper()
	all, err := p.ReadPacketDrops()
	if err != nil {
		t.Fatal(err)
	}
	sums := map[string]uint64{}
	for _, d := range all {
		if d.NetNS == netns && d.Reason != "IP_INADDRERRORS" && d.Reason != "IP_INNOROUTES" {
			sums[d.Reason+" "+d.Device] += d.Packets
		}
	}
	return sums
}

// ownerOf is whose the packets are that were dropped in a network namespace for a reason.
func ownerOf(t *testing.T, p *Net, netns uint32, reason string) model.CgroupID {
	t.Helper()
	all, err := p.ReadPacketDrops()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range all {
		if d.NetNS == netns && d.Reason == reason {
			return d.Owner
		}
	}
	t.Fatalf("nothing was dropped for %s in %d: %+v", reason, netns, all)
	return 0
}

// namespace opens one of a network, and tells its inode.
func (n *network) namespace(name string) (*os.File, uint32) {
	n.t.Helper()
	file, err := os.Open("/run/netns/" + n.name(name))
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { file.Close() })
	return file, inode(n.t, file)
}

// within calls f on a thread of its own that is in a namespace.
func within(t *testing.T, namespace *os.File, f func() error) {
	t.Helper()
	failed := make(chan error)
	go func() {
		runtime.LockOSThread() // it ends with its thread
		err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET)
		if err == nil {
			err = f()
		}
		failed <- err
	}()
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
}

// udp is a socket in a namespace that sends to an address.
func udp(t *testing.T, namespace *os.File, to string) (conn *net.UDPConn) {
	t.Helper()
	within(t, namespace, func() error {
		c, err := net.Dial("udp", to)
		if err == nil {
			conn = c.(*net.UDPConn)
		}
		return err
	})
	t.Cleanup(func() { conn.Close() })
	return conn
}

// sendMany sends datagrams, and does not mind what happens to them.
func sendMany(conn *net.UDPConn, datagrams int) {
	for i := range datagrams {
		fmt.Fprintf(conn, "datagram %d", i)
	}
}

// settled waits until as many were dropped as are wanted, and no more.
func settled(t *testing.T, p *Net, netns uint32, want map[string]uint64) {
	t.Helper()
	settledSince(t, p, netns, nil, want)
}

// settledSince is settled where some packets had been dropped before.
func settledSince(t *testing.T, p *Net, netns uint32, before, want map[string]uint64) {
	t.Helper()
	var got map[string]uint64
	for end := time.Now().Add(kerneltest.Patience()); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		got = dropped(t, p, netns)
		for name, n := range before {
			if got[name] -= n; got[name] == 0 {
				delete(got, name)
			}
		}
		if fmt.Sprint(got) == fmt.Sprint(want) {
			return
		}
	}
	t.Errorf("dropped %v, want %v", got, want)
}

// newNamespace is a network namespace of its own with a loopback device, and its inode. It needs no command.
func newNamespace(t *testing.T) (namespace *os.File, netns uint32) {
	t.Helper()
	failed := make(chan error)
	go func() {
		runtime.LockOSThread() // it ends with its thread
		failed <- func() (err error) {
			if err = unix.Unshare(unix.CLONE_NEWNET); err != nil {
				return err
			}
			if namespace, err = os.Open("/proc/thread-self/ns/net"); err != nil {
				return err
			}
			socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer unix.Close(socket)
			request, err := unix.NewIfreq("lo")
			if err != nil {
				return err
			}
			request.SetUint16(unix.IFF_UP)
			return unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, request)
		}()
	}()
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { namespace.Close() })
	return namespace, inode(t, namespace)
}

func inode(t *testing.T, file *os.File) uint32 {
	t.Helper()
	info, err := file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	return uint32(info.Sys().(*syscall.Stat_t).Ino)
}

// A socket's buffer is full: as many are dropped as the kernel counts at the socket.
func TestPacketsDroppedAtFullSocketBuffer(t *testing.T) {
	p := openShared(t)
	namespace, netns := newNamespace(t)
	var before uint64
	for _, address := range []string{"127.0.0.1:7001", "[::1]:7001"} {
		var server *net.UDPConn
		within(t, namespace, func() error {
			c, err := net.ListenPacket("udp", address)
			if err == nil {
				server = c.(*net.UDPConn)
			}
			return err
		})
		defer server.Close()
		server.SetReadBuffer(4096)
		sender := udp(t, namespace, address)
		sendMany(sender, 1)
		server.SetReadDeadline(time.Now().Add(kerneltest.Patience()))
		if _, err := server.Read(make([]byte, 100)); err != nil { // its owner is known since its first call
			t.Fatal(err)
		}
		sendMany(sender, 300)
		// On a busy CPU some are still on their way through the loopback device when the sender goes on.
		var atSocket, received uint64
		kerneltest.Eventually(t, "each datagram has come or is dropped", func() bool {
			server.SetReadDeadline(time.Now().Add(time.Millisecond))
			for atSocket = socketDrops(t, server); atSocket > 0; received++ {
				if _, err := server.Read(make([]byte, 100)); err != nil {
					break
				}
			}
			return received+atSocket == 300
		})
		var all map[string]uint64
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("%s: %d are dropped at the socket, of all there are %v", address, atSocket, all)
			}
		})
		kerneltest.Eventually(t, "as many are dropped as the kernel says", func() bool {
			atSocket, all = socketDrops(t, server), dropped(t, p, netns)
			return all["SOCKET_RCVBUFF lo"]-before == atSocket
		})
		if atSocket >= 300 || received == 0 {
			t.Errorf("%s: the kernel dropped %d of 300 datagrams, and %d came", address, atSocket, received)
		}
		before += atSocket
	}
	if owner := ownerOf(t, p, netns, "SOCKET_RCVBUFF"); tellsReceiver(t) && owner != kerneltest.OwnCgroup(t) {
		t.Errorf("they are of the control group %d, want %d", owner, kerneltest.OwnCgroup(t))
	}
}

// socketDrops is what the kernel counts at a socket.
func socketDrops(t *testing.T, conn *net.UDPConn) (drops uint64) {
	t.Helper()
	raw, err := conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	const memInfoDrops = 8
	raw.Control(func(fd uintptr) {
		var info [9]uint32
		size := uint32(len(info) * 4)
		_, _, failed := unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.SOL_SOCKET, unix.SO_MEMINFO,
			uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
		if failed != 0 {
			t.Fatal(failed)
		}
		drops = uint64(info[memInfoDrops])
	})
	return drops
}

// Nobody has the port, a rule of the firewall says no, a packet has made too many hops: each at its device.
func TestPacketsDroppedOnTheWay(t *testing.T) {
	p := openShared(t)
	n := newNetwork(t)
	client, clientNS := n.namespace("client")
	_, routerNS := n.namespace("router")
	_, firstNS := n.namespace("first")
	beforeAtRouter, beforeAtFirst, beforeAtClient := dropped(t, p, routerNS), dropped(t, p, firstNS), dropped(t, p, clientNS)
	for _, program := range []string{"iptables", "ip6tables"} {
		n.in("first", program, "-w", "-A", "INPUT", "-p", "udp", "--dport", "7009", "-j", "DROP")
	}
	for program, address := range map[string]string{"iptables": "10.213.2.2", "ip6tables": "fd13:2::2"} {
		to := func(port string) *net.UDPConn { return udp(t, client, net.JoinHostPort(address, port)) }
		sendMany(to("7009"), 100)
		// The socket is known since its first call.
		refused := to("7008")
		sendMany(refused, 1)
		n.in("client", program, "-w", "-A", "OUTPUT", "-p", "udp", "--dport", "7008", "-j", "DROP")
		for sent := 0; sent < 30; {
			if _, err := refused.Write([]byte("not sent")); errors.Is(err, unix.EPERM) {
				sent++
			}
		}
		// Each is answered that nobody is there, which the socket tells instead of sending the next.
		closed := to("7001")
		for sent := 0; sent < 20; {
			if _, err := closed.Write([]byte("anybody?")); err == nil {
				sent++
			}
		}
		lost := to("7001")
		raw, err := lost.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		raw.Control(func(fd uintptr) {
			if strings.Contains(address, ":") {
				err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, 1)
			} else {
				err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_TTL, 1)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		for sent := 0; sent < 10; {
			if _, err := lost.Write([]byte("far away")); err == nil {
				sent++
			}
		}
		for range 5 {
			within(t, client, func() error {
				if c, err := net.Dial("tcp", net.JoinHostPort(address, "7001")); err == nil {
					c.Close()
					return fmt.Errorf("somebody listens")
				}
				return nil
			})
		}
	}
	settledSince(t, p, firstNS, beforeAtFirst, map[string]uint64{"NETFILTER_DROP eth0": 200, "NO_SOCKET eth0": 52})
	settledSince(t, p, routerNS, beforeAtRouter, map[string]uint64{"IP_INHDR to1": 20})
	settledSince(t, p, clientNS, beforeAtClient, map[string]uint64{"NETFILTER_DROP ": 60})
	if owner := ownerOf(t, p, clientNS, "NETFILTER_DROP"); owner != kerneltest.OwnCgroup(t) {
		t.Errorf("what was not sent is of the control group %d, want %d", owner, kerneltest.OwnCgroup(t))
	}
	if owner := ownerOf(t, p, firstNS, "NO_SOCKET"); owner != 0 {
		t.Errorf("what nobody was to get is of the control group %d", owner)
	}
}

// A buffer that is to be cut into ten packets is as many when it is dropped whole.
func TestLargeBuffersAreAsManyPackets(t *testing.T) {
	p := openShared(t)
	n := newNetwork(t)
	client, _ := n.namespace("client")
	_, netns := n.namespace("first")
	n.in("first", "iptables", "-w", "-A", "INPUT", "-p", "udp", "-j", "DROP")
	conn := udp(t, client, "10.213.2.2:7009")
	raw, err := conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_SEGMENT, 100) })
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := conn.Write(make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
	}
	settled(t, p, netns, map[string]uint64{"NETFILTER_DROP eth0": 30})
}

// What a socket's own filter refuses, what a packet socket has no room for, and what is not read before the end is no
// loss.
func TestNoLossIsCountedAsOne(t *testing.T) {
	p := openShared(t)
	n := newNetwork(t)
	client, _ := n.namespace("client")
	first, netns := n.namespace("first")
	var server *net.UDPConn
	within(t, first, func() error {
		c, err := net.ListenUDP("udp4", &net.UDPAddr{Port: 7001})
		if err != nil {
			return err
		}
		server = c
		tap, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0x0300)
		if err != nil {
			return err
		}
		t.Cleanup(func() { unix.Close(tap) })
		return unix.SetsockoptInt(tap, unix.SOL_SOCKET, unix.SO_RCVBUF, 4096)
	})
	sender := udp(t, client, "10.213.2.2:7001")
	sendMany(sender, 200)
	server.SetReadDeadline(time.Now().Add(kerneltest.Patience()))
	for range 100 { // the others are in its buffer when it is closed
		if _, err := server.Read(make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
	}
	refuseAll(t, server)
	sendMany(sender, 50)
	server.Close()
	// One that is lost comes after all of them.
	nobody := udp(t, client, "10.213.2.2:7002")
	sendMany(nobody, 1)
	settled(t, p, netns, map[string]uint64{"NO_SOCKET eth0": 1})
}

// refuseAll gives a socket a filter that lets nothing pass.
func refuseAll(t testing.TB, conn *net.UDPConn) {
	t.Helper()
	raw, err := conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	filter := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K}
	raw.Control(func(fd uintptr) {
		err = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
			&unix.SockFprog{Len: 1, Filter: &filter})
	})
	if err != nil {
		t.Fatal(err)
	}
}

// While it is shed nothing is counted, and then on.
func TestShedDrops(t *testing.T) {
	p := openShared(t)
	n := newNetwork(t)
	client, netns := n.namespace("client")
	// What is not sent is dropped before the call returns.
	n.in("client", "iptables", "-w", "-A", "OUTPUT", "-p", "udp", "-j", "DROP")
	conn := udp(t, client, "10.213.2.2:7009")
	sendMany(conn, 10)
	kerneltest.Shed(t, p, "drops")
	sendMany(conn, 10)
	kerneltest.Restore(t, p, "drops")
	sendMany(conn, 5)
	settled(t, p, netns, map[string]uint64{"NETFILTER_DROP ": 15})
}

// What has no room in the table is told; entries that are idle make room.
func TestTableOfDropsIsFull(t *testing.T) {
	const room, namespaces = 16, 40
	p := open(t, Options{MaxPacketDrops: room})
	before := p.edges.drops()[edgesEdgeDropDROP_PACKET_DROP]
	if before.Capacity != room {
		t.Fatalf("%+v", before)
	}
	ours := map[uint32]bool{}
	counted := func() (sum uint64) {
		all, err := p.ReadPacketDrops()
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range all {
			if ours[d.NetNS] {
				sum += d.Packets
			}
		}
		return sum
	}
	dropOneIn := func(namespaces int) {
		for range namespaces {
			namespace, netns := newNamespace(t)
			ours[netns] = true
			sendMany(udp(t, namespace, "127.0.0.1:7001"), 1) // nobody is there
		}
	}
	dropOneIn(namespaces)
	// On a busy CPU the packets are dropped after the calls that sent them have returned.
	kerneltest.Eventually(t, "each is counted, or its drop", func() bool {
		found := counted()
		full := p.edges.drops()[edgesEdgeDropDROP_PACKET_DROP]
		if found > room || full.Used > room || full.Used < found {
			t.Fatalf("%d of %d are counted, %+v", found, namespaces, full)
		}
		return found+full.Count >= namespaces
	})
	if _, err := p.edges.dropped.read(time.Now().Add(2 * idleTime)); err != nil {
		t.Fatal(err)
	}
	clear(ours)
	dropOneIn(3)
	kerneltest.Eventually(t, "all of 3 are counted where there is room", func() bool { return counted() == 3 })
}

// What a control group had is given up when it is removed.
func TestForgottenDrops(t *testing.T) {
	p := openShared(t)
	n := newNetwork(t)
	client, netns := n.namespace("client")
	n.in("client", "iptables", "-w", "-A", "OUTPUT", "-p", "udp", "-j", "DROP")
	sendMany(udp(t, client, "10.213.2.2:7009"), 7)
	settled(t, p, netns, map[string]uint64{"NETFILTER_DROP ": 7})
	p.edges.dropped.forget(ownerOf(t, p, netns, "NETFILTER_DROP"))
	settled(t, p, netns, map[string]uint64{})
}
