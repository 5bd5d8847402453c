package graph

// IsNumber reports whether a node's usage, a side of an edge, and both ends of an edge together have a number with that
// key.
func IsNumber(key string) (ofUsage, ofSide, ofEnds bool) {
	for i := range usageNumbers {
		ofUsage = ofUsage || usageNumbers[i].Key == key
	}
	for i := range sideNumbers {
		ofSide = ofSide || sideNumbers[i].Key == key
	}
	for i := range EndsNumbers {
		ofEnds = ofEnds || EndsNumbers[i].Key == key
	}
	return ofUsage, ofSide, ofEnds
}

// NodeOf is the ID of the node of a grouping that a container's node is a part of: its own where it is in no group.
func (by Grouping) NodeOf(container *Node) string {
	if group := by.containerGroup(container); group != nil {
		return group.ID
	}
	return container.ID
}
