package container

import (
	"bytes"
	"errors"
	"fmt"
	"syscall"
)

// forwardedEvery is how many readings apart it is looked whether a namespace forwards.
const forwardedEvery = 5

var (
	netSNMP  = append([]byte("net/snmp"), 0)
	netSNMP6 = append([]byte("net/snmp6"), 0)
)

// readForwarded reads how many packets the namespace has forwarded, where it is this namespace's turn and two of its
// interfaces have received something. It is called only where the counters of interfaces are read. The descriptor is that of
// a process in the namespace. That forwarding is allowed says nothing: Docker allows it to all of its containers.
func (f *Files) readForwarded(process int, netns uint32, used int, n *network) error {
	if used < 2 || n.looked && (f.turn+uint64(netns))%forwardedEvery != 0 {
		return nil
	}
	four, err := readNumbers(f, process, netSNMP, "net/snmp", parseForwarded)
	if err != nil {
		return err
	}
	six, err := readNumbers(f, process, netSNMP6, "net/snmp6", parseForwarded6)
	if err != nil && !errors.Is(err, syscall.ENOENT) { // absent where IPv6 is switched off
		return err
	}
	n.forwarded, n.looked = four+six, true
	return nil
}

// parseForwarded reads ForwDatagrams of /proc/<pid>/net/snmp, whose first two lines are names and numbers of IPv4.
func parseForwarded(text []byte) (uint64, error) {
	l, err := newLines(text)
	if err != nil {
		return 0, err
	}
	names, _ := l.next()
	values, _ := l.next()
	for len(names) > 0 {
		var name, value []byte
		name, names = word(names)
		value, values = word(values)
		if string(name) == "ForwDatagrams" {
			n, err := parseUint(value)
			if err != nil {
				return 0, fmt.Errorf("ForwDatagrams %q: %w", value, err)
			}
			return n, nil
		}
	}
	return 0, errAbsent
}

var forwarded6 = []byte("Ip6OutForwDatagrams")

// parseForwarded6 reads the same of /proc/<pid>/net/snmp6, which has a name and a number in each line.
func parseForwarded6(text []byte) (uint64, error) {
	l, err := newLines(text)
	if err != nil {
		return 0, err
	}
	for line, ok := l.next(); ok; line, ok = l.next() {
		rest, found := bytes.CutPrefix(line, forwarded6)
		if !found {
			continue
		}
		value, _ := word(bytes.TrimLeft(rest, " \t"))
		n, err := parseUint(value)
		if err != nil {
			return 0, fmt.Errorf("line %q: %w", line, err)
		}
		return n, nil
	}
	return 0, errAbsent
}
