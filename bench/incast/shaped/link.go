package shaped

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"outsight/internal/netns"
)

// Addresses of documentation (RFC 5737), which are in the two namespaces alone.
const (
	controllerAddress = "198.51.100.1"
	hostsAddress      = "198.51.100.2"
)

// burst of tbf in bytes: what may leave at once after a pause.
const burst = 4 << 10

// link is a pair of namespaces with a shaped link between them.
type link struct {
	names [2]string // the controller's and the hosts'
	files [2]*os.File
}

// newLink makes a link of rate in bits per second, with a queue of so many bytes.
func newLink(rate float64, queue int) (l *link, err error) {
	l = &link{}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.close())
		}
	}()
	prefix := "incast" + strconv.Itoa(os.Getpid())
	for i, name := range []string{prefix + "c", prefix + "h"} {
		if err := run("ip", "netns", "add", name); err != nil {
			return l, err
		}
		l.names[i] = name
		if l.files[i], err = os.Open(filepath.Join("/run/netns", name)); err != nil {
			return l, err
		}
	}
	controller, hosts := l.names[0], l.names[1]
	for _, command := range [][]string{
		{"ip", "-n", controller, "link", "add", "v", "type", "veth", "peer", "name", "v", "netns", hosts},
		{"ip", "-n", controller, "addr", "add", controllerAddress + "/24", "dev", "v"},
		{"ip", "-n", hosts, "addr", "add", hostsAddress + "/24", "dev", "v"},
		{"ip", "-n", controller, "link", "set", "v", "up"},
		{"ip", "-n", hosts, "link", "set", "v", "up"},
		{"tc", "-n", hosts, "qdisc", "add", "dev", "v", "root", "tbf", "rate", fmt.Sprintf("%.0fbit", rate),
			"burst", strconv.Itoa(burst), "limit", strconv.Itoa(queue)},
	} {
		if err := run(command...); err != nil {
			return l, err
		}
	}
	return l, nil
}

// listen opens a UDP socket in a namespace, with buffers that are none of the bottlenecks.
func (l *link) listen(side int, address string) (c *net.UDPConn, err error) {
	inside := netns.Inside(l.files[side], func() error {
		c, err = net.ListenUDP("udp", &net.UDPAddr{IP: net.ParseIP(address)})
		return err
	})
	if inside != nil {
		return nil, fmt.Errorf("opening a socket in %s: %w", l.names[side], inside)
	}
	raw, err := c.SyscallConn()
	if err == nil {
		var first, second error
		err = raw.Control(func(fd uintptr) {
			first = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20)
			second = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 64<<20)
		})
		err = errors.Join(err, first, second)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("setting buffers: %w", err), c.Close())
	}
	return c, nil
}

// counted is what the shaped queue has counted.
type counted struct {
	Packets int   `json:"packets"`
	Bytes   int64 `json:"bytes"`
	Drops   int   `json:"drops"`
}

func (l *link) count() (counted, error) {
	out, err := exec.Command("tc", "-n", l.names[1], "-s", "-j", "qdisc", "show", "dev", "v").Output()
	if err != nil {
		return counted{}, fmt.Errorf("asking tc what was dropped: %w", err)
	}
	var all []counted
	if err := json.Unmarshal(out, &all); err != nil {
		return counted{}, fmt.Errorf("reading what tc says: %w", err)
	}
	if len(all) != 1 {
		return counted{}, fmt.Errorf("tc tells of %d queues, want one: %s", len(all), out)
	}
	return all[0], nil
}

func (l *link) close() error {
	var failed []error
	for i, name := range l.names {
		if l.files[i] != nil {
			l.files[i].Close()
		}
		if name != "" {
			failed = append(failed, run("ip", "netns", "del", name))
		}
	}
	return errors.Join(failed...)
}

func run(command ...string) error {
	if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w: %s", command, err, out)
	}
	return nil
}
