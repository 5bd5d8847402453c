package ingest_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"

	"outsight/internal/queue"
)

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	dir  string
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir()}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"},
		NotAfter: time.Now().Add(time.Hour),
		IsCA:     true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	a.cert, a.key = a.sign(t, template, "ca")
	return a
}

// sign makes a certificate and its key, as files of this name.
func (a *authority) sign(t testing.TB, template *x509.Certificate, name string) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	a.write(t, name+".pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	a.write(t, name+".key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}))
	return cert, key
}

func (a *authority) write(t testing.TB, name string, b []byte) string {
	t.Helper()
	path := filepath.Join(a.dir, name)
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func (a *authority) leaf(t testing.TB, name string, use x509.ExtKeyUsage) (cert, key string) {
	t.Helper()
	a.sign(t, &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name},
		NotAfter:    time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{use}}, name)
	return filepath.Join(a.dir, name+".pem"), filepath.Join(a.dir, name+".key")
}

// credentials are an account's token and the file of one of its users.
func credentials(t testing.TB, operator nkeys.KeyPair) (account, accountToken string, file []byte) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	accountKey, err := nkeys.CreateAccount()
	must(err)
	account, err = accountKey.PublicKey()
	must(err)
	accountToken, err = jwt.NewAccountClaims(account).Encode(operator)
	must(err)
	userKey, err := nkeys.CreateUser()
	must(err)
	user, err := userKey.PublicKey()
	must(err)
	userToken, err := jwt.NewUserClaims(user).Encode(accountKey)
	must(err)
	seed, err := userKey.Seed()
	must(err)
	file, err = jwt.FormatUserConfig(userToken, seed)
	must(err)
	return account, accountToken, file
}

// TestConnectWithCredentials: a server that wants TLS, a client's certificate and a user's credentials gets all of
// them, and lets in nobody who lacks one.
func TestConnectWithCredentials(t *testing.T) {
	operator, err := nkeys.CreateOperator()
	if err != nil {
		t.Fatal(err)
	}
	operatorName, err := operator.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	account, token, file := credentials(t, operator)
	_, _, stranger := credentials(t, operator)
	resolver := &natsserver.MemAccResolver{}
	if err := resolver.Store(account, token); err != nil {
		t.Fatal(err)
	}
	ours, others := newAuthority(t), newAuthority(t)
	pair, err := tls.LoadX509KeyPair(ours.leaf(t, "server", x509.ExtKeyUsageServerAuth))
	if err != nil {
		t.Fatal(err)
	}
	clients := x509.NewCertPool()
	clients.AddCert(ours.cert)
	s, err := natsserver.NewServer(&natsserver.Options{Host: "127.0.0.1", Port: -1, NoSigs: true,
		TrustedKeys: []string{operatorName}, AccountResolver: resolver,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: clients,
			ClientAuth: tls.RequireAndVerifyClientCert}, TLSTimeout: 30})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	defer func() { s.Shutdown(); s.WaitForShutdown() }()
	if !s.ReadyForConnections(time.Minute) {
		t.Fatal("the server is not ready")
	}
	cert, key := ours.leaf(t, "client", x509.ExtKeyUsageClientAuth)
	whole := queue.Server{URL: fmt.Sprintf("tls://127.0.0.1:%d", s.Addr().(*net.TCPAddr).Port),
		Credentials: ours.write(t, "user.creds", file), CA: filepath.Join(ours.dir, "ca.pem"), Cert: cert, Key: key}
	f := func(what string, in bool, change func(*queue.Server)) {
		t.Helper()
		o := whole
		change(&o)
		conn, err := queue.Connect(o, slog.New(slog.DiscardHandler))
		if err == nil {
			err = conn.FlushTimeout(30 * time.Second)
			conn.Close()
		}
		if (err == nil) != in {
			t.Errorf("%s: %v", what, err)
		}
	}
	f("everything", true, func(*queue.Server) {})
	f("no credentials", false, func(o *queue.Server) { o.Credentials = "" })
	f("credentials of an unknown account", false,
		func(o *queue.Server) { o.Credentials = ours.write(t, "stranger.creds", stranger) })
	f("no certificate", false, func(o *queue.Server) { o.Cert, o.Key = "", "" })
	f("a certificate of somebody else", false,
		func(o *queue.Server) { o.Cert, o.Key = others.leaf(t, "client", x509.ExtKeyUsageClientAuth) })
	f("a server that somebody else has signed", false,
		func(o *queue.Server) { o.CA = filepath.Join(others.dir, "ca.pem") })
}
