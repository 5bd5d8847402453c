package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// group is a control group that looks like a container's.
type group struct{ id, dir string }

func newGroup(digit string) (group, error) {
	id := strings.Repeat(digit, 64)
	g := group{id, filepath.Join("/sys/fs/cgroup/docker", id)}
	if err := os.MkdirAll(filepath.Dir(g.dir), 0o755); err != nil {
		return g, err
	}
	if err := os.WriteFile("/sys/fs/cgroup/docker/cgroup.subtree_control", []byte("+cpu +memory +pids"), 0); err != nil {
		return g, err
	}
	return g, os.Mkdir(g.dir, 0o755)
}

func (g group) set(file, value string) error {
	return os.WriteFile(filepath.Join(g.dir, file), []byte(value), 0)
}

// number reads one line of a file with a key and a number in each.
func (g group) number(file, key string) (float64, error) {
	content, err := os.ReadFile(filepath.Join(g.dir, file))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(content)) {
		if value, found := strings.CutPrefix(line, key+" "); found {
			return strconv.ParseFloat(strings.TrimSpace(value), 64)
		}
	}
	return 0, fmt.Errorf("%s of group %.8s says nothing of %s", file, g.id, key)
}

// command is this program, started as a member of the group.
func (g group) command(arguments ...string) (*exec.Cmd, *os.File, error) {
	return g.commandAs("/init", arguments...)
}

func (g group) commandAs(program string, arguments ...string) (*exec.Cmd, *os.File, error) {
	dir, err := os.Open(g.dir)
	if err != nil {
		return nil, nil, err
	}
	command := exec.Command(program, arguments...)
	command.Stderr = os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	return command, dir, nil
}

// run runs a program in the group to its end.
func (g group) run(arguments ...string) error { return g.runAs("/init", arguments...) }

func (g group) runAs(program string, arguments ...string) error {
	command, dir, err := g.commandAs(program, arguments...)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := command.Run(); err != nil {
		return fmt.Errorf("%s: %w", strings.Join(arguments, " "), err)
	}
	return nil
}

// start runs a program in the group until stop is called, and waits for its first line.
func (g group) start(arguments ...string) (stop func() error, err error) {
	return g.startAs("/init", arguments...)
}

func (g group) startAs(program string, arguments ...string) (stop func() error, err error) {
	command, dir, err := g.commandAs(program, arguments...)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	in, err := command.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, err
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", strings.Join(arguments, " "), err), command.Wait())
	}
	return func() error { return errors.Join(in.Close(), command.Wait()) }, nil
}
