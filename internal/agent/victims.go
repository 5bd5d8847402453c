package agent

import (
	"cmp"
	"slices"
	"sync"

	"outsight/internal/model"
)

// maxVictimNames bounds the process names with counters of their own, of one container; further ones are counted under
// "other".
const maxVictimNames = 8

// maxVictimName bounds the name of one, in bytes; the kernel keeps fewer, but the name may have bytes that take more
// when they are made printable.
const maxVictimName = 64

// victims are the processes that were killed for lack of memory.
type victims struct {
	mu sync.Mutex
	// of a container, by its ID; guarded by mu.
	of map[string]*model.OOMVictims
}

func newVictims() *victims { return &victims{of: make(map[string]*model.OOMVictims)} }

// killed takes note of a process that was killed.
func (a *Agent) killed(e model.CgroupEvent) {
	e.Path = model.Printable(e.Path, maxVictimName)
	id, name := model.HostContainerID, "host"
	if c := a.sources.Registry.Lookup(e.ID); c != nil {
		id, name = c.ID, c.Name
	}
	a.options.Logger.Warn("a process was killed for lack of memory", "container", name, "id", id, "process", e.Path, "pid",
		e.PID)
	a.victims.add(id, e)
}

func (v *victims) add(id string, e model.CgroupEvent) {
	v.mu.Lock()
	defer v.mu.Unlock()
	before := v.of[id]
	now := &model.OOMVictims{Process: e.Path, PID: e.PID, Time: e.Time}
	if before != nil {
		now.Kills = slices.Clone(before.Kills) // snapshots have the one before
	}
	at := func(name string) int {
		return slices.IndexFunc(now.Kills, func(k model.OOMKills) bool { return k.Process == name })
	}
	process := e.Path
	if at(process) < 0 && len(now.Kills) >= maxVictimNames {
		process = "other"
	}
	i := at(process)
	if i < 0 {
		i = len(now.Kills)
		now.Kills = append(now.Kills, model.OOMKills{Process: process})
	}
	now.Kills[i].Count++
	slices.SortFunc(now.Kills, func(a, b model.OOMKills) int { return cmp.Compare(a.Process, b.Process) })
	v.of[id] = now
}

// last is what a container lost; nil where nothing was killed.
func (v *victims) last(id string) *model.OOMVictims {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.of[id]
}

// keep forgets containers that are gone.
func (v *victims) keep(containers []*model.Container) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.of) == 0 {
		return
	}
	for id := range v.of {
		if !slices.ContainsFunc(containers, func(c *model.Container) bool { return c.ID == id }) {
			delete(v.of, id)
		}
	}
}
