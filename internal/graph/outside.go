package graph

import (
	"cmp"
	"slices"

	"outsight/internal/model"
)

// OutsideID is the node of all addresses outside of the host that are only clients;
// OutsideServersID that of the servers outside past the MaxOutsideServers busiest.
const (
	OutsideID         = "outside"
	OutsideServersID  = "outside-servers"
	MaxOutsideServers = 20
	// MaxAddresses is how many addresses a node of a group lists.
	MaxAddresses = 50
)

func finishAddresses(n *Node) {
	slices.Sort(n.Addresses)
	n.AddressCount = len(n.Addresses)
	n.Addresses = n.Addresses[:min(len(n.Addresses), MaxAddresses)]
	switch {
	case n.Kind != KindOutside:
	case n.AddressCount == 1:
		n.Name = cmp.Or(n.Addresses[0], "outside")
	case n.ID == OutsideID:
		n.Name = "outside"
	case n.ID == OutsideServersID:
		n.Name = "other servers outside"
	}
}

// outsideIDs gives the busiest servers outside a node each. An address that serves is that node
// as a client, too.
func outsideIDs(edges []edgeChange) map[string]string {
	bytes := map[string]float64{}
	for i := range edges {
		if e := &edges[i]; e.side != model.RoleUnknown && e.server.outside() && !e.idle() {
			bytes[e.server.id] += e.of(RequestBytes) + e.of(ResponseBytes)
		}
	}
	ids := make([]string, 0, len(bytes))
	for id := range bytes {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(x, y string) int {
		return cmp.Or(cmp.Compare(bytes[y], bytes[x]), cmp.Compare(x, y))
	})
	nodes := map[string]string{}
	for i, id := range ids {
		if nodes[id] = id; i >= MaxOutsideServers || id == "others" || id == "" {
			nodes[id] = OutsideServersID
		}
	}
	return nodes
}
