package block

import "outsight/internal/kernel/host"

// Regions are the maps that can be read from outside as they are.
func (p *Block) Regions() (all []host.Region) {
	if p.files != nil {
		all = append(all, host.NewRegion[filesFileCounts](filesMapFilesOfSlot, p.files.made, 1))
	}
	if p.disks != nil {
		m := &p.disks.maps
		all = append(all, host.NewRegion[diskDisk](diskMapDisks, m.Disks, 1),
			host.NewRegion[diskHistogram](diskMapDiskLatency, m.DiskLatency, 1),
			host.NewRegion[diskBegun](diskMapDisksBegun, m.DisksBegun, 1))
	}
	return all
}
