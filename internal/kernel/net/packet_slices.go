package net

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"outsight/internal/kernel/host"
	"outsight/internal/model"
)

// PacketMode is what is found out about packets.
type PacketMode int

const (
	// PacketsOff counts no packets.
	PacketsOff PacketMode = iota
	// PacketsInSlices counts all, and observes the order and the delay of those in slices of time.
	PacketsInSlices
	// PacketsAll observes all, and samples also those within the host. It is for tests and benchmarks.
	PacketsAll
)

var (
	packetHooks = [...]host.Hook{
		edgesPacketDirectionPACKET_SENT: host.NewHook("packet_sent", "cgroup_skb/egress",
			"packets on the way, in slices of time: when they were sent, for how long they took", false,
			"Linux 5.12 or later with BTF and cgroup v2"),
		edgesPacketDirectionPACKET_RECEIVED: host.NewHook("packet_received", "cgroup_skb/ingress",
			"packets on the way, in slices of time: their order and their delay", false,
			"Linux 5.12 or later with BTF and cgroup v2"),
	}
	packetTypes = [...]ebpf.AttachType{ebpf.AttachCGroupInetEgress, ebpf.AttachCGroupInetIngress}
)

const (
	// slicePeriod is from the beginning of one slice of time to that of the next: they begin with the seconds of the wall
	// clock, so that two hosts observe the same packets.
	slicePeriod = time.Second
	// shortestSlice is the least. What takes longer than its second half may not be timed.
	shortestSlice = 20 * time.Millisecond
	// observedPerPeriod is how many packets in each direction one CPU observes in a period, at most: at half a
	// microsecond each, both directions take a thousandth of its time. Slices end when they are expected to be
	// reached.
	observedPerPeriod = 1000
	// fewPerPeriod is how many it is where the part many-packets is shed.
	fewPerPeriod = 100
)

// packetSlices attaches the hooks of packets for slices of time.
type packetSlices struct {
	slice, period, limit *ebpf.Variable
	hooks                *ebpf.Map
	logger               *slog.Logger
	stop                 chan struct{}
	done                 sync.WaitGroup
	periods              atomic.Uint32

	// mu guards what follows.
	mu          sync.Mutex
	attachments [len(packetHooks)]host.Attachment
	// wanted is that it is the time of a slice, and waiting that it is its second half; shed and paused are what keeps it
	// from being one.
	wanted, waiting, shed, paused bool
	slices                        uint32
}

// openPackets prepares to attach to the packets of all sockets: to both directions or to none, since one is compared
// with the other.
func (p *Net) openPackets(k *host.Kernel, spec *ebpf.CollectionSpec, objects *edgeObjects) error {
	if p.options.Packets == PacketsOff {
		for _, h := range packetHooks {
			p.TellOff(model.Feature{Name: h.Name, Purpose: h.Purpose}, "--packets=false")
		}
		return nil
	}
	s, err := p.loadPackets(k, spec, objects)
	for _, h := range packetHooks {
		p.AddFeature(h, err)
	}
	if err != nil {
		return err
	}
	p.slices = s
	p.OnClose(s)
	if p.options.Packets == PacketsInSlices {
		s.done.Go(s.run)
	}
	return nil
}

func (p *Net) loadPackets(k *host.Kernel, spec *ebpf.CollectionSpec, objects *edgeObjects) (*packetSlices, error) {
	s := &packetSlices{slice: objects.PacketSlice, period: objects.PacketPeriod, limit: objects.PacketLimit,
		hooks: objects.PacketHooks, logger: p.Logger, stop: make(chan struct{})}
	root, err := openCgroupRoot(p.options.ProcFS)
	if err != nil {
		return nil, err
	}
	p.OnClose(root)
	before := p.Loading
	p.Loading = "packets"
	defer func() { p.Loading = before }()
	for i, h := range packetHooks {
		program, err := p.LoadCounted(k, spec, objects.collection, h, func() uint64 { return s.runs(i) })
		if err != nil {
			return nil, &host.HookError{Name: h.Name, Cause: err}
		}
		s.attachments[i] = host.Attachment{Function: h.Program, Name: h.Name, Program: program,
			Attaching: attachTo(root, packetTypes[i])}
	}
	limit := uint32(observedPerPeriod)
	if p.options.Packets == PacketsAll {
		limit = ^uint32(0)
	}
	if err := s.setLimit(limit); err != nil {
		return nil, err
	}
	if err := s.set(&s.wanted, true); err != nil {
		return nil, errors.Join(err, s.set(&s.wanted, false))
	}
	return s, nil
}

func attachTo(group *os.File, t ebpf.AttachType) func(*ebpf.Program) (link.Link, error) {
	return func(program *ebpf.Program) (link.Link, error) {
		return link.AttachRawLink(link.RawLinkOptions{Target: int(group.Fd()), Program: program, Attach: t})
	}
}

// Close detaches the hooks.
func (s *packetSlices) Close() error {
	close(s.stop)
	s.done.Wait()
	return s.set(&s.wanted, false)
}

// setLimit changes how many packets in each direction one CPU observes in a period, at most. Slices are as long as before:
// to run and observe nothing costs less than to attach more often.
func (s *packetSlices) setLimit(packets uint32) error {
	if err := s.limit.Set(packets); err != nil {
		return fmt.Errorf("BUG: setting the limit of packets: %w", err)
	}
	return nil
}

// set changes one of the reasons for hooks to be attached or not, and attaches or detaches them: that of what is received
// first and last, so that what is sent while both are attached can be found there.
func (s *packetSlices) set(which *bool, to bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	*which = to
	sent, received := &s.attachments[edgesPacketDirectionPACKET_SENT], &s.attachments[edgesPacketDirectionPACKET_RECEIVED]
	on := s.wanted && !s.shed && !s.paused
	var errs []error
	if on && !received.Attached() {
		s.slices = max(s.slices+1, 1)
		errs = append(errs, s.slice.Set(s.slices), received.Again())
	}
	if sending := on && !s.waiting; sending && !sent.Attached() {
		errs = append(errs, sent.Again())
	} else if !sending {
		errs = append(errs, sent.Close())
	}
	if !on {
		errs = append(errs, received.Close(), s.slice.Set(uint32(0)))
	}
	return errors.Join(errs...)
}

// run makes slices until stop is closed. A slice begins with each period, and ends when the CPU with most packets is
// expected to have observed as many as it may: at the pace of the slice before. In its second half only packets that are
// received are observed, among them those that were sent in the first one. Where there are few packets a slice
// lasts for the whole period, and the hooks stay attached.
func (s *packetSlices) run() {
	length := shortestSlice
	wait := func(d time.Duration) bool {
		select {
		case <-s.stop:
			return false
		case <-time.After(d):
			return true
		}
	}
	set := func(which *bool, to bool) {
		if err := s.set(which, to); err != nil { // it is tried again in the next period
			s.logger.Warn("attaching to packets, or detaching, failed", "error", err)
		}
	}
	for before := s.perCPU(); ; {
		begun := time.Now()
		_ = s.period.Set(s.periods.Add(1)) // of memory that is mapped
		set(&s.wanted, true)
		if length < slicePeriod {
			if !wait(length / 2) {
				return
			}
			set(&s.waiting, true)
			if !wait(length - length/2) {
				return
			}
			set(&s.wanted, false)
			set(&s.waiting, false)
		} else if !wait(untilPeriod(begun, time.Now())) {
			return
		}
		after := s.perCPU()
		length = nextSlice(mostRuns(before, after), time.Since(begun))
		before = after
		if !wait(untilPeriod(begun, time.Now())) {
			return
		}
	}
}

// untilPeriod is how long it takes until the period after the one that has begun, which is never long: clocks may be set.
func untilPeriod(begun, now time.Time) time.Duration {
	return min(begun.Truncate(slicePeriod).Add(slicePeriod).Sub(now), slicePeriod)
}

// nextSlice is the length of the slice after one in which a hook ran so often on a CPU in that time.
func nextSlice(runs uint64, took time.Duration) time.Duration {
	if runs == 0 {
		return slicePeriod
	}
	return min(max(time.Duration(float64(took)*observedPerPeriod/float64(runs)), shortestSlice), slicePeriod)
}

// perCPU is how often each hook ran on each CPU.
func (s *packetSlices) perCPU() (runs [len(packetHooks)][]edgesPacketHook) {
	for i := range runs {
		_ = s.hooks.Lookup(uint32(i), &runs[i]) // an entry that is always there
	}
	return runs
}

// mostRuns is how often a hook ran on a CPU between two calls of perCPU, at most.
func mostRuns(before, after [len(packetHooks)][]edgesPacketHook) (most uint64) {
	for i := range after {
		for cpu := range min(len(before[i]), len(after[i])) {
			most = max(most, after[i][cpu].Runs-before[i][cpu].Runs)
		}
	}
	return most
}

// runs is how often a hook ran.
func (s *packetSlices) runs(hook int) (sum uint64) {
	for _, cpu := range s.perCPU()[hook] {
		sum += cpu.Runs
	}
	return sum
}

// givenUp tells whether no packet is to be observed for now.
func (s *packetSlices) givenUp() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shed || s.paused
}

// packetsParts are how packets are shed: first fewer are observed, then none. Their numbers go on: they are the kernel's.
func (p *Net) packetsParts() []host.Part {
	set := func(which *bool, to bool) func() error {
		return func() error {
			err := p.slices.set(which, to)
			if p.uplinks != nil {
				err = errors.Join(err, p.uplinks.setSuspended(p.slices.givenUp()))
			}
			return err
		}
	}
	s := p.slices
	return []host.Part{
		{Rank: 0, Part: model.Part{Name: "many-packets", Under: "packets",
			Purpose: "delay and order of more than 100 packets a second on one CPU"},
			Always:    p.options.Packets == PacketsInSlices,
			Detaching: func() error { return s.setLimit(fewPerPeriod) },
			Attached:  func() error { return s.setLimit(observedPerPeriod) }},
		{Rank: 3, Part: model.Part{Name: "packets", Purpose: "delay and order of packets on the way"}, Always: true,
			Detaching: set(&s.shed, true), Attached: set(&s.shed, false),
			Pausing: set(&s.paused, true), Resuming: set(&s.paused, false)},
	}
}
