package net

import (
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// uprobes is a way to attach programs to files.
type uprobes struct {
	attachType ebpf.AttachType
	// most bounds all probes at a time, container those of one container.
	most, container int
	// attachAt attaches a program at several offsets.
	attachAt func(file *link.Executable, program *ebpf.Program, offsets []uint64, returns bool) ([]link.Link, error)
}

var (
	// multiUprobes attaches a program to all of its offsets in a file at once, and takes it away from them at once
	// (Linux 6.6).
	multiUprobes = uprobes{ebpf.AttachTraceUprobeMulti, 4096, 512, attachMulti}
	// singleUprobes attaches each by itself. The kernel takes them away one after the other, however that is asked
	// for, and each takes the time of several RCU grace periods (about 100 ms): 32 are gone within four seconds.
	// One container may have 24, because a Go program needs about 20.
	singleUprobes = uprobes{ebpf.AttachNone, 32, 24, attachSingle}
)

func attachMulti(file *link.Executable, program *ebpf.Program, offsets []uint64, returns bool) ([]link.Link, error) {
	attach := file.UprobeMulti
	if returns {
		attach = file.UretprobeMulti
	}
	l, err := attach(nil, program, &link.UprobeMultiOptions{Addresses: offsets})
	if err != nil {
		return nil, err
	}
	return []link.Link{l}, nil
}

func attachSingle(file *link.Executable, program *ebpf.Program, offsets []uint64, returns bool) ([]link.Link, error) {
	var links []link.Link
	attach := file.Uprobe
	if returns {
		attach = file.Uretprobe
	}
	for _, offset := range offsets {
		l, err := attach("", program, &link.UprobeOptions{Address: offset})
		if err != nil {
			return links, err
		}
		links = append(links, l)
	}
	return links, nil
}

// attach attaches programs at offsets of a file, all or none.
func (u uprobes) attach(path string, programs map[string]*ebpf.Program, functions []tlsFunction) ([]link.Link, error) {
	executable, err := link.OpenExecutable(path)
	if err != nil {
		return nil, err
	}
	type program struct {
		name    string
		returns bool
	}
	offsets := make(map[program][]uint64)
	var order []program
	for _, f := range functions {
		p := program{f.program, f.returns}
		if offsets[p] == nil {
			order = append(order, p)
		}
		if !slices.Contains(offsets[p], f.offset) {
			offsets[p] = append(offsets[p], f.offset)
		}
	}
	// Ends before beginnings: else what a call leaves might stay.
	slices.SortStableFunc(order, func(a, b program) int {
		return cmp.Compare(strings.Count(b.name, "_end"), strings.Count(a.name, "_end"))
	})
	var links []link.Link
	for _, p := range order {
		more, err := u.attachAt(executable, programs[p.name], offsets[p], p.returns)
		links = append(links, more...)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("attaching %s: %w", p.name, err), closeLinks(links))
		}
	}
	return links, nil
}

// try attaches to where this process began, which never runs again.
func (u uprobes) try(program *ebpf.Program) error {
	const self = "/proc/self/exe"
	f, err := elf.Open(self)
	if err != nil {
		return err
	}
	defer f.Close()
	offset, ok := fileOffset(f, f.Entry)
	if !ok {
		return errors.New("BUG: this program begins outside of itself")
	}
	executable, err := link.OpenExecutable(self)
	if err != nil {
		return err
	}
	links, err := u.attachAt(executable, program, []uint64{offset}, false)
	if err != nil {
		return err
	}
	return closeLinks(links)
}

// closeLinks closes links beside each other: the kernel waits for RCU at each, and for many at a time as long as for
// one.
func closeLinks(links []link.Link) error {
	const beside = 64
	errs := make([]error, len(links))
	var closing sync.WaitGroup
	free := make(chan struct{}, beside)
	for i, l := range links {
		free <- struct{}{}
		closing.Go(func() {
			errs[i] = l.Close()
			<-free
		})
	}
	closing.Wait()
	return errors.Join(errs...)
}
