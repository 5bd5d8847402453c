package main

import (
	"github.com/spf13/cobra"

	"outsight/internal/agent"
)

// newAgent is the command that cmd/outsight-agent is alone.
func newAgent() *cobra.Command {
	var watch watchFlags
	var address string
	c := &cobra.Command{
		Use:   "agent",
		Short: "Watch this host for a Prometheus server and the command line, without a store",
		Long: `Watch this host and answer /metrics, and "outsight top" and "outsight map" on this host.
Keeps nothing but the samples of the last minutes, in memory. Needs root.`,
		Example: `  sudo outsight agent
  sudo outsight agent --listen 0.0.0.0:8471 --all`,
		RunE: func(c *cobra.Command, _ []string) error {
			log, err := logger(c)
			if err != nil {
				return err
			}
			host, err := watch.host(log)
			if err != nil {
				return err
			}
			host.Anomalies = anomaliesIn("")
			err = agent.Serve(c.Context(), agent.ServeOptions{
				Host: host, Listen: address, Socket: watch.socket, Output: c.OutOrStdout(),
			})
			return asListenError(address, err)
		},
	}
	watch.add(c)
	watch.addFlight(c)
	c.Flags().StringVar(&address, "listen", agent.DefaultListen, "address of /metrics; empty for none")
	return c
}
