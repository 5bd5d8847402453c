package place

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
)

// Labels of hosts that each has: its name, under the names that Kubernetes' selectors of nodes use.
const nameField = "metadata.name"

// requirement is of the labels of a host: alternatives, each of expressions that all hold.
type requirement [][]expression

// expression is of one label. Without values it is of the label's being there.
type expression struct {
	key    string
	values []string
	not    bool
}

// parseRequirement reads what Kubernetes writes as selectors, with " or " between alternatives: "disk=ssd,zone in (a,b)",
// "!spot", "zone!=c", "gpu", "zone notin (c)". Comparisons of numbers are not read.
func parseRequirement(text string) (r requirement, err error) {
	for alternative := range strings.SplitSeq(text, " or ") {
		var all []expression
		for _, part := range splitOutside(alternative) {
			e, err := parseExpression(strings.TrimSpace(part))
			if err != nil {
				return nil, err
			}
			all = append(all, e)
		}
		r = append(r, all)
	}
	return r, nil
}

// splitOutside splits at commas that are in no parentheses.
func splitOutside(text string) (parts []string) {
	depth, begin := 0, 0
	for i, c := range text {
		switch {
		case c == '(':
			depth++
		case c == ')':
			depth--
		case c == ',' && depth == 0:
			parts, begin = append(parts, text[begin:i]), i+1
		}
	}
	return append(parts, text[begin:])
}

func parseExpression(text string) (e expression, err error) {
	for _, of := range []struct {
		operator string
		not      bool
	}{{" notin (", true}, {" in (", false}, {"!=", true}, {"==", false}, {"=", false}} {
		key, values, found := strings.Cut(text, of.operator)
		if !found {
			continue
		}
		e = expression{key: key, not: of.not}
		if list, ok := strings.CutSuffix(values, ")"); ok == strings.HasSuffix(of.operator, "(") {
			for v := range strings.SplitSeq(list, ",") {
				e.values = append(e.values, strings.TrimSpace(v))
			}
		}
		break
	}
	if e.key == "" {
		e.key, e.not = strings.CutPrefix(text, "!")
	}
	wrong := func(text string) bool { return strings.ContainsAny(text, " ()<>!=,") }
	if e.key == "" || wrong(e.key) || e.values == nil && strings.ContainsAny(text, "=(") ||
		slices.ContainsFunc(e.values, wrong) {
		return e, fmt.Errorf("%q is no requirement of a host's labels, want them as in disk=ssd,zone in (a,b)", text)
	}
	return e, nil
}

// fits reports whether the labels of a host are known and fit.
func (r requirement) fits(h *Host) bool {
	return slices.ContainsFunc(r, func(all []expression) bool {
		return !slices.ContainsFunc(all, func(e expression) bool { return !e.fits(h) })
	})
}

func (e *expression) fits(h *Host) bool {
	value, ok := h.Labels[e.key]
	switch {
	case e.key == hostnameLabel && !ok, e.key == nameField:
		value, ok = h.Name, true
	case h.Labels == nil:
		return false // not known
	}
	if e.values != nil {
		ok = ok && slices.Contains(e.values, value)
	}
	return ok != e.not
}

// labelHosts gives labels to hosts, as "disk=ssd" or "disk" by their names, in which * stands for any part.
func (p *Problem) labelHosts(of map[string][]string) error {
	for _, pattern := range slices.Sorted(maps.Keys(of)) {
		found := false
		for h := range p.Hosts {
			if ok, _ := path.Match(pattern, p.Hosts[h].Name); ok {
				found = true
				p.Hosts[h].label(of[pattern])
			}
		}
		if !found {
			return fmt.Errorf("labels are told of host %q, and there is none", pattern)
		}
	}
	return nil
}

// KnowLabels gives hosts labels that somebody knows by their names, such as those of Kubernetes' nodes. Labels that a host
// has stay as they are. It is for before Apply.
func (p *Problem) KnowLabels(of map[string]map[string]string) {
	for h := range p.Hosts {
		host := &p.Hosts[h]
		labels, known := of[host.Name]
		if !known {
			continue
		}
		all := maps.Clone(labels)
		if all == nil {
			all = map[string]string{} // it is known to have none
		}
		maps.Copy(all, host.Labels)
		host.Labels = all
	}
}

func (h *Host) label(texts []string) {
	if h.Labels == nil {
		h.Labels = map[string]string{}
	}
	for _, text := range texts {
		name, value, _ := strings.Cut(text, "=")
		h.Labels[name] = value
	}
}

// require leaves the hosts whose labels fit. A container is taken to be where it may be: its own host is left, and those
// on which others run that require the same.
func (p *Problem) require(some []int, text string, seen bool) error {
	r, err := parseRequirement(text)
	if err != nil {
		return err
	}
	allowed := make([]bool, len(p.Hosts))
	for h := range p.Hosts {
		allowed[h] = r.fits(&p.Hosts[h])
	}
	if seen {
		for _, i := range some {
			allowed[p.Containers[i].Host] = true
		}
	}
	if !slices.Contains(allowed, true) {
		return fmt.Errorf("no host is known to have the labels %q: tell the labels of hosts as in host-1=disk=ssd", text)
	}
	for _, i := range some {
		p.limit(i, allowed, "requires the host labels "+text)
	}
	return nil
}
