// Command outsight is the whole product in one binary: it watches the containers of this host
// from the outside, keeps what it saw, and shows it.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"outsight/internal/agent"
	"outsight/internal/export"
	"outsight/internal/ingest"
	"outsight/internal/store"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// interrupted is the exit code of what was ended by a signal before it was done.
const interrupted = 130

// sameSignal is how long after a signal another one is taken for the same.
const sameSignal = time.Second

// run carries out one command line. The answer is the exit code: 0 done, 1 failed, 2 wrong usage,
// 130 interrupted.
func run(args []string, out, errOut io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// The first signal asks for an orderly end; a later one ends the process at once. One that comes
	// right behind is the same, sent to the process and to its group, as timeout(1) does.
	context.AfterFunc(ctx, func() { time.AfterFunc(sameSignal, stop) })

	root := newRoot()
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(errOut)
	command, err := root.ExecuteContextC(ctx)
	var usage usageError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &usage):
		fmt.Fprintf(errOut, "outsight: %v\nSee: %s --help\n", err, command.CommandPath())
		return 2
	case errors.Is(err, errSaid):
		return 1
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		return interrupted
	}
	fmt.Fprintf(errOut, "outsight: %v\n", explain(err, command))
	return 1
}

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
		newUp(), newTop(), newMap(), newMatrix(), newPath(), newPlace(), newWhatif(), newRunOut(), newRecord(), newReport(),
		newExport(), newCollect(), newProbe(), newReflector(), newDoctor(), newDemo(), newAgent(), newServer(), newVersion(),
		newDemoService(),
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

// listenError and dataError say what was tried when an error occurred.
type listenError struct {
	address string
	error
}

type dataError struct {
	dir string
	error
}

func (e listenError) Unwrap() error { return e.error }
func (e dataError) Unwrap() error   { return e.error }

// explain adds to an error what to do next, where that is known.
func explain(err error, c *cobra.Command) error {
	var listen listenError
	var data dataError
	var receive receiveError
	switch {
	case errors.As(err, &receive) && errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%w: stop what listens there, or choose another address with --%s", err, receive.flag)
	case errors.As(err, &receive):
		return fmt.Errorf("%w: choose an address of this host with --%s, or none with --%s ''", err, receive.flag,
			receive.flag)
	case errors.Is(err, export.ErrServer):
		return fmt.Errorf("%w: correct --server", err)
	case errors.Is(err, export.ErrInUse):
		return fmt.Errorf("%w: stop that agent first, or choose another directory with --spool", err)
	case errors.Is(err, agent.ErrPrivilege):
		return fmt.Errorf("%w: run it as root, as in \"sudo %s\"", err, c.CommandPath())
	case errors.Is(err, agent.ErrSocketTaken):
		return fmt.Errorf("%w: stop that one first, or choose another path with --socket", err)
	case errors.As(err, &listen) && errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("the address %s is taken: stop what listens there, or choose another with --listen", listen.address)
	case errors.As(err, &listen):
		return fmt.Errorf("%w: choose an address of this host with --listen, as in --listen 127.0.0.1:8470", err)
	case errors.Is(err, store.ErrInUse), errors.Is(err, ingest.ErrInUse):
		return fmt.Errorf("%w: stop that server first, or choose another directory with --data", err)
	case errors.As(err, &data) && (errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS)):
		return fmt.Errorf("%w: make %q writable, or choose another directory with --data", err, data.dir)
	case errors.As(err, &data) && errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: name the directory that \"outsight up\" wrote with --data, or begin an empty one by naming "+
			"addresses with --otlp or --otlp-http", err)
	}
	return err
}
