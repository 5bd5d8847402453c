package kubernetes

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// The parts of objects that matter here, as the API server writes them. Everything else is passed
// over while decoding.

type metadata struct {
	Name            string    `json:"name"`
	Namespace       string    `json:"namespace"`
	UID             string    `json:"uid"`
	ResourceVersion string    `json:"resourceVersion"`
	Created         time.Time `json:"creationTimestamp"`
	// Labels are all of them: selectors may name any.
	Labels      map[string]string `json:"labels"`
	Annotations struct {
		ConfigHash string `json:"kubernetes.io/config.hash"`
		Mirror     string `json:"kubernetes.io/config.mirror"`
	} `json:"annotations"`
	OwnerReferences []struct {
		Kind       string `json:"kind"`
		Name       string `json:"name"`
		Controller bool   `json:"controller"`
	} `json:"ownerReferences"`
}

// owner is the object's controller, or the empty owner.
func (m *metadata) owner() owner {
	for _, o := range m.OwnerReferences {
		if o.Controller {
			return owner{o.Kind, o.Name}
		}
	}
	return owner{}
}

type containerStatus struct {
	Name        string         `json:"name"`
	ContainerID string         `json:"containerID"`
	State       containerState `json:"state"`
	LastState   containerState `json:"lastState"`
}

type containerState struct {
	Terminated struct {
		ContainerID string    `json:"containerID"`
		FinishedAt  time.Time `json:"finishedAt"`
	} `json:"terminated"`
}

type containerSpec struct {
	Name  string `json:"name"`
	Ports []struct {
		ContainerPort uint16 `json:"containerPort"`
		HostPort      uint16 `json:"hostPort"`
		Protocol      string `json:"protocol"`
	} `json:"ports"`
}

type addressObject struct {
	IP string `json:"ip"`
}

type podObject struct {
	Metadata metadata `json:"metadata"`
	Spec     struct {
		NodeName    string          `json:"nodeName"`
		HostNetwork bool            `json:"hostNetwork"`
		Containers  []containerSpec `json:"containers"`
		placementSpec
	} `json:"spec"`
	Status struct {
		Phase     string            `json:"phase"`
		StartTime time.Time         `json:"startTime"`
		PodIP     string            `json:"podIP"`
		PodIPs    []addressObject   `json:"podIPs"`
		HostIP    string            `json:"hostIP"`
		HostIPs   []addressObject   `json:"hostIPs"`
		Init      []containerStatus `json:"initContainerStatuses"`
		Regular   []containerStatus `json:"containerStatuses"`
		Ephemeral []containerStatus `json:"ephemeralContainerStatuses"`
	} `json:"status"`
}

// Bounds of what is kept of one object. They are far above what Kubernetes makes.
const (
	maxAddresses  = 64
	maxPorts      = 256
	maxContainers = 256
	maxNodeLabels = 256
)

// endpoint is a port of a transport: "tcp", "udp" or "sctp".
type endpoint struct {
	port      uint16
	transport string
}

func transportOf(protocol string) string {
	switch protocol {
	case "UDP":
		return "udp"
	case "SCTP":
		return "sctp"
	}
	return "tcp"
}

// pod is what is kept of a pod.
type pod struct {
	uid, namespace, name, node string
	// hash is the uid that the kubelet gives to a pod from a file, whose object in the API has
	// another one.
	hash         string
	owner        owner
	templateHash string
	// workload is that of a pod of a history, whose owner is of the kind ofHistory.
	workload owner
	// began and finished are the zero Time where they are not known.
	began, finished time.Time
	addresses       []netip.Addr
	nodeAddress     []netip.Addr
	hostNetwork     bool
	// ended: its containers have all ended, and its address may be another pod's.
	ended      bool
	containers []podContainer
	// regular is the only container that is neither an init container nor an ephemeral one, or
	// empty where there are several.
	regular string
	// serving are ports that containers declare on the pod's addresses, hostPorts those on its node's.
	serving, hostPorts []endpoint
	// placement is a model.PlacementText.
	placement string
}

// podContainer is a run of a container. A container that is restarted has another id.
type podContainer struct{ id, name string }

func (p *pod) key() string { return p.uid }

func decodePod(text []byte) (*pod, metadata, error) {
	var o podObject
	if err := json.Unmarshal(text, &o); err != nil {
		return nil, o.Metadata, fmt.Errorf("reading a pod: %w", err)
	}
	m := &o.Metadata
	p := &pod{uid: m.UID, namespace: m.Namespace, name: m.Name, node: o.Spec.NodeName, templateHash: m.Labels["pod-template-hash"],
		owner: m.owner(), hostNetwork: o.Spec.HostNetwork, ended: o.Status.Phase == "Succeeded" || o.Status.Phase == "Failed"}
	if p.uid == "" {
		return nil, o.Metadata, fmt.Errorf("reading a pod: %q has no uid", m.Name)
	}
	// The mirror in the API has the hash of the file twice: as what it mirrors, and its own.
	if p.hash = m.Annotations.Mirror; p.hash == "" {
		p.hash = m.Annotations.ConfigHash
	}
	if p.began = o.Status.StartTime; p.began.IsZero() {
		p.began = m.Created
	}
	p.placement = o.Spec.text(m)
	p.addresses = addresses(o.Status.PodIP, o.Status.PodIPs)
	p.nodeAddress = addresses(o.Status.HostIP, o.Status.HostIPs)
	for _, list := range [][]containerStatus{o.Status.Regular, o.Status.Init, o.Status.Ephemeral} {
		for i := range list {
			p.addContainer(&list[i])
			if finished := list[i].State.Terminated.FinishedAt; p.ended && finished.After(p.finished) {
				p.finished = finished
			}
		}
	}
	if len(o.Spec.Containers) == 1 {
		p.regular = o.Spec.Containers[0].Name
	}
	for _, c := range o.Spec.Containers {
		for _, port := range c.Ports {
			if len(p.serving) >= maxPorts {
				break
			}
			p.serving = append(p.serving, endpoint{port.ContainerPort, transportOf(port.Protocol)})
			if port.HostPort != 0 {
				p.hostPorts = append(p.hostPorts, endpoint{port.HostPort, transportOf(port.Protocol)})
			}
		}
	}
	return p, o.Metadata, nil
}

// addContainer keeps the ids of the container's present and previous run.
func (p *pod) addContainer(s *containerStatus) {
	for _, id := range []string{s.ContainerID, s.State.Terminated.ContainerID, s.LastState.Terminated.ContainerID} {
		// "containerd://<id>"
		_, id, _ = strings.Cut(id, "://")
		if id == "" || len(p.containers) >= maxContainers {
			continue
		}
		known := false
		for _, c := range p.containers {
			known = known || c.id == id
		}
		if !known {
			p.containers = append(p.containers, podContainer{id, s.Name})
		}
	}
}

func addresses(first string, all []addressObject) []netip.Addr {
	var list []netip.Addr
	for i := range min(len(all), maxAddresses) {
		list = addAddress(list, all[i].IP)
	}
	return addAddress(list, first)
}

func addAddress(list []netip.Addr, text string) []netip.Addr {
	a, err := netip.ParseAddr(text)
	if err != nil || len(list) >= maxAddresses {
		return list // "None", or not there yet
	}
	a = a.Unmap().WithZone("")
	for _, known := range list {
		if known == a {
			return list
		}
	}
	return append(list, a)
}

// lifetime is when an object was as it is, by what is known; ended is the zero Time while it is.
type lifetime struct{ began, ended time.Time }

// holds reports whether an object was as it is at a time. Where the time is the zero Time, it is now.
func (l *lifetime) holds(at time.Time) bool {
	return at.IsZero() || !at.Before(l.began) && (l.ended.IsZero() || at.Before(l.ended))
}

// service is what is kept of a service.
type service struct {
	lifetime
	namespace, name string
	// addresses are virtual: cluster IPs, load balancers' and external ones. A headless service
	// has none.
	addresses []netip.Addr
	ports     []endpoint
	// nodePorts are on the addresses of every node.
	nodePorts []endpoint
}

func (s *service) key() string { return s.namespace + "/" + s.name }

func decodeService(text []byte) (*service, metadata, error) {
	var o struct {
		Metadata metadata `json:"metadata"`
		Spec     struct {
			ClusterIP   string   `json:"clusterIP"`
			ClusterIPs  []string `json:"clusterIPs"`
			ExternalIPs []string `json:"externalIPs"`
			Ports       []struct {
				Port     uint16 `json:"port"`
				NodePort uint16 `json:"nodePort"`
				Protocol string `json:"protocol"`
			} `json:"ports"`
		} `json:"spec"`
		Status struct {
			LoadBalancer struct {
				Ingress []addressObject `json:"ingress"`
			} `json:"loadBalancer"`
		} `json:"status"`
	}
	if err := json.Unmarshal(text, &o); err != nil {
		return nil, o.Metadata, fmt.Errorf("reading a service: %w", err)
	}
	s := &service{lifetime: lifetime{began: o.Metadata.Created}, namespace: o.Metadata.Namespace, name: o.Metadata.Name}
	s.addresses = addresses(o.Spec.ClusterIP, o.Status.LoadBalancer.Ingress)
	for _, text := range append(o.Spec.ClusterIPs, o.Spec.ExternalIPs...) {
		s.addresses = addAddress(s.addresses, text)
	}
	for _, p := range o.Spec.Ports[:min(len(o.Spec.Ports), maxPorts)] {
		s.ports = append(s.ports, endpoint{p.Port, transportOf(p.Protocol)})
		if p.NodePort != 0 {
			s.nodePorts = append(s.nodePorts, endpoint{p.NodePort, transportOf(p.Protocol)})
		}
	}
	return s, o.Metadata, nil
}

// slice is what is kept of an endpoint slice: where a service's pods are.
type slice struct {
	lifetime
	namespace, name string
	service         string // its key
	targets         []target
	ports           []endpoint
}

// target is one of a service's servers: an address, and the key of the pod that it is, if it is one.
type target struct {
	address netip.Addr
	pod     string
}

func (s *slice) key() string { return s.namespace + "/" + s.name }

// maxTargets is what Kubernetes itself allows in a slice.
const maxTargets = 1000

func decodeSlice(text []byte) (*slice, metadata, error) {
	var o struct {
		Metadata  metadata `json:"metadata"`
		Endpoints []struct {
			Addresses []string `json:"addresses"`
			TargetRef struct {
				Kind      string `json:"kind"`
				Namespace string `json:"namespace"`
				Name      string `json:"name"`
			} `json:"targetRef"`
		} `json:"endpoints"`
		Ports []struct {
			Port     uint16 `json:"port"`
			Protocol string `json:"protocol"`
		} `json:"ports"`
	}
	if err := json.Unmarshal(text, &o); err != nil {
		return nil, o.Metadata, fmt.Errorf("reading an endpoint slice: %w", err)
	}
	s := &slice{lifetime: lifetime{began: o.Metadata.Created}, namespace: o.Metadata.Namespace, name: o.Metadata.Name}
	if name := o.Metadata.Labels["kubernetes.io/service-name"]; name != "" {
		s.service = s.namespace + "/" + name
	}
	for _, e := range o.Endpoints {
		// All addresses of an endpoint are fungible; the first one is used.
		if len(e.Addresses) == 0 || len(s.targets) >= maxTargets {
			continue
		}
		a, err := netip.ParseAddr(e.Addresses[0])
		if err != nil {
			continue // a name, which only old clusters have
		}
		t := target{address: a.Unmap().WithZone("")}
		if e.TargetRef.Kind == "Pod" {
			t.pod = e.TargetRef.Namespace + "/" + e.TargetRef.Name
		}
		s.targets = append(s.targets, t)
	}
	for _, p := range o.Ports[:min(len(o.Ports), maxPorts)] {
		s.ports = append(s.ports, endpoint{p.Port, transportOf(p.Protocol)})
	}
	return s, o.Metadata, nil
}

// node is what is kept of a node.
type node struct {
	lifetime
	name      string
	addresses []netip.Addr
	labels    map[string]string
}

func (n *node) key() string { return n.name }

func decodeNode(text []byte) (*node, metadata, error) {
	var o struct {
		Metadata metadata `json:"metadata"`
		Status   struct {
			Addresses []struct {
				Address string `json:"address"`
			} `json:"addresses"`
		} `json:"status"`
	}
	if err := json.Unmarshal(text, &o); err != nil {
		return nil, o.Metadata, fmt.Errorf("reading a node: %w", err)
	}
	n := &node{lifetime: lifetime{began: o.Metadata.Created}, name: o.Metadata.Name, labels: map[string]string{}}
	for _, name := range slices.Sorted(maps.Keys(o.Metadata.Labels)) {
		if len(n.labels) < maxNodeLabels {
			n.labels[name] = o.Metadata.Labels[name]
		}
	}
	for _, a := range o.Status.Addresses {
		n.addresses = addAddress(n.addresses, a.Address)
	}
	return n, o.Metadata, nil
}
