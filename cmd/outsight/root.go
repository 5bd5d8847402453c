package main

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// usageError is a command line that makes no sense: exit code 2.
type usageError struct{ error }

// errSaid is a failure that the command's output says already.
var errSaid = errors.New("failed")

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "outsight",
		Short: "See what containers do, from the outside",
		Long: `Outsight watches every container of this host without touching one of them: who runs,
what each costs, who talks to whom, how much and how slowly.`,
		Example: `  sudo outsight up       watch this host and open a page for it
  sudo outsight top      the containers, live
  sudo outsight map      who talks to whom
  sudo outsight record   samples of every container, every 50 ms, in files
  outsight doctor        what works on this host, and what the others would take`,
		Version: version(),
		Args:    noCommand,
		RunE:    func(c *cobra.Command, _ []string) error { return c.Help() },
		PersistentPreRunE: func(c *cobra.Command, _ []string) error {
			_, err := logger(c) // also of commands that log nothing
			return err
		},
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SuggestionsMinimumDistance = 2
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetHelpCommand(&cobra.Command{Use: "no-help", Hidden: true})
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.PersistentFlags().String("log", "info", "what to log: debug, info, warn or error")
	commands := []*cobra.Command{
		newUp(), newTop(), newMap(), newPath(), newRecord(), newReport(), newDoctor(), newDemo(), newAgent(), newServer(),
		newVersion(), newDemoService(),
	}
	for _, c := range commands {
		if c.Args == nil {
			c.Args = noArguments
		}
	}
	root.AddCommand(commands...)
	return root
}

func noArguments(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("%s takes no argument, got %q", c.Name(), args[0])
	}
	return nil
}

func noCommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	err := fmt.Errorf("there is no command %q", args[0])
	if near := c.SuggestionsFor(args[0]); len(near) > 0 {
		err = fmt.Errorf("%w; did you mean %s?", err, strings.Join(near, " or "))
	}
	return usageError{err}
}

// oneOf checks a flag that has few values.
func oneOf(flag, value string, values ...string) error {
	if !slices.Contains(values, value) {
		return usagef("--%s is %q, want %s", flag, value, strings.Join(values, ", "))
	}
	return nil
}

// logger writes to the command's error output.
func logger(c *cobra.Command) (*slog.Logger, error) {
	name, err := c.Flags().GetString("log")
	if err != nil {
		return nil, err
	}
	var level slog.Level
	if err := oneOf("log", name, "debug", "info", "warn", "error"); err != nil {
		return nil, err
	}
	if err := level.UnmarshalText([]byte(name)); err != nil {
		return nil, usageError{err}
	}
	return slog.New(slog.NewTextHandler(c.ErrOrStderr(), &slog.HandlerOptions{Level: level})), nil
}

// version is that of the module, or the commit that it was built from.
func version() string {
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := build.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range build.Settings {
		if s.Key == "vcs.revision" {
			return s.Value[:min(12, len(s.Value))]
		}
	}
	return "development"
}
