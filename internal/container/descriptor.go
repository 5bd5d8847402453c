package container

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"unsafe"

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
)

func (g *groupFiles) reset() {
	for k := range g.fds {
		g.fds[k] = notOpened
	}
	g.process.fd = notOpened
}

func (f *Files) closeGroup(g *groupFiles) {
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
	switch fd := g.fds[k]; {
	case fd == absent:
		return nil, errAbsent
	case fd >= 0:
		return f.pread(fd, f.sources[k].names[0])
	}
	fd, err := f.openFile(c, k)
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
	return f.pread(fd, f.sources[k].names[0])
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

// pread reads a whole file from its beginning. The kernel makes the text anew at offset 0, and
// all of it in one call where the buffer is large enough.
func (f *Files) pread(fd int, name string) ([]byte, error) {
	for {
		n, err := syscall.Pread(fd, f.buffer, 0)
		switch {
		case err == syscall.EINTR:
			continue
		case err != nil:
			return nil, fmt.Errorf("reading %s: %w", name, err)
		case n < len(f.buffer):
			return f.buffer[:n], nil
		case 2*n > bufferLimit:
			return nil, fmt.Errorf("reading %s: more than %d bytes", name, n)
		}
		f.buffer = make([]byte, 2*n)
	}
}

// openFile opens the first of the source's files that exists.
func (f *Files) openFile(c *model.Container, k fileKind) (int, error) {
	s := &f.sources[k]
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
		path, perr := f.proc.cgroupPath(c.PID, subsystem)
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

// process is a process by whose directory in /proc a network namespace is read. The descriptor
// means this process for good: when the pid is used again it leads nowhere.
type process struct {
	fd, pid int
}

// Names for the system calls, which end with a zero byte.
var (
	nsNet  = append([]byte("ns/net"), 0)
	netDev = append([]byte("net/dev"), 0)
)

// readNetwork reads the interfaces of a container's namespace, once in a turn for all
// containers that share it. On the host's namespace the numbers would be the whole host's.
func (f *Files) readNetwork(c *model.Container, g *groupFiles) error {
	if c.NetNS == 0 || c.NetNS == f.proc.hostNetNS {
		return g.keep(networkNumbers, errAbsent)
	}
	n, ok := f.networks[c.NetNS]
	if !ok || n.turn != f.turn {
		counters, err := f.interfaces(c, g)
		if err != nil {
			return g.keep(networkNumbers, err)
		}
		n = network{counters, f.turn}
		f.networks[c.NetNS] = n
	}
	g.last.network = n.counters
	return g.keep(networkNumbers, nil)
}

func (f *Files) interfaces(c *model.Container, g *groupFiles) (n model.NetworkCounters, err error) {
	if g.process.fd < 0 || g.process.pid != c.PID {
		f.closeFD(g.process.fd)
		g.process = process{fd: notOpened, pid: c.PID}
		if err := f.openProcess(c, g); err != nil {
			return n, err
		}
	}
	size, err := readlinkat(g.process.fd, nsNet, f.buffer)
	if err == nil {
		var netns uint32
		if netns, err = parseNamespace(f.buffer[:size]); err == nil && netns != c.NetNS {
			err = syscall.ESRCH // it went elsewhere; the Registry will tell
		}
	}
	if err != nil {
		return n, err
	}
	fd, err := openat(g.process.fd, netDev)
	if err != nil {
		return n, err
	}
	defer syscall.Close(fd)
	// The file is opened anew each time: held open it would keep the namespace alive.
	text, err := f.pread(fd, "net/dev")
	if err != nil {
		return n, err
	}
	return parseNetDev(text)
}

func (f *Files) openProcess(c *model.Container, g *groupFiles) error {
	fd, err := syscall.Open(f.proc.path(c.PID), oPath|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	// Only now the pid cannot come to mean another process between the check and the use.
	if err := f.proc.trust(c.PID, c.CgroupPath); err != nil {
		syscall.Close(fd)
		return syscall.ESRCH
	}
	g.process.fd = fd
	f.open++
	return nil
}

const oPath = 0x200000 // O_PATH, the same on all architectures but alpha, hppa and sparc

// readlinkat and openat take a name that ends with a zero byte. The functions of package
// syscall would copy the name to the heap at every call.
func readlinkat(fd int, name, into []byte) (int, error) {
	n, _, errno := syscall.Syscall6(syscall.SYS_READLINKAT, uintptr(fd), uintptr(unsafe.Pointer(&name[0])),
		uintptr(unsafe.Pointer(&into[0])), uintptr(len(into)), 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

func openat(fd int, name []byte) (int, error) {
	n, _, errno := syscall.Syscall6(syscall.SYS_OPENAT, uintptr(fd), uintptr(unsafe.Pointer(&name[0])),
		syscall.O_RDONLY|syscall.O_CLOEXEC, 0, 0, 0)
	if errno != 0 {
		return notOpened, errno
	}
	return int(n), nil
}
