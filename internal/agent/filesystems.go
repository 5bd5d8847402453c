package agent

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"outsight/internal/container"
	"outsight/internal/model"
)

const (
	// fileSystemsEvery is how many readings apart the space of the host's filesystems is asked for.
	fileSystemsEvery = 30
	// maxFileSystems bounds those that are told; the others are dropped and counted.
	maxFileSystems = 64
)

// localFileSystems are the types that answer at once: a network filesystem whose server is away never does.
var localFileSystems = []string{"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs", "tmpfs"}

// fileSystems reads how full the host's filesystems are.
type fileSystems struct {
	procRoot string
	turn     int
	last     []model.FileSystem
	dropped  uint64
}

// read is what was found at the last of every fileSystemsEvery readings.
func (f *fileSystems) read() ([]model.FileSystem, error) {
	f.turn++
	if f.turn%fileSystemsEvery != 1 {
		return f.last, nil
	}
	of, err := f.process()
	if err != nil {
		return f.last, err
	}
	text, err := os.ReadFile(of + "/mountinfo")
	if err != nil {
		return f.last, fmt.Errorf("reading the host's mounts: %w", err)
	}
	mounts := mountsOf(text)
	f.dropped = uint64(max(len(mounts)-maxFileSystems, 0))
	mounts = mounts[:min(len(mounts), maxFileSystems)]
	found := make([]model.FileSystem, 0, len(mounts))
	var errs []error
	for _, mount := range mounts {
		used, size, err := spaceOf(of+"/root", mount)
		switch {
		case errors.Is(err, unix.ENOENT):
		case err != nil:
			errs = append(errs, err)
		case size > 0:
			found = append(found, model.FileSystem{Mount: mount, UsedBytes: used, SizeBytes: size})
		}
	}
	f.last = found
	return found, errors.Join(errs...)
}

// process is the directory of one in the host's mount namespace. The first may be kept from being looked at, even by root;
// the agent's own is of the host as well then.
func (f *fileSystems) process() (string, error) {
	var errs []error
	for _, pid := range []int{1, os.Getpid()} {
		directory := f.procRoot + "/" + strconv.Itoa(pid)
		_, err := os.Stat(directory + "/root/.")
		if err == nil {
			return directory, nil
		}
		errs = append(errs, err)
	}
	return "", fmt.Errorf("looking for the host's mounts: %w", errors.Join(errs...))
}

func (f *fileSystems) drop() model.Drop {
	return model.Drop{Name: "host/filesystems", Count: f.dropped, Used: uint64(len(f.last)), Capacity: maxFileSystems}
}

// mountsOf are where the filesystems of a mountinfo file are mounted that can be written to, in order: of those that are
// mounted several times, the shortest path.
func mountsOf(mountinfo []byte) []string {
	shortest := map[string]string{} // by device
	for line := range bytes.Lines(mountinfo) {
		before, after, ok := strings.Cut(string(line), " - ")
		fields, of := strings.Fields(before), strings.Fields(after)
		if !ok || len(fields) < 6 || len(of) < 3 || !slices.Contains(localFileSystems, of[0]) {
			continue
		}
		device, path := fields[2], container.UnescapeMount(fields[4])
		if of[0] == "tmpfs" && strings.Count(path, "/") > 2 {
			continue // of a container, a pod or a user
		}
		if slices.Contains(strings.Split(fields[5], ","), "ro") || slices.Contains(strings.Split(of[2], ","), "ro") {
			continue
		}
		if known, ok := shortest[device]; !ok || len(path) < len(known) {
			shortest[device] = path
		}
	}
	paths := make([]string, 0, len(shortest))
	for _, path := range shortest {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	return paths
}

// spaceOf is how much of a filesystem is used, and how much may be, in bytes, without what is reserved for root.
func spaceOf(root, path string) (used, size uint64, err error) {
	at, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, 0, fmt.Errorf("opening the host's root: %w", err)
	}
	defer unix.Close(at)
	// A link that somebody put in the way must not lead to another filesystem.
	fd, err := unix.Openat2(at, strings.TrimPrefix(path+"/", "/")+".", &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_SYMLINKS})
	if err != nil {
		return 0, 0, fmt.Errorf("opening the mount point %q: %w", path, err)
	}
	defer unix.Close(fd)
	var s unix.Statfs_t
	if err := unix.Fstatfs(fd, &s); err != nil {
		return 0, 0, fmt.Errorf("reading the space of %q: %w", path, err)
	}
	block := uint64(s.Frsize)
	used = (s.Blocks - min(s.Blocks, s.Bfree)) * block
	return used, used + s.Bavail*block, nil
}
