package groups

import "outsight/internal/kernel/host"

// Regions are the maps that can be read from outside as they are.
func (p *Groups) Regions() []host.Region {
	if p.read == nil {
		return nil
	}
	return []host.Region{host.NewRegion[groupsGroupFigures](groupsMapFiguresOfGroup, p.figuresMap, 1)}
}
