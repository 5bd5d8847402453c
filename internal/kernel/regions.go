package kernel

import "outsight/internal/kernel/host"

// Region is an array map that is read from outside this process.
type Region = host.Region

// RegionMemory is the memory of a Region.
type RegionMemory = host.RegionMemory

// NewPages makes a region of at least size bytes that user space fills.
func NewPages(name string, size int) (Region, error) { return host.NewPages(name, size) }

// Regions are the maps in which the kernel programs count and that can be read from outside as they are. They end with
// Close.
func (p *Probes) Regions() (all []Region) {
	all = append(all, p.Sched.Regions()...)
	all = append(all, p.Groups.Regions()...)
	all = append(all, p.Net.Regions()...)
	return append(all, p.Block.Regions()...)
}
