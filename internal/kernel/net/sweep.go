package net

import (
	"errors"

	"github.com/cilium/ebpf"

	"outsight/internal/kernel/host"
)

// sweepWay is an iterator over the elements of maps, and what does the same where the kernel refuses those: an
// iterator over all files, or a program that is run.
type sweepWay struct{ iterator, fallback host.Hook }

func newSweepWay(program, name, fallback, fallbackName, purpose, remedy string) sweepWay {
	return sweepWay{host.NewHook(program, name, purpose, false, remedy),
		host.NewHook(fallback, fallbackName, purpose, false, remedy)}
}

// openSweep returns what sweeps the maps once, by the first of the two ways that works; nil with an error.
func (p *Net) openSweep(k *host.Kernel, spec *ebpf.CollectionSpec, maps *ebpf.Collection, w sweepWay,
	over ...*ebpf.Map) (func() error, error) {
	run, err := p.openMapIterators(k, spec, maps, w.iterator, over)
	if err == nil {
		p.AddFeature(w.iterator, nil)
		return run, nil
	}
	run, fallbackErr := p.openSweepFallback(k, spec, maps, w.fallback)
	if fallbackErr == nil {
		p.AddFeature(w.fallback, nil)
		p.Logger.Debug("another way is used to sweep", "way", w.fallback.Name, "because", host.Refusal(err))
		return run, nil
	}
	err = errors.Join(&host.HookError{Name: w.iterator.Name, Cause: err},
		&host.HookError{Name: w.fallback.Name, Cause: fallbackErr})
	p.AddFeature(w.iterator, err)
	return nil, err
}

func (p *Net) openMapIterators(k *host.Kernel, spec *ebpf.CollectionSpec, maps *ebpf.Collection, h host.Hook,
	over []*ebpf.Map) (func() error, error) {
	var runs []func() error
	for _, m := range over {
		iter, err := p.OpenIterator(k, spec, maps, h, m)
		if err != nil {
			return nil, err
		}
		runs = append(runs, func() error { return host.Run(iter) })
	}
	return func() error {
		var errs []error
		for _, run := range runs {
			errs = append(errs, run())
		}
		return errors.Join(errs...)
	}, nil
}

func (p *Net) openSweepFallback(k *host.Kernel, spec *ebpf.CollectionSpec, maps *ebpf.Collection,
	h host.Hook) (func() error, error) {
	if s := spec.Programs[h.Program]; s == nil || s.Type != ebpf.Syscall {
		iter, err := p.OpenIterator(k, spec, maps, h, nil)
		return func() error { return host.Run(iter) }, err
	}
	program, err := p.Load(k, spec, maps, h)
	return func() error {
		_, err := program.Run(&ebpf.RunOptions{})
		return err
	}, err
}
