package container

import (
	"context"
	"maps"

	"outsight/internal/model"
)

// description is what a runtime tells about a container. Empty fields are not known.
type description struct {
	runtime                       model.Runtime
	name, image                   string
	labels                        map[string]string
	podName, podNamespace, podUID string
}

// The labels by which kubelets mark the containers that they let Docker or CRI-O make.
const (
	labelContainerName = "io.kubernetes.container.name"
	labelPodName       = "io.kubernetes.pod.name"
	labelPodNamespace  = "io.kubernetes.pod.namespace"
	labelPodUID        = "io.kubernetes.pod.uid"
)

// withPodLabels takes the pod, and the container's name in it, from the labels.
func (d description) withPodLabels() description {
	if name := d.labels[labelContainerName]; name != "" {
		d.name = name
	}
	d.podName, d.podNamespace, d.podUID = d.labels[labelPodName], d.labels[labelPodNamespace], d.labels[labelPodUID]
	return d
}

// apply writes what is known into c and reports whether that changed it.
func (d description) apply(c *model.Container) bool {
	changed := false
	set := func(field *string, value string) {
		if value != "" && *field != value {
			*field, changed = value, true
		}
	}
	if d.runtime != "" && c.Runtime != d.runtime {
		c.Runtime, changed = d.runtime, true
	}
	set(&c.Name, d.name)
	set(&c.Image, d.image)
	set(&c.PodName, d.podName)
	set(&c.PodNamespace, d.podNamespace)
	set(&c.PodUID, d.podUID)
	if d.labels != nil && !maps.Equal(c.Labels, d.labels) {
		c.Labels, changed = d.labels, true
	}
	return changed
}

func (r *Registry) describe(id string, d description) bool {
	return r.update(id, func(m *member, c *model.Container) bool {
		m.described = m.described || d.name != ""
		before := *c
		d.apply(c)
		r.applyPod(m, c)
		return !same(&before, c)
	})
}

// same tells whether nothing that a description says differs.
func same(a, b *model.Container) bool {
	return a.Name == b.Name && a.Image == b.Image && a.Runtime == b.Runtime && a.PodName == b.PodName && a.PodNamespace == b.PodNamespace &&
		a.PodUID == b.PodUID && a.Workload == b.Workload && a.WorkloadKind == b.WorkloadKind && maps.Equal(a.Labels, b.Labels)
}

// runDescribe looks at the files of the runtimes first, which are there before the container
// is, and leaves what they do not name to Docker.
func (r *Registry) runDescribe(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case id := <-r.fresh:
			d, err := r.bundles.describe(id)
			if err != nil {
				r.o.Logger.Debug("container is known by its id", "container", id, "error", err)
			}
			r.describe(id, d)
			if d.name == "" && (d.runtime == "" || d.runtime == model.Docker) {
				r.wakeDocker()
				r.enqueueInspect(id)
			}
		}
	}
}

func (r *Registry) enqueueInspect(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.enqueue(r.inspect, id, &r.drops.inspect)
}

// wakeDocker ends the pause of a lost connection: a new container is a sign of life.
func (r *Registry) wakeDocker() {
	if !r.docker.connected() {
		select {
		case r.docker.retry <- struct{}{}:
		default:
		}
	}
}

// describeAgain asks anew for the containers that nobody has described yet.
func (r *Registry) describeAgain() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, m := range r.members {
		if m.running() && !m.described {
			r.enqueue(r.fresh, id, &r.drops.fresh)
		}
	}
}
