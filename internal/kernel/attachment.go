package kernel

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
)

// attachment is a tracing program's hold on its hook, which it can give up and take again.
type attachment struct {
	// function is the program's name in its object, name what users call it.
	function, name string
	program        *ebpf.Program
	held           link.Link
	// before is called before the hook is taken again; nil for nothing.
	before func() error
}

func (a *attachment) attach() (err error) {
	a.held, err = link.AttachTracing(link.TracingOptions{Program: a.program})
	return err
}

// again takes the hook that was given up.
func (a *attachment) again() error {
	if a.before != nil {
		if err := a.before(); err != nil {
			return fmt.Errorf("attaching again: %w", err)
		}
	}
	if err := a.attach(); err != nil {
		return fmt.Errorf("attaching again: %w", err)
	}
	return nil
}

// Close gives the hook up.
func (a *attachment) Close() error {
	if a.held == nil {
		return nil
	}
	err := a.held.Close()
	a.held = nil
	return err
}

// Pause detaches the programs from their hooks; what they have counted stays. What happens until
// Resume is not seen. It is for benchmarks: connections go on afterwards as what they were, so that a
// turn costs what the hooks cost at any time, and not what it takes to judge all connections anew.
func (p *Probes) Pause() error {
	errs := []error{p.goOnWatching(false)}
	for _, a := range p.attachments {
		errs = append(errs, a.Close())
	}
	return errors.Join(errs...)
}

// Resume attaches again what Pause has detached.
func (p *Probes) Resume() error {
	for _, a := range p.attachments {
		if a.held != nil {
			continue
		}
		if err := a.again(); err != nil {
			return err
		}
	}
	return p.goOnWatching(true)
}

// AttachNothing attaches programs that do nothing to the hook of a context switch, until detach: what is added then is what the kernel spends on
// calling them. It is for benchmarks.
func AttachNothing(programs int) (detach func() error, err error) {
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.Tracing, AttachType: ebpf.AttachTraceRawTp, AttachTo: "sched_switch",
		License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}})
	if err != nil {
		return func() error { return nil }, fmt.Errorf("loading an empty program: %w", err)
	}
	all := make([]attachment, programs)
	detach = func() error {
		errs := []error{program.Close()}
		for i := range all {
			errs = append(errs, all[i].Close())
		}
		return errors.Join(errs...)
	}
	for i := range all {
		all[i].program = program
		if err := all[i].attach(); err != nil {
			return detach, fmt.Errorf("attaching an empty program: %w", err)
		}
	}
	return detach, nil
}
