package kubernetes

import (
	"maps"
	"slices"
	"strings"

	"outsight/internal/model"
)

// placementSpec is what a pod's specification says of where it may run, as far as it is required: what is preferred is the
// scheduler's to weigh.
type placementSpec struct {
	NodeSelector map[string]string `json:"nodeSelector"`
	Affinity     struct {
		Node struct {
			Required struct {
				Terms []nodeTerm `json:"nodeSelectorTerms"`
			} `json:"requiredDuringSchedulingIgnoredDuringExecution"`
		} `json:"nodeAffinity"`
		Pod     podTerms `json:"podAffinity"`
		AntiPod podTerms `json:"podAntiAffinity"`
	} `json:"affinity"`
	Volumes []struct {
		Claim *struct {
			Name string `json:"claimName"`
		} `json:"persistentVolumeClaim"`
		HostPath *struct {
			Path string `json:"path"`
		} `json:"hostPath"`
	} `json:"volumes"`
}

type nodeTerm struct {
	Expressions []expression `json:"matchExpressions"`
	Fields      []expression `json:"matchFields"` // metadata.name alone
}

type podTerms struct {
	Required []struct {
		Selector    labelSelector `json:"labelSelector"`
		TopologyKey string        `json:"topologyKey"`
		Namespaces  []string      `json:"namespaces"`
		// NamespaceSelector and the keys change which pods are meant.
		NamespaceSelector *struct{} `json:"namespaceSelector"`
		MatchKeys         []string  `json:"matchLabelKeys"`
		MismatchKeys      []string  `json:"mismatchLabelKeys"`
	} `json:"requiredDuringSchedulingIgnoredDuringExecution"`
}

type labelSelector struct {
	Labels      map[string]string `json:"matchLabels"`
	Expressions []expression      `json:"matchExpressions"`
}

type expression struct {
	Key      string   `json:"key"`
	Operator string   `json:"operator"`
	Values   []string `json:"values"`
}

// String is the expression as Kubernetes writes selectors.
func (e expression) String() string {
	values := " (" + strings.Join(e.Values, ",") + ")"
	switch e.Operator {
	case "In":
		return e.Key + " in" + values
	case "NotIn":
		return e.Key + " notin" + values
	case "Exists":
		return e.Key
	case "DoesNotExist":
		return "!" + e.Key
	case "Gt":
		return e.Key + ">" + strings.Join(e.Values, ",")
	case "Lt":
		return e.Key + "<" + strings.Join(e.Values, ",")
	}
	return e.Key + " " + e.Operator + values
}

// matches reports whether labels fit the expression. Of an operator that selectors of pods do not have, none do.
func (e expression) matches(labels map[string]string) bool {
	value, ok := labels[e.Key]
	switch e.Operator {
	case "In":
		return ok && slices.Contains(e.Values, value)
	case "NotIn":
		return !ok || !slices.Contains(e.Values, value)
	case "Exists":
		return ok
	case "DoesNotExist":
		return !ok
	}
	return false
}

func (s *labelSelector) all() (all []expression) {
	for _, name := range slices.Sorted(maps.Keys(s.Labels)) {
		all = append(all, expression{name, "In", []string{s.Labels[name]}})
	}
	return append(all, s.Expressions...)
}

func textOf(all []expression) string {
	texts := make([]string, len(all))
	for i, e := range all {
		texts[i] = e.String()
	}
	return strings.Join(texts, ",")
}

// text is what the pod says, as a model.PlacementText.
func (s *placementSpec) text(m *metadata) string {
	var all []model.Label
	add := func(name, value string) {
		all = append(all, model.Label{Name: name, Value: value})
	}
	if selector := (labelSelector{Labels: s.NodeSelector}); len(s.NodeSelector) > 0 {
		add(model.PlaceRequire, textOf(selector.all()))
	}
	var terms []string
	for _, t := range s.Affinity.Node.Required.Terms {
		if each := slices.Concat(t.Expressions, t.Fields); len(each) > 0 { // an empty term fits no node
			terms = append(terms, textOf(each))
		}
	}
	if len(terms) > 0 {
		add(model.PlaceRequire, strings.Join(terms, " or "))
	}
	for _, kind := range []struct {
		terms *podTerms
		name  string
		what  string
	}{{&s.Affinity.Pod, model.PlaceTogether, "an affinity"}, {&s.Affinity.AntiPod, model.PlaceApart, "an anti-affinity"}} {
		for _, t := range kind.terms.Required {
			selector := t.Selector.all()
			own := len(selector) > 0 && t.TopologyKey == "kubernetes.io/hostname" && t.NamespaceSelector == nil &&
				len(t.MatchKeys)+len(t.MismatchKeys) == 0 &&
				(len(t.Namespaces) == 0 || len(t.Namespaces) == 1 && t.Namespaces[0] == m.Namespace)
			for _, e := range selector {
				own = own && e.matches(m.Labels)
			}
			if own { // all that say the same and fit it are a group
				add(kind.name, m.Namespace+"/"+textOf(selector))
			} else {
				add(model.PlaceStay, "has "+kind.what+" to other pods ("+textOf(selector)+" by "+t.TopologyKey+
					"), of which it is not known where they may be")
			}
		}
	}
	for _, v := range s.Volumes {
		switch {
		case v.Claim != nil:
			add(model.PlaceVolume, "the persistent volume claim "+v.Claim.Name)
		case v.HostPath != nil:
			add(model.PlaceVolume, "the host's path "+v.HostPath.Path)
		}
	}
	return model.PlacementText(append(all, model.LabelledPlacements(m.Labels)...))
}

// HostLabels are the labels of nodes now, by the name of the node and by that which the kubelet says of its host
// (kubernetes.io/hostname). They are not to be changed.
func (c *Cluster) HostLabels() map[string]map[string]string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	all := make(map[string]map[string]string, len(c.nodes.items))
	for _, known := range c.nodes.items {
		if name := known.object.labels[hostnameLabel]; name != "" {
			all[name] = known.object.labels
		}
	}
	for name, known := range c.nodes.items { // the API server's own name is the surer one
		all[name] = known.object.labels
	}
	return all
}

// hostnameLabel is that which the kubelet gives a node.
const hostnameLabel = "kubernetes.io/hostname"
