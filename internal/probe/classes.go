package probe

import (
	"cmp"
	"slices"
)

// Service is what became of a class of service: the DSCP with which packets were sent, and those with which they arrived,
// the lesser first. Both are nil where the reflector does not say it.
type Service struct {
	DSCP  uint8   `json:"dscp"`
	There []Class `json:"there,omitempty"`
	Back  []Class `json:"back,omitempty"`
}

// Class is how many packets arrived with a DSCP.
type Class struct {
	DSCP    uint8  `json:"dscp"`
	Packets uint64 `json:"packets"`
}

// serviceOf is made of what the reflector says of the way there. It is also asked to answer with the same DSCP; one of
// TWAMP-Light does neither.
func serviceOf(packets []packet, dscp uint8) *Service {
	there, back := map[uint8]uint64{}, map[uint8]uint64{}
	for _, p := range answeredOf(packets) {
		if p.Service != nil {
			there[p.Service.Received]++
			back[p.DSCP]++
		}
	}
	return &Service{dscp, classesOf(there), classesOf(back)}
}

func classesOf(packets map[uint8]uint64) (all []Class) {
	for dscp, n := range packets {
		all = append(all, Class{dscp, n})
	}
	slices.SortFunc(all, func(a, b Class) int { return cmp.Compare(a.DSCP, b.DSCP) })
	return all
}
