package region

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"outsight/internal/kernel/host"
	"outsight/internal/model"
	"outsight/internal/region/readwire"
)

// What Options are where they say nothing.
const (
	DefaultMaxReads   = 100_000
	DefaultMaxRegions = 256
)

// MaxRegionBytes bounds a region: the verifier follows no larger offsets.
const MaxRegionBytes = 256 << 20

// MaxKeys bounds the keys that are valid at a time.
const MaxKeys = 64

var (
	// ErrNoKeys says that nobody could ask.
	ErrNoKeys = errors.New("no keys are given")
	// ErrNobodyAllowed says that nobody may.
	ErrNobodyAllowed = errors.New("no client is allowed")
)

// Options of Open. Interface, Port, Keys and Allow are required.
type Options struct {
	// Interface is the name of a network interface in the network namespace of the calling thread. It must have
	// Ethernet's headers.
	Interface string
	// Port is that of UDP. Nothing else on the host gets packets to it at Addresses.
	Port uint16
	// Addresses are those of the host (default: the interface's own when it is opened).
	Addresses []netip.Addr
	// Hook is where packets are taken (default HookAuto).
	Hook Hook
	// MaxReads bounds authentic requests per second, of all clients together (default DefaultMaxReads). A hundredth of
	// it, but at least 64, may come at once.
	MaxReads int
	// MaxRegions is one above the highest id of a region (default DefaultMaxRegions).
	MaxRegions int
	// Keys are those of who may ask, Allow their addresses. SetKeys changes the keys.
	Keys  []readwire.Key
	Allow []netip.Prefix
}

// Counters are of requests to the responder's port and addresses, each of which is counted once. A packet may have several:
// of one that is not answered the first wrong request is counted, or all that are over the rate.
type Counters struct {
	// Reads were answered with Bytes of data.
	Reads, Bytes uint64
	// These got no answer: from an address that is not allowed; shorter than they say or than a header; not of this
	// version or no requests; with a key that is not known; with a wrong MAC; too many in a second; at an offset or
	// with a length that is not a multiple of what it must be; longer than they say or than is allowed; of memory that
	// could not be read.
	NotAllowed, Truncated, Malformed, UnknownKey, WrongMAC, OverRate, Misaligned, Oversized, Faults uint64
	// These were answered with a status: of a region that there is not, beyond the end of one.
	UnknownRegion, OutOfBounds uint64
}

// Responder answers for regions until it is closed, or its process ends: nothing stays behind. Its methods may be
// called at any time, also while it answers.
type Responder struct {
	hook     Hook
	refusals []error
	spec     *ebpf.CollectionSpec
	maps     *ebpf.Collection
	closers  []io.Closer
	program  *ebpf.Program

	// mu guards the regions and the keys that are set.
	mu      sync.Mutex
	regions map[uint32]bool
	keys    map[uint32]bool
}

// Open loads the programs and attaches them. No region is answered for until Add.
func Open(o Options) (*Responder, error) {
	if len(o.Keys) == 0 {
		return nil, ErrNoKeys
	}
	if len(o.Allow) == 0 {
		return nil, ErrNobodyAllowed
	}
	if o.Port == 0 {
		return nil, errors.New("no port is given")
	}
	var err error
	if o.Hook, err = ParseHook(string(cmp.Or(o.Hook, HookAuto))); err != nil {
		return nil, err
	}
	o.MaxReads = host.DefaultTo(o.MaxReads, DefaultMaxReads)
	o.MaxRegions = host.DefaultTo(o.MaxRegions, DefaultMaxRegions)
	device, err := net.InterfaceByName(o.Interface)
	if err != nil {
		return nil, fmt.Errorf("answering at interface %q: %w", o.Interface, err)
	}
	if err := hasEthernet(device); err != nil {
		return nil, err
	}
	if o.Addresses, err = addressesOf(o, device); err != nil {
		return nil, err
	}
	r := &Responder{regions: make(map[uint32]bool)}
	if err := r.attach(o, device); err != nil {
		return nil, err
	}
	return r, nil
}

func (r *Responder) makeMaps(o Options) error {
	var object regionSpecs
	spec, err := host.ReadSpec(loadRegion, &object)
	if err != nil {
		return err
	}
	object.Addresses.MaxEntries = uint32(len(o.Addresses))
	object.Allowed.MaxEntries = uint32(len(o.Allow))
	object.Keys.MaxEntries = MaxKeys
	object.Regions.MaxEntries = uint32(o.MaxRegions) + 1
	interval := uint64(time.Second) / uint64(o.MaxReads)
	err = errors.Join(object.Port.Set(bits.ReverseBytes16(o.Port)), object.IntervalNs.Set(interval),
		object.BurstNs.Set(interval*uint64(max(o.MaxReads/100, 64)-1)), object.NoRegion.Set(uint32(o.MaxRegions)))
	if err != nil {
		return fmt.Errorf("BUG: setting the object's constants: %w", err)
	}
	r.spec = spec
	// Each program has constants of its own.
	bare := spec.Copy()
	for name := range bare.Maps {
		if name == regionMapRegion || name[0] == '.' {
			delete(bare.Maps, name)
		}
	}
	bare.Variables = nil
	if r.maps, err = host.NewMaps(bare, nil); err != nil {
		return fmt.Errorf("making the responder's maps: %w", err)
	}
	r.closers = append(r.closers, host.CloserFunc(r.maps.Close))
	for _, a := range o.Addresses {
		if err := r.maps.Maps[regionMapAddresses].Put(a.As16(), uint8(1)); err != nil {
			return fmt.Errorf("answering at address %v: %w", a, err)
		}
	}
	for _, p := range o.Allow {
		if err := r.maps.Maps[regionMapAllowed].Put(prefixKey(p), uint8(1)); err != nil {
			return fmt.Errorf("allowing %v: %w", p, err)
		}
	}
	return nil
}

// prefixKey is a prefix as one of IPv6 addresses; that of the tree in the kernel.
func prefixKey(p netip.Prefix) (key [20]byte) {
	p = p.Masked()
	bits := p.Bits()
	if p.Addr().Is4() {
		bits += 96
	}
	binary.NativeEndian.PutUint32(key[:], uint32(bits))
	address := p.Addr().As16()
	copy(key[4:], address[:])
	return key
}

// addressesOf are those of an interface, unless they are given.
func addressesOf(o Options, device *net.Interface) ([]netip.Addr, error) {
	if len(o.Addresses) > 0 {
		return o.Addresses, nil
	}
	all, err := device.Addrs()
	if err != nil {
		return nil, fmt.Errorf("reading the addresses of interface %q: %w", o.Interface, err)
	}
	var addresses []netip.Addr
	for _, a := range all {
		if network, ok := a.(*net.IPNet); ok {
			if address, ok := netip.AddrFromSlice(network.IP); ok {
				addresses = append(addresses, address)
			}
		}
	}
	if len(addresses) == 0 {
		return nil, fmt.Errorf("interface %q has no address: say which the host has", o.Interface)
	}
	return addresses, nil
}

// Hook is where packets are taken, and Refusals are why it is none of those that would have been preferred.
func (r *Responder) Hook() Hook { return r.hook }

// Refusals are the reasons of the hooks that were tried before.
func (r *Responder) Refusals() []error { return slices.Clone(r.refusals) }

// SetKeys makes these keys the valid ones. Each is changed at once; those that stay are valid all the time.
func (r *Responder) SetKeys(keys []readwire.Key) error {
	if len(keys) == 0 {
		return ErrNoKeys
	}
	if len(keys) > MaxKeys {
		return fmt.Errorf("%d keys are given, at most %d are possible", len(keys), MaxKeys)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	of := r.maps.Maps[regionMapKeys]
	wanted := make(map[uint32]bool)
	for _, k := range keys {
		if wanted[uint32(k.ID)] {
			return fmt.Errorf("key %d is given twice", k.ID)
		}
		wanted[uint32(k.ID)] = true
	}
	for id := range r.keys {
		if wanted[id] {
			continue
		}
		if err := of.Delete(id); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("removing key %d: %w", id, err)
		}
		delete(r.keys, id)
	}
	for _, k := range keys {
		if err := of.Put(uint32(k.ID), k.Secret); err != nil {
			return fmt.Errorf("adding key %d: %w", k.ID, err)
		}
		r.keys[uint32(k.ID)] = true
	}
	return nil
}

// Add answers for a region with the memory of an array map that can be mapped (BPF_F_MMAPABLE): its entries, one after
// the other, each at a multiple of 8 bytes, and zeros up to a multiple of readwire.BlockBytes. The kernel keeps the
// map as long as somebody may read it.
func (r *Responder) Add(id uint32, m *ebpf.Map) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	regions := r.maps.Maps[regionMapRegions]
	switch {
	case id >= regions.MaxEntries()-1: // the last one answers for no region
		return fmt.Errorf("region %d is given, want less than %d", id, regions.MaxEntries()-1)
	case r.regions[id]:
		return fmt.Errorf("region %d is there already", id)
	case m.Type() != ebpf.Array || m.Flags()&unix.BPF_F_MMAPABLE == 0:
		return fmt.Errorf("region %d: %v is no array that can be mapped", id, m)
	}
	bytes := regionBytes(m)
	if bytes > MaxRegionBytes {
		return fmt.Errorf("region %d has %d bytes, at most %d are possible", id, bytes, MaxRegionBytes)
	}
	program, err := r.load(r.hook.answerProgram(), r.hook, id, m)
	if err != nil {
		return fmt.Errorf("loading the program of region %d: %w", id, err)
	}
	defer program.Close() // the map of programs keeps it, and it keeps its region's map
	if err := regions.Put(id, program); err != nil {
		return fmt.Errorf("adding region %d: %w", id, err)
	}
	r.regions[id] = true
	return nil
}

// regionBytes is the size of a map's memory, which is whole pages, up to a block's end.
func regionBytes(m *ebpf.Map) uint64 {
	entry := (uint64(m.ValueSize()) + 7) / 8 * 8
	return (entry*uint64(m.MaxEntries()) + readwire.BlockBytes - 1) / readwire.BlockBytes * readwire.BlockBytes
}

// Remove ends the answering for a region. Who asks for it later is told that there is none.
func (r *Responder) Remove(id uint32) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.regions[id] {
		return fmt.Errorf("there is no region %d", id)
	}
	if err := r.maps.Maps[regionMapRegions].Delete(id); err != nil {
		return fmt.Errorf("removing region %d: %w", id, err)
	}
	delete(r.regions, id)
	return nil
}

// Counters are those up to now.
func (r *Responder) Counters() (Counters, error) {
	var perCPU []regionReadCounters
	if err := r.maps.Maps[regionMapCounters].Lookup(uint32(0), &perCPU); err != nil {
		return Counters{}, fmt.Errorf("reading the responder's counters: %w", err)
	}
	var sum Counters
	for _, c := range perCPU {
		sum.Reads += c.Reads
		sum.Bytes += c.Bytes
		sum.NotAllowed += c.NotAllowed
		sum.Truncated += c.Truncated
		sum.Malformed += c.Malformed
		sum.UnknownKey += c.UnknownKey
		sum.WrongMAC += c.WrongMac
		sum.OverRate += c.OverRate
		sum.Misaligned += c.Misaligned
		sum.Oversized += c.Oversized
		sum.Faults += c.Faults
		sum.UnknownRegion += c.UnknownRegion
		sum.OutOfBounds += c.OutOfBounds
	}
	return sum, nil
}

// Cost is how often the program at the hook ran, for packets of all kinds, and for how long, the programs of regions
// included. Both stay 0 unless the kernel's statistics are on (host.EnableStatistics).
func (r *Responder) Cost() (model.ProgramCost, error) {
	stats, err := r.program.Stats()
	if err != nil {
		return model.ProgramCost{}, fmt.Errorf("reading what the responder costs: %w", err)
	}
	return model.ProgramCost{Name: "region/" + string(r.hook), Runs: stats.RunCount, Missed: stats.RecursionMisses,
		RunTimeNS: uint64(stats.Runtime)}, nil
}

// Close detaches and unloads everything.
func (r *Responder) Close() error {
	var errs []error
	for _, c := range slices.Backward(r.closers) {
		errs = append(errs, c.Close())
	}
	r.closers = nil
	return errors.Join(errs...)
}
