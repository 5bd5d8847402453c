package agent

import (
	"errors"
	"io/fs"
	"syscall"

	"outsight/internal/model"
)

// cpuFiles reports what the control group files say of a container's CPU time, in ns.
type cpuFiles interface {
	CPUUsage(*model.Container) (uint64, error)
}

// cpuFromFiles continues containers' CPU time by the kernel's files while no switch is counted.
type cpuFromFiles struct {
	files cpuFiles // nil where no files are read
	// gaps by container ID.
	gaps map[string]*cpuGap
	// open is true while no switch is counted.
	open bool
}

// cpuGap is what the files counted while switches were not.
type cpuGap struct {
	// closed is of earlier gaps; the open one began at file and is at now.
	closed, file, now uint64
	began             bool
}

// turn begins a gap of the containers, or ends it.
func (f *cpuFromFiles) turn(open bool, containers []model.ContainerSample) {
	if f.open == open {
		return
	}
	for _, g := range f.gaps {
		g.closed += g.now - g.file
		g.began, g.file, g.now = false, 0, 0
	}
	if f.open = open; !open {
		return
	}
	for i := range containers {
		if cpu := containers[i].CPU; cpu != nil {
			discarded := *cpu
			// An error comes again with the next snapshot, which reports it.
			_, _ = f.fill(containers[i].Container, &discarded)
		}
	}
}

// fill completes a container's counters. In a gap, what files do not say is missing; the answer is nil
// where the CPU time is.
func (f *cpuFromFiles) fill(c *model.Container, cpu *model.CPUCounters) (*model.CPUCounters, error) {
	g := f.gaps[c.ID]
	if !f.open {
		if g != nil {
			cpu.UsageNS += g.closed
		}
		return cpu, nil
	}
	if f.files == nil || c.ID == model.HostContainerID {
		return nil, nil
	}
	used, err := f.files.CPUUsage(c)
	gone := errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV)
	switch {
	case gone && g == nil:
		return cpu, nil // it began and ended in the gap
	case gone:
		cpu.UsageNS += g.closed + g.now - g.file
		cpu.RunQueue = nil
		return cpu, nil
	case err != nil:
		return nil, err
	}
	if g == nil {
		g = &cpuGap{}
		if f.gaps == nil {
			f.gaps = make(map[string]*cpuGap)
		}
		f.gaps[c.ID] = g
	}
	if !g.began {
		g.began, g.file, g.now = true, used, used
	}
	if used < g.now { // it was started again
		g.closed += g.now - g.file
		g.file = 0
	}
	g.now = used
	cpu.UsageNS += g.closed + g.now - g.file
	cpu.RunQueue = nil
	return cpu, nil
}

// keep forgets containers that are gone.
func (f *cpuFromFiles) keep(containers []*model.Container) {
	if len(f.gaps) == 0 {
		return
	}
	present := make(map[string]bool, len(containers))
	for _, c := range containers {
		present[c.ID] = true
	}
	for id := range f.gaps {
		if !present[id] {
			delete(f.gaps, id)
		}
	}
}
