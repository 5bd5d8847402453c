package bridge

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"outsight/internal/netns"
)

// process is one in a network namespace of its own, and that namespace.
func process(t *testing.T) (pid int, namespace *os.File) {
	t.Helper()
	c := exec.Command("sleep", "600")
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Process.Kill()
		c.Wait()
	})
	namespace, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", c.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { namespace.Close() })
	return c.Process.Pid, namespace
}

// interfaces are those of a namespace.
func interfaces(t *testing.T, namespace *os.File) string {
	t.Helper()
	var names []string
	err := netns.Inside(namespace, func() error {
		all, err := net.Interfaces()
		for _, i := range all {
			names = append(names, i.Name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(names, " ")
}

func TestProcessesTalkOverTheBridge(t *testing.T) {
	own, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	b, err := New()
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	one, server := process(t)
	other, client := process(t)
	for pid, address := range map[int]string{one: "10.208.0.1", other: "10.208.0.2"} {
		if err := b.Connect(pid, netip.MustParseAddr(address)); err != nil {
			t.Fatal(err)
		}
	}
	if now, err := os.Readlink("/proc/thread-self/ns/net"); err != nil || now != own {
		t.Errorf("the test is in %s, %v, and was in %s", now, err, own)
	}

	var listener net.Listener
	err = netns.Inside(server, func() error {
		listener, err = net.Listen("tcp", "10.208.0.1:0")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		if c, err := listener.Accept(); err == nil {
			fmt.Fprint(c, "from ", c.RemoteAddr().(*net.TCPAddr).IP)
			c.Close()
		}
	}()
	err = netns.Inside(client, func() error {
		c, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			return err
		}
		defer c.Close()
		said, err := io.ReadAll(c)
		if string(said) != "from 10.208.0.2" {
			t.Errorf("the server says %q, want its client's address", said)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}

	if had := interfaces(t, client); had != "lo eth0" {
		t.Errorf("a connected process has %q, want lo eth0", had)
	}
	if err := b.Disconnect(); err != nil {
		t.Fatal(err)
	}
	if has := interfaces(t, client); has != "lo" {
		t.Errorf("after Disconnect, a process has %q, want lo", has)
	}
	if err := b.Connect(other, netip.MustParseAddr("10.208.0.3")); err != nil {
		t.Errorf("connecting it again: %v", err)
	}
}

// TestDisconnectWithoutItsCable removes a cable, as the end of a process does, before Disconnect.
func TestDisconnectWithoutItsCable(t *testing.T) {
	b, err := New()
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	pid, namespace := process(t)
	if err := b.Connect(pid, netip.MustParseAddr("10.208.0.1")); err != nil {
		t.Fatal(err)
	}
	link, err := b.Handle.LinkByName(b.cables[0])
	if err != nil {
		t.Fatal(err)
	}
	namespace.Close()
	if err := b.Handle.LinkDel(link); err != nil {
		t.Fatal(err)
	}
	if err := b.Disconnect(); err != nil {
		t.Error(err)
	}
}
