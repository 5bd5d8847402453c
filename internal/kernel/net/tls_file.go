package net

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// binaryID identifies a binary. The device is no part of it: one layer of a container image has
// another one in each container, and would be probed once for each. The time of the last change of the
// inode is, because no program can set it: else a container could pass a file off as one of another container.
type binaryID struct {
	inode             uint64
	size              int64
	modified, changed unix.Timespec
}

// binaryFile is a regular file that is open for reading.
type binaryFile struct {
	*os.File
	id binaryID
}

// path leads to the open file, whatever its name leads to by now.
func (f *binaryFile) path() string { return selfFD(int(f.Fd())) }

func selfFD(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }

// errNotRegular says that a name leads to a device, a pipe or a directory.
var errNotRegular = errors.New("it is not a regular file")

// openRegular opens the file that an O_PATH descriptor holds, and closes the descriptor. Opening a device or a pipe may
// have effects, so the type is looked at before.
func openRegular(pinned int) (*binaryFile, error) {
	defer unix.Close(pinned)
	var before, after unix.Stat_t
	if err := unix.Fstat(pinned, &before); err != nil {
		return nil, err
	}
	if before.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, errNotRegular
	}
	fd, err := unix.Open(selfFD(pinned), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), selfFD(fd))
	if err := unix.Fstat(fd, &after); err != nil {
		f.Close()
		return nil, err
	}
	if before.Dev != after.Dev || before.Ino != after.Ino {
		f.Close()
		return nil, fmt.Errorf("inode %d was opened, want %d", after.Ino, before.Ino)
	}
	return &binaryFile{f, binaryID{after.Ino, after.Size, after.Mtim, after.Ctim}}, nil
}

// openExecutable opens the program of a process: the link in /proc leads to the file itself, not to its name.
func openExecutable(process string) (*binaryFile, error) {
	pinned, err := unix.Open(process+"/exe", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return openRegular(pinned)
}

// mapping is a file that a process executes.
type mapping struct {
	begin, end uint64
	inode      uint64
	path       string
}

// openMapped opens a file that a process has mapped. The links in map_files lead to the file itself. They need
// CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE; without, the name is followed within the process's root and has to lead
// to the same inode.
func openMapped(process string, m mapping) (*binaryFile, error) {
	pinned, err := unix.Open(fmt.Sprintf("%s/map_files/%x-%x", process, m.begin, m.end), unix.O_PATH|unix.O_CLOEXEC, 0)
	if err == nil {
		return openRegular(pinned)
	}
	if !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EACCES) {
		return nil, err
	}
	f, err := openInRoot(process+"/root", m.path)
	if err != nil {
		return nil, err
	}
	if f.id.inode != m.inode {
		f.Close()
		return nil, fmt.Errorf("inode %d is at its path, want %d", f.id.inode, m.inode)
	}
	return f, nil
}

// openInRoot opens a regular file by its path in a root directory, which no symbolic link leaves.
func openInRoot(root, name string) (*binaryFile, error) {
	dir, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(dir)
	pinned, err := unix.Openat2(dir, name, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS})
	if err != nil {
		return nil, err
	}
	return openRegular(pinned)
}

const (
	// maxTLSMaps bounds the bytes that are read of a process's mappings: 65,530 lines, as many as a process may have by
	// default, with an ordinary path each.
	maxTLSMaps = 8 << 20
	// maxTLSLibraries bounds the libraries of a process that are looked at.
	maxTLSLibraries = 16
	// maxTLSMappings bounds how often a process may map a file that is probed: the kernel goes through all mappings of a
	// file, for each probe, when it takes probes away.
	maxTLSMappings = 256
)

// mappings is what is to know of a process's memory.
type mappings struct {
	openSSL []mapping
	// often are the files that it executes in more than maxTLSMappings mappings, with one of these.
	often []mapping
	// bytes were read. If cut, there were more; if crowded, there were more libraries.
	bytes        int
	cut, crowded bool
}

// maxMappingLine holds any line: a path takes 4 KiB, and four times that if all of it is escaped.
const maxMappingLine = 32 << 10

// readMappings reads a process's file of mappings, a line at a time.
func readMappings(lines *bufio.Reader) (mappings, error) {
	var found mappings
	count := make(map[uint64]int)
	for {
		line, err := lines.ReadSlice('\n')
		found.bytes += len(line)
		if found.bytes > maxTLSMaps {
			found.cut = true
			return found, nil
		}
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return found, err
		}
		if m, ok := parseMapping(line); ok {
			found.add(m, count)
		}
	}
}

func (f *mappings) add(m mapping, count map[uint64]int) {
	count[m.inode]++
	if count[m.inode] == maxTLSMappings+1 {
		f.often = append(f.often, m)
	}
	if !strings.HasPrefix(path.Base(m.path), "libssl.so") {
		return
	}
	for _, known := range f.openSSL {
		if known.inode == m.inode && known.path == m.path {
			return
		}
	}
	if len(f.openSSL) == maxTLSLibraries {
		f.crowded = true
		return
	}
	f.openSSL = append(f.openSSL, m)
}

// parseMapping reads a line of a file that is executed: "begin-end r-xp offset device inode path".
func parseMapping(line []byte) (mapping, bool) {
	var m mapping
	head, rest, _ := bytes.Cut(line, []byte(" "))
	if len(rest) < 4 || rest[2] != 'x' {
		return m, false
	}
	at := bytes.IndexByte(rest, '/')
	if at < 0 {
		return m, false
	}
	fields := bytes.Fields(rest[:at])
	begin, end, ok := strings.Cut(string(head), "-")
	if len(fields) != 4 || !ok {
		return m, false
	}
	var errs [3]error
	m.begin, errs[0] = strconv.ParseUint(begin, 16, 64)
	m.end, errs[1] = strconv.ParseUint(end, 16, 64)
	m.inode, errs[2] = strconv.ParseUint(string(fields[3]), 10, 64)
	m.path = strings.TrimSuffix(string(rest[at:]), "\n")
	return m, errors.Join(errs[:]...) == nil
}

// containerOf is the name under which a process's share is counted: the first id of a container in its control groups,
// which it cannot leave, or all of them.
func containerOf(cgroups string) string {
	const length = 64
	digits := 0
	for i := range len(cgroups) {
		c := cgroups[i]
		if c >= '0' && c <= '9' || c >= 'a' && c <= 'f' {
			if digits++; digits == length {
				return cgroups[i+1-length : i+1]
			}
			continue
		}
		digits = 0
	}
	return cgroups
}

// readContainer reads whose a process is.
func readContainer(process string) (string, error) {
	f, err := os.Open(process + "/cgroup")
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 16<<10))
	return containerOf(string(text)), err
}
