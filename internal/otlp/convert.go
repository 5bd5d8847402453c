package otlp

import (
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"outsight/internal/model"
)

// MaxLabelBytes is the greatest length of a label's value; a longer one is cut and ends with
// "…" and a hash of the whole.
const MaxLabelBytes = 1024

// Convert is all that s holds as series: in the order of Metrics, within a metric in the order
// of s, all at s.Time in whole milliseconds. Equal snapshots give equal series, so that sending
// them twice is harmless. No two series have the same name and labels. It may keep parts of s.
func Convert(s *model.Snapshot) []model.Series {
	if s == nil {
		return nil
	}
	c := &collector{time: s.Time.Truncate(time.Millisecond)}
	c.series = make([]model.Series, 0, len(s.Containers)*(len(containerMetrics)+2)+len(s.Edges)*len(edgeMetrics)+64)
	c.containers(s)
	c.edges(s)
	c.base = labels(label(LabelHost, s.Host.Name))
	for i := range hostMetrics {
		c.metric = &hostMetrics[i]
		first := len(c.series)
		hostMetrics[i].host(s, c)
		c.mergeFrom(first)
	}
	return c.series
}

// collector turns the values that the rows of the table read into series.
type collector struct {
	series []model.Series
	time   time.Time
	metric *Metric
	// base labels and start of the series of the thing that is being read.
	base  []model.Label
	start time.Time
}

func (c *collector) containers(s *model.Snapshot) {
	samples := uniqueContainers(s.Containers)
	base := make([][]model.Label, len(samples))
	for i, sample := range samples {
		base[i] = containerLabels(s.Host.Name, sample.Container)
	}
	for m := range containerMetrics {
		c.metric = &containerMetrics[m]
		for i, sample := range samples {
			c.base, c.start = base[i], sample.Container.Started
			c.metric.container(sample, c)
		}
	}
	c.start = time.Time{}
}

func (c *collector) edges(s *model.Snapshot) {
	edges := uniqueEdges(s.Edges)
	base := make([][]model.Label, len(edges))
	start := make([]time.Time, len(edges))
	for i := range edges {
		base[i], start[i] = edgeLabels(s.Host.Name, &edges[i]), edgeStart(&edges[i])
	}
	for m := range edgeMetrics {
		c.metric = &edgeMetrics[m]
		for i := range edges {
			c.base, c.start = base[i], start[i]
			c.metric.edge(&edges[i], c)
		}
	}
	c.start = time.Time{}
}

// value adds a series of the current metric and thing; extra labels come on top.
func (c *collector) value(v float64, extra ...model.Label) {
	c.add(model.Series{Labels: with(c.base, extra), Value: v})
}

// histogram adds a histogram series, or nothing where h is nil; extra labels come on top.
func (c *collector) histogram(h *model.Histogram, extra ...model.Label) {
	if h != nil {
		c.add(model.Series{Labels: with(c.base, extra), Histogram: h})
	}
}

// endpoints adds a series for each endpoint of an edge.
func (c *collector) endpoints(e *model.Edge, read func(*model.Endpoint) float64) {
	for i := range e.Endpoints {
		c.value(read(&e.Endpoints[i]), endpointLabels(&e.Endpoints[i])...)
	}
}

func (c *collector) endpointHistograms(e *model.Edge) {
	for i := range e.Endpoints {
		c.histogram(e.Endpoints[i].Latency, endpointLabels(&e.Endpoints[i])...)
	}
}

func endpointLabels(e *model.Endpoint) []model.Label {
	return []model.Label{label(LabelProtocol, string(e.Protocol)), label(LabelEndpoint, e.Name), label(LabelStatus, e.Status)}
}

func (c *collector) add(s model.Series) {
	s.Name, s.Kind, s.Time = c.metric.Name, c.metric.Kind, c.time
	if s.Kind != model.Gauge {
		s.Start = c.start
	}
	c.series = append(c.series, s)
}

// mergeFrom leaves one series of each set of labels among those from first on, which are of one
// metric: counters are added up, of gauges the first stays.
func (c *collector) mergeFrom(first int) {
	kept := c.series[:first]
	for _, s := range c.series[first:] {
		i := slices.IndexFunc(kept[first:], func(k model.Series) bool { return slices.Equal(k.Labels, s.Labels) })
		switch {
		case i < 0:
			kept = append(kept, s)
		case s.Kind == model.Counter:
			kept[first+i].Value += s.Value
		}
	}
	c.series = kept
}

func containerLabels(host string, c *model.Container) []model.Label {
	return labels(append(podLabels("", c), label(LabelHost, host), label(LabelID, c.ID), label(LabelImage, c.Image),
		label(LabelName, c.Name), label(LabelRuntime, string(c.Runtime)))...)
}

// podLabels tell what a container is in Kubernetes, under the names that cAdvisor uses.
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
		label(LabelService, serviceName(e.Service)), label(LabelSide, e.Side.String()), label(LabelTransport, e.Transport.String()),
		label(LabelVia, e.Via))...)
}

// serviceName is the service's address; many services that were put together have none.
func serviceName(service netip.AddrPort) string {
	if !service.IsValid() {
		return "others"
	}
	return service.String()
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
func Label(name, value string) model.Label { return label(name, value) }

// label is a label with a value that any reader accepts: UTF-8, of bounded length.
func label(name, value string) model.Label {
	value = strings.ToValidUTF8(value, string(utf8.RuneError))
	if len(value) > MaxLabelBytes {
		value = cut(value)
	}
	return model.Label{Name: name, Value: value}
}

// cut shortens value to at most MaxLabelBytes. The hash of the whole value at the end keeps two
// long values apart that begin alike.
func cut(value string) string {
	hash := fnv.New64a()
	hash.Write([]byte(value))
	mark := fmt.Sprintf("…%016x", hash.Sum64())
	end := MaxLabelBytes - len(mark)
	for !utf8.RuneStart(value[end]) {
		end--
	}
	return value[:end] + mark
}

// labels drops labels without a value, which mean the same as no label, and sorts the rest.
func labels(all ...model.Label) []model.Label {
	all = slices.DeleteFunc(all, func(l model.Label) bool { return l.Value == "" })
	slices.SortFunc(all, func(a, b model.Label) int { return strings.Compare(a.Name, b.Name) })
	return all
}

func with(base, extra []model.Label) []model.Label {
	if len(extra) == 0 {
		return base
	}
	return labels(slices.Concat(base, extra)...)
}
