package access

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"outsight/test/issuer"
)

// Only clients with a certificate of the authority get through; without one asked for, TLS is
// all there is to it.
func TestClientsShowCertificates(t *testing.T) {
	ours, theirs := issuer.New(t, "ours"), issuer.New(t, "theirs")
	cert, key := ours.Leaf("server", x509.ExtKeyUsageServerAuth)
	roots := ours.Pool()
	start := func(f Files) string {
		t.Helper()
		a, err := f.Open(slog.New(slog.DiscardHandler), "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		server := &http.Server{ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0),
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Proto) })}
		go server.Serve(a.Secure(l))
		t.Cleanup(func() { server.Close() })
		return a.Scheme() + "://" + l.Addr().String()
	}
	get := func(url string, certificates ...tls.Certificate) (string, error) {
		transport := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: roots,
			Certificates: certificates}}
		defer transport.CloseIdleConnections()
		response, err := (&http.Client{Transport: transport, Timeout: 30 * time.Second}).Get(url)
		if err != nil {
			return "", err
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		return string(body), err
	}
	pair := func(i *issuer.Issuer, name string, usage x509.ExtKeyUsage) tls.Certificate {
		t.Helper()
		p, err := tls.LoadX509KeyPair(i.Leaf(name, usage))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	mutual := start(Files{Cert: cert, Key: key, ClientCA: ours.CA})
	if !strings.HasPrefix(mutual, "https://127.0.0.1:") {
		t.Errorf("the page is at %q", mutual)
	}
	if body, err := get(mutual, pair(ours, "client", x509.ExtKeyUsageClientAuth)); err != nil || body != "HTTP/2.0" {
		t.Errorf("our client: %q, %v", body, err)
	}
	for name, certificates := range map[string][]tls.Certificate{
		"nobody": nil, "another authority's": {pair(theirs, "client", x509.ExtKeyUsageClientAuth)},
		"a server": {pair(ours, "other", x509.ExtKeyUsageServerAuth)},
	} {
		if body, err := get(mutual, certificates...); err == nil {
			t.Errorf("%s got through: %q", name, body)
		}
	}
	if body, err := get(start(Files{Cert: cert, Key: key})); err != nil || body != "HTTP/2.0" {
		t.Errorf("TLS alone: %q, %v", body, err)
	}
}

func TestWhoMayListenWhere(t *testing.T) {
	dir := t.TempDir()
	tokens := filepath.Join(dir, "tokens")
	if err := os.WriteFile(tokens, []byte("0123456789abcdef\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	i := issuer.New(t, "ours")
	cert, key := i.Leaf("server", x509.ExtKeyUsageServerAuth)
	f := func(address string, flags Files, refused bool) {
		t.Helper()
		_, err := flags.Open(slog.New(slog.DiscardHandler), "127.0.0.1:1", address)
		var usage UsageError
		if (err != nil) != refused || err != nil && !errors.As(err, &usage) && flags.ClientCA != key {
			t.Errorf("%q with %+v: %v", address, flags, err)
		}
	}
	for _, address := range []string{"127.0.0.1:80", "127.8.8.8:80", "[::1]:80", "localhost:80", "[::ffff:127.0.0.1]:80"} {
		f(address, Files{}, false)
	}
	for _, address := range []string{":80", "0.0.0.0:80", "[::]:80", "10.1.2.3:80", "example.org:80",
		"localhost.example.org:80"} {
		f(address, Files{}, true)
		f(address, Files{Cert: cert, Key: key}, true)
		f(address, Files{Tokens: tokens}, false)
		f(address, Files{Cert: cert, Key: key, ClientCA: i.CA}, false)
	}
	for _, none := range []string{"80", "", "127.0.0.1:65536", "127.0.0.1:nothing", "300.1.1.1:80", "[::1::2]:80"} {
		f(none, Files{}, true)
		f(none, Files{Tokens: tokens}, true)
	}
	tenants := filepath.Join(dir, "tenants.yml")
	if err := os.WriteFile(tenants, []byte("shop: [fedcba9876543210]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f("10.1.2.3:80", Files{Tokens: tokens, Tenants: tenants}, false)
	f("10.1.2.3:80", Files{Tenants: tenants}, false)
	f("127.0.0.1:80", Files{Cert: cert, Key: key, ClientCA: key}, true)
}

// The names of flags are in the messages, with what comes before them.
func TestMessagesNameTheFlags(t *testing.T) {
	f := Files{Prefix: "listen-"}
	var names []string
	for _, flag := range f.Flags() {
		names = append(names, flag.Name)
	}
	if got := strings.Join(names, " "); got != "listen-token-file listen-tls-cert listen-tls-key listen-client-ca listen-allow-host" {
		t.Errorf("flags %s", got)
	}
	_, err := f.Open(slog.New(slog.DiscardHandler), "0.0.0.0:8471")
	want := "--listen 0.0.0.0:8471 can be reached by others than this host, who would not be asked who they are: " +
		"give --listen-token-file, or --listen-tls-cert, --listen-tls-key and --listen-client-ca, or listen on 127.0.0.1"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	*f.Flags()[1].Value = "cert.pem"
	if _, err := f.Open(slog.New(slog.DiscardHandler)); err == nil ||
		err.Error() != "--listen-tls-cert and --listen-tls-key go together" {
		t.Errorf("a certificate without its key: %v", err)
	}
}
