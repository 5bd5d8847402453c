package net

import (
	"fmt"
	"maps"

	"github.com/cilium/ebpf"

	"outsight/internal/kernel/host"
)

// edgeObjects are what was made of edges.bpf.c: its maps and variables by name, and all of them for programs to be
// loaded onto. The collection closes them.
type edgeObjects struct {
	edgesMaps
	edgesVariables
	collection *ebpf.Collection
}

func makeEdgeObjects(spec *ebpf.CollectionSpec) (*edgeObjects, error) {
	collection, err := host.NewMaps(spec, nil)
	if err != nil {
		return nil, fmt.Errorf("making the edges' maps: %w", err)
	}
	o := &edgeObjects{collection: collection}
	// Assign takes what it assigns out of the collection: it is given another one, of the same maps.
	same := ebpf.Collection{Maps: maps.Clone(collection.Maps), Variables: maps.Clone(collection.Variables)}
	if err := same.Assign(&struct {
		*edgesMaps
		*edgesVariables
	}{&o.edgesMaps, &o.edgesVariables}); err != nil {
		collection.Close()
		return nil, fmt.Errorf("BUG: finding the edges' maps: %w", err)
	}
	return o, nil
}
