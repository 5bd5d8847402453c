package host

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
)

// Attachment attaches a program to its hook. It can be detached and attached again.
type Attachment struct {
	// Function is the program's name in its object, Name what users call it.
	Function, Name string
	Program        *ebpf.Program
	attached       link.Link
	// Attaching attaches the program; nil for a tracing program, which knows where.
	Attaching func(*ebpf.Program) (link.Link, error)
	// Before is called before it is attached again; nil for nothing.
	Before func() error
}

func (a *Attachment) attach() (err error) {
	if a.Attaching != nil {
		a.attached, err = a.Attaching(a.Program)
		return err
	}
	a.attached, err = link.AttachTracing(link.TracingOptions{Program: a.Program})
	return err
}

// Again attaches it again.
func (a *Attachment) Again() error {
	if a.Before != nil {
		if err := a.Before(); err != nil {
			return fmt.Errorf("attaching again: %w", err)
		}
	}
	if err := a.attach(); err != nil {
		return fmt.Errorf("attaching again: %w", err)
	}
	return nil
}

// Attached tells whether it is attached now.
func (a *Attachment) Attached() bool { return a.attached != nil }

// Close detaches it.
func (a *Attachment) Close() error {
	if a.attached == nil {
		return nil
	}
	err := a.attached.Close()
	a.attached = nil
	return err
}

// AttachNothing attaches programs that do nothing to the hook of a context switch, until detach: what is added then is
// what the kernel spends on calling them. It is for benchmarks.
func AttachNothing(programs int) (detach func() error, err error) {
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.Tracing, AttachType: ebpf.AttachTraceRawTp,
		AttachTo: "sched_switch",
		License:  "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}})
	if err != nil {
		return func() error { return nil }, fmt.Errorf("loading an empty program: %w", err)
	}
	all := make([]Attachment, programs)
	detach = func() error {
		errs := []error{program.Close()}
		for i := range all {
			errs = append(errs, all[i].Close())
		}
		return errors.Join(errs...)
	}
	for i := range all {
		all[i].Program = program
		if err := all[i].attach(); err != nil {
			return detach, fmt.Errorf("attaching an empty program: %w", err)
		}
	}
	return detach, nil
}
