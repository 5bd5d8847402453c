package net

import (
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"outsight/internal/kernel/host"
	"outsight/internal/model"
)

const edgeOverflow = 0

var (
	stateHook = host.NewHook("inet_sock_set_state", "tp_btf/inet_sock_set_state",
		"TCP connections: opened, closed, failed, who listens", true, "Linux 5.12 or later with BTF")
	stateTooHook = host.NewHook("inet_sock_set_state_too", "tp_btf/inet_sock_set_state (second)",
		"changes of TCP connections by packets that interrupt the first", false, "Linux 5.12 or later with BTF")
	retransmitHook = host.NewHook("tcp_retransmit_skb", "tp_btf/tcp_retransmit_skb",
		"retransmitted segments per edge", false, "Linux 5.12 or later with BTF")
	iterateHook = host.NewHook("open_sockets", "iter/task_file",
		"connections that were open before the start", false, "Linux 5.12 or later with BTF")
	sweepHook = host.NewHook("sweep_connections", "iter/bpf_sk_storage_map",
		"a reply is counted soon after its last byte, not only at the next request", false, "Linux 5.12 or later with BTF")
	meetingHook = host.NewHook("sweep_meetings", "iter/bpf_map_elem (TCP)",
		"room for the pairs of connections whose close was not told", false, "Linux 5.12 or later with BTF")
)

var edgeHooks = append([]host.Hook{stateHook, stateTooHook, retransmitHook, iterateHook, sweepHook, meetingHook,
	http2SweepHook, http2Hook}, dataWays[0]...)

// edgeReader reads what edges.bpf.c counts.
type edgeReader struct {
	// watched is how often the data hooks were attached.
	watched   uint32
	maps      *ebpf.Collection
	edges     *host.Table[edgesEdge]
	latency   host.Histograms
	pool      host.Histograms
	sweep     *link.Iter
	datagrams *datagramReader
	endpoints *endpointReader
	streams   streamReader
	quotas    *quotaReader
	capacity  int
	used      atomic.Uint64
	listeners atomic.Uint64
	places    []edgePlace
	// untoldCloses are those that sweeps have found.
	untoldCloses atomic.Uint64
	meetings     meetingReader
}

// edgePlace is what the reader remembers of one place in the edge table.
type edgePlace struct {
	latency host.CachedHistogram
	// pooled histograms, in the order of edge.histograms.
	pooled [3]host.CachedHistogram
	// key is what raw says.
	raw edgesEdgeKey
	key model.KernelEdgeKey
	// activity is a sum of all counters: it changes whenever the edge is used.
	activity uint64
	changed  time.Time
	// owner is gone: the edge may be given up at once.
	ownerless bool
	// sweep is what the last one found.
	sweep sweepFound
	// leaving edges are no longer found by new connections; freed at the next reading.
	leaving bool
}

const (
	// edgeIdleTime is how long an edge without open connections must have been silent before its
	// place is given to another, and only when the table is three quarters full.
	edgeIdleTime = time.Minute
	// crowdedIdleTime is that of an owner that has half of its quota, also for its endpoints.
	crowdedIdleTime = 15 * time.Second
	// edgeReserve: every so many places are of the reserve, as in edges.h.
	edgeReserve = 8
)

func (p *Net) openEdges(k *host.Kernel) error {
	spec, err := loadEdges()
	if err != nil {
		return fmt.Errorf("BUG: reading the embedded object: %w", err)
	}
	places := uint32(p.options.MaxEdges + 1)
	for name, entries := range map[string]uint32{
		"edges": places, "edge_latency": places, "histogram_pool": places, "free_histograms": places,
		"edge_of_key": places, "free_edges": places,
		"reserved_edges": places, "listeners": uint32(p.options.MaxListeners),
		"pairs": uint32(p.options.MaxConnections), "datagram_edges": places,
	} {
		spec.Maps[name].MaxEntries = entries
	}
	p.prepareStreams(spec)
	p.prepareFlows(spec)
	err = errors.Join(p.prepareQuotas(spec), p.prepareEndpoints(spec, places), p.prepareTLS(spec),
		spec.Variables["cgroup_subsys_index"].Set(k.Subsys), spec.Variables["jiffy_ns"].Set(k.JiffyNS), p.prepareLog(spec),
		spec.Variables["host_netns"].Set(ownNamespace(p.options.ProcFS)))
	if err != nil {
		return fmt.Errorf("BUG: setting the object's constants: %w", err)
	}
	if p.options.Prepare != nil {
		p.options.Prepare(spec)
	}
	maps, err := host.NewMaps(spec, nil)
	if err != nil {
		err = fmt.Errorf("making the edges' maps: %w", err)
		for _, h := range edgeHooks {
			p.AddFeature(h, err)
		}
		return err
	}
	p.OnClose(host.CloserFunc(maps.Close))
	if err := errors.Join(p.readEdgesFrom(maps), p.openLog(maps)); err != nil {
		return err
	}
	// First the lifecycle, so that no connection is missed; then the sockets that are there
	// already, with their roles; then data, which needs the roles.
	errs := []error{p.Attach(k, spec, maps, stateHook), p.Attach(k, spec, maps, stateTooHook)}
	err = p.findOpenSockets(k, spec, maps)
	p.AddFeature(iterateHook, err)
	errs = append(errs, err, p.openDatagrams(k, spec, maps))
	errs = append(errs, p.attachData(k, spec, maps), p.Attach(k, spec, maps, retransmitHook))
	p.edges.sweep, err = p.OpenIterator(k, spec, maps, sweepHook, maps.Maps["connections"])
	p.AddFeature(sweepHook, err)
	errs = append(errs, err)
	p.edges.meetings.sweep, err = p.OpenIterator(k, spec, maps, meetingHook, maps.Maps["pairs"])
	p.AddFeature(meetingHook, err)
	return errors.Join(append(errs, err, p.openDatagramSweeps(k, spec, maps), p.openStreams(k, spec, maps),
		p.openTLS(k, maps))...)
}

func (p *Net) readEdgesFrom(maps *ebpf.Collection) error {
	r := &edgeReader{maps: maps, capacity: p.options.MaxEdges, quotas: newQuotaReader(maps, &p.options)}
	r.meetings = meetingReader{pairs: maps.Maps["pairs"], round: maps.Variables["meeting_round"],
		marking: maps.Variables["marks_meetings"], found: maps.Variables["meetings_found"]}
	var err error
	if r.edges, err = host.MapTable[edgesEdge](maps.Maps["edges"]); err != nil {
		return err
	}
	p.OnClose(r.edges)
	if r.endpoints, err = p.openEndpoints(maps); err != nil {
		return err
	}
	r.latency.Cells = maps.Maps["edge_latency"]
	r.pool.Cells = maps.Maps["histogram_pool"]
	for place := uint32(1); place < r.pool.Cells.MaxEntries(); place++ {
		if err := maps.Maps["free_histograms"].Update(nil, place, ebpf.UpdateAny); err != nil {
			return fmt.Errorf("filling the list of free histograms: %w", err)
		}
	}
	r.places = make([]edgePlace, len(r.edges.Entries))
	for place := edgeOverflow + 1; place < len(r.edges.Entries); place++ {
		if err := r.free(uint32(place)); err != nil {
			return fmt.Errorf("filling the list of free edges: %w", err)
		}
	}
	p.edges = r
	return nil
}

// free puts a place on its list.
func (r *edgeReader) free(place uint32) error {
	list := "free_edges"
	if place%edgeReserve == 0 {
		list = "reserved_edges"
	}
	return r.maps.Maps[list].Update(nil, place, ebpf.UpdateAny)
}

// ownNamespace is the inode of this process's network namespace, which is the host's; 0 where it
// cannot be read.
func ownNamespace(procfs string) uint32 {
	info, err := os.Stat(filepath.Join(procfs, "self", "ns", "net"))
	if err != nil {
		return 0
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0
	}
	return uint32(stat.Ino)
}

// findOpenSockets runs the four passes of open_sockets; see edges.bpf.c.
func (p *Net) findOpenSockets(k *host.Kernel, spec *ebpf.CollectionSpec, maps *ebpf.Collection) error {
	iter, err := p.OpenIterator(k, spec, maps, iterateHook, nil)
	if err != nil {
		return err
	}
	for pass := uint32(1); pass <= 4; pass++ {
		if err := maps.Variables["iterator_pass"].Set(pass); err != nil {
			return fmt.Errorf("setting the pass: %w", err)
		}
		if err := host.Run(iter); err != nil {
			return fmt.Errorf("looking for open sockets, pass %d: %w", pass, err)
		}
	}
	return nil
}

// ReadEdges reads the counters of all edges. Replies that have been silent for a second are
// counted first, without waiting for the connection's next request.
func (p *Net) ReadEdges() ([]model.KernelEdge, error) {
	r := p.edges
	if r == nil {
		return nil, errors.New("reading edges: no kernel program counts them")
	}
	sweepError := r.sweepConnections()
	sweepError = errors.Join(sweepError, r.datagrams.sweep(r.edges.Entries, r.quotas), r.streams.sweepStreams())
	now, used := time.Now(), uint64(0)
	r.quotas.begin(quotaEdges)
	r.quotas.begin(quotaEndpoints)
	endpoints := r.endpoints.read(now, r.quotas)
	all := make([]model.KernelEdge, 0, r.used.Load()+8)
	for place := range r.inUse() {
		k := r.read(place, now)
		k.Endpoints = endpoints[place]
		if place == edgeOverflow && r.places[place].activity == 0 {
			continue
		}
		if place != edgeOverflow {
			used++
			r.quotas.has(uint64(k.Key.Owner), quotaEdges)
		}
		all = append(all, k)
	}
	r.used.Store(used)
	quotaError := r.quotas.settle()
	r.release(now, int(used))
	return all, errors.Join(sweepError, quotaError)
}

// inUse are the places that hold an edge, the overflow's among them.
func (r *edgeReader) inUse() iter.Seq2[int, *edgesEdge] {
	return func(yield func(int, *edgesEdge) bool) {
		for place := range r.edges.Entries {
			edge := &r.edges.Entries[place]
			if (place == edgeOverflow || host.Load(&edge.Used) != 0) && !yield(place, edge) {
				return
			}
		}
	}
}

// sweepFound is the number of an edge's connections that were ever opened, that were closed, and
// that a sweep found open.
type sweepFound struct{ opens, closes, open uint64 }

// sweepConnections looks at every connection of this host. A close that nobody told (the kernel
// does not run a program that is already running on the CPU) shows there: connections are counted
// as open and are not found twice in a row, while nothing is opened or closed.
func (r *edgeReader) sweepConnections() error {
	if r.sweep == nil {
		return nil
	}
	for _, edge := range r.inUse() {
		atomic.StoreUint32(&edge.Open, 0)
	}
	marked, err := r.meetings.begin(time.Now())
	if err != nil {
		return fmt.Errorf("BUG: setting the round of the meetings: %w", err)
	}
	if err := host.Run(r.sweep); err != nil {
		return fmt.Errorf("counting silent replies: %w", err)
	}
	if marked {
		if err := r.meetings.end(); err != nil {
			return fmt.Errorf("taking meetings away: %w", err)
		}
	}
	for place, edge := range r.inUse() {
		memory := &r.places[place]
		found := sweepFound{host.Load(&edge.Opens), host.Load(&edge.Closes), uint64(atomic.LoadUint32(&edge.Open))}
		if found == memory.sweep && found.opens > found.closes+found.open {
			untold := found.opens - found.closes - found.open
			atomic.AddUint64(&edge.Closes, untold)
			r.untoldCloses.Add(untold)
		}
		memory.sweep = found
	}
	return nil
}

func (r *edgeReader) read(place int, now time.Time) model.KernelEdge {
	edge, memory := &r.edges.Entries[place], &r.places[place]
	if memory.raw != edge.Key {
		memory.raw, memory.key = edge.Key, keyOf(&edge.Key)
	}
	k := model.KernelEdge{Key: memory.key, Instance: uint32(place), PID: int(atomic.LoadUint32(&edge.Process)),
		Counters: model.EdgeCounters{
			SentBytes: host.Load(&edge.SentBytes), ReceivedBytes: host.Load(&edge.ReceivedBytes),
			UnseenBytes: host.Load(&edge.UnseenBytes),
			Opens:       host.Load(&edge.Opens), Closes: host.Load(&edge.Closes), Resets: host.Load(&edge.Resets),
			TimedOut: host.Load(&edge.Timeouts),
			Failures: host.Load(&edge.Failures), FailuresRefused: host.Load(&edge.FailuresRefused),
			FailuresTimedOut: host.Load(&edge.FailuresTimeout), FailuresUnreachable: host.Load(&edge.FailuresUnreachable),
			Retransmits: host.Load(&edge.Retransmits), Requests: host.Load(&edge.Requests), Replies: host.Load(&edge.Replies),
			Aborts: host.Load(&edge.Aborts), Transfers: host.Load(&edge.Transfers), Held: host.Load(&edge.Held),
			Continued: host.Load(&edge.Continued), Pushes: host.Load(&edge.Pushes), JitterSumNS: host.Load(&edge.JitterSumNs),
			WindowLimitedNS: host.Load(&edge.WindowLimitedNs), SendLimitedNS: host.Load(&edge.SendLimitedNs),
			RTTMinNS: host.Load(&edge.RttMinNs), Upgrades: host.Load(&edge.Upgrades),
			Lost: host.Load(&edge.Lost) + host.Load(&edge.LostReplies), LostWaiting: host.Load(&edge.Lost),
		}}
	k.Key.Overflow = place == edgeOverflow
	c, sum := &k.Counters, host.Load(&edge.LatencySumNs)
	c.Latency = memory.latency.Read(&r.latency, place, 1, sum, sum)
	c.TimeToFirstByte = r.readPooled(edge, memory, 0, host.Load(&edge.TtfbSumNs))
	c.RTT = r.readPooled(edge, memory, 1, host.Load(&edge.RttSumNs))
	c.Duration = r.readPooled(edge, memory, 2, host.Load(&edge.DurationSumNs))
	if memory.key.Transport == model.UDP {
		r.datagrams.complete(place, c)
	}
	activity := c.SentPackets + c.ReceivedPackets + c.SentBytes + c.ReceivedBytes + c.Opens + c.Closes + c.Failures +
		c.Retransmits + c.Requests + c.Pushes + c.Aborts + sum
	if activity != memory.activity || memory.changed.IsZero() {
		memory.activity, memory.changed = activity, now
	}
	return k
}

// readPooled reads a histogram that the edge may not have yet.
func (r *edgeReader) readPooled(edge *edgesEdge, memory *edgePlace, which int, sumNS uint64) *model.Histogram {
	place := atomic.LoadUint32(&edge.Histograms[which])
	if place == 0 || place >= r.pool.Cells.MaxEntries() {
		return nil
	}
	return memory.pooled[which].Read(&r.pool, int(place), 1, sumNS, sumNS)
}

func keyOf(k *edgesEdgeKey) model.KernelEdgeKey {
	client := netip.AddrFrom16(k.Client.Bytes).Unmap()
	if client == netip.IPv6Unspecified() {
		client = netip.Addr{}
	}
	var far netip.AddrPort
	if k.FarPort != 0 {
		far = netip.AddrPortFrom(netip.AddrFrom16(k.Far.Bytes).Unmap(), k.FarPort)
	}
	service := netip.AddrPortFrom(netip.AddrFrom16(k.Service.Bytes).Unmap(), k.Port)
	if k.Others != 0 {
		service = netip.AddrPort{}
	}
	return model.KernelEdgeKey{
		Others: k.Others != 0, Owner: model.CgroupID(k.Owner), Peer: model.CgroupID(k.Peer), NetNS: k.Netns,
		Role:      model.Role(k.Role),
		Transport: model.Transport(k.Transport),
		Service:   service, Client: client,
		Far: far, Process: processName(&k.Process), PeerProcess: processName(&k.PeerProcess), Forwarder: k.Forwarder == 1,
		Forwarded: k.Forwarder == 2,
	}
}

// processName ends at the first zero.
func processName(name *[16]int8) string {
	var text []byte
	for _, c := range name {
		if c == 0 {
			break
		}
		text = append(text, byte(c))
	}
	return string(text)
}

// release gives up edges that have no connections, in two steps a reading apart: first new
// connections no longer find the edge, then, if none found it meanwhile, its place is free.
func (r *edgeReader) release(now time.Time, used int) {
	full := used > r.capacity*3/4
	for place := edgeOverflow + 1; place < len(r.edges.Entries); place++ {
		edge, memory := &r.edges.Entries[place], &r.places[place]
		if host.Load(&edge.Used) == 0 {
			continue
		}
		idleTime, crowded := edgeIdleTime, r.quotas.crowded[quotaEdges][edge.Key.Owner]
		if crowded {
			idleTime = crowdedIdleTime
		}
		idle := host.Load(&edge.Opens) == host.Load(&edge.Closes) && now.Sub(memory.changed) > idleTime
		ownerless := memory.ownerless && host.Load(&edge.Opens) == host.Load(&edge.Closes) &&
			now.Sub(memory.changed) > 2*time.Second
		switch {
		case memory.leaving && host.Load(&edge.Opens) == host.Load(&edge.Closes):
			if err := r.emptyHistograms(place); err != nil {
				continue
			}
			r.endpoints.giveEdge(place)
			*memory = edgePlace{}
			recycle(edge)
			r.datagrams.free(place)
			_ = r.free(uint32(place)) // the list has a place for every edge
		case !memory.leaving && ((full || crowded) && idle || ownerless):
			key := edge.Key
			if err := r.maps.Maps["edge_of_key"].Delete(&key); err == nil || errors.Is(err, ebpf.ErrKeyNotExist) {
				memory.leaving = true
				r.datagrams.retire(place)
			}
		}
	}
}

// recycle empties a record. Its generation changes first, by which readers see that it is another's.
func recycle(edge *edgesEdge) {
	atomic.AddUint32(&edge.Generation, 1)
	clear(unsafe.Slice((*byte)(unsafe.Pointer(edge)), unsafe.Offsetof(edge.Generation)))
}

// emptyHistograms clears an edge's histograms and gives the pooled ones back.
func (r *edgeReader) emptyHistograms(place int) error {
	if err := r.latency.Clear(place, 1); err != nil {
		return err
	}
	for i, h := range r.edges.Entries[place].Histograms {
		if h == 0 {
			continue
		}
		if err := r.pool.Clear(int(h), 1); err != nil {
			return err
		}
		r.edges.Entries[place].Histograms[i] = 0
		_ = r.maps.Maps["free_histograms"].Update(nil, h, ebpf.UpdateAny) // it has a place for every one
	}
	return nil
}

// forget marks the edges of a removed control group.
func (r *edgeReader) forget(id model.CgroupID) {
	for place, edge := range r.inUse() {
		if edge.Key.Owner == uint64(id) {
			r.places[place].ownerless = true
		}
	}
	r.quotas.forget(id)
}

func (r *edgeReader) drops() []model.Drop {
	dropped := r.maps.Maps["edge_drops"]
	return append(append(r.datagrams.drops(dropped), r.endpoints.drops()...), []model.Drop{
		{Name: "edges", Count: host.SumDrops(dropped, 0), Capacity: uint64(r.capacity), Used: r.used.Load()},
		{Name: "edge_clients", Count: host.SumDrops(dropped, 1)},
		{Name: "connections", Count: host.SumDrops(dropped, 2)},
		{Name: "connection_pairs", Count: host.SumDrops(dropped, 3), Capacity: uint64(r.meetings.pairs.MaxEntries()),
			Used: r.meetings.used.Load()},
		{Name: "listeners", Count: host.SumDrops(dropped, 4), Capacity: uint64(r.maps.Maps["listeners"].MaxEntries()),
			Used: r.listeners.Load()},
		{Name: "untold_closes", Count: r.untoldCloses.Load()},
		{Name: "multipath_transfers", Count: host.SumDrops(dropped, 5)},
		{Name: "forwarded_clients", Count: host.SumDrops(dropped, 7)},
		{Name: "http2_streams", Count: host.SumDrops(dropped, 10),
			Capacity: uint64(r.maps.Maps["http2_streams"].MaxEntries())},
		{Name: "http2_connections", Count: host.SumDrops(dropped, 11)},
		{Name: "http2_paths", Count: host.SumDrops(dropped, 12), Capacity: uint64(r.maps.Maps["http2_paths"].MaxEntries())},
		{Name: "edge_histograms", Count: host.SumDrops(dropped, 6), Capacity: uint64(r.pool.Cells.MaxEntries() - 1)},
	}...)
}

// The readers of histograms know struct histogram by one name.
var _ [host.HistogramCells]uint64 = edgesHistogram{}.Cells
