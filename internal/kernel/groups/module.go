// Package groups reads what control group files say, of many groups by one system call.
package groups

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"github.com/cilium/ebpf"

	"outsight/internal/kernel/host"
	"outsight/internal/model"
)

// DefaultMax bounds the groups where Options do not.
const DefaultMax = 1024

const (
	purpose = "memory, throttling, pressure, threads and limits of containers without reading their files"
	remedy  = "Linux 6.12 or later with BTF; files are read without it"
)

var (
	readHook    = host.NewHook(groupsProgReadGroups, "syscall/read_groups", purpose, false, remedy)
	watchHook   = host.NewHook(groupsProgWatchGroup, "syscall/watch_group", purpose, false, remedy)
	flushedHook = host.NewHook(groupsProgReadFlushed, "syscall/read_flushed", purpose, false, remedy)
	timerHook   = host.NewHook(groupsProgStartFigures, "bpf_timer (figures)",
		"memory, throttling and threads of containers while the agent sleeps", false, remedy)
	cpusHook = host.NewHook(groupsProgFindCpus, "syscall/find_cpus", purpose, false, remedy)
)

// ErrFull is the answer where all slots are taken.
var ErrFull = errors.New("all slots are taken")

// Options of New. The zero value works.
type Options struct {
	// Max bounds the groups (default DefaultMax, 1 KiB of kernel memory each); of further ones files are read.
	Max int
}

// Groups is the module. Its methods are for one goroutine, but for Drops.
type Groups struct {
	host.Loader
	options                   Options
	read, watch, flushedWords *ebpf.Program
	figures                   *host.Table[groupsGroupFigures]
	figuresMap                *ebpf.Map // behind figures
	details                   *host.Table[groupsGroupDetails]
	flushed                   *host.Table[groupsFlushedStat]
	// start starts the timer that control is for; nil where the kernel refuses it.
	start   *ebpf.Program
	control *host.Table[groupsFiguresControl]
	// free are slots that were used and are not, next the first that never was.
	free []uint32
	next uint32
	// used and refused are what Drops tells.
	used, refused atomic.Uint64
}

// New makes the module.
func New(o Options) *Groups {
	o.Max = host.DefaultTo(o.Max, DefaultMax)
	return &Groups{Loader: host.NewLoader(), options: o}
}

// Hooks are what a user sees of it.
func (p *Groups) Hooks() []host.Hook { return []host.Hook{readHook} }

// Open loads the programs.
func (p *Groups) Open(k *host.Kernel) error {
	p.Loading = "groups"
	err := p.tryOpen(k)
	p.AddFeature(readHook, err)
	if err != nil {
		p.read = nil
	}
	return err
}

func (p *Groups) tryOpen(k *host.Kernel) error {
	var object groupsSpecs
	spec, err := host.ReadSpec(loadGroups, &object)
	if err != nil {
		return err
	}
	object.WatchedGroups.MaxEntries = uint32(p.options.Max)
	object.FiguresOfGroup.MaxEntries, object.DetailsOfGroup.MaxEntries = uint32(p.options.Max), uint32(p.options.Max)
	err = errors.Join(object.MemoryIndex.Set(k.Memory), object.CpuIndex.Set(k.CPU), object.PidsIndex.Set(k.PIDs),
		object.Cpus.Set(uint32(k.CPUs)), object.PageBytes.Set(uint32(os.Getpagesize())),
		object.JiffyNs.Set(k.JiffyNS))
	if err != nil {
		return fmt.Errorf("BUG: setting the object's constants: %w", err)
	}
	var made groupsMaps
	maps, err := host.NewMaps(spec, nil, &made)
	if err != nil {
		return fmt.Errorf("making the tables of figures: %w", err)
	}
	p.OnClose(host.CloserFunc(maps.Close))
	if p.figures, err = host.MapTable[groupsGroupFigures](made.FiguresOfGroup); err != nil {
		return err
	}
	p.figuresMap = made.FiguresOfGroup
	p.OnClose(p.figures)
	if p.details, err = host.MapTable[groupsGroupDetails](made.DetailsOfGroup); err != nil {
		return err
	}
	p.OnClose(p.details)
	if p.flushed, err = host.MapTable[groupsFlushedStat](made.Flushed); err != nil {
		return err
	}
	p.OnClose(p.flushed)
	if p.control, err = host.MapTable[groupsFiguresControl](made.FiguresControls); err != nil {
		return err
	}
	p.OnClose(p.control)
	if p.watch, err = p.Load(k, spec, maps, watchHook); err != nil {
		return err
	}
	if p.flushedWords, err = p.Load(k, spec, maps, flushedHook); err != nil {
		return err
	}
	find, err := p.Load(k, spec, maps, cpusHook)
	if err != nil {
		return err
	}
	if err := run(find, groupsReadRequest{}); err != nil {
		return fmt.Errorf("finding the CPUs' variables: %w", err)
	}
	if p.read, err = p.Load(k, spec, maps, readHook); err != nil {
		return err
	}
	start, err := p.Load(k, spec, maps, timerHook)
	p.AddFeature(timerHook, err)
	if err == nil {
		p.start = start
	}
	return nil
}

// Parts of the module. Its programs run when they are asked to: without them files are read, which costs more.
func (p *Groups) Parts() []host.Part { return nil }

// Drops lists the bounded table. What finds no room in it is read from files.
func (p *Groups) Drops() []model.Drop {
	if p.read == nil {
		return nil
	}
	return []model.Drop{{Name: "cgroup/figures", Count: p.refused.Load(), Capacity: uint64(p.options.Max),
		Used: p.used.Load()}}
}

// Forget does nothing: who watches a group ends it.
func (p *Groups) Forget(model.CgroupID) {}
