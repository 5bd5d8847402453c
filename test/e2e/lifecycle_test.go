package e2e

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// TestConnectionsFromBefore: connections that were open before the agent started are found with
// the right client and server, and what passes over them from then on is counted exactly.
func TestConnectionsFromBefore(t *testing.T) {
	t.Parallel()
	net := newNetwork(t)
	server := start(t, "old-redis", []string{"--network", net, "--network-alias", "redis"},
		"redis-server", "--save", "", "--protected-mode", "no", "--dir", "/tmp")
	eventually(t, func() error {
		_, err := fmt.Sscan(server.exec("sh", "-c", "grep -c :18EB /proc/net/tcp || true"), new(int))
		return err
	})
	const asked = 25
	client := start(t, "old-client", []string{"--network", net}, "/usr/bin/python3", "-I", "-S", "-u", "-c", fmt.Sprintf(`
import os, signal, socket, time
go = False
def tell(*_):
    global go
    go = True
signal.signal(signal.SIGUSR1, tell)
s = None
while s is None:
    try:
        s = socket.create_connection(("redis", 6379))
    except OSError:
        time.sleep(0.1)
print("connected")
while not go:
    time.sleep(0.05)
for _ in range(%d):
    s.sendall(b"PING\r\n")
    assert s.recv(100) == b"+PONG\r\n"
print("done")
while True:
    time.sleep(1)
`, asked))
	client.says("connected")

	o := up(t)
	docker(t, "kill", "-s", "USR1", client.name)
	client.says("done")
	checkEdges(t, o, []edge{{client: client.name, server: server.name, port: 6379, transactions: asked,
		requestBytes: asked * uint64(len("PING\r\n")), responseBytes: asked * uint64(len("+PONG\r\n")), connections: 1}})
}

// TestRename: a container keeps its numbers under its new name.
func TestRename(t *testing.T) {
	t.Parallel()
	o := shared(t)
	c := shell(t, "before", "sleep 3600")
	named := func(name string) func() error {
		return func() error {
			metrics, err := o.metrics()
			if err != nil {
				return err
			}
			for _, s := range metrics.find("container_cpu_usage_seconds_total", map[string]string{"id": c.id}) {
				if s.labels["name"] == name {
					return nil
				}
			}
			return fmt.Errorf("no container %s named %s", c.id, name)
		}
	}
	eventually(t, named(c.name))
	renamed := unique("after")
	docker(t, "rename", c.name, renamed)
	t.Cleanup(container{t: t, name: renamed}.remove)
	eventually(t, named(renamed))
}

// TestDockerGoneAndBack: containers are known by the cgroup's path while Docker does not answer,
// and by name when it does; nothing else is disturbed.
func TestDockerGoneAndBack(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "docker.sock")
	o := up(t, "--docker-socket", socket)
	name := func(c container) string {
		t.Helper()
		metrics, err := o.metrics()
		if err != nil {
			t.Fatal(err)
		}
		found := metrics.find("container_cpu_usage_seconds_total", map[string]string{"id": c.id})
		if len(found) != 1 {
			return ""
		}
		return found[0].labels["name"]
	}
	is := func(c container, want string) func() error {
		return func() error {
			if got := name(c); got != want {
				return fmt.Errorf("the container's name is %q, want %q", got, want)
			}
			return nil
		}
	}

	first := shell(t, "first", "sleep 3600")
	eventually(t, is(first, first.id[:12]))
	stop := proxyDocker(t, socket)
	eventually(t, is(first, first.name))
	stop()
	second := shell(t, "second", "sleep 3600")
	eventually(t, is(second, second.id[:12]))
	if got := name(first); got != first.name {
		t.Errorf("without Docker the container's name is %q, want %q as before", got, first.name)
	}
	proxyDocker(t, socket)
	eventually(t, is(second, second.name))
}

// proxyDocker serves the Docker daemon at another socket until stop is called: a daemon that can
// be taken away without disturbing anybody else.
func proxyDocker(t *testing.T, socket string) (stop func()) {
	t.Helper()
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex // guards open
	open := []io.Closer{listener}
	go func() {
		for {
			in, err := listener.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("unix", "/var/run/docker.sock")
			if err != nil {
				in.Close()
				continue
			}
			mu.Lock()
			open = append(open, in, out)
			mu.Unlock()
			go func() { io.Copy(out, in); out.Close() }()
			go func() { io.Copy(in, out); in.Close() }()
		}
	}()
	stop = func() {
		mu.Lock()
		defer mu.Unlock()
		for _, c := range open {
			c.Close()
		}
		open = nil
		os.Remove(socket)
	}
	t.Cleanup(stop)
	return stop
}
