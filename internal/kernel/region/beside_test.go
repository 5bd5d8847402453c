package region

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"outsight/internal/kernel/kerneltest"
	"outsight/internal/region/readwire"
)

// listener is a UDP socket of the host.
type listener struct{ *net.UDPConn }

func (p *pair) listen(address string) (l listener) {
	p.t.Helper()
	p.within("host", func() (err error) {
		l.UDPConn, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(address)))
		return err
	})
	p.t.Cleanup(func() { l.Close() })
	return l
}

// receives tells whether this datagram comes soon.
func (l listener) receives(t *testing.T, want []byte) bool {
	t.Helper()
	data := make([]byte, 65536)
	l.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	n, _, err := l.ReadFromUDP(data)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	return err == nil && bytes.Equal(data[:n], want)
}

// What is not for the responder's port and addresses comes to who it is for as it was, also while the responder answers.
func TestOtherPacketsPass(t *testing.T) {
	for _, hook := range allHooks {
		t.Run(string(hook), func(t *testing.T) {
			p := newPair(t)
			p.within("host", func() error {
				p.command("ip", "address", "add", "10.216.1.4/24", "dev", "e0", "noprefixroute")
				return nil
			})
			p.within("client", func() error {
				p.command("ip", "neighbour", "replace", "10.216.1.4", "lladdr", "02:00:00:00:00:02", "dev", "e0", "nud",
					"permanent")
				return nil
			})
			key := readwire.NewKey(1)
			addresses := []netip.Addr{netip.MustParseAddr(hostAddresses[0]), netip.MustParseAddr(hostAddresses[1])}
			r := p.open(Options{Hook: hook, Keys: []readwire.Key{key}, Addresses: addresses})
			if err := r.Add(0, newRegion(t, 8, 16)); err != nil {
				t.Fatal(err)
			}
			long := bytes.Repeat([]byte("long"), 1000)
			var reads uint64
			f := func(what, to string, data []byte) {
				t.Helper()
				server := p.listen(to)
				var conn net.Conn
				p.within("client", func() (err error) {
					conn, err = net.Dial("udp", to)
					return err
				})
				defer conn.Close()
				c := p.dial(hostAddresses[0], key, readwire.Options{})
				for range 20 {
					if err := c.Read(t.Context(), 0, 0, make([]byte, 128)); err != nil {
						t.Fatalf("%s: %v", what, err)
					}
					reads++
					if _, err := conn.Write(data); err != nil {
						t.Fatalf("%s: %v", what, err)
					}
					got := make([]byte, 65536)
					server.SetReadDeadline(time.Now().Add(kerneltest.Patience()))
					n, _, err := server.ReadFromUDP(got)
					if err != nil || !bytes.Equal(got[:n], data) {
						t.Fatalf("%s: %d bytes came, %v, want %d", what, n, err, len(data))
					}
				}
			}
			request := readwire.AppendRequest(nil, readwire.Request{Length: 128},
				netip.MustParseAddrPort("10.216.1.1:1"), key)
			f("a request to another port", fmt.Sprintf("10.216.1.2:%d", port+1), request)
			f("over IPv6", fmt.Sprintf("[fd16:1::2]:%d", port+1), request)
			f("a request to another address", fmt.Sprintf("10.216.1.4:%d", port), request)
			f("in fragments, to the responder's port", fmt.Sprintf("10.216.1.2:%d", port), long)
			f("over IPv6 in fragments, to the responder's port", fmt.Sprintf("[fd16:1::2]:%d", port), long)
			var tcp net.Listener
			p.within("host", func() (err error) {
				tcp, err = net.Listen("tcp", fmt.Sprintf("10.216.1.2:%d", port))
				return err
			})
			defer tcp.Close()
			go func() {
				conn, err := tcp.Accept()
				if err == nil {
					io.Copy(conn, conn)
					conn.Close()
				}
			}()
			var conn net.Conn
			p.within("client", func() (err error) {
				conn, err = net.Dial("tcp", tcp.Addr().String())
				return err
			})
			defer conn.Close()
			sent := bytes.Repeat(long, 100)
			go func() {
				conn.Write(sent)
				conn.(*net.TCPConn).CloseWrite()
			}()
			if got, err := io.ReadAll(conn); err != nil || !bytes.Equal(got, sent) {
				t.Errorf("over TCP to the responder's port, %d of %d bytes came back: %v", len(got), len(sent), err)
			}
			if n, err := r.Counters(); err != nil || n != (Counters{Reads: reads, Bytes: reads * 128}) {
				t.Errorf("counted %+v, %v, want %d reads alone", n, err, reads)
			}
		})
	}
}

// A request whose data lie outside the buffer's first piece is answered as any other.
func TestRequestInPieces(t *testing.T) {
	for _, hook := range allHooks {
		t.Run(string(hook), func(t *testing.T) {
			p := newPair(t)
			key := readwire.NewKey(1)
			r := p.open(Options{Hook: hook, Keys: []readwire.Key{key}})
			m := newRegion(t, 8, 128)
			if err := m.Put(uint32(127), uint64(0x2222)); err != nil {
				t.Fatal(err)
			}
			if err := r.Add(0, m); err != nil {
				t.Fatal(err)
			}
			for i := range hostAddresses {
				conn := p.socket(clientAddresses[i], hostAddresses[i])
				raw, err := conn.SyscallConn()
				if err != nil {
					t.Fatal(err)
				}
				request := readwire.AppendRequest(nil, readwire.Request{Length: 1024, Nonce: 9}, addressOf(conn), key)
				var sending error
				if err := raw.Control(func(fd uintptr) {
					if sending = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ZEROCOPY, 1); sending == nil {
						_, sending = unix.SendmsgN(int(fd), request, nil, nil, unix.MSG_ZEROCOPY)
					}
				}); err != nil || sending != nil {
					t.Fatal(err, sending)
				}
				answer := make([]byte, 2048)
				conn.SetReadDeadline(time.Now().Add(kerneltest.Patience()))
				n, err := conn.Read(answer)
				if err != nil {
					t.Fatalf("%s: %v", hostAddresses[i], err)
				}
				reply, err := readwire.DecodeReply(answer[:n])
				if err != nil || reply.Nonce != 9 || reply.Status != readwire.Done || reply.Data[1016] != 0x22 {
					t.Errorf("%s: the answer is %+v, %v", hostAddresses[i], reply, err)
				}
			}
		})
	}
}

// Where another program of XDP is, it stays, and tcx is taken.
func TestAnotherXDPProgram(t *testing.T) {
	t.Run("native", func(t *testing.T) { testAnotherXDPProgram(t, link.XDPDriverMode) })
	t.Run("generic", func(t *testing.T) { testAnotherXDPProgram(t, link.XDPGenericMode) })
}

func testAnotherXDPProgram(t *testing.T, flags link.XDPAttachFlags) {
	p := newPair(t)
	const pass = 2
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, pass), asm.Return()}})
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	key := readwire.NewKey(1)
	o := Options{Interface: "e0", Port: port, Keys: []readwire.Key{key}, Allow: everybody}
	p.within("host", func() error {
		device, err := net.InterfaceByName("e0")
		if err != nil {
			return err
		}
		other, err := link.AttachXDP(link.XDPOptions{Interface: device.Index, Program: program, Flags: flags})
		if err != nil {
			return err
		}
		p.t.Cleanup(func() { other.Close() })
		for _, o.Hook = range []Hook{HookNative, HookGeneric} {
			if _, err := Open(o); err == nil || !strings.Contains(err.Error(), "it has another XDP program") {
				t.Errorf("%s beside another: got %v", o.Hook, err)
			}
		}
		return nil
	})
	skipWithoutTCX(t)
	r := p.open(Options{Keys: o.Keys})
	if r.Hook() != HookTCX || len(r.Refusals()) != 2 {
		t.Errorf("it is attached as %s, after %v", r.Hook(), r.Refusals())
	}
	if err := r.Add(0, newRegion(t, 8, 16)); err != nil {
		t.Fatal(err)
	}
	c := p.dial(hostAddresses[0], key, readwire.Options{})
	if err := c.Read(t.Context(), 0, 0, make([]byte, 128)); err != nil {
		t.Error(err)
	}
}

// Options and regions that cannot be are refused with a reason.
func TestRefusals(t *testing.T) {
	p := newPair(t)
	key := readwire.NewKey(1)
	good := Options{Interface: "e0", Port: port, Keys: []readwire.Key{key}, Allow: everybody}
	f := func(what, want string, change func(*Options)) {
		t.Helper()
		o := good
		change(&o)
		p.within("host", func() error {
			if r, err := Open(o); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v, %v, want %q", what, r, err, want)
			}
			return nil
		})
	}
	f("no keys", ErrNoKeys.Error(), func(o *Options) { o.Keys = nil })
	f("nobody", ErrNobodyAllowed.Error(), func(o *Options) { o.Allow = nil })
	f("no port", "no port", func(o *Options) { o.Port = 0 })
	f("no interface", `interface "e7"`, func(o *Options) { o.Interface = "e7" })
	f("no hook", `hook is "xdp"`, func(o *Options) { o.Hook = "xdp" })
	f("a key twice", "key 1 is given twice", func(o *Options) { o.Keys = []readwire.Key{key, key} })
	f("many keys", "65 keys", func(o *Options) {
		for id := range uint16(MaxKeys) {
			o.Keys = append(o.Keys, readwire.NewKey(id+2))
		}
	})
	r := p.open(Options{Keys: good.Keys})
	m := newRegion(t, 8, 16)
	perCPU, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer perCPU.Close()
	plain, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	refused := func(what, want string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", what, err, want)
		}
	}
	if err := r.Add(DefaultMaxRegions-1, m); err != nil {
		t.Error(err)
	}
	refused("the same id", "is there already", r.Add(DefaultMaxRegions-1, m))
	refused("a high id", "want less than", r.Add(DefaultMaxRegions, m))
	refused("a per-CPU array", "no array that can be mapped", r.Add(0, perCPU))
	refused("an array that cannot be mapped", "no array that can be mapped", r.Add(0, plain))
	refused("a region that is not there", "there is no region", r.Remove(0))
	if err := r.Remove(DefaultMaxRegions - 1); err != nil {
		t.Error(err)
	}
	refused("the same once more", "there is no region", r.Remove(DefaultMaxRegions-1))
	refused("no keys", ErrNoKeys.Error(), r.SetKeys(nil))
}
