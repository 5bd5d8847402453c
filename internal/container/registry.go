package container

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"outsight/internal/model"
)

// Registry knows the containers of this host. All methods may be called at the same time; none
// of them waits for a runtime.
type Registry struct {
	// named is closed by answered.
	named    <-chan struct{}
	answered func()

	layout  Layout
	o       Options
	proc    processes
	docker  *docker
	bundles bundles
	// fresh takes the ids of containers to describe, inspect those that Docker is to be asked
	// about; probe wakes the reader of network namespaces.
	fresh, inspect chan string
	probe          chan struct{}

	// walking is held during a walk of the hierarchy. It is taken before mu.
	walking sync.Mutex
	walked  time.Time // end of the last walk, under walking

	// published is the list that Containers returns, nil after a change. It is stored only
	// while mu is held for reading, and cleared only while it is held for writing.
	published atomic.Pointer[[]*model.Container]

	// mu guards everything below.
	mu      sync.RWMutex
	groups  map[model.CgroupID]*group
	members map[string]*member
	host    *member
	// active counts the members that run or whose end was not collected yet.
	active int
	// changes numbers the groups in the order in which they became known.
	changes uint64
	// removed groups since the last Collect; retired are all removed groups that Lookup still
	// knows, oldest first.
	removed, retired []model.CgroupID
	// sought are ids that Lookup was asked for and no walk has looked for yet.
	sought map[model.CgroupID]struct{}
	// unknown are ids that a walk did not find. Ids are not used twice, so they stay unknown. The
	// value is true once the id is among the removed.
	unknown map[model.CgroupID]bool
	drops   drops
}

// group is a control group that exists, or existed a short time ago.
type group struct {
	path    string
	owner   *member
	change  uint64
	removed bool
}

// member is a container and what the Registry keeps beside it.
type member struct {
	current *model.Container
	groups  int
	// seen is when the container became known; collected is true once Collect has returned its end.
	seen      time.Time
	collected bool
	// described is true once a runtime has given the name, inspected once Docker has given the pid.
	described, inspected bool
	// placement is what the runtime says of where it may run; what its pod says comes behind it.
	placement string
	// due is when the network namespace is to be read next, probes how often it was.
	due    time.Time
	probes int
}

func (m *member) running() bool { return m.current.Ended.IsZero() }

type drops struct{ containers, groups, retired, removed, fresh, inspect, unknown uint64 }

const (
	queueCapacity   = 1024
	unknownCapacity = 4096
)

// New makes a Registry and walks the hierarchy once, so that the containers that run already
// are known when it returns. It fails where the hierarchy cannot be read.
func New(l Layout, o Options) (*Registry, error) {
	o = o.withDefaults()
	r := &Registry{
		layout:  l,
		o:       o,
		proc:    newProcesses(o.ProcRoot, l.Subsystem),
		docker:  newDocker(o.DockerSocket),
		bundles: bundles{tasks: o.TaskRoots, storage: o.StorageRoots},
		fresh:   make(chan string, queueCapacity),
		inspect: make(chan string, queueCapacity),
		probe:   make(chan struct{}, 1),
		groups:  make(map[model.CgroupID]*group),
		members: make(map[string]*member),
		sought:  make(map[model.CgroupID]struct{}),
		unknown: make(map[model.CgroupID]bool),
	}
	answer := make(chan struct{})
	r.named, r.answered = answer, sync.OnceFunc(func() { close(answer) })
	r.host = &member{seen: time.Now(), described: true, current: r.hostContainer()}
	r.members[model.HostContainerID] = r.host
	if err := r.Resync(); err != nil {
		return nil, err
	}
	return r, nil
}

func (r *Registry) hostContainer() *model.Container {
	return &model.Container{
		ID: model.HostContainerID, Name: model.HostContainerID, Runtime: model.HostRuntime,
		CgroupPath: "/", PID: 1, NetNS: r.proc.hostNetNS, Started: r.proc.boot,
	}
}

// Run keeps the Registry up to date until ctx ends: it asks the runtimes for names, reads
// network namespaces and walks the hierarchy every Options.Resync. It returns when all of that
// has stopped.
func (r *Registry) Run(ctx context.Context) {
	var running sync.WaitGroup
	for _, work := range []func(context.Context){r.runDescribe, r.runDocker, r.runNamespaces, r.runResync} {
		running.Go(func() { work(ctx) })
	}
	if r.o.Pods != nil {
		running.Go(func() { r.runPods(ctx) })
	}
	for range inspectors {
		running.Go(func() { r.runInspect(ctx) })
	}
	running.Wait()
}

// Named is closed once Docker has named the containers that ran at the start, or has failed to.
func (r *Registry) Named() <-chan struct{} { return r.named }

// Lookup returns the container that a control group belongs to: the innermost container at or
// above the group, else the host's. Groups that were removed a short time ago still resolve. An id
// not known yet is searched for in the hierarchy, at most once a second.
func (r *Registry) Lookup(id model.CgroupID) *model.Container {
	c, _ := r.Find(id)
	return c
}

// Find does as Lookup does, and reports whether the answer stays: an id that was neither announced nor found yet may turn
// out to be a container's.
func (r *Registry) Find(id model.CgroupID) (c *model.Container, known bool) {
	c, known = r.lookup(id)
	if known || id == 0 {
		return c, true
	}
	if r.search(id) {
		return r.lookup(id)
	}
	return c, false
}

func (r *Registry) lookup(id model.CgroupID) (c *model.Container, known bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if g := r.groups[id]; g != nil {
		return g.owner.current, true
	}
	_, known = r.unknown[id]
	return r.host.current, known
}

// Host returns the container that stands for what runs in no container.
func (r *Registry) Host() *model.Container {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.host.current
}

// Containers returns the containers that run, the host's included, in order of ID. The slice is
// shared: it must not be changed.
func (r *Registry) Containers() []*model.Container {
	if list := r.published.Load(); list != nil {
		return *list
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	list := make([]*model.Container, 0, r.active+1)
	for _, m := range r.members {
		if m.running() {
			list = append(list, m.current)
		}
	}
	sortByID(list)
	r.published.Store(&list)
	return list
}

// Collection is what one reading of all counters has to cover.
type Collection struct {
	// Containers that run, and those that ended since the last Collect, in order of ID.
	Containers []*model.Container
	// Removed are the control groups that were removed since the last Collect, those among them
	// that no event announced and that only Lookup was asked for. Their counters do not change any
	// more: take the last numbers, then forget them.
	Removed []model.CgroupID
}

// Collect returns what is to be read now. A container that ended is in one Collection only, with
// Ended set; Lookup goes on to return it for its groups. There is one caller of Collect.
func (r *Registry) Collect() Collection {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []*model.Container
	for _, m := range r.members {
		if m.running() {
			list = append(list, m.current)
		} else if !m.collected {
			m.collected = true
			r.active--
			list = append(list, m.current)
		}
	}
	sortByID(list)
	collection := Collection{Containers: list, Removed: r.removed}
	r.removed = nil
	return collection
}

func sortByID(list []*model.Container) {
	slices.SortFunc(list, func(a, b *model.Container) int { return cmp.Compare(a.ID, b.ID) })
}

// Drops reports how full the bounded parts are and what found no room in them.
func (r *Registry) Drops() []model.Drop {
	r.mu.RLock()
	defer r.mu.RUnlock()
	d, groups := r.drops, uint64(r.o.MaxGroups)
	return []model.Drop{
		{Name: "container/containers", Count: d.containers, Capacity: uint64(r.o.MaxContainers), Used: uint64(r.active)},
		{Name: "container/groups", Count: d.groups, Capacity: groups, Used: uint64(len(r.groups))},
		{Name: "container/retired-groups", Count: d.retired, Capacity: groups, Used: uint64(len(r.retired))},
		{Name: "container/removed-groups", Count: d.removed, Capacity: groups, Used: uint64(len(r.removed))},
		{Name: "container/unknown-groups", Count: d.unknown, Capacity: unknownCapacity, Used: uint64(len(r.unknown))},
		{Name: "container/describe-queue", Count: d.fresh, Capacity: queueCapacity, Used: uint64(len(r.fresh))},
		{Name: "container/inspect-queue", Count: d.inspect, Capacity: queueCapacity, Used: uint64(len(r.inspect))},
	}
}

// Features reports the sources of names, images and labels. None of them is required.
func (r *Registry) Features() []model.Feature {
	return []model.Feature{r.docker.feature(), r.bundles.feature()}
}
