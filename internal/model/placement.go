package model

import "strings"

// Names of what Container.Placement has. A value is a text for people where nothing else is said.
const (
	// PlaceVolume is data that a container has on its host.
	PlaceVolume = "volume"
	// PlaceRequire is of the labels of a host, as Kubernetes writes selectors ("disk=ssd,zone in (a,b)"), with " or "
	// between alternatives.
	PlaceRequire = "require"
	// PlaceOn and PlaceNotOn are hosts, with commas between them.
	PlaceOn    = "on"
	PlaceNotOn = "not_on"
	// PlaceTogether and PlaceApart name groups: containers of the same one are on one host, or on a host each.
	PlaceTogether = "together"
	PlaceApart    = "apart"
	// PlaceStay says why it does not move, PlaceMovable that it may although it has data on its host.
	PlaceStay    = "stay"
	PlaceMovable = "movable"
	// PlaceHostLabel is a label of the host, as "disk=ssd"; HostContainerID alone has it.
	PlaceHostLabel = "host_label"
)

// PlacementPrefix begins the labels of containers and pods that are rules of placement: outsight.place.on, .not_on,
// .require, .together, .apart, .stay and .movable.
const PlacementPrefix = "outsight.place."

// Bounds of what is kept of a container's placement; a value is in bytes.
const (
	maxPlacements     = 32
	maxPlacementValue = 256
)

// PlacementText is what a container's runtime, labels or pod say of where it may run, as LabelText. What is beyond the
// bounds leaves that it does not move: a rule that is not known is not to be broken.
func PlacementText(all []Label) string {
	kept := make([]Label, 0, min(len(all), maxPlacements+1))
	for _, l := range all {
		if len(kept) == maxPlacements || len(l.Value) > maxPlacementValue {
			kept = append(kept, Label{Name: PlaceStay, Value: "has more rules than are kept"})
			break
		}
		kept = append(kept, l)
	}
	return LabelText(kept)
}

// JoinPlacements is two of PlacementText in one.
func JoinPlacements(a, b string) string { return strings.Trim(a+","+b, ",") }

// LabelledPlacements are the rules of placement among labels of containers or pods.
func LabelledPlacements(labels map[string]string) (all []Label) {
	for _, name := range []string{PlaceOn, PlaceNotOn, PlaceRequire, PlaceTogether, PlaceApart, PlaceStay, PlaceMovable} {
		value, ok := labels[PlacementPrefix+name]
		switch {
		case !ok, (name == PlaceStay || name == PlaceMovable) && value == "false":
			continue
		case name == PlaceStay:
			value = "stays by its label " + PlacementPrefix + name
		}
		all = append(all, Label{Name: name, Value: Printable(value, maxPlacementValue)})
	}
	return all
}
