package kernel

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/cilium/ebpf"

	"outsight/internal/model"
)

// part is something that is counted which can be given up while the rest goes on.
type part struct {
	model.Part
	// programs in the objects that give it up when they are detached; those that are not attached are
	// not there.
	programs []string
	// What else is done, unless it is nil: before they are detached, when they are, before they are
	// attached again, and when they are.
	detaching, detached, attaching, attached func(*Probes) error
	// always is true where there is something to give up without a program.
	always func(*Probes) bool
}

// parts in the order in which they are given up: what costs much and explains little first.
var parts = []part{
	{Part: model.Part{Name: "contention", Purpose: "which container ran while another waited for a CPU", Under: "switches"},
		programs: []string{"contention_switch"}},
	{Part: model.Part{Name: "counters", Purpose: "cycles, instructions and cache misses; energy is then divided by CPU time", Under: "switches"},
		programs: []string{"count_switch"}},
	{Part: model.Part{Name: "names", Purpose: "what requests ask for: methods, routes, commands and statuses"},
		always:    func(p *Probes) bool { return p.edges != nil && !p.options.WithoutEndpoints && !p.options.TLS },
		detaching: func(p *Probes) error { return p.edges.setNamesShed(1) },
		attached:  func(p *Probes) error { return p.edges.setNamesShed(0) }},
	{Part: model.Part{Name: "transfers", Purpose: "bytes and transactions of connections"},
		programs:  []string{"sock_send_length", "sock_recv_length", "after_inet_sendmsg", "after_inet_recvmsg", "after_inet6_sendmsg", "after_inet6_recvmsg", "after_inet_sendpage"},
		detaching: func(p *Probes) error { return p.watch(false) },
		attached:  func(p *Probes) error { return p.watch(true) }},
	{Part: model.Part{Name: "switches", Purpose: "run-queue latency and context switches; CPU time then comes from files"},
		programs: []string{"sched_switch"}, detached: (*Probes).endSwitches,
		attaching: (*Probes).forgetWaits, attached: (*Probes).beginSwitches},
}

// standing are the parts that have what is left of the programs.
var standing = []model.Part{
	{Name: "groups", Purpose: "containers that begin and end, processes, and the reading of all of it", Fixed: true},
	{Name: "connections", Purpose: "connections that open, close and fail, who listens, and the reading of all edges", Fixed: true},
	{Name: "tls", Purpose: "requests of encrypted connections", Fixed: true},
	{Name: "disks", Purpose: "requests to disks, and how long files take to be on them", Fixed: true},
	{Name: "files", Purpose: "what programs read and write, and what the files of control groups tell", Fixed: true},
	{Name: "memory", Purpose: "stalls for memory, and who was killed for lack of it", Fixed: true},
}

// Parts are what can be given up, in that order, and then what cannot, with the names of their kernel programs
// as in ProgramCosts. Each program is of one part. What this kernel does not offer is not among them.
func (p *Probes) Parts() []model.Part {
	var there []model.Part
	taken := make(map[string]bool)
	take := func(to *model.Part, program string) {
		if !taken[program] {
			taken[program] = true
			to.Programs = append(to.Programs, program)
		}
	}
	for i := range parts {
		described := parts[i].Part
		for _, a := range p.attachmentsOf(&parts[i]) {
			take(&described, a.name)
		}
		if described.Programs != nil || parts[i].always != nil && parts[i].always(p) {
			there = append(there, described)
		}
	}
	there = append(there, standing...)
	for _, l := range p.programs {
		for i := range there {
			if there[i].Name == l.part {
				take(&there[i], l.name)
			}
		}
	}
	return slices.DeleteFunc(there, func(of model.Part) bool { return of.Fixed && of.Programs == nil })
}

func (p *Probes) attachmentsOf(given *part) (all []*attachment) {
	for _, a := range p.attachments {
		if slices.Contains(given.programs, a.function) {
			all = append(all, a)
		}
	}
	return all
}

// Shed gives a part up: its programs are detached, and what they have counted stands still. It is for
// the goroutine that reads.
func (p *Probes) Shed(name string) error {
	given, err := partNamed(name)
	if err != nil {
		return err
	}
	errs := []error{p.do(given.detaching)}
	for i := range parts {
		if parts[i].Under == name {
			errs = append(errs, p.detach(&parts[i]))
		}
	}
	errs = append(errs, p.detach(given), p.do(given.detached))
	p.shed = append(p.shed, name)
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("giving up %s: %w", name, err)
	}
	return nil
}

// Restore takes up a part again that Shed gave up. What happened between is not counted.
func (p *Probes) Restore(name string) error {
	given, err := partNamed(name)
	if err != nil {
		return err
	}
	errs := []error{p.do(given.attaching), p.attachAgain(given)}
	p.shed = slices.DeleteFunc(p.shed, func(s string) bool { return s == name })
	// At one hook, programs run in the order in which they were attached: these after it.
	for i := range parts {
		if parts[i].Under == name && !slices.Contains(p.shed, parts[i].Name) {
			errs = append(errs, p.attachAgain(&parts[i]))
		}
	}
	errs = append(errs, p.do(given.attached))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("taking up %s again: %w", name, err)
	}
	return nil
}

// do takes a step of a part, if it has it.
func (p *Probes) do(step func(*Probes) error) error {
	if step == nil {
		return nil
	}
	return step(p)
}

func (p *Probes) detach(given *part) error {
	var errs []error
	for _, a := range p.attachmentsOf(given) {
		errs = append(errs, a.Close())
	}
	return errors.Join(errs...)
}

func (p *Probes) attachAgain(given *part) error {
	var errs []error
	for _, a := range p.attachmentsOf(given) {
		if a.held == nil {
			errs = append(errs, a.again())
		}
	}
	return errors.Join(errs...)
}

func partNamed(name string) (*part, error) {
	for i := range parts {
		if parts[i].Name == name {
			return &parts[i], nil
		}
	}
	return nil, fmt.Errorf("BUG: no part %q can be given up", name)
}

// endSwitches ends the slices that are running: nobody will tell of their end.
func (p *Probes) endSwitches() error {
	if p.cgroups == nil {
		return nil
	}
	waitErr := waitForPrograms() // a run that has not ended would write over what is mended here
	r := p.cgroups
	now, err := r.now()
	for cpu := range r.states.entries {
		state := &r.states.entries[cpu]
		lane := int(state.Slot)*r.cpus + cpu
		// Readings have told of what the thread that runs has used so far.
		if state.SinceNs != 0 && now > state.SinceNs && lane < len(r.lanes.entries) {
			atomic.AddUint64(&r.lanes.entries[lane].UsageNs, now-state.SinceNs)
		}
		atomic.StoreUint64(&state.SinceNs, 0)
	}
	return errors.Join(waitErr, err)
}

// forgetWaits lets what threads waited, and their faults, count from now on.
func (p *Probes) forgetWaits() error {
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
func (p *Probes) beginSwitches() error {
	if p.cgroups != nil {
		switchCPUs(p.cgroups.cpus)
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
	outer, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.ArrayOfMaps, KeySize: 4, ValueSize: 4, MaxEntries: 1, InnerMap: inner})
	if err != nil {
		return fmt.Errorf("waiting for kernel programs: %w", err)
	}
	defer outer.Close()
	if err := outer.Put(uint32(0), element); err != nil {
		return fmt.Errorf("waiting for kernel programs: %w", err)
	}
	return nil
}
