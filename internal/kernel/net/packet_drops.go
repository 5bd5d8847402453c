package net

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"outsight/internal/kernel/host"
	"outsight/internal/model"
)

// DropFeature is the feature without which ReadPacketDrops has nothing.
const DropFeature = "tp_btf/kfree_skb"

// dropHook is where the kernel frees a packet that it does not deliver.
var dropHook = host.NewHook("kfree_skb", DropFeature, "packets that the kernel dropped, why and at which device", false,
	"Linux 5.17 or later with BTF")

var errNoReasons = errors.New("the kernel does not tell why it drops a packet")

// noLoss are the reasons, without their prefix, for which a packet is freed that nobody misses.
var noLoss = [...]string{
	// It was delivered, or used up by who received it.
	"NOT_DROPPED_YET", "CONSUMED", "TCP_RESET",
	// Its data had arrived before, or it says what is known already.
	"TCP_OLD_DATA", "TCP_OLD_SEQUENCE", "TCP_OFOMERGE", "TCP_OLD_ACK", "TCP_RFC7323_PAWS_ACK", "DUP_FRAG",
	// It was for somebody else, who has got a copy.
	"OTHERHOST", "UNICAST_IN_L2_MULTICAST", "IPV6_NDISC_NS_OTHERHOST",
	// It is multicast of a protocol that the device does not speak, as bridges flood it.
	"IPV6DISABLED",
	// It is a copy that a program refused, or that found no room at a packet socket (tcpdump).
	"SOCKET_FILTER", "PACKET_SOCK_ERROR",
	// Whose it was has closed the socket.
	"QUEUE_PURGE", "SOCKET_CLOSE",
	// Where the kernel names no reason, it throws away what nobody wants: multicast of groups that nobody has joined, and
	// the queues of sockets and devices that are closed.
	"NOT_SPECIFIED",
}

// packetDropReader reads what the kernel dropped.
type packetDropReader struct {
	drops   *ebpf.Map
	reasons map[uint32]string // nil where they are not counted
	// states are what the reader remembers of entries, and used how many there are.
	states map[edgesPacketDropKey]*entryUse
	used   atomic.Uint64
}

// dropReasons are the names of the running kernel's enum skb_drop_reason, without their prefix, and whether it tells
// which socket was to receive a packet.
func dropReasons(k *host.Kernel) (names map[uint32]string, hasReceiver bool, err error) {
	spec, err := k.Types.Kernel()
	if err != nil {
		return nil, false, fmt.Errorf("reading the kernel's types: %w", err)
	}
	// The context, the packet, where it was freed, the reason (since 5.17), the receiving socket (since 6.11).
	arguments := host.TracepointArguments(spec, "kfree_skb")
	var enum *btf.Enum
	if arguments < 4 || spec.TypeByName("skb_drop_reason", &enum) != nil {
		return nil, false, errNoReasons
	}
	names = make(map[uint32]string, len(enum.Values))
	for _, v := range enum.Values {
		names[uint32(v.Value)] = strings.TrimPrefix(strings.TrimPrefix(v.Name, "SKB_DROP_REASON_"), "SKB_")
	}
	return names, arguments >= 5, nil
}

// preparePacketDrops sizes the table and says which reasons are no losses.
func (p *Net) preparePacketDrops(k *host.Kernel, spec *edgesSpecs) error {
	spec.PacketDrops.MaxEntries = uint32(p.options.MaxPacketDrops)
	reasons, hasReceiver, err := dropReasons(k)
	if err != nil {
		return nil // openPacketDrops tells it
	}
	var ignored [edgesPacketDropLimitPACKET_DROP_REASONS]bool
	for value, name := range reasons {
		if int(value) < len(ignored) {
			ignored[value] = slices.Contains(noLoss[:], name)
		}
	}
	return errors.Join(spec.NoLoss.Set(ignored), spec.DropHasReceiver.Set(hasReceiver))
}

func (p *Net) openPacketDrops(k *host.Kernel, spec *ebpf.CollectionSpec, objects *edgeObjects) error {
	reasons, _, err := dropReasons(k)
	if err != nil {
		p.AddFeature(dropHook, err)
		return err
	}
	if err := p.Attach(k, spec, objects.collection, dropHook); err != nil {
		return err
	}
	p.edges.dropped.reasons = reasons
	return nil
}

// ReadPacketDrops reads the packets that the kernel dropped. Without the program there are none, and no error.
func (p *Net) ReadPacketDrops() ([]model.KernelPacketDrops, error) {
	if p.edges == nil || p.edges.dropped.reasons == nil {
		return nil, nil
	}
	return p.edges.dropped.read(time.Now())
}

func (r *packetDropReader) read(now time.Time) ([]model.KernelPacketDrops, error) {
	keys := make([]edgesPacketDropKey, 256)
	values := make([]edgesPacketDrop, len(keys))
	var cursor ebpf.MapBatchCursor
	var all []model.KernelPacketDrops
	seen := make(map[edgesPacketDropKey]*entryUse, len(r.states))
	for {
		n, err := r.drops.BatchLookup(&cursor, keys, values, nil)
		if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil, fmt.Errorf("reading dropped packets: %w", err)
		}
		for i := range n {
			use := r.states[keys[i]]
			if use == nil {
				use = &entryUse{}
			}
			use.see(values[i].Packets, now)
			seen[keys[i]] = use
			all = append(all, r.drop(&keys[i], &values[i]))
		}
		if err != nil {
			break
		}
	}
	r.states = seen
	r.used.Store(uint64(len(seen)))
	return all, r.evict(now)
}

func (r *packetDropReader) drop(key *edgesPacketDropKey, value *edgesPacketDrop) model.KernelPacketDrops {
	reason, known := r.reasons[key.Reason]
	if !known { // one of a subsystem with reasons of its own
		reason = fmt.Sprintf("0x%x", key.Reason)
	}
	return model.KernelPacketDrops{Owner: model.CgroupID(key.Owner), NetNS: key.Netns, Interface: key.Ifindex,
		Device: processName(&value.Device), Reason: reason, Packets: value.Packets}
}

// evict makes room when three quarters of the table are in use: of what has not grown for a while.
func (r *packetDropReader) evict(now time.Time) error {
	if len(r.states) <= int(r.drops.MaxEntries())*3/4 {
		return nil
	}
	var errs []error
	for key, use := range r.states {
		if use.silentFor(idleTime, now) {
			errs = append(errs, r.drops.Delete(key))
			delete(r.states, key)
		}
	}
	return errors.Join(errs...)
}

// forget gives up what a removed control group has.
func (r *packetDropReader) forget(id model.CgroupID) {
	for key := range r.states {
		if key.Owner == uint64(id) {
			_ = r.drops.Delete(key) // it may be gone already
			delete(r.states, key)
		}
	}
}
