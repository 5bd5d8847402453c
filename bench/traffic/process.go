package traffic

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Server is a running server program.
type Server struct {
	Address netip.AddrPort
	command *exec.Cmd
	output  bytes.Buffer
	ended   chan error
	// clean is called after the end.
	clean func()
}

// start starts a server program and waits until it is ready. clean is called after its end.
func start(ctx context.Context, address netip.AddrPort, ready func() bool, clean func(), command *exec.Cmd) (*Server,
	error) {
	s := &Server{Address: address, command: command, ended: make(chan error, 1), clean: clean}
	command.Stdout, command.Stderr = &s.output, &s.output
	if command.SysProcAttr == nil {
		command.SysProcAttr = &syscall.SysProcAttr{}
	}
	// A process group of its own: Ctrl-C is for this program, which then ends what it started.
	command.SysProcAttr.Setpgid = true
	if err := command.Start(); err != nil {
		clean()
		return nil, fmt.Errorf("starting %s: %w", command.Path, err)
	}
	go func() { s.ended <- command.Wait() }()
	for deadline := time.Now().Add(30 * time.Second); ; {
		select {
		case err := <-s.ended:
			clean()
			return nil, fmt.Errorf("%s ended: %v: %s", command.Path, err, &s.output)
		case <-time.After(50 * time.Millisecond):
		}
		if ready() {
			return s, nil
		}
		if ctx.Err() != nil || time.Now().After(deadline) {
			s.Stop()
			return nil, errors.Join(ctx.Err(), fmt.Errorf("%s is not ready: %s", command.Path, &s.output))
		}
	}
}

// listens tells whether somebody listens, without a connection that would be counted.
func listens(address netip.AddrPort) func() bool {
	return func() bool {
		l, err := net.Listen("tcp", address.String())
		if err == nil {
			l.Close()
		}
		return errors.Is(err, syscall.EADDRINUSE)
	}
}

// Stop ends the server and waits for its end.
func (s *Server) Stop() {
	s.command.Process.Signal(syscall.SIGINT)
	select {
	case <-s.ended:
	case <-time.After(20 * time.Second):
		s.command.Process.Kill()
		<-s.ended
	}
	s.clean()
}

// withFiles is a command that may open as many files as this process is allowed to allow.
func withFiles(ctx context.Context, name string, arguments ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "sh", append([]string{"-c", `ulimit -n "$(ulimit -Hn)" && exec "$@"`, "sh", name},
		arguments...)...)
}

// output runs a command and returns its standard output.
func output(command *exec.Cmd) (string, error) {
	var stderr bytes.Buffer
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s%s", strings.Join(command.Args, " "), err, out, stderr.Bytes())
	}
	return string(out), nil
}

var handedOut = struct {
	sync.Mutex
	ports map[uint16]bool
}{ports: make(map[uint16]bool)}

// listen listens where no server of this process did before: what was counted there would be taken
// for the new one's.
func listen() (net.Listener, error) {
	handedOut.Lock()
	defer handedOut.Unlock()
	for {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		port := l.Addr().(*net.TCPAddr).AddrPort().Port()
		if !handedOut.ports[port] {
			handedOut.ports[port] = true
			return l, nil
		}
		l.Close()
	}
}

// FreeAddress is one of 127.0.0.1 that a server may listen at, and where none of this process did before; see listen.
// Its port is below those that the kernel gives to outgoing connections, of which one could take it before the server does.
func FreeAddress() (netip.AddrPort, error) {
	const least = 10_000
	content, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		return netip.AddrPort{}, err
	}
	outgoing, err := strconv.Atoi(strings.Fields(string(content))[0])
	if err != nil || outgoing <= least {
		return netip.AddrPort{}, fmt.Errorf("no port from %d on that no outgoing connection gets: their range is %q", least, content)
	}
	handedOut.Lock()
	defer handedOut.Unlock()
	for {
		address := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(least+rand.IntN(outgoing-least)))
		if handedOut.ports[address.Port()] {
			continue
		}
		l, err := net.Listen("tcp", address.String())
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err != nil {
			return netip.AddrPort{}, err
		}
		handedOut.ports[address.Port()] = true
		return address, l.Close()
	}
}
