package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// The kinds of records of a history.
const (
	kindPod     = "pod"
	kindService = "service"
	kindSlice   = "endpointslice"
	kindNode    = "node"
)

// ofHistory is the kind of owner of a pod of a history.
const ofHistory = "(history)"

// rememberEvery is the time between two looks for what changed.
const rememberEvery = time.Second

type touchedObject struct{ kind, key string }

// The states of objects in the file.
type (
	podState struct {
		Namespace     string       `json:"namespace"`
		Name          string       `json:"name"`
		Node          string       `json:"node,omitempty"`
		Addresses     []netip.Addr `json:"addresses,omitempty"`
		NodeAddresses []netip.Addr `json:"node_addresses,omitempty"`
		HostNetwork   bool         `json:"host_network,omitempty"`
		Containers    []runState   `json:"containers,omitempty"`
		Regular       string       `json:"container,omitempty"`
		Ports         []portState  `json:"ports,omitempty"`
		HostPorts     []portState  `json:"host_ports,omitempty"`
		Workload      string       `json:"workload,omitempty"`
		WorkloadKind  string       `json:"workload_kind,omitempty"`
	}
	runState struct {
		ID   string `json:"id"`
		Name string `json:"name"`
	}
	portState struct {
		Port      uint16 `json:"port"`
		Transport string `json:"transport"`
	}
	serviceState struct {
		Addresses []netip.Addr `json:"addresses,omitempty"`
		Ports     []portState  `json:"ports,omitempty"`
		NodePorts []portState  `json:"node_ports,omitempty"`
	}
	sliceState struct {
		Service string        `json:"service"`
		Targets []targetState `json:"targets,omitempty"`
		Ports   []portState   `json:"ports,omitempty"`
	}
	targetState struct {
		Address netip.Addr `json:"address"`
		Pod     string     `json:"pod,omitempty"`
	}
	nodeState struct {
		Addresses []netip.Addr `json:"addresses,omitempty"`
	}
)

// splitKey is the namespace and name of a key.
func splitKey(key string) (namespace, name string) {
	namespace, name, _ = strings.Cut(key, "/")
	return namespace, name
}

func portStates(all []endpoint) (states []portState) {
	for _, e := range all {
		states = append(states, portState{e.port, e.transport})
	}
	return states
}

func endpointsOf(all []portState) (ports []endpoint) {
	for _, p := range all[:min(len(all), maxPorts)] {
		ports = append(ports, endpoint{p.Port, p.Transport})
	}
	return ports
}

// Remember has a history told what the cluster knows. It is called before Run.
func (c *Cluster) Remember(h *History) { c.history = h }

// touch notes that an object may have changed. c.mu must be held for writing.
func (c *Cluster) touch(kind, key string) {
	if c.history != nil {
		c.touched[touchedObject{kind, key}] = c.now()
	}
}

// runHistory tells the history what changed until ctx ends.
func (c *Cluster) runHistory(ctx context.Context) {
	ticker := time.NewTicker(rememberEvery)
	defer ticker.Stop()
	for settled := false; ; {
		var err error
		select {
		case <-ctx.Done():
			if err := c.tellHistory(); err != nil {
				c.options.Logger.Warn("Kubernetes: the history of names lacks the last changes", "error", err)
			}
			return
		case <-ticker.C:
			err = c.tellHistory()
		}
		select {
		case <-c.synced:
			if !settled && err == nil {
				settled, err = true, c.endAbsent()
			}
		default:
		}
		if err != nil {
			c.options.Logger.Warn("Kubernetes: the history of names is not written", "error", err)
		}
	}
}

// told is what a history is told of an object; is is nil where it is there no more.
type told struct {
	touchedObject
	began, ended time.Time
	is           any
}

// tellHistory tells the history what changed.
func (c *Cluster) tellHistory() error {
	c.mu.Lock()
	all := make([]told, 0, len(c.touched))
	again := map[touchedObject]time.Time{}
	for object, at := range c.touched {
		t, whole := c.tell(object, at)
		if all = append(all, t); !whole {
			again[object] = at
		}
	}
	c.touched = again
	c.mu.Unlock()
	var records []record
	for _, t := range all {
		if t.is != nil {
			written, err := c.history.note(t.kind, t.key, t.began, t.is)
			if err != nil {
				return err
			}
			records = append(records, written...)
		}
		if !t.ended.IsZero() {
			written, err := c.history.end(t.kind, t.key, t.ended)
			if err != nil {
				return err
			}
			records = append(records, written...)
		}
	}
	return c.history.write(records)
}

// tell is what a history is told of an object that changed at a time; whole is false where more will be known soon.
// c.mu must be held.
func (c *Cluster) tell(object touchedObject, at time.Time) (t told, whole bool) {
	t = told{touchedObject: object, ended: at}
	became := func(began time.Time, is any) {
		if began.IsZero() || began.After(at) {
			began = at
		}
		t.began, t.ended, t.is = began, time.Time{}, is
	}
	whole = true
	switch object.kind {
	case kindPod:
		known := c.pods.items[object.key]
		if known == nil {
			return t, true
		}
		p := known.object
		workload := c.owners.workload(p)
		s := podState{Namespace: p.namespace, Name: p.name, Node: p.node, Addresses: p.addresses,
			NodeAddresses: p.nodeAddress, HostNetwork: p.hostNetwork, Regular: p.regular, Ports: portStates(p.serving),
			HostPorts: portStates(p.hostPorts), Workload: workload.name, WorkloadKind: workload.kind}
		for _, one := range p.containers {
			s.Containers = append(s.Containers, runState{one.id, one.name})
		}
		became(p.began, s)
		if p.ended {
			if t.ended = at; !p.finished.IsZero() && p.finished.Before(at) {
				t.ended = p.finished
			}
		}
		whole = workload.name != ""
	case kindService:
		if known := c.services.items[object.key]; known != nil {
			s := known.object
			became(s.began, serviceState{s.addresses, portStates(s.ports), portStates(s.nodePorts)})
		}
	case kindSlice:
		if known := c.slices.items[object.key]; known != nil {
			s := known.object
			state := sliceState{Service: s.service, Ports: portStates(s.ports)}
			for _, one := range s.targets {
				state.Targets = append(state.Targets, targetState{one.address, one.pod})
			}
			became(s.began, state)
		}
	case kindNode:
		if known := c.nodes.items[object.key]; known != nil {
			became(known.object.began, nodeState{known.object.addresses})
		}
	}
	return t, whole
}

// endAbsent ends what the history has and the cluster, once it was listed, has not: it went while nobody looked.
func (c *Cluster) endAbsent() error {
	listed := map[string]bool{}
	for _, r := range c.reflectors {
		if synced, _, err := r.state(); synced && err == nil {
			listed[r.resource] = true
		}
	}
	kinds := map[string]bool{kindPod: listed["pods"], kindService: listed["services"],
		kindSlice: listed["endpointslices"], kindNode: listed["nodes"]}
	h := c.history
	h.mu.Lock()
	var absent []touchedObject
	for _, v := range h.newest {
		if kinds[v.Kind] {
			absent = append(absent, touchedObject{v.Kind, v.Key})
		}
	}
	h.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, object := range absent {
		if t, _ := c.tell(object, c.now()); t.is == nil {
			c.touched[object] = c.now()
		}
	}
	return nil
}

// decode makes functions that put a version into the index and take it out again.
func (h *History) decode(r *record) (add, remove func(), err error) {
	c, life := h.index, lifetime{began: time.UnixMilli(r.From)}
	if r.Until != 0 {
		life.ended = time.UnixMilli(r.Until)
	}
	read := func(into any) bool {
		err = json.Unmarshal(r.Is, into)
		return err == nil
	}
	switch r.Kind {
	case kindPod:
		var s podState
		if read(&s) {
			entry := s.entry(r.Key, life, c.options.Keep)
			return func() { c.hold(entry) }, func() {
				c.release(entry)
				delete(c.entryOf, entry.pod)
			}, nil
		}
	case kindService:
		var s serviceState
		if read(&s) {
			o := &service{lifetime: life, addresses: s.Addresses, ports: endpointsOf(s.Ports),
				nodePorts: endpointsOf(s.NodePorts)}
			o.namespace, o.name = splitKey(r.Key)
			return func() { c.indexService(o, nil) }, func() { c.unindexService(o, false) }, nil
		}
	case kindSlice:
		var s sliceState
		if read(&s) {
			o := &slice{lifetime: life, service: s.Service, ports: endpointsOf(s.Ports)}
			o.namespace, o.name = splitKey(r.Key)
			for _, t := range s.Targets[:min(len(s.Targets), maxTargets)] {
				o.targets = append(o.targets, target{t.Address, t.Pod})
			}
			return func() { c.indexSlice(o, nil) }, func() { c.unindexSlice(o, false) }, nil
		}
	case kindNode:
		var s nodeState
		if read(&s) {
			o := &node{lifetime: life, name: r.Key, addresses: s.Addresses}
			return func() { c.indexNode(o, nil) }, func() { c.unindexNode(o, false) }, nil
		}
	default:
		return nil, nil, fmt.Errorf("unknown kind %q", r.Kind)
	}
	return nil, nil, fmt.Errorf("reading a %s: %w", r.Kind, err)
}

func (s *podState) entry(uid string, life lifetime, keep time.Duration) *podEntry {
	p := &pod{uid: uid, namespace: s.Namespace, name: s.Name, node: s.Node, owner: owner{kind: ofHistory},
		workload: owner{s.WorkloadKind, s.Workload}, addresses: s.Addresses, nodeAddress: s.NodeAddresses,
		hostNetwork: s.HostNetwork, regular: s.Regular, serving: endpointsOf(s.Ports), hostPorts: endpointsOf(s.HostPorts),
		ended: !life.ended.IsZero()}
	for _, one := range s.Containers {
		p.containers = append(p.containers, podContainer{one.ID, one.Name})
	}
	e := &podEntry{pod: p, began: life.began, ended: life.ended}
	if p.ended {
		e.until = life.ended.Add(keep)
	}
	return e
}
