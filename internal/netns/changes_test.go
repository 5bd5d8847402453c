package netns

import (
	"os"
	"os/exec"
	"testing"
	"time"
)

func TestChanges(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("a network namespace needs root")
	}
	of, err := New()
	if err != nil {
		t.Fatal(err)
	}
	defer of.Close()
	err = Inside(of, func() error {
		c, err := WatchChanges()
		if err != nil {
			return err
		}
		defer c.Close()
		if c.Any() {
			t.Error("something has changed in a new namespace")
		}
		f := func(changed bool, command ...string) {
			t.Helper()
			if out, err := exec.Command("ip", command...).CombinedOutput(); err != nil {
				t.Errorf("ip %v: %v: %s", command, err, out)
			} else if got := c.Any(); got != changed {
				t.Errorf("ip %v: changed is %v", command, got)
			}
		}
		f(false, "link", "show")
		f(true, "link", "add", "one", "type", "veth", "peer", "name", "other")
		f(true, "link", "set", "one", "up")
		f(true, "link", "set", "other", "up")
		f(true, "address", "add", "192.0.2.1/24", "dev", "one")
		f(true, "route", "add", "default", "via", "192.0.2.2")
		f(true, "link", "delete", "one")
		// The kernel tells of the state of a link a little later than of the link.
		for begun := time.Now(); c.Any(); time.Sleep(10 * time.Millisecond) {
			if time.Since(begun) > time.Minute {
				t.Error("what has changed is told for ever")
				break
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
