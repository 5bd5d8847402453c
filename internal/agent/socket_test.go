package agent

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"outsight/internal/frame"
	"outsight/internal/model"
)

// answering serves a socket until the test ends.
func answering(t *testing.T, path string, newest func() *frame.Frame) {
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

func fetch(t *testing.T, path string) (*frame.Frame, error) {
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
	var newest *frame.Frame
	answering(t, path, func() *frame.Frame { return newest })
	if _, err := fetch(t, path); err == nil || !strings.Contains(err.Error(), "503") {
		t.Errorf("got error %v before the first frame, want 503", err)
	}
	builder := frame.NewBuilder(s.Time)
	newest = builder.Build(s)
	client := NewClient(path)
	defer client.Close()
	for second := range 3 { // the second frame is no key frame
		got, err := client.Fetch(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		want := *newest
		want.Key = want.Number
		if got, want := frame.Encode(nil, got, nil), frame.Encode(nil, &want, nil); !bytes.Equal(got, want) {
			t.Errorf("frame %d is another one than that of the agent", second+1)
		}
		if again, err := client.Fetch(t.Context()); err != nil || again != got {
			t.Errorf("what has not changed was sent again, or error %v", err)
		}
		later := *s
		later.Time = s.Time.Add(time.Duration(second+1) * time.Second)
		newest = builder.Build(&later)
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
	answering(t, path, func() *frame.Frame { return frame.NewBuilder(time.Now()).Build(&model.Snapshot{Time: time.Now()}) })
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
