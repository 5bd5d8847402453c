package place

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"outsight/internal/frame"
	"outsight/internal/model"
)

// placementsOf are what is known of where containers may run, by host and ID.
func placementsOf(w *frame.Window) map[[2]string][]model.Label {
	all := map[[2]string][]model.Label{}
	for i := range w.Hosts {
		spans := w.Hosts[i].Spans
		if len(spans) == 0 {
			continue
		}
		f := spans[len(spans)-1].After
		for row := range f.Tables[frame.Containers].IDs {
			if text := f.Text(frame.Containers, frame.ContainerPlacement, row); text != "" {
				// What is no such text is of an agent that does not keep to it, and says nothing.
				labels, _ := model.ParseLabelText(text)
				all[[2]string{w.Hosts[i].Host, f.Text(frame.Containers, frame.ContainerKey, row)}] = labels
			}
		}
	}
	return all
}

// see adds the rules that containers have with them: their volumes, labels, and what their pods say. Those of movable may
// leave the data that they have on their host.
func (p *Problem) see(movable []int) {
	groups := map[model.Label][]int{}
	var order []model.Label
	for i := range p.Containers {
		c := &p.Containers[i]
		var volumes []string
		leaves := slices.Contains(movable, i)
		for _, l := range c.seen {
			switch l.Name {
			case model.PlaceVolume:
				volumes = append(volumes, l.Value)
			case model.PlaceMovable:
				leaves = true
			case model.PlaceStay:
				c.pin(l.Value)
			case model.PlaceOn:
				p.seeHosts(i, l.Value, true)
			case model.PlaceNotOn:
				p.seeHosts(i, l.Value, false)
			case model.PlaceTogether, model.PlaceApart, model.PlaceRequire:
				if groups[l] == nil {
					order = append(order, l)
				}
				if !slices.Contains(groups[l], i) {
					groups[l] = append(groups[l], i)
				}
			}
		}
		if len(volumes) > 0 && !leaves {
			c.pin(havingText(volumes))
		}
	}
	for _, l := range order {
		some := groups[l]
		switch {
		case l.Name == model.PlaceRequire:
			if err := p.require(some, l.Value, true); err != nil {
				for _, i := range some {
					p.Containers[i].pin(fmt.Sprintf("requires the host labels %s, which is not understood", l.Value))
				}
			}
		case len(some) > 1:
			p.group(l.Name == model.PlaceTogether, some, l.Value)
		}
	}
}

// pin says why a container may not move, where nothing said so before.
func (c *Container) pin(why string) {
	if c.Pinned == "" {
		c.Pinned = why
	}
}

func havingText(volumes []string) string {
	text := "has " + volumes[0]
	if more := len(volumes) - 1; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// seeHosts leaves the hosts that a label names, or does not. Where none is left it stays where it is.
func (p *Problem) seeHosts(i int, hosts string, on bool) {
	allowed := make([]bool, len(p.Hosts))
	for h := range allowed {
		allowed[h] = !on
		for pattern := range strings.SplitSeq(hosts, ",") {
			if ok, _ := path.Match(strings.TrimSpace(pattern), p.Hosts[h].Name); ok {
				allowed[h] = on
			}
		}
	}
	rule := "is to be on " + hosts + " by its label"
	if !on {
		rule = "is not to be on " + hosts + " by its label"
	}
	if !slices.Contains(allowed, true) {
		p.Containers[i].pin(rule + ", and no other host is known")
		return
	}
	p.limit(i, allowed, rule)
}
