package region

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"outsight/internal/kernel/kerneltest"
	"outsight/internal/netns"
	"outsight/internal/region/readwire"
)

const port = 7117

// pair are two network namespaces with a wire between them.
//
//	client 10.216.1.1, fd16:1::1 e0 ── e0 10.216.1.2, fd16:1::2 host
type pair struct {
	t      *testing.T
	prefix string
}

var (
	hostAddresses   = []string{"10.216.1.2", "fd16:1::2"}
	clientAddresses = []string{"10.216.1.1", "fd16:1::1"}
	everybody       = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
)

func newPair(t *testing.T) *pair {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test needs root")
	}
	p := &pair{t: t, prefix: fmt.Sprintf("osread%d", os.Getpid())}
	for _, name := range []string{"client", "host"} {
		p.command("ip", "netns", "add", p.prefix+name)
		t.Cleanup(func() { exec.Command("ip", "netns", "del", p.prefix+name).Run() })
	}
	p.within("host", func() error {
		p.command("ip", "link", "add", "e0", "type", "veth", "peer", "name", "e0", "netns", p.prefix+"client")
		return nil
	})
	for i, name := range []string{"client", "host"} {
		p.within(name, func() error {
			p.command("ip", "address", "add", fmt.Sprintf("10.216.1.%d/24", i+1), "dev", "e0")
			p.command("ip", "address", "add", fmt.Sprintf("fd16:1::%d/64", i+1), "dev", "e0", "nodad")
			p.command("ip", "link", "set", "lo", "up")
			p.command("ip", "link", "set", "e0", "address", fmt.Sprintf("02:00:00:00:00:%02d", i+1), "up")
			// Nobody asks who has an address: an answer may be late.
			for _, address := range []string{"10.216.1.", "fd16:1::"} {
				p.command("ip", "neighbour", "replace", address+fmt.Sprint(2-i), "lladdr", fmt.Sprintf("02:00:00:00:00:%02d", 2-i),
					"dev", "e0", "nud", "permanent")
			}
			return nil
		})
	}
	return p
}

func (p *pair) command(name string, arguments ...string) {
	p.t.Helper()
	if out, err := exec.Command(name, arguments...).CombinedOutput(); err != nil {
		p.t.Errorf("%s %v: %v: %s", name, arguments, err, out)
	}
}

// within calls f in a namespace.
func (p *pair) within(name string, f func() error) {
	p.t.Helper()
	file, err := os.Open("/run/netns/" + p.prefix + name)
	if err != nil {
		p.t.Fatal(err)
	}
	defer file.Close()
	if err := netns.Inside(file, f); err != nil {
		p.t.Fatal(err)
	}
	if p.t.Failed() {
		p.t.FailNow()
	}
}

// open opens a responder in the namespace of the host, until the test ends.
func (p *pair) open(o Options) (r *Responder) {
	p.t.Helper()
	o.Interface, o.Port = "e0", port
	if o.Allow == nil {
		o.Allow = everybody
	}
	if o.Hook == HookNative {
		p.passAtClient()
	}
	if o.Hook == HookTCX {
		skipWithoutTCX(p.t)
	}
	p.within("host", func() (err error) {
		r, err = Open(o)
		return err
	})
	p.t.Cleanup(func() {
		if err := r.Close(); err != nil {
			p.t.Error(err)
		}
	})
	return r
}

// passAtClient attaches a program to the client's end: veth loses what a native program sends back unless there is one.
func (p *pair) passAtClient() {
	p.t.Helper()
	const pass = 2
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, pass), asm.Return()}})
	if err != nil {
		p.t.Fatal(err)
	}
	defer program.Close()
	p.within("client", func() error {
		device, err := net.InterfaceByName("e0")
		if err != nil {
			return err
		}
		attached, err := link.AttachXDP(link.XDPOptions{Interface: device.Index, Program: program,
			Flags: link.XDPDriverMode})
		if err != nil {
			return err
		}
		p.t.Cleanup(func() { attached.Close() })
		return nil
	})
}

// dial is a client in the namespace of the client, until the test ends.
func (p *pair) dial(address string, key readwire.Key, o readwire.Options) (c *readwire.Client) {
	p.t.Helper()
	if o.Timeout == 0 {
		o.Timeout = kerneltest.Patience() / 64 // doubled five times, it is about the patience
	}
	p.within("client", func() (err error) {
		c, err = readwire.Dial(net.JoinHostPort(address, fmt.Sprint(port)), key, o)
		return err
	})
	p.t.Cleanup(func() { c.Close() })
	return c
}

// skipWithoutTCX skips a test where the kernel is proved to be too old.
func skipWithoutTCX(t *testing.T) {
	t.Helper()
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}})
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	l, err := link.AttachTCX(link.TCXOptions{Interface: 1, Program: program, Attach: ebpf.AttachTCXIngress})
	if errors.Is(err, ebpf.ErrNotSupported) {
		t.Skip("the kernel is older than 6.6: it has no tcx")
	}
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
}

// newRegion is an array as the modules of the kernel side have them.
func newRegion(t *testing.T, valueBytes, entries uint32) *ebpf.Map {
	t.Helper()
	m, err := ebpf.NewMap(&ebpf.MapSpec{Name: "counted", Type: ebpf.Array, KeySize: 4, ValueSize: valueBytes,
		MaxEntries: entries, Flags: unix.BPF_F_MMAPABLE})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}
