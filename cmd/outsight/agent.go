package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"outsight/internal/access"
	"outsight/internal/agent"
	"outsight/internal/export"
	"outsight/internal/probe"
)

// exportFlags say where an agent sends what it sees.
type exportFlags struct {
	options export.Options
	files   export.Files
	otlp    string
}

func (f *exportFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.options.Server, "server", "",
		`URL of an "outsight server" to send everything to, as in http://HOST:4318`)
	c.Flags().DurationVar(&f.options.SendEvery, "send-every", 0,
		"time between two frames that are sent, for large fleets: one that begins a minute is sent in any case; 0 sends "+
			"one each second")
	c.Flags().StringVar(&f.otlp, "otlp", "",
		"URL of another backend that takes OTLP over HTTP, as in https://HOST:4318/v1/metrics, to send series to each second")
	c.Flags().StringVar(&f.options.Spool, "spool", defaultSpool, "directory that keeps what the server has not taken yet")
	c.Flags().Int64Var(&f.options.MaxBytes, "spool-bytes", export.DefaultMaxBytes,
		"bytes that it may keep; the oldest go when there are more")
	c.Flags().StringVar(&f.options.Tenant, "tenant", "", "tenant to send for")
	c.Flags().StringVar(&f.files.Token, "token-file", "", "file with the token to send")
	c.Flags().StringVar(&f.files.CA, "tls-ca", "",
		"certificates in PEM that may have signed the server's (default: the system's)")
	c.Flags().StringVar(&f.files.Cert, "tls-cert", "", "certificate in PEM to show to the server")
	c.Flags().StringVar(&f.files.Key, "tls-key", "", "its key in PEM")
}

// ofListener begins the flags of an agent's own address: without it they are what it shows to a server.
const ofListener = "listen-"

const defaultSpool = "/var/lib/outsight/spool"

// newAgent is the command that cmd/outsight-agent is alone.
func newAgent() *cobra.Command {
	var watch watchFlags
	var export exportFlags
	var address string
	listen := secureFlags{access.Files{Prefix: ofListener}}
	c := &cobra.Command{
		Use:   "agent",
		Short: "Watch this host for a server, for Prometheus and for the command line, without a store",
		Long: `Watch this host, send what is seen to a server, and answer /metrics, "outsight top" and
"outsight map" on this host. Keeps nothing but what a server has not taken yet, on the disk, and the samples of
the last minutes, in memory. Needs root.`,
		Example: `  sudo outsight agent
  sudo outsight agent --server https://outsight.example:4318 --token-file /etc/outsight/token
  sudo outsight agent --listen 0.0.0.0:8471 --listen-token-file /etc/outsight/scrape`,
		RunE: func(c *cobra.Command, _ []string) error {
			log, err := logger(c)
			if err != nil {
				return err
			}
			host, err := watch.host(log)
			if err != nil {
				return err
			}
			var addresses []string
			if address != "" {
				addresses = []string{address}
			}
			door, err := listen.open(log, addresses...)
			if err != nil {
				return err
			}
			host.Anomalies = anomaliesIn("")
			o := agent.ServeOptions{Host: host, Listen: address, Access: door, Socket: watch.socket, Output: c.OutOrStdout()}
			return asListenError(address, serveAgent(c.Context(), o, export, watch.probes))
		},
	}
	watch.add(c)
	watch.addFlight(c)
	c.Flags().BoolVar(&watch.regions.Only, "region-only", false, agent.RegionOnlyHelp)
	export.add(c)
	listen.add(c)
	c.Flags().StringVar(&address, "listen", agent.DefaultListen, "address of /metrics; empty for none")
	return c
}

// serveAgent runs an agent, and what sends to servers.
func serveAgent(ctx context.Context, o agent.ServeOptions, f exportFlags, probes probe.MonitorOptions) error {
	f.options.Logger = o.Host.Logger
	targets := export.Targets(f.options, f.files, f.otlp)
	if len(targets) == 0 {
		if err := openProbes(&o.Host, probes); err != nil {
			return err
		}
		return agent.Serve(ctx, o)
	}
	if err := checkPrivileges(); err != nil {
		return err
	}
	if err := access.CheckSecretFile(f.files.Token); err != nil {
		return fmt.Errorf("reading --token-file: %w", err)
	}
	return export.WhileAll(ctx, targets, func(exporters []*export.Exporter) error {
		for _, e := range exporters {
			if o.Host.AddExporter(e); !e.OTLP() {
				probes.Server = e
			}
		}
		if err := openProbes(&o.Host, probes); err != nil {
			return err
		}
		return agent.Serve(ctx, o)
	})
}

// openProbes has an agent measure the network to other hosts, if that is asked for.
func openProbes(host *agent.HostOptions, o probe.MonitorOptions) error {
	o.Logger, o.Clock = host.Logger, host.Clock
	return o.Use(func(m *probe.Monitor) { host.Probes = m })
}
