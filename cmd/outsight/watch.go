package main

import (
	"log/slog"

	"github.com/spf13/cobra"

	"outsight/internal/agent"
)

// watchFlags are what every command that watches this host has.
type watchFlags struct {
	all    bool
	socket string
}

func (f *watchFlags) add(c *cobra.Command) {
	c.Flags().BoolVar(&f.all, "all", false, "watch systemd services like containers")
	c.Flags().StringVar(&f.socket, "socket", agent.DefaultSocket, "where an agent answers the command line")
}

// checkPrivileges fails early, before anything was opened for nothing.
func checkPrivileges() error {
	p, err := agent.ReadPrivileges("")
	if err != nil {
		return err
	}
	return p.Check()
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }
