package net

import (
	"bytes"
	"errors"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"

	"outsight/internal/kernel/host"
	"outsight/internal/model"
)

// otherName is what the kernel calls endpoints for which there is no room.
var otherName = append([]byte(model.OtherEndpoint), 0)

// architectures are those whose registers the programs can read.
var architectures = map[string]edgesCpuArchitecture{
	"amd64": edgesCpuArchitectureARCHITECTURE_AMD64, "arm64": edgesCpuArchitectureARCHITECTURE_ARM64,
}

// endpointReader reads what requests.h counts.
type endpointReader struct {
	objects   *edgeObjects
	free      freeIndexes
	endpoints *host.Table[edgesEndpoint]
	ofEdge    *host.Table[edgesEdgeEndpoints]
	latency   host.Histograms
	states    []endpointState
	used      atomic.Uint64
}

// endpointState is what the reader remembers of one endpoint.
type endpointState struct {
	entryUse
	raw     edgesEndpointKey
	key     model.EndpointKey
	latency host.CachedHistogram
}

// prepareEndpoints sizes the maps and sets the constants of requests.h.
func (p *Net) prepareEndpoints(spec *edgesSpecs) error {
	for _, m := range []*ebpf.MapSpec{spec.Endpoints, spec.EndpointLatency, spec.EndpointOfKey, spec.FreeEndpoints,
		spec.ReservedEndpoints} {
		m.MaxEntries = uint32(p.options.MaxEndpoints + 1)
	}
	architecture := architectures[runtime.GOARCH]
	if p.options.WithoutEndpoints {
		architecture = edgesCpuArchitectureARCHITECTURE_OTHER
	}
	return errors.Join(spec.Architecture.Set(architecture),
		spec.MaxEdgeEndpoints.Set(uint32(p.options.MaxEdgeEndpoints)))
}

func (p *Net) openEndpoints(objects *edgeObjects) (*endpointReader, error) {
	r := &endpointReader{objects: objects, free: freeIndexes{objects.FreeEndpoints, objects.ReservedEndpoints},
		latency: host.Histograms{Cells: objects.EndpointLatency}}
	var err error
	if r.endpoints, err = host.MapTable[edgesEndpoint](objects.Endpoints); err != nil {
		return nil, err
	}
	p.OnClose(r.endpoints)
	if r.ofEdge, err = host.MapTable[edgesEdgeEndpoints](objects.EdgeEndpoints); err != nil {
		return nil, err
	}
	p.OnClose(r.ofEdge)
	r.states = make([]endpointState, len(r.endpoints.Entries))
	for index := range r.endpoints.Entries {
		// Generation 0 is none: a target is never 0.
		atomic.StoreUint32(&r.endpoints.Entries[index].Generation, 1)
	}
	return r, r.free.fill(len(r.states))
}

// read is all endpoints, by the index of their edge.
func (r *endpointReader) read(now time.Time, quotas *quotaReader) map[int][]model.Endpoint {
	all, used := make(map[int][]model.Endpoint), uint64(0)
	for index := range r.endpoints.Entries {
		e, state := &r.endpoints.Entries[index], &r.states[index]
		if index == endpointOverflow || atomic.LoadUint32(&e.Used) == 0 {
			continue
		}
		used++
		if of := e.Key.Edge; int(of) < len(r.ofEdge.Entries) {
			quotas.has(host.Load(&r.ofEdge.Entries[of].Owner), edgesQuotaQUOTA_ENDPOINTS)
		}
		if state.raw != e.Key {
			state.raw, state.key = e.Key, endpointKey(&e.Key)
		}
		sum, aside := host.Load(&e.LatencySumNs), host.Load(&e.Aside)
		state.see(sum+aside, now)
		if state.activity == 0 {
			continue // asked for, and not yet answered
		}
		edge := int(state.raw.Edge)
		all[edge] = append(all[edge], model.Endpoint{
			EndpointKey: state.key, Aside: aside, Latency: state.latency.Read(&r.latency, index, 1, sum, sum),
		})
	}
	r.used.Store(used)
	r.release(now, int(used) > (len(r.states)-1)*3/4, quotas.crowded[edgesQuotaQUOTA_ENDPOINTS])
	return all
}

func endpointKey(k *edgesEndpointKey) model.EndpointKey {
	return model.EndpointKeyOf(k.Protocol, k.Status, k.Name[:])
}

// release gives up silent endpoints of a table that is nearly full and of crowded owners, in two steps a reading
// apart: first connections no longer find the endpoint, nor use it where they remember it;
// then, when no program that had found it before can still run, its index is free.
func (r *endpointReader) release(now time.Time, full bool, crowded map[uint64]bool) {
	for index := endpointOverflow + 1; index < len(r.states); index++ {
		state := &r.states[index]
		if state.leaving {
			r.give(index)
			continue
		}
		if state.changed.IsZero() {
			continue
		}
		after, mayLeave := idleTime, full
		if crowded[r.owner(index)] {
			mayLeave = true
			if state.activity > 0 { // else its first answer may take longer
				after = crowdedIdleTime
			}
		}
		if mayLeave && state.silentFor(after, now) {
			state.leaving = r.retire(index)
		}
	}
}

// owner is the group that counts an endpoint, 0 where that is not known.
func (r *endpointReader) owner(index int) uint64 {
	if of := r.endpoints.Entries[index].Key.Edge; int(of) < len(r.ofEdge.Entries) {
		return host.Load(&r.ofEdge.Entries[of].Owner)
	}
	return 0
}

func (r *endpointReader) retire(index int) bool {
	e := &r.endpoints.Entries[index]
	key := e.Key
	if err := r.objects.EndpointOfKey.Delete(&key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return false
	}
	if atomic.AddUint32(&e.Generation, 1) == 0 {
		atomic.AddUint32(&e.Generation, 1)
	}
	return true
}

// give empties an entry that was retired and frees its index. Where the kernel refuses it is
// tried again at the next reading.
func (r *endpointReader) give(index int) {
	if err := r.latency.Clear(index, 1); err != nil {
		return
	}
	e := &r.endpoints.Entries[index]
	if of := e.Key.Edge; int(of) < len(r.ofEdge.Entries) && !bytes.HasPrefix(e.Key.Name[:], otherName) {
		atomic.AddUint32(&r.ofEdge.Entries[of].Count, ^uint32(0))
	}
	e.Key = edgesEndpointKey{}
	atomic.StoreUint64(&e.LatencySumNs, 0)
	atomic.StoreUint64(&e.Aside, 0)
	atomic.StoreUint64(&e.Begun, 0)
	atomic.StoreUint32(&e.Used, 0)
	r.states[index] = endpointState{}
	_ = r.free.put(index) // the queue has room for every endpoint
}

// giveEdge gives up the endpoints of an edge that has no connections and is no longer found.
func (r *endpointReader) giveEdge(edge int) {
	for index := endpointOverflow + 1; index < len(r.states); index++ {
		e := &r.endpoints.Entries[index]
		if atomic.LoadUint32(&e.Used) != 0 && int(e.Key.Edge) == edge && r.retire(index) {
			r.give(index)
		}
	}
}
