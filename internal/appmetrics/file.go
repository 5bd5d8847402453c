package appmetrics

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"outsight/internal/model"
)

// fileName is what a library calls the memory file; fileLink what /proc calls it.
const (
	fileName = "outsight-metrics"
	fileLink = "/memfd:" + fileName
)

var (
	errUnsealed = errors.New("the file's size is not sealed")
	errOther    = errors.New("not a file with metrics")
)

// fileID tells a file from all others that are there at the same time.
type fileID struct{ dev, inode uint64 }

// file is one of a process, mapped.
type file struct {
	*layout
	id  fileID
	pid int
	// process is a pidfd.
	process int
	group   model.CgroupID
	// owner is the container's ID; empty before the first reading.
	owner   string
	metrics []metric
	// opened can only be read; nil where nobody else is to read the file.
	opened *os.File
	// part is what others may read of it; nil before it is shared. spread says that it has got other values since.
	part   *part
	spread bool
	// refusedSeen is what was counted already of what found no room in it.
	refusedSeen uint64
}

// metric is one of a file.
type metric struct {
	descriptor
	// at is its place in the sums of the owner; nil where there was no room for it.
	at   *sum
	last uint64
}

// openFile maps the file that is descriptor fd of a process. The bytes stay as long as they are mapped, whatever the
// process does: its size is sealed. keep keeps it open.
func openFile(procRoot string, pid, fd int, keep bool, mayTouch func(pages int) bool) (_ *file, err error) {
	process, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, fmt.Errorf("opening process %d: %w", pid, err)
	}
	defer func() {
		if err != nil {
			unix.Close(process)
		}
	}()
	// First only a path, which does nothing to what it is of: a descriptor may be of a device.
	path, err := unix.Open(filepath.Join(procRoot, strconv.Itoa(pid), "fd", strconv.Itoa(fd)), unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("opening descriptor %d of process %d: %w", fd, pid, err)
	}
	defer unix.Close(path)
	own := "/proc/self/fd/" + strconv.Itoa(path)
	if link, err := os.Readlink(own); err != nil || !strings.HasPrefix(link, fileLink) {
		return nil, fmt.Errorf("descriptor %d of process %d is %q: %w", fd, pid, link, errOther)
	}
	var stat unix.Stat_t
	if err := unix.Fstat(path, &stat); err != nil || stat.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, fmt.Errorf("descriptor %d of process %d: %w", fd, pid, errors.Join(errOther, err))
	}
	opened, err := unix.Open(own, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("opening descriptor %d of process %d to read: %w", fd, pid, err)
	}
	descriptor := os.NewFile(uintptr(opened), fileName)
	defer func() {
		if err != nil || !keep {
			descriptor.Close()
		}
	}()
	data, err := mapSealed(opened)
	if err != nil {
		return nil, fmt.Errorf("descriptor %d of process %d: %w", fd, pid, err)
	}
	l, err := newLayout(data, mayTouch)
	if err != nil {
		unix.Munmap(data)
		return nil, fmt.Errorf("descriptor %d of process %d: %w", fd, pid, err)
	}
	f := &file{layout: l, id: fileID{stat.Dev, stat.Ino}, pid: pid, process: process}
	if keep {
		f.opened = descriptor
	}
	return f, nil
}

// mapSealed maps a file read-only.
func mapSealed(fd int) ([]byte, error) {
	size, err := SealedSize(fd)
	if err != nil {
		return nil, err
	}
	return unix.Mmap(fd, 0, size, unix.PROT_READ, unix.MAP_SHARED)
}

// SealedSize is the size of a file with metrics in bytes, if it cannot change: a page that was mapped and is not there any
// more would end who reads it.
func SealedSize(fd int) (int, error) {
	const wanted = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return 0, fmt.Errorf("reading the seals: %w", errors.Join(errUnsealed, err))
	}
	if seals&wanted != wanted {
		return 0, fmt.Errorf("seals %#x: %w", seals, errUnsealed)
	}
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return 0, err
	}
	if stat.Size < headerBytes || stat.Size > maxFileBytes {
		return 0, fmt.Errorf("%d bytes: %w", stat.Size, errLayout)
	}
	return int(stat.Size), nil
}

func (f *file) close() {
	unix.Close(f.process)
	unix.Munmap(f.data)
	if f.opened != nil {
		f.opened.Close()
	}
}
