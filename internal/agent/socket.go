package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"outsight/internal/model"
	"outsight/internal/recorder"
)

// DefaultSocket is where an agent answers the command line on the same host.
const DefaultSocket = "/run/outsight/agent.sock"

// maxSnapshotBytes bounds what Fetch reads.
const maxSnapshotBytes = 256 << 20

// ErrNoAgent says that no agent answers at a socket.
var ErrNoAgent = errors.New("no agent is running")

// ErrSocketTaken says that another agent answers at the socket already.
var ErrSocketTaken = errors.New("another agent is running")

// Listen opens the agent's unix socket at path, for its owner alone. What a dead agent left
// there is replaced; a live one is ErrSocketTaken. Closing the listener removes the socket.
func Listen(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("making the directory of the agent's socket: %w", err)
	}
	probe, err := net.DialTimeout("unix", path, time.Second)
	switch {
	case err == nil:
		probe.Close()
		return nil, fmt.Errorf("opening the agent's socket %q: %w", path, ErrSocketTaken)
	case errors.Is(err, syscall.ECONNREFUSED):
		if err := removeSocket(path); err != nil {
			return nil, fmt.Errorf("removing a dead agent's socket: %w", err)
		}
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("opening the agent's socket: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		l.Close()
		return nil, fmt.Errorf("closing the agent's socket to others: %w", err)
	}
	return l, nil
}

// removeSocket removes path if it is a socket: a wrong path must not cost anybody a file.
func removeSocket(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if info.Mode()&os.ModeSocket == 0 {
		return fmt.Errorf("%q is not a socket", path)
	}
	return os.Remove(path)
}

// SocketHandler answers GET /snapshot with the newest snapshot as JSON, 503 before the first, and
// GET /flight?last=5m with what the flight recorder has of the last while, 404 where there is none.
func SocketHandler(newest func() *model.Snapshot, flight func(last time.Duration) *recorder.FlightData) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /snapshot", func(w http.ResponseWriter, _ *http.Request) {
		s := newest()
		if s == nil {
			http.Error(w, "no counters have been read yet", http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		// The only error is that the reader went away.
		_ = json.NewEncoder(w).Encode(s)
	})
	mux.HandleFunc("GET /flight", func(w http.ResponseWriter, request *http.Request) {
		last, err := time.ParseDuration(request.FormValue("last"))
		if err != nil || last <= 0 {
			http.Error(w, fmt.Sprintf("last is %q, want a time like 5m", request.FormValue("last")), http.StatusBadRequest)
			return
		}
		var data *recorder.FlightData
		if flight != nil {
			data = flight(last)
		}
		if data == nil {
			http.Error(w, "this agent has no flight recorder", http.StatusNotFound)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(data)
	})
	return mux
}

// Client asks an agent on this host.
type Client struct {
	path string
	http http.Client
}

// NewClient makes a client of the agent at a socket. Nothing is opened before Fetch.
func NewClient(path string) *Client {
	c := &Client{path: path}
	c.http.Transport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}}
	return c
}

// Fetch asks for the newest snapshot. The error is ErrNoAgent where nobody listens, and
// os.ErrPermission where the socket is somebody else's.
func (c *Client) Fetch(ctx context.Context) (*model.Snapshot, error) {
	var s model.Snapshot
	return &s, c.fetch(ctx, "/snapshot", &s)
}

// FetchFlight asks for what the flight recorder has kept of the last while. Errors are as Fetch's.
func (c *Client) FetchFlight(ctx context.Context, last time.Duration) (*recorder.FlightData, error) {
	var d recorder.FlightData
	return &d, c.fetch(ctx, "/flight?last="+last.String(), &d)
}

func (c *Client) fetch(ctx context.Context, path string, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://agent"+path, nil)
	if err != nil {
		return fmt.Errorf("BUG: making a request: %w", err)
	}
	answer, err := c.http.Do(request)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("asking the agent at %q: %w", c.path, ErrNoAgent)
	}
	if err != nil {
		return fmt.Errorf("asking the agent at %q: %w", c.path, err)
	}
	defer answer.Body.Close()
	body := io.LimitReader(answer.Body, maxSnapshotBytes)
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(body, 1024))
		return fmt.Errorf("asking the agent at %q: %s: %s", c.path, answer.Status, text)
	}
	if err := json.NewDecoder(body).Decode(into); err != nil {
		return fmt.Errorf("reading the agent's answer: %w", err)
	}
	return nil
}

// Close drops idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }
