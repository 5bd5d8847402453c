//go:build long

package attacks

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"outsight/test/memorygroup"
)

// memoryLimit is that of the server's manifest in deploy/kubernetes.
const memoryLimit = 4 << 30

const (
	attackerToken = "attacker-0123456789abcdef0123456789abcdef"
	neighborToken = "neighbor-0123456789abcdef0123456789abcdef"
)

// server is a running "outsight server" in a memory cgroup of its own.
type server struct {
	page, otlpHTTP, otlpGRPC string

	group   *memorygroup.Group
	command *exec.Cmd
	output  *bytes.Buffer
	exited  chan error
}

func startServer(t *testing.T) *server {
	t.Helper()
	directory := t.TempDir()
	binary := filepath.Join(directory, "outsight")
	build := exec.Command("go", "build", "-o", binary, "outsight/cmd/outsight")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building outsight: %v\n%s", err, output)
	}
	tenants := filepath.Join(directory, "tenants.yml")
	text := fmt.Sprintf("attacker: [%s]\nneighbor: [%s]\n", attackerToken, neighborToken)
	if err := os.WriteFile(tenants, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	group, err := memorygroup.New(t, memoryLimit)
	if err != nil {
		t.Fatal(err)
	}
	s := &server{
		page: freeAddress(t), otlpHTTP: freeAddress(t), otlpGRPC: freeAddress(t),
		group: group, output: new(bytes.Buffer), exited: make(chan error, 1),
	}
	s.command = s.group.Command(binary, "server", "--data", filepath.Join(directory, "data"), "--tenants", tenants,
		"--kubernetes", "off",
		"--listen", s.page, "--otlp-http", s.otlpHTTP, "--otlp", s.otlpGRPC)
	s.command.Stdout, s.command.Stderr = s.output, s.output
	if err := s.command.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { s.exited <- s.command.Wait() }()
	t.Cleanup(func() { s.stop(t) })
	s.waitUntilReady(t)
	return s
}

func (s *server) waitUntilReady(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if response, err := http.Get("http://" + s.page + "/readyz"); err == nil {
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return
			}
		}
		select {
		case err := <-s.exited:
			s.exited <- err
			t.Fatalf("the server ended at its start: %v\n%s", err, s.output)
		default:
		}
	}
	t.Fatalf("the server was not ready after a minute\n%s", s.output)
}

// alive fails the test if the server has ended.
func (s *server) alive(t *testing.T) {
	t.Helper()
	select {
	case err := <-s.exited:
		s.exited <- err
		log := s.output.String()
		t.Fatalf("the server ended: %v\n%s", err, log[max(0, len(log)-4000):])
	default:
	}
}

func (s *server) stop(t *testing.T) {
	s.command.Process.Signal(os.Interrupt)
	select {
	case <-s.exited:
	case <-time.After(time.Minute):
		t.Error("the server did not end within a minute of its interrupt")
		s.command.Process.Kill()
		<-s.exited
	}
}

// peakMemory is the most that the server's cgroup has held, in bytes; -1 where the kernel does not count it.
func (s *server) peakMemory(t *testing.T) int64 {
	t.Helper()
	peak, err := s.group.PeakBytes()
	if errors.Is(err, errors.ErrUnsupported) {
		return -1
	}
	if err != nil {
		t.Fatal(err)
	}
	return peak
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
