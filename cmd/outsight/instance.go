package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"outsight/internal/agent"
)

// runtimeDirectory is where what runs on this host has its sockets: agent.sock, and demo.sock of a demo.
var runtimeDirectory = filepath.Dir(agent.DefaultSocket)

// demoSocket is where a demo answers the command line: at a path that the commands find, unless another demo is there.
func demoSocket(private string) string {
	path := filepath.Join(runtimeDirectory, "demo.sock")
	if answers(path) {
		return filepath.Join(private, "agent.sock")
	}
	return path
}

// socketOf is the socket that a command asks: what --socket names; else that of an agent; else that of anything else
// which runs here.
func (f *watchFlags) socketOf() string {
	if f.flags != nil && f.flags.Changed("socket") || answers(f.socket) {
		return f.socket
	}
	if found := findInstance(filepath.Dir(f.socket)); found != "" {
		return found
	}
	return f.socket
}

// findInstance finds a socket in a directory at which a process answers that this user can trust, empty for none.
func findInstance(directory string) string {
	if !trusted(directory, 0o022) {
		return "" // anybody might have put a socket there
	}
	entries, err := os.ReadDir(directory)
	if err != nil {
		return ""
	}
	for _, e := range entries {
		path := filepath.Join(directory, e.Name())
		if e.Type()&os.ModeSocket != 0 && trusted(path, 0) && answers(path) {
			return path
		}
	}
	return ""
}

// trusted reports whether a path is root's or this user's own, and open to nobody else in these ways.
func trusted(path string, closed os.FileMode) bool {
	info, err := os.Lstat(path)
	if err != nil || info.Mode().Perm()&closed != 0 {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && (stat.Uid == 0 || int(stat.Uid) == os.Geteuid())
}

// answers reports whether a process listens at a socket. One that may not be asked counts: asking says why.
func answers(path string) bool {
	c, err := net.DialTimeout("unix", path, time.Second)
	if err != nil {
		return errors.Is(err, fs.ErrPermission)
	}
	c.Close()
	return true
}

// say writes what is being done for a person who waits at a terminal.
func say(errOut io.Writer, format string, args ...any) {
	if isTerminal(errOut) {
		fmt.Fprintf(errOut, format, args...)
	}
}
