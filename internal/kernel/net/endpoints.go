package net

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"

	"outsight/internal/kernel/host"
	"outsight/internal/model"
)

const endpointOverflow = 0

// endpointIdleTime is how long an endpoint must have been silent before its place is given to
// another, and only when the table is three quarters full. An owner that has half of its quota has crowdedIdleTime.
const endpointIdleTime = time.Minute

// otherName is what the kernel calls endpoints for which there is no room.
var otherName = append([]byte(model.OtherEndpoint), 0)

// machines are the values of enum machine in requests.h.
var machines = map[string]uint32{"amd64": 1, "arm64": 2}

// protocols by their number in endpoints.h.
var protocols = map[uint8]model.Protocol{
	1: model.HTTP, 2: model.Redis, 3: model.PostgreSQL, 4: model.MySQL, 5: model.Kafka, 6: model.Memcached, 7: model.DNS,
	8: model.HTTP2, 9: model.GRPC,
}

// grpcStatuses are those of gRPC, by their number.
var grpcStatuses = [...]string{"ok", "cancelled", "unknown", "invalid_argument", "deadline_exceeded", "not_found",
	"already_exists",
	"permission_denied", "resource_exhausted", "failed_precondition", "aborted", "out_of_range", "unimplemented",
	"internal",
	"unavailable", "data_loss", "unauthenticated"}

// statusGRPC is where they begin in enum status of endpoints.h.
const statusGRPC = 32

// endpointReader reads what requests.h counts.
type endpointReader struct {
	maps      *ebpf.Collection
	endpoints *host.Table[edgesEndpoint]
	ofEdge    *host.Table[edgesEdgeEndpoints]
	latency   host.Histograms
	places    []endpointPlace
	used      atomic.Uint64
}

// endpointPlace is what the reader remembers of one place in the table.
type endpointPlace struct {
	raw     edgesEndpointKey
	key     model.EndpointKey
	latency host.CachedHistogram
	// activity changes whenever the endpoint is used.
	activity uint64
	changed  time.Time
	// leaving endpoints are no longer found; freed at the next reading.
	leaving bool
}

// prepareEndpoints sizes the maps and sets the constants of requests.h.
func (p *Net) prepareEndpoints(spec *ebpf.CollectionSpec, edges uint32) error {
	places := uint32(p.options.MaxEndpoints + 1)
	for _, name := range []string{"endpoints", "endpoint_latency", "endpoint_of_key", "free_endpoints",
		"reserved_endpoints"} {
		spec.Maps[name].MaxEntries = places
	}
	spec.Maps["edge_endpoints"].MaxEntries = edges
	machine := machines[runtime.GOARCH]
	if p.options.WithoutEndpoints {
		machine = 0
	}
	return errors.Join(spec.Variables["machine"].Set(machine),
		spec.Variables["max_edge_endpoints"].Set(uint32(p.options.MaxEdgeEndpoints)))
}

func (p *Net) openEndpoints(maps *ebpf.Collection) (*endpointReader, error) {
	r := &endpointReader{maps: maps, latency: host.Histograms{Cells: maps.Maps["endpoint_latency"]}}
	var err error
	if r.endpoints, err = host.MapTable[edgesEndpoint](maps.Maps["endpoints"]); err != nil {
		return nil, err
	}
	p.OnClose(r.endpoints)
	if r.ofEdge, err = host.MapTable[edgesEdgeEndpoints](maps.Maps["edge_endpoints"]); err != nil {
		return nil, err
	}
	p.OnClose(r.ofEdge)
	r.places = make([]endpointPlace, len(r.endpoints.Entries))
	for place := range r.endpoints.Entries {
		// Generation 0 is none: a target is never 0.
		atomic.StoreUint32(&r.endpoints.Entries[place].Generation, 1)
		if place == endpointOverflow {
			continue
		}
		if err := r.free(uint32(place)); err != nil {
			return nil, fmt.Errorf("filling the list of free endpoints: %w", err)
		}
	}
	return r, nil
}

// free puts a place on its list: every eighth is kept for endpoints called "other".
func (r *endpointReader) free(place uint32) error {
	list := "free_endpoints"
	if place%8 == 0 {
		list = "reserved_endpoints"
	}
	return r.maps.Maps[list].Update(nil, place, ebpf.UpdateAny)
}

// read is all endpoints, by the place of their edge.
func (r *endpointReader) read(now time.Time, quotas *quotaReader) map[int][]model.Endpoint {
	all, used := make(map[int][]model.Endpoint), uint64(0)
	for place := range r.endpoints.Entries {
		e, memory := &r.endpoints.Entries[place], &r.places[place]
		if place == endpointOverflow || atomic.LoadUint32(&e.Used) == 0 {
			continue
		}
		used++
		if of := e.Key.Edge; int(of) < len(r.ofEdge.Entries) {
			quotas.has(host.Load(&r.ofEdge.Entries[of].Owner), quotaEndpoints)
		}
		if memory.raw != e.Key {
			memory.raw, memory.key = e.Key, endpointKey(&e.Key)
		}
		sum, aside := host.Load(&e.LatencySumNs), host.Load(&e.Aside)
		if activity := sum + aside; activity != memory.activity || memory.changed.IsZero() {
			memory.activity, memory.changed = activity, now
		}
		if memory.activity == 0 {
			continue // asked for, and not yet answered
		}
		edge := int(memory.raw.Edge)
		all[edge] = append(all[edge], model.Endpoint{
			EndpointKey: memory.key, Aside: aside, Latency: memory.latency.Read(&r.latency, place, 1, sum, sum),
		})
	}
	r.used.Store(used)
	r.release(now, int(used) > (len(r.places)-1)*3/4, quotas.crowded[quotaEndpoints])
	return all
}

func endpointKey(k *edgesEndpointKey) model.EndpointKey {
	name, _, _ := bytes.Cut(k.Name[:], []byte{0})
	key := model.EndpointKey{Protocol: protocols[k.Protocol], Name: model.Printable(string(name), len(k.Name))}
	switch s := k.Status; {
	case s >= 1 && s <= 5:
		key.Status = strconv.Itoa(int(s)) + "xx"
	case s == 6:
		key.Status = "ok"
	case s == 7:
		key.Status = "error"
	case s == 8:
		key.Status = "101"
	case s >= statusRcode && s < statusRcode+16:
		key.Status = responseCode(s - statusRcode)
	case s >= statusGRPC && int(s-statusGRPC) < len(grpcStatuses):
		key.Status = grpcStatuses[s-statusGRPC]
	}
	return key
}

// release gives up silent endpoints of a table that is nearly full and of crowded owners, in two steps a reading
// apart: first connections no longer find the endpoint, nor use it where they remember it;
// then, when no program that had found it before can still run, its place is free.
func (r *endpointReader) release(now time.Time, full bool, crowded map[uint64]bool) {
	for place := endpointOverflow + 1; place < len(r.places); place++ {
		memory := &r.places[place]
		if memory.leaving {
			r.give(place)
			continue
		}
		if memory.changed.IsZero() {
			continue
		}
		idleTime, mayLeave := endpointIdleTime, full
		if crowded[r.owner(place)] {
			mayLeave = true
			if memory.activity > 0 { // else its first answer may take longer
				idleTime = crowdedIdleTime
			}
		}
		if mayLeave && now.Sub(memory.changed) > idleTime {
			memory.leaving = r.retire(place)
		}
	}
}

// owner is the group that counts an endpoint, 0 where that is not known.
func (r *endpointReader) owner(place int) uint64 {
	if of := r.endpoints.Entries[place].Key.Edge; int(of) < len(r.ofEdge.Entries) {
		return host.Load(&r.ofEdge.Entries[of].Owner)
	}
	return 0
}

func (r *endpointReader) retire(place int) bool {
	e := &r.endpoints.Entries[place]
	key := e.Key
	if err := r.maps.Maps["endpoint_of_key"].Delete(&key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return false
	}
	if atomic.AddUint32(&e.Generation, 1) == 0 {
		atomic.AddUint32(&e.Generation, 1)
	}
	return true
}

// give empties a place that was retired and puts it on its list. Where the kernel refuses it is
// tried again at the next reading.
func (r *endpointReader) give(place int) {
	if err := r.latency.Clear(place, 1); err != nil {
		return
	}
	e := &r.endpoints.Entries[place]
	if of := e.Key.Edge; int(of) < len(r.ofEdge.Entries) && !bytes.HasPrefix(e.Key.Name[:], otherName) {
		atomic.AddUint32(&r.ofEdge.Entries[of].Count, ^uint32(0))
	}
	e.Key = edgesEndpointKey{}
	atomic.StoreUint64(&e.LatencySumNs, 0)
	atomic.StoreUint64(&e.Aside, 0)
	atomic.StoreUint32(&e.Used, 0)
	r.places[place] = endpointPlace{}
	_ = r.free(uint32(place)) // the list has a place for every endpoint
}

// giveEdge gives up the endpoints of an edge that has no connections and is no longer found.
func (r *endpointReader) giveEdge(edge int) {
	for place := endpointOverflow + 1; place < len(r.places); place++ {
		e := &r.endpoints.Entries[place]
		if atomic.LoadUint32(&e.Used) != 0 && int(e.Key.Edge) == edge && r.retire(place) {
			r.give(place)
		}
	}
}

func (r *endpointReader) drops() []model.Drop {
	dropped := r.maps.Maps["endpoint_drops"]
	return []model.Drop{
		{Name: "endpoints", Count: host.SumDrops(dropped, 0), Capacity: uint64(len(r.places) - 1), Used: r.used.Load()},
		{Name: "other_endpoints", Count: host.SumDrops(dropped, 1)},
	}
}
