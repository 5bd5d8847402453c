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

// Files say who may talk to what a process listens on. They are read once, by Open, and hold for all its addresses.
type Files struct {
	// Tokens has a token on each line, one of which requests must have. Tenants is a YAML file of tenants and their
	// tokens; with it, those of Tokens are the operator's, who may read the sums over all tenants in /metrics and no more.
	Tokens, Tenants string
	// Cert and Key in PEM are shown to clients: talk TLS. ClientCA has the certificates one of which must have
	// signed a client's.
	Cert, Key, ClientCA string
	// Names are hosts with commas between them, as Door has them.
	Names string
	// Prefix is what the names of Flags begin with.
	Prefix string
}

// Flag is a flag of a command that fills a field of Files.
type Flag struct {
	Name, Help string
	Value      *string
}

// Flags are those that a command offers, and the names that messages of Open have. Tenants is not among them: few
// commands keep more than one.
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

// UsageError is a choice of flags that makes no sense, or would let strangers in.
type UsageError struct{ error }

func usage(format string, args ...any) error { return UsageError{fmt.Errorf(format, args...)} }

// Access is what Files came to. The zero value asks nobody anything.
type Access struct {
	// Auth is nil where no token is asked for.
	Auth *Authenticator
	// TLS is nil where TLS is not talked.
	TLS *tls.Config
	// Door keeps out what web pages of others send; nil for the default.
	Door *Door
}

// Open reads the files, and refuses what would let strangers in: an address that others than
// this host can reach, without a token or a client's certificate. That, what is no address, and flags that do not go
// together, is a UsageError.
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
	if a.Door, err = newDoor(f.flag(defaultNameFlag), f.Names, a.Auth != nil || f.ClientCA != "", addresses); err != nil {
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

// ReadCertificates reads the file of a flag, which errors name.
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

// Secure is l, over TLS where that is configured.
func (a *Access) Secure(l net.Listener) net.Listener {
	if a.TLS == nil {
		return l
	}
	return tls.NewListener(l, a.TLS)
}

// Senders passes on to a handler of senders what no web page of others sent. The handler asks for tokens itself, since
// it tells senders in its own way.
func (a *Access) Senders(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !a.Door.admitsHost(w, r) || !a.Door.admitsOrigin(w, r) {
			return
		}
		if g, ok := a.Auth.find(r.Header.Get("Authorization")); ok && g.roles&Send != 0 {
			Admit(r)
		}
		next.ServeHTTP(w, r)
	})
}

// Refusals are the requests that were refused for want of a token, of a role, or because of where they come from.
func (a *Access) Refusals() []model.Refusal {
	return append(a.Auth.Refusals(), a.Door.Refusals()...)
}

// Scheme is that of the URLs of what listens: http or https.
func (a *Access) Scheme() string {
	if a.TLS == nil {
		return "http"
	}
	return "https"
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
