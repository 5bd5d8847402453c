package container

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"syscall"

	"golang.org/x/sys/unix"

	"outsight/internal/model"
)

const (
	// filesEvery is how many readings apart the open files of a container's processes are counted, and limitsEvery how
	// many such looks apart the limits of a process are read again.
	filesEvery, limitsEvery = 20, 3
	// maxFileProcesses bounds the processes that are looked at, of one container, and of all in one reading. A container
	// that finds no room in a reading has its turn in a later one.
	maxFileProcesses = 256
)

// fileUse is how many files one process has open, and may have.
type fileUse struct{ count, limit uint64 }

// fileLimit is how many files a process may have open, and at which look that was read.
type fileLimit struct{ most, look uint64 }

// readOpenFiles finds the process of a container that is nearest to its limit of open files (RLIMIT_NOFILE). Containers
// take turns. Linux has the number as the size of the directory fd since 6.2; on older kernels there is none.
func (f *Files) readOpenFiles(c *model.Container, g *groupFiles) error {
	if due := (f.turn+uint64(c.Cgroup))%filesEvery == 1; !due && !g.filesDue {
		return nil
	}
	if g.filesDue = f.lookedFiles >= maxFileProcesses; g.filesDue {
		f.postponed++
		return nil
	}
	text, err := f.beginning(c, g, groupProcesses, maxFileProcesses*longestThread)
	if err == nil {
		f.threads, err = parseThreads(f.threads[:0], text, maxFileProcesses)
		f.lookedFiles += len(f.threads)
	}
	switch {
	case errors.Is(err, errAbsent) || gone(err):
		return nil
	case err != nil:
		return f.failed(c, groupProcesses, err)
	}
	before := g.fileLimits
	g.fileLimits = make(map[uint32]fileLimit, len(f.threads))
	g.looks++
	var nearest fileUse
	for _, process := range f.threads {
		count, ok := f.filesOf(int(process))
		if !ok {
			continue // it has ended, or the kernel does not say
		}
		limit, known := before[process]
		if !known || g.looks-limit.look >= limitsEvery {
			most, err := f.fileLimitOf(int(process))
			if err != nil {
				continue
			}
			limit = fileLimit{most, g.looks}
		}
		g.fileLimits[process] = limit
		if limit.most > 0 && (nearest.limit == 0 ||
			float64(count)/float64(limit.most) > float64(nearest.count)/float64(nearest.limit)) {
			nearest = fileUse{count, limit.most}
		}
	}
	g.last.files, g.last.has[fileNumbers] = nearest, nearest.limit > 0
	return nil
}

// filesOf is how many files a process has open.
func (f *Files) filesOf(process int) (count uint64, ok bool) {
	var s syscall.Stat_t
	if err := syscall.Stat(f.proc.path(process)+"/fd", &s); err != nil || s.Size <= 0 {
		return 0, false
	}
	return uint64(s.Size), true
}

// fileLimitOf is how many files a process may have open, 0 for any number. The kernel is asked without its text where the
// numbers of processes are this process's, and it may ask: of processes of its own user, or with CAP_SYS_RESOURCE.
func (f *Files) fileLimitOf(process int) (uint64, error) {
	if f.proc.ownNumbers {
		var limit unix.Rlimit
		switch err := unix.Prlimit(process, unix.RLIMIT_NOFILE, nil, &limit); {
		case err == nil && limit.Cur == unix.RLIM_INFINITY:
			return 0, nil
		case err == nil:
			return limit.Cur, nil
		case errors.Is(err, unix.ESRCH):
			return 0, err
		}
	}
	fd, err := syscall.Open(f.proc.path(process)+"/limits", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer syscall.Close(fd)
	text, err := f.buffer.read(fd, "limits")
	if err != nil {
		return 0, err
	}
	return parseFileLimit(text)
}

// parseFileLimit reads the soft limit of open files in /proc/<pid>/limits, 0 where there is none.
func parseFileLimit(text []byte) (uint64, error) {
	for line := range bytes.Lines(text) {
		rest, ok := bytes.CutPrefix(line, []byte("Max open files "))
		if !ok {
			continue
		}
		fields := bytes.Fields(rest)
		if len(fields) < 2 {
			return 0, fmt.Errorf("%q: %w", line, errNumber)
		}
		if string(fields[0]) == "unlimited" {
			return 0, nil
		}
		n, err := parseUint(fields[0])
		if err == nil && n > math.MaxInt64 {
			err = errNumber
		}
		return n, err
	}
	return 0, errAbsent
}
