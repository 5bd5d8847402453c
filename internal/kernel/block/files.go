package block

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"outsight/internal/kernel/host"
	"outsight/internal/model"
)

const filesRemedy = "Linux 5.12 or later with BTF and CONFIG_TASK_IO_ACCOUNTING"

var filesExitHook = host.NewHook(filesProgFilesAtExit, "tp_btf/sched_process_exit (files)",
	"bytes read and written by system calls, of threads that end", false, filesRemedy)

var filesHook = host.NewHook(filesProgScanFiles, "iter/task (files)",
	"bytes read and written by system calls per container", false, filesRemedy)

// filesReader reads what files.bpf.c counts.
type filesReader struct {
	// made is the map behind slots.
	made    *ebpf.Map
	look    *link.Iter
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
	if r.look, err = p.OpenIterator(k, spec, maps, filesHook, nil); err == nil {
		// From now on the threads that there are count.
		err = host.Run(r.look)
	}
	p.AddFeature(filesHook, err)
	if err != nil {
		return err
	}
	p.files = r
	return nil
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
	err = errors.Join(object.BeganNs.Set(host.MonotonicNS()),
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
	if err := host.Run(r.look); err != nil {
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
