package e2e

import (
	"archive/tar"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
)

// image holds an empty root; the host's /usr is mounted over it, so that any Debian software of
// the host runs in a container without an image of its own.
var image = fmt.Sprintf("outsight-e2e:%d", os.Getpid())

func importImage() error {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, name := range []string{"usr", "etc", "etc/alternatives", "proc", "sys", "dev", "tmp", "run", "var", "root",
		"data", "var/log", "var/lib"} {
		mode := int64(0o755)
		if name == "tmp" || name == "data" || name == "run" {
			mode = 0o1777
		}
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: mode}); err != nil {
			return err
		}
	}
	for _, name := range []string{"bin", "sbin", "lib", "lib64", "lib32"} {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: "usr/" + name,
			Mode: 0o777}); err != nil {
			return err
		}
	}
	for name, text := range map[string]string{
		"etc/passwd":        "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/:/bin/false\npostgres:x:70:70::/data:/bin/sh\n",
		"etc/group":         "root:x:0:\nnogroup:x:65534:\npostgres:x:70:\n",
		"etc/nsswitch.conf": "hosts: files dns\n",
	} {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644,
			Size: int64(len(text))}); err != nil {
			return err
		}
		if _, err := w.Write([]byte(text)); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	command := exec.Command("docker", "import", "-", image)
	command.Stdin = &archive
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("docker import: %w\n%s(is a Docker daemon running? make end-to-end starts one)", err, output)
	}
	return nil
}

func docker(t *testing.T, arguments ...string) string {
	t.Helper()
	output, err := exec.Command("docker", arguments...).CombinedOutput()
	if err != nil {
		t.Fatalf("docker %s: %v\n%s", strings.Join(arguments, " "), err, output)
	}
	return strings.TrimSpace(string(output))
}

// networks and containers count those of this run.
var networks, containers atomic.Int64

// newNetwork makes a bridge network for one test.
func newNetwork(t *testing.T) string {
	t.Helper()
	name := unique(fmt.Sprint("net", networks.Add(1)))
	docker(t, "network", "create", "--label", ownLabel, name)
	t.Cleanup(func() { exec.Command("docker", "network", "rm", name).Run() })
	return name
}

func unique(name string) string { return fmt.Sprintf("e2e%d-%s", os.Getpid(), name) }

// container is a running container of a test.
type container struct {
	t        *testing.T
	name, id string
}

// start runs command in a new container; options are those of docker run. The container is
// removed at the end of the test.
func start(t *testing.T, name string, options []string, command ...string) container {
	t.Helper()
	c := container{t: t, name: unique(fmt.Sprint(name, "-", containers.Add(1)))} // tests share a store
	t.Cleanup(c.remove)
	arguments := []string{"run", "-d", "--name", c.name, "--label", ownLabel,
		"-v", "/usr:/usr:ro", "-v", "/etc/alternatives:/etc/alternatives:ro"}
	arguments = append(append(append(arguments, options...), image), command...)
	c.id = docker(t, arguments...)
	return c
}

// shell starts a container that runs a script of busybox's shell.
func shell(t *testing.T, name, script string, options ...string) container {
	t.Helper()
	return start(t, name, options, "busybox", "sh", "-c", script)
}

func (c container) remove() { exec.Command("docker", "rm", "-f", "-v", c.name).Run() }

func (c container) logs() string { c.t.Helper(); return docker(c.t, "logs", c.name) }

// says waits until the container has printed a line. It fails at once if the container has ended without it.
func (c container) says(line string) {
	c.t.Helper()
	eventually(c.t, func() error {
		state := docker(c.t, "inspect", "--format", "{{.State.Status}}", c.name)
		logs := c.logs()
		if containsLine(logs, line) {
			return nil
		}
		if strings.Contains(state, "exited") || strings.Contains(state, "dead") {
			c.t.Fatalf("%s has ended and has not said %q: %s", c.name, line, logs)
		}
		return fmt.Errorf("%s has not said %q: %s", c.name, line, logs)
	})
}

func (c container) exec(command ...string) string {
	c.t.Helper()
	return docker(c.t, append([]string{"exec", c.name}, command...)...)
}

// cpuNS is the CPU time that the kernel's own cgroup file shows.
func (c container) cpuNS() (uint64, error) { return cpuNS("docker/" + c.id) }

func cpuNS(group string) (uint64, error) {
	if text, err := os.ReadFile(filepath.Join("/sys/fs/cgroup/cpuacct", group, "cpuacct.usage")); err == nil {
		return strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	}
	// The unified hierarchy; Docker's driver there is systemd or cgroupfs.
	for _, path := range []string{group, "system.slice/docker-" + filepath.Base(group) + ".scope"} {
		text, err := os.ReadFile(filepath.Join("/sys/fs/cgroup", path, "cpu.stat"))
		if err != nil {
			continue
		}
		var microseconds uint64
		if _, err := fmt.Sscanf(string(text), "usage_usec %d", &microseconds); err != nil {
			return 0, fmt.Errorf("reading cpu.stat of %q: %w", group, err)
		}
		return microseconds * 1000, nil
	}
	return 0, fmt.Errorf("no CPU file of control group %q", group)
}
