package agent

import (
	"bytes"
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
	"outsight/internal/frame"
	"outsight/internal/model"
	"outsight/internal/recorder"
)

// DefaultSocket is where an agent answers the command line on the same host.
const DefaultSocket = "/run/outsight/agent.sock"

// maxAnswerBytes bounds what a Client reads.
const maxAnswerBytes = 256 << 20

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

// Flights are what an agent keeps beside the newest frame, as a Host has it. What is nil is not
// there.
type Flights interface {
	// Flight has the last while.
	Flight(last time.Duration) *recorder.FlightData
	Anomalies() *recorder.Anomalies
	Anomaly(number uint64) *recorder.FlightData
	// KeepCapacity keeps what somebody measured of a path.
	KeepCapacity(model.Capacity)
}

// SocketHandler answers, mostly as JSON, with 404 where there is no such thing:
//
//	GET /frame           the newest frame as frame.Encode writes a key frame, 503 before the first; 304 to an
//	                     If-None-Match with its ETag
//	GET /flight?last=5m  what the flight recorder has of the last while
//	GET /anomalies       those whose surroundings are kept
//	GET /anomalies/7     what is kept around number 7
//	POST /capacity       keeps a model.Capacity as JSON
//
// Who may open the socket has all roles: its file is its owner's alone.
func SocketHandler(newest func() *frame.Frame, flights Flights) *access.Mux {
	mux := access.NewMux(nil, nil)
	mux.HandleFunc(access.Read, "GET /frame", func(w http.ResponseWriter, r *http.Request) {
		f := newest()
		if f == nil {
			http.Error(w, "no counters have been read yet", http.StatusServiceUnavailable)
			return
		}
		tag := fmt.Sprintf("\"%d-%d\"", f.Epoch, f.Number)
		w.Header().Set("ETag", tag)
		if r.Header.Get("If-None-Match") == tag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		w.Header().Set("Content-Type", frame.ContentType)
		// The only error is that the reader went away.
		_, _ = w.Write(frame.Encode(nil, f.AsKey(), nil))
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
	mux.HandleFunc(access.Record, "POST /capacity", handleCapacity(flights.KeepCapacity))
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

// Client asks an agent on this host. It is for one goroutine.
type Client struct {
	path string
	http http.Client
	// newest is what Fetch has answered, tag its ETag.
	newest *frame.Frame
	tag    string
}

// NewClient makes a client of the agent at a socket. Nothing is opened before Fetch.
func NewClient(path string) *Client {
	c := &Client{path: path}
	c.http.Transport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}}
	return c
}

// Fetch asks for the newest frame, which is told as a key frame; where there is no newer one, the answer is that of
// before. The error is ErrNoAgent without a listener, and os.ErrPermission where the socket is another user's.
func (c *Client) Fetch(ctx context.Context) (*frame.Frame, error) {
	err := c.ask(ctx, "/frame", c.tag, func(answer *http.Response, body io.Reader) error {
		if answer.StatusCode == http.StatusNotModified {
			return nil
		}
		data, err := io.ReadAll(body)
		if err != nil {
			return err
		}
		f, err := frame.Decode(data, nil)
		if err == nil {
			c.newest, c.tag = f, answer.Header.Get("ETag")
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return c.newest, nil
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
	return c.ask(ctx, path, "", func(_ *http.Response, body io.Reader) error { return json.NewDecoder(body).Decode(into) })
}

// KeepCapacity has the agent keep what was measured of a path. Errors are as Fetch's.
func (c *Client) KeepCapacity(ctx context.Context, one model.Capacity) error {
	text, err := json.Marshal(one)
	if err != nil {
		return fmt.Errorf("BUG: writing a capacity: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://agent/capacity", bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("BUG: making a request: %w", err)
	}
	return c.do(request, func(*http.Response, io.Reader) error { return nil })
}

// ask hands an answer and its body to read. Where known is the tag of what there is, the answer has no body.
func (c *Client) ask(ctx context.Context, path, known string, read func(*http.Response, io.Reader) error) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://agent"+path, nil)
	if err != nil {
		return fmt.Errorf("BUG: making a request: %w", err)
	}
	if known != "" {
		request.Header.Set("If-None-Match", known)
	}
	return c.do(request, read)
}

// do hands an answer and its body to read.
func (c *Client) do(request *http.Request, read func(*http.Response, io.Reader) error) error {
	known := request.Header.Get("If-None-Match")
	answer, err := c.http.Do(request)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("asking the agent at %q: %w", c.path, ErrNoAgent)
	}
	if err != nil {
		return fmt.Errorf("asking the agent at %q: %w", c.path, err)
	}
	defer answer.Body.Close()
	body := io.LimitReader(answer.Body, maxAnswerBytes)
	if answer.StatusCode != http.StatusOK && (known == "" || answer.StatusCode != http.StatusNotModified) {
		text, _ := io.ReadAll(io.LimitReader(body, 1024))
		return fmt.Errorf("asking the agent at %q: %s: %s", c.path, answer.Status, text)
	}
	if err := read(answer, body); err != nil {
		return fmt.Errorf("reading the agent's answer: %w", err)
	}
	return nil
}

// Close drops idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }
