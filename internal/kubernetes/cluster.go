package kubernetes

import (
	"cmp"
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"time"
)

// Options of a Cluster. The zero value watches the whole cluster.
type Options struct {
	// Node, if set, is the one whose pods are of interest, and nothing else is.
	Node string
	// MaxPods bounds the pods that are known, those included that are gone but still named
	// (default 50,000), MaxServices the services (default 20,000), MaxSlices the endpoint slices
	// (default 40,000), MaxNodes the nodes (default 10,000), MaxOwners the replica sets and jobs
	// (default 50,000). What finds no room keeps its address or id for a name, and is in Drops.
	MaxPods, MaxServices, MaxSlices, MaxNodes, MaxOwners int
	// MaxObjectBytes bounds the JSON of one object (default 2 MiB, more than etcd takes).
	MaxObjectBytes int
	// Keep is how long a pod that is gone is still named (default 5 min): numbers come late.
	Keep   time.Duration
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	o.MaxPods, o.MaxServices = cmp.Or(o.MaxPods, 50_000), cmp.Or(o.MaxServices, 20_000)
	o.MaxSlices, o.MaxNodes = cmp.Or(o.MaxSlices, 40_000), cmp.Or(o.MaxNodes, 10_000)
	o.MaxOwners, o.MaxObjectBytes = cmp.Or(o.MaxOwners, 50_000), cmp.Or(o.MaxObjectBytes, 2<<20)
	o.Keep = cmp.Or(o.Keep, 5*time.Minute)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// sweepEvery is the time between two looks for pods that need no name any more.
const sweepEvery = 15 * time.Second

// spot is an address and port of a transport.
type spot struct {
	address netip.Addr
	endpoint
}

// Cluster knows the pods, services and nodes of a cluster. All methods may be called at the same
// time; none but Run and Check waits for the API server.
type Cluster struct {
	options    Options
	client     *client
	timing     timing
	now        func() time.Time
	reflectors []*reflector
	changed    chan struct{}
	synced     chan struct{}

	// mu guards everything below.
	mu       sync.RWMutex
	pods     table[*pod]
	services table[*service]
	slices   table[*slice]
	nodes    table[*node]
	owners   *owners

	byUID       map[string]*podEntry
	byName      map[string]*podEntry
	byContainer map[string]run
	// byAddress has the pods with an address of their own, byHostPort those that listen on their
	// node's, onNode the pods of a node by its addresses.
	byAddress  many[netip.Addr, *podEntry]
	byHostPort many[spot, *podEntry]
	onNode     many[netip.Addr, *podEntry]
	entryOf    map[*pod]*podEntry
	// retired are pods that are gone and still named, in the order of their end.
	retired []*podEntry

	byVirtual   many[spot, *service]
	byNodePort  many[endpoint, *service]
	byEndpoint  many[spot, *slice]
	ofService   many[string, *slice]
	nodeAddress many[netip.Addr, *node]

	history *History
	// touched are objects that may have changed since the history was told, with when that was.
	touched map[touchedObject]time.Time
}

// podEntry is a pod in the tables.
type podEntry struct {
	*pod
	// began and ended are known of a pod of a history; the zero Time otherwise, and of ended while it runs.
	began, ended time.Time
	// gone: the API server no longer has it. until is when a pod that is gone or has ended loses
	// its name or its address; the zero Time while it runs.
	gone  bool
	until time.Time
}

// run is a run of a container of a pod.
type run struct {
	pod  *podEntry
	name string
}

// New makes a Cluster. Nothing is read before Run.
func New(config Config, o Options) (*Cluster, error) {
	client, err := newClient(config)
	if err != nil {
		return nil, err
	}
	c := newTables(o.withDefaults())
	c.client = client
	c.follow()
	return c, nil
}

// newTables makes a Cluster that asks nobody.
func newTables(o Options) *Cluster {
	c := &Cluster{options: o, timing: usualTiming, now: time.Now, touched: map[touchedObject]time.Time{},
		changed: make(chan struct{}, 1), synced: make(chan struct{}), owners: newOwners(o.MaxOwners),
		byUID: map[string]*podEntry{}, byName: map[string]*podEntry{}, byContainer: map[string]run{},
		entryOf:   map[*pod]*podEntry{},
		byAddress: many[netip.Addr, *podEntry]{}, byHostPort: many[spot, *podEntry]{}, onNode: many[netip.Addr, *podEntry]{},
		byVirtual: many[spot, *service]{}, byNodePort: many[endpoint, *service]{}, byEndpoint: many[spot, *slice]{},
		ofService: many[string, *slice]{}, nodeAddress: many[netip.Addr, *node]{},
	}
	c.pods = table[*pod]{max: o.MaxPods, decode: decodePod, index: c.indexPod, unindex: c.unindexPod,
		items: map[string]*item[*pod]{}}
	c.services = table[*service]{max: o.MaxServices, decode: decodeService, index: c.indexService,
		unindex: c.unindexService, items: map[string]*item[*service]{}}
	c.slices = table[*slice]{max: o.MaxSlices, decode: decodeSlice, index: c.indexSlice, unindex: c.unindexSlice,
		items: map[string]*item[*slice]{}}
	c.nodes = table[*node]{max: o.MaxNodes, decode: decodeNode, index: c.indexNode, unindex: c.unindexNode,
		items: map[string]*item[*node]{}}
	return c
}

// follow makes the reflectors that keep the tables.
func (c *Cluster) follow() {
	follow(c, &c.pods, "pods", "/api/v1/pods")
	if c.options.Node != "" {
		c.reflectors[0].selector = "spec.nodeName=" + c.options.Node
		return
	}
	follow(c, &c.services, "services", "/api/v1/services")
	follow(c, &c.slices, "endpointslices", "/apis/discovery.k8s.io/v1/endpointslices")
	follow(c, &c.nodes, "nodes", "/api/v1/nodes")
}

// follow makes a reflector that keeps a table.
func follow[T interface{ key() string }](c *Cluster, t *table[T], resource, path string) {
	change := func(edit func()) {
		c.mu.Lock()
		defer c.mu.Unlock()
		edit()
		c.wake()
	}
	c.reflectors = append(c.reflectors, &reflector{
		client: c.client, logger: c.options.Logger, resource: resource, path: path, maxObject: c.options.MaxObjectBytes,
		put: func(text []byte, list uint64) (metadata, error) {
			object, m, err := t.decode(text) // without the lock
			if err == nil {
				change(func() { t.put(object, list) })
			}
			return m, err
		},
		remove: func(text []byte) (metadata, error) {
			object, m, err := t.decode(text)
			if err == nil {
				change(func() { t.remove(object.key()) })
			}
			return m, err
		},
		listed: func(list uint64) { change(func() { t.keep(list) }) },
	})
}

// wake signals who waits for Changed. It never waits.
func (c *Cluster) wake() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// Changed has a value when what is known may have changed since the last one was taken. It has one
// reader.
func (c *Cluster) Changed() <-chan struct{} { return c.changed }

// Synced is closed once everything was listed, or refused, for the first time.
func (c *Cluster) Synced() <-chan struct{} { return c.synced }

// Run follows the cluster until ctx ends.
func (c *Cluster) Run(ctx context.Context) {
	var running, first sync.WaitGroup
	for _, r := range c.reflectors {
		r.timing = c.timing
		first.Add(1)
		tried := sync.OnceFunc(first.Done)
		running.Go(func() {
			defer tried()
			r.run(ctx, tried)
		})
	}
	running.Go(func() {
		first.Wait()
		close(c.synced)
	})
	running.Go(func() { c.runOwners(ctx) })
	if c.history != nil {
		running.Go(func() { c.runHistory(ctx) })
	}
	running.Go(func() { c.runSweep(ctx) })
	running.Wait()
	c.client.close()
}

func (c *Cluster) runSweep(ctx context.Context) {
	ticker := time.NewTicker(sweepEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			c.sweep()
		}
	}
}

// sweep forgets what is gone for long enough, and asks for owners that found no room before.
func (c *Cluster) sweep() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	for len(c.retired) > 0 && !c.retired[0].until.After(now) {
		c.forget(c.retired[0])
		c.retired = c.retired[1:]
	}
	used := make(map[ownerKey]bool, len(c.owners.asked))
	for p := range c.entryOf {
		used[ownerKey{p.owner, p.namespace}] = true
		c.owners.ask(p, now)
	}
	c.owners.keep(used)
}
