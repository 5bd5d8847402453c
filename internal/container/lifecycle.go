package container

import (
	"strings"
	"time"

	"outsight/internal/model"
)

// cutPath is the length from which on a path in an event may have been cut.
const cutPath = 254

// HandleEvent handles a lifecycle event. It is quick: it never waits for a runtime, and touches
// the file system only where the event's path may have been cut. Events may be repeated, and may
// be lost: the next walk makes up for them.
func (r *Registry) HandleEvent(e model.CgroupEvent) {
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	if len(e.Path) >= cutPath && e.Kind != model.CgroupRemoved {
		r.addCut(e)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch e.Kind {
	case model.CgroupMade, model.TaskAttached:
		r.add(e.ID, e.Path, e.Time)
	case model.CgroupRemoved:
		r.add(e.ID, e.Path, e.Time) // a container may have come and gone unseen
		r.remove(e.ID, e.Time)
	}
}

// addCut finds the group of an event whose path may have been cut: it lies somewhere below the
// last directory that the path names in full.
func (r *Registry) addCut(e model.CgroupEvent) {
	parent := e.Path[:strings.LastIndexByte(e.Path, '/')]
	groups, _, err := walkGroups(r.layout.MountPoint+parent, r.o.MaxGroups)
	if err != nil {
		return // gone already, and with it the way to know what it was
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, g := range groups {
		r.add(g.id, strings.TrimSuffix(parent+g.path, "/"), e.Time)
	}
}

// add makes a group known, and its container if it is the first of its groups. mu must be held.
func (r *Registry) add(id model.CgroupID, path string, now time.Time) {
	if id == 0 || r.groups[id] != nil {
		return
	}
	if len(r.groups) >= r.o.MaxGroups && !r.evict() {
		r.drops.groups++
		return
	}
	delete(r.unknown, id)
	owner := r.owner(id, path, now)
	owner.groups++
	r.changes++
	r.groups[id] = &group{path: path, owner: owner, change: r.changes}
}

// evict forgets the group that was removed the longest time ago. mu must be held.
func (r *Registry) evict() bool {
	if len(r.retired) == 0 {
		return false
	}
	oldest := r.retired[0]
	r.retired = r.retired[1:]
	r.drops.retired++
	owner := r.groups[oldest].owner
	delete(r.groups, oldest)
	if owner.groups--; owner.groups == 0 && !owner.running() {
		if !owner.collected {
			r.active--
			r.drops.containers++
		}
		delete(r.members, owner.current.ID)
	}
	return true
}

// owner finds or makes the container of a group. mu must be held.
func (r *Registry) owner(id model.CgroupID, path string, now time.Time) *member {
	found := Identify(path)
	if found.Kind == HostGroup || found.Kind == ServiceGroup && !r.o.All {
		return r.host
	}
	own := id
	if path != found.Path {
		own = r.inode(found.Path)
	}
	m := r.members[found.ID]
	switch {
	case m != nil && m.running():
		if m.current.Cgroup == 0 && own != 0 {
			r.change(m, func(c *model.Container) { c.Cgroup = own })
		}
		return m
	case m == nil && r.active >= r.o.MaxContainers:
		r.drops.containers++
		return r.host
	case m == nil:
		m = &member{}
		r.members[found.ID] = m
		r.active++
	case m.collected:
		r.active++
	}
	r.start(m, found, own, now)
	return m
}

// start makes m a container that runs from now on. A container that is started again keeps
// what its runtime said of it, and nothing of its processes. mu must be held.
func (r *Registry) start(m *member, found Identity, own model.CgroupID, now time.Time) {
	c := &model.Container{}
	if m.current != nil {
		*c = *m.current
	} else {
		c.ID, c.Name, c.Runtime, c.PodUID = found.ID, model.Printable(shortName(found), maxName), found.Runtime, found.PodUID
	}
	c.CgroupPath, c.Cgroup = found.Path, own
	c.Started, c.Ended = now, time.Time{}
	c.PID, c.NetNS, c.Addresses, c.Listeners = 0, 0, nil, nil
	m.current, m.collected = c, false
	m.seen, m.probes, m.inspected = time.Now(), 0, false
	m.described = found.Kind == ServiceGroup
	m.due = m.seen.Add(probeDelays[0])
	r.published.Store(nil)
	r.wakeProbe()
	if !m.described {
		r.enqueue(r.fresh, c.ID, &r.drops.fresh)
	}
}

func shortName(found Identity) string {
	if found.Kind == ServiceGroup {
		return found.Unit
	}
	return found.ID[:12]
}

// enqueue never waits: what finds no room is described after the next walk.
func (r *Registry) enqueue(queue chan string, id string, drops *uint64) {
	select {
	case queue <- id:
	default:
		*drops++
	}
}

// remove retires a group, and ends its container if it is the container's own. mu must be held.
func (r *Registry) remove(id model.CgroupID, now time.Time) {
	g := r.groups[id]
	if g == nil {
		r.release(id) // it found no room; the kernel counts it nevertheless
		return
	}
	if g.removed {
		return
	}
	g.removed = true
	r.retired = append(r.retired, id)
	r.release(id)
	m := g.owner
	own := m.current.Cgroup == id || m.current.Cgroup == 0 && m.current.CgroupPath == g.path
	if m != r.host && m.running() && own {
		r.change(m, func(c *model.Container) { c.Ended = now })
	}
}

// release records for the next Collect that a group was removed. mu must be held.
func (r *Registry) release(id model.CgroupID) {
	switch {
	case id == 0:
	case len(r.removed) < r.o.MaxGroups:
		r.removed = append(r.removed, id)
	default:
		r.drops.removed++
	}
}

// change replaces a member's container by a changed copy. mu must be held.
func (r *Registry) change(m *member, edit func(*model.Container)) {
	c := *m.current
	edit(&c)
	m.current = &c
	r.published.Store(nil)
}

// update changes the container with the id, if it is known and edit says that there is
// something to change. It reports whether the container is known.
func (r *Registry) update(id string, edit func(*member, *model.Container) bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.members[id]
	if m == nil {
		return false
	}
	c := *m.current
	if edit(m, &c) {
		m.current = &c
		r.published.Store(nil)
	}
	return true
}
