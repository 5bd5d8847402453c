package container

import (
	"errors"
	"syscall"
	"unsafe"

	"outsight/internal/model"
)

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
	if ok && n.turn != f.turn && n.backoff.skips(f.turn, uint64(c.NetNS)) {
		n.turn = f.turn
		f.networks[c.NetNS] = n
	}
	if !ok || n.turn != f.turn {
		counters, err := f.interfaces(c, g)
		if err != nil {
			return g.keep(networkNumbers, err)
		}
		n.backoff.note(counters == n.counters)
		n.counters, n.turn = counters, f.turn
		if err := f.readStack(g.process.fd, c.NetNS, &n); err != nil && !errors.Is(err, errAbsent) && !gone(err) {
			return g.keep(networkNumbers, err)
		}
		f.networks[c.NetNS] = n
	}
	g.last.network, g.last.stack, g.last.has[stackNumbers] = n.counters, n.stack, n.read
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
			err = syscall.ESRCH // it went elsewhere; the Registry will find it
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
	text, err := f.buffer.read(fd, "net/dev")
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
