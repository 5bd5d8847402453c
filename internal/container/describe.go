package container

import (
	"context"
	"maps"
	"slices"

	"outsight/internal/model"
)

// description is what a runtime reports about a container. Empty fields are not known.
type description struct {
	runtime                       model.Runtime
	name, image                   string
	labels                        map[string]string
	volumes                       []string // what it has of its host, for people; known where labels are
	podName, podNamespace, podUID string
	// podContainer is what the container is called in its pod; it goes over name.
	podContainer string
	// byRuntime: what is said of the pod is not from labels, which an image has too, but was written by a runtime that
	// a kubelet asked.
	byRuntime bool
}

// Bounds of what is known of a container, in bytes; it is chosen by whoever made its image or started it.
const (
	maxName       = 256
	maxImage      = 512
	maxLabels     = 128
	maxLabelName  = 256
	maxLabelValue = 1024
)

// The labels by which kubelets mark the containers that they let Docker or CRI-O make.
const (
	labelContainerName = "io.kubernetes.container.name"
	labelPodName       = "io.kubernetes.pod.name"
	labelPodNamespace  = "io.kubernetes.pod.namespace"
	labelPodUID        = "io.kubernetes.pod.uid"
)

// withPodLabels takes the pod, and the container's name in it, from the labels.
func (d description) withPodLabels() description {
	d.podContainer = d.labels[labelContainerName]
	d.podName, d.podNamespace, d.podUID = d.labels[labelPodName], d.labels[labelPodNamespace], d.labels[labelPodUID]
	return d
}

// confirmed leaves out what is said of a pod unless the container's control group is that pod's: only kubelets make
// such groups, while labels are anybody's, also of an image's author. uid is that of the pod in the path of the group.
func (d description) confirmed(uid string) description {
	if uid != "" && (d.podUID == uid || d.podUID == "" && d.byRuntime) {
		if d.podContainer != "" {
			d.name = d.podContainer
		}
		d.podUID = uid
		return d
	}
	d.podName, d.podNamespace, d.podUID = "", "", ""
	return d
}

// clean makes all texts printable and bounded, once, before anybody else sees them.
func (d description) clean() description {
	for _, text := range []*string{&d.name, &d.podContainer, &d.podName, &d.podNamespace, &d.podUID} {
		*text = model.Printable(*text, maxName)
	}
	d.image = model.Printable(d.image, maxImage)
	if d.labels == nil {
		return d
	}
	names := slices.Sorted(maps.Keys(d.labels))
	labels := make(map[string]string, min(len(names), maxLabels))
	for _, name := range names[:min(len(names), maxLabels)] {
		labels[model.Printable(name, maxLabelName)] = model.Printable(d.labels[name], maxLabelValue)
	}
	d.labels = labels
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
	d = d.clean()
	return r.update(id, func(m *member, c *model.Container) bool {
		d := d.confirmed(c.PodUID)
		m.described = m.described || d.name != ""
		before := *c
		d.apply(c)
		if d.labels != nil {
			m.placement = d.placement()
			c.Placement = m.placement
		}
		r.applyPod(m, c)
		return !same(&before, c)
	})
}

// same reports whether nothing that a description says differs.
func same(a, b *model.Container) bool {
	return a.Name == b.Name && a.Image == b.Image && a.Runtime == b.Runtime && a.PodName == b.PodName &&
		a.PodNamespace == b.PodNamespace &&
		a.PodUID == b.PodUID && a.Workload == b.Workload && a.WorkloadKind == b.WorkloadKind &&
		a.Placement == b.Placement && maps.Equal(a.Labels, b.Labels)
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
