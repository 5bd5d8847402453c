package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(beside{m}, map[string]func(){"outsight": main})
}

// beside runs the tests that say so beside each other, on two processors, too: they wait for agents and servers most of the
// time.
type beside struct{ *testing.M }

func (m beside) Run() int {
	flag.Parse()
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	return m.M.Run()
}

// TestScripts types what a user could type. Besides testscript's own commands there are:
//
//	exits CODE COMMAND...   runs a command and wants its exit code
//	interrupts CODE COMMAND... runs a command, interrupts it when it asks the agent, and wants its exit
//	                        code and no complaint
//	unprivileged COMMAND... the same as user nobody, wanting code 1
//	free NAME               sets $NAME to a free address on loopback
//	taken NAME              sets $NAME to an address on which somebody listens
//	fetch URL FILE [TEXT]   waits until URL answers 200, with TEXT in it, and writes the answer to FILE
//	waitfor FILE            waits until FILE exists
//	terminate               sends SIGTERM to all that runs in the background
//	readonly DIR            makes DIR a file system that cannot be written
func TestScripts(t *testing.T) {
	if os.Getuid() != 0 {
		t.Fatal("kernel programs are loaded for real: run the tests as root")
	}
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:      "testdata",
		Deadline: time.Now().Add(10 * time.Minute),
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits, "interrupts": interrupts, "unprivileged": unprivileged, "free": free, "taken": taken,
			"fetch": fetch, "waitfor": waitFor, "readonly": readOnly, "terminate": terminate,
		},
	})
}

// patience bounds every wait. It is generous: only what is broken takes as long.
const patience = 3 * time.Minute

func exits(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	if code := exitCode(err); code != want {
		ts.Fatalf("exit code %d, want %d", code, want)
	}
}

func interrupts(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	path, err := exec.LookPath(args[1])
	ts.Check(err)
	command := exec.Command(path, args[2:]...)
	command.Dir = ts.MkAbs(".")
	var said bytes.Buffer
	command.Stdout, command.Stderr = &said, &said
	ts.Check(command.Start())
	ts.Defer(func() { command.Process.Kill() })
	// It has a socket once it asks the agent: by then it takes the signal.
	wait(ts, "it asks the agent", func() error {
		files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", command.Process.Pid))
		for _, file := range files {
			if target, err := os.Readlink(file); err == nil && strings.HasPrefix(target, "socket:") {
				return nil
			}
		}
		return errors.Join(err, errors.New("it has no socket"))
	})
	ts.Check(command.Process.Signal(os.Interrupt))
	if code := exitCode(command.Wait()); code != want {
		ts.Fatalf("exit code %d, want %d: %s", code, want, &said)
	}
	if strings.Contains(said.String(), "outsight:") {
		ts.Fatalf("it complains: %s", &said)
	}
}

func exitCode(err error) int {
	if err == nil {
		return 0
	}
	if exit, ok := err.(*exec.ExitError); ok {
		return exit.ExitCode()
	}
	return -1
}

// unprivileged writes what the command said to the file "said".
func unprivileged(ts *testscript.TestScript, _ bool, args []string) {
	// Others may not look into the directories of the test: the program goes where they may.
	dir, err := os.MkdirTemp("/tmp", "outsight-test-")
	ts.Check(err)
	ts.Defer(func() { os.RemoveAll(dir) })
	ts.Check(os.Chmod(dir, 0o755))
	program, err := exec.LookPath("/proc/self/exe")
	ts.Check(err)
	from, err := os.Open(program)
	ts.Check(err)
	defer from.Close()
	// The name decides that this test's own program acts as the command.
	to, err := os.OpenFile(filepath.Join(dir, args[0]), os.O_CREATE|os.O_WRONLY, 0o755)
	ts.Check(err)
	_, err = io.Copy(to, from)
	ts.Check(err)
	ts.Check(to.Chmod(0o755)) // whatever the umask
	ts.Check(to.Close())
	command := exec.Command(filepath.Join(dir, args[0]), args[1:]...)
	command.Dir = dir
	command.Env = []string{"PATH=/usr/bin:/bin"}
	command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	said, err := command.CombinedOutput()
	if code := exitCode(err); code != 1 {
		ts.Fatalf("exit code %d (%v), want 1: %s", code, err, said)
	}
	ts.Check(os.WriteFile(ts.MkAbs("said"), said, 0o644))
}

func free(ts *testscript.TestScript, _ bool, args []string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	ts.Setenv(args[0], l.Addr().String())
	ts.Check(l.Close())
}

func taken(ts *testscript.TestScript, _ bool, args []string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	ts.Setenv(args[0], l.Addr().String())
	ts.Defer(func() { l.Close() })
}

func fetch(ts *testscript.TestScript, _ bool, args []string) {
	wait(ts, args[0]+" answers", func() error {
		answer, err := http.Get(args[0])
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		if err != nil {
			return err
		}
		if answer.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s", answer.Status, body)
		}
		if len(args) > 2 && !strings.Contains(string(body), args[2]) {
			return fmt.Errorf("%s", body)
		}
		return os.WriteFile(ts.MkAbs(args[1]), body, 0o644)
	})
}

func waitFor(ts *testscript.TestScript, _ bool, args []string) {
	wait(ts, args[0]+" exists", func() error {
		_, err := os.Lstat(ts.MkAbs(args[0]))
		return err
	})
}

// wait fails at once when all that ran in the background has ended: then nobody is left to make it so.
func wait(ts *testscript.TestScript, what string, try func() error) {
	var err error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		nobody := allEnded(ts) // before it is tried for the last time
		if err = try(); err == nil {
			return
		}
		if nobody {
			ts.Fatalf("what ran in the background has ended before %s: %v", what, err)
		}
	}
	ts.Fatalf("waited in vain until %s: %v", what, err)
}

func allEnded(ts *testscript.TestScript) bool {
	background := ts.BackgroundCmds()
	return len(background) > 0 && !slices.ContainsFunc(background, func(c *exec.Cmd) bool {
		return !errors.Is(c.Process.Signal(syscall.Signal(0)), os.ErrProcessDone)
	})
}

func readOnly(ts *testscript.TestScript, _ bool, args []string) {
	dir := ts.MkAbs(args[0])
	ts.Check(os.MkdirAll(dir, 0o755))
	ts.Check(syscall.Mount("none", dir, "tmpfs", syscall.MS_RDONLY, ""))
	ts.Defer(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil && !strings.Contains(err.Error(), "not mounted") {
			ts.Logf("unmounting %s: %v", dir, err)
		}
	})
}

func terminate(ts *testscript.TestScript, _ bool, _ []string) {
	for _, command := range ts.BackgroundCmds() {
		ts.Check(command.Process.Signal(syscall.SIGTERM))
	}
}
