package main

import (
	"errors"
	"log/slog"
	"net"
	"net/http"

	"github.com/spf13/cobra"

	"outsight/internal/access"
	"outsight/internal/agent"
	"outsight/internal/api"
	"outsight/internal/ingest"
	"outsight/internal/store"
)

// secureFlags say who may talk to what this process listens on.
type secureFlags struct{ access.Files }

func (f *secureFlags) add(c *cobra.Command) {
	for _, flag := range f.Flags() {
		c.Flags().StringVar(flag.Value, flag.Name, "", flag.Help)
	}
}

func (f *secureFlags) addTenants(c *cobra.Command) {
	c.Flags().StringVar(&f.Tenants, "tenants", "",
		"YAML file of tenants and their tokens, as in \"shop: [TOKEN]\"; each sees its own alone; the tokens of "+
			"--token-file are then the operator's, for /metrics alone")
}

// open is Files.Open, whose UsageError is one of the command's usage.
func (f *secureFlags) open(log *slog.Logger, addresses ...string) (access.Access, error) {
	a, err := f.Open(log, addresses...)
	var usage access.UsageError
	if errors.As(err, &usage) {
		err = usageError{err}
	}
	return a, err
}

// serveFrom is everything that is served over HTTP from a store; each tenant has a handler of its own.
func serveFrom(kept anyStore, a access.Access, header tenantHeader, options api.Options) http.Handler {
	options.Hold, options.TenantQueries = kept.Hold, kept.TenantQueries
	if options.Busy == nil {
		options.Busy = api.NewSlots()
	}
	options.Hosts = a.Hosts
	of := func(tenant string) http.Handler {
		o, view := options, store.ForTenant(kept, tenant)
		o.Prometheus, o.Tenant = api.Prometheus(view), tenant
		return api.New(o)
	}
	if tenants := a.Auth.Tenants(); len(tenants) > 0 {
		handlers := map[string]http.Handler{}
		for _, tenant := range tenants {
			handlers[tenant] = of(tenant)
		}
		return access.ByTenant(a.Auth, handlers)
	}
	options.Auth = a.Auth // for the handlers that of makes, too
	o := options
	o.Prometheus = api.Prometheus(kept)
	if header == headerOptional {
		o.FramesOf = ingest.DefaultTenant
	}
	all := api.New(o)
	switch header {
	case headerOptional:
		return access.ByHeader(all, all, of)
	case headerRequired:
		return access.ByHeader(all, nil, of)
	}
	return all
}

// tenantHeader is whether a tenant may be, or has to be, named in a header.
type tenantHeader string

// The values of --tenant-header. A bare flag is headerOptional.
const (
	headerOff      tenantHeader = "off"
	headerOptional tenantHeader = "optional"
	headerRequired tenantHeader = "required"
)

func listen(address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, listenError{address, err}
	}
	return l, nil
}

// pageURL is where a browser on this host finds what l serves.
func pageURL(l net.Listener, a access.Access) string {
	host, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return l.Addr().String()
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return a.Scheme() + "://" + net.JoinHostPort(host, port)
}

// asListenError names the address, so that the message can say what to do.
func asListenError(address string, err error) error {
	if errors.Is(err, agent.ErrListen) {
		return listenError{address, err}
	}
	return err
}
