package container

import (
	"context"
	"errors"
	"strings"
	"time"

	"outsight/internal/model"
)

// inspectors is how many containers Docker is asked about at a time.
const inspectors = 4

// The pause after Docker was lost grows from the first to the second.
const (
	firstPause = 100 * time.Millisecond
	lastPause  = 30 * time.Second
)

// runDocker follows Docker's events, over any number of its restarts.
func (r *Registry) runDocker(ctx context.Context) {
	defer r.docker.http.CloseIdleConnections()
	pause := firstPause
	for ctx.Err() == nil {
		err := r.docker.watch(ctx, func() error {
			err := r.listDocker(ctx)
			if err == nil {
				pause = firstPause
				r.answered()
			}
			return err
		}, r.handleMessage)
		if ctx.Err() != nil {
			return
		}
		if r.docker.connected() {
			r.o.Logger.Info("docker went away; new containers are known by their ids until it is back", "error", err)
		}
		r.docker.setState(err)
		r.answered()
		select {
		case <-ctx.Done():
			return
		case <-r.docker.retry:
		case <-time.After(pause):
		}
		pause = min(2*pause, lastPause)
	}
}

// listDocker describes all containers at once after a connection was made, and has those
// inspected of which Docker was not asked yet.
func (r *Registry) listDocker(ctx context.Context) error {
	list, err := r.docker.list(ctx, "")
	if err != nil {
		return err
	}
	r.describeHost(ctx)
	for _, s := range list {
		if !r.describeSummary(s) {
			r.o.Logger.Debug("docker runs a container whose group was not found", "container", s.ID)
			continue
		}
		r.mu.Lock()
		if m := r.members[s.ID]; m != nil && !m.inspected {
			r.enqueue(r.inspect, s.ID, &r.drops.inspect)
		}
		r.mu.Unlock()
	}
	return nil
}

// handleMessage handles an event of Docker. Starts and ends are known from the kernel; a start
// is of use here since only now Docker has the pid.
func (r *Registry) handleMessage(e dockerMessage) {
	id := e.container()
	known := r.update(id, func(m *member, _ *model.Container) bool {
		m.due, m.probes = time.Now(), 0
		return false
	})
	if !known {
		return
	}
	r.wakeProbe()
	if e.Type == "container" {
		r.enqueueInspect(id)
	}
}

func (r *Registry) runInspect(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case id := <-r.inspect:
			if err := r.askDocker(ctx, id); err != nil && !errors.Is(err, errNoSuchContainer) {
				r.o.Logger.Debug("container is known by its id", "container", id, "error", err)
			}
		}
	}
}

// askDocker takes the name from the list, which answers while the container is being started,
// then pid and time of the start, which Docker knows only when the start is done.
func (r *Registry) askDocker(ctx context.Context, id string) error {
	list, err := r.docker.list(ctx, id)
	if err != nil {
		return err
	}
	for _, s := range list {
		if s.ID == id {
			r.describeSummary(s)
		}
	}
	if len(list) == 0 {
		return errNoSuchContainer
	}
	details, err := r.docker.details(ctx, id)
	if err != nil {
		return err
	}
	r.describeDetails(details)
	return nil
}

func (r *Registry) describeSummary(s dockerSummary) bool {
	d := description{runtime: model.Docker, image: s.Image, labels: nonNil(s.Labels),
		volumes: dockerVolumes(s.Mounts)}
	for _, name := range s.Names {
		// Names of links hold a second slash ("/other/alias").
		if name = strings.TrimPrefix(name, "/"); name != "" && !strings.Contains(name, "/") {
			d.name = name
			break
		}
	}
	return r.describe(s.ID, d.withPodLabels())
}

func (r *Registry) describeDetails(details dockerDetails) {
	r.describe(details.ID, description{
		runtime: model.Docker,
		name:    strings.TrimPrefix(details.Name, "/"),
		image:   details.Config.Image,
		labels:  nonNil(details.Config.Labels),
		volumes: dockerVolumes(details.Mounts),
	}.withPodLabels())
	if details.State.Pid == 0 {
		return
	}
	r.update(details.ID, func(m *member, c *model.Container) bool {
		if !m.running() || m.inspected && c.PID == details.State.Pid {
			return false
		}
		m.inspected, m.due, m.probes = true, time.Now(), 0
		c.PID, c.Started = details.State.Pid, details.State.StartedAt
		return true
	})
	r.wakeProbe()
}

// nonNil distinguishes labels that are known to be none from labels that are not known.
func nonNil(labels map[string]string) map[string]string {
	if labels == nil {
		return map[string]string{}
	}
	return labels
}

// describeHost takes the labels that Docker has for this host; without them its containers are described all the same.
func (r *Registry) describeHost(ctx context.Context) {
	info, err := r.docker.info(ctx)
	if err != nil {
		r.o.Logger.Debug("the labels of the host are not known", "error", err)
		return
	}
	var all []model.Label
	for _, label := range info.Labels {
		all = append(all, model.Label{Name: model.PlaceHostLabel, Value: model.Printable(label, maxVolume)})
	}
	text := model.PlacementText(all)
	r.update(model.HostContainerID, func(_ *member, c *model.Container) bool {
		changed := c.Placement != text
		c.Placement = text
		return changed
	})
}
