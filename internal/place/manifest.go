package place

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// object is a YAML mapping. Its keys are written in order of their names.
type object map[string]any

// documents writes a comment, and one YAML document for each object.
func documents(comment string, objects []object) ([]byte, error) {
	var b bytes.Buffer
	for _, line := range strings.Split(comment, "\n") {
		fmt.Fprintf(&b, "# %s\n", line)
	}
	for _, o := range objects {
		b.WriteString("---\n")
		e := yaml.NewEncoder(&b)
		e.SetIndent(2)
		if err := e.Encode(o); err != nil {
			return nil, err
		}
		if err := e.Close(); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), nil
}

// workload is what manifests are of: a Deployment, a StatefulSet and so on, with all its pods.
type workload struct{ namespace, kind, name string }

// apiVersions are those of the kinds whose pods may be placed.
var apiVersions = map[string]string{"Deployment": "apps/v1", "StatefulSet": "apps/v1", "ReplicaSet": "apps/v1"}

// workloads are those of the containers, with their indexes, in order of their names.
func (p *Problem) workloads() (order []workload, of map[workload][]int) {
	of = map[workload][]int{}
	for i, c := range p.Containers {
		w := workload{c.Namespace, c.WorkloadKind, c.Workload}
		if apiVersions[w.kind] == "" || w.name == "" {
			continue
		}
		if of[w] == nil {
			order = append(order, w)
		}
		of[w] = append(of[w], i)
	}
	slices.SortFunc(order, func(a, b workload) int {
		return strings.Compare(a.namespace+"/"+a.name+"/"+a.kind, b.namespace+"/"+b.name+"/"+b.kind)
	})
	return order, of
}

// DefaultPodLabel is the label of pods that has their workload's name, unless the user says another.
const DefaultPodLabel = "app"

const hostnameLabel = "kubernetes.io/hostname"

// Kubernetes are patches of the workloads that move: node affinity to the hosts of the placement, and where there are
// several, how evenly the pods are spread over them. Frames do not have the labels of pods: label is the one that has the
// workload's name.
func (r *Result) Kubernetes(p *Problem, label string) ([]byte, error) {
	order, of := p.workloads()
	var patches []object
	for _, w := range order {
		on, moved := map[string]int{}, false
		for _, i := range of[w] {
			on[p.Hosts[r.Placement[i]].Name]++
			moved = moved || r.Placement[i] != p.Containers[i].Host
		}
		if moved {
			patches = append(patches, patch(w, on, label))
		}
	}
	return documents("What outsight place found, as strategic merge patches: kubectl patch KIND NAME -n NAMESPACE --patch-file FILE.\n"+
		"Affinity is preferred: the scheduler still places a pod elsewhere where there is no room.", patches)
}

func patch(w workload, on map[string]int, label string) object {
	hosts := make([]string, 0, len(on))
	least, most := 0, 0
	for host, n := range on {
		hosts = append(hosts, host)
		if least == 0 || n < least {
			least = n
		}
		most = max(most, n)
	}
	slices.Sort(hosts)
	spec := object{"affinity": object{"nodeAffinity": object{"preferredDuringSchedulingIgnoredDuringExecution": []object{{
		"weight": 100, "preference": object{"matchExpressions": []object{{
			"key": hostnameLabel, "operator": "In", "values": hosts}}}}}}}}
	if len(hosts) > 1 {
		spec["topologySpreadConstraints"] = []object{{"maxSkew": max(1, most-least), "topologyKey": hostnameLabel,
			"whenUnsatisfiable": "ScheduleAnyway", "nodeAffinityPolicy": "Honor",
			"labelSelector": object{"matchLabels": object{label: w.name}}}}
	}
	return object{"apiVersion": apiVersions[w.kind], "kind": w.kind, "metadata": object{"name": w.name,
		"namespace": w.namespace}, "spec": object{"template": object{"spec": spec}}}
}

// Compose is an override file for a stack on Docker Swarm: on which nodes each service is to run.
func (r *Result) Compose(p *Problem) ([]byte, error) {
	services := object{}
	hosts := map[string][]string{}
	moved := map[string]bool{}
	for i, c := range p.Containers {
		if c.Pinned != "" || c.Pod != "" {
			continue
		}
		name := c.Name
		if c.Workload != "" {
			name = c.Workload
		}
		if host := p.Hosts[r.Placement[i]].Name; !slices.Contains(hosts[name], host) {
			hosts[name] = append(hosts[name], host)
		}
		moved[name] = moved[name] || r.Placement[i] != c.Host
	}
	skipped := 0
	for name, on := range hosts {
		switch {
		case !moved[name]:
		case len(on) > 1: // constraints are joined by and
			skipped++
		default:
			services[name] = object{"deploy": object{"placement": object{"constraints": []string{
				"node.hostname == " + on[0]}}}}
		}
	}
	comment := "What outsight place found, for docker stack deploy -c STACK -c THIS. Services are called as their containers are seen."
	if skipped > 0 {
		comment += fmt.Sprintf("\nLeft out: %d services that are to run on several nodes, which no constraint can say.", skipped)
	}
	return documents(comment, []object{{"services": services}})
}
