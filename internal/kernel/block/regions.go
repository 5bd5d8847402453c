package block

import "outsight/internal/kernel/host"

// Regions are the maps that can be read from outside as they are.
func (p *Block) Regions() (all []host.Region) {
	if p.files != nil {
		all = append(all, host.NewRegion[filesFileCounts](filesMapFilesOfSlot, p.files.made, 1))
	}
	if p.disks != nil {
		all = append(all, host.NewRegion[diskDisk](diskMapDisks, p.disks.maps.Disks, 1))
	}
	return all
}
