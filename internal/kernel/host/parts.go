package host

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"outsight/internal/model"
)

// Part is something that is counted. Unless it is fixed, it can be shed while the others go on.
type Part struct {
	model.Part
	// Rank is its position among the parts of all modules: those of the least are shed first.
	Rank int
	// Functions are the programs in the objects that shed it when they are detached; those that are not
	// attached are not there.
	Functions []string
	// What else is done, unless it is nil: before they are detached, when they are, before they are
	// attached again, and when they are.
	Detaching, Detached, Attaching, Attached func() error
	// Always is true where there is something to shed without a program.
	Always bool
	// Pausing and Resuming are for benchmarks, which pause everything for a moment.
	Pausing, Resuming func() error
}

// Parts are those of all modules.
type Parts struct {
	modules []Module
	// shed are the names of those that are shed.
	shed []string
}

// NewParts knows the parts of modules.
func NewParts(modules ...Module) *Parts { return &Parts{modules: modules} }

// all are the parts by rank.
func (p *Parts) all() (all []Part) {
	for _, m := range p.modules {
		all = append(all, m.Parts()...)
	}
	slices.SortStableFunc(all, func(a, b Part) int { return cmp.Compare(a.Rank, b.Rank) })
	return all
}

func (p *Parts) attachments(given *Part) (all []*Attachment) {
	for _, m := range p.modules {
		for _, a := range m.Attachments() {
			if given == nil || slices.Contains(given.Functions, a.Function) {
				all = append(all, a)
			}
		}
	}
	return all
}

// List are what can be shed, in that order, and then what cannot, with the names of their kernel programs.
// Each program is of one part. What this kernel does not offer is not among them.
func (p *Parts) List() []model.Part {
	var there []model.Part
	taken := make(map[string]bool)
	take := func(to *model.Part, program string) {
		if !taken[program] {
			taken[program] = true
			to.Programs = append(to.Programs, program)
		}
	}
	for _, part := range p.all() {
		described := part.Part
		for _, a := range p.attachments(&part) {
			take(&described, a.Name)
		}
		if described.Fixed || described.Programs != nil || part.Always {
			there = append(there, described)
		}
	}
	for _, m := range p.modules {
		for _, l := range m.Programs() {
			for i := range there {
				if there[i].Name == l.Part {
					take(&there[i], l.Name)
				}
			}
		}
	}
	return slices.DeleteFunc(there, func(of model.Part) bool { return of.Fixed && of.Programs == nil })
}

// Shed gives a part up: its programs are detached, and what they have counted stands still. It is for
// the goroutine that reads.
func (p *Parts) Shed(name string) error {
	all, given, err := p.named(name)
	if err != nil {
		return err
	}
	errs := []error{do(given.Detaching)}
	for i := range all {
		if all[i].Under == name {
			errs = append(errs, p.detach(&all[i]))
		}
	}
	errs = append(errs, p.detach(given), do(given.Detached))
	p.shed = append(p.shed, name)
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("giving up %s: %w", name, err)
	}
	return nil
}

// Restore takes up a part again that Shed gave up. What happened between is not counted.
func (p *Parts) Restore(name string) error {
	all, given, err := p.named(name)
	if err != nil {
		return err
	}
	errs := []error{do(given.Attaching), p.attachAgain(given)}
	p.shed = slices.DeleteFunc(p.shed, func(s string) bool { return s == name })
	// At one hook, programs run in the order in which they were attached: these after it.
	for i := range all {
		if all[i].Under == name && !slices.Contains(p.shed, all[i].Name) {
			errs = append(errs, p.attachAgain(&all[i]))
		}
	}
	errs = append(errs, do(given.Attached))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("taking up %s again: %w", name, err)
	}
	return nil
}

// Pause detaches all programs from their hooks; what they have counted stays.
func (p *Parts) Pause() error {
	var errs []error
	for _, part := range p.all() {
		errs = append(errs, do(part.Pausing))
	}
	for _, a := range p.attachments(nil) {
		errs = append(errs, a.Close())
	}
	return errors.Join(errs...)
}

// Resume attaches again what Pause has detached.
func (p *Parts) Resume() error {
	for _, a := range p.attachments(nil) {
		if a.Attached() {
			continue
		}
		if err := a.Again(); err != nil {
			return err
		}
	}
	var errs []error
	for _, part := range p.all() {
		errs = append(errs, do(part.Resuming))
	}
	return errors.Join(errs...)
}

// do takes a step of a part, if it has it.
func do(step func() error) error {
	if step == nil {
		return nil
	}
	return step()
}

func (p *Parts) detach(given *Part) error {
	var errs []error
	for _, a := range p.attachments(given) {
		errs = append(errs, a.Close())
	}
	return errors.Join(errs...)
}

func (p *Parts) attachAgain(given *Part) error {
	var errs []error
	for _, a := range p.attachments(given) {
		if !a.Attached() {
			errs = append(errs, a.Again())
		}
	}
	return errors.Join(errs...)
}

func (p *Parts) named(name string) ([]Part, *Part, error) {
	all := p.all()
	for i := range all {
		if all[i].Name == name && !all[i].Fixed {
			return all, &all[i], nil
		}
	}
	return nil, nil, fmt.Errorf("BUG: no part %q can be shed", name)
}
