// Package issuer signs certificates for tests and writes them to files.
package issuer

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Issuer is an authority. Its files last as long as the test.
type Issuer struct {
	// Cert is the authority's own, CA its file.
	Cert *x509.Certificate
	CA   string
	t    *testing.T
	dir  string
	key  *ecdsa.PrivateKey
}

// New makes an authority of this name.
func New(t *testing.T, name string) *Issuer {
	t.Helper()
	i := &Issuer{t: t, dir: t.TempDir()}
	i.CA = filepath.Join(i.dir, "ca.pem")
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotAfter: time.Now().Add(time.Hour),
		IsCA:     true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	i.Cert = template
	i.Cert, i.key = i.sign("ca", template)
	return i
}

// Leaf is the paths of a new certificate for 127.0.0.1 and of its key.
func (i *Issuer) Leaf(name string, usage x509.ExtKeyUsage) (cert, key string) {
	i.t.Helper()
	i.sign(name, &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name},
		NotAfter:    time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{usage}})
	return filepath.Join(i.dir, name+".pem"), filepath.Join(i.dir, name+"-key.pem")
}

// Pool has the authority's certificate alone.
func (i *Issuer) Pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(i.Cert)
	return p
}

func (i *Issuer) sign(file string, template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	i.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	i.check(err)
	signer := i.key
	if signer == nil {
		signer = key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, i.Cert, &key.PublicKey, signer)
	i.check(err)
	private, err := x509.MarshalECPrivateKey(key)
	i.check(err)
	for name, block := range map[string]*pem.Block{file + ".pem": {Type: "CERTIFICATE", Bytes: der}, file +
		"-key.pem": {Type: "EC PRIVATE KEY", Bytes: private}} {
		i.check(os.WriteFile(filepath.Join(i.dir, name), pem.EncodeToMemory(block), 0o600))
	}
	cert, err := x509.ParseCertificate(der)
	i.check(err)
	return cert, key
}

func (i *Issuer) check(err error) {
	i.t.Helper()
	if err != nil {
		i.t.Fatal(err)
	}
}
