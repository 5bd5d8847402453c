package main

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/cobra"
)

// Commands ask what runs here, if it is root's or the user's own, and what --socket names in any case.
func TestInstancesAreFound(t *testing.T) {
	directory := t.TempDir()
	path := func(name string) string { return filepath.Join(directory, name) }
	listen := func(name string) net.Listener {
		t.Helper()
		l, err := net.Listen("unix", path(name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		return l
	}
	f := func(want string, args ...string) {
		t.Helper()
		var flags watchFlags
		c := &cobra.Command{}
		flags.add(c)
		flags.socket = path("agent.sock")
		if err := c.ParseFlags(args); err != nil {
			t.Fatal(err)
		}
		if got := flags.socketOf(); got != want {
			t.Errorf("with %q: got %q, want %q", args, got, want)
		}
	}
	f(path("agent.sock"))
	if err := os.WriteFile(path("a.sock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	dead := listen("b.sock").(*net.UnixListener)
	dead.SetUnlinkOnClose(false)
	dead.Close()
	f(path("agent.sock"))
	listen("demo.sock")
	f(path("demo.sock"))
	f("other.sock", "--socket", "other.sock")

	if err := os.Lchown(path("demo.sock"), 65534, 65534); err != nil {
		t.Fatal(err)
	}
	f(path("agent.sock")) // somebody else's
	if err := os.Lchown(path("demo.sock"), 0, 0); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(directory, 0o777); err != nil {
		t.Fatal(err)
	}
	f(path("agent.sock")) // anybody's directory
	if err := os.Chmod(directory, 0o755); err != nil {
		t.Fatal(err)
	}
	listen("agent.sock")
	f(path("agent.sock"))
}
