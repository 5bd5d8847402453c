package block

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"outsight/internal/kernel/host"
	"outsight/internal/model"
)

const syncRemedy = "Linux 5.12 or later with BTF and BPF trampolines (on arm64 6.0)"

// syncWays are of file systems that have no tracepoint for the end of a synchronisation: their functions for it,
// each with what is attached to its end and to its beginning. The end comes first: one whose beginning was not seen is
// passed over.
var syncWays = []struct {
	fileSystem string
	hooks      host.Way
}{
	{"xfs", host.Way{
		host.NewHook(diskProgXfsSyncExit, "fexit/xfs_file_fsync", "disk: duration of fsync per container (xfs)", false,
			syncRemedy),
		host.NewHook(diskProgXfsSyncEnter, "fentry/xfs_file_fsync", "disk: duration of fsync per container (xfs)", false,
			syncRemedy),
	}},
	{"btrfs", host.Way{
		host.NewHook(diskProgBtrfsSyncExit, "fexit/btrfs_sync_file", "disk: duration of fsync per container (btrfs)", false,
			syncRemedy),
		host.NewHook(diskProgBtrfsSyncEnter, "fentry/btrfs_sync_file", "disk: duration of fsync per container (btrfs)",
			false, syncRemedy),
	}},
}

// attachSyncs times synchronisations of file systems beside ext4, of which the kernel has those that it has. It is
// true if there is one of them.
func (p *Block) attachSyncs(k *host.Kernel, spec *ebpf.CollectionSpec, maps *ebpf.Collection) (some bool) {
	for _, w := range syncWays {
		if !knowsFileSystem(p.options.ProcFS, w.fileSystem) {
			for _, h := range w.hooks {
				p.TellFeature(model.Feature{Name: h.Name, Purpose: h.Purpose, State: model.FeatureOff,
					Reason: "the kernel had no " + w.fileSystem + " at the start", Remedy: "start anew when its module is loaded"})
			}
			continue
		}
		err := p.AttachAll(k, spec, maps, w.hooks)
		if errors.Is(err, unix.EPERM) {
			err = errNoTrampolines // others were attached with the same privileges
			if _, module := os.Stat(filepath.Join("/sys/module", w.fileSystem, "initstate")); module == nil {
				err = errModule
			}
		}
		for _, h := range w.hooks {
			p.AddFeature(h, err)
		}
		some = some || err == nil
	}
	return some
}

var errNoTrampolines = errors.New("this kernel lets no program be attached to its functions")

// errModule: libbpf and its like look through the types of all modules for the right one, with BPF_BTF_GET_NEXT_ID.
var errModule = errors.New("it is a module, whose functions the kernel shows to those with CAP_SYS_ADMIN alone, or this kernel lets no program be attached to functions")

// knowsFileSystem tells whether the kernel has a file system, or its module.
func knowsFileSystem(procfs, name string) bool {
	text, err := os.ReadFile(filepath.Join(procfs, "filesystems"))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 0 && fields[len(fields)-1] == name {
			return true
		}
	}
	return false
}
