package forward

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"outsight/internal/kernel/kerneltest"
	"outsight/internal/model"
	"outsight/internal/netns"
)

// router is a network namespace that forwards between two others, with a process in it.
//
//	client 10.215.1.1, fd15:1::1 ── r0 router r1 ── 10.215.2.1, fd15:2::1 server
type router struct {
	t       *testing.T
	prefix  string
	process *exec.Cmd
	in      io.Closer
	// of is how the module is told.
	of model.ForwardingNamespace
}

func newRouter(t *testing.T) *router {
	r := &router{t: t, prefix: fmt.Sprintf("osfwd%d", os.Getpid())}
	for _, name := range []string{"client", "router", "server"} {
		r.command("ip", "netns", "add", r.prefix+name)
		t.Cleanup(func() { exec.Command("ip", "netns", "del", r.prefix+name).Run() })
	}
	r.within("router", func() {
		r.command("sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1",
			"net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf.default.rp_filter=0")
		for i, name := range []string{"client", "server"} {
			r.command("ip", "link", "add", fmt.Sprint("r", i), "type", "veth", "peer", "name", "e0", "netns", r.prefix+name)
			r.command("ip", "address", "add", fmt.Sprintf("10.215.%d.2/24", i+1), "dev", fmt.Sprint("r", i))
			r.command("ip", "address", "add", fmt.Sprintf("fd15:%d::2/64", i+1), "dev", fmt.Sprint("r", i), "nodad")
			r.command("ip", "link", "set", fmt.Sprint("r", i), "up")
		}
		r.start()
	})
	for i, name := range []string{"client", "server"} {
		r.within(name, func() {
			r.command("ip", "address", "add", fmt.Sprintf("10.215.%d.1/24", i+1), "dev", "e0")
			r.command("ip", "address", "add", fmt.Sprintf("fd15:%d::1/64", i+1), "dev", "e0", "nodad")
			r.command("ip", "link", "set", "e0", "up")
			r.command("ip", "route", "add", "default", "via", fmt.Sprintf("10.215.%d.2", i+1))
			r.command("ip", "-6", "route", "add", "default", "via", fmt.Sprintf("fd15:%d::2", i+1))
		})
	}
	return r
}

// start starts a process in the namespace of the calling thread.
func (r *router) start() {
	r.process = exec.Command(os.Args[0])
	r.process.Env = append(os.Environ(), kerneltest.WorkloadVariable+"=idle")
	in, err := r.process.StdinPipe()
	if err != nil {
		r.t.Error(err)
		return
	}
	out, err := r.process.StdoutPipe()
	if err == nil {
		err = r.process.Start()
	}
	if err != nil {
		r.t.Error(err)
		return
	}
	r.in = in
	r.t.Cleanup(r.stop)
	out.Read(make([]byte, 8)) // it is ready
	var stat syscall.Stat_t
	if err := syscall.Stat(fmt.Sprintf("/proc/%d/ns/net", r.process.Process.Pid), &stat); err != nil {
		r.t.Error(err)
	}
	r.of = model.ForwardingNamespace{NetNS: uint32(stat.Ino), PID: r.process.Process.Pid}
}

// stop ends the process.
func (r *router) stop() {
	if r.in == nil {
		return
	}
	r.in.Close()
	r.in = nil
	if err := r.process.Wait(); err != nil {
		r.t.Error(err)
	}
}

func (r *router) command(name string, arguments ...string) {
	if out, err := exec.Command(name, arguments...).CombinedOutput(); err != nil {
		r.t.Errorf("%s %v: %v: %s", name, arguments, err, out)
	}
}

// within calls f in a namespace.
func (r *router) within(name string, f func()) {
	r.t.Helper()
	file, err := os.Open("/run/netns/" + r.prefix + name)
	if err != nil {
		r.t.Fatal(err)
	}
	defer file.Close()
	if err := netns.Inside(file, func() error { f(); return nil }); err != nil {
		r.t.Fatal(err)
	}
	if r.t.Failed() {
		r.t.FailNow()
	}
}

// interfaces are how many interfaces of a namespace have programs.
func (p *Forward) interfaces(of uint32) int {
	p.reconciling.Lock()
	defer p.reconciling.Unlock()
	n := p.namespaces[of]
	if n == nil {
		return 0
	}
	return len(n.links)
}

// followed makes the module time the router's packets.
func (r *router) followed(p *Forward) {
	r.t.Helper()
	p.FollowForwarding([]model.ForwardingNamespace{r.of})
	kerneltest.Eventually(r.t, "both interfaces have programs", func() bool { return p.interfaces(r.of.NetNS) == 2 })
}

// counted is what was counted of the router.
func (r *router) counted(p *Forward) model.KernelForward {
	r.t.Helper()
	all := p.ReadForwarding()
	if len(all) != 1 || all[0].NetNS != r.of.NetNS {
		r.t.Fatalf("%+v was counted, want one namespace, %d", all, r.of.NetNS)
	}
	if all[0].Took == nil {
		all[0].Took = &model.Histogram{}
	}
	return all[0]
}

// stamped is how many packets were noted.
func (p *Forward) stamped(of uint32) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.namespaces[of].table.Entries[0].Stamped
}

// udpPair are sockets of the client and the server.
func (r *router) udpPair(address string) (client, server *net.UDPConn) {
	r.t.Helper()
	to, err := net.ResolveUDPAddr("udp", address)
	if err != nil {
		r.t.Fatal(err)
	}
	r.within("server", func() {
		if server, err = net.ListenUDP("udp", to); err != nil {
			r.t.Error(err)
		}
	})
	r.t.Cleanup(func() { server.Close() })
	r.within("client", func() {
		if client, err = net.DialUDP("udp", nil, to); err != nil {
			r.t.Error(err)
		}
	})
	r.t.Cleanup(func() { client.Close() })
	return client, server
}

// tcpPair is a connection of the client to the server.
func (r *router) tcpPair(address string) (client, server net.Conn) {
	r.t.Helper()
	var listener net.Listener
	var err error
	r.within("server", func() { listener = kerneltest.Listen(r.t, address) })
	defer listener.Close()
	r.within("client", func() {
		if client, err = net.Dial("tcp", listener.Addr().String()); err != nil {
			r.t.Error(err)
		}
	})
	if server, err = listener.Accept(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		client.Close()
		server.Close()
	})
	return client, server
}

// wire takes packets from one TUN device of the router to the other, after a while.
type wire struct {
	delay time.Duration
	mu    sync.Mutex
	// least is how long each packet with a payload of at least payload bytes was in it at least.
	least   []time.Duration
	payload int
}

// newWire leads everything that the router forwards through a program.
func (r *router) newWire(delay time.Duration, payload int) *wire {
	w := &wire{delay: delay, payload: payload}
	var devices [2]int
	r.within("router", func() {
		for i := range devices {
			name := fmt.Sprint("wire", i)
			devices[i] = openTUN(r.t, name)
			r.command("ip", "link", "set", name, "up")
			r.command("ip", "route", "add", "default", "dev", name, "table", fmt.Sprint(100+i))
			r.command("ip", "rule", "add", "iif", fmt.Sprint("r", i), "lookup", fmt.Sprint(100+i))
		}
	})
	stop := make(chan struct{})
	var done sync.WaitGroup
	for i := range devices {
		done.Go(func() { w.carry(devices[i], devices[1-i], stop) })
	}
	r.t.Cleanup(func() {
		close(stop)
		done.Wait()
		unix.Close(devices[0])
		unix.Close(devices[1])
	})
	return w
}

func openTUN(t *testing.T, name string) int {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Error(err)
		return -1
	}
	request, err := unix.NewIfreq(name)
	if err == nil {
		request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	}
	if err != nil {
		t.Error(err)
	}
	return fd
}

func (w *wire) carry(from, to int, stop chan struct{}) {
	type packet struct {
		data []byte
		at   time.Time
	}
	var queue []packet
	buffer := make([]byte, 65536)
	for {
		select {
		case <-stop:
			return
		default:
		}
		wait := 10 * time.Millisecond
		if len(queue) > 0 {
			wait = max(0, time.Until(queue[0].at.Add(w.delay)))
		}
		ready := []unix.PollFd{{Fd: int32(from), Events: unix.POLLIN}}
		timeout := unix.NsecToTimespec(int64(wait))
		unix.Ppoll(ready, &timeout, nil)
		if n, err := unix.Read(from, buffer); err == nil {
			queue = append(queue, packet{slices.Clone(buffer[:n]), time.Now()})
		}
		for len(queue) > 0 && time.Since(queue[0].at) >= w.delay {
			p := queue[0]
			queue = queue[1:]
			took := time.Since(p.at)
			if len(p.data) >= 28+w.payload {
				w.mu.Lock()
				w.least = append(w.least, took)
				w.mu.Unlock()
			}
			for {
				if _, err := unix.Write(to, p.data); !errors.Is(err, unix.EAGAIN) {
					break
				}
			}
		}
	}
}

func (r *router) newTap(device string) (tap kerneltest.Tap) {
	r.t.Helper()
	r.within("router", func() {
		var err error
		if tap, err = kerneltest.OpenTap(r.t, device); err != nil {
			r.t.Error(err)
		}
	})
	return tap
}

// timesOf are when the numbered datagrams of exchange passed in a direction (PACKET_HOST or PACKET_OUTGOING), by their
// numbers.
func timesOf(t *testing.T, tap kerneltest.Tap, direction uint8, size int) map[uint64]time.Time {
	t.Helper()
	const headers = 28
	found := map[uint64]time.Time{}
	if err := tap.Each(direction, func(packet []byte, at time.Time) {
		if len(packet) == headers+size {
			found[binary.BigEndian.Uint64(packet[headers:])] = at
		}
	}); err != nil {
		t.Fatal(err)
	}
	return found
}
