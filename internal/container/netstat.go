package container

import (
	"bytes"
	"fmt"
	"syscall"

	"outsight/internal/model"
)

// stackEvery is how many readings apart the counters of a namespace's TCP are read: the kernel
// writes some 250 numbers for the few of them that are used.
const stackEvery = 30

var netStat = append([]byte("net/netstat"), 0)

// readStack reads the counters of the namespace's TCP where it is this namespace's turn; the others
// keep theirs. The descriptor is that of a process in the namespace.
func (f *Files) readStack(process int, netns uint32, n *network) error {
	if n.read && (f.turn+uint64(netns))%stackEvery != 0 {
		return nil
	}
	stack, err := readNumbers(f, process, netStat, "net/netstat", parseNetStat)
	if err == nil {
		n.stack, n.read = stack, true
	}
	return err
}

// readNumbers reads a file of a process's directory in procfs. path ends with a 0 byte, and name is what errors call it.
func readNumbers[T any](f *Files, process int, path []byte, name string, parse func([]byte) (T, error)) (none T, err error) {
	fd, err := openat(process, path)
	if err != nil {
		return none, err
	}
	defer syscall.Close(fd)
	text, err := f.buffer.read(fd, name)
	if err != nil {
		return none, err
	}
	return parse(text)
}

// parseNetStat reads /proc/<pid>/net/netstat: pairs of lines, the first with the names of the
// numbers in the second. It does not allocate, unless it fails.
func parseNetStat(text []byte) (s model.TCPCounters, err error) {
	l, err := newLines(text)
	if err != nil {
		return s, err
	}
	for names, ok := l.next(); ok; names, ok = l.next() {
		values, ok := l.next()
		if !ok {
			return model.TCPCounters{}, errCut
		}
		group, names := word(names)
		same, values := word(values)
		if !bytes.Equal(group, same) {
			return model.TCPCounters{}, fmt.Errorf("%q is followed by %q", group, same)
		}
		if string(group) == "TcpExt:" {
			err := addStack(&s, names, values)
			return s, err
		}
	}
	return s, errAbsent
}

func addStack(s *model.TCPCounters, names, values []byte) error {
	for len(names) > 0 {
		var name, value []byte
		name, names = word(names)
		value, values = word(values)
		var field *uint64
		switch string(name) {
		case "TCPToZeroWindowAdv":
			field = &s.ZeroWindows
		case "TCPFromZeroWindowAdv":
			field = &s.ZeroWindowsEnded
		case "TCPZeroWindowDrop":
			field = &s.ZeroWindowDrops
		case "ListenOverflows":
			field = &s.ListenOverflows
		default:
			continue
		}
		n, err := parseUint(value)
		if err != nil {
			return fmt.Errorf("%s %q: %w", name, value, err)
		}
		*field = n
	}
	return nil
}
