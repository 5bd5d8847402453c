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

	"outsight/internal/kernel/host"
	"outsight/internal/model"
	"outsight/internal/monotonic"
)

var (
	stateHook = host.NewHook("inet_sock_set_state", "tp_btf/inet_sock_set_state",
		"TCP connections: opened, closed, failed, who listens", true, "Linux 5.12 or later with BTF")
	stateTooHook = host.NewHook("inet_sock_set_state_too", "tp_btf/inet_sock_set_state (second)",
		"changes of TCP connections by packets that interrupt the first", false, "Linux 5.12 or later with BTF")
	retransmitHook = host.NewHook("tcp_retransmit_skb", "tp_btf/tcp_retransmit_skb",
		"retransmitted segments per edge", false, "Linux 5.12 or later with BTF")
	iterateHook = host.NewHook("open_sockets", "iter/task_file",
		"connections that were open before the start", false, "Linux 5.12 or later with BTF")
	sweepConnections = newSweepWay("sweep_connections", "iter/bpf_sk_storage_map",
		"sweep_connection_files", "iter/task_file (sweep)",
		"a reply is counted soon after its last byte, not only at the next request", "Linux 5.12 or later with BTF")
	sweepPairs = newSweepWay("sweep_pairs", "iter/bpf_map_elem (TCP)", "sweep_all_pairs", "syscall (TCP)",
		"room for the pairs of connections whose close was not seen", "Linux 5.12 or later with BTF")
)

var edgeHooks = append([]host.Hook{stateHook, stateTooHook, retransmitHook, iterateHook,
	sweepConnections.iterator, sweepPairs.iterator, sweepStreams.iterator, http2Hook, dropHook}, dataWays[0]...)

// edgeReader reads what edges.bpf.c counts.
type edgeReader struct {
	// watched is how often the data hooks were attached.
	watched   uint32
	objects   *edgeObjects
	free      freeIndexes
	edges     *host.Table[edgesEdge]
	packets   *packetReader
	latency   host.Histograms
	pool      host.Histograms
	sweep     func() error
	sweeps    uint32
	datagrams *datagramReader
	endpoints *endpointReader
	streams   streamReader
	dropped   *packetDropReader
	proxies   *proxyReader
	quotas    *quotaReader
	capacity  int
	used      atomic.Uint64
	listeners atomic.Uint64
	// listenerKeys and listenerValues are memory for reading these.
	listenerKeys   [512]edgesListenerKey
	listenerValues [512]edgesListener
	states         []edgeState
	// missedCloses are those that sweeps have found.
	missedCloses atomic.Uint64
	pairs        pairReader
	sampleRound  uint32
	// answer and spare are memory of the last answer and of the one before.
	answer, spare []model.KernelEdge
}

// edgeState is what the reader remembers of one edge.
type edgeState struct {
	entryUse
	latency host.CachedHistogram
	// pooled histograms, in the order of edge.histograms.
	pooled [3]host.CachedHistogram
	// key is what raw says.
	raw edgesEdgeKey
	key model.KernelEdgeKey
	// ownerless edges have lost their control group, and may be given up at once.
	ownerless bool
	// sweep is what the last one found.
	sweep sweepFound
	// missed is how many of its closes no program saw.
	missed uint64
}

func (p *Net) openEdges(k *host.Kernel) error {
	spec, err := p.prepareEdges(k)
	if err != nil {
		return fmt.Errorf("BUG: preparing the embedded object: %w", err)
	}
	objects, err := makeEdgeObjects(spec)
	if err != nil {
		for _, h := range edgeHooks {
			p.AddFeature(h, err)
		}
		return err
	}
	maps := objects.collection
	p.OnClose(host.CloserFunc(maps.Close))
	if err := errors.Join(p.readEdgesFrom(objects, spec.Maps[edgesMapTimedProxies].InnerMap), p.openLog(objects)); err != nil {
		return err
	}
	// First the lifecycle, so that no connection is missed; then the sockets that are there
	// already, with their roles; then data, which needs the roles.
	errs := []error{p.Attach(k, spec, maps, stateHook), p.Attach(k, spec, maps, stateTooHook)}
	err = p.findOpenSockets(k, spec, objects)
	p.AddFeature(iterateHook, err)
	errs = append(errs, err, p.openDatagrams(k, spec, objects))
	errs = append(errs, p.attachData(k, spec, maps), p.Attach(k, spec, maps, retransmitHook))
	errs = append(errs, p.openPackets(k, spec, objects), p.openUplinks(k, spec, objects), p.openPacketDrops(k, spec, objects))
	p.edges.sweep, err = p.openSweep(k, spec, maps, sweepConnections, objects.Connections)
	errs = append(errs, err)
	p.edges.pairs.sweep, err = p.openSweep(k, spec, maps, sweepPairs, objects.Pairs)
	return errors.Join(append(errs, err, p.openDatagramSweeps(k, spec, objects), p.openStreams(k, spec, objects),
		p.openTLS(k, objects))...)
}

// prepareEdges sizes the object's maps and sets its constants.
func (p *Net) prepareEdges(k *host.Kernel) (*ebpf.CollectionSpec, error) {
	whole, err := loadEdges()
	if err != nil {
		return nil, err
	}
	var spec edgesSpecs
	if err := whole.Assign(&spec); err != nil {
		return nil, err
	}
	edges := uint32(p.options.MaxEdges + 1)
	for _, m := range []*ebpf.MapSpec{spec.Edges, spec.EdgeLatency, spec.EdgeOfKey, spec.FreeEdges, spec.ReservedEdges,
		spec.DatagramEdges, spec.PacketsOfEdge, spec.EdgeEndpoints} {
		m.MaxEntries = edges
	}
	// An edge takes up to four, most take fewer.
	pool := uint32(p.options.MaxEdges*4/3 + 1)
	spec.HistogramPool.MaxEntries, spec.FreeHistograms.MaxEntries = pool, pool
	spec.Listeners.MaxEntries = uint32(p.options.MaxListeners)
	spec.Pairs.MaxEntries = uint32(p.options.MaxConnections)
	p.prepareStreams(&spec)
	spec.TimedProxies.MaxEntries = uint32(p.options.MaxProxies + 1)
	p.prepareFlows(&spec)
	err = errors.Join(p.prepareQuotas(&spec), p.prepareEndpoints(&spec), p.prepareTLS(&spec), p.prepareLog(&spec),
		p.preparePacketDrops(k, &spec),
		spec.CgroupSubsysIndex.Set(k.Subsys), spec.JiffyNs.Set(k.JiffyNS),
		spec.HostNetns.Set(ownNamespace(p.options.ProcFS)), spec.CountsPackets.Set(flag(p.options.Packets != PacketsOff)),
		spec.SamplesLocalEdges.Set(flag(p.options.Packets == PacketsAll)))
	if err == nil && p.options.Prepare != nil {
		p.options.Prepare(whole)
	}
	return whole, err
}

// flag is a constant of the kernel's programs that is 0 or 1.
func flag(on bool) uint32 {
	if on {
		return 1
	}
	return 0
}

func (p *Net) readEdgesFrom(objects *edgeObjects, inner *ebpf.MapSpec) error {
	r := &edgeReader{objects: objects, capacity: p.options.MaxEdges, quotas: newQuotaReader(objects, &p.options),
		free:    freeIndexes{objects.FreeEdges, objects.ReservedEdges},
		dropped: &packetDropReader{drops: objects.PacketDrops},
		proxies: newProxyReader(&p.options, objects, inner),
		pairs:   pairReader{round: objects.PairRound, marking: objects.MarksPairs, found: objects.PairsFound}}
	var err error
	if r.edges, err = host.MapTable[edgesEdge](objects.Edges); err != nil {
		return err
	}
	p.OnClose(r.edges)
	if r.packets, err = p.openEdgePackets(objects); err != nil {
		return err
	}
	p.OnClose(r.proxies)
	if r.endpoints, err = p.openEndpoints(objects); err != nil {
		return err
	}
	r.latency.Cells = objects.EdgeLatency
	r.pool.Cells = objects.HistogramPool
	for index := uint32(1); index < r.pool.Cells.MaxEntries(); index++ {
		if err := objects.FreeHistograms.Update(nil, index, ebpf.UpdateAny); err != nil {
			return fmt.Errorf("filling the queue of free histograms: %w", err)
		}
	}
	r.states = make([]edgeState, len(r.edges.Entries))
	if err := r.free.fill(len(r.states)); err != nil {
		return err
	}
	p.edges = r
	return r.beginSamples(time.Now())
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
func (p *Net) findOpenSockets(k *host.Kernel, spec *ebpf.CollectionSpec, objects *edgeObjects) error {
	iter, err := p.OpenIterator(k, spec, objects.collection, iterateHook, nil)
	if err != nil {
		return err
	}
	for pass := uint32(1); pass <= 4; pass++ {
		if err := objects.IteratorPass.Set(pass); err != nil {
			return fmt.Errorf("setting the pass: %w", err)
		}
		if err := host.Run(iter); err != nil {
			return fmt.Errorf("looking for open sockets, pass %d: %w", pass, err)
		}
	}
	return nil
}

// keptAnswers is for how many edges more than there are memory is kept.
const keptAnswers = 1024

// ReadEdges reads the counters of all edges. Replies that have been silent for a second are
// counted first, without waiting for the connection's next request. The answer is the caller's until the reading after
// the next one.
func (p *Net) ReadEdges() ([]model.KernelEdge, error) {
	r := p.edges
	if r == nil {
		return nil, errors.New("reading edges: no kernel program counts them")
	}
	r.sweeps++
	sweepError := r.objects.SweepNumber.Set(r.sweeps)
	sweepError = errors.Join(sweepError, r.sweepConnections())
	sweepError = errors.Join(sweepError, r.datagrams.sweep(r.edges.Entries, r.quotas), r.streams.sweepStreams())
	now, used := time.Now(), uint64(0)
	sweepError = errors.Join(sweepError, r.beginSamples(now))
	r.quotas.begin(edgesQuotaQUOTA_EDGES)
	r.quotas.begin(edgesQuotaQUOTA_ENDPOINTS)
	endpoints := r.endpoints.read(now, r.quotas)
	r.packets.samples.take(r.packets.edges.Entries)
	ahead := monotonic.WallAhead()
	all := r.spare[:0]
	if before := int(r.used.Load()); all == nil || cap(all) > 2*before+keptAnswers {
		all = make([]model.KernelEdge, 0, before+8) // the first, or there were many more
	}
	for index := range r.inUse() {
		k := r.read(index, now)
		k.Endpoints = endpoints[index]
		k.PacketSamples = r.packets.samples.of(index, ahead)
		if index == edgeOverflow && r.states[index].activity == 0 {
			continue
		}
		if index != edgeOverflow {
			used++
			r.quotas.has(uint64(k.Key.Owner), edgesQuotaQUOTA_EDGES)
		}
		all = append(all, k)
	}
	clear(all[len(all):cap(all)]) // what ended is not kept
	r.answer, r.spare = all, r.answer
	proxyError := r.proxies.follow(now, all, r.edges.Entries)
	r.used.Store(used)
	quotaError := r.quotas.settle()
	r.release(now, int(used))
	return all, errors.Join(sweepError, quotaError, proxyError)
}

// inUse are the edges that there are, by their index, the overflow's among them.
func (r *edgeReader) inUse() iter.Seq2[int, *edgesEdge] {
	return func(yield func(int, *edgesEdge) bool) {
		for index := range r.edges.Entries {
			edge := &r.edges.Entries[index]
			if (index == edgeOverflow || host.Load(&edge.Used) != 0) && !yield(index, edge) {
				return
			}
		}
	}
}

// sweepFound is the number of an edge's connections that were ever opened, that were closed, and
// that a sweep found open.
type sweepFound struct{ opens, closes, open uint64 }

// sweepConnections looks at every connection of this host. A close that no program saw (the kernel
// does not run a program that is already running on the CPU) shows there: connections are counted
// as open and are not found twice in a row, while nothing is opened or closed.
func (r *edgeReader) sweepConnections() error {
	if r.sweep == nil {
		return nil
	}
	for _, edge := range r.inUse() {
		atomic.StoreUint32(&edge.Open, 0)
	}
	marked, err := r.pairs.begin(time.Now())
	if err != nil {
		return fmt.Errorf("BUG: setting the round of the pairs: %w", err)
	}
	if err := r.sweep(); err != nil {
		return fmt.Errorf("counting silent replies: %w", err)
	}
	if marked {
		if err := r.pairs.end(); err != nil {
			return fmt.Errorf("removing pairs: %w", err)
		}
	}
	for index, edge := range r.inUse() {
		state := &r.states[index]
		closes := host.Load(&edge.Closes) // first: what opens and closes meanwhile must not look closed twice
		found := sweepFound{host.Load(&edge.Opens), closes, uint64(atomic.LoadUint32(&edge.Open))}
		// What was taken for a missed close is closed at last: the sweep of files does not meet every connection.
		if twice := min(found.closes-min(found.closes, found.opens), state.missed); twice > 0 {
			atomic.AddUint64(&edge.Closes, -twice)
			state.missed -= twice
			r.missedCloses.Add(-twice)
			found.closes -= twice
		}
		if found == state.sweep && found.opens > found.closes+found.open {
			missed := found.opens - found.closes - found.open
			atomic.AddUint64(&edge.Closes, missed)
			state.missed += missed
			r.missedCloses.Add(missed)
		}
		state.sweep = found
	}
	return nil
}

func (r *edgeReader) read(index int, now time.Time) model.KernelEdge {
	edge, state := &r.edges.Entries[index], &r.states[index]
	if state.raw != edge.Key {
		state.raw, state.key = edge.Key, keyOf(&edge.Key)
	}
	k := model.KernelEdge{Key: state.key, Instance: uint32(index), PID: int(atomic.LoadUint32(&edge.Process)),
		Counters: model.EdgeCounters{
			SentBytes: host.Load(&edge.SentBytes), ReceivedBytes: host.Load(&edge.ReceivedBytes),
			UnseenBytes: host.Load(&edge.UnseenBytes),
			Opens:       host.Load(&edge.Opens), Closes: host.Load(&edge.Closes), Resets: host.Load(&edge.Resets),
			TimedOut: host.Load(&edge.Timeouts),
			Failures: host.Load(&edge.Failures), FailuresRefused: host.Load(&edge.FailuresRefused),
			FailuresTimedOut: host.Load(&edge.FailuresTimeout), FailuresUnreachable: host.Load(&edge.FailuresUnreachable),
			Retransmits: host.Load(&edge.Retransmits), Requests: host.Load(&edge.Requests), Replies: host.Load(&edge.Replies),
			Aborts: host.Load(&edge.Aborts), Transfers: host.Load(&edge.BulkTransfers), Held: host.Load(&edge.LongPolls),
			Continued: host.Load(&edge.Continued), Pushes: host.Load(&edge.Pushes), JitterSumNS: host.Load(&edge.JitterSumNs),
			WindowLimitedNS: host.Load(&edge.WindowLimitedNs), SendLimitedNS: host.Load(&edge.SendLimitedNs),
			RTTMinNS: host.Load(&edge.RttMinNs), Upgrades: host.Load(&edge.Upgrades),
			Lost: host.Load(&edge.Lost) + host.Load(&edge.LostReplies), LostWaiting: host.Load(&edge.Lost),
		}}
	k.Key.Overflow = index == edgeOverflow
	k.Connections = samplesOf(edge)
	c, sum := &k.Counters, host.Load(&edge.LatencySumNs)
	c.Latency = state.latency.Read(&r.latency, index, 1, sum, sum)
	c.TimeToFirstByte = r.readPooled(edge, state, 0, host.Load(&edge.TtfbSumNs))
	c.RTT = r.readPooled(edge, state, 1, host.Load(&edge.RttSumNs))
	c.Duration = r.readPooled(edge, state, 2, host.Load(&edge.DurationSumNs))
	if state.key.Transport == model.UDP {
		r.datagrams.complete(index, c)
	} else { // those that are still in flight were so at a moment
		k.MostInFlight, k.KnowsMost = max(uint64(atomic.SwapUint32(&edge.MostInFlight, 0)), c.InFlight()), true
	}
	r.packets.complete(index, &r.datagrams.edges.Entries[index], state.key.Transport, c, &r.pool)
	activity := c.SentPackets + c.ReceivedPackets + c.SentBytes + c.ReceivedBytes + c.Opens + c.Closes + c.Failures +
		c.Retransmits + c.Requests + c.Pushes + c.Aborts + sum
	state.see(activity, now)
	return k
}

// readPooled reads a histogram that the edge may not have yet.
func (r *edgeReader) readPooled(edge *edgesEdge, state *edgeState, which int, sumNS uint64) *model.Histogram {
	index := atomic.LoadUint32(&edge.Histograms[which])
	if index == 0 || index >= r.pool.Cells.MaxEntries() {
		return nil
	}
	return state.pooled[which].Read(&r.pool, int(index), 1, sumNS, sumNS)
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
// connections no longer find the edge, then, if none found it meanwhile, its index is free.
func (r *edgeReader) release(now time.Time, used int) {
	full := used > r.capacity*3/4
	for index := edgeOverflow + 1; index < len(r.edges.Entries); index++ {
		edge, state := &r.edges.Entries[index], &r.states[index]
		if host.Load(&edge.Used) == 0 {
			continue
		}
		after, mayLeave := idleTime, full
		if r.quotas.crowded[edgesQuotaQUOTA_EDGES][edge.Key.Owner] {
			after, mayLeave = crowdedIdleTime, true
		}
		mayLeave = mayLeave && state.silentFor(after, now) || state.ownerless && state.silentFor(2*time.Second, now)
		unused := host.Load(&edge.Opens) == host.Load(&edge.Closes)
		switch {
		case state.leaving && unused:
			if err := r.emptyHistograms(index); err != nil {
				continue
			}
			r.endpoints.giveEdge(index)
			*state = edgeState{}
			recycle(edge)
			r.datagrams.free(index)
			r.packets.free(index)
			_ = r.free.put(index) // the queue has room for every edge
		case !state.leaving && unused && mayLeave:
			key := edge.Key
			if err := r.objects.EdgeOfKey.Delete(&key); err == nil || errors.Is(err, ebpf.ErrKeyNotExist) {
				state.leaving = true
				r.datagrams.retire(index)
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
func (r *edgeReader) emptyHistograms(index int) error {
	if err := r.latency.Clear(index, 1); err != nil {
		return err
	}
	edge := &r.edges.Entries[index]
	for i := range edge.Histograms {
		if err := r.emptyHistogram(&edge.Histograms[i]); err != nil {
			return err
		}
	}
	return r.emptyHistogram(&r.packets.edges.Entries[index].DelayHistogram)
}

// emptyHistogram gives a pooled histogram back, if its place has one.
func (r *edgeReader) emptyHistogram(place *uint32) error {
	h := *place
	if h == 0 {
		return nil
	}
	if err := r.pool.Clear(int(h), 1); err != nil {
		return err
	}
	*place = 0
	_ = r.objects.FreeHistograms.Update(nil, h, ebpf.UpdateAny) // it has room for every one
	return nil
}

// forget marks the edges of a removed control group.
func (r *edgeReader) forget(id model.CgroupID) {
	for index, edge := range r.inUse() {
		if edge.Key.Owner == uint64(id) {
			r.states[index].ownerless = true
		}
	}
	r.quotas.forget(id)
}

// The readers of histograms know struct histogram by one name.
var _ [host.HistogramCells]uint64 = edgesHistogram{}.Cells
