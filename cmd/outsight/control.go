package main

import (
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"time"

	"github.com/spf13/cobra"

	"outsight/internal/control"
	"outsight/internal/frame"
	"outsight/internal/framelog"
	"outsight/internal/graph"
	"outsight/internal/queue"
)

// controlFlags say what a server has its agents measure.
type controlFlags struct {
	// rate is in bit/s of each host.
	rate     int64
	interval time.Duration
}

func (f *controlFlags) add(c *cobra.Command) {
	c.Flags().Int64Var(&f.rate, "probe-rate", control.DefaultRate, "bits per second that each host sends at most to "+
		"measure the network to the hosts with which its containers talk; 0 measures nothing")
	c.Flags().DurationVar(&f.interval, "probe-interval", 10*time.Second,
		"for how long two hosts go on to be measured that talk no more")
}

func (f *controlFlags) check() error {
	switch {
	case f.rate != 0 && f.rate < leastProbeRate:
		return usagef("--probe-rate is %d, want %d at least, or 0", f.rate, leastProbeRate)
	case f.interval < time.Second || f.interval > time.Hour:
		return usagef("--probe-interval is %v, want 1s to 1h", f.interval)
	}
	return nil
}

// leastProbeRate is room for sessions to seven hosts, with a packet of each in every control.MaxInterval.
const leastProbeRate = 1000

// server is what agents ask.
func (f *controlFlags) server(frames framelog.Log, registry control.Registry, log *slog.Logger) *control.Server {
	return control.NewServer(control.ServerOptions{
		Rate: f.rate, Interval: f.interval, Registry: registry, Logger: log,
		Window: func(ctx context.Context, tenant string, from, to time.Time) (*frame.Window, error) {
			for w, err := range frames.Windows(ctx, framelog.Query{Tenant: tenant, Times: []time.Time{from, to},
				Only: graph.HostPairColumns}) {
				return w, err
			}
			return &frame.Window{From: from, To: to}, nil
		},
		Talks: func(w *frame.Window, ignore func(netip.AddrPort) bool) (talks []control.Talk) {
			for _, p := range graph.HostPairs(w, ignore) {
				talks = append(talks, control.Talk{Pair: control.Pair{A: p.A, B: p.B}, Bytes: p.Bytes})
			}
			return talks
		},
	})
}

// openControl makes what agents ask. A cluster that keeps the queue keeps the agents, too.
func (r *receiver) openControl(ctx context.Context, f *controlFlags, frames framelog.Log) error {
	if r.http == nil || f.rate == 0 {
		return nil
	}
	var registry control.Registry
	if r.flags.nats.URL != "" {
		opening, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		kept, err := queue.OpenRegistry(opening, r.conn, r.flags.stream+agentsBucket, r.flags.replicas)
		if err != nil {
			return err
		}
		registry = kept
	}
	r.control = f.server(frames, registry, r.log)
	return nil
}

// agentsBucket is behind the name of the stream in that of the bucket of agents.
const agentsBucket = "-AGENTS"

// withControl serves the control channel beside what senders send.
func (r *receiver) withControl() http.Handler {
	if r.control == nil {
		return r.ingest.Handler()
	}
	mux := http.NewServeMux()
	mux.Handle("/", r.ingest.Handler())
	mux.Handle(control.Path, r.ingest.Tenanted(r.control.ServeTenant))
	return mux
}
