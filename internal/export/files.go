package export

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"strings"
)

// Files are the paths of an agent's credentials and of the authorities that it trusts.
type Files struct {
	// Token is a file with a token on its first line; empty for no token.
	Token string
	// CA holds certificates of authorities in PEM; empty for the system's.
	CA string
	// Cert and Key are the client's, in PEM; empty for none.
	Cert, Key string
}

// Read reads the files into o.
func (f Files) Read(o *Options) error {
	if f.Token != "" {
		text, err := os.ReadFile(f.Token)
		if err != nil {
			return fmt.Errorf("reading the token: %w", err)
		}
		for line := range strings.Lines(string(text)) {
			if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
				o.Token = line
				break
			}
		}
		if o.Token == "" || strings.ContainsFunc(o.Token, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return fmt.Errorf("reading the token: %q has none on its first line", f.Token)
		}
	}
	if f.CA == "" && f.Cert == "" && f.Key == "" {
		return nil
	}
	o.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	if f.CA != "" {
		text, err := os.ReadFile(f.CA)
		if err != nil {
			return fmt.Errorf("reading the certificates of authorities: %w", err)
		}
		o.TLS.RootCAs = x509.NewCertPool()
		if !o.TLS.RootCAs.AppendCertsFromPEM(text) {
			return fmt.Errorf("reading the certificates of authorities: %q has none in PEM", f.CA)
		}
	}
	if f.Cert != "" || f.Key != "" {
		pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
		if err != nil {
			return fmt.Errorf("reading the certificate %q and its key %q: %w", f.Cert, f.Key, err)
		}
		o.TLS.Certificates = []tls.Certificate{pair}
	}
	return nil
}
