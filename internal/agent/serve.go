package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"outsight/internal/access"
	"outsight/internal/frame"
	"outsight/internal/model"
	"outsight/internal/otlp"
)

// DefaultListen is where an agent without a server answers /metrics.
const DefaultListen = "127.0.0.1:8471"

const (
	// memoryLimit keeps the heap of an agent small: with the program itself and the counters of
	// the kernel's tables that are mapped (histograms are read by look-ups), it stays within 50 MiB.
	memoryLimit = 32 << 20
	// garbage is how much of it there may be, in percent of the memory that is in use (some 3 MB with 50 containers),
	// until it is cleared: half as often as by default, for 2 MB more.
	garbage = 200
)

// ErrListen says that the address of /metrics cannot be had.
var ErrListen = errors.New("listening")

// ServeOptions of Serve. The zero value serves /metrics nowhere.
type ServeOptions struct {
	Host HostOptions
	// Listen is the address of /metrics; empty for none. Socket is DefaultSocket if empty.
	Listen, Socket string
	// Access says who may read /metrics.
	Access access.Access
	// Output takes what a person wants to know at the start.
	Output io.Writer
}

// Serve runs an agent on this host by itself until ctx ends: it answers /metrics and its socket.
func Serve(ctx context.Context, o ServeOptions) error {
	if o.Host.Logger == nil {
		o.Host.Logger = slog.New(slog.DiscardHandler)
	}
	// Before anything is opened for nothing.
	privileges, err := ReadPrivileges(o.Host.ProcRoot)
	if err != nil {
		return err
	}
	if err := privileges.Check(); err != nil {
		return err
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit)
	}
	// One CPU at a time is enough for a second's work of some milliseconds, leaves the others to the
	// host, and saves what the runtime's threads pay to wake each other: a sixth of all.
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(1)
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbage)
	}
	slack := restSlack
	if o.Host.Probes != nil { // they send packets each millisecond
		slack = timerSlack
	}
	if err := setTimerSlack(slack); err != nil {
		o.Host.Logger.Debug("The runtime looks after its threads more often than needed.", "error", err)
	}
	var metrics net.Listener
	var limits access.Listeners
	if o.Listen != "" {
		if metrics, err = net.Listen("tcp", o.Listen); err != nil {
			return fmt.Errorf("%w for /metrics: %w", ErrListen, err)
		}
		defer metrics.Close()
		// None of its connections takes the descriptors that the files of containers need.
		metrics = limits.Limit(metrics, "metrics", access.MetricsLimits)
	}
	socket, err := Listen(cmp.Or(o.Socket, DefaultSocket))
	if err != nil {
		return err
	}
	defer socket.Close()
	socket = limits.Limit(socket, "socket", access.SocketLimits)
	answers := &Answers{}
	o.Host.Answers = answers
	o.Host.Reporters = append(slices.Clip(o.Host.Reporters), &limits)
	host, err := Open(o.Host)
	if err != nil {
		return err
	}
	defer host.Close()
	if o.Output != nil {
		host.Describe(o.Output)
		if metrics != nil {
			fmt.Fprintf(o.Output, "  metrics  %s://%s/metrics\n", o.Access.Scheme(), metrics.Addr())
		}
	}
	small := time.AfterFunc(startPagesAfter, func() {
		if err := unmapStartPages(); err != nil {
			o.Host.Logger.Debug("The pages of the start stay.", "error", err)
		}
	})
	defer small.Stop()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return host.Run(ctx) })
	group.Go(func() error {
		return ServeHTTP(ctx, socket, answers.Measure(SocketHandler(host.Frame, host)), o.Host.Logger)
	})
	if metrics != nil {
		handler := answers.Measure(metricsHandler(o.Access, host.Frame))
		listener := o.Access.Secure(answers.Count(metrics))
		group.Go(func() error { return ServeHTTP(ctx, listener, handler, o.Host.Logger) })
	}
	return group.Wait()
}

// metricsHandler answers /metrics, and for those who keep processes running /healthz and /readyz, which say nothing
// else.
func metricsHandler(a access.Access, newest func() *frame.Frame) *access.Mux {
	mux := access.NewMux(a.Auth, a.Hosts)
	mux.Handle(access.Read, "/metrics", otlp.Handler(newest))
	mux.HandleFunc(access.Public, "GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc(access.Public, "GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if newest() == nil {
			http.Error(w, "not ready: no counters have been read yet", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ready")
	})
	return mux
}

// ServeHTTP answers requests until ctx ends, and closes l.
func ServeHTTP(ctx context.Context, l net.Listener, handler http.Handler, logger *slog.Logger) error {
	return access.Serve(ctx, access.Server(handler, logger), l)
}

// Describe writes what is watched, and what of the main job is off.
func (h *Host) Describe(out io.Writer) {
	running := 0
	for _, c := range h.Containers() {
		if c.Runtime != model.HostRuntime {
			running++
		}
	}
	m := h.Machine
	fmt.Fprintf(out, "Watching %s: %d containers, kernel %s, %d cores, cgroup %s\n", m.Name, running, m.Kernel, m.Cores,
		m.CgroupLayout)
	for _, f := range h.Features() {
		if f.State != model.FeatureWorks && f.Required {
			fmt.Fprintf(out, "  off      %s (%s)\n", f.Purpose, f.Reason)
		}
	}
}
