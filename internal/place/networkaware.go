package place

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// The groups of the resources that the Kubernetes scheduler plugins NetworkOverhead and TopologicalSort read (KEP-260).
const (
	appGroupVersion        = "appgroup.diktyo.x-k8s.io/v1alpha1"
	networkTopologyVersion = "networktopology.diktyo.x-k8s.io/v1alpha1"
	zoneLabel              = "topology.kubernetes.io/zone"
)

// maxNetworkCost is the greatest cost that the schema of AppGroup has.
const maxNetworkCost = 10000

// Delay is half a round trip between two hosts, by index, in seconds.
type Delay struct {
	A, B    int
	Seconds float64
}

// NetworkAware are resources with which Kubernetes' network-aware scheduling places pods by what was measured: an AppGroup
// for each namespace, with the bandwidth between its workloads, and a NetworkTopology with costs of 1 for each 10 µs of
// delay between hosts. There, each host is a zone: this is what the scheduler looks at.
func NetworkAware(p *Problem, delays []Delay, label string) ([]byte, error) {
	order, of := p.workloads()
	workloadOf := map[int]workload{}
	for w, some := range of {
		for _, i := range some {
			workloadOf[i] = w
		}
	}
	bytes := map[[2]workload]float64{}
	for _, t := range p.Traffic { // A is the client
		a, b := workloadOf[t.A], workloadOf[t.B]
		if a != b && a.name != "" && b.name != "" && a.namespace == b.namespace {
			bytes[[2]workload{a, b}] += t.Bytes
		}
	}
	byNamespace := map[string][]workload{}
	for _, w := range order {
		byNamespace[w.namespace] = append(byNamespace[w.namespace], w)
	}
	namespaces := make([]string, 0, len(byNamespace))
	for namespace := range byNamespace {
		namespaces = append(namespaces, namespace)
	}
	slices.Sort(namespaces)
	var all []object
	for _, namespace := range namespaces {
		pods := 0
		var workloads []object
		for _, w := range byNamespace[namespace] {
			pods += len(of[w])
			workloads = append(workloads, dependent(w, byNamespace[namespace], bytes, len(of[w])))
		}
		all = append(all, object{"apiVersion": appGroupVersion, "kind": "AppGroup", "metadata": object{
			"name": namespace, "namespace": namespace}, "spec": object{"numMembers": pods,
			"topologySortingAlgorithm": "KahnSort", "workloads": workloads}})
	}
	comment := "What outsight place measured, for the scheduler plugins TopologicalSort and NetworkOverhead. Pods need the label\n" +
		"appgroup.diktyo.x-k8s.io: NAMESPACE, and " + label + " with the name of their workload."
	if topology := p.topology(delays); topology != nil {
		comment += "\nEach node needs the label " + zoneLabel + " with its own name: costs are between nodes."
		all = append(all, topology)
	} else {
		comment += "\nThere is no NetworkTopology: no delays between hosts were measured in the window."
	}
	return documents(comment, all)
}

func (w workload) reference() object {
	return object{"kind": w.kind, "name": w.name, "selector": w.name, "apiVersion": apiVersions[w.kind],
		"namespace": w.namespace}
}

// dependent is a workload with those that it calls, and the bandwidth that each of its pods needs to them.
func dependent(w workload, others []workload, bytes map[[2]workload]float64, pods int) object {
	o := object{"workload": w.reference()}
	var on []object
	for _, other := range others {
		if n := bytes[[2]workload{w, other}]; n > 0 {
			on = append(on, object{"workload": other.reference(),
				"minBandwidth": fmt.Sprint(int64(math.Ceil(8 * n / float64(pods)))), "maxNetworkCost": maxNetworkCost})
		}
	}
	if on != nil {
		o["dependencies"] = on
	}
	return o
}

// topology are the costs between hosts of which delays were measured, nil where there are none.
func (p *Problem) topology(delays []Delay) object {
	costs := map[int][]object{}
	sorted := slices.Clone(delays)
	slices.SortFunc(sorted, func(x, y Delay) int { return cmp.Or(cmp.Compare(x.A, y.A), cmp.Compare(x.B, y.B)) })
	for _, d := range sorted {
		cost := min(maxNetworkCost, max(1, int(math.Round(d.Seconds*1e5))))
		costs[d.A] = append(costs[d.A], object{"destination": p.Hosts[d.B].Name, "networkCost": cost})
	}
	var origins []object
	for h, host := range p.Hosts {
		if costs[h] != nil {
			origins = append(origins, object{"origin": host.Name, "costList": costs[h]})
		}
	}
	if origins == nil {
		return nil
	}
	return object{"apiVersion": networkTopologyVersion, "kind": "NetworkTopology", "metadata": object{
		"name": "outsight", "namespace": "default"}, "spec": object{"configmapName": "outsight",
		"weights": []object{{"name": "UserDefined", "topologyList": []object{{"topologyKey": zoneLabel,
			"originList": origins}}}}}}
}

// Manifest is the result in one of the outputs kubernetes, compose and network-aware.
func (r *Result) Manifest(output string, p *Problem, delays []Delay, label string) ([]byte, error) {
	label = cmp.Or(label, DefaultPodLabel)
	switch output {
	case "kubernetes":
		return r.Kubernetes(p, label)
	case "compose":
		return r.Compose(p)
	case "network-aware":
		return NetworkAware(p, delays, label)
	}
	return nil, fmt.Errorf("output is %q, want %s", output, strings.Join(Manifests, ", "))
}

// Manifests are the outputs that Manifest has.
var Manifests = []string{"kubernetes", "compose", "network-aware"}
