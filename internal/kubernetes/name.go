package kubernetes

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"outsight/internal/model"
	"outsight/internal/otlp"
)

// Name puts the names of pods, workloads, services and nodes to the series of containers and edges.
// What a series was given stays as it is: labels are added where there are none. Series that gain
// nothing are the same as before, and the input is not changed.
//
// An end of an edge that the agent did not find is the pod that has its address, or on a node's
// address the pod that listens at the port; the confidence of such an edge is then ByAddress. Of a
// service with a virtual address the pod is named if there is only one, and the workload if all of
// its pods are of one.
//
// A nil Cluster answers with the input.
func (c *Cluster) Name(series []model.Series) []model.Series {
	if c == nil || len(series) == 0 {
		return series
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	n := namer{Cluster: c, at: c.now(), whole: map[wholeKey][]model.Label{}, ends: map[endsKey]addition{},
		behind: map[string]backing{}}
	named := slices.Clone(series)
	for i := range named {
		n.name(&named[i])
	}
	return named
}

// namer names the series of one batch. Most of a batch's series share their labels with others.
type namer struct {
	*Cluster
	at time.Time
	// past is the time of which services, slices and nodes are looked for; the zero Time for what there is now.
	past time.Time
	// whole is by the labels as received, ends by those that say who the ends are.
	whole  map[wholeKey][]model.Label
	ends   map[endsKey]addition
	behind map[string]backing
}

// wholeKey tells slices of labels apart: the same array and length are the same labels.
type wholeKey struct {
	first *model.Label
	count int
}

type endsKey struct{ client, server, service, transport string }

// addition is what is added to the series of an edge.
type addition struct {
	labels []model.Label
	// found: an end that was an address is a pod.
	found bool
}

func (n *namer) name(s *model.Series) {
	if len(s.Labels) == 0 {
		return
	}
	// Nearly always it has the labels of a series before it; only this metric is more than its labels.
	if labels, ok := n.whole[wholeKey{&s.Labels[0], len(s.Labels)}]; ok && s.Name != otlp.EdgeConfidence {
		s.Labels = labels
		return
	}
	if value(s.Labels, otlp.LabelSide) != "" {
		ends := n.edge(s.Labels)
		n.add(s, ends.labels)
		if s.Name == otlp.EdgeConfidence && ends.found && s.Value < float64(model.ByAddress) {
			s.Value = float64(model.ByAddress)
		}
		return
	}
	if id := value(s.Labels, otlp.LabelID); id != "" {
		key := wholeKey{&s.Labels[0], len(s.Labels)}
		labels, ok := n.whole[key]
		if !ok {
			labels = merge(s.Labels, n.container(id, s.Labels))
			n.whole[key] = labels
		}
		s.Labels = labels
	}
}

func (n *namer) add(s *model.Series, labels []model.Label) {
	key := wholeKey{&s.Labels[0], len(s.Labels)}
	if len(labels) == 0 {
		n.whole[key] = s.Labels
		return
	}
	merged, ok := n.whole[key]
	if !ok {
		merged = merge(s.Labels, labels)
		n.whole[key] = merged
	}
	s.Labels = merged
}

// container is what is known of the container of a series.
func (n *namer) container(id string, given []model.Label) []model.Label {
	run := n.byContainer[id]
	if run.pod == nil {
		run.pod = n.byName[value(given, otlp.LabelNamespace)+"/"+value(given, otlp.LabelPod)]
	}
	return n.podLabels("", run.pod, run.name)
}

// podLabels are those of a pod, of the ones whose names begin with prefix.
func (n *namer) podLabels(prefix string, h *podEntry, container string) []model.Label {
	if h == nil {
		return nil
	}
	workload := n.owners.workload(h.pod)
	return []model.Label{
		{Name: prefix + otlp.LabelNamespace, Value: h.namespace}, {Name: prefix + otlp.LabelPod, Value: h.name},
		{Name: prefix + otlp.LabelContainer, Value: container},
		{Name: prefix + otlp.LabelWorkload, Value: workload.name},
		{Name: prefix + otlp.LabelWorkloadKind, Value: workload.kind},
	}
}

// edge is what is known of the ends of an edge.
func (n *namer) edge(labels []model.Label) addition {
	key := endsKey{value(labels, otlp.LabelClientID), value(labels, otlp.LabelServerID),
		value(labels, otlp.LabelService), value(labels, otlp.LabelTransport)}
	if a, ok := n.ends[key]; ok {
		return a
	}
	var a addition
	at := spot{endpoint: endpoint{transport: key.transport}}
	if key.transport == "" {
		at.transport = model.TCP.String()
	}
	if service, err := netip.ParseAddrPort(key.service); err == nil {
		at.address, at.port = service.Addr().Unmap().WithZone(""), service.Port()
	}
	a.labels = n.end(&a, otlp.ClientPrefix, key.client, spot{})
	a.labels = append(a.labels, n.end(&a, otlp.ServerPrefix, key.server, at)...)
	if s := n.service(at); s != "" {
		namespace, name, _ := strings.Cut(s, "/")
		a.labels = append(a.labels, model.Label{Name: otlp.LabelServiceNamespace, Value: namespace},
			model.Label{Name: otlp.LabelServiceName, Value: name})
	}
	a.labels = slices.DeleteFunc(a.labels, func(l model.Label) bool { return l.Value == "" })
	n.ends[key] = a
	return a
}

// end is what is known of one end; at is the address that it serves, if any.
func (n *namer) end(a *addition, prefix, id string, at spot) []model.Label {
	address, err := netip.ParseAddr(id)
	if err != nil {
		one := n.byContainer[id]
		return n.podLabels(prefix, one.pod, one.name)
	}
	address = address.Unmap().WithZone("")
	if h := one(n.byAddress[address], n.at); h != nil {
		a.found = true
		return append(n.podLabels(prefix, h, h.regular), model.Label{Name: prefix + otlp.LabelNode, Value: h.node})
	}
	if name := n.nodeAt(address); name != "" {
		labels := []model.Label{{Name: prefix + otlp.LabelNode, Value: name}}
		at.address = address
		if h := n.onHost(at); h != nil {
			a.found = true
			labels = append(labels, n.podLabels(prefix, h, h.regular)...)
		}
		return labels
	}
	if at.address != address {
		return nil
	}
	s := n.service(at)
	if s == "" {
		return nil
	}
	b := n.backing(s)
	switch {
	case b.pod != nil:
		a.found = true
		return append(n.podLabels(prefix, b.pod, b.pod.regular),
			model.Label{Name: prefix + otlp.LabelNode, Value: b.pod.node})
	case b.namespace != "":
		a.found = b.workload.name != ""
		return []model.Label{{Name: prefix + otlp.LabelNamespace, Value: b.namespace},
			{Name: prefix + otlp.LabelWorkload, Value: b.workload.name},
			{Name: prefix + otlp.LabelWorkloadKind, Value: b.workload.kind}}
	}
	return nil
}

// onHost is the pod that serves at a port of a node: as a service says, or as its containers declare.
func (n *namer) onHost(at spot) *podEntry {
	for _, s := range during(n.byEndpoint[at], n.past) {
		for _, t := range s.targets {
			if h := n.byName[t.pod]; t.address == at.address && h != nil && h.hostNetwork {
				return h
			}
		}
	}
	return one(n.byHostPort[at], n.at)
}

// target is the pod behind a service that an endpoint slice names.
func (n *namer) target(t target) *podEntry {
	if h := n.byName[t.pod]; h != nil {
		return h
	}
	return one(n.byAddress[t.address], n.at)
}

// nodeAt is the name of the node that has an address.
func (n *namer) nodeAt(a netip.Addr) string {
	if all := during(n.nodeAddress[a], n.past); len(all) == 1 {
		return all[0].name
	}
	for _, h := range n.onNode[a] {
		if n.past.IsZero() || !n.past.Before(h.began) && (h.ended.IsZero() || n.past.Before(h.ended)) {
			return h.node
		}
	}
	return ""
}

// service is the key of the only service that is reached at an address: at its virtual one, at a
// node's, or at that of one of its pods.
func (n *namer) service(at spot) string {
	switch all := during(n.byVirtual[at], n.past); {
	case len(all) == 1:
		return all[0].key()
	case len(all) > 1:
		return ""
	}
	if all := during(n.byNodePort[at.endpoint], n.past); len(all) == 1 && n.nodeAt(at.address) != "" {
		return all[0].key()
	}
	found := ""
	for _, s := range during(n.byEndpoint[at], n.past) {
		if found != "" && found != s.service {
			return "" // several services have this pod
		}
		found = s.service
	}
	return found
}

// backing is what all pods behind a service have in common.
type backing struct {
	pod       *podEntry // the only one
	namespace string
	workload  owner
}

func (n *namer) backing(service string) backing {
	if b, ok := n.behind[service]; ok {
		return b
	}
	var b backing
	count := 0
	for _, s := range during(n.ofService[service], n.past) {
		for _, t := range s.targets {
			h := n.target(t)
			if h == nil || h == b.pod {
				if h == nil {
					count = -1 << 30 // one that is not known may be anything
				}
				continue
			}
			workload := n.owners.workload(h.pod)
			if count++; count > 1 && (workload != b.workload || h.namespace != b.namespace) {
				workload = owner{}
			}
			b = backing{h, h.namespace, workload}
		}
	}
	if count != 1 {
		b.pod = nil
	}
	if count < 1 {
		b = backing{}
	}
	n.behind[service] = b
	return b
}

// during are the objects that were as they are at a time.
func during[T interface{ holds(time.Time) bool }](all []T, at time.Time) []T {
	if at.IsZero() {
		return all
	}
	var then []T
	for _, one := range all {
		if one.holds(at) {
			then = append(then, one)
		}
	}
	return then
}

func value(labels []model.Label, name string) string {
	for i := range labels {
		if labels[i].Name == name {
			return labels[i].Value
		}
	}
	return ""
}

// merge is labels, which are in order, with what is added and not empty.
func merge(labels, added []model.Label) []model.Label {
	merged := labels
	for _, l := range added {
		at, known := slices.BinarySearchFunc(merged, l, func(a, b model.Label) int { return strings.Compare(a.Name, b.Name) })
		if known || l.Value == "" {
			continue
		}
		if len(merged) == len(labels) {
			merged = append(make([]model.Label, 0, len(labels)+len(added)), labels...)
		}
		merged = slices.Insert(merged, at, l)
	}
	return merged
}
