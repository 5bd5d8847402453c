package container

import (
	"context"
	"time"

	"outsight/internal/model"
)

// podPause is the least time between two looks at all containers: a busy cluster changes all the
// time.
const podPause = 200 * time.Millisecond

// runPods puts the names of Kubernetes to containers whenever there may be new ones.
func (r *Registry) runPods(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.o.Pods.Changed():
		}
		r.identifyAll()
		select {
		case <-ctx.Done():
			return
		case <-time.After(podPause):
		}
	}
}

func (r *Registry) identifyAll() {
	for _, c := range r.Containers() {
		if c.Runtime != model.HostRuntime && c.Runtime != model.Systemd {
			r.identify(c.ID)
		}
	}
}

// identify puts the names of Kubernetes to one container.
func (r *Registry) identify(id string) {
	r.update(id, r.applyPod)
}

// applyPod writes what Kubernetes calls a container over what its runtime calls it, and reports
// whether that changed it. mu must be held.
func (r *Registry) applyPod(m *member, c *model.Container) bool {
	if r.o.Pods == nil {
		return false
	}
	p, ok := r.o.Pods.Identify(c.ID, c.PodUID)
	if !ok {
		return false
	}
	changed := description{name: p.Container, podName: p.Pod, podNamespace: p.Namespace}.clean().apply(c)
	p.Workload, p.WorkloadKind = model.Printable(p.Workload, maxName), model.Printable(p.WorkloadKind, maxName)
	if p.Workload != "" && (c.Workload != p.Workload || c.WorkloadKind != p.WorkloadKind) {
		c.Workload, c.WorkloadKind, changed = p.Workload, p.WorkloadKind, true
	}
	if all := model.JoinPlacements(m.placement, p.Placement); c.Placement != all {
		c.Placement, changed = all, true
	}
	m.described = m.described || p.Container != ""
	return changed
}
