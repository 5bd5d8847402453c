package agent

import (
	"cmp"
	"slices"
	"time"

	"outsight/internal/model"
)

// PacketDrops reports which packets the kernel dropped. It is called by the goroutine that reads the Counters.
type PacketDrops interface {
	ReadPacketDrops() ([]model.KernelPacketDrops, error)
}

// maxDropKinds bounds the pairs of a reason and a device of one container, or of the host, that are counted each by
// itself.
const maxDropKinds = 64

// packetDrops are what the kernel dropped of containers and of the host.
type packetDrops struct {
	// last are the packets of the kernel's entries at the last reading.
	last map[packetDropKey]uint64
	// of containers, by ID, and of all of the host. They do not go down when the kernel forgets an entry.
	of   map[string]*packetDropSums
	host *packetDropSums
}

type packetDropKey struct {
	owner          model.CgroupID
	netns, ifindex uint32
	reason         string
}

type dropKind struct{ reason, device string }

type packetDropSums struct {
	boundedSums[dropKind]
	// published is what was handed out last; nil when it has changed.
	published *model.PacketDropCounters
}

func newPacketDrops() *packetDrops {
	return &packetDrops{of: make(map[string]*packetDropSums), host: newPacketDropSums()}
}

func newPacketDropSums() *packetDropSums {
	return &packetDropSums{boundedSums: newBoundedSums[dropKind](maxDropKinds)}
}

func (p *packetDrops) update(now time.Time, read []model.KernelPacketDrops, lookup func(model.CgroupID) *model.Container,
	holder func(owner *model.Container, netns uint32) *model.Container) {
	last := make(map[packetDropKey]uint64, len(read))
	for _, r := range read {
		key := packetDropKey{r.Owner, r.NetNS, r.Interface, r.Reason}
		last[key] = r.Packets
		gained := r.Packets
		if before := p.last[key]; before <= gained { // else the kernel had forgotten it
			gained -= before
		}
		if gained == 0 {
			continue
		}
		kind := dropKind{r.Reason, r.Device}
		p.host.add(now, kind, gained)
		if c := holder(lookup(r.Owner), r.NetNS); c != nil {
			p.sumsOf(c.ID).add(now, kind, gained)
		}
	}
	p.last = last
}

func (p *packetDrops) sumsOf(id string) *packetDropSums {
	s := p.of[id]
	if s == nil {
		s = newPacketDropSums()
		p.of[id] = s
	}
	return s
}

func (s *packetDropSums) add(now time.Time, kind dropKind, n uint64) {
	if s.boundedSums.add(now, kind, n) {
		s.published = nil
	}
}

// counters are the sums in order of reason and device.
func (s *packetDropSums) counters() *model.PacketDropCounters {
	if s.published != nil {
		return s.published
	}
	c := &model.PacketDropCounters{By: make([]model.PacketDrops, 0, len(s.total))}
	for kind, n := range s.total {
		c.Packets += n
		reason := cmp.Or(kind.reason, model.OtherReasons)
		c.By = append(c.By, model.PacketDrops{Reason: reason, Device: kind.device, Packets: n})
	}
	slices.SortFunc(c.By, func(a, b model.PacketDrops) int {
		return cmp.Or(cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Device, b.Device))
	})
	s.published = c
	return c
}

// counters are those of a container.
func (p *packetDrops) counters(id string) *model.PacketDropCounters {
	if s := p.of[id]; s != nil {
		return s.counters()
	}
	return &model.PacketDropCounters{}
}

// keep forgets all other containers, but for what they may not have again before its time.
func (p *packetDrops) keep(now time.Time, containers []*model.Container) {
	present := make(map[string]bool, len(containers))
	for _, c := range containers {
		present[c.ID] = true
	}
	forgetGone(now, p.of, present)
}
