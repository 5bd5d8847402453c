package network

import (
	"cmp"
	"hash/maphash"
	"net/netip"
	"slices"

	"outsight/internal/model"
)

func byDialled(all []model.Translation) map[netip.AddrPort][]model.Translation {
	found := make(map[netip.AddrPort][]model.Translation)
	for _, t := range all {
		found[t.Dialled] = append(found[t.Dialled], t)
	}
	return found
}

// backend is where the connections of a client's edge go to of which the kernel programs saw one
// end alone: the other end is on another host, or they are older than the programs. It is the zero
// AddrPort where there is no translation, or several.
func (p *peers) backend(s *sighting) netip.AddrPort {
	var found netip.AddrPort
	for _, t := range p.translated[s.service] {
		switch netns := s.edge.Key.NetNS; {
		case !p.addresses.in(netns, plainAddr(t.Client), netns):
		case found.IsValid() && found != t.Reached:
			return netip.AddrPort{}
		default:
			found = t.Reached
		}
	}
	return found
}

// NeedTranslations reports whether there are edges that translations could complete. Attempts stands for which these
// are and how many of their connections were tried so far: while it stays the same there are no new translations of
// them.
func NeedTranslations(edges []model.Edge) (attempts uint64, need bool) {
	for i := range edges {
		if e := &edges[i]; e.Confidence == model.NotFound && e.Transport == model.TCP && e.Service.IsValid() {
			of := attempted{service: e.Service, attempts: e.Counters.Opens + e.Counters.Failures}
			if e.Client.Container != nil {
				of.client = e.Client.Container.ID
			}
			attempts += maphash.Comparable(attemptSeed, of) // the order does not matter
			need = true
		}
	}
	return attempts, need
}

// attempted is what a client tried of a service.
type attempted struct {
	client   string
	service  netip.AddrPort
	attempts uint64
}

var attemptSeed = maphash.MakeSeed()

// OfEdges are the translations, each once and in order, that are about edges whose other end was
// not found: what another host needs to find it.
func OfEdges(all []model.Translation, edges []model.Edge) []model.Translation {
	services := make(map[netip.AddrPort]bool)
	for i := range edges {
		if e := &edges[i]; e.Confidence == model.NotFound && e.Transport == model.TCP {
			services[e.Service] = true
		}
	}
	about := slices.DeleteFunc(slices.Clone(all), func(t model.Translation) bool {
		return !services[t.Dialled] && !services[t.Reached]
	})
	slices.SortFunc(about, func(a, b model.Translation) int {
		return cmp.Or(a.Dialled.Compare(b.Dialled), a.Reached.Compare(b.Reached), a.Client.Compare(b.Client))
	})
	return slices.Compact(about)
}
