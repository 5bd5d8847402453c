package kernel

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"outsight/internal/model"
)

const filesRemedy = "Linux 5.12 or later with BTF and CONFIG_TASK_IO_ACCOUNTING"

var filesExitHook = hook{"files_at_exit", "tp_btf/sched_process_exit (files)", "bytes read and written by system calls, of threads that end", false, filesRemedy}

var filesHook = hook{"look_at_files", "iter/task (files)", "bytes read and written by system calls per container", false, filesRemedy}

// filesReader reads what files.bpf.c counts.
type filesReader struct {
	look    *link.Iter
	slots   *table[filesFileCounts]
	dropped *ebpf.Map
}

func (p *Probes) openFiles(k *kernel) error {
	if p.options.WithoutDisks {
		return nil
	}
	r, spec, maps, err := p.makeFiles(k)
	if err != nil {
		p.addFeature(filesExitHook, err)
		p.addFeature(filesHook, err)
		return err
	}
	// Without the end of threads too much would be missing to be of use.
	if err := p.attach(k, spec, maps, filesExitHook); err != nil {
		p.addFeature(filesHook, err)
		return err
	}
	if r.look, err = p.openIterator(k, spec, maps, filesHook, nil); err == nil {
		// From now on the threads that there are count.
		err = run(r.look)
	}
	p.addFeature(filesHook, err)
	if err != nil {
		return err
	}
	p.files = r
	return nil
}

func (p *Probes) makeFiles(k *kernel) (*filesReader, *ebpf.CollectionSpec, *ebpf.Collection, error) {
	spec, err := loadFiles()
	if err != nil {
		return nil, nil, nil, fmt.Errorf("BUG: reading the embedded object: %w", err)
	}
	if p.cgroups == nil {
		return nil, nil, nil, errors.New("counting files: no kernel program counts control groups")
	}
	shared := p.cgroups.share(spec)
	spec.Maps["files_of_slot"].MaxEntries = shared["cgroup_slots"].MaxEntries()
	err = errors.Join(spec.Variables["began_ns"].Set(monotonicNS()), spec.Variables["cgroup_subsys_index"].Set(k.subsys))
	if err != nil {
		return nil, nil, nil, fmt.Errorf("BUG: setting the object's constants: %w", err)
	}
	maps, err := newMaps(spec, shared)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("making the maps of files: %w", err)
	}
	p.onClose(closerFunc(maps.Close))
	r := &filesReader{dropped: maps.Maps["files_drops"]}
	if r.slots, err = mapTable[filesFileCounts](maps.Maps["files_of_slot"]); err != nil {
		return nil, nil, nil, err
	}
	p.onClose(r.slots)
	return r, spec, maps, nil
}

// refresh lets the kernel add what running threads have done.
func (r *filesReader) refresh() error {
	if err := run(r.look); err != nil {
		return fmt.Errorf("looking at what threads read and wrote: %w", err)
	}
	return nil
}

func (r *filesReader) of(slot int) *model.FileCounters {
	c := &r.slots.entries[slot]
	return &model.FileCounters{ReadBytes: load(&c.ReadBytes), WriteBytes: load(&c.WriteBytes), Reads: load(&c.Reads), Writes: load(&c.Writes)}
}

func (r *filesReader) clearSlot(slot uint32) { r.slots.entries[slot] = filesFileCounts{} }

func (r *filesReader) drops() []model.Drop {
	return []model.Drop{{Name: "file_threads", Count: sumDrops(r.dropped, 0)}}
}
