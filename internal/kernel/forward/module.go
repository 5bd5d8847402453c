// Package forward times packets on their way through network namespaces that forward.
package forward

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/cilium/ebpf"

	"outsight/internal/kernel/host"
	"outsight/internal/model"
	"outsight/internal/netns"
)

// DefaultMax bounds network namespaces where Options do not.
const DefaultMax = 64

const remedy = "Linux 6.6 or later with BTF, and CAP_SYS_ADMIN to enter network namespaces"

const purpose = "how long packets take through containers that forward"

var hooks = []host.Hook{
	host.NewHook(forwardProgPacketEnters, "tcx/ingress", purpose, false, remedy),
	host.NewHook(forwardProgPacketLeaves, "tcx/egress", purpose, false, remedy),
}

// Options of New. The zero value works.
type Options struct {
	// Max bounds the network namespaces that are timed (default DefaultMax, 136 KiB of kernel memory for each that forwards).
	Max int
	// ProcFS is where procfs is mounted (default /proc).
	ProcFS string
}

// Forward is the module. Where no namespace forwards, nothing is attached, and no goroutine runs.
type Forward struct {
	host.Loader
	options          Options
	maps             forwardMaps
	inner            *ebpf.MapSpec
	ingress, egress  *ebpf.Program
	wake             chan struct{}
	following        sync.WaitGroup
	reconciling      sync.Mutex // one at a time attaches and detaches; taken before mu
	lastInstance     uint64     // under reconciling
	refusedNamespace map[uint32]bool

	// mu guards everything below.
	mu         sync.Mutex
	wanted     []model.ForwardingNamespace
	namespaces map[uint32]*namespace
	refused    uint64
	// suspended: nothing is attached until it is not. closed: no more is attached.
	suspended, closed bool
}

// New makes the module.
func New(o Options) *Forward {
	o.Max = host.DefaultTo(o.Max, DefaultMax)
	o.ProcFS = cmp.Or(o.ProcFS, "/proc")
	return &Forward{Loader: host.NewLoader(), options: o, namespaces: make(map[uint32]*namespace),
		refusedNamespace: make(map[uint32]bool)}
}

// Hooks are what may be attached to, in each namespace that forwards.
func (p *Forward) Hooks() []host.Hook { return hooks }

// Open loads the programs. They are attached where FollowForwarding says.
func (p *Forward) Open(k *host.Kernel) error {
	p.Loading = "forwarding"
	err := p.tryOpen(k)
	for _, h := range hooks {
		p.AddFeature(h, err)
	}
	return err
}

func (p *Forward) tryOpen(k *host.Kernel) error {
	if err := host.HaveTCX(); err != nil {
		return err
	}
	// Where the own namespace cannot be entered (CAP_SYS_ADMIN), others cannot.
	own, err := os.Open(filepath.Join(p.options.ProcFS, "self", "ns", "net"))
	if err != nil {
		return err
	}
	defer own.Close()
	if err := netns.Inside(own, func() error { return nil }); err != nil {
		return fmt.Errorf("it takes CAP_SYS_ADMIN: %v", err) // not %w: no other capability is to be told
	}
	var object forwardSpecs
	spec, err := host.ReadSpec(loadForward, &object)
	if err != nil {
		return err
	}
	object.Forwarders.MaxEntries = uint32(p.options.Max)
	p.inner = object.Forwarders.InnerMap
	maps, err := host.NewMaps(spec, nil, &p.maps)
	if err != nil {
		return fmt.Errorf("making the maps of namespaces that forward: %w", err)
	}
	p.OnClose(host.CloserFunc(maps.Close))
	if p.ingress, err = p.Load(k, spec, maps, hooks[0]); err != nil {
		return err
	}
	p.egress, err = p.Load(k, spec, maps, hooks[1])
	return err
}

// Parts of the module.
func (p *Forward) Parts() []host.Part {
	return []host.Part{{Rank: 3, Part: model.Part{Name: "forwarding", Purpose: purpose}, Always: p.egress != nil,
		Detached: p.suspend, Attaching: p.resume, Pausing: p.suspend, Resuming: p.resume}}
}

// Drops lists the bounded table.
func (p *Forward) Drops() []model.Drop {
	if p.egress == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return []model.Drop{{Name: "forwarders", Count: p.refused, Capacity: uint64(p.options.Max),
		Used: uint64(len(p.namespaces))}}
}

// Forget does nothing: network namespaces are not control groups.
func (p *Forward) Forget(model.CgroupID) {}

// Close detaches and unloads everything.
func (p *Forward) Close() error {
	p.mu.Lock()
	p.closed, p.wanted = true, nil
	if p.wake != nil {
		close(p.wake)
		p.wake = nil
	}
	p.mu.Unlock()
	p.following.Wait()
	return errors.Join(p.reconcile(), p.Loader.Close())
}

func (p *Forward) suspend() error { return p.setSuspended(true) }
func (p *Forward) resume() error  { return p.setSuspended(false) }
