package shm

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"outsight/internal/region"
)

// mapInfo is the beginning of struct bpf_map_info of include/uapi/linux/bpf.h.
type mapInfo struct{ kind, id, keyBytes, valueBytes, entries, flags uint32 }

// openMap opens the map behind a descriptor that can only be read. Such a one cannot be mapped; who may open maps by
// their ids opens it anew and maps it, and the kernel is asked whether this process may.
func openMap(f *os.File, o Options) (memory, error) {
	l := &looked{} // escapes, so that its memory does not move while the kernel has its address
	info := &l.info
	attr := struct {
		fd, length uint32
		info       uint64
	}{uint32(f.Fd()), uint32(unsafe.Sizeof(*info)), uint64(uintptr(unsafe.Pointer(info)))}
	if err := bpf(unix.BPF_OBJ_GET_INFO_BY_FD, unsafe.Pointer(&attr), unsafe.Sizeof(attr)); err != nil {
		return nil, fmt.Errorf("asking what the descriptor is: %w", err)
	}
	if info.kind != unix.BPF_MAP_TYPE_ARRAY || info.flags&unix.BPF_F_MMAPABLE == 0 || info.valueBytes%8 != 0 {
		return nil, fmt.Errorf("%w: a map of type %d with flags %#x and values of %d bytes", region.ErrNotRegion, info.kind,
			info.flags, info.valueBytes)
	}
	if !o.WithoutMapping {
		if m, err := mapByID(info); err == nil {
			return m, nil
		} else if !errors.Is(err, unix.EPERM) {
			return nil, err
		}
	}
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	l.file = os.NewFile(uintptr(fd), "region")
	for i := range l.copies {
		l.copies[i] = make([]byte, info.valueBytes)
	}
	return l, nil
}

// mapped is a region in this process's memory, which can only be read there.
type mapped struct {
	memory []byte
	size   int
}

func mapByID(info *mapInfo) (*mapped, error) {
	attr := [3]uint32{info.id, 0, 0}
	fd, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_MAP_GET_FD_BY_ID, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
	if errno != 0 {
		return nil, fmt.Errorf("opening map %d: %w", info.id, errno)
	}
	defer unix.Close(int(fd))
	size, page := int(info.valueBytes)*int(info.entries), os.Getpagesize()
	m, err := unix.Mmap(int(fd), 0, (size+page-1)/page*page, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mapping map %d: %w", info.id, err)
	}
	return &mapped{m, size}, nil
}

func (m *mapped) read(offset uint64, into []byte) error {
	part, err := region.Part(m.memory[:m.size], offset, len(into))
	if err != nil {
		return err
	}
	return region.Copy(into, part)
}

func (m *mapped) close() error { return unix.Munmap(m.memory) }

// looked is a region that is read by a system call for each value of the map.
type looked struct {
	file *os.File
	info mapInfo
	// index of the value that is being looked up.
	index uint32
	// copies of a value: the kernel copies by memcpy, which tears words that change meanwhile.
	copies [3][]byte
}

func (l *looked) read(offset uint64, into []byte) error {
	size := uint64(l.info.valueBytes)
	if offset%8 != 0 || len(into)%8 != 0 || offset > size*uint64(l.info.entries) ||
		uint64(len(into)) > size*uint64(l.info.entries)-offset {
		return fmt.Errorf("%w: %d bytes at %d of %d", region.ErrBounds, len(into), offset, size*uint64(l.info.entries))
	}
	for len(into) > 0 {
		value, err := l.value(uint32(offset / size))
		if err != nil {
			return err
		}
		n := copy(into, value[offset%size:])
		into, offset = into[n:], offset+uint64(n)
	}
	return nil
}

// tries bounds how often a value is looked up for one reading of it.
const tries = 16

// value looks a value up until each of its words is certain. A word is that of the second of three copies where the
// first is not greater and the third not less: a torn word is one that a counter which only grows never had between
// the two.
func (l *looked) value(index uint32) ([]byte, error) {
	for i := range l.copies {
		if err := l.lookup(index, l.copies[i]); err != nil {
			return nil, err
		}
	}
	for range tries {
		if ordered(l.copies[0], l.copies[1], l.copies[2]) {
			return l.copies[1], nil
		}
		l.copies[0], l.copies[1], l.copies[2] = l.copies[1], l.copies[2], l.copies[0]
		if err := l.lookup(index, l.copies[2]); err != nil {
			return nil, err
		}
	}
	return nil, region.ErrBusy
}

func ordered(a, b, c []byte) bool {
	word := func(of []byte, i int) uint64 { return *(*uint64)(unsafe.Pointer(&of[8*i])) }
	for i := range len(a) / 8 {
		if x, y, z := word(a, i), word(b, i), word(c, i); x > y || y > z {
			return false
		}
	}
	return true
}

func (l *looked) lookup(index uint32, into []byte) error {
	l.index = index
	attr := struct {
		fd, pad           uint32
		key, value, flags uint64
	}{fd: uint32(l.file.Fd()), key: uint64(uintptr(unsafe.Pointer(&l.index))),
		value: uint64(uintptr(unsafe.Pointer(&into[0])))}
	err := bpf(unix.BPF_MAP_LOOKUP_ELEM, unsafe.Pointer(&attr), unsafe.Sizeof(attr))
	runtime.KeepAlive(l)
	runtime.KeepAlive(into)
	if err != nil {
		return fmt.Errorf("looking up record %d: %w", index, err)
	}
	return nil
}

func (l *looked) close() error { return l.file.Close() }

func bpf(command int, attr unsafe.Pointer, size uintptr) error {
	if _, _, errno := unix.Syscall(unix.SYS_BPF, uintptr(command), uintptr(attr), size); errno != 0 {
		return errno
	}
	return nil
}
