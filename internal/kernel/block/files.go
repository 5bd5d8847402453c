package block

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"outsight/internal/kernel/host"
	"outsight/internal/model"
	"outsight/internal/monotonic"
)

const filesRemedy = "Linux 5.12 or later with BTF and CONFIG_TASK_IO_ACCOUNTING"

var filesExitHook = host.NewHook(filesProgFilesAtExit, "tp_btf/sched_process_exit (files)",
	"bytes read and written by system calls, of threads that end", false, filesRemedy)

// filesHook and filesIterator do the same. The second one is for kernels without the walk over threads of the first, and
// takes several times as long: it goes by the numbers of all threads.
var (
	filesHook = host.NewHook(filesProgScanAllFiles, "syscall (files)",
		"bytes read and written by system calls per container", false, "Linux 6.7 or later with BTF and CONFIG_TASK_IO_ACCOUNTING")
	filesIterator = host.NewHook(filesProgScanFiles, "iter/task (files)", filesHook.Purpose, false, filesRemedy)
)

// filesReader reads what files.bpf.c counts.
type filesReader struct {
	// made is the map behind slots.
	made *ebpf.Map
	// look adds what threads have done since it was called last.
	look    func() error
	slots   *host.Table[filesFileCounts]
	dropped host.Drops[filesFilesDrop]
}

func (p *Block) openFiles(k *host.Kernel) error {
	if p.options.Without {
		return nil
	}
	r, spec, maps, err := p.makeFiles(k)
	if err != nil {
		p.AddFeature(filesExitHook, err)
		p.AddFeature(filesHook, err)
		return err
	}
	// Without the end of threads too much would be missing to be of use.
	if err := p.Attach(k, spec, maps, filesExitHook); err != nil {
		p.AddFeature(filesHook, err)
		return err
	}
	if err := p.openLook(k, spec, maps, r); err != nil {
		return err
	}
	p.files = r
	return nil
}

// openLook looks at the threads for the first time: from then on those that there are count.
func (p *Block) openLook(k *host.Kernel, spec *ebpf.CollectionSpec, maps *ebpf.Collection, r *filesReader) error {
	var errs []error
	for _, way := range []struct {
		hook host.Hook
		open func() (func() error, error)
	}{
		{filesHook, func() (func() error, error) {
			if p.options.filesByIterator {
				return nil, errors.New("left out")
			}
			program, err := p.Load(k, spec, maps, filesHook)
			return func() error {
				_, err := program.Run(&ebpf.RunOptions{})
				return err
			}, err
		}},
		{filesIterator, func() (func() error, error) {
			iter, err := p.OpenIterator(k, spec, maps, filesIterator, nil)
			return func() error { return host.Run(iter) }, err
		}},
	} {
		look, err := way.open()
		if err == nil {
			err = look()
		}
		if err == nil {
			p.AddFeature(way.hook, nil)
			r.look = look
			return nil
		}
		errs = append(errs, &host.HookError{Name: way.hook.Name, Cause: err})
	}
	err := errors.Join(errs...)
	p.AddFeature(filesHook, err)
	return err
}

func (p *Block) makeFiles(k *host.Kernel) (*filesReader, *ebpf.CollectionSpec, *ebpf.Collection, error) {
	var object filesSpecs
	spec, err := host.ReadSpec(loadFiles, &object)
	if err != nil {
		return nil, nil, nil, err
	}
	if !p.groups.Counts() {
		return nil, nil, nil, errors.New("counting files: no kernel program counts control groups")
	}
	shared := p.groups.Share(spec)
	object.FilesOfSlot.MaxEntries = object.CgroupSlots.MaxEntries
	err = errors.Join(object.BeganNs.Set(monotonic.Now()),
		object.CgroupSubsysIndex.Set(k.Subsys))
	if err != nil {
		return nil, nil, nil, fmt.Errorf("BUG: setting the object's constants: %w", err)
	}
	var made filesMaps
	maps, err := host.NewMaps(spec, shared, &made)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("making the maps of files: %w", err)
	}
	p.OnClose(host.CloserFunc(maps.Close))
	r := &filesReader{made: made.FilesOfSlot, dropped: host.Drops[filesFilesDrop]{Counts: made.FilesDrops, Names: filesDropNames}}
	if r.slots, err = host.MapTable[filesFileCounts](made.FilesOfSlot); err != nil {
		return nil, nil, nil, err
	}
	p.OnClose(r.slots)
	return r, spec, maps, nil
}

// refresh lets the kernel add what running threads have done.
func (r *filesReader) refresh() error {
	if err := r.look(); err != nil {
		return fmt.Errorf("looking at what threads read and wrote: %w", err)
	}
	return nil
}

func (r *filesReader) of(slot int) *model.FileCounters {
	c := &r.slots.Entries[slot]
	return &model.FileCounters{ReadBytes: host.Load(&c.ReadBytes), WriteBytes: host.Load(&c.WriteBytes),
		Reads: host.Load(&c.Reads), Writes: host.Load(&c.Writes)}
}

func (r *filesReader) clearSlot(slot uint32) { r.slots.Entries[slot] = filesFileCounts{} }

func (r *filesReader) drops() []model.Drop {
	return []model.Drop{r.dropped.Drop(filesFilesDropDROP_FILES_THREAD)}
}
