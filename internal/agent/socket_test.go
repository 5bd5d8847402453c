package agent

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"outsight/internal/model"
)

// answering serves a socket until the test ends.
func answering(t *testing.T, path string, newest func() *model.Snapshot) {
	t.Helper()
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- ServeHTTP(ctx, l, SocketHandler(newest, nil), slog.New(slog.DiscardHandler)) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the socket is still there after the end (%v)", err)
		}
	})
}

func fetch(t *testing.T, path string) (*model.Snapshot, error) {
	t.Helper()
	c := NewClient(path)
	defer c.Close()
	return c.Fetch(t.Context())
}

func TestSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sub", "agent.sock")
	if _, err := fetch(t, path); !errors.Is(err, ErrNoAgent) {
		t.Errorf("got error %v without an agent, want ErrNoAgent", err)
	}
	web := &model.Container{ID: "web", Name: "web", Runtime: model.Docker,
		Addresses: []netip.Addr{netip.MustParseAddr("172.17.0.2")}}
	s := &model.Snapshot{
		Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Window: time.Second, Host: model.Host{Name: "h", Cores: 2},
		Containers: []model.ContainerSample{{Container: web,
			CPU: &model.CPUCounters{UsageNS: 1<<63 + 1, RunQueue: &model.Histogram{
				Count: 3, SumNS: 9, Offset: -300, Buckets: []uint64{1, 0, 2}}}}},
		Edges: []model.Edge{{Side: model.RoleClient, Client: model.Peer{Container: web}, Paired: true,
			Server:  model.Peer{Address: netip.MustParseAddr("2001:db8::1")},
			Service: netip.MustParseAddrPort("[2001:db8::1]:443")}},
	}
	var newest *model.Snapshot
	answering(t, path, func() *model.Snapshot { return newest })
	if _, err := fetch(t, path); err == nil || !strings.Contains(err.Error(), "503") {
		t.Errorf("got error %v before the first snapshot, want 503", err)
	}
	newest = s
	got, err := fetch(t, path)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, s) {
		t.Errorf("got %+v, want %+v", got, s)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got mode %v, error %v, want 0600", info.Mode(), err)
	}
	if _, err := Listen(path); !errors.Is(err, ErrSocketTaken) {
		t.Errorf("a second agent got error %v, want ErrSocketTaken", err)
	}
	if _, err := fetch(t, path); err != nil {
		t.Errorf("the second agent has disturbed the first: %v", err)
	}
}

func TestADeadAgentsSocketIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.sock")
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}); err != nil {
		t.Fatal(err)
	}
	syscall.Close(fd) // leaves the file, as a killed process does
	if _, err := fetch(t, path); !errors.Is(err, ErrNoAgent) {
		t.Errorf("got error %v of a dead agent's socket, want ErrNoAgent", err)
	}
	answering(t, path, func() *model.Snapshot { return &model.Snapshot{} })
	if _, err := fetch(t, path); err != nil {
		t.Error(err)
	}
}

func TestAFileThatIsNoSocketIsKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "precious")
	if err := os.WriteFile(path, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	if l, err := Listen(path); err == nil {
		l.Close()
		t.Error("a file was taken for a socket")
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "x" {
		t.Errorf("the file has %q, error %v", b, err)
	}
}

func TestFetchOfGarbage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{\"Time\": "))
			c.Close()
		}
	}()
	if s, err := fetch(t, path); err == nil {
		t.Errorf("got %+v of garbage, want an error", s)
	}
}
