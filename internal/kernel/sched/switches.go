package sched

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/cilium/ebpf"

	"outsight/internal/kernel/host"
)

// endSwitches ends the slices that are running: their end will not be seen.
func (p *Sched) endSwitches() error {
	if p.cgroups == nil {
		return nil
	}
	waitErr := waitForPrograms() // a run that has not ended would write over what is mended here
	r := p.cgroups
	now, err := r.now()
	for cpu := range r.states.Entries {
		state := &r.states.Entries[cpu]
		lane := int(state.Slot)*r.cpus + cpu
		// Readings have included what the thread that runs has used so far.
		if state.SinceNs != 0 && now > state.SinceNs && lane < len(r.lanes.Entries) {
			atomic.AddUint64(&r.lanes.Entries[lane].UsageNs, now-state.SinceNs)
		}
		atomic.StoreUint64(&state.SinceNs, 0)
	}
	return errors.Join(waitErr, err)
}

// resetWaits lets what threads waited, and their faults, count from now on.
func (p *Sched) resetWaits() error {
	r := p.cgroups
	if r == nil || r.tasks == nil {
		return nil
	}
	if err := r.variables.RenewStates.Set(uint32(1)); err != nil {
		return err
	}
	return errors.Join(r.scanThreads(), r.variables.RenewStates.Set(uint32(0)))
}

// beginSwitches lets the CPUs' slices begin.
func (p *Sched) beginSwitches() error {
	if p.cgroups != nil {
		host.SwitchCPUs(p.cgroups.cpus)
	}
	return nil
}

// waitForPrograms returns when all runs of kernel programs that began before it have ended. Tracepoint programs run
// inside of an RCU read-side section. A change of a map of maps from user space waits for a grace period, which the
// kernel promises for this purpose (maybe_wait_bpf_programs), also while a hypervisor keeps a CPU from running.
func waitForPrograms() error {
	inner := &ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1}
	element, err := ebpf.NewMap(inner)
	if err != nil {
		return fmt.Errorf("waiting for kernel programs: %w", err)
	}
	defer element.Close()
	outer, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.ArrayOfMaps, KeySize: 4, ValueSize: 4, MaxEntries: 1,
		InnerMap: inner})
	if err != nil {
		return fmt.Errorf("waiting for kernel programs: %w", err)
	}
	defer outer.Close()
	if err := outer.Put(uint32(0), element); err != nil {
		return fmt.Errorf("waiting for kernel programs: %w", err)
	}
	return nil
}
