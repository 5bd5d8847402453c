package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"outsight/bench/traffic"
)

// process is a program that runs beside a measurement.
type process struct {
	command *exec.Cmd
	output  lockedBuffer
	ended   chan error
}

// lockedBuffer is what a process has written until now.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// Bytes are a copy.
func (b *lockedBuffer) Bytes() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return bytes.Clone(b.text.Bytes())
}

func (b *lockedBuffer) String() string { return string(b.Bytes()) }

func startProcess(name string, arguments ...string) (*process, error) {
	p := &process{command: exec.Command(name, arguments...), ended: make(chan error, 1)}
	p.command.Stdout, p.command.Stderr = &p.output, &p.output
	// A process group of its own: Ctrl-C is for bench, which then ends what it started.
	p.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.command.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	go func() { p.ended <- p.command.Wait() }()
	return p, nil
}

// stop interrupts the process and waits for its end.
func (p *process) stop() {
	p.command.Process.Signal(syscall.SIGINT)
	select {
	case <-p.ended:
	case <-time.After(15 * time.Second):
		p.command.Process.Kill()
		<-p.ended
	}
}

// await calls ready every 50 ms until it is true.
func (p *process) await(ctx context.Context, ready func() bool) error {
	deadline := time.After(30 * time.Second)
	for !ready() {
		select {
		case err := <-p.ended:
			p.ended <- err
			return fmt.Errorf("%s ended: %v: %s", p.command.Path, err, &p.output)
		case <-deadline:
			return fmt.Errorf("%s is not ready after 30 s: %s", p.command.Path, &p.output)
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
	return nil
}

// startServer starts a program that listens at a TCP address, and waits until it does.
func startServer(ctx context.Context, address, name string, arguments ...string) (*process, error) {
	p, err := startProcess(name, arguments...)
	if err != nil {
		return nil, err
	}
	err = p.await(ctx, func() bool {
		c, err := net.DialTimeout("tcp", address, time.Second)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	if err != nil {
		p.stop()
	}
	return p, err
}

// agent is a running agent.
type agent struct {
	*process
	directory string
	// address of its HTTP server.
	address string
}

// stop ends the agent and removes its socket's directory.
func (a *agent) stop() {
	a.process.stop()
	os.RemoveAll(a.directory)
}

// startAgent starts one of the two agents ("outsight agent" or "outsight-agent") and waits for its
// first snapshot.
func startAgent(ctx context.Context, o options, program string) (*agent, error) {
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	// A socket of its own: another agent may run on this host.
	directory, err := os.MkdirTemp("", "outsight-bench-")
	if err != nil {
		return nil, err
	}
	words := strings.Fields(program)
	p, err := startProcess(filepath.Join(o.binaries, words[0]), append(words[1:], "--listen", address, "--socket",
		filepath.Join(directory, "agent.sock"))...)
	if err != nil {
		os.RemoveAll(directory)
		return nil, err
	}
	a := &agent{p, directory, address}
	err = p.await(ctx, func() bool {
		response, err := http.Get("http://" + address + "/metrics")
		if err != nil {
			return false
		}
		defer response.Body.Close()
		var body bytes.Buffer
		body.ReadFrom(response.Body)
		return strings.Contains(body.String(), "\noutsight_build_info")
	})
	if err != nil {
		a.stop()
		return nil, err
	}
	return a, nil
}

func freeAddress() (string, error) {
	address, err := traffic.FreeAddress()
	return address.String(), err
}

// output runs a command and returns its standard output.
func output(ctx context.Context, name string, arguments ...string) ([]byte, error) {
	out, err := exec.CommandContext(ctx, name, arguments...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("%s %s: %w: %s", name, strings.Join(arguments, " "), err, exit.Stderr)
	}
	return out, err
}

func progress(format string, arguments ...any) { fmt.Fprintf(os.Stderr, format+"\n", arguments...) }
