// Command outsight is the whole product in one binary: it watches the containers of this host
// from the outside, keeps what it saw, and shows it.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
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
