package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"outsight/internal/netns"
)

// ErrEnded says that a container ended while it was measured from or to.
var ErrEnded = errors.New("it ended while it was being measured")

// Place is where a measurement begins or ends. It must be closed.
type Place struct {
	// Name is what people call it, ID the container's; empty of an address.
	Name, ID string
	// Addresses that it has; of an address itself alone.
	Addresses []netip.Addr
	// process is a pidfd of a process in the place's network namespace; nil for an address of another host.
	process *os.File
}

// At makes a place of the network namespace that a process is in. The place closes the pidfd, which must be non-blocking.
func At(name string, process *os.File, addresses ...netip.Addr) *Place {
	return &Place{Name: name, Addresses: addresses, process: process}
}

// Address makes a place of an address that is not of this host.
func Address(a netip.Addr) *Place { return &Place{Name: a.String(), Addresses: []netip.Addr{a}} }

// Here reports whether sockets can be made at the place.
func (p *Place) Here() bool { return p.process != nil }

// Close gives up the process. Sockets that were made stay.
func (p *Place) Close() error {
	if p.process == nil {
		return nil
	}
	return p.process.Close()
}

// WithEnd is a context that ends, with ErrEnded as its cause, when the place's process does.
func (p *Place) WithEnd(ctx context.Context) (context.Context, context.CancelFunc) {
	if p.process == nil {
		return context.WithCancel(ctx)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	watch, err := p.awaitEnd()
	if err != nil {
		cancel(p.ended(err))
		return ctx, func() {}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if watch.wait() {
			cancel(p.ended(nil))
		}
	}()
	return ctx, func() {
		cancel(nil)
		watch.file.Close()
		<-done
	}
}

func (p *Place) ended(err error) error {
	if err == nil || errors.Is(err, syscall.ESRCH) || errors.Is(err, os.ErrClosed) {
		err = ErrEnded
	}
	return fmt.Errorf("%s: %w", p.Name, err)
}

// end waits for the end of a process.
type end struct{ file *os.File }

// awaitEnd makes a descriptor of its own, so that closing it ends the wait and nothing else.
func (p *Place) awaitEnd() (end, error) {
	raw, err := p.process.SyscallConn()
	if err != nil {
		return end{}, err
	}
	fd, dup := -1, error(nil)
	if err := raw.Control(func(process uintptr) {
		fd, dup = unix.FcntlInt(process, unix.F_DUPFD_CLOEXEC, 0)
	}); err != nil {
		return end{}, err
	}
	return end{os.NewFile(uintptr(fd), "pidfd")}, dup
}

// wait reports whether the process has ended; false is that the descriptor was closed before.
func (e end) wait() bool {
	raw, err := e.file.SyscallConn()
	return err == nil && raw.Read(endedProcess) == nil
}

func endedProcess(pidfd uintptr) bool {
	poll := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	n, err := unix.Poll(poll, 0)
	return err == nil && n == 1
}

// hasEnded reports whether the place's process is gone.
func (p *Place) hasEnded() (ended bool) {
	if p.process == nil {
		return false
	}
	raw, err := p.process.SyscallConn()
	if err != nil {
		return true
	}
	return raw.Control(func(fd uintptr) { ended = endedProcess(fd) }) != nil || ended
}

// inside calls f on a thread that is in the place's network namespace for the time being.
func (p *Place) inside(f func() error) error {
	if p.process == nil {
		return fmt.Errorf("%s is not on this host", p.Name)
	}
	err := netns.Inside(p.process, f)
	switch {
	case !errors.Is(err, netns.ErrNotEntered):
		return err
	case errors.Is(err, syscall.ESRCH), errors.Is(err, os.ErrClosed):
		return p.ended(err)
	}
	return fmt.Errorf("%s: %w", p.Name, err)
}

// listenUDP makes a UDP socket at the place, of the address's family.
func (p *Place) listenUDP(at netip.AddrPort) (c *net.UDPConn, err error) {
	network := "udp4"
	if at.Addr().Is6() {
		network = "udp6"
	}
	err = p.inside(func() (err error) {
		c, err = net.ListenUDP(network, net.UDPAddrFromAddrPort(at))
		return err
	})
	return c, err
}

// listenTCP makes a listener at the place.
func (p *Place) listenTCP(at netip.AddrPort) (l *net.TCPListener, err error) {
	err = p.inside(func() (err error) {
		l, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at))
		return err
	})
	return l, err
}

// listenICMP makes a raw socket of ICMP, of the family of to, that reports errors of the way.
func (p *Place) listenICMP(to netip.Addr) (c *net.IPConn, err error) {
	network, any := "ip4:icmp", net.IPv4zero
	if to.Is6() {
		network, any = "ip6:ipv6-icmp", net.IPv6unspecified
	}
	err = p.inside(func() (err error) {
		c, err = net.ListenIP(network, &net.IPAddr{IP: any})
		return err
	})
	return c, err
}

// source is the address from which the place sends to another: the kernel's own choice.
func (p *Place) source(to netip.Addr) (from netip.Addr, err error) {
	err = p.inside(func() error {
		c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, 9))) // nothing is sent
		if err != nil {
			return err
		}
		defer c.Close()
		from = c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
		return nil
	})
	return from, err
}

// way is where a measurement goes: of the addresses of to the one nearest to that from which it is asked.
func way(from, to *Place) (source, destination netip.Addr, err error) {
	nearest := -1
	var errs []error
	for _, a := range to.Addresses {
		if a.IsLinkLocalUnicast() && len(to.Addresses) > 1 {
			continue // it takes an interface, too
		}
		s, e := from.source(a)
		if errors.Is(e, ErrEnded) {
			return source, destination, e
		}
		if e != nil {
			errs = append(errs, e)
			continue
		}
		if common := commonBits(s, a); common > nearest {
			nearest, source, destination = common, s, a
		}
	}
	if nearest < 0 {
		if len(errs) == 0 {
			return source, destination, fmt.Errorf("%s has no address", to.Name)
		}
		return source, destination, fmt.Errorf("%s has no way to %s: %w", from.Name, to.Name, errors.Join(errs...))
	}
	return source, destination, nil
}

// commonBits is how many bits two addresses of a family share from the beginning on, of an IPv4 address as many as if it
// were as long as one of IPv6.
func commonBits(a, b netip.Addr) int {
	x, y, n := a.AsSlice(), b.AsSlice(), 0
	if len(x) != len(y) {
		return 0
	}
	for i := range x {
		if x[i] == y[i] {
			n += 8
			continue
		}
		for bit := 7; bit >= 0 && x[i]>>bit == y[i]>>bit; bit-- {
			n++
		}
		break
	}
	return n * 16 / len(x)
}
