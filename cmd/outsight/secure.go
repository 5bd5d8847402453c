package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"

	"github.com/spf13/cobra"

	"outsight/internal/api"
	"outsight/internal/store"
)

// secureFlags say who may talk to what this process listens on. They are read once and hold for
// all its addresses.
type secureFlags struct {
	tokenFile, tlsCert, tlsKey, clientCA string
	// tenants is a file, for commands that keep more than one tenant.
	tenants string
}

func (f *secureFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.tokenFile, "token-file", "", "file of tokens, one on each line, one of which requests must have")
	c.Flags().StringVar(&f.tlsCert, "tls-cert", "", "certificate to show, in PEM: talk TLS")
	c.Flags().StringVar(&f.tlsKey, "tls-key", "", "its key, in PEM")
	c.Flags().StringVar(&f.clientCA, "client-ca", "", "certificates in PEM, one of which must have signed a client's")
}

func (f *secureFlags) addTenants(c *cobra.Command) {
	c.Flags().StringVar(&f.tenants, "tenants", "", "YAML file of tenants and their tokens, as in \"shop: [TOKEN]\"; each sees its own alone")
}

// access is what secureFlags came to.
type access struct {
	// auth is nil where no token is asked for.
	auth *api.Authenticator
	// tls is nil where TLS is not talked.
	tls *tls.Config
}

// open reads the files, and refuses what would let strangers in: an address that others than
// this host can reach, without a token or a client's certificate.
func (f *secureFlags) open(log *slog.Logger, addresses ...string) (a access, err error) {
	if f.tokenFile != "" && f.tenants != "" {
		return a, usagef("--token-file and --tenants cannot both be given: the file of tenants has their tokens")
	}
	if (f.tlsCert == "") != (f.tlsKey == "") {
		return a, usagef("--tls-cert and --tls-key go together")
	}
	if f.clientCA != "" && f.tlsCert == "" {
		return a, usagef("--client-ca needs --tls-cert and --tls-key: certificates are asked for over TLS alone")
	}
	switch {
	case f.tokenFile != "":
		a.auth, err = api.ReadTokens(f.tokenFile)
	case f.tenants != "":
		a.auth, err = api.ReadTenants(f.tenants)
	}
	if err != nil {
		return a, err
	}
	if a.tls, err = f.readTLS(); err != nil {
		return a, err
	}
	for _, address := range addresses {
		if isLoopback(address) {
			continue
		}
		if a.auth == nil && f.clientCA == "" {
			return a, usagef("--listen %s can be reached by others than this host, who would not be asked who they are: "+
				"give --token-file, or --tls-cert, --tls-key and --client-ca, or listen on 127.0.0.1", address)
		}
		if a.auth != nil && a.tls == nil {
			log.Warn("tokens go over the network in clear: give --tls-cert and --tls-key, or let a proxy talk TLS", "address", address)
		}
	}
	return a, nil
}

func (f *secureFlags) readTLS() (*tls.Config, error) {
	if f.tlsCert == "" {
		return nil, nil
	}
	pair, err := tls.LoadX509KeyPair(f.tlsCert, f.tlsKey)
	if err != nil {
		return nil, fmt.Errorf("reading --tls-cert %q and --tls-key %q: %w", f.tlsCert, f.tlsKey, err)
	}
	c := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	if f.clientCA != "" {
		if c.ClientCAs, err = readCertificates("client-ca", f.clientCA); err != nil {
			return nil, err
		}
		c.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return c, nil
}

// readCertificates reads the file of a flag.
func readCertificates(flag, path string) (*x509.CertPool, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading --%s: %w", flag, err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("reading --%s %q: it has no certificate in PEM", flag, path)
	}
	return pool, nil
}

// listen listens at an address, over TLS where that is configured.
func (a *access) listen(address string) (net.Listener, error) {
	l, err := listen(address)
	if err != nil {
		return nil, err
	}
	return a.secure(l), nil
}

// secure is l, over TLS where that is configured.
func (a *access) secure(l net.Listener) net.Listener {
	if a.tls == nil {
		return l
	}
	return tls.NewListener(l, a.tls)
}

// handler is everything that is served over HTTP from a store; each tenant has one of its own.
func (a *access) handler(kept anyStore, options api.Options) http.Handler {
	if r, ok := kept.(interface{ RelativeError() float64 }); ok {
		options.RelativeError = r.RelativeError()
	}
	tenants := a.auth.Tenants()
	if len(tenants) == 0 {
		options.Prometheus, options.Auth = api.Prometheus(kept), a.auth
		return api.New(kept, options)
	}
	handlers := map[string]http.Handler{}
	for _, tenant := range tenants {
		view := store.ForTenant(kept, tenant)
		options.Prometheus, options.Tenant = api.Prometheus(view), tenant
		handlers[tenant] = api.New(view, options)
	}
	return api.ByTenant(a.auth, handlers)
}

// isLoopback is whether only programs of this host can reach an address. A name other than
// localhost may be anything.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}
