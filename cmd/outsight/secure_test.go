package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// issuer signs certificates for a test and writes them to files.
type issuer struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newIssuer(t *testing.T, name string) *issuer {
	i := &issuer{t: t, dir: t.TempDir()}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	i.cert, i.key = template, nil
	i.cert, i.key = i.sign("ca", template)
	return i
}

func (i *issuer) sign(file string, template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	i.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		i.t.Fatal(err)
	}
	parent, signer := i.cert, i.key
	if signer == nil {
		signer = key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		i.t.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		i.t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{file + ".pem": {Type: "CERTIFICATE", Bytes: der}, file + "-key.pem": {Type: "EC PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(filepath.Join(i.dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			i.t.Fatal(err)
		}
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		i.t.Fatal(err)
	}
	return cert, key
}

// leaf is the paths of a new certificate for 127.0.0.1 and of its key.
func (i *issuer) leaf(name string, usage x509.ExtKeyUsage) (cert, key string) {
	i.sign(name, &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{usage}})
	return filepath.Join(i.dir, name+".pem"), filepath.Join(i.dir, name+"-key.pem")
}

// Only clients with a certificate of the authority get through; without one asked for, TLS is
// all there is to it.
func TestClientsShowCertificates(t *testing.T) {
	ours, theirs := newIssuer(t, "ours"), newIssuer(t, "theirs")
	cert, key := ours.leaf("server", x509.ExtKeyUsageServerAuth)
	roots := x509.NewCertPool()
	roots.AddCert(ours.cert)
	start := func(f secureFlags) string {
		t.Helper()
		a, err := f.open(slog.New(slog.DiscardHandler), "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		l, err := a.listen("127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		server := &http.Server{ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Proto) })}
		go server.Serve(l)
		t.Cleanup(func() { server.Close() })
		return pageURL(l, a)
	}
	get := func(url string, certificates ...tls.Certificate) (string, error) {
		transport := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: certificates}}
		defer transport.CloseIdleConnections()
		response, err := (&http.Client{Transport: transport, Timeout: 30 * time.Second}).Get(url)
		if err != nil {
			return "", err
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		return string(body), err
	}
	pair := func(i *issuer, name string, usage x509.ExtKeyUsage) tls.Certificate {
		t.Helper()
		p, err := tls.LoadX509KeyPair(i.leaf(name, usage))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	mutual := start(secureFlags{tlsCert: cert, tlsKey: key, clientCA: filepath.Join(ours.dir, "ca.pem")})
	if !strings.HasPrefix(mutual, "https://127.0.0.1:") {
		t.Errorf("the page is at %q", mutual)
	}
	if body, err := get(mutual, pair(ours, "client", x509.ExtKeyUsageClientAuth)); err != nil || body != "HTTP/2.0" {
		t.Errorf("our client: %q, %v", body, err)
	}
	for name, certificates := range map[string][]tls.Certificate{
		"nobody": nil, "another authority's": {pair(theirs, "client", x509.ExtKeyUsageClientAuth)}, "a server": {pair(ours, "other", x509.ExtKeyUsageServerAuth)},
	} {
		if body, err := get(mutual, certificates...); err == nil {
			t.Errorf("%s got through: %q", name, body)
		}
	}
	if body, err := get(start(secureFlags{tlsCert: cert, tlsKey: key})); err != nil || body != "HTTP/2.0" {
		t.Errorf("TLS alone: %q, %v", body, err)
	}
}

func TestWhoMayListenWhere(t *testing.T) {
	dir := t.TempDir()
	tokens := filepath.Join(dir, "tokens")
	if err := os.WriteFile(tokens, []byte("0123456789abcdef\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	i := newIssuer(t, "ours")
	cert, key := i.leaf("server", x509.ExtKeyUsageServerAuth)
	f := func(address string, flags secureFlags, refused bool) {
		t.Helper()
		_, err := flags.open(slog.New(slog.DiscardHandler), "127.0.0.1:1", address)
		if (err != nil) != refused {
			t.Errorf("%q with %+v: %v", address, flags, err)
		}
	}
	for _, address := range []string{"127.0.0.1:80", "127.8.8.8:80", "[::1]:80", "localhost:80", "[::ffff:127.0.0.1]:80"} {
		f(address, secureFlags{}, false)
	}
	for _, address := range []string{":80", "0.0.0.0:80", "[::]:80", "10.1.2.3:80", "example.org:80", "localhost.example.org:80", "80", ""} {
		f(address, secureFlags{}, true)
		f(address, secureFlags{tlsCert: cert, tlsKey: key}, true)
		f(address, secureFlags{tokenFile: tokens}, false)
		f(address, secureFlags{tlsCert: cert, tlsKey: key, clientCA: filepath.Join(i.dir, "ca.pem")}, false)
	}
	f("127.0.0.1:80", secureFlags{tokenFile: tokens, tenants: tokens}, true)
	f("127.0.0.1:80", secureFlags{tlsCert: cert, tlsKey: key, clientCA: key}, true)
}
