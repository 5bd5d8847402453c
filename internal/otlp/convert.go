package otlp

import (
	"slices"
	"time"

	"outsight/internal/model"
)

// MaxLabelBytes is the greatest length of a label's value.
const MaxLabelBytes = model.MaxLabelBytes

// Convert is all that s holds as series: in the order of Metrics, within a metric in the order
// of s, all at s.Time in whole milliseconds. Equal snapshots give equal series, so that sending
// them twice is harmless. No two series have the same name and labels. It may keep parts of s.
func Convert(s *model.Snapshot) []model.Series {
	if s == nil {
		return nil
	}
	to := &model.Sink{Time: s.Time.Truncate(time.Millisecond)}
	to.Series = make([]model.Series, 0,
		len(s.Containers)*(len(model.ContainerRows)+2)+len(s.Edges)*len(model.EdgeRows)+64)
	containers := containersOf(s)
	edges, endpoints := edgesOf(s)
	convert(to, model.ContainerRows, containers)
	convert(to, model.EdgeRows, edges)
	convert(to, model.EndpointRows, endpoints)
	to.Base, to.Start = labels(label(LabelHost, s.Host.Name)), time.Time{}
	for i := range model.HostRows {
		first := len(to.Series)
		read(&model.HostRows[i], s, to)
		to.Series = mergeFrom(to.Series, first)
	}
	return to.Series
}

// entity is what the series of a container, an edge or an endpoint have in common.
type entity[T any] struct {
	of    *T
	base  []model.Label
	start time.Time
}

// convert adds the series of all entities, metric by metric.
func convert[T any](to *model.Sink, rows []model.Row[T], entities []entity[T]) {
	for i := range rows {
		for j := range entities {
			to.Base, to.Start = entities[j].base, entities[j].start
			read(&rows[i], entities[j].of, to)
		}
	}
}

func read[T any](row *model.Row[T], of *T, to *model.Sink) {
	to.Name, to.Kind = row.Name, row.Kind
	row.Read(of, to)
}

func containersOf(s *model.Snapshot) []entity[model.ContainerSample] {
	samples := uniqueContainers(s.Containers)
	all := make([]entity[model.ContainerSample], len(samples))
	for i, sample := range samples {
		all[i] = entity[model.ContainerSample]{sample, containerLabels(s.Host.Name, sample.Container),
			sample.Container.Started}
	}
	return all
}

func edgesOf(s *model.Snapshot) (all []entity[model.Edge], endpoints []entity[model.Endpoint]) {
	edges := uniqueEdges(s.Edges)
	all = make([]entity[model.Edge], len(edges))
	for i := range edges {
		e := &edges[i]
		all[i] = entity[model.Edge]{e, edgeLabels(s.Host.Name, e), edgeStart(e)}
		for j := range e.Endpoints {
			p := &e.Endpoints[j]
			base := labels(append(endpointLabels(p), all[i].base...)...)
			endpoints = append(endpoints, entity[model.Endpoint]{p, base, all[i].start})
		}
	}
	return all, endpoints
}

func endpointLabels(e *model.Endpoint) []model.Label {
	return []model.Label{label(LabelProtocol, string(e.Protocol)), label(LabelEndpoint, e.Name),
		label(LabelStatus, e.Status)}
}

// mergeFrom leaves one series of each set of labels among those from first on, which are of one
// metric: counters are added up, of gauges the first stays.
func mergeFrom(series []model.Series, first int) []model.Series {
	kept := series[:first]
	for _, s := range series[first:] {
		i := slices.IndexFunc(kept[first:], func(k model.Series) bool { return slices.Equal(k.Labels, s.Labels) })
		switch {
		case i < 0:
			kept = append(kept, s)
		case s.Kind == model.Counter:
			kept[first+i].Value += s.Value
		}
	}
	return kept
}

func containerLabels(host string, c *model.Container) []model.Label {
	return labels(append(podLabels("", c), label(LabelHost, host), label(LabelID, c.ID), label(LabelImage, c.Image),
		label(LabelName, c.Name), label(LabelRuntime, string(c.Runtime)))...)
}

// podLabels are the labels of a container's pod, with the names that cAdvisor uses.
func podLabels(prefix string, c *model.Container) []model.Label {
	if c == nil || c.PodName == "" {
		return nil
	}
	all := []model.Label{label(prefix+LabelNamespace, c.PodNamespace), label(prefix+LabelPod, c.PodName),
		label(prefix+LabelWorkload, c.Workload), label(prefix+LabelWorkloadKind, c.WorkloadKind)}
	if c.Named() {
		all = append(all, label(prefix+LabelContainer, c.Name))
	}
	return all
}

func edgeLabels(host string, e *model.Edge) []model.Label {
	pods := append(podLabels(ClientPrefix, e.Client.Container), podLabels(ServerPrefix, e.Server.Container)...)
	return labels(append(pods, label(LabelClient, e.Client.Name()), label(LabelClientID, e.Client.ID()),
		label(LabelClientProcess, e.Client.Process), label(LabelHost, host),
		label(LabelServer, e.Server.Name()), label(LabelServerID, e.Server.ID()), label(LabelServerProcess, e.Server.Process),
		label(LabelService, model.ServiceName(e.Service)), label(LabelSide, e.Side.String()),
		label(LabelTransport, e.Transport.String()),
		label(LabelVia, e.Via))...)
}

// uniqueContainers leaves one sample of each ID: of a unit that ended and started again within
// one snapshot the one that runs, since its counters go on.
func uniqueContainers(samples []model.ContainerSample) []*model.ContainerSample {
	at := make(map[string]int, len(samples))
	unique := make([]*model.ContainerSample, 0, len(samples))
	for i := range samples {
		s := &samples[i]
		if s.Container == nil {
			continue
		}
		j, seen := at[s.Container.ID]
		if !seen {
			at[s.Container.ID] = len(unique)
			unique = append(unique, s)
		} else if s.Container.Ended.IsZero() || s.Container.Started.After(unique[j].Container.Started) {
			unique[j] = s
		}
	}
	return unique
}

// Label is a label with a value that any reader accepts: UTF-8, of at most MaxLabelBytes. A longer value is cut.
func Label(name, value string) model.Label { return model.NewLabel(name, value) }

func label(name, value string) model.Label { return model.NewLabel(name, value) }

func labels(all ...model.Label) []model.Label { return model.SortedLabels(all...) }
