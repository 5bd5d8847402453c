package net

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"

	"outsight/internal/kernel/host"
	"outsight/internal/model"
)

const (
	// proxyIdle is for how long after it last received and sent requests a proxy is timed.
	proxyIdle = 5 * time.Minute
	// proxyTrial is after how many requests of which none was sent on a program is taken for none that is a proxy, and
	// proxyRetry for how long.
	proxyTrial = 1000
	proxyRetry = 5 * time.Minute
)

// proxyName is of the processes of one name in a control group.
type proxyName struct {
	owner   model.CgroupID
	process string
}

// program is what is known of processes that receive or send requests.
type program struct {
	// received and sent are the requests of its edges at a reading, before those at the one before.
	received, sent, receivedBefore, sentBefore uint64
	// both is when both grew last, seen the last reading that found edges of it.
	both, seen time.Time
	// not is until when it is not tried again.
	not   time.Time
	proxy *proxy
}

// proxy is a program whose requests are timed.
type proxy struct {
	index    uint32
	instance uint64
	counts   *ebpf.Map
	table    *host.Table[edgesProxy]
	took     *model.Histogram
}

// proxyReader finds the programs that receive requests and send some, and reads how long theirs take. Where there are
// none the kernel programs do nothing for it.
type proxyReader struct {
	outer    *ebpf.Map
	inner    *ebpf.MapSpec
	off      bool
	programs map[proxyName]*program
	// free are indexes; 0 is that of no proxy.
	free         []uint32
	lastInstance uint64
	// refused programs found no free index.
	refused, used atomic.Uint64
	most          int
}

func newProxyReader(o *Options, objects *edgeObjects, inner *ebpf.MapSpec) *proxyReader {
	r := &proxyReader{outer: objects.TimedProxies, inner: inner, off: o.WithoutEndpoints, most: o.MaxProxies,
		programs: make(map[proxyName]*program)}
	for index := o.MaxProxies; index > 0; index-- {
		r.free = append(r.free, uint32(index))
	}
	return r
}

// follow finds out what is a proxy by the edges that were read; an edge's Instance is its index.
func (r *proxyReader) follow(now time.Time, edges []model.KernelEdge, table []edgesEdge) error {
	if r.off {
		return nil
	}
	for i := range edges {
		r.see(now, &edges[i])
	}
	var errs []error
	for name, p := range r.programs {
		errs = append(errs, r.decide(now, name, p))
	}
	for i := range edges {
		r.mark(&edges[i], &table[edges[i].Instance])
	}
	return errors.Join(errs...)
}

// nameAt is whose requests an edge has; false where it has none that could be sent on.
func nameAt(k *model.KernelEdgeKey) (proxyName, bool) {
	return proxyName{k.Owner, k.Process}, k.Transport == model.TCP && !k.Overflow && !k.Others && !k.Forwarder
}

func (r *proxyReader) see(now time.Time, e *model.KernelEdge) {
	name, may := nameAt(&e.Key)
	if !may {
		return
	}
	p := r.programs[name]
	if p == nil {
		p = &program{}
		r.programs[name] = p
	}
	p.seen = now
	if e.Key.Role == model.RoleServer {
		p.received += e.Counters.Requests
	} else {
		p.sent += e.Counters.Requests
	}
}

// decide begins to time a program, or ends it, and gets ready for the next reading.
func (r *proxyReader) decide(now time.Time, name proxyName, p *program) (err error) {
	if p.received > p.receivedBefore && p.sent > p.sentBefore {
		p.both = now
	}
	p.receivedBefore, p.sentBefore, p.received, p.sent = p.received, p.sent, 0, 0
	switch {
	case p.proxy == nil && p.both.Equal(now) && now.After(p.not):
		p.proxy, err = r.begin()
	case p.proxy != nil && now.Sub(p.both) > proxyIdle:
		err = r.end(p)
	case p.proxy != nil && p.proxy.isNone():
		p.not = now.Add(proxyRetry)
		err = r.end(p)
	case p.proxy == nil && !p.seen.Equal(now) && now.After(p.not):
		delete(r.programs, name)
	}
	return err
}

// mark tells the kernel programs whether an edge is one of a proxy.
func (r *proxyReader) mark(e *model.KernelEdge, edge *edgesEdge) {
	index := uint32(0)
	if name, may := nameAt(&e.Key); may {
		if p := r.programs[name]; p != nil && p.proxy != nil {
			index = p.proxy.index
		}
	}
	if atomic.LoadUint32(&edge.Proxy) != index {
		atomic.StoreUint32(&edge.Proxy, index)
	}
}

func (r *proxyReader) begin() (*proxy, error) {
	if len(r.free) == 0 {
		r.refused.Add(1)
		return nil, nil
	}
	counts, err := ebpf.NewMap(r.inner.Copy())
	if err != nil {
		return nil, fmt.Errorf("making the map of a proxy: %w", err)
	}
	table, err := host.MapTable[edgesProxy](counts)
	if err != nil {
		return nil, errors.Join(err, counts.Close())
	}
	last := len(r.free) - 1
	r.lastInstance++
	p := &proxy{index: r.free[last], instance: r.lastInstance, counts: counts, table: table}
	if err := r.outer.Put(p.index, counts); err != nil {
		return nil, errors.Join(fmt.Errorf("adding a proxy: %w", err), p.close())
	}
	r.free = r.free[:last]
	r.used.Add(1)
	return p, nil
}

// end forgets what was counted: the reader has had it.
func (r *proxyReader) end(of *program) error {
	p := of.proxy
	of.proxy = nil
	r.free = append(r.free, p.index)
	r.used.Add(^uint64(0))
	return errors.Join(r.outer.Delete(p.index), p.close())
}

func (p *proxy) close() error { return errors.Join(p.table.Close(), p.counts.Close()) }

// isNone says that it receives and sends requests, and sends none on.
func (p *proxy) isNone() bool {
	counts := &p.table.Entries[0]
	return host.Load(&counts.Requests) >= proxyTrial && host.Load(&counts.Matched) == 0
}

// Close takes away what follow has made.
func (r *proxyReader) Close() error {
	var errs []error
	for _, p := range r.programs {
		if p.proxy != nil {
			errs = append(errs, r.end(p))
		}
	}
	return errors.Join(errs...)
}

func (r *proxyReader) drop() model.Drop {
	return model.Drop{Name: "proxies", Count: r.refused.Load(), Capacity: uint64(r.most), Used: r.used.Load()}
}

// ReadProxies reads how long requests take through programs that send them on, as of those that the last ReadEdges has
// found.
func (p *Net) ReadProxies() (all []model.KernelProxy) {
	if p.edges == nil {
		return nil
	}
	for name, of := range p.edges.proxies.programs {
		if of.proxy != nil {
			all = append(all, model.KernelProxy{Owner: name.owner, Process: name.process, Instance: of.proxy.instance,
				ProxyCounters: of.proxy.read()})
		}
	}
	return all
}

func (p *proxy) read() model.ProxyCounters {
	counts := &p.table.Entries[0]
	matched := host.Load(&counts.Matched)
	if matched > 0 && (p.took == nil || p.took.Count != matched) {
		var cells [host.HistogramCells]uint64
		for i := range cells {
			cells[i] = host.Load(&counts.Took.Cells[i])
		}
		p.took = host.HistogramOf(&cells, host.Load(&counts.SumNs))
	}
	c := model.ProxyCounters{Requests: host.Load(&counts.Requests), Alone: host.Load(&counts.Alone), Took: p.took}
	if p.took != nil {
		c.Matched = p.took.Count
	}
	return c
}
