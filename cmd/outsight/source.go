package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"outsight/internal/agent"
	"outsight/internal/frame"
	"outsight/internal/model"
)

// source gives the frames of this host, of a running agent where there is one.
type source struct {
	// from says where the frames come from.
	from   string
	latest func(context.Context) (*frame.Frame, error)
	close  func()
	last   time.Time
}

// pollInterval is how often a source looks for a new frame. Agents make one a second.
const pollInterval = 100 * time.Millisecond

// openSource asks a running agent, or else loads the kernel programs itself.
func openSource(ctx context.Context, f watchFlags, logger *slog.Logger, errOut io.Writer) (*source, error) {
	options, err := f.host(logger)
	if err != nil {
		return nil, err
	}
	socket := f.socketOf()
	client := agent.NewClient(socket)
	newest, err := client.Fetch(ctx)
	if err == nil && (!f.all || watchesServices(newest)) {
		say(errOut, "Querying what runs at %s.\n", socket)
		return &source{from: "agent at " + socket, latest: client.Fetch, close: client.Close}, nil
	}
	client.Close()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil && !errors.Is(err, agent.ErrNoAgent) {
		logger.Debug("not querying the running agent", "error", err)
	}
	why := "No agent runs here"
	if err == nil {
		why = "The agent here does not watch systemd services (--all)"
	} else if !errors.Is(err, agent.ErrNoAgent) {
		why = "The agent here does not answer"
	}
	say(errOut, "%s: loading the kernel programs for the time being, which takes some seconds …", why)
	host, err := agent.Open(options)
	say(errOut, "\r\x1b[K")
	if err != nil {
		return nil, err
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- host.Run(running) }()
	return &source{
		from:   "own kernel programs",
		latest: func(context.Context) (*frame.Frame, error) { return host.Frame(), nil },
		close: func() {
			stop()
			<-ended
			host.Close()
		},
	}, nil
}

func watchesServices(f *frame.Frame) bool {
	for row := range f.Tables[frame.Containers].IDs {
		if f.Text(frame.Containers, frame.ContainerRuntime, row) == string(model.Systemd) {
			return true
		}
	}
	return false
}

// next waits for a frame that it has not answered before.
func (s *source) next(ctx context.Context) (*frame.Frame, error) {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		f, err := s.latest(ctx)
		if ctx.Err() != nil {
			return nil, ctx.Err() // whatever the request said of it
		}
		if err != nil {
			return nil, fmt.Errorf("%w (did the agent end? run the command again)", err)
		}
		if f != nil && f.Time.After(s.last) {
			s.last = f.Time
			return f, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-tick.C:
		}
	}
}

// window keeps the frames of the last while.
type window struct {
	length time.Duration
	kept   []*frame.Frame
}

// add takes a frame in and answers the oldest one that is still of use: the newest that is as old as the window is long,
// or else the first. full reports whether there is such a one. What another agent counted is of no use.
func (w *window) add(f *frame.Frame) (oldest *frame.Frame, full bool) {
	if len(w.kept) > 0 && w.kept[0].Epoch != f.Epoch {
		w.kept = nil
	}
	w.kept = append(w.kept, f)
	// Frames are not exactly a second apart.
	enough := func(old *frame.Frame) bool { return f.Time.Sub(old.Time) >= w.length-100*time.Millisecond }
	for len(w.kept) > 1 && enough(w.kept[1]) {
		w.kept = w.kept[1:]
	}
	return w.kept[0], len(w.kept) > 1 && enough(w.kept[0])
}

// gather takes frames until the window is full, and answers what happened between the first and the last.
func gather(ctx context.Context, s *source, length time.Duration) (*frame.Window, error) {
	w := window{length: length}
	for {
		to, err := s.next(ctx)
		if err != nil {
			return nil, err
		}
		if from, full := w.add(to); full {
			return between(from, to), nil
		}
	}
}

// between is what happened on this host between two frames of one agent.
func between(from, to *frame.Frame) *frame.Window {
	return &frame.Window{From: from.Time, To: to.Time,
		Hosts: []frame.HostSpans{{Host: to.Host, Spans: []frame.Span{{Before: from, After: to}}}}}
}

// newest is the frame at the end of a window on this host.
func newest(w *frame.Window) *frame.Frame { return w.Hosts[0].Spans[0].After }

// runtimeDirectory is where what runs on this host has its sockets: agent.sock, and demo.sock of a demo.
var runtimeDirectory = filepath.Dir(agent.DefaultSocket)

// demoSocket is where a demo answers the command line: at a path that the commands find, unless another demo is there.
func demoSocket(private string) string {
	path := filepath.Join(runtimeDirectory, "demo.sock")
	if answers(path) {
		return filepath.Join(private, "agent.sock")
	}
	return path
}

// socketOf is the socket that a command asks: what --socket names; else that of an agent; else that of anything else
// which runs here.
func (f *watchFlags) socketOf() string {
	if f.flags != nil && f.flags.Changed("socket") || answers(f.socket) {
		return f.socket
	}
	if found := findInstance(filepath.Dir(f.socket)); found != "" {
		return found
	}
	return f.socket
}

// findInstance finds a socket in a directory at which a process answers that this user can trust, empty for none.
func findInstance(directory string) string {
	if !trusted(directory, 0o022) {
		return "" // anybody might have put a socket there
	}
	entries, err := os.ReadDir(directory)
	if err != nil {
		return ""
	}
	for _, e := range entries {
		path := filepath.Join(directory, e.Name())
		if e.Type()&os.ModeSocket != 0 && trusted(path, 0) && answers(path) {
			return path
		}
	}
	return ""
}

// trusted reports whether a path is root's or this user's own, and open to nobody else in these ways.
func trusted(path string, closed os.FileMode) bool {
	info, err := os.Lstat(path)
	if err != nil || info.Mode().Perm()&closed != 0 {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && (stat.Uid == 0 || int(stat.Uid) == os.Geteuid())
}

// answers reports whether a process listens at a socket. One that may not be asked counts: asking says why.
func answers(path string) bool {
	c, err := net.DialTimeout("unix", path, time.Second)
	if err != nil {
		return errors.Is(err, fs.ErrPermission)
	}
	c.Close()
	return true
}

// say writes what is being done for a person who waits at a terminal.
func say(errOut io.Writer, format string, args ...any) {
	if isTerminal(errOut) {
		fmt.Fprintf(errOut, format, args...)
	}
}
