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
	"strconv"
	"syscall"
	"time"

	"outsight/internal/access"
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

// Flights are what an agent keeps beside the newest snapshot, as a Host has it. What is nil is not
// there.
type Flights interface {
	// Flight has the last while.
	Flight(last time.Duration) *recorder.FlightData
	Anomalies() *recorder.Anomalies
	Anomaly(number uint64) *recorder.FlightData
}

// SocketHandler answers as JSON, with 404 where there is no such thing:
//
//	GET /snapshot        the newest snapshot, 503 before the first
//	GET /flight?last=5m  what the flight recorder has of the last while
//	GET /anomalies       those whose surroundings are kept
//	GET /anomalies/7     what is kept around number 7
//
// Who may open the socket has all roles: its file is its owner's alone.
func SocketHandler(newest func() *model.Snapshot, flights Flights) *access.Mux {
	mux := access.NewMux(nil, nil)
	mux.HandleFunc(access.Read, "GET /snapshot", func(w http.ResponseWriter, _ *http.Request) {
		s := newest()
		if s == nil {
			http.Error(w, "no counters have been read yet", http.StatusServiceUnavailable)
			return
		}
		answer(w, s, "")
	})
	if flights == nil {
		return mux
	}
	mux.HandleFunc(access.Record, "GET /flight", func(w http.ResponseWriter, request *http.Request) {
		last, err := time.ParseDuration(request.FormValue("last"))
		if err != nil || last <= 0 {
			http.Error(w, fmt.Sprintf("last is %q, want a time like 5m", request.FormValue("last")), http.StatusBadRequest)
			return
		}
		answer(w, flights.Flight(last), "this agent has no flight recorder")
	})
	mux.HandleFunc(access.Record, "GET /anomalies", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, flights.Anomalies(), "this agent has no flight recorder")
	})
	mux.HandleFunc(access.Record, "GET /anomalies/{number}", func(w http.ResponseWriter, request *http.Request) {
		number, err := strconv.ParseUint(request.PathValue("number"), 10, 64)
		if err != nil {
			http.Error(w, fmt.Sprintf("%q is no number", request.PathValue("number")), http.StatusBadRequest)
			return
		}
		answer(w, flights.Anomaly(number), fmt.Sprintf("there is no anomaly %d", number))
	})
	return mux
}

// answer writes v as JSON, or 404 where it is nil.
func answer[T any](w http.ResponseWriter, v *T, missing string) {
	if v == nil {
		http.Error(w, missing, http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	// The only error is that the reader went away.
	_ = json.NewEncoder(w).Encode(v)
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

// Fetch asks for the newest snapshot. The error is ErrNoAgent without a listener, and
// os.ErrPermission where the socket is another user's.
func (c *Client) Fetch(ctx context.Context) (*model.Snapshot, error) {
	var s model.Snapshot
	return &s, c.fetch(ctx, "/snapshot", &s)
}

// FetchFlight asks for what the flight recorder has kept of the last while. Errors are as Fetch's.
func (c *Client) FetchFlight(ctx context.Context, last time.Duration) (*recorder.FlightData, error) {
	var d recorder.FlightData
	return &d, c.fetch(ctx, "/flight?last="+last.String(), &d)
}

// FetchAnomalies asks for the anomalies whose surroundings are kept. Errors are as Fetch's.
func (c *Client) FetchAnomalies(ctx context.Context) (*recorder.Anomalies, error) {
	var a recorder.Anomalies
	return &a, c.fetch(ctx, "/anomalies", &a)
}

// FetchAnomaly asks for what is kept around an anomaly. Errors are as Fetch's.
func (c *Client) FetchAnomaly(ctx context.Context, number uint64) (*recorder.FlightData, error) {
	var d recorder.FlightData
	return &d, c.fetch(ctx, fmt.Sprintf("/anomalies/%d", number), &d)
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
