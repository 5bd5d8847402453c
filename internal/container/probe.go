package container

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"outsight/internal/model"
)

// probeDelays are the times after its start at which a container's network namespace is read:
// the first process enters it, and gets its addresses, some time after the group is made. Then
// it is read every Options.Locate, since networks can be connected later.
var probeDelays = []time.Duration{10 * time.Millisecond, 30 * time.Millisecond, 80 * time.Millisecond,
	180 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond, 1500 * time.Millisecond}

const (
	// startTime is how long the first process of a container may still be in the namespace of
	// the runtime that starts it.
	startTime = time.Second
	// toldLocate is the least of Options.Locate where a runtime tells what changes.
	toldLocate = time.Minute
	// procsDepth is how deep below a container's group its first process is searched for.
	procsDepth = 4
)

// location is what the processes of a container have.
type location struct {
	pid     int
	netns   uint32
	started time.Time
}

func (r *Registry) wakeProbe() {
	select {
	case r.probe <- struct{}{}:
	default:
	}
}

// runNamespaces reads pids, network namespaces and addresses when they are due.
func (r *Registry) runNamespaces(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-r.probe:
		}
		now := time.Now()
		due, next := r.dueProbes(now)
		seen := make(map[uint32][]netip.Addr, len(due))
		for _, m := range due {
			r.read(m, seen)
		}
		timer.Reset(time.Until(next))
	}
}

// target is what a probe needs to know of a member.
type target struct {
	container *model.Container
	// settled is true once the namespace of the first process is the container's own.
	settled bool
}

// dueProbes lists the containers whose namespace is to be read now, sets when that is due
// again, and returns when the next one is.
func (r *Registry) dueProbes(now time.Time) (due []target, next time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	next = now.Add(r.o.Locate)
	for _, m := range r.members {
		if !m.running() {
			continue
		}
		if !m.due.After(now) {
			due = append(due, target{m.current, m.inspected || m == r.host || now.Sub(m.seen) > startTime})
			m.due = r.nextProbe(m, now)
		}
		if m.due.Before(next) {
			next = m.due
		}
	}
	return due, next
}

func (r *Registry) nextProbe(m *member, now time.Time) time.Time {
	m.probes++
	if m.probes < len(probeDelays) {
		return now.Add(probeDelays[m.probes] - probeDelays[m.probes-1])
	}
	every := r.o.Locate
	if m.inspected && r.docker.connected() { // which tells when a network is connected
		every = max(every, toldLocate)
	}
	// Whole seconds let many containers be read in one go.
	return now.Truncate(time.Second).Add(every)
}

// read brings a container up to date from its processes. seen holds the addresses of the
// namespaces that were read in the same round.
func (r *Registry) read(t target, seen map[uint32][]netip.Addr) {
	c := t.container
	w, ok := r.locate(c)
	if !ok || w.netns == r.proc.hostNetNS && !t.settled {
		return
	}
	addresses, known := seen[w.netns]
	if !known {
		var err error
		if addresses, err = r.proc.addresses(w.pid); err != nil {
			return // the process ended
		}
		// It may have moved to another namespace meanwhile, as when a runtime's child does.
		if again, err := r.proc.netns(w.pid); err != nil || again != w.netns {
			return
		}
		seen[w.netns] = addresses
	}
	r.update(c.ID, func(_ *member, current *model.Container) bool {
		if current.Cgroup != c.Cgroup || !current.Ended.IsZero() {
			return false // started anew, or ended, since
		}
		old := *current
		if c.ID != model.HostContainerID {
			current.PID = w.pid
		}
		current.NetNS, current.Addresses = w.netns, addresses
		if current.Started.IsZero() {
			current.Started = w.started
		}
		return old.PID != current.PID || old.NetNS != w.netns || !old.Started.Equal(current.Started) ||
			!slices.Equal(old.Addresses, addresses)
	})
}

// locate finds the first process of a container and the namespace that it is in.
func (r *Registry) locate(c *model.Container) (w location, ok bool) {
	w.pid = c.PID
	if c.ID == model.HostContainerID {
		w.pid = r.proc.hostPID
	} else if w.pid == 0 || r.proc.trust(w.pid, c.CgroupPath) != nil {
		var err error
		if w.pid, err = firstPID(r.layout.MountPoint+c.CgroupPath, procsDepth); err != nil || w.pid == 0 {
			return w, false
		}
	}
	var err error
	if w.netns, err = r.proc.netns(w.pid); err != nil {
		return w, false
	}
	if c.Started.IsZero() {
		w.started, _ = r.proc.started(w.pid) // stays unknown until the next time
	}
	return w, true
}
