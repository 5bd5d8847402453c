package model

// Confidence says how the other end of an edge was found: who it is, and how sure that is.
type Confidence uint8

// The ways to find the other end, the surest last.
const (
	// NotFound: the other end is an address of which no container is known. It may well be
	// outside.
	NotFound Confidence = iota
	// ByAddress: a container has the address, or is the only one that dials the service.
	ByAddress
	// ByListener: a container listens at the address, or serves others there.
	ByListener
	// Exact: the kernel has seen both ends of the connections.
	Exact
)

func (c Confidence) String() string {
	switch c {
	case Exact:
		return "exact"
	case ByListener:
		return "listener"
	case ByAddress:
		return "address"
	}
	return "none"
}

// UnmatchedShare is the share, 0 to 1, of edges whose other end is not known to be in any
// container. It is 0 where there are no edges.
func UnmatchedShare(edges []Edge) float64 {
	unmatched := 0
	for i := range edges {
		if edges[i].Confidence == NotFound {
			unmatched++
		}
	}
	return float64(unmatched) / float64(max(len(edges), 1))
}

// CountedShare is the share, 0 to 1, of the bytes received on a host that were seen and counted on an
// edge of their own. It is 1 where nothing was received.
func CountedShare(edges []Edge) float64 {
	var counted, all uint64
	for i := range edges {
		c := &edges[i].Counters
		all += c.ReceivedBytes + c.UnseenBytes
		if edges[i].Side != RoleUnknown {
			counted += c.ReceivedBytes
		}
	}
	if all == 0 {
		return 1
	}
	return float64(counted) / float64(all)
}
