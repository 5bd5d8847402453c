package container

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// userHZ is the unit of times in /proc/<pid>/stat, the same on all architectures that Linux
// runs containers on.
const userHZ = 100

// procLimit bounds the bytes read of a file about one process.
const procLimit = 64 << 10

var errMoved = errors.New("the process is in another control group")

// processes reads /proc.
type processes struct {
	root string
	// subsystem of the hierarchy that container paths are of, as Layout.Subsystem.
	subsystem string
	boot      time.Time
	// hostPID is a process in the host's network namespace, hostNetNS.
	hostPID   int
	hostNetNS uint32
	// ownNumbers: processes have the numbers there that they have for this process.
	ownNumbers bool
}

// newProcesses reads what does not change: the time of the boot and the host's network
// namespace. Both stay zero where they cannot be read.
func newProcesses(root, subsystem string) processes {
	p := processes{root: root, subsystem: subsystem}
	p.boot, _ = p.bootTime()
	self, _ := os.Readlink(root + "/self")
	p.ownNumbers = self == strconv.Itoa(os.Getpid())
	// The first process may be kept from being looked at, even by root. This one is of the
	// host as well then, since it sees the host's processes.
	for _, p.hostPID = range []int{1, os.Getpid()} {
		var err error
		if p.hostNetNS, err = p.netns(p.hostPID); err == nil {
			break
		}
	}
	return p
}

func (p processes) path(pid int) string { return p.root + "/" + strconv.Itoa(pid) }

func (p processes) bootTime() (time.Time, error) {
	file, err := os.Open(p.root + "/stat")
	if err != nil {
		return time.Time{}, fmt.Errorf("reading the time of the boot: %w", err)
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "btime "); ok {
			seconds, err := strconv.ParseInt(text, 10, 64)
			return time.Unix(seconds, 0), err
		}
	}
	return time.Time{}, errors.New("reading the time of the boot: no line btime")
}

// started is when a process began, to 10 ms.
func (p processes) started(pid int) (time.Time, error) {
	text, err := readLimited(p.path(pid)+"/stat", procLimit)
	if err != nil {
		return time.Time{}, err
	}
	ticks, err := parseStartTicks(text)
	if err != nil || p.boot.IsZero() {
		return time.Time{}, fmt.Errorf("reading the start of process %d: %w", pid, err)
	}
	return p.boot.Add(time.Duration(ticks) * (time.Second / userHZ)), nil
}

// parseStartTicks reads the 22nd field of /proc/<pid>/stat. The second is a name in parentheses
// that may hold anything.
func parseStartTicks(text []byte) (uint64, error) {
	rest := text[bytes.LastIndexByte(text, ')')+1:]
	fields := bytes.Fields(rest)
	if len(fields) < 20 {
		return 0, fmt.Errorf("%q has no start time", text)
	}
	ticks, err := parseUint(fields[19])
	if err == nil && ticks > 1<<50 {
		err = errNumber
	}
	return ticks, err
}

func (p processes) netns(pid int) (uint32, error) {
	target, err := os.Readlink(p.path(pid) + "/ns/net")
	if err != nil {
		return 0, err
	}
	return parseNamespace([]byte(target))
}

// trust makes sure that a process is in the container's control group or one below it. Pids are
// used again, and a pid that a runtime reported may be of another process by now.
func (p processes) trust(pid int, path string) error {
	own, err := p.cgroupPath(pid, p.subsystem)
	if err != nil {
		return err
	}
	if rest, ok := strings.CutPrefix(own, path); !ok || rest != "" && rest[0] != '/' {
		return fmt.Errorf("process %d is in %q, not in %q: %w", pid, own, path, errMoved)
	}
	return nil
}

// cgroupPath is the path of a process in a controller's hierarchy, "" for the v2 one.
func (p processes) cgroupPath(pid int, subsystem string) (string, error) {
	text, err := readLimited(p.path(pid)+"/cgroup", procLimit)
	if err != nil {
		return "", fmt.Errorf("reading the control group of process %d: %w", pid, err)
	}
	path, err := parseProcCgroup(text, subsystem)
	if err != nil {
		return "", fmt.Errorf("reading the control group of process %d: %w", pid, err)
	}
	return path, nil
}

// parseProcCgroup finds the path of a controller's hierarchy ("" for the v2 one) in
// /proc/<pid>/cgroup: lines of id, controllers and path.
func parseProcCgroup(text []byte, subsystem string) (string, error) {
	for line := range bytes.Lines(text) {
		id, rest, ok := strings.Cut(strings.TrimSuffix(string(line), "\n"), ":")
		list, path, ok2 := strings.Cut(rest, ":")
		if !ok || !ok2 {
			return "", fmt.Errorf("line %q is not of the form of a control group", line)
		}
		if subsystem == "" && id == "0" && list == "" {
			return path, nil
		}
		if subsystem != "" && slices.Contains(strings.Split(list, ","), subsystem) {
			return path, nil
		}
	}
	return "", fmt.Errorf("no hierarchy %q", subsystem)
}

// firstPID is the first process of a group, or where it has none itself, of the groups below
// it. It is 0 where there is none, or it is not in the first of very many groups.
func firstPID(directory string, depth int) (int, error) {
	left := maxProcsGroups
	return firstPIDOf(directory, depth, &left)
}

// maxProcsGroups bounds the groups of a container that are looked into for a process.
const maxProcsGroups = 256

func firstPIDOf(directory string, depth int, left *int) (int, error) {
	if *left--; *left < 0 {
		return 0, nil
	}
	text, err := readLimited(directory+"/cgroup.procs", procLimit)
	if err != nil {
		return 0, err
	}
	line, _, _ := bytes.Cut(text, []byte("\n"))
	if len(line) > 0 {
		pid, err := strconv.Atoi(string(line))
		if err != nil {
			return 0, fmt.Errorf("reading the processes of %q: %w", directory, err)
		}
		return pid, nil
	}
	entries, err := firstEntries(directory, maxProcsGroups)
	if err != nil {
		return 0, err
	}
	for _, entry := range entries {
		if !entry.IsDir() || depth == 0 {
			continue
		}
		if pid, err := firstPIDOf(filepath.Join(directory, entry.Name()), depth-1, left); pid != 0 && err == nil {
			return pid, nil
		}
	}
	return 0, nil
}

// firstEntries reads a part of a directory. A control group has some dozens of files besides its groups.
func firstEntries(directory string, groups int) ([]os.DirEntry, error) {
	d, err := os.Open(directory)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	entries, err := d.ReadDir(groups + 128)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return entries, err
}

// readLimited reads the beginning of a file, up to limit. It is for files that the kernel makes: package os would have
// the runtime wait for them, which takes as long as to read most of them.
func readLimited(name string, limit int) ([]byte, error) {
	fd, err := syscall.Open(name, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	defer syscall.Close(fd)
	text := make([]byte, 0, 4<<10)
	for len(text) < limit {
		text = slices.Grow(text, 1)
		n, err := syscall.Read(fd, text[len(text):min(cap(text), limit)])
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return nil, &os.PathError{Op: "read", Path: name, Err: err}
		case n == 0:
			return text, nil
		default:
			text = text[:len(text)+n]
		}
	}
	return text, nil
}
