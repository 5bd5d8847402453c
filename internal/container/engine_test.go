package container

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"outsight/internal/model"
)

const testImage = "osct-busybox:test"

// engine is a Docker daemon: the machine's, or one that a test started.
type engine struct{ socket string }

func (e engine) command(arguments ...string) *exec.Cmd {
	return exec.Command("docker", append([]string{"--host", "unix://" + e.socket}, arguments...)...)
}

func (e engine) run(t testing.TB, arguments ...string) string {
	t.Helper()
	var stderr bytes.Buffer
	cmd := e.command(arguments...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("docker %v: %v: %s", arguments, err, stderr.Bytes())
	}
	return strings.TrimSpace(string(out))
}

// image imports busybox as an image with nothing else in it.
func (e engine) image(t testing.TB) {
	t.Helper()
	if e.command("image", "inspect", testImage).Run() == nil {
		return
	}
	root := t.TempDir()
	text, err := os.ReadFile("/bin/busybox")
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(root, "bin/busybox"), string(text))
	if err := os.Chmod(filepath.Join(root, "bin/busybox"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"sh", "sleep", "dd", "cat"} {
		if err := os.Symlink("busybox", filepath.Join(root, "bin", name)); err != nil {
			t.Fatal(err)
		}
	}
	archive := filepath.Join(t.TempDir(), "image.tar")
	if out, err := exec.Command("tar", "-C", root, "-cf", archive, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	e.run(t, "import", archive, testImage)
}

// start runs a container until the test ends, and returns its id.
func (e engine) start(t testing.TB, name string, arguments ...string) string {
	t.Helper()
	e.command("rm", "--force", name).Run() // of a test that was killed
	id := e.run(t, append([]string{"create", "--name", name}, arguments...)...)
	t.Cleanup(func() { e.command("rm", "--force", id).Run() })
	e.run(t, "start", id)
	return id
}

func hostEngine(t testing.TB) engine {
	t.Helper()
	e := engine{"/var/run/docker.sock"}
	e.image(t)
	return e
}

// runRegistry starts a Registry, and walks the hierarchy all the time instead of the kernel's
// events.
func runRegistry(t *testing.T, o Options) *Registry {
	t.Helper()
	r := newRegistry(t, hostLayout(t), o)
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan struct{}, 2)
	t.Cleanup(func() {
		cancel()
		<-stopped
		<-stopped
	})
	go func() {
		r.Run(ctx)
		stopped <- struct{}{}
	}()
	go func() {
		for ctx.Err() == nil {
			if err := r.Resync(); err != nil {
				t.Error(err)
			}
			time.Sleep(5 * time.Millisecond)
		}
		stopped <- struct{}{}
	}()
	return r
}

// awaitContainer waits until a container is as it should be.
func awaitContainer(t *testing.T, r *Registry, id string, check func(*model.Container) error) *model.Container {
	t.Helper()
	var c *model.Container
	eventually(t, func() error {
		if c = find(r.Containers(), id); c == nil {
			return fmt.Errorf("%s does not run", id)
		}
		if err := check(c); err != nil {
			return fmt.Errorf("%+v: %w", c, err)
		}
		return nil
	})
	return c
}

func isNamed(name string) func(*model.Container) error {
	return func(c *model.Container) error {
		if c.Name != name {
			return fmt.Errorf("name %q, want %q", c.Name, name)
		}
		return nil
	}
}

// blockDevice is the whole disk under a directory.
func blockDevice(t *testing.T, directory string) string {
	t.Helper()
	out, err := exec.Command("df", "--output=source", directory).Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Fields(string(out))
	return lines[len(lines)-1]
}

// privateEngine starts a Docker daemon that a test may stop and freeze.
type privateEngine struct {
	engine
	directory string
	daemon    *exec.Cmd
}

func newPrivateEngine(t *testing.T) *privateEngine {
	directory, err := os.MkdirTemp("", "osct-docker-") // short: a socket's path has 108 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		syscall.Unmount(directory+"/data", syscall.MNT_DETACH) // by Docker, on itself
		if err := os.RemoveAll(directory); err != nil {
			t.Error(err)
		}
	})
	return &privateEngine{engine: engine{directory + "/docker.sock"}, directory: directory}
}

func (e *privateEngine) up(t *testing.T) {
	t.Helper()
	// A network of its own: with no bridge, Docker removes docker0, which belongs to another.
	e.daemon = exec.Command("unshare", "--net", "dockerd", "--host", "unix://"+e.socket, "--data-root",
		e.directory+"/data",
		"--exec-root", e.directory+"/exec", "--pidfile", e.directory+"/pid", "--live-restore",
		"--bridge", "none", "--iptables=false", "--ip-forward=false", "--ip-masq=false")
	log, err := os.Create(e.directory + "/log")
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	e.daemon.Stdout, e.daemon.Stderr = log, log
	if err := e.daemon.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error { return e.command("version").Run() })
}

func (e *privateEngine) down(t *testing.T) {
	t.Helper()
	if e.daemon == nil {
		return
	}
	e.daemon.Process.Signal(syscall.SIGCONT)
	e.daemon.Process.Signal(syscall.SIGTERM)
	e.daemon.Wait()
	e.daemon = nil
}
