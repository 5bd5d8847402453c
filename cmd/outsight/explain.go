package main

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/spf13/cobra"

	"outsight/internal/agent"
	"outsight/internal/export"
	"outsight/internal/ingest"
	"outsight/internal/store"
)

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
