package graph

import "math"

// kube is what labels say of an end in Kubernetes, or of the service that is asked for there.
// Fields that are not known are empty.
type kube struct {
	namespace, pod, container, workload, workloadKind, node string
	// serviceNamespace and service are a server's.
	serviceNamespace, service string
}

func podGroup(namespace, name string) *Node {
	return &Node{ID: "pod/" + namespace + "/" + name, Name: namespace + "/" + name, Kind: KindPod,
		PodNamespace: namespace, PodName: name}
}

func workloadGroup(namespace, kind, name string) *Node {
	return &Node{ID: "workload/" + namespace + "/" + kind + "/" + name, Name: namespace + "/" + name, Kind: KindWorkload,
		PodNamespace: namespace, Workload: name, WorkloadKind: kind}
}

func namespaceGroup(name string) *Node {
	return &Node{ID: "namespace/" + name, Name: name, Kind: KindNamespace, PodNamespace: name}
}

func serviceGroup(namespace, name string) *Node {
	return &Node{ID: "service/" + namespace + "/" + name, Name: namespace + "/" + name, Kind: KindClusterService,
		PodNamespace: namespace}
}

// addToPod adds a container to those of its pod, if it is in one.
func addToPod(pods map[string][]*Node, n *Node) {
	// "POD" is what kubelets call the container that holds a pod's namespaces. It serves nothing.
	if n.PodName != "" && n.Name != "POD" {
		pods[n.PodNamespace+"/"+n.PodName] = append(pods[n.PodNamespace+"/"+n.PodName], n)
	}
}

func (by Grouping) kubeGroup(k *kube, pods map[string][]*Node) *Node {
	switch by {
	case ByHost:
		if k.node != "" {
			return hostGroup(k.node)
		}
	case ByNamespace:
		if k.namespace != "" {
			return namespaceGroup(k.namespace)
		}
	case ByWorkload:
		if k.workload != "" {
			return workloadGroup(k.namespace, k.workloadKind, k.workload)
		}
	case ByContainer, ByProcess, "":
		if n := k.containerAmong(pods[k.namespace+"/"+k.pod]); n != nil {
			return n
		}
	}
	switch {
	case by == ByHost || by == ByNamespace && k.service == "":
		return nil
	case k.pod != "":
		group := podGroup(k.namespace, k.pod)
		group.Workload, group.WorkloadKind = k.workload, k.workloadKind
		return group
	case k.workload != "":
		return workloadGroup(k.namespace, k.workloadKind, k.workload)
	case k.service != "":
		return serviceGroup(k.serviceNamespace, k.service)
	}
	return nil
}

// containerAmong is the node of the container that is meant, of those that run; nil where several
// could be.
func (k *kube) containerAmong(all []*Node) *Node {
	var found *Node
	for _, n := range all {
		switch {
		case k.container != "" && n.Name != k.container:
		case found == nil || found.Gone && !n.Gone:
			found = n
		case found.Gone == n.Gone:
			return nil
		}
	}
	if found == nil {
		return nil
	}
	n := *found
	n.ID, n.SeriesID = nodeID(found.Host, found.ID), found.ID
	n.Kind = kindOf(n.SeriesID, n.Runtime)
	return &n
}

// agree reports whether two sides that different hosts counted are of one edge, as their labels say:
// their counts are the same but for what was under way at the ends of the window. Where a part of
// the requests went another way, they are not.
func agree(client, server *Side) bool {
	near := func(a, b, slack float64) bool { return math.Abs(a-b) <= 0.01*max(a, b)+slack }
	return near(client.Of(Transactions), server.Of(Transactions), 2) &&
		near(client.Of(RequestBytes), server.Of(RequestBytes), 4096) &&
		near(client.Of(ResponseBytes), server.Of(ResponseBytes), 4096)
}
