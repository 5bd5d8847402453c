package access

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"

	"outsight/internal/model"
)

// Files are the paths and options from which Open makes the access rules of a process. They hold for all addresses that
// it listens on.
type Files struct {
	// Tokens is a file with a token on each line, of which a request must have one. Tenants is a YAML file of tenants
	// and their tokens; with it, those of Tokens are the operator's, who may read the sums over all tenants in /metrics
	// and nothing else.
	Tokens, Tenants string
	// Cert and Key, in PEM, turn TLS on. ClientCA has the certificates of which one must have signed a client's.
	Cert, Key, ClientCA string
	// Names are host names, separated by commas: see HostPolicy.Names.
	Names string
	// Prefix begins the names of all Flags.
	Prefix string
}

// Flag is a command-line flag that sets a field of Files.
type Flag struct {
	Name, Help string
	Value      *string
}

// Flags returns the flags of a command; errors of Open use their names. Tenants is not among them: few commands have
// several.
func (f *Files) Flags() []Flag {
	return []Flag{
		{f.flag("token-file"), "file of tokens, one of which requests must have: on each line one and its roles, as in \"TOKEN read,record\" (send, read, record, administer; without, all)", &f.Tokens},
		{f.flag("tls-cert"), "certificate to show, in PEM: talk TLS", &f.Cert},
		{f.flag("tls-key"), "its key, in PEM", &f.Key},
		{f.flag("client-ca"), "certificates in PEM, one of which must have signed a client's", &f.ClientCA},
		{f.flag(defaultNameFlag), "names of hosts, with commas between them, by which requests may call this process besides its own, and whose pages may send requests: that of a proxy, say", &f.Names},
	}
}

func (f *Files) flag(name string) string { return f.Prefix + name }

// UsageError is an invalid combination of flags, or one that would allow unauthenticated access.
type UsageError struct{ error }

func usage(format string, args ...any) error { return UsageError{fmt.Errorf(format, args...)} }

// Access is what Open makes of Files. The zero value allows everybody.
type Access struct {
	// Auth checks tokens; nil if none is needed.
	Auth *Authenticator
	// TLS is nil if TLS is off.
	TLS *tls.Config
	// Hosts refuses requests of foreign web pages; nil for the default.
	Hosts *HostPolicy
}

// Open reads the files. It returns a UsageError for an invalid address, for flags that contradict each other, and for
// an address that other hosts can reach without a token or a client's certificate.
func (f *Files) Open(log *slog.Logger, addresses ...string) (a Access, err error) {
	for _, address := range addresses {
		if err := checkAddress(address); err != nil {
			return a, err
		}
	}
	if (f.Cert == "") != (f.Key == "") {
		return a, usage("--%s and --%s go together", f.flag("tls-cert"), f.flag("tls-key"))
	}
	if f.ClientCA != "" && f.Cert == "" {
		return a, usage("--%s needs --%s and --%s: certificates are asked for over TLS alone", f.flag("client-ca"),
			f.flag("tls-cert"), f.flag("tls-key"))
	}
	if a.Auth, err = f.authenticator(); err != nil {
		return a, err
	}
	if a.TLS, err = f.readTLS(); err != nil {
		return a, err
	}
	authenticated := a.Auth != nil || f.ClientCA != ""
	if a.Hosts, err = newHostPolicy(f.flag(defaultNameFlag), f.Names, authenticated, addresses); err != nil {
		return a, err
	}
	for _, address := range addresses {
		if isLoopback(address) {
			continue
		}
		if a.Auth == nil && f.ClientCA == "" {
			return a, usage("--listen %s can be reached by others than this host, who would not be asked who they are: "+
				"give --%s, or --%s, --%s and --%s, or listen on 127.0.0.1",
				address, f.flag("token-file"), f.flag("tls-cert"), f.flag("tls-key"), f.flag("client-ca"))
		}
		if a.Auth != nil && a.TLS == nil {
			log.Warn(fmt.Sprintf("tokens go over the network in clear: give --%s and --%s, or let a proxy talk TLS",
				f.flag("tls-cert"), f.flag("tls-key")), "address", address)
		}
	}
	return a, nil
}

func (f *Files) authenticator() (*Authenticator, error) {
	switch {
	case f.Tenants != "":
		return ReadTenants(f.Tenants, f.Tokens)
	case f.Tokens != "":
		return ReadTokens(f.Tokens)
	}
	return nil, nil
}

func (f *Files) readTLS() (*tls.Config, error) {
	if f.Cert == "" {
		return nil, nil
	}
	pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return nil, fmt.Errorf("reading --%s %q and --%s %q: %w", f.flag("tls-cert"), f.Cert, f.flag("tls-key"), f.Key, err)
	}
	c := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2", "http/1.1"}}
	if f.ClientCA != "" {
		if c.ClientCAs, err = ReadCertificates(f.flag("client-ca"), f.ClientCA); err != nil {
			return nil, err
		}
		c.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return c, nil
}

// ReadCertificates reads the PEM file of a flag; errors name the flag.
func ReadCertificates(flag, path string) (*x509.CertPool, error) {
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

// Secure wraps l in TLS if that is configured.
func (a *Access) Secure(l net.Listener) net.Listener {
	if a.TLS == nil {
		return l
	}
	return tls.NewListener(l, a.TLS)
}

// Senders refuses requests of foreign web pages and passes others to a handler that checks tokens itself, since its
// protocol has errors of its own.
func (a *Access) Senders(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !a.Hosts.allowsHost(w, r) || !a.Hosts.allowsOrigin(w, r) {
			return
		}
		if g, ok := a.Auth.find(r.Header.Get("Authorization")); ok && g.roles&Send != 0 {
			Admit(r)
		}
		next.ServeHTTP(w, r)
	})
}

// Refusals are the requests refused for a missing token or role, or for their origin.
func (a *Access) Refusals() []model.Refusal {
	return append(a.Auth.Refusals(), a.Hosts.Refusals()...)
}

// Scheme is the scheme of the URLs of a listener: http or https.
func (a *Access) Scheme() string {
	if a.TLS == nil {
		return "http"
	}
	return "https"
}

// isLoopback reports whether only programs of this host can reach an address. A name other than localhost can resolve
// to anything.
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
