package container

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"unsafe"

	"outsight/internal/model"
	"outsight/internal/netns"
)

// addressLimit bounds the bytes read of a namespace's tables; addresses behind them are not
// seen. A host with a full routing table of the internet comes here.
const addressLimit = 4 << 20

// addresses lists the addresses in the network namespace of a process, loopback excluded, in
// order and each once.
func (p processes) addresses(pid int) ([]netip.Addr, error) {
	dir := p.path(pid) + "/net/"
	trie, err := readLimited(dir+"fib_trie", addressLimit)
	if err != nil {
		return nil, fmt.Errorf("reading the addresses of process %d: %w", pid, err)
	}
	list := parseTrie(trie)
	inet6, err := readLimited(dir+"if_inet6", addressLimit)
	if err != nil && !errors.Is(err, os.ErrNotExist) { // absent where IPv6 is switched off
		return nil, fmt.Errorf("reading the addresses of process %d: %w", pid, err)
	}
	more, err := parseInet6(inet6)
	if err != nil {
		return nil, fmt.Errorf("reading the addresses of process %d: %w", pid, err)
	}
	list = append(list, more...)
	slices.SortFunc(list, netip.Addr.Compare)
	return slices.Compact(list), nil
}

// parseTrie finds the own addresses in fib_trie: leaves of which the next line says "/32 host
// LOCAL". It knows no other lines, since the drawing of the tree has no grammar.
func parseTrie(text []byte) []netip.Addr {
	var list []netip.Addr
	var leaf netip.Addr
	for line := range bytes.Lines(text) {
		s := strings.TrimSpace(string(line))
		if rest, ok := strings.CutPrefix(s, "|-- "); ok {
			leaf, _ = netip.ParseAddr(rest)
			continue
		}
		if s == "/32 host LOCAL" && leaf.Is4() && !leaf.IsLoopback() {
			list = append(list, leaf)
		}
	}
	return list
}

// parseInet6 reads if_inet6: address, index, prefix length, scope, flags (in hex) and interface.
func parseInet6(text []byte) ([]netip.Addr, error) {
	var list []netip.Addr
	for line := range bytes.Lines(text) {
		words := bytes.Fields(line)
		if len(words) == 0 {
			continue
		}
		var raw [16]byte
		if len(words) < 6 || len(words[0]) != 32 {
			return nil, fmt.Errorf("line %q is not an address", line)
		}
		if _, err := hex.Decode(raw[:], words[0]); err != nil {
			return nil, fmt.Errorf("line %q is not an address: %w", line, err)
		}
		if a := netip.AddrFrom16(raw); !a.IsLoopback() && string(words[5]) != "lo" {
			list = append(list, a)
		}
	}
	return list, nil
}

// interfaceCounts is how many interfaces a namespace has, and how many of them have received something.
type interfaceCounts struct{ all, used int }

// parseNetDev adds up the interfaces in /proc/<pid>/net/dev, without loopback, and counts them. It does not allocate,
// unless it fails.
func parseNetDev(text []byte) (n model.NetworkCounters, counts interfaceCounts, err error) {
	l, err := newLines(text)
	if err != nil {
		return n, counts, err
	}
	for line, ok := l.next(); ok; line, ok = l.next() {
		at := bytes.IndexByte(line, ':')
		if at < 0 {
			if bytes.IndexByte(line, '|') < 0 {
				return model.NetworkCounters{}, interfaceCounts{}, fmt.Errorf("line %q is not an interface", line)
			}
			continue // one of two header lines
		}
		name, _ := word(line[:at])
		if string(name) == "lo" {
			continue
		}
		before := n.ReceivePackets
		if err := addInterface(&n, line[at+1:]); err != nil {
			return model.NetworkCounters{}, interfaceCounts{}, fmt.Errorf("line %q: %w", line, err)
		}
		counts.all++
		if n.ReceivePackets > before {
			counts.used++
		}
	}
	return n, counts, nil
}

// addInterface adds the columns bytes, packets, errs and drop, first received, then (after four
// more columns) transmitted.
func addInterface(n *model.NetworkCounters, rest []byte) error {
	columns := [...]*uint64{
		&n.ReceiveBytes, &n.ReceivePackets, &n.ReceiveErrors, &n.ReceiveDropped, nil, nil, nil, nil,
		&n.TransmitBytes, &n.TransmitPackets, &n.TransmitErrors, &n.TransmitDropped,
	}
	for _, column := range columns {
		var text []byte
		text, rest = word(rest)
		value, err := parseUint(text)
		if err != nil {
			return err
		}
		if column != nil {
			*column += value
		}
	}
	return nil
}

// parseNamespace reads the target of a namespace link: "net:[4026531840]".
func parseNamespace(target []byte) (uint32, error) {
	text, ok := bytes.CutPrefix(target, namespacePrefix)
	if !ok || !bytes.HasSuffix(text, namespaceSuffix) {
		return 0, fmt.Errorf("%q is not a network namespace", target)
	}
	n, err := parseUint(text[:len(text)-1])
	if err != nil || n > math.MaxUint32 {
		return 0, fmt.Errorf("%q is not a network namespace", target)
	}
	return uint32(n), nil
}

var namespacePrefix, namespaceSuffix = []byte("net:["), []byte("]")

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
	if ok && n.turn != f.turn && n.isQuiet(f, c.NetNS) {
		n.turn = f.turn
		f.networks[c.NetNS] = n
	}
	if !ok || n.turn != f.turn {
		counters, counts, err := f.interfaces(c, g)
		if err != nil {
			return g.keep(networkNumbers, err)
		}
		f.noteFarEnd(&n, g.process.fd, c.NetNS, counts.all)
		n.backoff.note(counters == n.counters)
		n.still = min(n.still+1, stillAfter)
		if counters != n.counters {
			n.still = 0
		}
		n.counters, n.turn = counters, f.turn
		err = errors.Join(f.readStack(g.process.fd, c.NetNS, &n), f.readForwarded(g.process.fd, c.NetNS, counts.used, &n))
		if err != nil && !errors.Is(err, errAbsent) && !gone(err) {
			return g.keep(networkNumbers, err)
		}
		f.networks[c.NetNS] = n
	}
	g.last.network, g.last.stack, g.last.has[stackNumbers] = n.counters, n.stack, n.read
	g.last.forwarded = n.forwarded
	return g.keep(networkNumbers, nil)
}

// isQuiet reports whether the namespace need not be looked at in this turn. What is read rarely, and what loopback does
// changes, has its turns whatever the interfaces do.
func (n *network) isQuiet(f *Files, netns uint32) bool {
	if (f.turn+uint64(netns))%stackEvery == 0 {
		return false
	}
	if n.farEnds && f.endsRead {
		return f.ends.Of(n.number) == n.farEnd
	}
	if f.traffic == nil {
		return n.backoff.skips(f.turn, uint64(netns))
	}
	// What was counted when it was sent may be on its way to the interface.
	if now := f.traffic[netns]; now != n.traffic {
		n.traffic, n.backoff, n.still = now, 0, 0
	}
	if n.still >= stillAfter {
		return true
	}
	return n.backoff.skipsBut(f.turn, uint64(netns), quietEvery)
}

// readFarEnds asks for the other ends of the containers' interfaces, before any of these is read: what is counted meanwhile
// is seen in the next turn. Where no interface has its other end here, it asks only when a namespace is looked at for that.
func (f *Files) readFarEnds() {
	if f.ends == nil && f.turn == 1 {
		f.ends, _ = netns.NewFarEnds() // without them interfaces are looked at as often as their traffic tells
	}
	f.endsRead = false
	if f.ends == nil {
		return
	}
	for namespace, n := range f.networks {
		if n.farEnds || n.looksForEnds(f.turn, namespace) {
			if f.turn%stackEvery == 0 {
				f.ends.ListAgain() // an interface may have been moved
			}
			f.endsRead = f.ends.Read() == nil
			return
		}
	}
}

// looksForEnds reports whether it is asked in this turn which number the namespace has: a namespace that ended may have had
// the same inode.
func (n *network) looksForEnds(turn uint64, namespace uint32) bool {
	return !n.askedEnds || (turn+uint64(namespace))%stackEvery == 0
}

// noteFarEnd takes note of what the other ends of a namespace's interfaces said when they were read. It is used only where
// each of them has one here.
func (f *Files) noteFarEnd(n *network, process int, namespace uint32, interfaces int) {
	before := n.farEnds
	if n.farEnds = false; !f.endsRead {
		return
	}
	switch looks := n.looksForEnds(f.turn, namespace); {
	case !looks && !before:
		return
	case looks:
		n.askedEnds = true
		fd, err := openat(process, nsNet)
		if err != nil {
			return
		}
		n.number, err = f.ends.NamespaceOf(fd)
		syscall.Close(fd)
		if err != nil {
			return
		}
	}
	n.farEnd = f.ends.Of(n.number)
	n.farEnds = n.farEnd.Links == interfaces && interfaces > 0
}

func (f *Files) interfaces(c *model.Container, g *groupFiles) (n model.NetworkCounters, counts interfaceCounts, err error) {
	if g.process.fd < 0 || g.process.pid != c.PID {
		f.closeFD(g.process.fd)
		g.process = process{fd: notOpened, pid: c.PID}
		if err := f.openProcess(c, g); err != nil {
			return n, counts, err
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
		return n, counts, err
	}
	fd, err := openat(g.process.fd, netDev)
	if err != nil {
		return n, counts, err
	}
	defer syscall.Close(fd)
	// The file is opened anew each time: held open it would keep the namespace alive.
	text, err := f.buffer.read(fd, "net/dev")
	if err != nil {
		return n, counts, err
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
