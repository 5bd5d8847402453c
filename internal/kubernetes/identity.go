package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"outsight/internal/model"
)

// Identify reports what Kubernetes calls a container, by the runtime's id of it, or if that is not
// known yet, by its pod's uid as the control group's path has it. It is false for what is in no
// known pod.
func (c *Cluster) Identify(containerID, podUID string) (model.PodIdentity, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	known, ok := c.byContainer[containerID]
	if !ok {
		known.pod = c.byUID[podUID]
	}
	if known.pod == nil {
		return model.PodIdentity{}, false
	}
	workload := c.owners.workload(known.pod.pod)
	return model.PodIdentity{Namespace: known.pod.namespace, Pod: known.pod.name, Container: known.name,
		Workload: workload.name, WorkloadKind: workload.kind,
		Placement: known.pod.placement}, true
}

// Pods is the number of pods that exist and are known.
func (c *Cluster) Pods() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.pods.items)
}

// Drops reports how full the tables are and what found no room in them.
func (c *Cluster) Drops() []model.Drop {
	var sum counts
	for _, r := range c.reflectors {
		_, n, _ := r.state()
		sum.large, sum.unreadable, sum.lost, sum.expired = sum.large+n.large, sum.unreadable+n.unreadable, sum.lost+n.lost,
			sum.expired+n.expired
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	drops := []model.Drop{
		{Name: "kubernetes/pods", Count: c.pods.full, Capacity: uint64(c.pods.max),
			Used: uint64(len(c.pods.items) + len(c.retired))},
		{Name: "kubernetes/owners", Count: c.owners.full, Capacity: uint64(c.owners.max), Used: uint64(len(c.owners.asked))},
	}
	if c.options.Node == "" {
		drops = append(drops,
			model.Drop{Name: "kubernetes/services", Count: c.services.full, Capacity: uint64(c.services.max),
				Used: uint64(len(c.services.items))},
			model.Drop{Name: "kubernetes/endpoint-slices", Count: c.slices.full, Capacity: uint64(c.slices.max),
				Used: uint64(len(c.slices.items))},
			model.Drop{Name: "kubernetes/nodes", Count: c.nodes.full, Capacity: uint64(c.nodes.max),
				Used: uint64(len(c.nodes.items))})
	}
	return append(drops,
		model.Drop{Name: "kubernetes/large-objects", Count: sum.large},
		model.Drop{Name: "kubernetes/unreadable-objects", Count: sum.unreadable},
		model.Drop{Name: "kubernetes/lost-watches", Count: sum.lost},
		model.Drop{Name: "kubernetes/expired-versions", Count: sum.expired})
}

// purposes are what resources are for, as a person would say it.
var purposes = map[string]string{
	"pods": "names of pods and their containers", "services": "names behind virtual addresses",
	"endpointslices": "which pods are behind a service", "nodes": "names of nodes by their addresses",
	"replicasets": "which deployment a pod belongs to", "jobs": "which cron job a pod belongs to",
}

// Features reports what of the cluster is known. None of it is required.
func (c *Cluster) Features() []model.Feature {
	var all []model.Feature
	for _, r := range c.reflectors {
		synced, _, err := r.state()
		if err == nil && !synced {
			err = errors.New("the API server has not answered yet")
		}
		if err == nil && r.resource == "pods" && c.options.Node != "" && c.Pods() == 0 {
			err = fmt.Errorf("there is no pod on a node called %q", c.options.Node)
		}
		all = append(all, feature(r.resource, "list and watch", err))
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, kind := range []string{"ReplicaSet", "Job"} {
		all = append(all, feature(above[kind].resource, "get", c.owners.refused[kind].err))
	}
	return all
}

func feature(resource, verbs string, err error) model.Feature {
	f := model.Feature{Name: "kubernetes/" + resource, Purpose: purposes[resource], State: model.FeatureWorks}
	if err == nil || errors.Is(err, errGone) {
		return f
	}
	f.State, f.Reason = model.FeatureAbsent, err.Error()
	var login *loginError
	switch {
	case errors.As(err, &login):
		f.Remedy = loginRemedy
	case refused(err, http.StatusForbidden):
		f.Remedy = fmt.Sprintf("a ClusterRole with the verbs %s on %s, bound to this account", verbs, resource)
	case refused(err, http.StatusUnauthorized):
		f.Remedy = "a token or certificate that the API server accepts"
	case strings.Contains(f.Reason, "no pod on a node"):
		f.Remedy = "name the node with --node-name as Kubernetes calls it"
	default:
		f.Remedy = "an API server that answers"
	}
	return f
}

// Absent is the feature where there is no cluster to ask, with the reason.
func Absent(state model.FeatureState, reason, remedy string) model.Feature {
	return model.Feature{Name: "kubernetes", Purpose: "names of pods, workloads and services", State: state,
		Reason: reason, Remedy: remedy}
}

// Check tries once what Run does all the time, and reports what of it works: it asks for one object
// of each resource.
func (c *Cluster) Check(ctx context.Context) []model.Feature {
	var all []model.Feature
	try := func(resource, path, verbs string) {
		ctx, cancel := context.WithTimeout(ctx, c.timing.request)
		defer cancel()
		body, err := c.client.get(ctx, path, map[string][]string{"limit": {"1"}}, acceptJSON)
		if err == nil {
			_, err = newCutter(body, c.options.MaxObjectBytes).list(func([]byte) error { return nil })
			body.Close()
		}
		if err != nil {
			err = fmt.Errorf("listing %s: %w", resource, err)
		}
		all = append(all, feature(resource, verbs, err))
	}
	for _, r := range c.reflectors {
		if try(r.resource, r.path, "list and watch"); slices.ContainsFunc(all, unreachable) {
			return all // the others would wait for as long
		}
	}
	return all
}

func unreachable(f model.Feature) bool {
	return f.Remedy == "an API server that answers" || f.Remedy == loginRemedy
}

const loginRemedy = "a program of the kubeconfig (exec) that logs in, or a service account with a token"
