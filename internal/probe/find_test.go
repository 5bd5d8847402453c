package probe

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"outsight/internal/container"
	"outsight/internal/model"
)

// dup is the pidfd of a place once more.
func dup(t *testing.T, p *Place) *os.File {
	t.Helper()
	e, err := p.awaitEnd()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.file.Close() })
	return e.file
}

// group makes the control group of a container for the test, with a process in a network namespace of its own.
func group(t *testing.T, layout container.Layout, id string) (end func()) {
	t.Helper()
	dir := filepath.Join(layout.MountPoint, "docker", id)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	c := exec.Command("sleep", "600")
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), fmt.Appendf(nil, "%d", c.Process.Pid), 0); err != nil {
		t.Fatal(err)
	}
	return func() {
		_ = c.Process.Kill()
		_ = c.Wait()
		for range 1000 { // the kernel takes a moment to find it empty
			if err := unix.Rmdir(dir); err == nil || errors.Is(err, unix.ENOENT) {
				return
			}
			time.Sleep(time.Millisecond)
		}
		t.Errorf("%s stays", dir)
	}
}

func id(number int) string { return fmt.Sprintf("%08x%s", 0xac000000+number, strings.Repeat("5e", 28)) }

// TestFind finds places by what people call them, while fifty containers a second appear and vanish beside.
func TestFind(t *testing.T) {
	t.Parallel()
	layout, err := container.Detect(container.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer group(t, layout, id(1))()
	defer group(t, layout, id(2))()
	stop, stopped := make(chan struct{}), make(chan int)
	go func() {
		made := 0
		for tick := time.NewTicker(20 * time.Millisecond); ; made++ {
			select {
			case <-stop:
				tick.Stop()
				stopped <- made
				return
			case <-tick.C:
				group(t, layout, id(100+made))()
			}
		}
	}()
	f, err := NewFinder(container.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	ctx := context.Background()
	find := func(name string) *Place {
		t.Helper()
		p, err := f.Find(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.Close() })
		return p
	}
	a, host := find(id(1)[:8]), find("host")
	if a.ID != id(1) || !a.Here() || !host.Here() || host.ID != "" || len(host.Addresses) == 0 {
		t.Errorf("%+v, %+v", a, host)
	}
	if p := find("127.0.0.1"); !p.Here() || p.Name != "host" || p.Addresses[0] != netip.MustParseAddr("127.0.0.1") {
		t.Errorf("%+v", p)
	}
	if p := find("192.0.2.77"); p.Here() || p.Name != "192.0.2.77" {
		t.Errorf("%+v", p)
	}
	if _, err := f.Find(ctx, id(1)[:4]); !errors.Is(err, ErrAmbiguous) {
		t.Errorf("the beginning of several: %v", err)
	}
	if _, err := f.Find(ctx, "nobody-is-called-so"); !errors.Is(err, ErrUnknown) {
		t.Errorf("an unknown name: %v", err)
	}
	// Inside its namespace, the container has only its own loopback.
	if err := a.inside(func() error { return exec.Command("ip", "link", "set", "lo", "up").Run() }); err != nil {
		t.Fatal(err)
	}
	r, err := Measure(ctx, a, a, Options{Duration: 2 * time.Second})
	if err != nil || r.STAMP.Lost() != 0 || r.STAMP.There.Sent != 200 {
		t.Errorf("%+v, %v", r, err)
	}
	close(stop)
	if made := <-stopped; made < 50 {
		t.Errorf("only %d containers appeared beside", made)
	}
}

// TestOpenOfARegistry: what an agent makes sockets in is a process in the container's own network namespace, and nothing
// else: not the host, not a container that has ended, nor one that nobody knows.
func TestOpenOfARegistry(t *testing.T) {
	layout, err := container.Detect(container.Options{})
	if err != nil {
		t.Fatal(err)
	}
	end := sync.OnceFunc(group(t, layout, id(3)))
	defer end()
	f, err := NewFinder(container.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	place, err := f.Find(t.Context(), id(3))
	if err != nil {
		t.Fatal(err)
	}
	defer place.Close()
	process, err := f.registry.Open(id(3))
	if err != nil {
		t.Fatal(err)
	}
	opened := At("opened", process)
	defer opened.Close()
	inode := func(p *Place) (text string) {
		if err := p.inside(func() (err error) { text, err = os.Readlink("/proc/thread-self/ns/net"); return err }); err != nil {
			t.Fatal(err)
		}
		return text
	}
	own, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	if got := inode(opened); got != inode(place) || got == own {
		t.Errorf("the namespace is %s, want %s, not the host's %s", got, inode(place), own)
	}
	if _, err := f.registry.Open(model.HostContainerID); !errors.Is(err, container.ErrNoNamespace) {
		t.Errorf("of the host: %v", err)
	}
	if _, err := f.registry.Open("nobody"); !errors.Is(err, container.ErrEnded) {
		t.Errorf("of a container that nobody knows: %v", err)
	}
	end()
	if _, err := f.registry.Open(id(3)); !errors.Is(err, container.ErrEnded) {
		t.Errorf("after its end: %v", err)
	}
}
