package main

import (
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
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
	// containers is how many pairs of containers are measured of two hosts.
	containers int
	// dscp are classes of service of sessions between hosts.
	dscp []uint
}

func (f *controlFlags) add(c *cobra.Command) {
	c.Flags().Int64Var(&f.rate, "probe-rate", control.DefaultRate, "bits per second that each host sends at most to "+
		"measure the network to the hosts with which its containers talk; 0 measures nothing")
	c.Flags().DurationVar(&f.interval, "probe-interval", 10*time.Second,
		"for how long two hosts go on to be measured that talk no more")
	c.Flags().IntVar(&f.containers, "probe-containers", control.DefaultContainers, "how many pairs of containers of two "+
		"hosts are measured from inside their own network namespaces, those that talk most; 0 measures none")
	c.Flags().UintSliceVar(&f.dscp, "probe-dscp", []uint{0}, "classes of service (DSCP) in which the network between two "+
		"hosts is measured, with commas between them: each with a session of its own, within the same rate")
}

func (f *controlFlags) check() error {
	switch {
	case f.rate != 0 && f.rate < leastProbeRate:
		return usagef("--probe-rate is %d, want %d at least, or 0", f.rate, leastProbeRate)
	case f.interval < time.Second || f.interval > time.Hour:
		return usagef("--probe-interval is %v, want 1s to 1h", f.interval)
	}
	if f.containers < 0 || f.containers > mostProbeContainers {
		return usagef("--probe-containers is %d, want 0 to %d", f.containers, mostProbeContainers)
	}
	if len(f.dscp) == 0 || len(f.dscp) > mostProbeClasses {
		return usagef("--probe-dscp has %d classes of service, want 1 to %d", len(f.dscp), mostProbeClasses)
	}
	for i, class := range f.dscp {
		if class > 63 || slices.Contains(f.dscp[:i], class) {
			return usagef("--probe-dscp has %d, want numbers from 0 to 63, each once", class)
		}
	}
	return nil
}

// mostProbeClasses are as many as there are classes of real traffic in most networks.
const mostProbeClasses = 8

// mostProbeContainers is more than fits into the default rate.
const mostProbeContainers = 64

// leastProbeRate is room for sessions to seven hosts, with a packet of each in every control.MaxInterval.
const leastProbeRate = 1000

// server is what agents ask.
func (f *controlFlags) server(frames framelog.Log, registry control.Registry, log *slog.Logger) *control.Server {
	containers := f.containers
	if containers == 0 {
		containers = -1
	}
	var classes []uint8
	for _, class := range f.dscp {
		classes = append(classes, uint8(class))
	}
	return control.NewServer(control.ServerOptions{
		Rate: f.rate, Containers: containers, Classes: classes, Interval: f.interval, Registry: registry, Logger: log,
		Window: func(ctx context.Context, tenant string, from, to time.Time) (*frame.Window, error) {
			for w, err := range frames.Windows(ctx, framelog.Query{Tenant: tenant, Times: []time.Time{from, to},
				Only: graph.HostPairColumns}) {
				return w, err
			}
			return &frame.Window{From: from, To: to}, nil
		},
		Talks: func(w *frame.Window, ignore func(netip.AddrPort) bool) (talks control.Talks) {
			hosts, containers := graph.HostPairs(w, ignore)
			for _, p := range hosts {
				talks.Hosts = append(talks.Hosts, control.Talk{Pair: control.Pair{A: p.A, B: p.B}, Bytes: p.Bytes})
			}
			for _, p := range containers {
				talks.Containers = append(talks.Containers, control.ContainerTalk{
					ClientHost: p.Client.Host, Client: control.Container{ID: p.Client.ID, Name: p.Client.Name},
					ServerHost: p.Server.Host, Server: control.Container{ID: p.Server.ID, Name: p.Server.Name},
					ClientAddresses: p.Client.Addresses, At: p.Server.Addresses[0], Bytes: p.Bytes})
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
