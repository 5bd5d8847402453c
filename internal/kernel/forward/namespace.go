package forward

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"outsight/internal/kernel/host"
	"outsight/internal/model"
	"outsight/internal/netns"
)

const (
	// scanEvery is how often at most the interfaces of a namespace are listed.
	scanEvery = 5 * time.Second
	// maxInterfaces bounds those of one namespace to which programs are attached.
	maxInterfaces = 64
)

// namespace is a network namespace whose packets are timed.
type namespace struct {
	// cookie distinguishes it from others that have had the same inode.
	cookie   uint64
	instance uint64
	counts   *ebpf.Map
	links    map[int]attached
	scanned  time.Time

	// What follows is guarded by Forward.mu. pid is the process by which it was found to be this one.
	pid    int
	table  *host.Table[forwardForwarder]
	took   *model.Histogram
	levels levels
}

// attached are the programs at one interface.
type attached struct{ ingress, egress link.Link }

func (a attached) close() error { return errors.Join(a.ingress.Close(), a.egress.Close()) }

// gone reports whether the interface that the programs were attached to is.
func (a attached) gone() bool {
	info, err := a.ingress.Info()
	return err != nil || info.TCX() == nil || info.TCX().Ifindex == 0
}

// FollowForwarding says which network namespaces are to be timed from now on. It does not wait until they are.
func (p *Forward) FollowForwarding(wanted []model.ForwardingNamespace) {
	if p.egress == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wanted = slices.Clone(wanted)
	if p.closed || len(wanted) == 0 && len(p.namespaces) == 0 && p.wake == nil {
		return
	}
	if p.wake == nil {
		wake := make(chan struct{}, 1)
		p.wake = wake
		p.following.Go(func() {
			told := ""
			for range wake { // each second: what stays so is told once
				said := ""
				if err := p.reconcile(); err != nil {
					said = err.Error()
				}
				if said != told && said != "" {
					p.Logger.Warn("timing packets that containers forward", "error", said)
				}
				told = said
			}
		})
	}
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// setSuspended detaches everything, or attaches it again.
func (p *Forward) setSuspended(suspended bool) error {
	p.mu.Lock()
	p.suspended = suspended
	p.mu.Unlock()
	return p.reconcile()
}

// reconcile makes what is attached what is wanted. To attach to an interface takes the kernel some 20 ms.
func (p *Forward) reconcile() error {
	p.reconciling.Lock()
	defer p.reconciling.Unlock()
	p.mu.Lock()
	wanted, suspended := p.wanted, p.suspended
	p.mu.Unlock()
	is := make(map[uint32]bool, len(wanted))
	for _, w := range wanted {
		is[w.NetNS] = true
	}
	var errs []error
	for id, n := range p.namespaces { // changed by this goroutine alone
		if !is[id] {
			errs = append(errs, p.release(id, n))
		}
	}
	for id := range p.refusedNamespace {
		if !is[id] {
			delete(p.refusedNamespace, id)
		}
	}
	for _, w := range wanted {
		w.Idle = w.Idle || suspended
		errs = append(errs, p.follow(&w))
	}
	return errors.Join(errs...)
}

// follow attaches to the interfaces that are new in a namespace.
func (p *Forward) follow(w *model.ForwardingNamespace) error {
	n := p.namespaces[w.NetNS]
	switch {
	case n == nil && w.Idle:
		return nil
	case n == nil && len(p.namespaces) >= p.options.Max:
		if !p.refusedNamespace[w.NetNS] {
			p.refusedNamespace[w.NetNS] = true
			p.mu.Lock()
			p.refused++
			p.mu.Unlock()
		}
		return nil
	case n != nil && n.pid == w.PID && w.Idle:
		return n.detach()
	case n != nil && n.pid == w.PID && time.Since(n.scanned) < scanEvery && len(n.links) > 0:
		return nil
	}
	file, err := os.Open(filepath.Join(p.options.ProcFS, strconv.Itoa(w.PID), "ns", "net"))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return nil // it has ended: it will not be wanted any more
	}
	if err != nil {
		return fmt.Errorf("following a network namespace: %w", err)
	}
	defer file.Close()
	var stat unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &stat); err != nil || uint32(stat.Ino) != w.NetNS {
		return err // the process went elsewhere
	}
	return netns.Inside(file, func() error { return p.followInside(n, w) })
}

// followInside is in the namespace; n is what is known of its inode.
func (p *Forward) followInside(n *namespace, w *model.ForwardingNamespace) error {
	cookie, err := cookieOfNamespace()
	if err != nil {
		return err
	}
	if n != nil && n.cookie != cookie {
		if err := p.release(w.NetNS, n); err != nil {
			return err
		}
		n = nil
	}
	if w.Idle {
		if n != nil {
			p.mu.Lock()
			n.pid = w.PID
			p.mu.Unlock()
			return n.detach()
		}
		return nil
	}
	found, err := edges()
	if err != nil {
		return err
	}
	if n == nil {
		if n, err = p.add(w, cookie); err != nil {
			return err
		}
	}
	p.mu.Lock()
	n.pid = w.PID
	p.mu.Unlock()
	n.scanned = time.Now()
	var errs []error
	for index, a := range n.links {
		if !slices.Contains(found, index) || a.gone() {
			errs = append(errs, a.close())
			delete(n.links, index)
		}
	}
	for _, index := range found {
		if _, is := n.links[index]; !is && len(n.links) < maxInterfaces {
			errs = append(errs, p.attach(n, index))
		}
	}
	return errors.Join(errs...)
}

// cookieOfNamespace is a number of the current network namespace that no other one will have until a reboot.
func cookieOfNamespace() (uint64, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("making a socket: %w", err)
	}
	defer unix.Close(fd)
	cookie, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if err != nil {
		return 0, fmt.Errorf("reading the cookie of a network namespace: %w", err)
	}
	return cookie, nil
}

// attach attaches to an interface of the current namespace. One that has vanished meanwhile is no error.
func (p *Forward) attach(n *namespace, index int) error {
	// Egress first: what has come in before the ingress was there is in no count.
	egress, err := link.AttachTCX(link.TCXOptions{Interface: index, Program: p.egress, Attach: ebpf.AttachTCXEgress})
	if err == nil {
		var ingress link.Link
		ingress, err = link.AttachTCX(link.TCXOptions{Interface: index, Program: p.ingress, Attach: ebpf.AttachTCXIngress})
		if err == nil {
			n.links[index] = attached{ingress, egress}
			return nil
		}
		err = errors.Join(err, egress.Close())
	}
	if errors.Is(err, syscall.ENODEV) {
		return nil
	}
	return fmt.Errorf("attaching to interface %d: %w", index, err)
}

func (p *Forward) add(w *model.ForwardingNamespace, cookie uint64) (*namespace, error) {
	counts, err := ebpf.NewMap(p.inner.Copy())
	if err != nil {
		return nil, fmt.Errorf("making the map of a namespace that forwards: %w", err)
	}
	table, err := host.MapTable[forwardForwarder](counts)
	if err != nil {
		return nil, errors.Join(err, counts.Close())
	}
	p.lastInstance++
	n := &namespace{cookie: cookie, instance: p.lastInstance, counts: counts, table: table, links: make(map[int]attached)}
	n.setLevel(levelOf(w.PacketsPerSecond))
	if err := p.maps.Forwarders.Put(w.NetNS, counts); err != nil {
		return nil, errors.Join(fmt.Errorf("adding a namespace that forwards: %w", err), table.Close(), counts.Close())
	}
	p.mu.Lock()
	p.namespaces[w.NetNS] = n
	p.mu.Unlock()
	return n, nil
}

// detach leaves the counts.
func (n *namespace) detach() error {
	var errs []error
	for index, a := range n.links {
		errs = append(errs, a.close())
		delete(n.links, index)
	}
	return errors.Join(errs...)
}

// release forgets a namespace, which may be gone.
func (p *Forward) release(id uint32, n *namespace) error {
	errs := []error{n.detach()}
	if err := p.maps.Forwarders.Delete(id); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		errs = append(errs, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.namespaces, id)
	return errors.Join(append(errs, n.table.Close(), n.counts.Close())...)
}
