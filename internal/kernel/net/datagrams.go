package net

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"outsight/internal/kernel/host"
	"outsight/internal/model"
)

var (
	datagramPeerHooks = []host.Hook{
		host.NewHook("sendmsg_ipv4", "cgroup/sendmsg4", "UDP over IPv4: whom a socket without a connection sends to", false,
			"kernel 4.18 or later with cgroup v2"),
		host.NewHook("recvmsg_ipv4", "cgroup/recvmsg4",
			"UDP over IPv4: whom a socket without a connection receives from", false,
			"kernel 5.2 or later with cgroup v2"),
		host.NewHook("sendmsg_ipv6", "cgroup/sendmsg6", "UDP over IPv6: whom a socket without a connection sends to", false,
			"kernel 4.18 or later with cgroup v2"),
		host.NewHook("recvmsg_ipv6", "cgroup/recvmsg6",
			"UDP over IPv6: whom a socket without a connection receives from", false,
			"kernel 5.2 or later with cgroup v2"),
	}
	datagramPeerTypes = []ebpf.AttachType{ebpf.AttachCGroupUDP4Sendmsg, ebpf.AttachCGroupUDP4Recvmsg,
		ebpf.AttachCGroupUDP6Sendmsg, ebpf.AttachCGroupUDP6Recvmsg}
	datagramIterateHook = host.NewHook("open_datagram_sockets", "iter/task_file (UDP)",
		"who is the client of UDP sockets that were there before the start", false, "kernel 5.8 or later with BTF")
	datagramSweeps = []sweepWay{
		newSweepWay("sweep_datagram_sockets", "iter/bpf_sk_storage_map (UDP)",
			"sweep_datagram_files", "iter/task_file (UDP sweep)",
			"UDP requests without a reply, of sockets with one peer", "kernel 5.9 or later with BTF"),
		newSweepWay("sweep_datagram_flows", "iter/bpf_map_elem (UDP)", "sweep_all_datagram_flows", "syscall (UDP)",
			"UDP requests without a reply, of sockets with several peers", "kernel 5.9 or later with BTF"),
		newSweepWay("sweep_dns_queries", "iter/bpf_map_elem (DNS)", "sweep_all_dns_queries", "syscall (DNS)",
			"DNS queries without a reply", "kernel 5.9 or later with BTF"),
	}
)

// oneWayAfter is the number of unanswered requests after which an edge that never had a reply
// is one that has none: what follows is not unanswered but one-way.
const oneWayAfter = 16

// datagramReader reads what datagrams_path.h counts besides the edges.
type datagramReader struct {
	edges *host.Table[edgesDatagramEdge]
	// sweeps count the requests that wait for a reply; without all, none is known to be lost.
	sweeps []*datagramSweep
	// before has, of each edge, the requests that had begun before the sweep.
	before         []uint64
	states         []datagramState
	flows, queries *lruTable
}

// datagramState is what the reader remembers of one edge; all of it only grows.
type datagramState struct {
	// lost requests had no reply: unanswered or one-way.
	lost, unanswered, oneWay, requests uint64
}

// datagramSweep looks at all entries of maps. Of tables in which entries are evicted it counts them in found.
type datagramSweep struct {
	sweep func() error
	table *lruTable
	found *ebpf.Variable
	// made is how many entries had been made at the last sweep, and empty how many sweeps in a row found none
	// without another one having been made.
	made  uint64
	empty int
}

func (s *datagramSweep) run() error {
	if s.table == nil {
		return s.sweep()
	}
	made := s.table.made()
	if made != s.made {
		s.made, s.empty = made, 0
	}
	// An entry is counted a moment before or after it is made, which the second empty sweep covers.
	if s.empty > 1 {
		return nil
	}
	if err := s.found.Set(uint64(0)); err != nil {
		return err
	}
	if err := s.sweep(); err != nil {
		return err
	}
	var found uint64
	if err := s.found.Get(&found); err != nil {
		return err
	}
	s.table.look(made, found)
	if found == 0 {
		s.empty++
	} else {
		s.empty = 0
	}
	return nil
}

// prepareFlows sizes the tables in which entries are evicted, each with the one for control groups that have used up
// their quota of it: a quarter of both.
func (p *Net) prepareFlows(spec *edgesSpecs) {
	crowded := uint32(p.options.MaxFlows / 4)
	spec.CrowdedFlows.MaxEntries, spec.CrowdedQueries.MaxEntries = crowded, crowded
	spec.DatagramFlows.MaxEntries = uint32(p.options.MaxFlows) - crowded
	spec.DnsQueries.MaxEntries = uint32(p.options.MaxFlows) - crowded
}

func (p *Net) openDatagrams(k *host.Kernel, spec *ebpf.CollectionSpec, objects *edgeObjects) error {
	r := &datagramReader{
		flows:   newLRUTable(objects, edgesLruTableLRU_FLOWS, objects.DatagramFlows, objects.CrowdedFlows),
		queries: newLRUTable(objects, edgesLruTableLRU_QUERIES, objects.DnsQueries, objects.CrowdedQueries)}
	edges, err := host.MapTable[edgesDatagramEdge](objects.DatagramEdges)
	if err != nil {
		return err
	}
	r.edges = edges
	p.OnClose(r.edges)
	r.before, r.states = make([]uint64, len(r.edges.Entries)), make([]datagramState, len(r.edges.Entries))
	p.edges.datagrams = r
	iter, err := p.OpenIterator(k, spec, objects.collection, datagramIterateHook, nil)
	if err == nil {
		err = host.Run(iter)
	}
	p.AddFeature(datagramIterateHook, err)
	return errors.Join(err, p.openDatagramPeers(k, objects))
}

// openDatagramPeers shows the programs the peers of unconnected sockets.
func (p *Net) openDatagramPeers(k *host.Kernel, objects *edgeObjects) error {
	var names datagramsSpecs
	spec, err := loadDatagrams()
	if err == nil {
		err = spec.Assign(&names)
	}
	if err != nil {
		return fmt.Errorf("BUG: reading the embedded object: %w", err)
	}
	root, err := openCgroupRoot(p.options.ProcFS)
	if err == nil {
		defer root.Close()
	}
	// The object's only map is one of the edges'.
	shared := &ebpf.Collection{Maps: map[string]*ebpf.Map{names.DatagramSockets.Name: objects.DatagramSockets}}
	errs := []error{err}
	for i, h := range datagramPeerHooks {
		hookErr := err
		if hookErr == nil {
			hookErr = p.attachCgroup(k, spec, shared, h, root, datagramPeerTypes[i])
		}
		p.AddFeature(h, hookErr)
		errs = append(errs, hookErr)
	}
	return errors.Join(errs...)
}

func (p *Net) attachCgroup(k *host.Kernel, spec *ebpf.CollectionSpec, maps *ebpf.Collection, h host.Hook, root *os.File,
	t ebpf.AttachType) error {
	program, err := p.Load(k, spec, maps, h)
	if err != nil {
		return err
	}
	attached, err := link.AttachRawLink(link.RawLinkOptions{Target: int(root.Fd()), Program: program, Attach: t})
	if err != nil {
		return err
	}
	p.OnClose(attached)
	return nil
}

// rootInode is that of the root group of the hierarchy: a mount of another group, as a control
// group namespace has it, would show only a part of the host.
const rootInode = 1

// openCgroupRoot opens the root group of cgroup v2, which a v1 host has too, mounted or not.
func openCgroupRoot(procfs string) (*os.File, error) {
	path := filepath.Join(procfs, "self", "mountinfo")
	mounts, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("looking for cgroup v2: %w", err)
	}
	defer mounts.Close()
	for lines := bufio.NewScanner(mounts); lines.Scan(); {
		mount, kind, _ := strings.Cut(lines.Text(), " - ")
		fields := strings.Fields(mount)
		if !strings.HasPrefix(kind, "cgroup2 ") || len(fields) < 5 {
			continue
		}
		if root, err := os.Open(unescapeMount(fields[4])); err == nil {
			if isRootGroup(root) {
				return root, nil
			}
			root.Close()
		}
	}
	return mountCgroupRoot()
}

// mountCgroupRoot mounts cgroup v2 where nobody but the caller sees it.
func mountCgroupRoot() (*os.File, error) {
	context, err := unix.Fsopen("cgroup2", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("mounting cgroup v2 aside: %w", err)
	}
	defer unix.Close(context)
	if err := unix.FsconfigCreate(context); err != nil {
		return nil, fmt.Errorf("mounting cgroup v2 aside: %w", err)
	}
	mount, err := unix.Fsmount(context, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("mounting cgroup v2 aside: %w", err)
	}
	root := os.NewFile(uintptr(mount), "cgroup2")
	if !isRootGroup(root) {
		root.Close()
		return nil, errors.New("cgroup v2 is seen from a namespace that has only a part of it")
	}
	return root, nil
}

func isRootGroup(f *os.File) bool {
	var stat unix.Stat_t
	return unix.Fstat(int(f.Fd()), &stat) == nil && stat.Ino == rootInode
}

// unescapeMount undoes the octal escapes of mountinfo.
func unescapeMount(path string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(path)
}

// openDatagramSweeps must come after the data hooks are there, like openSweep.
func (p *Net) openDatagramSweeps(k *host.Kernel, spec *ebpf.CollectionSpec, objects *edgeObjects) error {
	var errs []error
	r := p.edges.datagrams
	sweeps := []*datagramSweep{{}, {table: r.flows, found: objects.FlowsFound},
		{table: r.queries, found: objects.QueriesFound}}
	over := [][]*ebpf.Map{{objects.DatagramSockets}, {objects.DatagramFlows, objects.CrowdedFlows},
		{objects.DnsQueries, objects.CrowdedQueries}}
	for i, sweep := range sweeps {
		var err error
		sweep.sweep, err = p.openSweep(k, spec, objects.collection, datagramSweeps[i], over[i]...)
		if err == nil {
			r.sweeps = append(r.sweeps, sweep)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// sweep lets the kernel count the requests that wait. What begins meanwhile is not in before, so
// that it cannot look lost.
func (r *datagramReader) sweep(edges []edgesEdge, quotas *quotaReader) error {
	for index := range edges {
		if edges[index].Key.Transport == uint8(edgesTransportTRANSPORT_UDP) {
			r.before[index] = host.Load(&edges[index].Requests)
			r.edges.Entries[index].Pending = 0
		}
	}
	var errs []error
	for i := range r.sweeps {
		if err := r.sweeps[i].run(); err != nil {
			errs = append(errs, fmt.Errorf("looking for UDP requests without a reply: %w", err))
		}
	}
	return errors.Join(append(errs, quotas.settleFlows())...)
}

// complete adds to c what only edges of UDP have.
func (r *datagramReader) complete(index int, c *model.EdgeCounters) {
	d, state := &r.edges.Entries[index], &r.states[index]
	c.SentPackets, c.ReceivedPackets = host.Load(&d.SentPackets), host.Load(&d.ReceivedPackets)
	pending := host.Load(&d.Pending)
	if ended := c.Replies + host.Load(&d.Streams) + pending; len(r.sweeps) == len(datagramSweeps) &&
		r.before[index] > ended {
		r.lose(state, c, r.before[index]-ended)
	}
	// Requests that were the beginning of a stream are none.
	state.requests = max(state.requests, c.Replies+state.unanswered+pending)
	c.Requests, c.Aborts, c.OneWay = state.requests, state.unanswered, host.Load(&d.OneWay)+state.oneWay
}

// lose counts requests without a reply.
func (r *datagramReader) lose(state *datagramState, c *model.EdgeCounters, lost uint64) {
	if lost <= state.lost {
		return
	}
	gained := lost - state.lost
	state.lost = lost
	unanswered := gained
	if c.Replies == 0 {
		unanswered = min(gained, oneWayAfter-min(state.unanswered, oneWayAfter))
	}
	state.unanswered += unanswered
	state.oneWay += gained - unanswered
}

// retire makes flows look for their edge again: this edge is about to be given up.
func (r *datagramReader) retire(index int) { r.edges.Entries[index].Generation++ }

// free empties an entry, but for its generation.
func (r *datagramReader) free(index int) {
	r.edges.Entries[index] = edgesDatagramEdge{Generation: r.edges.Entries[index].Generation}
	r.before[index], r.states[index] = 0, datagramState{}
}
