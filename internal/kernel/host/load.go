package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"outsight/internal/model"
)

// Hook is a program and what is lost without it.
type Hook struct {
	// Program is its name in the object, Name as users see it.
	Program, Name, Purpose string
	Required               bool
	// Remedy is what it would take where the kernel refuses it.
	Remedy string
}

// NewHook is a hook by its fields in their order.
func NewHook(program, name, purpose string, required bool, remedy string) Hook {
	return Hook{program, name, purpose, required, remedy}
}

// Way is a set of programs that together count something. All are attached, or none.
type Way []Hook

func (w Way) String() string {
	var names []string
	for _, h := range w {
		names = append(names, h.Name)
	}
	return strings.Join(names, " ")
}

// HookError is why one of several hooks cannot be had.
type HookError struct {
	Name  string
	Cause error
}

func (e *HookError) Error() string { return e.Name + ": " + Refusal(e.Cause) }

// Unwrap is the cause.
func (e *HookError) Unwrap() error { return e.Cause }

// LoadedProgram is a program in the kernel.
type LoadedProgram struct {
	// Part is whose it is, unless it is one of those that can be shed.
	Name, Part string
	Program    *ebpf.Program
	// Runs is how often it ran, by its own count; nil where only the kernel's statistics tell, while they are on.
	Runs func() uint64
}

// Loader loads and attaches one module's programs, and keeps them until it is closed.
type Loader struct {
	// Logger gets what the kernel refuses.
	Logger *slog.Logger
	// Loading is the part whose programs are being loaded.
	Loading string

	features    []model.Feature
	programs    []LoadedProgram
	attachments []*Attachment
	closers     []io.Closer
}

// NewLoader has a logger that discards.
func NewLoader() Loader { return Loader{Logger: slog.New(slog.DiscardHandler)} }

// Features tells of each program whether it works here.
func (p *Loader) Features() []model.Feature { return slices.Clone(p.features) }

// Programs are those that are loaded.
func (p *Loader) Programs() []LoadedProgram { return p.programs }

// Attachments are those of the programs that have a hook.
func (p *Loader) Attachments() []*Attachment { return p.attachments }

// LastAttachment is the newest of them.
func (p *Loader) LastAttachment() *Attachment { return p.attachments[len(p.attachments)-1] }

// OnClose closes c with the loader, which also keeps it from being collected before.
func (p *Loader) OnClose(c io.Closer) { p.closers = append(p.closers, c) }

// Close detaches and unloads everything, the newest first.
func (p *Loader) Close() error {
	var errs []error
	for i := len(p.closers) - 1; i >= 0; i-- {
		errs = append(errs, p.closers[i].Close())
	}
	p.closers = nil
	return errors.Join(errs...)
}

// CloserFunc is a function that closes something.
type CloserFunc func()

// Close calls it.
func (f CloserFunc) Close() error { f(); return nil }

// NewMaps makes the object's maps without any of its programs; those in shared are used as they are. It sets the fields
// of to, which are generated structs of maps and of variables. The collection goes on owning what they point to.
func NewMaps(spec *ebpf.CollectionSpec, shared map[string]*ebpf.Map, to ...any) (*ebpf.Collection, error) {
	bare := spec.Copy()
	bare.Programs = nil
	made, err := ebpf.NewCollectionWithOptions(bare, ebpf.CollectionOptions{MapReplacements: shared})
	if err != nil {
		return nil, err
	}
	// Assign takes what it assigns out of its collection: it is given a copy, since programs are loaded onto all maps.
	assigned := ebpf.Collection{Maps: maps.Clone(made.Maps), Variables: maps.Clone(made.Variables)}
	for _, fields := range to {
		if err := assigned.Assign(fields); err != nil {
			made.Close()
			return nil, fmt.Errorf("BUG: assigning the object's maps: %w", err)
		}
	}
	return made, nil
}

// ReadSpec reads an embedded object, and sets the fields of to, which is its generated struct of specifications.
func ReadSpec(load func() (*ebpf.CollectionSpec, error), to any) (*ebpf.CollectionSpec, error) {
	spec, err := load()
	if err == nil {
		err = spec.Assign(to)
	}
	if err != nil {
		return nil, fmt.Errorf("BUG: reading the embedded object: %w", err)
	}
	return spec, nil
}

// Load loads one program onto existing maps, and keeps it until the loader is closed.
func (p *Loader) Load(k *Kernel, spec *ebpf.CollectionSpec, maps *ebpf.Collection, h Hook) (*ebpf.Program, error) {
	return p.LoadCounted(k, spec, maps, h, nil)
}

// LoadCounted is Load of a program that counts how often it ran.
func (p *Loader) LoadCounted(k *Kernel, spec *ebpf.CollectionSpec, maps *ebpf.Collection, h Hook,
	runs func() uint64) (*ebpf.Program, error) {
	program, err := LoadProgram(k, spec, maps, h.Program)
	if err != nil {
		return nil, err
	}
	p.OnClose(program)
	p.programs = append(p.programs, LoadedProgram{Name: h.Name, Part: p.Loading, Program: program, Runs: runs})
	return program, nil
}

// LoadProgram loads one program onto existing maps.
func LoadProgram(k *Kernel, spec *ebpf.CollectionSpec, maps *ebpf.Collection, name string) (*ebpf.Program, error) {
	one := spec.Copy()
	one.Programs = map[string]*ebpf.ProgramSpec{name: one.Programs[name]}
	if one.Programs[name] == nil {
		return nil, fmt.Errorf("BUG: no program %q in the object", name)
	}
	loaded, err := ebpf.NewCollectionWithOptions(one, ebpf.CollectionOptions{
		MapReplacements: maps.Maps, Cache: k.Types,
	})
	if err != nil {
		return nil, err
	}
	defer loaded.Close()
	return loaded.DetachProgram(name), nil
}

// Attach loads and attaches a tp_btf program; an error is a feature that is absent.
func (p *Loader) Attach(k *Kernel, spec *ebpf.CollectionSpec, maps *ebpf.Collection, h Hook) error {
	err := p.TryAttach(k, spec, maps, h)
	p.AddFeature(h, err)
	return err
}

// OpenIterator loads an iterator, over the elements of a map if there is one.
func (p *Loader) OpenIterator(k *Kernel, spec *ebpf.CollectionSpec, maps *ebpf.Collection, h Hook,
	over *ebpf.Map) (*link.Iter, error) {
	program, err := p.Load(k, spec, maps, h)
	if err != nil {
		return nil, err
	}
	iter, err := link.AttachIter(link.IterOptions{Program: program, Map: over})
	if err != nil {
		return nil, err
	}
	p.OnClose(iter)
	return iter, nil
}

// Run reads an iterator to its end; its programs write nothing.
func Run(iter *link.Iter) error {
	reader, err := iter.Open()
	if err != nil {
		return err
	}
	defer reader.Close()
	_, err = io.Copy(io.Discard, reader)
	return err
}

// AddFeature tells that a hook works, or why it does not.
func (p *Loader) AddFeature(h Hook, err error) {
	f := model.Feature{Name: h.Name, Purpose: h.Purpose, Required: h.Required, State: model.FeatureWorks}
	if err != nil {
		f.State, f.Reason, f.Remedy = model.FeatureAbsent, Refusal(err), h.Remedy
		// What the main job does without is shown by doctor and on the page.
		level := slog.LevelDebug
		if h.Required {
			level = slog.LevelWarn
		}
		p.Logger.Log(context.Background(), level, "kernel program refused", "hook", h.Name, "error", f.Reason)
	}
	p.features = append(p.features, f)
}

// Refusal is the short reason of a load error; the verifier's full log is of no use to users.
func Refusal(err error) string {
	var (
		hook     *HookError
		verifier *ebpf.VerifierError
	)
	switch {
	case errors.As(err, &hook):
		return err.Error()
	case errors.As(err, &verifier):
		return fmt.Sprintf("%v", verifier)
	case errors.Is(err, unix.EPERM):
		return "operation not permitted: CAP_BPF and CAP_PERFMON (or root) are needed"
	}
	return err.Error()
}

// TellFeature tells of something that is no program.
func (p *Loader) TellFeature(f model.Feature) { p.features = append(p.features, f) }

// TellOff tells of what is off because the agent was told so by a flag.
func (p *Loader) TellOff(f model.Feature, flag string) {
	f.State, f.Reason, f.Remedy = model.FeatureOff, "it was switched off", "start the agent without "+flag
	p.TellFeature(f)
}

// TellUnasked tells of what is off because a flag of the agent is.
func (p *Loader) TellUnasked(f model.Feature, flag string) {
	f.State, f.Reason, f.Remedy = model.FeatureOff, "it was not asked for", "start the agent with "+flag
	p.TellFeature(f)
}

// Works tells whether a feature does.
func (p *Loader) Works(feature string) bool {
	return slices.ContainsFunc(p.features, func(f model.Feature) bool {
		return f.Name == feature &&
			f.State == model.FeatureWorks
	})
}

// AttachAll attaches all programs of a way, or none.
func (p *Loader) AttachAll(k *Kernel, spec *ebpf.CollectionSpec, maps *ebpf.Collection, w Way) error {
	programs, attachments, closers := len(p.programs), len(p.attachments), len(p.closers)
	for _, h := range w {
		err := p.TryAttach(k, spec, maps, h)
		if err == nil {
			continue
		}
		for i := len(p.closers) - 1; i >= closers; i-- {
			err = errors.Join(err, p.closers[i].Close())
		}
		p.programs, p.attachments, p.closers = p.programs[:programs], p.attachments[:attachments], p.closers[:closers]
		return &HookError{h.Name, err}
	}
	return nil
}

// TryAttach loads and attaches a tracing program.
func (p *Loader) TryAttach(k *Kernel, spec *ebpf.CollectionSpec, maps *ebpf.Collection, h Hook) error {
	return p.TryAttachBy(k, spec, maps, h, nil)
}

// TryAttachBy is TryAttach of a program that is attached by a function; see Attachment.Attaching.
func (p *Loader) TryAttachBy(k *Kernel, spec *ebpf.CollectionSpec, maps *ebpf.Collection, h Hook,
	attaching func(*ebpf.Program) (link.Link, error)) error {
	program, err := p.Load(k, spec, maps, h)
	if err != nil {
		return err
	}
	a := &Attachment{Function: h.Program, Name: h.Name, Program: program, Attaching: attaching}
	if err := a.attach(); err != nil {
		return err
	}
	p.attachments = append(p.attachments, a)
	p.OnClose(a)
	return nil
}

// FunctionsOf are the functions of a program by their names; the first is where it begins.
func FunctionsOf(program asm.Instructions) (order []string, functions map[string]asm.Instructions) {
	functions = map[string]asm.Instructions{}
	for i, start := 1, 0; i <= len(program); i++ {
		if i == len(program) || program[i].Symbol() != "" {
			name := program[start].Symbol()
			order = append(order, name)
			functions[name] = program[start:i:i]
			start = i
		}
	}
	return order, functions
}
