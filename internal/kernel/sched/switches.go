package sched

import (
	"errors"
	"sync/atomic"
	"time"

	"outsight/internal/kernel/host"
)

// endSwitches ends the slices that are running: nobody will tell of their end.
func (p *Sched) endSwitches() error {
	if p.cgroups == nil {
		return nil
	}
	time.Sleep(time.Millisecond) // a program that runs on another CPU is done by then
	r := p.cgroups
	now, err := r.now()
	for cpu := range r.states.Entries {
		state := &r.states.Entries[cpu]
		lane := int(state.Slot)*r.cpus + cpu
		// Readings have told of what the thread that runs has used so far.
		if state.SinceNs != 0 && now > state.SinceNs && lane < len(r.lanes.Entries) {
			atomic.AddUint64(&r.lanes.Entries[lane].UsageNs, now-state.SinceNs)
		}
		atomic.StoreUint64(&state.SinceNs, 0)
	}
	return err
}

// forgetWaits lets what threads waited, and their faults, count from now on.
func (p *Sched) forgetWaits() error {
	r := p.cgroups
	if r == nil || r.tasks == nil {
		return nil
	}
	if err := r.maps.Variables["renew_states"].Set(uint32(1)); err != nil {
		return err
	}
	return errors.Join(r.lookAtThreads(), r.maps.Variables["renew_states"].Set(uint32(0)))
}

// beginSwitches lets the CPUs' slices begin.
func (p *Sched) beginSwitches() error {
	if p.cgroups != nil {
		host.SwitchCPUs(p.cgroups.cpus)
	}
	return nil
}
