package net

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"outsight/internal/kernel/host"
	"outsight/internal/model"
	"outsight/internal/netns"
)

const (
	// uplinksEvery is how often the host's interfaces are looked for.
	uplinksEvery = 10 * time.Second
	// maxUplinks bounds those to which programs are attached.
	maxUplinks = 16
)

// uplinkHooks are by the order in which they are attached: what has come in before is in no sample.
var uplinkHooks = [...]host.Hook{
	host.NewHook("packet_leaves_host", "tcx/egress (uplinks)",
		"the sender's stack and the wire apart, of packets between hosts", false, "Linux 6.6 or later with BTF and cgroup v2"),
	host.NewHook("packet_enters_host", "tcx/ingress (uplinks)",
		"the wire and the receiver's stack apart, of packets between hosts", false, "Linux 6.6 or later with BTF and cgroup v2"),
}

var uplinkTypes = [len(uplinkHooks)]ebpf.AttachType{ebpf.AttachTCXEgress, ebpf.AttachTCXIngress}

// uplinks attaches to the interfaces by which packets leave the host.
type uplinks struct {
	programs [len(uplinkHooks)]*ebpf.Program
	logger   *slog.Logger
	stop     chan struct{}
	done     sync.WaitGroup

	// follows is false in tests that say what is attached to.
	follows bool

	// mu guards what follows.
	mu        sync.Mutex
	links     map[int]uplink
	suspended bool
	// reason is why none is attached to.
	reason string
}

// uplink are the programs at an interface.
type uplink struct{ attached [len(uplinkHooks)]link.Link }

func (u *uplink) close() error {
	var errs []error
	for _, l := range u.attached {
		if l != nil {
			errs = append(errs, l.Close())
		}
	}
	return errors.Join(errs...)
}

// gone reports whether the interface that the programs were attached to is.
func (u *uplink) gone() bool {
	info, err := u.attached[0].Info()
	return err != nil || info.TCX() == nil || info.TCX().Ifindex == 0
}

// openUplinks prepares to attach to uplinks. Samples of packets are without what happens there where it fails.
func (p *Net) openUplinks(k *host.Kernel, spec *ebpf.CollectionSpec, objects *edgeObjects) error {
	if p.options.Packets == PacketsOff {
		for _, h := range uplinkHooks {
			p.TellOff(model.Feature{Name: h.Name, Purpose: h.Purpose}, "--packets=false")
		}
		return nil
	}
	u, err := p.loadUplinks(k, spec, objects)
	if err != nil {
		for _, h := range uplinkHooks {
			p.AddFeature(h, err)
		}
		return err
	}
	p.uplinks = u
	p.OnClose(u)
	if u.follows {
		u.done.Go(u.run)
	}
	return nil
}

func (p *Net) loadUplinks(k *host.Kernel, spec *ebpf.CollectionSpec, objects *edgeObjects) (*uplinks, error) {
	if p.slices == nil {
		return nil, errors.New("packets are not observed at sockets")
	}
	if err := host.HaveTCX(); err != nil {
		return nil, err
	}
	u := &uplinks{logger: p.Logger, stop: make(chan struct{}), links: map[int]uplink{},
		follows: p.options.Packets == PacketsInSlices}
	before := p.Loading
	p.Loading = "packets"
	defer func() { p.Loading = before }()
	for i, h := range uplinkHooks {
		var err error
		if u.programs[i], err = p.Load(k, spec, objects.collection, h); err != nil {
			return nil, &host.HookError{Name: h.Name, Cause: err}
		}
	}
	return u, nil
}

// Features tells of each program whether it works here.
func (p *Net) Features() []model.Feature {
	all := p.Loader.Features()
	if p.uplinks == nil {
		return all
	}
	reason := p.uplinks.whyNone()
	for _, h := range uplinkHooks {
		f := model.Feature{Name: h.Name, Purpose: h.Purpose, State: model.FeatureWorks}
		if reason != "" {
			f.State, f.Reason, f.Remedy = model.FeatureAbsent, reason, "an Ethernet interface, or a default route by a veth"
		}
		all = append(all, f)
	}
	return all
}

// run follows the host's uplinks until stop is closed. Where the kernel tells of no change since they were looked for
// without an error, they are the same: to list some dozens of interfaces takes 2 ms.
func (u *uplinks) run() {
	changes, err := netns.WatchChanges()
	if err != nil {
		u.logger.Debug("interfaces are listed though none has changed", "error", err)
	} else {
		defer changes.Close()
	}
	told, failed := "", true
	for {
		if failed || changes == nil || changes.Any() {
			said := ""
			if err := u.reconcile(); err != nil {
				said = err.Error()
			}
			if said != told && said != "" {
				u.logger.Warn("timing packets at uplinks", "error", said)
			}
			told, failed = said, said != ""
		}
		select {
		case <-u.stop:
			return
		case <-time.After(uplinksEvery):
		}
	}
}

// Close detaches from all.
func (u *uplinks) Close() error {
	close(u.stop)
	u.done.Wait()
	return u.setSuspended(true)
}

// setSuspended detaches from all, or attaches again.
func (u *uplinks) setSuspended(to bool) error {
	u.mu.Lock()
	u.suspended = to
	u.mu.Unlock()
	if !to && u.follows {
		return u.reconcile()
	}
	if to {
		return u.detach()
	}
	return nil
}

func (u *uplinks) detach() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	var errs []error
	for index, l := range u.links {
		errs = append(errs, l.close())
		delete(u.links, index)
	}
	return errors.Join(errs...)
}

// whyNone is empty where programs are attached, or are not meant to be.
func (u *uplinks) whyNone() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.reason
}

// reconcile attaches to the uplinks that are new, and forgets those that are gone. To attach takes the kernel some 20 ms.
func (u *uplinks) reconcile() error {
	found, err := findUplinks()
	if err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.suspended {
		return nil
	}
	var errs []error
	for index, l := range u.links {
		if !slices.ContainsFunc(found, func(f netns.Link) bool { return f.Index == index }) || l.gone() {
			errs = append(errs, l.close())
			delete(u.links, index)
		}
	}
	for _, f := range found {
		if _, is := u.links[f.Index]; !is && len(u.links) < maxUplinks {
			one, err := u.attach(f)
			if errs = append(errs, err); one != nil {
				u.links[f.Index] = *one
			}
		}
	}
	err = errors.Join(errs...)
	switch {
	case len(u.links) > 0:
		u.reason = ""
	case err != nil:
		u.reason = host.Refusal(err)
	default:
		u.reason = "no interface was found by which packets leave the host"
	}
	return err
}

// attach attaches to an interface of the current network namespace; nil where it has vanished.
func (u *uplinks) attach(to netns.Link) (*uplink, error) {
	one := &uplink{}
	for i, program := range u.programs {
		l, err := link.AttachTCX(link.TCXOptions{Interface: to.Index, Program: program, Attach: uplinkTypes[i]})
		if err != nil {
			err = errors.Join(err, one.close())
			if errors.Is(err, syscall.ENODEV) {
				return nil, nil
			}
			return nil, fmt.Errorf("attaching to %s: %w", to.Name, err)
		}
		one.attached[i] = l
	}
	return one, nil
}

// findUplinks are the interfaces of the current network namespace by which packets leave the host: those of hardware, also
// below bridges, bonds and VLANs; and where the host is itself a container, the veth by which its default route leads.
// Other virtual ones are on the way to them, or to containers.
func findUplinks() ([]netns.Link, error) {
	links, err := netns.Links()
	if err != nil {
		return nil, err
	}
	links = slices.DeleteFunc(links, func(l netns.Link) bool {
		return l.Loopback || !l.Ethernet || !l.Up || l.Virtual && (!l.Peered || l.Enslaved)
	})
	if !slices.ContainsFunc(links, func(l netns.Link) bool { return l.Virtual }) {
		return links, nil
	}
	byDefault, err := netns.DefaultRoutes()
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(links, func(l netns.Link) bool { return l.Virtual && !byDefault[l.Index] }), nil
}
