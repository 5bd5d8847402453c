package sched

import (
	"outsight/internal/kernel/host"
	"outsight/internal/model"
)

// Regions are the maps that can be read from outside as they are.
func (p *Sched) Regions() []host.Region {
	r := p.cgroups
	if r == nil {
		return nil
	}
	all := []host.Region{
		host.NewRegion[uint64](cgroupsMapCgroupSlots, r.maps.CgroupSlots, 1),
		host.NewRegion[cgroupsCgroupLane](cgroupsMapCgroupLanes, r.maps.CgroupLanes, r.cpus),
		host.NewRegion[cgroupsCpuState](cgroupsMapCpuStates, r.maps.CpuStates, 1),
		host.NewRegion[cgroupsProcessCounts](cgroupsMapProcesses, r.maps.Processes, 1),
		host.NewRegion[cgroupsHistogram](cgroupsMapRunQueue, r.maps.RunQueue, r.waitLanes),
	}
	if p.reclaim != nil {
		all = append(all, host.NewRegion[reclaimReclaimGroup](reclaimMapReclaimGroups, p.reclaim.made, 1))
	}
	return all
}

// CountedGroups are the control groups that have slots. It may be called by anybody.
func (p *Sched) CountedGroups() (ids []model.CgroupID) {
	if p.cgroups == nil {
		return nil
	}
	for slot := slotFirst; slot < len(p.cgroups.slots.Entries); slot++ {
		if id := host.Load(&p.cgroups.slots.Entries[slot]); id != 0 {
			ids = append(ids, model.CgroupID(id))
		}
	}
	return ids
}
