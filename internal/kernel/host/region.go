package host

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Region is an array map (BPF_F_MMAPABLE) that is read from outside the process that loaded it.
type Region struct {
	// Name is that of the map, as in docs/format/kernel.md.
	Name string
	Map  *ebpf.Map
	// Record is the Go type of an entry, generated from that of the kernel programs.
	Record reflect.Type
	// Lanes is how many entries in a row belong to one index.
	Lanes int
}

// NewRegion describes a map whose entries are of type T.
func NewRegion[T any](name string, m *ebpf.Map, lanes int) Region {
	return Region{Name: name, Map: m, Record: reflect.TypeFor[T](), Lanes: lanes}
}

// ReadOnly opens the map anew for reading alone (BPF_F_RDONLY): the kernel refuses to write through the descriptor, and
// to map it (do_mmap clears VM_SHARED, without which bpf_map_mmap of kernel/bpf/syscall.c answers EINVAL). It needs
// CAP_SYS_ADMIN.
func (r Region) ReadOnly() (*os.File, error) {
	info, err := r.Map.Info()
	if err != nil {
		return nil, fmt.Errorf("asking for the id of the map %s: %w", r.Name, err)
	}
	id, ok := info.ID()
	if !ok {
		return nil, fmt.Errorf("opening the map %s for reading: %w", r.Name, errors.ErrUnsupported)
	}
	// union bpf_attr of BPF_MAP_GET_FD_BY_ID: map_id, next_id, open_flags.
	attr := [3]uint32{uint32(id), 0, unix.BPF_F_RDONLY}
	fd, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_MAP_GET_FD_BY_ID, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
	if errno != 0 {
		return nil, fmt.Errorf("opening the map %s for reading: %w", r.Name, errno)
	}
	return os.NewFile(fd, r.Name), nil
}

// Descriptor is another descriptor of the map, through which it can be mapped.
func (r Region) Descriptor() (*os.File, error) {
	fd, err := unix.FcntlInt(uintptr(r.Map.FD()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("duplicating the descriptor of the map %s: %w", r.Name, err)
	}
	return os.NewFile(uintptr(fd), r.Name), nil
}

// RegionMemory is the memory of a Region.
type RegionMemory struct {
	// Bytes are the entries, without what the last page has beyond them. The kernel writes there at any time: load 8
	// bytes at a time, atomically.
	Bytes  []byte
	mapped []byte
}

// Memory maps the region to be read, or also to be written. All of it counts as this process's resident memory.
func (r Region) Memory(write bool) (*RegionMemory, error) {
	size := int(r.Map.ValueSize()) * int(r.Map.MaxEntries())
	page := os.Getpagesize()
	access := unix.PROT_READ
	if write {
		access |= unix.PROT_WRITE
	}
	mapped, err := unix.Mmap(r.Map.FD(), 0, (size+page-1)/page*page, access, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mapping the region %s: %w", r.Name, err)
	}
	return &RegionMemory{Bytes: mapped[:size], mapped: mapped}, nil
}

// Close unmaps the memory, which must not be used any more.
func (m *RegionMemory) Close() error { return unix.Munmap(m.mapped) }

// pageOfRegion is an entry of a region that user space fills.
type pageOfRegion [4096]byte

// NewPages makes a region of at least size bytes that user space fills, so that the kernel can serve it like those that
// it counts in.
func NewPages(name string, size int) (Region, error) {
	pages := (size + len(pageOfRegion{}) - 1) / len(pageOfRegion{})
	m, err := ebpf.NewMap(&ebpf.MapSpec{Name: name, Type: ebpf.Array, KeySize: 4,
		ValueSize: uint32(len(pageOfRegion{})), MaxEntries: uint32(pages), Flags: unix.BPF_F_MMAPABLE})
	if err != nil {
		return Region{}, fmt.Errorf("making the region %s: %w", name, err)
	}
	return NewRegion[pageOfRegion](name, m, 1), nil
}
