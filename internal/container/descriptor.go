package container

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"syscall"

	"outsight/internal/model"
)

// fileKind is a control group file, whatever it is called on v1 and v2.
type fileKind int

const (
	memoryUsage fileKind = iota
	memoryStatFile
	memoryLimit // v2 only: memory.stat of v1 has it
	memoryEvents
	cpuStat
	diskBytes
	diskOperations // v1 only: io.stat has both
	pidsCurrent
	pidsMax
	groupThreads
	groupProcesses
	cpuQuota
	cpuPeriod   // v1 only: cpu.max has both
	cpuPressure // v2 only, as all of these
	memoryPressure
	ioPressure
	fileKinds
)

// source is where a kind of file lies on this host.
type source struct {
	// mount point of the hierarchy, "" where no hierarchy has the controller.
	mount string
	v2    bool
	// names in order: the first that exists is read.
	names      []string
	controller string
}

func sourcesOf(l *Layout) (all [fileKinds]source) {
	set := func(k fileKind, controller1, controller2 string, names1, names2 []string) {
		s := &all[k]
		s.controller = controller1
		if s.mount = l.v1[controller1]; s.mount != "" {
			s.names = names1
		} else if s.mount, s.v2 = l.controller(controller2); s.v2 {
			s.controller, s.names = controller2, names2
		}
		if len(s.names) == 0 {
			s.mount = ""
		}
	}
	one := func(name string) []string { return []string{name} }
	set(memoryUsage, "memory", "memory", one("memory.usage_in_bytes"), one("memory.current"))
	set(memoryStatFile, "memory", "memory", one("memory.stat"), one("memory.stat"))
	set(memoryLimit, "memory", "memory", nil, one("memory.max"))
	set(memoryEvents, "memory", "memory", one("memory.oom_control"), one("memory.events"))
	set(cpuStat, "cpu", "cpu", one("cpu.stat"), one("cpu.stat"))
	set(diskBytes, "blkio", "io",
		[]string{"blkio.throttle.io_service_bytes_recursive", "blkio.throttle.io_service_bytes"}, one("io.stat"))
	set(diskOperations, "blkio", "io",
		[]string{"blkio.throttle.io_serviced_recursive", "blkio.throttle.io_serviced"}, nil)
	set(pidsMax, "pids", "pids", one("pids.max"), one("pids.max"))
	set(groupProcesses, "pids", "pids", one("cgroup.procs"), one("cgroup.procs"))
	set(groupThreads, "pids", "pids", one("tasks"), one("cgroup.threads"))
	set(cpuQuota, "cpu", "cpu", one("cpu.cfs_quota_us"), one("cpu.max"))
	set(cpuPeriod, "cpu", "cpu", one("cpu.cfs_period_us"), nil)
	for k, name := range map[fileKind]string{cpuPressure: "cpu.pressure", memoryPressure: "memory.pressure",
		ioPressure: "io.pressure"} {
		all[k] = source{mount: l.unified, v2: true, names: one(name)}
	}
	set(pidsCurrent, "pids", "pids", one("pids.current"), one("pids.current"))
	return all
}

// openLimit is how many descriptors may be kept open: half of what the process may have, since
// the other half of the agent needs some too.
func openLimit() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 256
	}
	return int(min(limit.Cur/2, 1<<20))
}

// errAbsent is the answer where this host, or this group, does not have a file.
var errAbsent = errors.New("there is no such file")

// The states of a descriptor that is not open.
const (
	notOpened = -1
	absent    = -2
	// failed: could not be opened; a Lane tries again when it reads limits.
	failed = -3
)

func (g *groupFiles) reset() {
	for k := range g.fds {
		g.fds[k] = notOpened
	}
	g.process.fd = notOpened
}

func (f *Files) closeGroup(g *groupFiles) {
	f.unwatch(g)
	for _, fd := range g.fds {
		f.closeFD(fd)
	}
	f.closeFD(g.process.fd)
	g.reset()
}

func (f *Files) closeFD(fd int) {
	if fd >= 0 {
		syscall.Close(fd) // was opened for reading: nothing can be lost
		f.open--
	}
}

// text reads a file of a container into the buffer, which the next call uses again.
func (f *Files) text(c *model.Container, g *groupFiles, k fileKind) ([]byte, error) {
	return f.readKind(c, g, k, f.buffer.read)
}

// beginning reads the whole lines in the first most bytes of a file into the buffer.
func (f *Files) beginning(c *model.Container, g *groupFiles, k fileKind, most int) ([]byte, error) {
	return f.readKind(c, g, k, func(fd int, name string) ([]byte, error) {
		return f.buffer.readBeginning(fd, name, most)
	})
}

func (f *Files) readKind(c *model.Container, g *groupFiles, k fileKind,
	read func(fd int, name string) ([]byte, error)) ([]byte, error) {
	switch fd := g.fds[k]; {
	case fd == absent:
		return nil, errAbsent
	case fd >= 0:
		return read(fd, f.sources[k].names[0])
	}
	fd, err := f.sources[k].open(f.proc, c)
	if errors.Is(err, errAbsent) {
		g.fds[k] = absent
	}
	if err != nil {
		return nil, err
	}
	if f.open < f.maxOpen {
		g.fds[k] = fd
		f.open++
	} else {
		f.reopened++
		defer syscall.Close(fd)
	}
	return read(fd, f.sources[k].names[0])
}

// value reads a file that holds one number.
func (f *Files) value(c *model.Container, g *groupFiles, k fileKind) (uint64, error) {
	text, err := f.text(c, g, k)
	if err != nil {
		return 0, err
	}
	n, err := parseValue(text)
	if err != nil {
		return 0, f.failed(c, k, err)
	}
	return n, nil
}

// bufferLimit bounds the bytes of a control group file.
const bufferLimit = 1 << 20

// textBuffer is what files are read into; each reading uses it again.
type textBuffer []byte

// read reads a whole file from its beginning. The kernel makes the text anew at offset 0, and
// all of it in one call where the buffer is large enough.
func (b *textBuffer) read(fd int, name string) ([]byte, error) {
	for {
		n, err := syscall.Pread(fd, *b, 0)
		switch {
		case err == syscall.EINTR:
			continue
		case err != nil:
			return nil, fmt.Errorf("reading %s: %w", name, err)
		case n < len(*b):
			return (*b)[:n], nil
		case 2*n > bufferLimit:
			return nil, fmt.Errorf("reading %s: more than %d bytes", name, n)
		}
		*b = make(textBuffer, 2*n)
	}
}

// leastPage is the least size of a page.
const leastPage = 4096

// readBeginning reads the whole lines in the first most bytes.
func (b *textBuffer) readBeginning(fd int, name string, most int) ([]byte, error) {
	if len(*b) < most {
		*b = make(textBuffer, most)
	}
	for length := 0; ; {
		n, err := syscall.Pread(fd, (*b)[length:most], int64(length))
		switch {
		case err == syscall.EINTR:
			continue
		case err != nil:
			return nil, fmt.Errorf("reading %s: %w", name, err)
		}
		// The kernel hands over a page at a time (seq_file): less than half of one is the end of the file.
		if length += n; n < leastPage/2 || length == most {
			return (*b)[:bytes.LastIndexByte((*b)[:length], '\n')+1], nil
		}
	}
}

// open opens the first of the source's files that exists.
func (s *source) open(proc processes, c *model.Container) (int, error) {
	if s.mount == "" {
		return absent, errAbsent
	}
	directory := s.mount + c.CgroupPath
	if _, err := os.Stat(directory); err != nil {
		// Nearly always the path is the same in all hierarchies.
		subsystem := s.controller
		if s.v2 {
			subsystem = ""
		}
		path, perr := proc.cgroupPath(c.PID, subsystem)
		if c.PID == 0 || perr != nil || path == "/" {
			return notOpened, fmt.Errorf("opening the control group: %w", err)
		}
		directory = s.mount + path
	}
	for _, name := range s.names {
		fd, err := syscall.Open(directory+"/"+name, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
		if err == nil {
			return fd, nil
		}
		if err != syscall.ENOENT {
			return notOpened, fmt.Errorf("opening %q: %w", directory+"/"+name, err)
		}
	}
	return absent, errAbsent
}
